//! `rpm` under `token_bucket`: GCRA with a capacity of `amount`, as one word (SPEC §4.2).
//!
//! Kept as a meter that fills by one for each admission and drains by `amount` a period: what GCRA says, read from the
//! other side. The word is `tick (28 bits) | level (36)`: a tick is 1/1024 of the period, the level counts 1/1024 of
//! a request, so a tick drains exactly `amount` and no division is ever rounded. The tick only tells *elapsed* time, so
//! 28 bits are enough (72 hours at a period of one second); after an idle time of exactly a multiple of that, the meter
//! drains as if it had been full of what it last held, which is late by a period and never early.
//!
//! Rejected: GCRA's own word, the theoretical arrival time. It is a *time*, so an edit of the amount would turn one
//! request used of 1 into ten used of 10; here the level is in requests and an edit keeps the usage. A lock around
//! level and time: a core that is put to sleep would stop the others.
//!
//! Invariants: level <= amount x 1024 after any admission under that amount. Amounts above 2^25 count as 2^25.

use crate::cells::ring::{Level, OverAmount};
use crate::sync::{AtomicU64, Ordering};

/// Ticks a period, and level units a request.
const PARTS: u64 = 1024;
const LEVEL_BITS: u32 = 36;
const LEVEL_MASK: u64 = (1 << LEVEL_BITS) - 1;
const TICK_MASK: u64 = (1 << (64 - LEVEL_BITS)) - 1;
/// The level has room for twice as many requests as this.
const LARGEST_AMOUNT: u64 = 1 << 25;

/// What an admission needs to be given back: when it came, and how full the bucket was just after it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Drip {
    tick: u64,
    level: u64,
    amount: u64,
}

/// The meter; see the module's text.
#[derive(Debug)]
pub struct TokenBucket {
    /// Highest tick anyone has seen.
    head: AtomicU64,
    word: AtomicU64,
    /// Nanoseconds of a tick, at least 1.
    tick: u64,
}

impl TokenBucket {
    /// A bucket that drains `amount` each `period` nanoseconds, rounded up to 1024 whole ticks.
    pub fn new(period: u64) -> TokenBucket {
        TokenBucket { head: AtomicU64::new(0), word: AtomicU64::new(0), tick: period.div_ceil(PARTS).max(1) }
    }

    /// Counts one request if it fits under `amount`; `now` in monotonic nanoseconds.
    pub fn admit(&self, now: u64, amount: u64) -> Option<Drip> {
        let amount = amount.min(LARGEST_AMOUNT);
        self.change(now, amount, |level| {
            let fuller = level + PARTS;
            (fuller <= amount * PARTS).then_some(fuller)
        })
    }

    /// Counts one request whatever the level: for limits that only observe.
    pub fn record(&self, now: u64, amount: u64) -> Option<Drip> {
        self.change(now, amount.min(LARGEST_AMOUNT), |level| Some((level + PARTS).min(LEVEL_MASK)))
    }

    /// Gives one admission back, as far as it has not drained since: what others put in is never taken out.
    pub fn refund(&self, now: u64, drip: Drip) {
        self.change(now, drip.amount, |level| {
            let tick = self.head.load(Ordering::Acquire).max(drip.tick);
            let drained = (tick - drip.tick).saturating_mul(drip.amount);
            let left = drip.level.saturating_sub(drained).min(PARTS);
            (left > 0).then(|| level.saturating_sub(left))
        });
    }

    /// `Some` if one more would not be admitted. Changes nothing.
    pub fn over(&self, now: u64, amount: u64) -> Option<OverAmount> {
        let amount = amount.min(LARGEST_AMOUNT);
        let (tick, level) = self.look(now, amount);
        if level + PARTS <= amount * PARTS {
            return None;
        }
        let wait = (amount > 0).then(|| {
            let ticks = (level + PARTS - amount * PARTS).div_ceil(amount);
            (tick + ticks).saturating_mul(self.tick).saturating_sub(now).max(1)
        });
        Some(OverAmount { observed: level.div_ceil(PARTS), wait })
    }

    /// What is counted now, and when the bucket would be empty. Changes nothing.
    pub fn level(&self, now: u64, amount: u64) -> Level {
        let amount = amount.clamp(1, LARGEST_AMOUNT);
        let (tick, level) = self.look(now, amount);
        let empty_in = match level {
            0 => 0,
            _ => (tick + level.div_ceil(amount)).saturating_mul(self.tick).saturating_sub(now).max(1),
        };
        Level { observed: level.div_ceil(PARTS), empty_in }
    }

    fn look(&self, now: u64, amount: u64) -> (u64, u64) {
        let word = self.word.load(Ordering::Acquire);
        let tick = (now / self.tick).max(self.head.load(Ordering::Acquire));
        (tick, drained(word, tick, amount))
    }

    fn change(&self, now: u64, amount: u64, next: impl Fn(u64) -> Option<u64>) -> Option<Drip> {
        let own = now / self.tick;
        self.head.fetch_max(own, Ordering::AcqRel);
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            // Read after the word: whoever wrote the word had published its tick before, so `tick` is not behind it.
            let tick = self.head.load(Ordering::Acquire);
            let level = next(drained(word, tick, amount))?;
            let wanted = ((tick & TICK_MASK) << LEVEL_BITS) | level;
            match self.word.compare_exchange_weak(word, wanted, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Drip { tick, level, amount }),
                Err(other) => word = other,
            }
        }
    }
}

/// The level of `word` at `tick`, which is not before it.
fn drained(word: u64, tick: u64, amount: u64) -> u64 {
    let elapsed = (tick & TICK_MASK).wrapping_sub(word >> LEVEL_BITS) & TICK_MASK;
    (word & LEVEL_MASK).saturating_sub(elapsed.saturating_mul(amount))
}
