//! How far a calendar counter may go on what is written down already (SPEC §4.9, §10 "Crash").
//!
//! A mark that held the bare figure would be too low from the next request on. So it holds a *high water* beside it: the
//! level, observed and held together, that the counter may reach before another mark is written. A request that stays
//! below is covered: it goes at once. One that goes above raises the high water and waits until that mark is written.
//! After a crash a counter resumes at its high water: never below what was spent, and above it by the headroom at most.
//!
//! The headroom follows the traffic. It starts at a 256th of the amount, doubles while marks come in haste, and ends at a
//! 64th; so a busy counter is raised ahead of need, some tens of times a second, and nobody waits. Up to the amount nothing
//! is promised beyond it. Beyond it, where only limits that observe go on counting, the level takes the amount's place, or
//! each request would ask for a mark. A counter that
//! has been quiet is written down exactly, with no headroom, so that a crash then costs nothing; its next request waits
//! for one write.
//!
//! Rejected: a mark for each settlement (a crash between the two loses it, and every request would wait); a constant
//! headroom (either small quotas are over-counted grossly, or large ones wait).
//!
//! Invariants: no request is covered by a mark that was lowered after. Levels are in the limit's units.

use crate::time::{Monotonic, Span};

/// The number of one batch of marks of one shard, ascending. What a request waits for before it spends; zero: for nothing.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug, Default)]
pub struct MarkNumber(pub u64);

/// Raised again within this time, a counter is in haste: a write takes a few milliseconds at worst, so a headroom that
/// lasts ten times as long is ahead of it.
const HASTE: Span = Span(50_000_000);

/// Not raised for this time, a counter needs no more than the least headroom.
const CALM: Span = Span(1_000_000_000);

/// Parts of the amount: the least headroom, and the most.
const LEAST: u128 = 256;
const MOST: u128 = 64;

/// What was promised to the journal, for one window of one counter.
#[derive(Debug, Default)]
pub(crate) struct HighWater {
    newest: Raised,
    /// The one before: what it covers need not wait for the newest.
    before: Raised,
    headroom: u128,
    raised_at: Option<Monotonic>,
    amount: u128,
}

#[derive(Copy, Clone, Debug, Default)]
struct Raised {
    level: u128,
    mark: MarkNumber,
}

/// What a level asks of the journal.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Reached {
    /// The batch that covers it.
    pub(crate) after: MarkNumber,
    /// The high water rose: a mark is to be written soon.
    pub(crate) raised: bool,
}

impl HighWater {
    /// As it was read back: up to there, everything is written down.
    pub(crate) fn written(level: u128) -> HighWater {
        let written = Raised { level, mark: MarkNumber(0) };
        HighWater { newest: written, before: written, ..HighWater::default() }
    }

    /// The level that a mark made now promises.
    pub(crate) fn level(&self) -> u128 {
        self.newest.level
    }

    /// The limit's amount as the last request saw it.
    pub(crate) fn amount(&self) -> u128 {
        self.amount
    }

    /// The counter has come to `level`. A rise goes into batch `next`.
    pub(crate) fn reach(&mut self, now: Monotonic, level: u128, amount: u128, next: MarkNumber) -> Reached {
        self.amount = amount;
        let covered = [self.before, self.newest].into_iter().find(|raised| level <= raised.level);
        let left = self.newest.level.saturating_sub(level);
        let runs_out = left.saturating_mul(2) < self.headroom && self.newest.level < self.bound(level);
        let raised = covered.is_none() || runs_out;
        if raised {
            self.raise(now, level, next);
        }
        Reached { after: covered.map_or(next, |raised| raised.mark), raised }
    }

    fn raise(&mut self, now: Monotonic, level: u128, next: MarkNumber) {
        let pause = self.raised_at.map(|before| now.since(before));
        let wanted = match pause {
            Some(pause) if pause <= HASTE => {
                self.headroom.saturating_mul(2).max(level.saturating_sub(self.newest.level))
            }
            Some(pause) if pause < CALM => self.headroom,
            _ => 0,
        };
        let whole = self.amount.max(level);
        self.headroom = wanted.clamp(whole / LEAST, whole / MOST);
        self.raised_at = Some(now);
        if self.newest.mark != next {
            self.before = self.newest;
        }
        let promised = level.saturating_add(self.headroom).min(self.bound(level)).max(level);
        self.newest = Raised { level: promised.max(self.newest.level), mark: next };
    }

    /// What need not be promised beyond, while the counter stands at `level`.
    fn bound(&self, level: u128) -> u128 {
        if level <= self.amount { self.amount } else { u128::MAX }
    }

    /// Batch `next` says exactly `level`, with no headroom; from then on that is all that is covered.
    pub(crate) fn lower(&mut self, level: u128, next: MarkNumber) {
        if level < self.newest.level {
            self.newest = Raised { level, mark: next };
            self.before = self.newest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(milliseconds, level, amount, batch)` -> the batch to wait for, whether it rose, the level promised then.
    type Step = ((u64, u128, u128, u64), (u64, bool, u128));

    fn check(name: &str, steps: &[Step]) {
        let mut water = HighWater::default();
        for (index, ((millis, level, amount, batch), (after, raised, promised))) in steps.iter().enumerate() {
            let now = Monotonic(millis * 1_000_000);
            let reached = water.reach(now, *level, *amount, MarkNumber(*batch));
            let seen = (reached.after.0, reached.raised, water.level());
            assert_eq!(seen, (*after, *raised, *promised), "{name}, step {index}");
        }
    }

    #[test]
    fn the_high_water_follows_the_traffic() {
        check(
            "a small quota is never ahead, and each request waits for its own mark",
            &[((0, 1, 5, 1), (1, true, 1)), ((1, 2, 5, 2), (2, true, 2)), ((2, 3, 5, 3), (3, true, 3))],
        );
        check(
            "the least headroom covers what comes seldom",
            &[
                ((0, 10, 2560, 1), (1, true, 20)),
                ((2000, 12, 2560, 2), (1, false, 20)),
                ((2001, 16, 2560, 2), (1, true, 26)),
                ((4000, 26, 2560, 3), (2, true, 36)),
            ],
        );
        check(
            "haste doubles the headroom, up to the most",
            &[
                ((0, 10, 2560, 1), (1, true, 20)),
                ((10, 18, 2560, 2), (1, true, 38)),
                ((20, 35, 2560, 3), (2, true, 75)),
                ((30, 70, 2560, 4), (3, true, 110)),
            ],
        );
        check(
            "what the batch before covers does not wait for the newest",
            &[
                ((0, 10, 2560, 1), (1, true, 20)),
                ((10, 18, 2560, 2), (1, true, 38)),
                ((11, 20, 2560, 3), (1, false, 38)),
                ((12, 21, 2560, 3), (2, false, 38)),
            ],
        );
        check(
            "nothing is promised beyond the amount",
            &[
                ((0, 95, 100, 1), (1, true, 95)),
                ((1, 99, 100, 2), (2, true, 100)),
                ((2, 100, 100, 3), (2, false, 100)),
            ],
        );
        check("a debt has a headroom of its own", &[((0, 512, 100, 1), (1, true, 514))]);
    }

    /// A limit that only observes goes on counting: most requests must not ask for a mark.
    #[test]
    fn beyond_the_amount_marks_stay_rare() {
        let mut water = HighWater::default();
        let raised = (1..=100_000u64).filter(|level| {
            let (now, batch) = (Monotonic(level * 1_000), MarkNumber(*level));
            water.reach(now, u128::from(*level), 5, batch).raised
        });
        let raised = raised.count();
        assert!(raised < 1_000, "{raised} marks for 100,000 requests");
    }

    #[test]
    fn what_was_lowered_covers_no_more_than_it_says() {
        let mut water = HighWater::default();
        let _ = water.reach(Monotonic(0), 10, 2560, MarkNumber(1));
        water.lower(10, MarkNumber(2));
        assert_eq!(water.level(), 10);
        let again = water.reach(Monotonic(1), 10, 2560, MarkNumber(3));
        assert_eq!(
            again,
            Reached { after: MarkNumber(2), raised: true },
            "covered by the lowered mark alone"
        );
        let above = water.reach(Monotonic(2), 11, 2560, MarkNumber(3));
        assert_eq!(above.after, MarkNumber(3));
    }

    #[test]
    fn a_counter_read_back_is_covered_up_to_where_it_was_written() {
        let mut water = HighWater::written(7);
        let reached = water.reach(Monotonic(0), 7, 10, MarkNumber(1));
        assert_eq!(reached, Reached { after: MarkNumber(0), raised: false });
    }
}
