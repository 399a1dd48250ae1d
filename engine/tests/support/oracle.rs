//! The counting contract (SPEC §4) written down naively: for each counter a plain list of what was ever counted in it,
//! and every figure a sum over that list. No window is ever rolled and nothing is cached; the only thing taken over from
//! the real counters is their granularity: a rolling period is seen in 61 buckets.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;

use engine::{
    Admit, Algorithm, CalendarPeriod, Cause, Enforce, Estimate, Fail, Instance, LimitType, Mode, Now,
    ReservationId, Settlement, Wait, Window,
};

/// One thing counted: a request at gate 1, or what a reservation holds or used at gate 2.
#[derive(Clone, Debug)]
pub struct Line {
    pub id: u64,
    /// Monotonic nanoseconds of the admission.
    at: u64,
    /// Calendar window of the admission.
    window: i64,
    observed: u128,
    held: u128,
    live: bool,
    /// Of a reservation, which has a deadline.
    reserved: bool,
}

#[derive(Default, Debug)]
struct Ledger {
    lines: Vec<Line>,
    /// Newest calendar window ever entered.
    newest: i64,
    estimated_in: Option<i64>,
    unpriced_in: Option<i64>,
}

/// What one cap says, by the book.
#[derive(Clone, Debug)]
pub struct Opinion {
    pub observed: u128,
    pub held: u128,
    pub estimated: bool,
    pub unpriced: bool,
    /// `None`: admits.
    pub cause: Option<Cause>,
    pub in_flight_only: bool,
    /// Largest total that admits.
    ceiling: Option<u128>,
}

#[derive(Default, Debug)]
pub struct Oracle {
    ledgers: HashMap<(String, String), Ledger>,
    deadlines: HashMap<ReservationId, u64>,
}

fn key(instance: &Instance) -> (String, String) {
    (instance.limit.id.to_string(), instance.node.to_string())
}

pub fn skipped(instance: &Instance) -> bool {
    instance.limit.suspended || instance.limit.posture.mode == Mode::Off
}

pub fn refuses(instance: &Instance) -> bool {
    let posture = instance.limit.posture;
    !skipped(instance) && posture.mode == Mode::On && posture.enforce == Enforce::Hard
}

pub fn alerts(instance: &Instance) -> bool {
    let posture = instance.limit.posture;
    !skipped(instance) && posture.mode == Mode::On && posture.enforce == Enforce::AlertOnly
}

const OFFSET: fn() -> u64 = || super::support::epoch_offset().0;

/// Of hours and days in UTC, by division.
fn calendar_window(period: CalendarPeriod, now: Now) -> (i64, i128) {
    let length: i128 = match period {
        CalendarPeriod::Hour => 3_600_000_000_000,
        CalendarPeriod::Day => 86_400_000_000_000,
        other => panic!("the oracle knows no {other}"),
    };
    let index = now.wall.as_nanosecond().div_euclid(length);
    (index as i64, (index + 1) * length)
}

/// Whether something counted at `then` still counts at `now`.
fn in_rolling(window: &Window, then: u64, now: u64) -> bool {
    let Window::Rolling { period, algorithm } = window else { panic!("not rolling") };
    match algorithm {
        Algorithm::SlidingWindow => {
            let bucket = period.0.div_ceil(60);
            then / bucket + 61 > now / bucket
        }
        Algorithm::FixedWindow => (then + OFFSET()) / period.0 == (now + OFFSET()) / period.0,
        Algorithm::TokenBucket => panic!("the oracle knows no token bucket"),
    }
}

impl Oracle {
    fn sums(&self, instance: &Instance, now: Now) -> (u128, u128, u128) {
        let Some(ledger) = self.ledgers.get(&key(instance)) else { return (0, 0, 0) };
        let counts = |line: &&Line| match &instance.limit.window {
            Window::Live => line.live,
            Window::Rolling { .. } => in_rolling(&instance.limit.window, line.at, now.monotonic.0),
            Window::Calendar { period, .. } => {
                line.window == calendar_window(*period, now).0.max(ledger.newest)
            }
        };
        let counted: Vec<&Line> = ledger.lines.iter().filter(counts).collect();
        (
            counted.iter().map(|line| line.observed).sum(),
            counted.iter().map(|line| line.held).sum(),
            counted.iter().filter(|line| line.live).map(|line| line.observed).sum(),
        )
    }

    /// What a cap says to a request of that estimate now.
    pub fn ask(&self, instance: &Instance, now: Now, estimate: Estimate) -> Opinion {
        let limit = &instance.limit;
        let (observed, held, pending) = self.sums(instance, now);
        let needs = match limit.kind {
            LimitType::BudgetUsd => estimate.money.map_or(0, |money| money.0),
            LimitType::Tpm | LimitType::QuotaTokens => estimate.tokens.0.into(),
            _ => 1,
        };
        let amount = instance.amount.0;
        let admits = |total: u128| match limit.admit {
            Admit::WhileUnder => total < amount,
            Admit::IfFits => total + needs <= amount,
        };
        let ceiling = (0..=amount).rev().find(|total| admits(*total));
        let mut cause = match (admits(observed + held), admits(observed)) {
            (true, _) => None,
            (false, true) => Some(Cause::HeldOnly),
            (false, false) => Some(Cause::Over),
        };
        let mut in_flight_only = match limit.kind {
            LimitType::QuotaRequests => admits(observed - pending),
            _ => cause == Some(Cause::HeldOnly),
        };
        if limit.kind == LimitType::BudgetUsd && estimate.money.is_none() {
            cause = (limit.posture.fail == Fail::Closed).then_some(Cause::Unpriced);
            in_flight_only = false;
        }
        let flag = |of: Option<i64>| match &limit.window {
            Window::Calendar { period, .. } => {
                let newest = self.ledgers.get(&key(instance)).map_or(i64::MIN, |ledger| ledger.newest);
                of == Some(calendar_window(*period, now).0.max(newest))
            }
            _ => false,
        };
        let ledger = self.ledgers.get(&key(instance));
        Opinion {
            observed,
            held,
            estimated: flag(ledger.and_then(|ledger| ledger.estimated_in)),
            unpriced: flag(ledger.and_then(|ledger| ledger.unpriced_in)),
            cause,
            in_flight_only,
            ceiling,
        }
    }

    /// Checks that `wait` is when the cap admits again if nothing else comes, to the nanosecond.
    pub fn check_wait(&self, instance: &Instance, now: Now, opinion: &Opinion, wait: Wait) {
        let wait = match (wait, opinion.cause.unwrap(), opinion.ceiling) {
            (Wait::Never, Cause::Unpriced, _) | (Wait::Never, _, None) => return,
            (Wait::For(span), Cause::Over, Some(_)) => span.0,
            (Wait::For(span), Cause::HeldOnly, Some(_)) => return assert_eq!(span.0, super::support::SECOND),
            other => panic!("{other:?}"),
        };
        let ceiling = opinion.ceiling.unwrap();
        match &instance.limit.window {
            Window::Live => assert_eq!(wait, super::support::SECOND),
            Window::Calendar { period, .. } => {
                let (index, mut end) = calendar_window(*period, now);
                let newest = self.ledgers.get(&key(instance)).map_or(i64::MIN, |ledger| ledger.newest);
                if newest > index {
                    end += i128::from(newest - index) * (end / i128::from(index + 1));
                }
                assert_eq!(now.wall.as_nanosecond() + i128::from(wait), end, "until the window's end");
            }
            Window::Rolling { .. } => {
                let total_after = |wait: u64| {
                    let mut later = now;
                    later.monotonic.0 += wait;
                    let (observed, held, _) = self.sums(instance, later);
                    observed + held
                };
                assert!(total_after(wait) <= ceiling, "a wait of {wait} is too short");
                assert!(total_after(wait - 1) > ceiling, "a wait of {wait} is too long");
            }
        }
    }

    /// Counts a request at gate 1.
    pub fn count(&mut self, instance: &Instance, now: Now, id: u64) {
        let line =
            Line { id, at: now.monotonic.0, window: 0, observed: 1, held: 0, live: true, reserved: false };
        self.ledgers.entry(key(instance)).or_default().lines.push(line);
    }

    /// Ends a request at gate 1.
    pub fn leave(&mut self, instance: &Instance, id: u64, kept: bool) {
        let Some(ledger) = self.ledgers.get_mut(&key(instance)) else { return };
        if kept && instance.limit.kind == LimitType::Rpm {
            ledger.lines.iter_mut().filter(|line| line.id == id).for_each(|line| line.live = false);
        } else {
            ledger.lines.retain(|line| line.id != id);
        }
    }

    /// Books a reservation on one counter.
    pub fn book(
        &mut self,
        instance: &Instance,
        now: Now,
        id: ReservationId,
        deadline: u64,
        estimate: Estimate,
    ) {
        let ledger = self
            .ledgers
            .entry(key(instance))
            .or_insert_with(|| Ledger { newest: i64::MIN, ..Ledger::default() });
        let window = match &instance.limit.window {
            Window::Calendar { period, .. } => calendar_window(*period, now).0.max(ledger.newest),
            _ => 0,
        };
        ledger.newest = window;
        let (observed, held) = match instance.limit.kind {
            LimitType::QuotaRequests => (1, 0),
            LimitType::BudgetUsd => (0, estimate.money.map_or(0, |money| money.0)),
            _ => (0, estimate.tokens.0.into()),
        };
        ledger.lines.push(Line {
            id: id.0,
            at: now.monotonic.0,
            window,
            observed,
            held,
            live: true,
            reserved: true,
        });
        self.deadlines.insert(id, deadline);
    }

    /// Settles or voids a reservation on one counter; nothing if it is not live there.
    pub fn end(&mut self, instance: &Instance, id: ReservationId, settlement: Option<Settlement>) {
        let Some(ledger) = self.ledgers.get_mut(&key(instance)) else { return };
        let Some(at) = ledger.lines.iter().position(|line| line.id == id.0 && line.live) else { return };
        let Some(settlement) = settlement else {
            ledger.lines.remove(at);
            return;
        };
        let line = &mut ledger.lines[at];
        (line.live, line.held) = (false, 0);
        match instance.limit.kind {
            LimitType::QuotaRequests => return,
            LimitType::BudgetUsd => {
                line.observed = settlement.money.map_or(0, |money| money.0);
                if settlement.money.is_none() {
                    ledger.unpriced_in = ledger.unpriced_in.max(Some(line.window));
                }
            }
            _ => line.observed = settlement.tokens.0.into(),
        }
        if settlement.estimated {
            ledger.estimated_in = ledger.estimated_in.max(Some(line.window));
        }
    }

    /// Voids what is past its deadline.
    pub fn expire(&mut self, now: Now) {
        let due: Vec<u64> = self
            .deadlines
            .iter()
            .filter(|(_, deadline)| **deadline <= now.monotonic.0)
            .map(|(id, _)| id.0)
            .collect();
        self.deadlines.retain(|id, _| !due.contains(&id.0));
        for ledger in self.ledgers.values_mut() {
            ledger.lines.retain(|line| !(line.reserved && line.live && due.contains(&line.id)));
        }
    }
}
