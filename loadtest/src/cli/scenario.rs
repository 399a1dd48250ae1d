//! `scenario`: a file's load, checked against the gateway's counters.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use loadtest::duration;
use loadtest::results::Outcome;
use loadtest::run::Target;
use loadtest::scenario::{self, BUILT_IN, Changes, Existing, Own, Scenario, Settings, Step, Where};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::output::{self, Line};
use super::values;

/// Exit status of a run whose counts differ.
const DIFFERS: u8 = 3;
/// Exit status of a run that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;

#[derive(Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Args)]
pub struct ScenarioArgs {
    /// A built-in scenario, or the path of a scenario file.
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// List the built-in scenarios.
    #[arg(long)]
    list: bool,
    /// The gateway's binary: it is started in front of a backend, both in a temporary folder and on 127.0.0.1.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["list", "url"], conflicts_with = "url")]
    gateway: Option<PathBuf>,
    /// A target that is already there, a gateway or not (http only).
    #[arg(long)]
    url: Option<String>,
    /// With --url: a file of bearer tokens, one a line, drawn as the scenario says.
    #[arg(long, value_name = "FILE", conflicts_with = "gateway")]
    bearer_file: Option<PathBuf>,
    /// With --url: a header field, as "Name: value"; may be given many times.
    #[arg(short = 'H', long = "header", value_parser = values::header, conflicts_with = "gateway")]
    headers: Vec<(String, String)>,
    /// With --url: the management API, whose usage is compared too; its token is in TT_ADMIN_TOKEN or --management-token-file.
    #[arg(long, value_name = "URL", conflicts_with = "gateway")]
    management: Option<String>,
    /// A file with the token of the management API.
    #[arg(long, value_name = "FILE", requires = "management")]
    management_token_file: Option<PathBuf>,
    /// Requests a second instead of the scenario's; of a ramp, the highest that is tried.
    #[arg(short, long, value_parser = values::positive)]
    rate: Option<f64>,
    /// Measured time instead of the scenario's; of a ramp, of each step.
    #[arg(short, long, value_parser = duration::parse)]
    duration: Option<Duration>,
    /// Time at the start that is not measured, instead of the scenario's.
    #[arg(short, long, value_parser = duration::parse)]
    warm_up: Option<Duration>,
    /// Connections instead of the scenario's.
    #[arg(short, long)]
    connections: Option<usize>,
    /// Keys instead of the scenario's.
    #[arg(long, conflicts_with = "bearer_file")]
    keys: Option<usize>,
    /// Measurements of a ramp at most, instead of the scenario's.
    #[arg(long)]
    steps: Option<usize>,
    /// Governance on or off, whatever the scenario says: run both to see what it costs.
    #[arg(long, conflicts_with = "url")]
    governance: Option<Switch>,
    /// Threads of the generator.
    #[arg(short, long, default_value_t = 1)]
    threads: usize,
    /// Cores to pin them to, in turn.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Cores to pin the backend's threads to, in turn.
    #[arg(long, value_delimiter = ',', conflicts_with = "url")]
    backend_cores: Vec<usize>,
    /// Cores that the gateway may use.
    #[arg(long, value_delimiter = ',', conflicts_with = "url")]
    gateway_cores: Vec<usize>,
    /// Worker cores of the gateway [default: as many as it may use].
    #[arg(long, conflicts_with = "url")]
    workers: Option<usize>,
    /// How long the backend alone is driven first, to know what it can do at most; 0 leaves it out.
    #[arg(long, default_value = "1s", value_parser = duration::parse)]
    ceiling: Duration,
    /// Seed of keys, latencies and failures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Also write the result as a page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl ScenarioArgs {
    fn settings(&self, name: &str) -> Result<Settings, String> {
        let mut scenario = Scenario::find(name)?;
        scenario.change(&Changes {
            rate: self.rate,
            duration: self.duration,
            warm_up: self.warm_up,
            connections: self.connections,
            keys: self.keys,
            governance: self.governance.map(|switch| matches!(switch, Switch::On)),
            steps: self.steps,
        })?;
        Ok(Settings {
            scenario,
            target: self.target()?,
            threads: self.threads,
            cores: self.cores.clone(),
            backend_cores: self.backend_cores.clone(),
            ceiling: self.ceiling,
            seed: self.seed,
        })
    }

    fn target(&self) -> Result<Where, String> {
        match (&self.gateway, &self.url) {
            (Some(path), _) => Ok(Where::Own(Own {
                path: path.clone(),
                workers: self.workers,
                cores: self.gateway_cores.clone(),
            })),
            (None, Some(url)) => Ok(Where::Existing(Box::new(Existing {
                target: Target::parse(url)?,
                credentials: values::bearers(self.bearer_file.as_deref())?,
                headers: self.headers.clone(),
                management: self.management.as_deref().map(|url| self.management(url)).transpose()?,
            }))),
            (None, None) => {
                Err("give --gateway FILE to start a gateway, or --url URL of one that is there".into())
            }
        }
    }

    fn management(&self, url: &str) -> Result<(Target, String), String> {
        let token = match &self.management_token_file {
            Some(path) => {
                let text = String::from_utf8(values::read_file(path)?);
                text.map_err(|_| format!("{}: it is no text", path.display()))?.trim().to_owned()
            }
            None => std::env::var("TT_ADMIN_TOKEN").map_err(|_| {
                "--management needs its token: set TT_ADMIN_TOKEN, or give --management-token-file".to_owned()
            })?,
        };
        Ok((Target::parse(url)?, token))
    }
}

/// Runs it. What it starts is ended on every path: when this returns, when it panics, and when a signal comes.
pub fn run(args: &ScenarioArgs) -> Result<ExitCode, String> {
    let Some(name) = args.name.as_deref().filter(|_| !args.list) else {
        return list();
    };
    let settings = args.settings(name)?;
    end_children_on_signals()?;
    let mut line = Line::new();
    let outcome = scenario::run(&settings, &mut |step| match step {
        Step::Doing(what) => line.say(what),
        Step::Load(now, None) => line.load(now, ""),
        Step::Load(now, Some(rate)) => line.load(now, &format!("at {rate:.0}/s: ")),
    });
    line.clear();
    let outcome = outcome?;
    output::print(&if args.json { format!("{}\n", outcome.json()) } else { outcome.table() })?;
    if let Some(path) = &args.html {
        output::write_page(
            path,
            &[Outcome { name: settings.scenario.name.clone(), report: outcome.json() }],
        )?;
    }
    Ok(match outcome.passed() {
        false => {
            eprintln!("loadtest: the gateway's counters are not what clients saw");
            ExitCode::from(DIFFERS)
        }
        true => ExitCode::from(u8::from(outcome.report.tally.answers() == 0)),
    })
}

fn list() -> Result<ExitCode, String> {
    let width = BUILT_IN.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, _) in BUILT_IN {
        let about = Scenario::find(name)?.about;
        output::print(&format!("{name:<width$}  {about}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn end_children_on_signals() -> Result<(), String> {
    let signals = Signals::new([SIGINT, SIGTERM]);
    let mut signals = signals.map_err(|error| format!("signals cannot be taken: {error}"))?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            scenario::children::end_all();
            std::process::exit(INTERRUPTED);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Verb};
    use super::*;

    fn settings(line: &str) -> Result<Settings, String> {
        let cli = Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        let Verb::Scenario(args) = cli.verb else { panic!("{line}") };
        args.settings(args.name.as_deref().unwrap_or_default())
    }

    #[test]
    fn a_target_is_started_or_is_there() {
        let own = settings("loadtest scenario steady --gateway x --rate 5 --governance off --workers 2")
            .expect("own");
        assert!(matches!(own.target, Where::Own(Own { workers: Some(2), .. })));
        assert_eq!((own.scenario.load.rate, own.scenario.governance.enabled), (Some(5.0), false));
        let there = settings("loadtest scenario churn --url http://127.0.0.1:1 -H A:b").expect("there");
        let Where::Existing(there) = there.target else { panic!("not there") };
        assert_eq!(there.headers, [("A".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        for (line, word) in [
            ("loadtest scenario steady", "--gateway"),
            ("loadtest scenario steady --gateway x --url http://127.0.0.1:1", "cannot be used with"),
            ("loadtest scenario steady --gateway x --bearer-file y", "cannot be used with"),
            ("loadtest scenario steady --gateway x -H A:b", "cannot be used with"),
            ("loadtest scenario steady --gateway x --management http://127.0.0.1:1", "cannot be used with"),
            ("loadtest scenario steady --url http://127.0.0.1:1 --governance off", "cannot be used with"),
            ("loadtest scenario steady --gateway x --steps 5", "no ramp"),
            ("loadtest scenario nothing --gateway x", "deny_storm"),
            ("loadtest scenario steady --url https://127.0.0.1:1", "https is not supported"),
        ] {
            let error = settings(line).err().unwrap_or_else(|| panic!("{line} is accepted"));
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
