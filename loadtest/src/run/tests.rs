//! The generator against the backend and against servers that misbehave.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use super::tally::Failed;
use super::*;
use crate::backend::{Backend, BackendOptions, Failure, Failures, Latency, Mode, Pace};

const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":3}"#;

fn options(backend: &Backend) -> RunOptions {
    let url = format!("http://{}/v1/chat/completions", backend.addr());
    RunOptions {
        method: "POST".into(),
        body: BODY.into(),
        connections: 4,
        warm_up: Duration::ZERO,
        duration: Some(Duration::from_millis(300)),
        ..RunOptions::to(Target::parse(&url).expect("a URL"))
    }
}

fn start(options: BackendOptions) -> Backend {
    Backend::start(options).expect("a backend on a free port")
}

fn report(options: &RunOptions) -> Report {
    run(options, |_| ()).expect("a run")
}

#[test]
fn a_closed_loop_counts_what_the_server_counts() {
    fn check(threads: usize, mode: Mode) {
        let backend = start(BackendOptions { mode, ..BackendOptions::default() });
        let options = RunOptions { threads, duration: None, requests: Some(1001), ..options(&backend) };
        let report = report(&options);
        assert_eq!(report.tally.answers(), 1001);
        assert_eq!(report.tally.all_failures(), 0);
        assert_eq!(backend.stats().requests, 1001);
        assert_eq!(backend.stats().connections, 4);
        assert!(report.rate() > 100.0, "{}", report.rate());
    }
    check(1, Mode::Model);
    check(2, Mode::Model);
    check(1, Mode::Fixed(Default::default()));
}

#[test]
fn an_open_loop_sends_at_its_rate() {
    fn check(threads: usize) {
        let backend = start(BackendOptions::default());
        let options = RunOptions {
            pattern: Pattern::Open { rate: 1000.0 },
            threads,
            warm_up: Duration::from_millis(100),
            duration: Some(Duration::from_millis(500)),
            ..options(&backend)
        };
        let report = report(&options);
        let all = report.tally.answers() + report.tally.all_failures() + report.tally.not_sent;
        assert_eq!(all, 500, "{}", report.table());
        assert_eq!(report.tally.send_delay.count(), report.tally.answers());
    }
    check(1);
    check(3);
}

#[test]
fn an_open_loop_shows_the_wait_for_a_slow_server() {
    // One connection, 20 ms an answer: 50 a second at most. Asked for 100, the waiting grows by 10 ms a request.
    let backend = start(BackendOptions {
        latency: Latency::Fixed(Duration::from_millis(20)),
        ..BackendOptions::default()
    });
    let options = RunOptions {
        pattern: Pattern::Open { rate: 100.0 },
        connections: 1,
        duration: Some(Duration::from_millis(1000)),
        ..options(&backend)
    };
    let report = report(&options);
    let (answers, not_sent) = (report.tally.answers(), report.tally.not_sent);
    assert!((30..=51).contains(&answers), "{answers} answers");
    assert_eq!(answers + not_sent + report.tally.all_failures(), 100);
    assert!(report.tally.latency().max() > Duration::from_millis(400), "{}", report.table());
    assert!(report.warnings().iter().any(|warning| warning.contains("never sent")));
}

#[test]
fn streams_are_measured_by_their_events() {
    fn check(stamps_events: bool) {
        let backend = start(BackendOptions {
            pace: Pace { first_token: Duration::from_millis(30), tokens_per_second: 100.0 },
            stamps_events,
            ..BackendOptions::default()
        });
        let body = BODY.replace("\"max_tokens\":3", "\"max_tokens\":5,\"stream\":true");
        let options =
            RunOptions { body: body.into_bytes(), duration: None, requests: Some(8), ..options(&backend) };
        let report = report(&options);
        assert_eq!(report.tally.streams, 8, "{}", report.table());
        // Role, five tokens, the finish.
        assert_eq!(report.tally.events, 8 * 7);
        assert_eq!(report.tally.event_gap.count(), 8 * 6);
        assert!(report.tally.first_event.percentile(0.0) >= Duration::from_millis(29));
        let longest = report.tally.event_gap.max();
        assert!((7..100).contains(&longest.as_millis()), "{longest:?}");
        let delay = &report.tally.event_delay;
        assert_eq!(delay.count(), if stamps_events { 8 * 7 } else { 0 });
        assert!(
            delay.percentile(50.0) < Duration::from_millis(29),
            "shorter than a pause: {}",
            report.table()
        );
    }
    check(false);
    check(true);
}

#[test]
fn statuses_and_failures_are_told_apart() {
    let failing =
        |how| start(BackendOptions { failures: Failures { rate: 0.5, how }, ..BackendOptions::default() });
    let backend = failing(Failure::Status(503));
    let limited = RunOptions { duration: None, requests: Some(400), ..options(&backend) };
    let seen = report(&limited);
    let statuses: Vec<u16> = seen.tally.statuses.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 503]);
    assert_eq!((seen.tally.answers(), seen.tally.all_failures()), (400, 0));

    let backend = failing(Failure::Close);
    let limited = RunOptions { duration: None, requests: Some(400), ..options(&backend) };
    let seen = report(&limited);
    let failed = backend.stats().failed;
    assert!(failed > 100);
    assert_eq!(seen.tally.failures(Failed::Closed), failed);
    assert_eq!(seen.tally.answers() + failed, 400);
    assert!(seen.tally.connects >= failed, "{}", seen.tally.connects);
}

#[test]
fn a_server_that_is_down_or_slow_or_talks_nonsense_is_reported_so() {
    fn check(answer: Option<&'static str>, how: Failed) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                std::thread::spawn(move || {
                    let mut piece = [0; 4096];
                    while matches!(stream.read(&mut piece), Ok(1..)) {
                        let Some(answer) = answer else { continue };
                        let _ = stream.write_all(answer.as_bytes());
                        return;
                    }
                });
            }
        });
        let options = RunOptions {
            connections: 2,
            warm_up: Duration::ZERO,
            duration: Some(Duration::from_millis(300)),
            timeout: Duration::from_millis(50),
            ..RunOptions::to(Target::parse(&format!("http://{address}/")).expect("a URL"))
        };
        let report = report(&options);
        assert!(report.tally.failures(how) > 0, "{how:?}: {}", report.table());
        assert_eq!(report.tally.all_failures(), report.tally.failures(how), "{}", report.table());
        assert_eq!(report.tally.answers(), 0);
        assert!(!report.warnings().is_empty());
    }
    check(Some("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"), Failed::Truncated);
    check(Some("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nlong"), Failed::Protocol);
    check(Some("SSH-2.0-nonsense\r\n"), Failed::Protocol);
    check(Some(""), Failed::Closed);
    check(None, Failed::TimedOut);

    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let options = RunOptions {
        connections: 2,
        duration: Some(Duration::from_millis(100)),
        warm_up: Duration::ZERO,
        ..RunOptions::to(Target::parse(&format!("http://{free}/")).expect("a URL"))
    };
    let report = report(&options);
    assert!(report.tally.failures(Failed::Connect) > 0);
    assert_eq!(report.json()["latency_us"], serde_json::Value::Null);
}

#[test]
fn an_answer_under_way_at_the_end_is_not_forgotten() {
    let backend = start(BackendOptions {
        latency: Latency::Fixed(Duration::from_secs(30)),
        ..BackendOptions::default()
    });
    let options = RunOptions { grace: Duration::from_millis(50), ..options(&backend) };
    let report = report(&options);
    assert_eq!(report.tally.failures(Failed::Unfinished), 4, "{}", report.table());
    assert!(report.table().contains("  unfinished 4\n"), "{}", report.table());
}

#[test]
fn the_warm_up_is_not_measured() {
    let backend = start(BackendOptions::default());
    let options = RunOptions {
        warm_up: Duration::from_millis(200),
        duration: Some(Duration::from_millis(200)),
        ..options(&backend)
    };
    let report = report(&options);
    let all = backend.stats().requests;
    assert!(report.tally.answers() < all, "{} of {all}", report.tally.answers());
    assert_eq!(report.measured, Duration::from_millis(200));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let backend = start(BackendOptions::default());
    let sound = options(&backend);
    let endless = RunOptions { duration: None, ..sound.clone() };
    let still = RunOptions { pattern: Pattern::Open { rate: 0.0 }, ..sound.clone() };
    let odd = RunOptions { method: "GE T".into(), ..sound.clone() };
    let nowhere = RunOptions { cores: vec![100_000], ..sound };
    for wrong in [endless, still, odd, nowhere] {
        assert!(run(&wrong, |_| ()).is_err(), "{wrong:?}");
    }
}

#[test]
fn shares_add_up() {
    for (whole, threads) in [(10, 3), (0, 2), (7, 7), (2, 5)] {
        let sum: u64 = (0..threads).map(|thread| share(whole, threads, thread)).sum();
        assert_eq!(sum, whole);
    }
}
