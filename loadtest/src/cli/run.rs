//! `run`: load to any URL.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use loadtest::duration;
use loadtest::results::Outcome;
use loadtest::run::{self, Pattern, RunOptions, Target};

use super::output::{self, Line};
use super::values;

#[derive(Args)]
pub struct RunArgs {
    /// Where to send the requests (http only).
    url: String,
    /// Connections, over all threads.
    #[arg(short, long, default_value_t = 32)]
    connections: usize,
    /// Requests a second at times fixed in advance (open loop). Without it each connection sends when it has its answer (closed loop).
    #[arg(short, long, value_parser = values::positive)]
    rate: Option<f64>,
    /// Threads.
    #[arg(short, long, default_value_t = 1)]
    threads: usize,
    /// Cores to pin the threads to, in turn.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Measured time [default: 10s, or no end with --requests].
    #[arg(short, long, value_parser = duration::parse)]
    duration: Option<Duration>,
    /// Measured requests.
    #[arg(short = 'n', long)]
    requests: Option<u64>,
    /// Time at the start that is not measured.
    #[arg(short, long, default_value = "1s", value_parser = duration::parse)]
    warm_up: Duration,
    /// Longest time for one answer.
    #[arg(long, default_value = "30s", value_parser = duration::parse)]
    timeout: Duration,
    /// Time after the end in which answers under way may complete.
    #[arg(long, default_value = "2s", value_parser = duration::parse)]
    grace: Duration,
    /// Request method [default: GET, or POST with a body].
    #[arg(short = 'X', long)]
    method: Option<String>,
    /// A header field, as "Name: value"; may be given many times.
    #[arg(short = 'H', long = "header", value_parser = values::header)]
    headers: Vec<(String, String)>,
    /// A file of bearer tokens, one a line; each request takes the next one.
    #[arg(long)]
    bearer_file: Option<PathBuf>,
    /// The request body.
    #[arg(short, long, conflicts_with = "body_file")]
    body: Option<String>,
    /// A file with the request body.
    #[arg(long)]
    body_file: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Also write the result as a page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn run_options(args: RunArgs) -> Result<RunOptions, String> {
    let body = match (&args.body, &args.body_file) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(path)) => values::read_file(path)?,
        (None, None) => Vec::new(),
    };
    let credentials = values::bearers(args.bearer_file.as_deref())?;
    let default_method = if body.is_empty() { "GET" } else { "POST" };
    let ten_seconds = args.requests.is_none().then_some(Duration::from_secs(10));
    Ok(RunOptions {
        method: args.method.unwrap_or_else(|| default_method.into()),
        headers: args.headers,
        credentials,
        body,
        pattern: args.rate.map_or(Pattern::Closed, |rate| Pattern::Open { rate }),
        connections: args.connections,
        threads: args.threads,
        cores: args.cores,
        warm_up: args.warm_up,
        duration: args.duration.or(ten_seconds),
        requests: args.requests,
        timeout: args.timeout,
        grace: args.grace,
        ..RunOptions::to(Target::parse(&args.url)?)
    })
}

/// Sends it.
pub fn run(args: RunArgs) -> Result<ExitCode, String> {
    let (json, html) = (args.json, args.html.clone());
    let options = run_options(args)?;
    let mut line = Line::new();
    let report = run::run(&options, |now| line.load(now, "")).map_err(|error| error.to_string())?;
    line.clear();
    output::print(&if json { format!("{}\n", report.json()) } else { report.table() })?;
    if let Some(path) = html {
        output::write_page(&path, &[Outcome { name: options.target.url.clone(), report: report.json() }])?;
    }
    Ok(ExitCode::from(u8::from(report.tally.answers() == 0)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Verb};
    use super::*;

    #[test]
    fn a_body_makes_a_post_and_a_count_lifts_the_duration() {
        fn check(line: &str, method: &str, duration: Option<u64>, pattern: Pattern) {
            let cli = Cli::try_parse_from(line.split(' ')).expect(line);
            let Verb::Run(args) = cli.verb else { panic!("{line}") };
            let options = run_options(args).expect(line);
            assert_eq!(options.method, method, "{line}");
            assert_eq!(options.duration, duration.map(Duration::from_secs), "{line}");
            assert_eq!(options.pattern, pattern, "{line}");
        }
        check("loadtest run http://127.0.0.1/", "GET", Some(10), Pattern::Closed);
        check("loadtest run -n 5 --body {} http://127.0.0.1/", "POST", None, Pattern::Closed);
        let open = Pattern::Open { rate: 2.5 };
        check("loadtest run -r 2.5 -d 2s -n 5 -X PUT http://127.0.0.1/", "PUT", Some(2), open);
    }

    #[test]
    fn https_is_refused_with_the_reason() {
        let https = Cli::try_parse_from(["loadtest", "run", "https://127.0.0.1/"]).expect("parsed");
        let Verb::Run(args) = https.verb else { panic!("not run") };
        assert!(run_options(args).expect_err("https").contains("https is not supported"));
    }
}
