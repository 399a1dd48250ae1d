//! One core's share of the gate-2 counters, and the only place that changes them (SPEC §4).
//!
//! [`Shard::apply`] takes an [`Ask`] and gives an [`Answer`], synchronously: a check and its holds happen in one call, so
//! nothing comes between them, and one seed replays any history. A reserve first judges every item, changing nothing,
//! and books only when all admit; so a refusal neither makes a counter nor changes one.
//!
//! Amount, admission rule and posture come with each ask's plan and are never stored: an edit keeps the usage.
//!
//! Invariants ([`Shard::invariants`]): the `held` of each counter is the sum of the live holds booked in its window; a
//! counter that no reservation uses holds nothing, which is asserted whenever a reservation ends, also in release.
//! Units: each counter's own, by its limit's type.

mod calendar;
mod counter;
mod high_water;
mod mark;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ahash::AHashMap;
use jiff::Timestamp;
use smallvec::SmallVec;

pub use high_water::MarkNumber;
pub use mark::CounterMark;

use self::counter::{Charge, Counter, Judgement, Place};
use crate::bounds;
use crate::counter_identity::{CoreId, Identity};
use crate::gates::{
    Answer, Ask, Estimate, GateTwoItem, GateTwoPlan, PartialRefusal, ReservationId, Reserved, Settlement,
};
use crate::limits::{Fail, LimitType};
use crate::time::{Monotonic, Now, Span};
use crate::units::Units;
use crate::verdict::{Cause, RateLeft, Reading, Stance, Tripped, Wait};

/// The counters that one core owns, and the reservations on them.
#[derive(Debug)]
pub struct Shard {
    core: CoreId,
    cores: usize,
    slots: Vec<Option<Counter>>,
    free: Vec<u32>,
    index: AHashMap<Identity, u32>,
    reservations: AHashMap<ReservationId, Entry>,
    /// No deadline of a live reservation is before this.
    next_deadline: Monotonic,
    /// Calendar counters that are not written down exactly.
    changed: Vec<u32>,
    /// Those of them that the round of marks under way has still to look at.
    unlooked: Vec<u32>,
    /// Those of them whose mark a request waits for, or soon will.
    urgent: Vec<u32>,
    /// The number of the next batch of marks.
    next_mark: MarkNumber,
    /// Counters at which the next look for spent ones begins.
    sweep_at: usize,
    /// Where the look under way goes on.
    sweep_from: Option<usize>,
    /// Aligns fixed windows; taken once.
    epoch_offset: Option<Span>,
    /// Calendar counters were forgotten at that wall time. No counter begins in an earlier window, or a wall clock that
    /// was set back would open their windows anew.
    forgotten_at: Timestamp,
}

#[derive(Debug)]
struct Entry {
    deadline: Monotonic,
    holds: SmallVec<[Hold; 8]>,
}

#[derive(Debug)]
struct Hold {
    slot: u32,
    charge: Charge,
    place: Place,
    held: u128,
}

/// One batch of marks. Batches are to be written in the order of their numbers.
#[must_use]
#[derive(Debug)]
pub struct Marks {
    /// The batch's number; of no meaning while it is empty.
    pub number: MarkNumber,
    /// The counters.
    pub marks: Vec<CounterMark>,
}

/// Quiet for so long, a counter is written down exactly.
const QUIET: Span = Span(500_000_000);

/// How a reservation ends.
#[derive(Copy, Clone)]
enum Ending {
    Settled(Settlement),
    Voided,
}

impl Shard {
    /// The empty shard of `core` among `cores`.
    pub fn new(core: CoreId, cores: usize) -> Shard {
        Shard {
            core,
            cores,
            slots: Vec::new(),
            free: Vec::new(),
            index: AHashMap::new(),
            reservations: AHashMap::new(),
            next_deadline: Monotonic(u64::MAX),
            changed: Vec::new(),
            unlooked: Vec::new(),
            urgent: Vec::new(),
            next_mark: MarkNumber(1),
            sweep_at: bounds::COUNTERS_BEFORE_SWEEP,
            sweep_from: None,
            epoch_offset: None,
            forgotten_at: Timestamp::MIN,
        }
    }

    /// Aligns fixed windows with the wall clock at zero of the monotonic one, in nanoseconds since 1970, as the
    /// [`CellTable`](crate::cells::CellTable) has it. Without it the first counter takes it from its `now`.
    #[must_use]
    pub fn with_epoch_offset(mut self, epoch_offset: Span) -> Shard {
        self.epoch_offset = Some(epoch_offset);
        self
    }

    /// Acts on one ask. The only mutator beside [`Shard::expire`] and [`Shard::restore`].
    pub fn apply(&mut self, now: Now, ask: Ask) -> Answer {
        match ask {
            Ask::Reserve { id, plan, estimate, deadline, final_round: _ } => {
                self.reserve(now, id, &plan, estimate, deadline)
            }
            Ask::Check { plan, estimate } => Answer::Refused(self.check(now, &plan, estimate).0),
            Ask::Settle { id, settlement } => {
                self.end(now, id, Ending::Settled(settlement));
                Answer::Done
            }
            Ask::Void { id } => {
                self.end(now, id, Ending::Voided);
                Answer::Done
            }
            Ask::Read { plan } => Answer::Read(self.read(now, &plan)),
        }
    }

    /// Voids the reservations whose deadline has come. When there are many counters it also looks at some of them, and
    /// forgets those that say nothing any more. Whether there are others left to look at: call it again soon, not at once.
    pub fn expire(&mut self, now: Now) -> bool {
        if now.monotonic >= self.next_deadline {
            let due = |entry: &Entry| entry.deadline <= now.monotonic;
            let mut ended: Vec<ReservationId> =
                self.reservations.iter().filter(|(_, entry)| due(entry)).map(|(id, _)| *id).collect();
            // A map's order is not the same each time; what follows must be.
            ended.sort_unstable();
            for id in ended {
                self.end(now, id, Ending::Voided);
            }
            let deadlines = self.reservations.values().map(|entry| entry.deadline);
            self.next_deadline = deadlines.min().unwrap_or(Monotonic(u64::MAX));
        }
        if self.sweep_from.is_some() || self.index.len() >= self.sweep_at {
            self.sweep_some(now, bounds::COUNTERS_A_LOOK);
        }
        self.sweep_from.is_some()
    }

    /// Whether some mark should be written now rather than at the next round: see [`Shard::take_urgent_marks`].
    pub fn has_urgent_marks(&self) -> bool {
        !self.urgent.is_empty()
    }

    /// The calendar counters whose high water rose since the last call. Requests wait for this batch, or soon will.
    pub fn take_urgent_marks(&mut self) -> Marks {
        let marks = self.urgent_marks();
        self.batch(marks)
    }

    /// The calendar counters that changed since their last mark, and those that have been quiet since, now exactly as they
    /// stand; of at most so many that it looks at. Whoever calls it every so often, each time until
    /// [`Shard::has_unlooked`] is false, makes a crash cost nothing at rest.
    pub fn take_marks(&mut self, now: Monotonic, most: usize) -> Marks {
        if self.unlooked.is_empty() {
            std::mem::swap(&mut self.unlooked, &mut self.changed);
        }
        self.marks_of_unlooked(most, |counter| now.since(counter.journal.changed_at) >= QUIET)
    }

    /// Whether the round of [`Shard::take_marks`] that was begun is not over.
    pub fn has_unlooked(&self) -> bool {
        !self.unlooked.is_empty()
    }

    /// All calendar counters that are not written down exactly, as they stand: the last word of a shard that ends.
    pub fn take_last_marks(&mut self) -> Marks {
        self.unlooked.append(&mut self.changed);
        self.marks_of_unlooked(usize::MAX, |_| true)
    }

    fn marks_of_unlooked(&mut self, most: usize, is_quiet: impl Fn(&Counter) -> bool) -> Marks {
        let mut marks = Vec::new();
        let rest = self.unlooked.len().saturating_sub(most);
        let mut looked = std::mem::take(&mut self.unlooked);
        for slot in looked.drain(rest..) {
            let Some(counter) = &mut self.slots[slot as usize] else { continue };
            let mut told = counter.journal.changed;
            if is_quiet(counter) && !counter.is_exact() {
                counter.make_exact(self.next_mark);
                told = true;
            }
            counter.journal.listed = !counter.is_exact();
            if counter.journal.listed {
                self.changed.push(slot);
            }
            if told {
                marks.extend(self.mark(slot));
            }
        }
        self.unlooked = looked;
        // A batch has all that are urgent: who waits for one of them waits for the number of the next batch.
        let urgent = self.urgent_marks();
        marks.extend(urgent);
        self.batch(marks)
    }

    fn urgent_marks(&mut self) -> Vec<CounterMark> {
        let mut urgent = std::mem::take(&mut self.urgent);
        // Those that were written with a round are not urgent any more.
        urgent
            .retain(|slot| self.slots[*slot as usize].as_ref().is_some_and(|counter| counter.journal.urgent));
        let marks = urgent.drain(..).filter_map(|slot| self.mark(slot)).collect();
        self.urgent = urgent;
        marks
    }

    fn mark(&mut self, slot: u32) -> Option<CounterMark> {
        let counter = self.slots[slot as usize].as_mut()?;
        (counter.journal.changed, counter.journal.urgent) = (false, false);
        CounterMark::of(counter)
    }

    fn batch(&mut self, marks: Vec<CounterMark>) -> Marks {
        let number = self.next_mark;
        if !marks.is_empty() {
            self.next_mark = MarkNumber(number.0 + 1);
        }
        Marks { number, marks }
    }

    /// The counter at `slot` has changed: its next mark says so, and its high water follows. Returns the batch that
    /// covers it.
    fn journal(&mut self, now: Monotonic, slot: u32, amount: Option<Units>, changed: bool) -> MarkNumber {
        let Some(counter) = &mut self.slots[slot as usize] else { return MarkNumber(0) };
        let Some(reached) = counter.reach(now, amount, self.next_mark) else { return MarkNumber(0) };
        let journal = &mut counter.journal;
        if reached.raised && !std::mem::replace(&mut journal.urgent, true) {
            self.urgent.push(slot);
        }
        if changed || reached.raised {
            (journal.changed, journal.changed_at) = (true, now);
            if !std::mem::replace(&mut journal.listed, true) {
                self.changed.push(slot);
            }
        }
        reached.after
    }

    /// Takes up a counter that was written down; `false` if another core owns it, or it is of no known kind. A counter
    /// that is known already keeps the newer window, and the greater figure within one.
    pub fn restore(&mut self, _now: Now, mark: CounterMark) -> bool {
        let Some(identity) = mark.identity() else { return false };
        if identity.owner(self.cores) != self.core || !mark.is_calendar() {
            return false;
        }
        match self.index.get(&identity) {
            Some(slot) => {
                if let Some(counter) = &mut self.slots[*slot as usize] {
                    counter.merge(&mark);
                }
            }
            None => match Counter::restored(identity, &mark) {
                Some(counter) => drop(self.insert(counter)),
                None => return false,
            },
        }
        true
    }

    /// Reservations that hold something here.
    pub fn live_reservations(&self) -> usize {
        self.reservations.len()
    }

    /// Counters kept here.
    pub fn counters(&self) -> usize {
        self.index.len()
    }

    /// Whether a counter is kept here under that identity.
    pub fn knows(&self, identity: &Identity) -> bool {
        self.index.contains_key(identity)
    }

    /// Asserts that the counters and the live reservations agree.
    ///
    /// # Panics
    /// When they do not.
    pub fn invariants(&self) {
        let mut sums: AHashMap<u32, (u128, u128, u32)> = AHashMap::new();
        for hold in self.reservations.values().flat_map(|entry| &entry.holds) {
            let counter = self.slots[hold.slot as usize].as_ref().expect("a held counter is kept");
            let sum = sums.entry(hold.slot).or_default();
            sum.2 += 1;
            if counter.is_current(&hold.place) {
                sum.0 += hold.held;
                sum.1 += u128::from(hold.charge == Charge::Request);
            }
        }
        for (slot, counter) in self.slots.iter().enumerate() {
            let Some(counter) = counter else { continue };
            let (held, pending, live) = sums.get(&(slot as u32)).copied().unwrap_or_default();
            counter.invariants(held, pending, live);
            assert_eq!(self.index.get(&counter.identity), Some(&(slot as u32)), "the index finds the slot");
        }
        assert_eq!(self.index.len() + self.free.len(), self.slots.len(), "slots are used or free");
        assert!(self.reservations.values().all(|entry| entry.deadline >= self.next_deadline));
    }

    fn reserve(
        &mut self,
        now: Now,
        id: ReservationId,
        plan: &Arc<GateTwoPlan>,
        estimate: Estimate,
        deadline: Monotonic,
    ) -> Answer {
        debug_assert!(!self.reservations.contains_key(&id), "a reservation is made once a round");
        let (partial, mut reserved) = self.check(now, plan, estimate);
        if !partial.tripped.is_empty() {
            return Answer::Refused(partial);
        }
        let mut holds = SmallVec::new();
        for (_, item) in plan.owned_by(self.core) {
            if item.stance == Stance::Skipped {
                continue;
            }
            let Some(slot) = self.find_or_make(now, item) else { continue };
            let counter = self.slots[slot as usize].as_mut().expect("just found or made");
            let charge = Charge::of(item.instance.limit.kind);
            let held = charge.hold(estimate);
            let enforced = item.stance == Stance::Hard;
            let place = counter.book(now, &item.instance, enforced, charge, held);
            if item.stance == Stance::Hard && item.instance.limit.kind == LimitType::Tpm {
                let (observed, held) = counter.figures();
                let left = RateLeft {
                    limit: item.instance.amount,
                    remaining: item.instance.amount.saturating_sub(Units(observed + held)),
                    reset: Span(counter.empty_in(now.monotonic, item.instance.amount.0)),
                };
                reserved.tokens_left = RateLeft::tighter(reserved.tokens_left, Some(left));
            }
            let changed = charge == Charge::Request;
            let after = self.journal(now.monotonic, slot, Some(item.instance.amount), changed);
            if item.stance == Stance::Hard {
                reserved.after = reserved.after.max(after);
            }
            holds.push(Hold { slot, charge, place, held });
        }
        self.next_deadline = self.next_deadline.min(deadline);
        self.reservations.insert(id, Entry { deadline, holds });
        Answer::Reserved(reserved)
    }

    /// Judges every item of the plan that this core owns; changes nothing that counts.
    fn check(&mut self, now: Now, plan: &GateTwoPlan, estimate: Estimate) -> (PartialRefusal, Reserved) {
        let mut partial = PartialRefusal { tripped: Vec::new(), in_flight_only: true };
        let mut reserved = Reserved::default();
        for (place, item) in plan.owned_by(self.core) {
            if item.stance == Stance::Skipped {
                continue;
            }
            let Some((tripped, in_flight_only)) = self.judge(now, item, estimate) else { continue };
            if item.stance == Stance::Hard {
                partial.tripped.push((place, tripped));
                partial.in_flight_only &= in_flight_only;
            } else {
                reserved.noted.push(place);
            }
        }
        (partial, reserved)
    }

    /// `None` if the item admits; else why not, and whether only requests in flight stand in the way.
    fn judge(&mut self, now: Now, item: &GateTwoItem, estimate: Estimate) -> Option<(Tripped, bool)> {
        let instance = &item.instance;
        let charge = Charge::of(instance.limit.kind);
        let slot = self.find(item);
        let fails_closed = instance.limit.posture.fail == Fail::Closed;
        let mut judgement = match slot.and_then(|slot| self.slots[slot as usize].as_mut()) {
            Some(counter) => counter.judge(now, instance, charge.hold(estimate)),
            None => Judgement::of_nothing(self.now_of_new(now), instance, charge.hold(estimate)),
        };
        if charge == Charge::Money && estimate.money.is_none() {
            judgement.verdict = fails_closed.then_some((Cause::Unpriced, Wait::Never));
            judgement.in_flight_only = false;
        }
        if slot.is_none() && self.is_full() {
            judgement.verdict = fails_closed.then_some((Cause::Unavailable, Wait::SOON));
            judgement.in_flight_only = false;
        }
        let (cause, wait) = judgement.verdict?;
        let tripped = Tripped {
            instance: instance.clone(),
            observed: judgement.reading.observed,
            held: judgement.reading.held,
            resets_at: judgement.reading.resets_at,
            wait,
            cause,
        };
        Some((tripped, judgement.in_flight_only))
    }

    fn end(&mut self, now: Now, id: ReservationId, ending: Ending) {
        let Some(entry) = self.reservations.remove(&id) else { return };
        for hold in entry.holds {
            let counter = self.slots[hold.slot as usize].as_mut().expect("a held counter is kept");
            let changed = match ending {
                Ending::Settled(settlement) => {
                    let used = hold.charge.used(settlement);
                    let unpriced = hold.charge == Charge::Money && settlement.money.is_none();
                    counter.settle(
                        now,
                        &hold.place,
                        hold.charge,
                        hold.held,
                        used,
                        settlement.estimated,
                        unpriced,
                    )
                }
                Ending::Voided => counter.void(now, &hold.place, hold.charge, hold.held),
            };
            counter.conserved();
            let _ = self.journal(now.monotonic, hold.slot, None, changed);
        }
    }

    fn read(&mut self, now: Now, plan: &GateTwoPlan) -> Vec<(u16, Reading)> {
        let mut readings = Vec::new();
        for (place, item) in plan.owned_by(self.core) {
            let slot = self.find(item);
            let judgement = match slot.and_then(|slot| self.slots[slot as usize].as_mut()) {
                Some(counter) => counter.judge(now, &item.instance, 0),
                None => Judgement::of_nothing(self.now_of_new(now), &item.instance, 0),
            };
            readings.push((place, judgement.reading));
        }
        readings
    }

    /// The slot of the item's counter, if it has one. The hint is verified, never trusted.
    fn find(&self, item: &GateTwoItem) -> Option<u32> {
        let identity = &item.instance.identity;
        let hint = item.slot_hint.load(Ordering::Relaxed);
        if let Some(Some(counter)) = self.slots.get(hint as usize)
            && counter.identity == *identity
        {
            return Some(hint);
        }
        let slot = *self.index.get(identity)?;
        item.slot_hint.store(slot, Ordering::Relaxed);
        Some(slot)
    }

    /// `None` if there is no room for another counter.
    fn find_or_make(&mut self, now: Now, item: &GateTwoItem) -> Option<u32> {
        if let Some(slot) = self.find(item) {
            return Some(slot);
        }
        if self.is_full() {
            return None;
        }
        let offset = *self.epoch_offset.get_or_insert_with(|| {
            let wall = u64::try_from(now.wall.as_nanosecond()).unwrap_or(0);
            Span(wall.saturating_sub(now.monotonic.0))
        });
        let slot = self.insert(Counter::new(self.now_of_new(now), &item.instance, offset));
        item.slot_hint.store(slot, Ordering::Relaxed);
        Some(slot)
    }

    fn insert(&mut self, counter: Counter) -> u32 {
        let identity = counter.identity.clone();
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(counter);
                slot
            }
            None => {
                self.slots.push(Some(counter));
                (self.slots.len() - 1) as u32
            }
        };
        self.index.insert(identity, slot);
        slot
    }

    /// What a counter that is not kept here takes for the time.
    fn now_of_new(&self, now: Now) -> Now {
        Now { wall: now.wall.max(self.forgotten_at), ..now }
    }

    fn is_full(&self) -> bool {
        self.index.len() >= bounds::COUNTERS_A_SHARD
    }

    /// Forgets the counters that say nothing any more; returns how many. [`Shard::expire`] does the same, some at a time.
    pub fn sweep(&mut self, now: Now) -> usize {
        let before = self.index.len();
        self.sweep_from = None;
        self.sweep_some(now, usize::MAX);
        before - self.index.len()
    }

    fn sweep_some(&mut self, now: Now, most: usize) {
        let from = self.sweep_from.unwrap_or(0);
        let to = from.saturating_add(most).min(self.slots.len());
        for slot in from..to {
            let place = &mut self.slots[slot];
            if let Some(counter) = place
                && counter.is_spent(now)
            {
                if counter.calendar().is_some() {
                    self.forgotten_at = self.forgotten_at.max(now.wall);
                }
                self.index.remove(&counter.identity);
                *place = None;
                self.free.push(slot as u32);
            }
        }
        self.sweep_from = (to < self.slots.len()).then_some(to);
        if self.sweep_from.is_none() {
            // Twice what is left, so that the walks cost a constant share of the insertions; never beyond the bound.
            self.sweep_at =
                (self.index.len() * 2).clamp(bounds::COUNTERS_BEFORE_SWEEP, bounds::COUNTERS_A_SHARD);
        }
    }
}
