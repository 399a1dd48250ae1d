//! `loadtest run` sends load to a URL, `loadtest backend` is a model server to send it to.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use loadtest::backend::{Backend, BackendOptions, Failure, Failures, FixedAnswer, Latency, Mode, Pace};
use loadtest::duration;
use loadtest::results::{self, Outcome};
use loadtest::run::{self, Pattern, Progress, RunOptions, Target};

/// A load generator and a model backend that drive any URL.
#[derive(Parser)]
#[command(name = "loadtest", version, about)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Sends load to an http URL and reports what came back.
    Run(RunArgs),
    /// Serves as a model backend with the OpenAI API until it is ended.
    Backend(BackendArgs),
    /// Shows two runs side by side, from what `run --json` printed: the second as a multiple of the first.
    Compare(CompareArgs),
}

#[derive(Args)]
struct RunArgs {
    /// Where to send the requests (http only).
    url: String,
    /// Connections, over all threads.
    #[arg(short, long, default_value_t = 32)]
    connections: usize,
    /// Requests a second at times fixed in advance (open loop). Without it each connection sends when it has its answer (closed loop).
    #[arg(short, long, value_parser = positive)]
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
    #[arg(short = 'H', long = "header", value_parser = header)]
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

#[derive(Args)]
struct CompareArgs {
    /// The report to compare with.
    first: PathBuf,
    /// The report to compare.
    second: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Also write both as one page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Args)]
struct BackendArgs {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// Threads, each with its own listener.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Cores to pin the threads to, in turn.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Answer every request with one constant body, as fast as possible.
    #[arg(long)]
    fixed: bool,
    /// A file with the constant body (implies --fixed).
    #[arg(long)]
    fixed_body: Option<PathBuf>,
    /// A model to list; may be given many times.
    #[arg(long = "model")]
    models: Vec<String>,
    /// Tokens of an answer, when the request does not ask for fewer.
    #[arg(long, default_value_t = 32)]
    tokens: u64,
    /// Time to the first token.
    #[arg(long, default_value = "0", value_parser = duration::parse)]
    first_token: Duration,
    /// Tokens a second; 0 sends all at once.
    #[arg(long, default_value_t = 0.0, value_parser = not_negative)]
    tokens_per_second: f64,
    /// Pause before each answer: 5ms, or drawn from a range: 5ms..20ms.
    #[arg(long, default_value = "0", value_parser = latency)]
    latency: Latency,
    /// The share of requests that fail, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_parser = fraction)]
    failure_rate: f64,
    /// How they fail: a status, or "close" for no answer at all.
    #[arg(long, default_value = "500", value_parser = failure)]
    failure: Failure,
    /// Bytes a request body may have.
    #[arg(long)]
    max_body: Option<usize>,
    /// Seed of latencies and failures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("{text:?} is no header field: write it as \"Name: value\""))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn number(text: &str, what: &str, fits: impl Fn(f64) -> bool) -> Result<f64, String> {
    text.parse().ok().filter(|value| fits(*value)).ok_or_else(|| format!("{text:?} is not {what}"))
}

fn positive(text: &str) -> Result<f64, String> {
    number(text, "a number above 0", |value| value.is_finite() && value > 0.0)
}

fn not_negative(text: &str) -> Result<f64, String> {
    number(text, "a number, 0 or more", |value| value.is_finite() && value >= 0.0)
}

fn fraction(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 to 1", |value| (0.0..=1.0).contains(&value))
}

fn latency(text: &str) -> Result<Latency, String> {
    let Some((low, high)) = text.split_once("..") else {
        return Ok(match duration::parse(text)? {
            Duration::ZERO => Latency::None,
            pause => Latency::Fixed(pause),
        });
    };
    let (low, high) = (duration::parse(low)?, duration::parse(high)?);
    if low > high {
        return Err(format!("{text:?}: the first end of the range is the larger"));
    }
    Ok(Latency::Uniform(low, high))
}

fn failure(text: &str) -> Result<Failure, String> {
    if text == "close" {
        return Ok(Failure::Close);
    }
    text.parse()
        .ok()
        .filter(|status| (400..=599).contains(status))
        .map(Failure::Status)
        .ok_or_else(|| format!("{text:?} is neither a status from 400 to 599 nor \"close\""))
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Run(args) => run(args),
        Verb::Backend(args) => backend(args),
        Verb::Compare(args) => compare(&args),
    };
    outcome.unwrap_or_else(|message| {
        eprintln!("loadtest: {message}");
        ExitCode::from(1)
    })
}

fn read_file(path: &PathBuf) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn run_options(args: RunArgs) -> Result<RunOptions, String> {
    let body = match (&args.body, &args.body_file) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(path)) => read_file(path)?,
        (None, None) => Vec::new(),
    };
    let credentials = match &args.bearer_file {
        None => Vec::new(),
        Some(path) => {
            let text = String::from_utf8(read_file(path)?);
            let text = text.map_err(|_| format!("{}: it is no text", path.display()))?;
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if lines.is_empty() {
                return Err(format!("{}: it has no line", path.display()));
            }
            lines
        }
    };
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

fn run(args: RunArgs) -> Result<ExitCode, String> {
    let (json, html) = (args.json, args.html.clone());
    let options = run_options(args)?;
    let show = std::io::stderr().is_terminal();
    let mut last = Progress::default();
    let progress = |now: Progress| {
        let since = now.elapsed.saturating_sub(last.elapsed);
        if show && since >= Duration::from_millis(250) {
            let rate = (now.answers - last.answers) as f64 / since.as_secs_f64();
            eprint!(
                "\r\x1b[K{:6.1} s  {rate:9.0}/s  {} answers  {} of status 400 and up  {} failures",
                now.elapsed.as_secs_f64(),
                now.answers,
                now.error_statuses,
                now.failures
            );
            last = now;
        }
    };
    let report = run::run(&options, progress).map_err(|error| error.to_string())?;
    if show {
        eprint!("\r\x1b[K");
    }
    print(&if json { format!("{}\n", report.json()) } else { report.table() })?;
    if let Some(path) = html {
        write_page(&path, &[Outcome { name: options.target.url.clone(), report: report.json() }])?;
    }
    Ok(ExitCode::from(u8::from(report.tally.answers() == 0)))
}

fn print(text: &str) -> Result<(), String> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|error| format!("the result cannot be written: {error}"))
}

fn write_page(path: &PathBuf, outcomes: &[Outcome]) -> Result<(), String> {
    std::fs::write(path, results::page(outcomes)).map_err(|error| format!("{}: {error}", path.display()))
}

fn compare(args: &CompareArgs) -> Result<ExitCode, String> {
    let (first, second) = (Outcome::read(&args.first)?, Outcome::read(&args.second)?);
    match args.json {
        true => print(&format!("{}\n", results::ratios_json(&first, &second)))?,
        false => print(&results::ratios(&first, &second))?,
    }
    if let Some(path) = &args.html {
        write_page(path, &[first, second])?;
    }
    Ok(ExitCode::SUCCESS)
}

fn backend(args: BackendArgs) -> Result<ExitCode, String> {
    let mode = match &args.fixed_body {
        Some(path) => Mode::Fixed(FixedAnswer { body: read_file(path)?, ..FixedAnswer::default() }),
        None if args.fixed => Mode::Fixed(FixedAnswer::default()),
        None => Mode::Model,
    };
    let defaults = BackendOptions::default();
    let options = BackendOptions {
        listen: args.listen,
        threads: args.threads,
        cores: args.cores,
        mode,
        models: if args.models.is_empty() { defaults.models } else { args.models },
        completion_tokens: args.tokens,
        pace: Pace { first_token: args.first_token, tokens_per_second: args.tokens_per_second },
        latency: args.latency,
        failures: Failures { rate: args.failure_rate, how: args.failure },
        max_body: args.max_body.unwrap_or(defaults.max_body),
        seed: args.seed,
    };
    let backend = Backend::start(options).map_err(|error| format!("{}: {error}", args.listen))?;
    println!("listening on http://{}", backend.addr());
    backend.wait().map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

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
    fn option_values_are_read_or_refused() {
        let millis = Duration::from_millis;
        assert_eq!(latency("5ms..20ms"), Ok(Latency::Uniform(millis(5), millis(20))));
        assert_eq!(latency("5ms"), Ok(Latency::Fixed(millis(5))));
        assert_eq!(latency("0"), Ok(Latency::None));
        assert!(latency("20ms..5ms").is_err());
        assert_eq!(failure("close"), Ok(Failure::Close));
        assert_eq!(failure("429"), Ok(Failure::Status(429)));
        assert!(failure("200").is_err() && failure("x").is_err());
        assert_eq!(header("A:b: c"), Ok(("A".into(), "b: c".into())));
        assert!(header("A").is_err());
        assert!(fraction("1.5").is_err() && positive("0").is_err() && not_negative("inf").is_err());
        let https = Cli::try_parse_from(["loadtest", "run", "https://127.0.0.1/"]).expect("parsed");
        let Verb::Run(args) = https.verb else { panic!("not run") };
        assert!(run_options(args).expect_err("https").contains("https is not supported"));
    }
}
