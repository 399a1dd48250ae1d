//! The counting contract (SPEC §4) written down naively: for each counter a plain list of what was ever counted in it,
//! and every figure a sum over that list. No window is ever rolled and nothing is cached; the only thing taken over from
//! the real counters is their granularity: a rolling period is seen in 61 buckets, and a token bucket, which is a level
//! and not a window, is kept as one.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;

use engine::{
    Admit, Algorithm, Cause, CoreId, Enforce, Estimate, Fail, Gate, Identity, Instance, LimitType, Mode, Now,
    Posture, ReservationId, Settlement, Wait, Window,
};
use jiff::Timestamp;

use super::bucket::{Grain, Share};
use super::civil;
use super::ledger::{Ledger, Line, Noted, money, tokens};

const SECOND: u64 = 1_000_000_000;

/// What one cap says, by the book.
#[derive(Clone, Debug)]
pub struct Opinion {
    pub observed: u128,
    pub held: u128,
    pub estimated: bool,
    pub unpriced: bool,
    pub resets_at: Option<Timestamp>,
    /// `None`: admits.
    pub cause: Option<Cause>,
    pub in_flight_only: bool,
    /// Largest total that admits, in level units.
    ceiling: Option<u128>,
}

/// Level units: those of the limit, or a bucket's.
#[derive(Copy, Clone, Default)]
struct Sums {
    total: u128,
    firm: u128,
    pending: u128,
    observed: u128,
    held: u128,
}

#[derive(Debug)]
pub struct Oracle {
    pub ledgers: HashMap<(Gate, Identity), Ledger>,
    epoch_offset: u64,
    cores: usize,
    /// By core: the latest wall time at which it forgot a calendar counter. It begins none in an earlier window.
    forgot_at: Vec<Timestamp>,
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

fn grain_of(instance: &Instance) -> Option<Grain> {
    Grain::of(instance.limit.kind, &instance.limit.window)
}

impl Oracle {
    /// `epoch_offset` is the wall clock at zero of the monotonic one.
    pub fn new(epoch_offset: u64, cores: usize) -> Oracle {
        let forgot_at = vec![Timestamp::MIN; cores];
        Oracle { ledgers: HashMap::new(), epoch_offset, cores, forgot_at }
    }

    fn ledger(&self, instance: &Instance) -> Option<&Ledger> {
        self.ledgers.get(&(instance.limit.kind.gate(), instance.identity.clone()))
    }

    fn ledger_mut(&mut self, instance: &Instance) -> &mut Ledger {
        let key = (instance.limit.kind.gate(), instance.identity.clone());
        self.ledgers.entry(key).or_insert_with(|| Ledger::new(instance.limit.kind, grain_of(instance)))
    }

    /// Whether something counted at `then` still counts at `now`.
    fn in_rolling(&self, window: &Window, then: u64, now: u64) -> bool {
        let Window::Rolling { period, algorithm } = window else { panic!("not rolling") };
        match algorithm {
            Algorithm::SlidingWindow => {
                let bucket = period.0.div_ceil(60);
                then / bucket + 61 > now / bucket
            }
            Algorithm::FixedWindow => {
                (then + self.epoch_offset) / period.0 == (now + self.epoch_offset) / period.0
            }
            Algorithm::TokenBucket => panic!("a bucket is no window"),
        }
    }

    /// The calendar window that counts at `now`, and its end.
    fn calendar_window(&self, instance: &Instance, now: Now) -> Option<civil::CivilWindow> {
        let Window::Calendar { period, zone } = &instance.limit.window else { return None };
        let Some(ledger) = self.ledger(instance) else {
            let forgot_at = self.forgot_at[usize::from(instance.identity.owner(self.cores).0)];
            return Some(civil::window(*period, zone, now.wall.max(forgot_at), i64::MIN));
        };
        Some(civil::window(*period, zone, now.wall, ledger.newest))
    }

    fn sums(&self, instance: &Instance, now: Now, look: bool) -> Sums {
        let Some(ledger) = self.ledger(instance) else { return Sums::default() };
        if let Some(grain) = ledger.grain {
            let bucket = ledger.bucket.get().at(grain, now.monotonic.0, instance.amount.0);
            // A limit of gate 2 is drained by whoever looks at it, by the amount that he knows.
            if look && instance.limit.kind == LimitType::Tpm {
                ledger.bucket.set(bucket);
            }
            let whole = bucket.level.div_ceil(grain.unit);
            let held = ledger.held().min(whole);
            let firm = bucket.level.saturating_sub(ledger.held() * grain.unit);
            return Sums { total: bucket.level, firm, pending: 0, observed: whole - held, held };
        }
        let calendar = self.calendar_window(instance, now);
        let mut sums = Sums::default();
        for line in &ledger.lines {
            let counts = match &instance.limit.window {
                Window::Live => line.live,
                Window::Rolling { .. } => self.in_rolling(&instance.limit.window, line.at, now.monotonic.0),
                Window::Calendar { .. } => Some(line.window) == calendar.map(|window| window.index),
            };
            if counts {
                sums.observed += line.observed;
                sums.held += line.held;
                sums.pending += if line.live { line.observed } else { 0 };
            }
        }
        (sums.total, sums.firm) = (sums.observed + sums.held, sums.observed);
        sums
    }

    /// What a cap says to a request of that estimate now.
    pub fn ask(&self, instance: &Instance, now: Now, estimate: Estimate) -> Opinion {
        let limit = &instance.limit;
        let sums = self.sums(instance, now, true);
        let (unit, whole_requests) = match grain_of(instance) {
            Some(grain) => (grain.unit, limit.kind == LimitType::Rpm),
            None => (1, false),
        };
        let needs = match limit.kind {
            LimitType::BudgetUsd => money(estimate.money),
            LimitType::Tpm | LimitType::QuotaTokens => tokens(estimate.tokens),
            _ => 1,
        };
        let ceiling = match limit.admit {
            // A request that a bucket has not wholly room for is not under the amount.
            Admit::WhileUnder if !whole_requests => (instance.amount.0 * unit).checked_sub(1),
            _ => instance.amount.0.checked_sub(needs).map(|room| room * unit),
        };
        let admits = |total: u128| ceiling.is_some_and(|ceiling| total <= ceiling);
        let mut cause = match (admits(sums.total), admits(sums.firm)) {
            (true, _) => None,
            (false, true) => Some(Cause::HeldOnly),
            (false, false) => Some(Cause::Over),
        };
        let mut in_flight_only = match limit.kind {
            LimitType::QuotaRequests => admits(sums.observed - sums.pending),
            _ => cause == Some(Cause::HeldOnly),
        };
        if limit.kind == LimitType::BudgetUsd && estimate.money.is_none() {
            cause = (limit.posture.fail == Fail::Closed).then_some(Cause::Unpriced);
            in_flight_only = false;
        }
        let window = self.calendar_window(instance, now);
        let flag = |of: Option<i64>| of.is_some() && of == window.map(|window| window.index);
        let ledger = self.ledger(instance);
        Opinion {
            observed: sums.observed,
            held: sums.held,
            estimated: flag(ledger.and_then(|ledger| ledger.estimated_in)),
            unpriced: flag(ledger.and_then(|ledger| ledger.unpriced_in)),
            resets_at: window.map(|window| window.end),
            cause,
            in_flight_only,
            ceiling,
        }
    }

    /// Checks that `wait` is when the cap admits again if nothing else comes, to the nanosecond.
    pub fn check_wait(&self, instance: &Instance, now: Now, opinion: &Opinion, wait: Wait) {
        let (wait, ceiling) = match (wait, opinion.cause.unwrap(), opinion.ceiling) {
            (Wait::Never, Cause::Unpriced, _) | (Wait::Never, _, None) => return,
            (Wait::For(span), Cause::Over, Some(ceiling)) => (span.0, ceiling),
            (Wait::For(span), Cause::HeldOnly, Some(_)) => return assert_eq!(span.0, SECOND),
            other => panic!("{other:?}"),
        };
        match &instance.limit.window {
            Window::Live => assert_eq!(wait, SECOND),
            Window::Calendar { .. } => {
                let end = opinion.resets_at.unwrap().as_nanosecond();
                assert_eq!(now.wall.as_nanosecond() + i128::from(wait), end, "until the window's end");
            }
            Window::Rolling { .. } => {
                let total_after = |wait: u64| {
                    let mut later = now;
                    later.monotonic.0 = later.monotonic.0.saturating_add(wait);
                    self.sums(instance, later, false).total
                };
                // A wait to the end of time stands for all that are longer.
                let in_time = wait < u64::MAX - now.monotonic.0;
                assert!(!in_time || total_after(wait) <= ceiling, "a wait of {wait} is too short");
                assert!(total_after(wait - 1) > ceiling, "a wait of {wait} is too long");
            }
        }
    }

    fn line(id: u64, now: Now) -> Line {
        Line {
            id,
            at: now.monotonic.0,
            window: 0,
            observed: 0,
            held: 0,
            live: true,
            deadline: None,
            share: Share::default(),
        }
    }

    /// Counts a request at gate 1.
    pub fn count(&mut self, instance: &Instance, now: Now, id: u64) {
        let amount = instance.amount.0;
        let ledger = self.ledger_mut(instance);
        let mut line = Line { observed: 1, ..Self::line(id, now) };
        if let Some(grain) = ledger.grain {
            let mut bucket = ledger.bucket.get().at(grain, now.monotonic.0, amount);
            line.share = bucket.put_request(grain, amount);
            ledger.bucket.set(bucket);
        }
        ledger.lines.push(line);
    }

    /// Ends a request at gate 1.
    pub fn leave(&mut self, instance: &Instance, id: u64, kept: bool) {
        let ledger = self.ledger_mut(instance);
        let Some(at) = ledger.lines.iter().position(|line| line.id == id) else { return };
        if kept && instance.limit.kind == LimitType::Rpm {
            ledger.lines[at].live = false;
            return;
        }
        let line = ledger.lines.remove(at);
        if let Some(grain) = ledger.grain {
            let mut bucket = ledger.bucket.get();
            bucket.give_back_request(grain, line.share);
            ledger.bucket.set(bucket);
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
        let window = self.calendar_window(instance, now).map_or(0, |window| window.index);
        let (observed, held) = match instance.limit.kind {
            LimitType::QuotaRequests => (1, 0),
            LimitType::BudgetUsd => (0, money(estimate.money)),
            _ => (0, tokens(estimate.tokens)),
        };
        let ledger = self.ledger_mut(instance);
        ledger.newest = window;
        let line = Line { window, observed, held, deadline: Some(deadline), ..Self::line(id.0, now) };
        ledger.lines.push(line);
        if let Some(grain) = ledger.grain {
            let mut bucket = ledger.bucket.get().at(grain, now.monotonic.0, instance.amount.0);
            let Posture { mode, enforce, .. } = instance.limit.posture;
            let observes = mode == Mode::Shadow || enforce == Enforce::AlertOnly;
            let most = observes.then_some(2 * instance.amount.0);
            ledger.lines.last_mut().unwrap().share = bucket.put(grain, held, most);
            ledger.bucket.set(bucket);
        }
    }

    /// The counters of gate 2 that `core` owns.
    fn owned(&mut self, core: CoreId) -> impl Iterator<Item = (&Identity, &mut Ledger)> {
        let cores = self.cores;
        let all = self.ledgers.iter_mut().map(|((gate, identity), ledger)| (*gate, identity, ledger));
        all.filter(move |(gate, identity, _)| *gate == Gate::Two && identity.owner(cores) == core)
            .map(|(_, identity, ledger)| (identity, ledger))
    }

    /// Settles or voids a reservation at one owner; nothing where it is not live.
    pub fn end(&mut self, core: CoreId, now: Now, id: ReservationId, settlement: Option<Settlement>) {
        for (_, ledger) in self.owned(core) {
            ledger.end(now, settlement, |line| line.id == id.0);
        }
    }

    /// Whether a reservation still holds something at an owner.
    pub fn is_live(&mut self, id: ReservationId, core: CoreId) -> bool {
        self.owned(core).any(|(_, ledger)| ledger.lines.iter().any(|line| line.live && line.id == id.0))
    }

    /// Whether live holds are in a calendar window that is over, or have left a rolling one; and whether a window goes
    /// on though the wall clock was set back behind it.
    pub fn left_behind(&self, instance: &Instance, now: Now) -> (bool, bool, bool) {
        let Some(ledger) = self.ledger(instance) else { return (false, false, false) };
        let mut live = ledger.lines.iter().filter(|line| line.live);
        match &instance.limit.window {
            Window::Calendar { period, zone } => {
                let window = self.calendar_window(instance, now).map(|window| window.index);
                let kept = civil::window(*period, zone, now.wall, i64::MIN).index < ledger.newest;
                (live.any(|line| Some(line.window) != window), false, kept)
            }
            window if ledger.grain.is_none() => {
                (false, live.any(|line| !self.in_rolling(window, line.at, now.monotonic.0)), false)
            }
            _ => (false, false, false),
        }
    }

    /// Voids what is past its deadline at one owner.
    pub fn expire(&mut self, core: CoreId, now: Now) -> usize {
        let due = |line: &Line| line.deadline.is_some_and(|deadline| deadline <= now.monotonic.0);
        let mut ended = 0;
        for (_, ledger) in self.owned(core) {
            ended += ledger.lines.iter().filter(|line| line.live && due(line)).count();
            ledger.end(now, None, due);
        }
        ended
    }

    /// Every calendar counter of an owner, as it should be written down now.
    pub fn noted(&mut self, core: CoreId) -> HashMap<Identity, Noted> {
        let calendars = self.owned(core).filter(|(_, ledger)| ledger.kind != LimitType::Tpm);
        let entered = calendars.filter(|(_, ledger)| ledger.newest > i64::MIN);
        entered.map(|(identity, ledger)| (identity.clone(), ledger.noted())).collect()
    }

    /// A counter of gate 2 is forgotten by its owner: nothing may count in it now, nor ever again.
    pub fn forget(&mut self, instance: &Instance, now: Now) {
        let says = self.ask(instance, now, Estimate::default());
        let nothing = (says.observed, says.held, says.estimated, says.unpriced);
        assert_eq!(nothing, (0, 0, false, false), "{} is forgotten", instance.limit.id);
        let ledger = self.ledgers.remove(&(Gate::Two, instance.identity.clone())).expect("it was counted in");
        assert!(ledger.lines.iter().all(|line| !line.live), "a counter in use is forgotten");
        if let Window::Calendar { period, zone } = &instance.limit.window {
            let index = civil::window(*period, zone, now.wall, i64::MIN).index;
            assert!(index >= ledger.newest, "a window ahead of the wall clock is forgotten");
            let forgot_at = &mut self.forgot_at[usize::from(instance.identity.owner(self.cores).0)];
            *forgot_at = now.wall.max(*forgot_at);
        }
    }

    /// An owner is lost and starts again from what was written down (SPEC §4.9): of a calendar counter that window and
    /// that figure are left, of everything else nothing.
    pub fn lose(&mut self, core: CoreId, now: Now, written: &HashMap<Identity, Noted>) {
        let cores = self.cores;
        self.forgot_at[usize::from(core.0)] = Timestamp::MIN;
        self.ledgers.retain(|(gate, identity), _| *gate == Gate::One || identity.owner(cores) != core);
        for (identity, noted) in written.iter().filter(|(identity, _)| identity.owner(cores) == core) {
            let kind = match identity.algorithm() {
                "calendar_usd" => LimitType::BudgetUsd,
                "calendar_tokens" => LimitType::QuotaTokens,
                _ => LimitType::QuotaRequests,
            };
            let mut ledger = Ledger::new(kind, None);
            ledger.newest = noted.window;
            ledger.estimated_in = noted.estimated.then_some(noted.window);
            ledger.unpriced_in = noted.unpriced.then_some(noted.window);
            let (window, observed) = (noted.window, noted.observed);
            ledger.lines.push(Line { window, observed, live: false, ..Self::line(u64::MAX, now) });
            self.ledgers.insert((Gate::Two, identity.clone()), ledger);
        }
    }
}
