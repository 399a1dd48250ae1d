//! Which attempts are in the midst of taking their caps: what makes a refusal of gate 1 right (SPEC §4.1).
//!
//! An attempt takes its caps one after the other, and gives all back if it loses the race for a later one. Until then
//! its slot of a cap looks like anyone's, so a request that finds that cap full may have found it filled by one that was
//! never admitted. Whoever takes more than one cap therefore says so, before the first and after the last, on a *lane*
//! of its own; whoever gives back says that too. Whoever is about to refuse waits for the lanes that were taken, which
//! is for nanoseconds, and if nobody gave back meanwhile then all who filled the cap were admitted. Otherwise it looks
//! again.
//!
//! Why this is enough. The mark is written before the exchange on the cell, so who reads the cell and then the lanes
//! finds the lane still taken, or left; and what was given back is counted before the lane is left. So the count is
//! unchanged from before the look until after the wait only if none of the slots that the look saw was given back by a
//! loser. Someone loses only to one who was faster. Caps are taken in one order by all, so the last in that order of a
//! chain of losers lost to one who was admitted: who looks again does so because others get on.
//!
//! Rejected: a mark in each cell (one more exchange a cap, and the cells are what all cores share); a lock around the
//! taking (a core that is put to sleep within it would stop all); the scarcest cap last (rarer, not right); no mark,
//! and looking again after a while (a core may sleep longer). The price here is one exchange and one store a request on
//! a cache line that is the core's own, 5 ns of the 135 that three caps take, and that a refusal reads the line of each
//! core.
//!
//! What remains. Waiting is bounded, and so is looking again: a core never waits for another's sleep. A refusal can be
//! wrong still while a thread is stopped *within* its taking, for longer than [`PATIENCE`] pauses, and then loses; or
//! after [`ATTEMPTS`](crate::bounds::ATTEMPTS) races lost in a row. The model checkers' builds have neither bound.
//!
//! Invariants: a lane's number is odd while it is taken, and only grows. A lane has one taker at a time.

use crossbeam_utils::CachePadded;

use crate::bounds::{LANES, PATIENCE};
use crate::sync::{AtomicU64, Ordering, lane_of_thread, pause};

/// The attempts under way over one table's cells; see the module's text.
pub(super) struct Takers {
    lanes: Box<[CachePadded<AtomicU64>]>,
    /// Lanes that were ever taken are below this.
    known: AtomicU64,
    /// Attempts that gave back what others may have seen.
    undone: CachePadded<AtomicU64>,
}

/// One attempt under way. Its lane is left when this is dropped.
#[must_use]
pub(super) struct Underway<'a> {
    lane: &'a AtomicU64,
    taken: u64,
}

const fn is_taken(lane: u64) -> bool {
    lane & 1 == 1
}

impl Takers {
    pub(super) fn new() -> Takers {
        Takers {
            lanes: (0..LANES).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            known: AtomicU64::new(0),
            undone: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Takes a free lane: this thread's own, but for threads beyond [`LANES`]. `None` if none is free, which takes as
    /// many threads within their takings at once.
    pub(super) fn enter(&self) -> Option<Underway<'_>> {
        let first = lane_of_thread();
        (first..first + LANES).map(|lane| lane % LANES).find_map(|number| {
            if number as u64 >= self.known.load(Ordering::Relaxed) {
                self.known.fetch_max(number as u64 + 1, Ordering::AcqRel);
            }
            let lane = &self.lanes[number];
            let free = lane.load(Ordering::Relaxed);
            let taken = free + 1;
            let is_ours = !is_taken(free)
                && lane.compare_exchange(free, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            // Made only if it is: dropping one leaves the lane.
            is_ours.then(|| Underway { lane, taken })
        })
    }

    /// How many attempts gave back so far.
    pub(super) fn undone(&self) -> u64 {
        self.undone.load(Ordering::Acquire)
    }

    /// Says that an attempt has given back. To be called before it leaves its lane.
    pub(super) fn undo(&self) {
        self.undone.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits for the attempts under way; whether still just so many gave back. Who has been waited for too long is
    /// taken to be admitted.
    pub(super) fn still(&self, undone: u64) -> bool {
        let mut pauses = 0;
        for lane in &self.lanes[..self.known.load(Ordering::Acquire) as usize] {
            let seen = lane.load(Ordering::Acquire);
            while is_taken(seen) && lane.load(Ordering::Acquire) == seen && pauses < PATIENCE {
                if self.undone() != undone {
                    return false;
                }
                pause(pauses);
                pauses += 1;
            }
        }
        self.undone() == undone
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.lane.store(self.taken + 1, Ordering::Release);
    }
}
