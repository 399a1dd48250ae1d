//! The scenario's backend, in this process, and what it can do at most.

use std::time::Duration;

use super::Scenario;
use crate::backend::{Backend, BackendOptions, Failures, Latency, Pace};
use crate::run::{self, Pattern, RunOptions, Target};

/// Of the time that a ceiling is measured, the part before it that is not.
const WARM_UP: u32 = 5;

/// Starts it.
///
/// # Errors
/// In words: a core does not exist, or the system is out of descriptors or threads.
pub fn start(scenario: &Scenario, cores: &[usize], seed: u64) -> Result<Backend, String> {
    Backend::start(options(scenario, cores, seed)).map_err(|error| format!("the backend: {error}"))
}

fn options(scenario: &Scenario, cores: &[usize], seed: u64) -> BackendOptions {
    let part = &scenario.backend;
    BackendOptions {
        threads: part.threads,
        cores: cores.to_vec(),
        models: vec![scenario.model.clone()],
        completion_tokens: part.tokens,
        answer_bytes: part.answer_bytes,
        latency: part.latency,
        pace: Pace { first_token: part.first_token, tokens_per_second: part.tokens_per_second },
        failures: Failures { rate: part.failure_rate, how: part.failure },
        seed,
        ..BackendOptions::default()
    }
}

/// What the backend can do at most.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// Answers a second.
    pub rate: f64,
    /// The generator was busy all the time, so that it may be more.
    pub at_least: bool,
}

/// Drives the same backend, without its pauses and failures, as fast as it goes for a moment: what is left is the work of answering.
///
/// # Errors
/// In words: neither can be started.
pub fn ceiling(
    scenario: &Scenario,
    load: &RunOptions,
    cores: &[usize],
    span: Duration,
) -> Result<Ceiling, String> {
    let at_once = BackendOptions {
        latency: Latency::None,
        pace: Pace::default(),
        failures: Failures::default(),
        ..options(scenario, cores, 1)
    };
    let backend = Backend::start(at_once).map_err(|error| format!("the backend: {error}"))?;
    let url = format!("http://{}{}", backend.addr(), load.target.path);
    let direct = RunOptions {
        target: Target::parse(&url)?,
        credentials: Vec::new(),
        watch: None,
        pattern: Pattern::Closed,
        requests_per_connection: None,
        warm_up: span / WARM_UP,
        duration: Some(span),
        ..load.clone()
    };
    let report = run::run(&direct, |_| ()).map_err(|error| error.to_string())?;
    backend.stop();
    Ok(Ceiling { rate: report.rate(), at_least: report.generator_busy() > 0.95 })
}
