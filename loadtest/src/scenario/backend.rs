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
        stamps_events: true,
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
/// `None` when nothing was answered in that time, as on a machine that has none to give.
///
/// # Errors
/// In words: neither can be started.
pub fn ceiling(
    scenario: &Scenario,
    load: &RunOptions,
    cores: &[usize],
    span: Duration,
) -> Result<Option<Ceiling>, String> {
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
    let ceiling = Ceiling { rate: report.rate(), at_least: report.generator_busy() > 0.95 };
    Ok((ceiling.rate > 0.0).then_some(ceiling))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_that_could_not_be_measured_is_none() {
        let scenario = Scenario::find("slow_upstream").expect("a built-in scenario");
        let load = RunOptions {
            method: "POST".into(),
            body: scenario.body.clone(),
            ..RunOptions::to(Target::parse("http://127.0.0.1:1/v1/chat/completions").expect("a URL"))
        };
        let of = |span| ceiling(&scenario, &load, &[], span).expect("a backend on a free port");
        assert!(of(Duration::from_nanos(1)).is_none());
        // Its latency of half a second is left out, so even the slowest machine answers some.
        assert!(of(Duration::from_secs(1)).is_some_and(|ceiling| ceiling.rate > 0.0));
    }
}
