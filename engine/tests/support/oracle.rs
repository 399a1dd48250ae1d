//! The counting contract (SPEC §4) written down naively: for each counter a plain list of what was ever counted in it,
//! and every figure a sum over that list. No window is ever rolled and nothing is cached; the only thing taken over from
//! the real counters is their granularity: a rolling period is seen in 61 buckets, and a token bucket, which is a level
//! and not a window, is kept as one.

#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::Cell;
use std::collections::HashMap;

use engine::{
    Admit, Algorithm, Cause, CoreId, Enforce, Estimate, Fail, Gate, Identity, Instance, LimitType, Mode, Now,
    PicoUsd, ReservationId, Settlement, Tokens, Wait, Window, bounds,
};
use jiff::Timestamp;

use super::bucket::{Bucket, Grain, Share};
use super::civil;

const SECOND: u64 = 1_000_000_000;

/// One thing counted: a request at gate 1, or what a reservation holds or used at gate 2.
#[derive(Clone, Debug)]
pub struct Line {
    pub id: u64,
    /// Monotonic nanoseconds of the admission.
    pub at: u64,
    /// Calendar window of the admission.
    pub window: i64,
    pub observed: u128,
    pub held: u128,
    pub live: bool,
    /// Of a reservation, monotonic nanoseconds.
    deadline: Option<u64>,
    share: Share,
}

/// A calendar counter's figures, as they are written down.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Noted {
    pub window: i64,
    pub observed: u128,
    pub estimated: bool,
    pub unpriced: bool,
}

#[derive(Debug)]
pub struct Ledger {
    pub kind: LimitType,
    pub lines: Vec<Line>,
    /// Newest calendar window ever entered.
    newest: i64,
    estimated_in: Option<i64>,
    unpriced_in: Option<i64>,
    bucket: Cell<Bucket>,
    grain: Option<Grain>,
}

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

fn money(price: Option<PicoUsd>) -> u128 {
    price.map_or(0, |price| price.0.min(bounds::PICO_USD_A_REQUEST))
}

fn tokens(tokens: Tokens) -> u128 {
    tokens.0.min(bounds::TOKENS_A_REQUEST).into()
}

fn grain_of(instance: &Instance) -> Option<Grain> {
    Grain::of(instance.limit.kind, &instance.limit.window)
}

impl Ledger {
    fn new(instance: &Instance) -> Ledger {
        Ledger {
            kind: instance.limit.kind,
            lines: Vec::new(),
            newest: i64::MIN,
            estimated_in: None,
            unpriced_in: None,
            bucket: Cell::default(),
            grain: grain_of(instance),
        }
    }

    fn held(&self) -> u128 {
        self.lines.iter().map(|line| line.held).sum()
    }

    /// Ends the live reservations that `which` picks: settled, or voided.
    fn end(&mut self, now: Now, settlement: Option<Settlement>, which: impl Fn(&Line) -> bool) {
        while let Some(at) = self.lines.iter().position(|line| line.live && which(line)) {
            let (kind, line) = (self.kind, &mut self.lines[at]);
            let held = std::mem::take(&mut line.held);
            line.live = false;
            let used = match (settlement, kind) {
                (Some(_), LimitType::QuotaRequests) => continue,
                (Some(settlement), LimitType::BudgetUsd) => money(settlement.money),
                (Some(settlement), _) => tokens(settlement.tokens),
                (None, _) => 0,
            };
            line.observed = used;
            let (window, share) = (line.window, line.share);
            if let Some(grain) = self.grain {
                let mut bucket = self.bucket.get().later(grain, now.monotonic.0);
                match used.checked_sub(held) {
                    Some(more) => drop(bucket.put(grain, more)),
                    None => bucket.give_back(grain, share, held - used),
                }
                self.bucket.set(bucket);
            }
            if let Some(settlement) = settlement {
                if settlement.estimated {
                    self.estimated_in = self.estimated_in.max(Some(window));
                }
                if kind == LimitType::BudgetUsd && settlement.money.is_none() {
                    self.unpriced_in = self.unpriced_in.max(Some(window));
                }
            }
        }
    }

    /// Its figures in the newest window entered.
    fn noted(&self) -> Noted {
        let counted = self.lines.iter().filter(|line| line.window == self.newest);
        Noted {
            window: self.newest,
            observed: counted.map(|line| line.observed).sum(),
            estimated: self.estimated_in == Some(self.newest),
            unpriced: self.unpriced_in == Some(self.newest),
        }
    }
}

impl Oracle {
    /// `epoch_offset` is the wall clock at zero of the monotonic one.
    pub fn new(epoch_offset: u64) -> Oracle {
        Oracle { ledgers: HashMap::new(), epoch_offset }
    }

    fn ledger(&self, instance: &Instance) -> Option<&Ledger> {
        self.ledgers.get(&(instance.limit.kind.gate(), instance.identity.clone()))
    }

    fn ledger_mut(&mut self, instance: &Instance) -> &mut Ledger {
        let key = (instance.limit.kind.gate(), instance.identity.clone());
        self.ledgers.entry(key).or_insert_with(|| Ledger::new(instance))
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
        let newest = self.ledger(instance).map_or(i64::MIN, |ledger| ledger.newest);
        Some(civil::window(*period, zone, now.wall, newest))
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
                    later.monotonic.0 += wait;
                    self.sums(instance, later, false).total
                };
                assert!(total_after(wait) <= ceiling, "a wait of {wait} is too short");
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
            line.share = bucket.put(grain, 1);
            ledger.bucket.set(bucket);
        }
        ledger.lines.push(line);
    }

    /// A request that gate 1 refused came by: it drained a bucket by its amount, or was only seen there.
    pub fn pass_by(&mut self, instance: &Instance, now: Now, drained: bool) {
        let Some(grain) = grain_of(instance) else { return };
        let bucket = &self.ledger_mut(instance).bucket;
        let mut after = bucket.get();
        after.see(grain, now.monotonic.0);
        bucket.set(if drained { after.at(grain, now.monotonic.0, instance.amount.0) } else { after });
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
            ledger.lines.last_mut().unwrap().share = bucket.put(grain, held);
            ledger.bucket.set(bucket);
        }
    }

    /// The counters of gate 2 that `core` owns.
    fn owned(&mut self, core: CoreId, cores: usize) -> impl Iterator<Item = (&Identity, &mut Ledger)> {
        let all = self.ledgers.iter_mut().map(|((gate, identity), ledger)| (*gate, identity, ledger));
        all.filter(move |(gate, identity, _)| *gate == Gate::Two && identity.owner(cores) == core)
            .map(|(_, identity, ledger)| (identity, ledger))
    }

    /// Settles or voids a reservation at one owner; nothing where it is not live.
    pub fn end(
        &mut self,
        core: CoreId,
        cores: usize,
        now: Now,
        id: ReservationId,
        settlement: Option<Settlement>,
    ) {
        for (_, ledger) in self.owned(core, cores) {
            ledger.end(now, settlement, |line| line.id == id.0);
        }
    }

    /// Voids what is past its deadline at one owner.
    pub fn expire(&mut self, core: CoreId, cores: usize, now: Now) -> usize {
        let due = |line: &Line| line.deadline.is_some_and(|deadline| deadline <= now.monotonic.0);
        let mut ended = 0;
        for (_, ledger) in self.owned(core, cores) {
            ended += ledger.lines.iter().filter(|line| line.live && due(line)).count();
            ledger.end(now, None, due);
        }
        ended
    }

    /// Every calendar counter of an owner, as it should be written down now.
    pub fn noted(&mut self, core: CoreId, cores: usize) -> HashMap<Identity, Noted> {
        let calendars = self.owned(core, cores).filter(|(_, ledger)| ledger.kind != LimitType::Tpm);
        let entered = calendars.filter(|(_, ledger)| ledger.newest > i64::MIN);
        entered.map(|(identity, ledger)| (identity.clone(), ledger.noted())).collect()
    }

    /// An owner is lost and starts again from what was written down (SPEC §4.9): of a calendar counter that window and
    /// that figure are left, of everything else nothing.
    pub fn lose(&mut self, core: CoreId, cores: usize, now: Now, written: &HashMap<Identity, Noted>) {
        for (identity, ledger) in self.owned(core, cores) {
            ledger.lines.clear();
            ledger.bucket.take();
            (ledger.newest, ledger.estimated_in, ledger.unpriced_in) = (i64::MIN, None, None);
            let Some(noted) = written.get(identity) else { continue };
            ledger.newest = noted.window;
            ledger.estimated_in = noted.estimated.then_some(noted.window);
            ledger.unpriced_in = noted.unpriced.then_some(noted.window);
            let (window, observed) = (noted.window, noted.observed);
            let line = Line { window, observed, live: false, ..Self::line(u64::MAX, now) };
            ledger.lines.push(line);
        }
    }
}
