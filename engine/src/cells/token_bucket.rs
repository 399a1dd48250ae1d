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
//! What is given back is taken out as far as it has not drained, the oldest first. It drained sooner if another was given
//! back meanwhile: how many were is known from two counts, of those begun and of those done. After a tick in which
//! something drained each of them is taken for an older one. So a give-back never frees what others put in, and one that
//! is late and among many may free less than a request, for as long as that takes to drain.
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
    level: u64,
    /// The low half: no exchange lasts 2^32 ticks, three days of the shortest period.
    tick: u32,
    /// Give-backs done before it came, the low half.
    done: u32,
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
    /// Give-backs that may have been taken out.
    begun: AtomicU64,
    /// Give-backs that have been.
    done: AtomicU64,
    /// Nanoseconds of a tick, at least 1.
    tick: u64,
}

impl TokenBucket {
    /// A bucket that drains `amount` each `period` nanoseconds, rounded up to whole ticks.
    pub fn new(period: u64) -> TokenBucket {
        let [head, word, begun, done] = std::array::from_fn(|_| AtomicU64::new(0));
        TokenBucket { head, word, begun, done, tick: period.div_ceil(PARTS).max(1) }
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
        self.begun.fetch_add(1, Ordering::AcqRel);
        self.change(now, amount, |level| {
            let tick = self.head.load(Ordering::Acquire) as u32;
            let drained = u64::from(tick.wrapping_sub(drip.tick)) * amount;
            // Whoever is seen in the word has begun before; this one is not another.
            let others = (self.begun.load(Ordering::Acquire) as u32).wrapping_sub(drip.done).wrapping_sub(1);
            let sooner = if drained > 0 { u64::from(others) * PARTS } else { 0 };
            let left = drip.level.saturating_sub(drained + sooner).min(drip.put.into());
            (left > 0).then(|| level.saturating_sub(left))
        });
        self.done.fetch_add(1, Ordering::AcqRel);
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
        // Read before the word: those done are not in it any more.
        let done = self.done.load(Ordering::Acquire) as u32;
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
                    return Some(Drip { level, tick: tick as u32, done, amount: amount as u32, put });
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
