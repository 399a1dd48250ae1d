//! The board, and its text.

use std::sync::Arc;

use engine::metrics::Outcome;
use engine::{
    Admit, Attach, CoreId, Dims, Enforce, Identity, Instance, Limit, LimitId, LimitType, Match, NodeId,
    OverridePolicy, PicoUsd, Posture, ProviderId, Span, Tokens, Units, Window,
};

use super::*;

fn metrics(core: u16) -> Metrics {
    Metrics {
        core: CoreId(core),
        admitted: 0,
        limits: Vec::new(),
        exchanges: Exchanges::default(),
        used: UsageSum::default(),
        gate_one: Histogram::default(),
        gate_two: Histogram::default(),
        first_byte: Vec::new(),
        notices: Vec::new(),
        key_uses: std::collections::HashMap::default(),
        gauges: Gauges::default(),
    }
}

/// The lines of a text that are figures.
fn figures(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[track_caller]
fn check(text: &str, wanted: &[&str]) {
    for line in wanted {
        assert!(figures(text).contains(line), "no line {line} in\n{text}");
    }
}

#[test]
fn what_the_cores_report_adds_up() {
    let board = Board::default();
    for core in [0, 1] {
        let mut report = metrics(core);
        report.admitted = 3;
        let events = LimitEvents { admitted: 9, refused: 2, shadow_refused: 1, alerted: 0 };
        report.limits = vec![(LimitId::new("ml \"daily\"\n"), events)];
        report.exchanges.count(200, Outcome::Complete);
        report.exchanges.count(429, Outcome::Capped);
        report.used = UsageSum {
            requests: 1,
            input: Tokens(30),
            output: Tokens(17),
            cost: PicoUsd(u128::from(u64::MAX) / 2),
            ..UsageSum::default()
        };
        report.gate_one.observe(Span(700));
        report.gate_two.observe(Span(1_500));
        let mut histogram = Histogram::default();
        histogram.observe(Span(2_000_000_000));
        report.first_byte = vec![(ProviderId::new("local"), histogram)];
        report.gauges = Gauges { connections: 2, reservations: 1, holds: 4, ..Gauges::default() };
        report.gauges.live_slots = (core == 0).then_some(7);
        board.add(&report);
    }
    let text = board.text(InForce { version: 5, limits: 2, nodes: 3, keys: 4 });
    check(
        &text,
        &[
            "tokentriage_requests_admitted_total 6",
            "tokentriage_limit_admitted_total{limit=\"ml \\\"daily\\\"\\n\"} 18",
            "tokentriage_limit_refused_total{limit=\"ml \\\"daily\\\"\\n\"} 4",
            "tokentriage_limit_shadow_refused_total{limit=\"ml \\\"daily\\\"\\n\"} 2",
            "tokentriage_exchanges_total{status=\"2xx\",ending=\"complete\"} 2",
            "tokentriage_exchanges_total{status=\"4xx\",ending=\"capped\"} 2",
            "tokentriage_tokens_total{kind=\"input\"} 60",
            "tokentriage_tokens_total{kind=\"output\"} 34",
            "tokentriage_cost_pico_usd_total 18446744073709551614",
            "tokentriage_usage_requests_total 2",
            "tokentriage_gate_one_seconds_count 2",
            "tokentriage_gate_one_seconds_bucket{le=\"1.024e-06\"} 2",
            "tokentriage_gate_two_seconds_count 2",
            "tokentriage_gate_two_seconds_bucket{le=\"1.024e-06\"} 0",
            "tokentriage_gate_two_seconds_bucket{le=\"2.048e-06\"} 2",
            "tokentriage_gate_two_seconds_bucket{le=\"+Inf\"} 2",
            "tokentriage_first_byte_seconds_sum{provider=\"local\"} 4.0",
            "tokentriage_connections 4",
            "tokentriage_holds 8",
            "tokentriage_live_slots 7",
            "tokentriage_cores 2",
            "tokentriage_ruleset_version 5",
            "tokentriage_keys 4",
            "tokentriage_write_lag_seconds 0",
            "tokentriage_reload_refused 0",
        ],
    );
    assert!(!text.contains("limit_alerted_total{"), "a limit that did nothing has no series");
    assert!(text.contains("# TYPE tokentriage_gate_two_seconds histogram"));
}

#[test]
fn a_gauge_is_the_last_report_and_slots_stay_until_counted_again() {
    let board = Board::default();
    for (reservations, live_slots) in [(5, Some(3)), (2, None)] {
        let mut report = metrics(0);
        report.gauges = Gauges { reservations, live_slots, ..Gauges::default() };
        board.add(&report);
    }
    check(&board.text(InForce::default()), &["tokentriage_reservations 2", "tokentriage_live_slots 3"]);
}

#[test]
fn writes_and_reloads_show_whether_they_go_well() {
    let board = Board::default();
    board.written(3, 2, true);
    board.reloaded(true);
    board.reloaded(false);
    let text = board.text(InForce::default());
    check(
        &text,
        &[
            "tokentriage_unwritten_rows{kind=\"counters\"} 3",
            "tokentriage_unwritten_rows{kind=\"usage\"} 2",
            "tokentriage_write_failures_total 1",
            "tokentriage_reloads_total{result=\"done\"} 1",
            "tokentriage_reloads_total{result=\"refused\"} 1",
            "tokentriage_reload_refused 1",
        ],
    );
    assert!(!figures(&text).contains(&"tokentriage_write_lag_seconds 0"), "{text}");
    board.written(0, 0, false);
    board.reloaded(true);
    let text = board.text(InForce::default());
    check(
        &text,
        &[
            "tokentriage_unwritten_rows{kind=\"counters\"} 0",
            "tokentriage_write_lag_seconds 0",
            "tokentriage_write_failures_total 1",
            "tokentriage_reload_refused 0",
        ],
    );
}

#[test]
fn names_beyond_the_bound_share_one_series() {
    let board = Board::default();
    let mut report = metrics(0);
    let events = LimitEvents { refused: 1, ..LimitEvents::default() };
    report.limits =
        (0..bounds::METRIC_NAMES + 5).map(|number| (LimitId::new(&format!("l{number}")), events)).collect();
    board.add(&report);
    let text = board.text(InForce::default());
    check(&text, &["tokentriage_limit_refused_total{limit=\"(others)\"} 5"]);
    assert_eq!(text.matches("limit_refused_total{").count(), bounds::METRIC_NAMES + 1);
}

fn notice(mode: Mode, at: &str, until: &str) -> Notice {
    let node = NodeId::new("org:a");
    let limit = Limit {
        id: LimitId::new("cap"),
        attach: Attach::Node(node.clone()),
        kind: LimitType::Concurrency,
        amount: Units(1),
        window: Window::Live,
        admit: Admit::WhileUnder,
        posture: Posture { mode, enforce: Enforce::AlertOnly, ..Posture::default() },
        matches: Match::default(),
        overrides: OverridePolicy::default(),
        suspended: false,
    };
    let identity = Identity::new(&limit, &node, &Dims { model: "", provider: "", endpoint: "" });
    let instance = Instance { amount: limit.amount, limit: Arc::new(limit), node, identity };
    let time = |text: &str| format!("2026-08-01T{text}Z").parse().expect("a time");
    Notice { instance, at: time(at), until: time(until) }
}

#[test]
fn what_one_core_has_told_no_other_tells_in_the_same_window() {
    let board = Board::default();
    for (mode, at, until, news) in [
        (Mode::On, "10:00:00", "11:00:00", true),
        (Mode::On, "10:00:01", "11:00:00", false),
        (Mode::Shadow, "10:00:01", "10:01:01", true),
        (Mode::Shadow, "10:01:00", "10:02:00", false),
        (Mode::Shadow, "10:01:01", "10:02:01", true),
        (Mode::On, "10:59:59", "11:00:00", false),
        (Mode::On, "11:00:00", "12:00:00", true),
    ] {
        assert_eq!(board.is_news(&notice(mode, at, until)), news, "{mode:?} {at}");
    }
}
