//! `backend`: a model server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use loadtest::backend::{Backend, BackendOptions, Failure, Failures, FixedAnswer, Latency, Mode, Pace};
use loadtest::duration;

use super::values;

#[derive(Args)]
pub struct BackendArgs {
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
    /// Bytes of text that an answer has at least, however many tokens it reports; not for streams.
    #[arg(long, default_value_t = 0)]
    answer_bytes: usize,
    /// Time to the first token.
    #[arg(long, default_value = "0", value_parser = duration::parse)]
    first_token: Duration,
    /// Tokens a second; 0 sends all at once.
    #[arg(long, default_value_t = 0.0, value_parser = values::not_negative)]
    tokens_per_second: f64,
    /// Write into each event of a completion when it was sent ("sent_ns"): `loadtest run` on this machine then tells how long events are on their way.
    #[arg(long)]
    stamp_events: bool,
    /// Pause before each answer: 5ms, or drawn from a range: 5ms..20ms.
    #[arg(long, default_value = "0")]
    latency: Latency,
    /// The share of requests that fail, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_parser = values::fraction)]
    failure_rate: f64,
    /// How they fail: a status, or "close" for no answer at all.
    #[arg(long, default_value = "500")]
    failure: Failure,
    /// Bytes a request body may have.
    #[arg(long)]
    max_body: Option<usize>,
    /// Seed of latencies and failures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Serves.
pub fn run(args: BackendArgs) -> Result<ExitCode, String> {
    let mode = match &args.fixed_body {
        Some(path) => Mode::Fixed(FixedAnswer { body: values::read_file(path)?, ..FixedAnswer::default() }),
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
        answer_bytes: args.answer_bytes,
        pace: Pace { first_token: args.first_token, tokens_per_second: args.tokens_per_second },
        stamps_events: args.stamp_events,
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
