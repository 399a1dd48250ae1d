//! Seeded worlds of requests that use more than their size says, against one `if_fits` cap: with what was learnt the cap is
//! overshot by less, and nothing else changes (SPEC §4.4, §4.5).

mod support;

use std::collections::VecDeque;

use engine::{
    Admit, Answer, Ask, CalendarPeriod, Conjunction, CoreId, Estimate, Estimator, Expected, GateTwoPlan,
    Glob, Lesson, LimitType, Monotonic, PicoUsd, ProviderId, Reservation, ReservationId, Route, Settlement,
    Shard, Step, Tokens, Usage,
};
use support::{SECOND, Seeded, calendar, limit, now, selected};

/// How the backend of one world counts.
#[derive(Clone, Copy)]
struct Backend {
    /// Tokens for each hundred estimated.
    percent: u64,
    /// How much that varies, either way.
    spread: u64,
    /// Tokens that a template adds.
    template: u64,
    /// The most tokens of an answer.
    longest: u64,
}

/// One request in flight.
struct Flight {
    reservation: Reservation,
    lesson: Lesson,
    usage: Usage,
}

const HOLD: Tokens = Tokens(256);

const AMOUNT: u64 = 400_000;

/// What the requests of one world use up to the thousandth refusal, with or without an estimator.
fn run(seed: u64, backend: Backend, learns: bool) -> u64 {
    let mut seeded = Seeded::new(seed);
    let mut cap = limit("cap", LimitType::QuotaTokens, AMOUNT.into(), calendar(CalendarPeriod::Day));
    cap.admit = Admit::IfFits;
    let plan = GateTwoPlan::new(&selected([cap]), 1);
    let route = Route {
        model: Glob::new("*").unwrap(),
        provider: ProviderId::new("p"),
        served_model: None,
        output_hold: HOLD,
        learns,
    };
    let (mut shard, mut estimator) = (Shard::new(CoreId(0), 1), Estimator::default());
    let mut flights: VecDeque<Flight> = VecDeque::new();
    let (mut used, mut refused, mut sequence) = (0, 0, 0);
    while refused < 1000 || !flights.is_empty() {
        if flights.len() >= 16 || refused >= 1000 || (!flights.is_empty() && seeded.one_in(2)) {
            let at = seeded.below(flights.len() as u64) as usize;
            let Flight { reservation, lesson, usage } = flights.remove(at).unwrap();
            let settlement =
                Settlement { tokens: usage.tokens(), money: Some(PicoUsd::ZERO), estimated: false };
            for (_, ask) in reservation.settle(settlement) {
                shard.apply(now(0), ask);
            }
            if learns {
                estimator.learn(&lesson, &usage);
            }
            used += usage.tokens().0;
            continue;
        }
        let input = Tokens(1 << seeded.between(4, 11));
        let lesson = Lesson::new(&route, None, input, 1, false);
        let alone = Expected { input, output: HOLD, ..Expected::default() };
        let expected = if learns { estimator.raise(&lesson, alone, None) } else { alone };
        assert!(expected.input >= alone.input && expected.output >= alone.output, "{expected:?}");
        let percent = seeded.between(backend.percent - backend.spread, backend.percent + backend.spread);
        let usage = Usage {
            input: Tokens(input.0 * percent / 100 + backend.template),
            output: Tokens(seeded.between(1, backend.longest)),
            ..Usage::default()
        };
        sequence += 1;
        let id = ReservationId::new(CoreId(0), sequence);
        let tokens = expected.input.saturating_add(expected.output);
        let estimate = Estimate { tokens, money: Some(PicoUsd::ZERO) };
        let mut conjunction = Conjunction::new(id, plan.clone(), estimate, Monotonic(900 * SECOND));
        loop {
            match conjunction.poll() {
                Step::Send(owner, ask) => {
                    let answer = shard.apply(now(0), ask);
                    shard.invariants();
                    conjunction.answered(owner, answer);
                }
                Step::Wait => panic!("everything was answered"),
                Step::Refused(_) => {
                    refused += 1;
                    break;
                }
                Step::Admitted(reservation) => {
                    flights.push_back(Flight { reservation, lesson, usage });
                    break;
                }
            }
        }
    }
    let Answer::Read(readings) = shard.apply(now(0), Ask::Read { plan }) else { panic!("no readings") };
    let reading = &readings[0].1;
    assert_eq!((reading.observed.as_count(), reading.held.as_count()), (used, 0), "seed {seed}");
    used
}

/// Tokens beyond the cap in a hundred worlds, without and with an estimator.
fn beyond(backend: Backend) -> (u64, u64) {
    let worlds = (0..100).map(|seed| {
        let (alone, learnt) = (run(seed, backend, false), run(seed, backend, true));
        assert!(learnt > AMOUNT * 9 / 10, "seed {seed}: what fits is let pass, not only {learnt}");
        (alone.saturating_sub(AMOUNT), learnt.saturating_sub(AMOUNT))
    });
    worlds.fold((0, 0), |(alone, learnt), world| (alone + world.0, learnt + world.1))
}

#[test]
fn a_cap_is_overshot_by_less_where_usage_is_above_the_estimate() {
    for (name, backend) in [
        ("a foreign script", Backend { percent: 300, spread: 30, template: 0, longest: 256 }),
        ("a template and tools", Backend { percent: 100, spread: 20, template: 900, longest: 256 }),
        ("long answers", Backend { percent: 100, spread: 0, template: 0, longest: 4000 }),
        ("all of it", Backend { percent: 150, spread: 50, template: 300, longest: 2000 }),
    ] {
        let (alone, learnt) = beyond(backend);
        println!("{name}: {alone} tokens beyond in a hundred worlds, {learnt} with what was learnt");
        assert!(alone > 0 && learnt * 20 < alone, "{name}: {alone} without, {learnt} with");
    }
}

#[test]
fn a_cap_is_never_overshot_where_the_estimate_bounds_the_usage() {
    let backend = Backend { percent: 70, spread: 30, template: 0, longest: 256 };
    assert_eq!(beyond(backend), (0, 0));
}
