//! The compiled gate 1 of one chain: admit all of it or nothing (SPEC §4.1, §5).
//!
//! An attempt looks first and takes after. Looking changes nothing, so a request that some cap refuses does not take a
//! slot of another cap for even a moment, `tripped` lists every cap over, and a storm of refused requests writes nothing that
//! others read. Taking goes in evaluation order; if a racing request was faster, everything taken is given back and the
//! attempt starts again.
//!
//! A refusal is believed when nobody gave back meanwhile what it may have seen: see [`super::takers`] for how it knows,
//! and for what remains.
//!
//! Invariants: whatever an [`Admission`] took is given back exactly once, by `finish` or by its drop. A refusal leaves
//! nothing behind, and each cap that it names was filled, at some moment of the call, by requests that were admitted.
//! No step allocates once the cells exist, up to eight caps; a refusal allocates its list.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::takers::Takers;
use super::{Cell, Drip, Epoch, Level, OverAmount};
use crate::bounds::ATTEMPTS;
use crate::limits::{LimitId, LimitType};
use crate::resolve::{Instance, Selected};
use crate::time::{Monotonic, Now, Span};
use crate::units::Units;
use crate::verdict::{Cause, RateLeft, Reading, Refusal, Stance, Tripped, Wait};

/// The caps of gate 1 that bind one chain, with their cells, in evaluation order.
pub struct GateOnePlan {
    items: Box<[Item]>,
    /// How many of them count.
    counting: usize,
    takers: Arc<Takers>,
}

#[derive(Debug)]
struct Item {
    instance: Instance,
    cell: Cell,
    amount: u64,
    stance: Stance,
}

/// What gate 1 says.
#[must_use]
#[allow(clippy::large_enum_variant, reason = "the common variant is the large one, and a box would allocate")]
#[derive(Debug)]
pub enum GateOneVerdict {
    /// Every cap admitted; the request holds its slots.
    Admitted(Admission),
    /// At least one cap was over; nothing was consumed.
    Refused(Refusal),
}

/// How an admitted request ended, as gate 1 counts it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Counted {
    /// It was delivered: `rpm` stays counted, slots are released.
    Kept,
    /// It was refused later or never delivered: nothing was consumed.
    GivenBack,
}

/// What one request took at gate 1. Dropped without [`Admission::finish`], it gives everything back.
#[must_use]
#[derive(Debug)]
pub struct Admission {
    plan: Arc<GateOnePlan>,
    taken: SmallVec<[Taken; 8]>,
    /// Items that only observe and would have refused.
    noted: SmallVec<[u16; 4]>,
    now: Monotonic,
}

#[derive(Copy, Clone, Debug)]
struct Taken {
    item: u16,
    permit: Permit,
}

#[derive(Copy, Clone, Debug)]
enum Permit {
    Counted(Epoch),
    Dripped(Drip),
    Slot,
}

impl GateOnePlan {
    pub(super) fn new(
        selected: &Selected,
        takers: Arc<Takers>,
        cell: impl Fn(&Instance) -> Cell,
    ) -> GateOnePlan {
        let items: Box<[Item]> = selected
            .0
            .iter()
            .map(|instance| Item {
                cell: cell(instance),
                amount: instance.amount.as_count(),
                stance: Stance::of(&instance.limit),
                instance: instance.clone(),
            })
            .collect();
        let counting = items.iter().filter(|item| item.stance != Stance::Skipped).count();
        GateOnePlan { items, counting, takers }
    }

    /// The plan's instances, in evaluation order; those off or suspended too.
    pub fn instances(&self) -> impl ExactSizeIterator<Item = &Instance> {
        self.items.iter().map(|item| &item.instance)
    }

    /// Admits one request under every cap, or under none.
    pub fn admit(self: &Arc<Self>, now: Now) -> GateOneVerdict {
        for attempt in 1.. {
            let undone = self.takers.undone();
            if let Some(refusal) = self.look(now) {
                if attempt >= ATTEMPTS || self.takers.still(undone) {
                    return GateOneVerdict::Refused(refusal);
                }
                continue;
            }
            // A lost race names one cap of perhaps several, and may have been lost to one who gives back: looked at
            // again, unless that was often enough.
            match self.take(now) {
                Ok(admission) => return GateOneVerdict::Admitted(admission),
                Err(_) if attempt < ATTEMPTS => {}
                Err(lost) => return GateOneVerdict::Refused(self.items[lost].lost(now.monotonic)),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// The figures of each item now, in order; those off or suspended too. Changes nothing.
    pub fn read(&self, now: Now) -> impl ExactSizeIterator<Item = Reading> {
        self.items.iter().map(move |item| Reading {
            observed: Units(item.cell.observed(now.monotonic, item.amount).into()),
            ..Reading::default()
        })
    }

    /// Every cap that would refuse now; `None` if none would. Changes nothing.
    pub fn look(&self, now: Now) -> Option<Refusal> {
        let mut tripped = Vec::new();
        for item in &self.items {
            if item.stance == Stance::Hard
                && let Some(over) = item.over(now.monotonic)
            {
                tripped.push(item.tripped(over));
            }
        }
        (!tripped.is_empty()).then_some(Refusal { tripped })
    }

    /// Takes every item in order; on the first that refuses gives all back and names it.
    fn take(self: &Arc<Self>, now: Now) -> Result<Admission, usize> {
        // Left after everything was taken, or given back.
        let _underway = if self.counting > 1 { self.takers.enter() } else { None };
        let mut admission = Admission {
            plan: Arc::clone(self),
            taken: SmallVec::new(),
            noted: SmallVec::new(),
            now: now.monotonic,
        };
        for (index, item) in self.items.iter().enumerate() {
            let permit = match item.stance {
                Stance::Skipped => continue,
                Stance::Hard => match item.admit(now.monotonic) {
                    Some(permit) => Some(permit),
                    None => {
                        self.give_back(admission);
                        return Err(index);
                    }
                },
                Stance::Shadow | Stance::Alert => item.admit(now.monotonic).or_else(|| {
                    admission.noted.push(index as u16);
                    item.record(now.monotonic)
                }),
            };
            if let Some(permit) = permit {
                admission.taken.push(Taken { item: index as u16, permit });
            }
        }
        Ok(admission)
    }

    /// Gives back what a lost race took, and says so to those who may have seen it.
    #[cold]
    fn give_back(&self, admission: Admission) {
        let seen = !admission.taken.is_empty();
        drop(admission);
        if seen {
            self.takers.undo();
        }
    }
}

impl fmt::Debug for GateOnePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateOnePlan").field("items", &self.items).finish_non_exhaustive()
    }
}

impl Item {
    fn admit(&self, now: Monotonic) -> Option<Permit> {
        match &self.cell {
            Cell::Rolling(cell) => cell.admit(now.0, self.amount).map(Permit::Counted),
            Cell::Fixed(cell) => cell.admit(now.0, self.amount).map(Permit::Counted),
            Cell::Bucket(cell) => cell.admit(now.0, self.amount).map(Permit::Dripped),
            Cell::Gauge(cell) => cell.admit(self.amount).then_some(Permit::Slot),
        }
    }

    fn record(&self, now: Monotonic) -> Option<Permit> {
        match &self.cell {
            Cell::Rolling(cell) => cell.record(now.0).map(Permit::Counted),
            Cell::Fixed(cell) => cell.record(now.0).map(Permit::Counted),
            Cell::Bucket(cell) => cell.record(now.0, self.amount).map(Permit::Dripped),
            Cell::Gauge(cell) => {
                cell.record();
                Some(Permit::Slot)
            }
        }
    }

    fn over(&self, now: Monotonic) -> Option<OverAmount> {
        match &self.cell {
            Cell::Rolling(cell) => cell.over(now.0, self.amount),
            Cell::Fixed(cell) => cell.over(now.0, self.amount),
            Cell::Bucket(cell) => cell.over(now.0, self.amount),
            Cell::Gauge(cell) => {
                let observed = cell.live();
                (observed >= self.amount).then_some(OverAmount { observed, wait: None })
            }
        }
    }

    /// The refusal of one who was not faster: as the cap was then, full.
    #[cold]
    fn lost(&self, now: Monotonic) -> Refusal {
        let full = OverAmount { observed: self.amount, wait: Some(1) };
        Refusal { tripped: vec![self.tripped(self.over(now).unwrap_or(full))] }
    }

    /// `None` for a gauge, which has no rate.
    fn level_at_a_glance(&self, now: Monotonic) -> Option<Level> {
        match &self.cell {
            Cell::Rolling(cell) => Some(cell.level_at_a_glance(now.0)),
            Cell::Fixed(cell) => Some(cell.level_at_a_glance(now.0)),
            Cell::Bucket(cell) => Some(cell.level(now.0, self.amount)),
            Cell::Gauge(_) => None,
        }
    }

    fn tripped(&self, over: OverAmount) -> Tripped {
        Tripped {
            instance: self.instance.clone(),
            observed: Units(over.observed.into()),
            held: Units::ZERO,
            resets_at: None,
            wait: match over.wait {
                _ if self.instance.limit.kind == LimitType::Concurrency => Wait::SOON,
                Some(nanoseconds) => Wait::For(Span(nanoseconds)),
                None => Wait::Never,
            },
            cause: Cause::Over,
        }
    }
}

impl Admission {
    /// Ends the request at gate 1: slots are released, and `rpm` stays or is given back. Exactly once, by ownership.
    pub fn finish(mut self, counted: Counted) {
        self.release(counted);
    }

    /// The limits that are `alert_only` and would have refused, in evaluation order (`X-Tt-Alert`).
    pub fn alerts(&self) -> impl Iterator<Item = &LimitId> {
        self.noted(Stance::Alert)
    }

    /// The limits in `shadow` that would have refused, in evaluation order.
    pub fn shadowed(&self) -> impl Iterator<Item = &LimitId> {
        self.noted(Stance::Shadow)
    }

    /// The caps in `shadow` or `alert_only` that would have refused, in evaluation order.
    pub fn overlooked(&self) -> impl Iterator<Item = &Instance> {
        self.noted.iter().map(|index| &self.plan.items[usize::from(*index)].instance)
    }

    /// The room left under the tightest enforced `rpm` cap of the chain; `None` if there is none.
    pub fn requests_left(&self, now: Now) -> Option<RateLeft> {
        let hard = self.plan.items.iter().filter(|item| item.stance == Stance::Hard);
        hard.fold(None, |tightest, item| {
            let left = item.level_at_a_glance(now.monotonic).map(|level| RateLeft {
                limit: item.instance.amount,
                remaining: item.instance.amount.saturating_sub(Units(level.observed.into())),
                reset: Span(level.empty_in),
            });
            RateLeft::tighter(tightest, left)
        })
    }

    /// The plan that admitted it.
    pub fn plan(&self) -> &Arc<GateOnePlan> {
        &self.plan
    }

    fn noted(&self, stance: Stance) -> impl Iterator<Item = &LimitId> {
        let items = self.noted.iter().map(|index| &self.plan.items[usize::from(*index)]);
        items.filter(move |item| item.stance == stance).map(|item| &item.instance.limit.id)
    }

    fn release(&mut self, counted: Counted) {
        for taken in std::mem::take(&mut self.taken) {
            let cell = &self.plan.items[usize::from(taken.item)].cell;
            match (cell, taken.permit, counted) {
                (Cell::Gauge(cell), Permit::Slot, _) => cell.release(),
                (_, _, Counted::Kept) => {}
                (Cell::Rolling(cell), Permit::Counted(epoch), _) => cell.refund(epoch),
                (Cell::Fixed(cell), Permit::Counted(epoch), _) => cell.refund(epoch),
                (Cell::Bucket(cell), Permit::Dripped(drip), _) => cell.refund(self.now.0, drip),
                _ => unreachable!("a permit is given back to the cell that made it"),
            }
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.release(Counted::GivenBack);
    }
}
