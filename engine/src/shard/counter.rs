//! One counter of gate 2, of any kind, and how a request is judged against it.
//!
//! A request is admitted while the total (observed and held) is at most a *ceiling*: `amount - 1` under `while_under`,
//! `amount - estimate` under `if_fits` (SPEC §4.4). No ceiling means that the request never fits.

use crate::bounds;
use crate::calendar::CalendarPeriod;
use crate::calendar::{WindowIndex, window_at};
use crate::counter_identity::Identity;
use crate::gates::{Estimate, Settlement};
use crate::limits::{Admit, Algorithm, LimitType, Window, Zone};
use crate::money::PicoUsd;
use crate::resolve::Instance;
use crate::time::{Monotonic, Now, Span};
use crate::units::Units;
use crate::verdict::{Cause, Reading, Wait};

use super::calendar::CalendarCounter;
use super::high_water::{MarkNumber, Reached};
use super::mark::CounterMark;
use super::tokens::{MeterMark, TokenMeter, TokenRing};

/// What a limit counts of a request.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Charge {
    /// One request, at the reserve; only a void gives it back.
    Request,
    /// Its tokens: the estimate held, the usage settled.
    Tokens,
    /// Its price: the same.
    Money,
}

impl Charge {
    pub(super) fn of(kind: LimitType) -> Charge {
        match kind {
            LimitType::BudgetUsd => Charge::Money,
            LimitType::Tpm | LimitType::QuotaTokens => Charge::Tokens,
            LimitType::QuotaRequests | LimitType::Rpm | LimitType::Concurrency => Charge::Request,
        }
    }

    /// What a request of that estimate holds.
    pub(super) fn hold(self, estimate: Estimate) -> u128 {
        match self {
            Charge::Request => 0,
            Charge::Tokens => estimate.tokens.0.min(bounds::TOKENS_A_REQUEST).into(),
            Charge::Money => money(estimate.money),
        }
    }

    /// What a request that ended so used.
    pub(super) fn used(self, settlement: Settlement) -> u128 {
        match self {
            Charge::Request => 0,
            Charge::Tokens => settlement.tokens.0.min(bounds::TOKENS_A_REQUEST).into(),
            Charge::Money => money(settlement.money),
        }
    }
}

fn money(price: Option<PicoUsd>) -> u128 {
    price.map_or(0, |price| price.0.min(bounds::PICO_USD_A_REQUEST))
}

/// Where a hold is booked: the window, bucket or level at the admission.
#[derive(Copy, Clone, Debug)]
pub(super) enum Place {
    Window(WindowIndex),
    Bucket(u64),
    Meter(MeterMark),
}

/// A counter's figures, and what it says to one request.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) reading: Reading,
    /// `None`: it admits.
    pub(super) verdict: Option<(Cause, Wait)>,
    /// Only what requests in flight hold or were counted for stands in the way.
    pub(super) in_flight_only: bool,
}

impl Judgement {
    /// What a counter that does not exist says.
    pub(super) fn of_nothing(now: Now, instance: &Instance, estimate: u128) -> Judgement {
        let resets_at = match &instance.limit.window {
            Window::Calendar { period, zone } => Some(window_at(*period, &zone.zone, now.wall).resets_at),
            Window::Rolling { .. } | Window::Live => None,
        };
        let verdict = ceiling(instance, estimate).is_none().then_some((Cause::Over, Wait::Never));
        Judgement { reading: Reading { resets_at, ..Reading::default() }, verdict, in_flight_only: false }
    }

    /// From what stands above the ceiling: all of it, without what others hold, without what may be given back.
    fn of(reading: Reading, excess: Option<[u128; 3]>, wait: impl FnOnce() -> Wait) -> Judgement {
        let (verdict, in_flight_only) = match excess {
            None => (Some((Cause::Over, Wait::Never)), false),
            Some([0, ..]) => (None, false),
            Some([_, 0, _]) => (Some((Cause::HeldOnly, Wait::SOON)), true),
            Some([_, _, firm]) => (Some((Cause::Over, wait())), firm == 0),
        };
        Judgement { reading, verdict, in_flight_only }
    }
}

/// The largest total that admits.
fn ceiling(instance: &Instance, estimate: u128) -> Option<u128> {
    match instance.limit.admit {
        Admit::WhileUnder => instance.amount.0.checked_sub(1),
        Admit::IfFits => instance
            .amount
            .0
            .checked_sub(if Charge::of(instance.limit.kind) == Charge::Request { 1 } else { estimate }),
    }
}

#[derive(Debug)]
enum Kind {
    Calendar(CalendarCounter),
    Ring(TokenRing),
    Meter(TokenMeter),
}

/// What the journal does not know of a counter yet.
#[derive(Debug, Default)]
pub(super) struct Journaled {
    /// It is in the shard's list of counters that are not written down exactly.
    pub(super) listed: bool,
    /// It is in the shard's list of counters whose mark is waited for.
    pub(super) urgent: bool,
    /// Its figures have changed since its last mark.
    pub(super) changed: bool,
    /// When they did.
    pub(super) changed_at: Monotonic,
}

/// One counter of a shard.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) identity: Identity,
    /// How it stands with the journal.
    pub(super) journal: Journaled,
    /// Live reservations that booked here.
    live: u32,
    kind: Kind,
}

impl Counter {
    pub(super) fn new(now: Now, instance: &Instance, epoch_offset: Span) -> Counter {
        let kind = match &instance.limit.window {
            Window::Calendar { period, zone } => {
                let window = window_at(*period, &zone.zone, now.wall);
                Kind::Calendar(CalendarCounter::new(*period, window, zone, now.wall))
            }
            Window::Rolling { period, algorithm: Algorithm::SlidingWindow } => {
                Kind::Ring(TokenRing::new(period.0, 61, 0))
            }
            Window::Rolling { period, algorithm: Algorithm::FixedWindow } => {
                Kind::Ring(TokenRing::new(period.0, 1, epoch_offset.0))
            }
            Window::Rolling { period, algorithm: Algorithm::TokenBucket } => {
                Kind::Meter(TokenMeter::new(period.0))
            }
            Window::Live => unreachable!("a live gauge is counted at gate 1"),
        };
        Counter { identity: instance.identity.clone(), journal: Journaled::default(), live: 0, kind }
    }

    /// `None` if the mark's period is no calendar period.
    pub(super) fn restored(identity: Identity, mark: &CounterMark) -> Option<Counter> {
        let counter = CalendarCounter::restored(CalendarPeriod::parse(&mark.period)?, mark);
        Some(Counter { identity, journal: Journaled::default(), live: 0, kind: Kind::Calendar(counter) })
    }

    /// The calendar counter within, if it is one.
    pub(super) fn calendar(&self) -> Option<&CalendarCounter> {
        match &self.kind {
            Kind::Calendar(counter) => Some(counter),
            Kind::Ring(_) | Kind::Meter(_) => None,
        }
    }

    /// Tells the high water how far the counter has come; `None` for a counter that no restart needs. `amount` is what the
    /// request saw; an ending has none, and the last one seen stands.
    pub(super) fn reach(
        &mut self,
        now: Monotonic,
        amount: Option<Units>,
        next: MarkNumber,
    ) -> Option<Reached> {
        let Kind::Calendar(counter) = &mut self.kind else { return None };
        let amount = amount.map_or(counter.high_water.amount(), |amount| amount.0);
        Some(counter.high_water.reach(now, counter.level(), amount, next))
    }

    /// From batch `next` on, the journal knows exactly what the counter stands at.
    pub(super) fn make_exact(&mut self, next: MarkNumber) {
        if let Kind::Calendar(counter) = &mut self.kind {
            let level = counter.level();
            counter.high_water.lower(level, next);
        }
    }

    /// Whether its last mark, or the one to be made now, promises no more than it stands at.
    pub(super) fn is_exact(&self) -> bool {
        self.calendar().is_none_or(|counter| counter.high_water.level() == counter.level())
    }

    pub(super) fn merge(&mut self, mark: &CounterMark) {
        let Kind::Calendar(counter) = &mut self.kind else { return };
        if mark.window > counter.window()
            && let Some(period) = CalendarPeriod::parse(&mark.period)
        {
            *counter = CalendarCounter::restored(period, mark);
        }
        if mark.window == counter.window() {
            counter.merge(mark);
        }
    }

    /// Judges a request. Time passes in the counter, nothing else changes.
    pub(super) fn judge(&mut self, now: Now, instance: &Instance, estimate: u128) -> Judgement {
        let ceiling = ceiling(instance, estimate);
        match &mut self.kind {
            Kind::Calendar(counter) => {
                let (period, zone) = calendar_of(instance);
                let window = counter.window_now(period, zone, now.wall);
                let (observed, held) = counter.figures_in(window.index);
                let own = window.index == counter.window();
                let pending = if own { counter.pending } else { 0 };
                let reading = Reading {
                    observed: Units(observed),
                    held: Units(held),
                    estimated: own && counter.estimated,
                    unpriced: own && counter.unpriced,
                    uncertain: Units(if own { counter.uncertain } else { 0 }),
                    resets_at: Some(window.resets_at),
                };
                let excess = ceiling.map(|ceiling| {
                    [observed.saturating_add(held), observed, observed - pending.min(observed)]
                        .map(|total| total.saturating_sub(ceiling))
                });
                Judgement::of(reading, excess, || {
                    let left = window.resets_at.as_nanosecond() - now.wall.as_nanosecond();
                    Wait::For(Span(u64::try_from(left).unwrap_or(1).max(1)))
                })
            }
            Kind::Ring(ring) => {
                ring.advance(now.monotonic);
                let (observed, held) = ring.figures();
                let excess = ceiling.map(|ceiling| {
                    [observed + held, observed, observed].map(|total| total.saturating_sub(ceiling))
                });
                Judgement::of(rolling_reading(observed, held), excess, || {
                    Wait::For(Span(ring.falls_to(now.monotonic, ceiling.unwrap_or(0)).max(1)))
                })
            }
            Kind::Meter(meter) => {
                meter.advance(now.monotonic, instance.amount.0);
                let (observed, held) = meter.figures();
                // A token-nanosecond below the amount is under it.
                let scaled = ceiling.map(|ceiling| match instance.limit.admit {
                    Admit::WhileUnder => meter.scaled(instance.amount.0).saturating_sub(1),
                    Admit::IfFits => meter.scaled(ceiling),
                });
                let excess = scaled.map(|ceiling| meter.excess(ceiling));
                let above = excess.map_or(0, |(all, _)| all);
                Judgement::of(
                    rolling_reading(observed, held),
                    excess.map(|(all, firm)| [all, firm, firm]),
                    || {
                        let wait = above.div_ceil(instance.amount.0.max(1));
                        Wait::For(Span(u64::try_from(wait).unwrap_or(u64::MAX).max(1)))
                    },
                )
            }
        }
    }

    /// Books an admitted request; to be called in the same moment as [`Counter::judge`]. `enforced`: the limit refuses, it
    /// does not only observe.
    pub(super) fn book(
        &mut self,
        now: Now,
        instance: &Instance,
        enforced: bool,
        charge: Charge,
        held: u128,
    ) -> Place {
        self.live += 1;
        match &mut self.kind {
            Kind::Calendar(counter) => {
                let (period, zone) = calendar_of(instance);
                counter.enter(period, counter.window_now(period, zone, now.wall), zone, now.wall);
                counter.held += held;
                if charge == Charge::Request {
                    counter.observed = counter.observed.saturating_add(1);
                    counter.pending += 1;
                }
                Place::Window(counter.window())
            }
            Kind::Ring(ring) => {
                ring.advance(now.monotonic);
                Place::Bucket(ring.hold(tokens(held)))
            }
            Kind::Meter(meter) => {
                meter.advance(now.monotonic, instance.amount.0);
                let most = (!enforced).then(|| instance.amount.0.saturating_mul(2));
                Place::Meter(meter.hold(tokens(held), most))
            }
        }
    }

    /// Exchanges a hold for what was used; tells whether a figure changed.
    #[allow(clippy::too_many_arguments, reason = "one call site; each is one fact of the ending")]
    pub(super) fn settle(
        &mut self,
        now: Now,
        place: &Place,
        charge: Charge,
        held: u128,
        used: u128,
        estimated: bool,
        unpriced: bool,
    ) -> bool {
        self.live -= 1;
        match (&mut self.kind, place) {
            (Kind::Calendar(counter), Place::Window(window)) if *window == counter.window() => {
                counter.held -= held;
                if charge == Charge::Request {
                    counter.pending -= 1;
                    return false;
                }
                counter.observed = counter.observed.saturating_add(used);
                counter.estimated |= estimated;
                counter.unpriced |= unpriced;
                true
            }
            (Kind::Ring(ring), Place::Bucket(epoch)) => {
                ring.advance(now.monotonic);
                ring.settle(*epoch, tokens(held), tokens(used));
                true
            }
            (Kind::Meter(meter), Place::Meter(mark)) => {
                meter.advance_as_before(now.monotonic);
                meter.settle(*mark, tokens(held), tokens(used));
                true
            }
            _ => false,
        }
    }

    /// Gives a hold back; tells whether a figure changed.
    pub(super) fn void(&mut self, now: Now, place: &Place, charge: Charge, held: u128) -> bool {
        if let (Kind::Calendar(counter), Charge::Request, Place::Window(window)) =
            (&mut self.kind, charge, place)
            && *window == counter.window()
        {
            self.live -= 1;
            counter.observed = counter.observed.saturating_sub(1);
            counter.pending -= 1;
            return true;
        }
        self.settle(now, place, charge, held, 0, false, false)
    }

    pub(super) fn figures(&self) -> (u128, u128) {
        match &self.kind {
            Kind::Calendar(counter) => (counter.observed, counter.held),
            Kind::Ring(ring) => ring.figures(),
            Kind::Meter(meter) => meter.figures(),
        }
    }

    /// Nanoseconds until nothing is counted; only for `tpm`.
    pub(super) fn empty_in(&self, now: Monotonic, amount: u128) -> u64 {
        match &self.kind {
            Kind::Calendar(_) => 0,
            Kind::Ring(ring) => ring.empty_in(now),
            Kind::Meter(meter) => meter.empty_in(amount),
        }
    }

    /// Whether a hold booked there still counts here.
    pub(super) fn is_current(&self, place: &Place) -> bool {
        match (&self.kind, place) {
            (Kind::Calendar(counter), Place::Window(window)) => *window == counter.window(),
            (Kind::Ring(ring), Place::Bucket(epoch)) => ring.is_current(*epoch),
            (Kind::Meter(_), Place::Meter(_)) => true,
            _ => false,
        }
    }

    /// Whether forgetting it would change nothing.
    pub(super) fn is_spent(&mut self, now: Now) -> bool {
        if self.live > 0 || self.journal.listed {
            return false;
        }
        match &mut self.kind {
            Kind::Calendar(counter) => counter.is_spent(now.wall),
            Kind::Ring(ring) => {
                ring.advance(now.monotonic);
                ring.figures() == (0, 0)
            }
            Kind::Meter(meter) => {
                meter.advance_as_before(now.monotonic);
                meter.is_empty()
            }
        }
    }

    /// Conservation, cheap enough for release: what nobody holds is not held.
    pub(super) fn conserved(&self) {
        assert!(self.live > 0 || self.held() == 0, "{:?}: held without a holder", self.identity);
    }

    pub(super) fn invariants(&self, held: u128, pending: u128, live: u32) {
        assert_eq!(self.held(), held, "{:?}: held is the sum of the live holds", self.identity);
        assert_eq!(self.live, live, "{:?}: live reservations", self.identity);
        match &self.kind {
            Kind::Calendar(counter) => assert_eq!(counter.pending, pending, "{:?}: pending", self.identity),
            Kind::Ring(ring) => ring.invariants(),
            Kind::Meter(_) => {}
        }
    }

    fn held(&self) -> u128 {
        match &self.kind {
            Kind::Calendar(counter) => counter.held,
            Kind::Ring(ring) => ring.figures().1,
            Kind::Meter(meter) => meter.held(),
        }
    }
}

fn rolling_reading(observed: u128, held: u128) -> Reading {
    Reading { observed: Units(observed), held: Units(held), ..Reading::default() }
}

/// Both come from the token bound of one request, so they fit.
fn tokens(units: u128) -> u64 {
    u64::try_from(units).unwrap_or(u64::MAX)
}

fn calendar_of(instance: &Instance) -> (CalendarPeriod, &Zone) {
    match &instance.limit.window {
        Window::Calendar { period, zone } => (*period, zone),
        Window::Rolling { .. } | Window::Live => unreachable!("the identity names a calendar counter"),
    }
}
