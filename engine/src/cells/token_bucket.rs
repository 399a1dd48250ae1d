//! `rpm` under `token_bucket`: GCRA with a capacity of `amount`, as one word (SPEC §4.2).
//!
//! Kept as a meter that fills by one for each admission and drains by `amount` a period: what GCRA says, read from the
//! other side. It reads a clock that ticks 16384 times a period (3.7 ms of a minute); on that clock it is exact: the level
//! counts 1/16384 of a request, so a tick drains exactly `amount` units and no division is ever rounded. The word is
//! `tick (26 bits) | level (38)`. The tick wraps after 4096 periods, so a longer silence is told by `head`, which does not.
//!
//! What only observes ([`TokenBucket::record`]) counts beyond the amount, up to twice the amount and no further: a full
//! bucket, and a debt of one more. A window forgets what came more than a period ago, and so does this: whatever piled
//! up under `shadow` or `alert_only` is worth one period of refusals when the limit is enforced, not as many as the
//! overload lasted, and `observed` stays a figure that one can read.
//!
//! Rejected: GCRA's own word, the theoretical arrival time. It is a *time*, so an edit of the amount would turn one
//! request used of 1 into ten used of 10; here the level is in requests and an edit keeps the usage. A lock around
//! level and time: a core that is put to sleep would stop the others.
//!
//! Invariants: level <= amount x 16384 after any admission under that amount; a record under it never raises the level
//! above twice that. An edited amount drains from the last admission on. Amounts above 2^23 a period count as 2^23.

use crate::cells::ring::{Level, OverAmount};
use crate::sync::{AtomicU64, Ordering};

/// Ticks a period, and level units a request.
const PARTS: u64 = 1 << 14;
const LEVEL_BITS: u32 = 38;
const LEVEL_MASK: u64 = (1 << LEVEL_BITS) - 1;
const TICK_MASK: u64 = (1 << (64 - LEVEL_BITS)) - 1;
/// The level has room for twice as many requests as this.
const LARGEST_AMOUNT: u64 = 1 << 23;

/// What an admission needs to be given back: when it came, how full the bucket was just after it, and how much of that
/// it put in, which is less than a request only where the debt is bounded.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Drip {
    tick: u64,
    level: u64,
    /// At most 2^23.
    amount: u32,
    /// At most 2^14.
    put: u32,
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
    /// A bucket that drains `amount` each `period` nanoseconds, rounded up to whole ticks.
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

    /// Counts one request whatever the level, up to the amount once more than fits: for limits that only observe.
    pub fn record(&self, now: u64, amount: u64) -> Option<Drip> {
        let amount = amount.min(LARGEST_AMOUNT);
        let most = (2 * PARTS * amount.max(1)).min(LEVEL_MASK);
        self.change(now, amount, |level| Some(level.max((level + PARTS).min(most))))
    }

    /// Gives one admission back, as far as it has not drained since: what others put in is never taken out.
    pub fn refund(&self, now: u64, drip: Drip) {
        let amount = u64::from(drip.amount);
        self.change(now, amount, |level| {
            let tick = self.head.load(Ordering::Acquire).max(drip.tick);
            let drained = (tick - drip.tick).saturating_mul(amount);
            let left = drip.level.saturating_sub(drained).min(drip.put.into());
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
        let head = self.head.load(Ordering::Acquire);
        let tick = (now / self.tick).max(head);
        (tick, drained(word, head, tick, amount).0)
    }

    fn change(&self, now: u64, amount: u64, next: impl Fn(u64) -> Option<u64>) -> Option<Drip> {
        let own = now / self.tick;
        let mut near = self.head.load(Ordering::Acquire);
        if own > near {
            near = self.head.fetch_max(own, Ordering::AcqRel);
        }
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            // Read after the word: whoever wrote the word had published its tick before, so `tick` is not behind it.
            let tick = self.head.load(Ordering::Acquire);
            let (left, elapsed) = drained(word, near, tick, amount);
            let Some(level) = next(left) else {
                // A word that nobody changes must not fall so far behind `head` that its tick is read as one to come.
                if elapsed > TICK_MASK / 4 {
                    let fresh = ((tick & TICK_MASK) << LEVEL_BITS) | left;
                    // Whoever was faster has written a fresh one.
                    let _ = self.word.compare_exchange(word, fresh, Ordering::AcqRel, Ordering::Acquire);
                }
                return None;
            };
            let wanted = ((tick & TICK_MASK) << LEVEL_BITS) | level;
            match self.word.compare_exchange_weak(word, wanted, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let put = level.saturating_sub(left) as u32;
                    return Some(Drip { tick, level, amount: amount as u32, put });
                }
                Err(other) => {
                    word = other;
                    near = self.head.load(Ordering::Acquire);
                }
            }
        }
    }
}

/// The level of `word` at `tick`, and the ticks since it was written. The word was written within 2048 periods before or
/// after the tick `near`, and not after `tick`.
fn drained(word: u64, near: u64, tick: u64, amount: u64) -> (u64, u64) {
    // Ticks from `near` to the word: negative if the word is older, as it is but for a race.
    let gap = (word >> LEVEL_BITS).wrapping_sub(near) & TICK_MASK;
    let written = if gap <= TICK_MASK / 2 { near + gap } else { near.saturating_sub(TICK_MASK + 1 - gap) };
    let elapsed = tick.saturating_sub(written);
    ((word & LEVEL_MASK).saturating_sub(elapsed.saturating_mul(amount)), elapsed)
}
