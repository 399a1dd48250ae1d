//! The search against servers of which it is known what they can do.

use std::convert::Infallible;

use super::*;
use crate::random::Random;

/// A queue: latency grows without bound as the rate nears what it can do, and beyond that requests stay unsent. Now and then
/// something else takes the machine.
struct Server {
    base: Duration,
    most: f64,
    /// The share of measurements that are disturbed.
    disturbed: f64,
    /// Whether that is noticed.
    noticed: bool,
    random: Random,
}

impl Server {
    fn measure(&mut self, rate: f64) -> Measured {
        let load = rate / self.most;
        let mut p99 = self.base.div_f64((1.0 - load).max(0.001));
        let disturbed = self.random.fraction() < self.disturbed;
        if disturbed {
            p99 += Duration::from_millis(40);
        }
        Measured { rate, p99, clean: load < 1.0, disturbed: disturbed && self.noticed }
    }

    /// The rate at which p99 is just the goal.
    fn limit(&self, goal: Duration) -> f64 {
        self.most * (1.0 - self.base.as_secs_f64() / goal.as_secs_f64()).max(0.0)
    }
}

fn ramp() -> Ramp {
    Ramp { steps: 200, ..Ramp::default() }
}

fn found(ramp: &Ramp, server: &mut Server) -> Found {
    match search(ramp, |rate| Ok::<_, Infallible>(server.measure(rate))) {
        Ok(found) => found,
        Err(never) => match never {},
    }
}

/// Every goal within the precision of what the server can really do.
fn check(base_us: u64, most: f64, disturbed: f64, seed: u64) {
    let mut server = Server {
        base: Duration::from_micros(base_us),
        most,
        disturbed,
        noticed: false,
        random: Random::new(seed),
    };
    let ramp = ramp();
    let found = found(&ramp, &mut server);
    assert_eq!(found.goals.len(), 4);
    for goal in &found.goals {
        let limit = server.limit(goal.p99);
        let about =
            format!("{base_us} {most} {disturbed} {seed}: {goal:?}, really {limit}; {:?}", found.steps);
        match goal.rate {
            // It is never told that a server keeps a goal at a rate at which it does not.
            Some(rate) => {
                assert!(rate <= limit, "{about}");
                let near = limit / (1.0 + ramp.precision) / (1.0 + ramp.precision);
                assert!(disturbed > 0.0 || rate >= near, "{about}");
                assert!(disturbed > 0.0 || goal.settled, "{about}");
                assert!(goal.measured.is_some_and(|measured| measured <= goal.p99), "{about}");
            }
            None => assert!(limit <= ramp.from / BELOW * 2.0 || disturbed > 0.0, "{about}"),
        }
    }
    assert!(found.steps.len() <= ramp.steps);
}

#[test]
fn a_quiet_server_is_found_out_to_the_precision() {
    check(100, 20_000.0, 0.0, 1);
    check(300, 1234.0, 0.0, 1);
    check(450, 60_000.0, 0.0, 1);
    check(20, 700.0, 0.0, 1);
    // One goal is out of reach, and with the last server all are.
    check(700, 30_000.0, 0.0, 1);
    check(20_000, 30_000.0, 0.0, 1);
    // The first rate is above what it can do.
    check(100, 90.0, 0.0, 1);
}

#[test]
fn a_disturbed_measurement_is_not_believed_at_once() {
    let mut near = 0;
    for seed in 0..50 {
        check(100, 20_000.0, 0.1, seed);
        let mut server = Server {
            base: Duration::from_micros(100),
            most: 20_000.0,
            disturbed: 0.1,
            noticed: false,
            random: Random::new(seed),
        };
        let found = found(&ramp(), &mut server);
        let is_near = |goal: &Goal| goal.rate.is_some_and(|rate| rate >= 0.85 * server.limit(goal.p99));
        near += found.goals.iter().filter(|goal| is_near(goal)).count();
    }
    // Two disturbed ones in a row, a hundredth of all pairs, may cost a goal a part of its rate.
    assert!(near >= 180, "{near} of 200");
}

#[test]
fn a_disturbance_that_is_noticed_proves_nothing() {
    for seed in 0..20 {
        let mut server = Server {
            base: Duration::from_micros(100),
            most: 20_000.0,
            disturbed: 0.5,
            noticed: true,
            random: Random::new(seed),
        };
        let found = found(&Ramp { steps: 1000, ..ramp() }, &mut server);
        for goal in &found.goals {
            let limit = server.limit(goal.p99);
            // Four of five at one rate is what half of all being disturbed comes to now and then.
            assert!(
                goal.rate.is_some_and(|rate| 0.4 * limit <= rate && rate <= limit),
                "{seed}: {goal:?}, really {limit}"
            );
        }
    }
}

#[test]
fn what_was_missed_in_a_disturbance_only_is_not_settled() {
    let of = |disturbed: bool| {
        let p99 = |rate: f64| Duration::from_micros(if rate < 3000.0 { 100 } else { 40_000 });
        let measure =
            |rate: f64| Ok::<_, Infallible>(Measured { rate, p99: p99(rate), clean: true, disturbed });
        let Ok(found) = search(&ramp(), measure);
        found.goals.iter().map(|goal| (goal.rate.is_some(), goal.settled)).collect::<Vec<_>>()
    };
    assert_eq!(of(false), vec![(true, true); 4]);
    assert_eq!(of(true), vec![(true, false); 4]);
}

#[test]
fn a_lucky_rate_is_not_confirmed() {
    // From 2,000 on only the first measurement of a rate keeps the goal.
    let mut seen = Vec::new();
    let measure = |rate: f64| {
        let lucky = !seen.contains(&rate);
        seen.push(rate);
        let p99 = Duration::from_micros(if rate < 2000.0 || lucky { 400 } else { 20_000 });
        Ok::<_, Infallible>(Measured { rate, p99, clean: true, disturbed: false })
    };
    let ramp = Ramp { goals_ms: vec![0.5], to: 16_000.0, steps: 1000, ..ramp() };
    let Ok(found) = search(&ramp, measure);
    assert!(found.goals[0].rate.is_some_and(|rate| (1800.0..2000.0).contains(&rate)), "{:?}", found.goals);
}

#[test]
fn a_server_that_wakes_up_slowly_is_judged_by_what_it_can_do() {
    // Below 3,000 it sleeps between requests.
    let measure = |rate: f64| {
        let p99 = match rate {
            ..3000.0 => Duration::from_millis(3),
            ..12_000.0 => Duration::from_micros(400),
            _ => Duration::from_millis(30),
        };
        Ok::<_, Infallible>(Measured { rate, p99, clean: true, disturbed: false })
    };
    let Ok(found) = search(&ramp(), measure);
    for goal in &found.goals {
        assert!(goal.rate.is_some_and(|rate| (11_000.0..12_000.0).contains(&rate)), "{goal:?}");
    }
}

#[test]
fn a_search_ends_with_its_steps_and_says_so() {
    for steps in [1, 2, 5, 9] {
        let mut server = Server {
            base: Duration::from_micros(100),
            most: 20_000.0,
            disturbed: 0.0,
            noticed: false,
            random: Random::new(1),
        };
        let found = found(&Ramp { steps, ..ramp() }, &mut server);
        assert_eq!(found.steps.len(), steps);
        assert!(found.goals.iter().all(|goal| !goal.settled), "{found:?}");
    }
}

#[test]
fn the_highest_rate_of_all_is_no_limit() {
    let mut server = Server {
        base: Duration::from_micros(10),
        most: 1e9,
        disturbed: 0.0,
        noticed: false,
        random: Random::new(1),
    };
    let found = found(&ramp(), &mut server);
    for goal in &found.goals {
        assert_eq!((goal.rate, goal.settled), (Some(100_000.0), false), "{goal:?}");
    }
}

#[test]
fn what_fails_or_stays_unsent_keeps_no_goal() {
    let measure = |rate: f64| {
        Ok::<_, Infallible>(Measured {
            rate,
            p99: Duration::from_micros(100),
            clean: rate < 3000.0,
            disturbed: false,
        })
    };
    let Ok(found) = search(&ramp(), measure);
    for goal in &found.goals {
        assert!(goal.rate.is_some_and(|rate| (2700.0..3000.0).contains(&rate)), "{goal:?}");
    }
    let broken: Result<Found, &str> = search(&ramp(), |_| Err("no load could be sent"));
    assert_eq!(broken.err(), Some("no load could be sent"));
}
