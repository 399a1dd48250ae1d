//! The counters of `tpm`, at their owner: a bucket ring and a meter (SPEC §4.2, §4.4, §4.6).
//!
//! A shard has one thread, so the ring needs no seals; it keeps running totals, and a check costs two additions. A
//! hold is charged in the bucket of its admission. The settlement goes into that same bucket while it is in the window,
//! and nowhere after: giving back into a newer bucket would let more than the amount through.
//!
//! [`TokenRing`] with 61 buckets of a sixtieth of the period is `sliding_window`; with one bucket as long as the period,
//! aligned to the epoch, it is `fixed_window`. [`TokenMeter`] is `token_bucket`; a limit that only observes fills it to twice
//! the amount and no further, so that it owes one period when it is enforced, as with
//! [`rpm`](crate::cells::TokenBucket).
//!
//! Invariants: the totals are the sums of the buckets; `held` is the sum of the live holds whose bucket is in the window
//! (ring) or of all live holds (meter). The head never goes back. Units: tokens; nanoseconds; token-nanoseconds.

use std::collections::BTreeMap;

use crate::time::Monotonic;

#[derive(Copy, Clone, Default, Debug)]
struct Bucket {
    observed: u64,
    held: u64,
}

#[derive(Debug)]
pub(crate) struct TokenRing {
    head: u64,
    /// Nanoseconds of a bucket.
    length: u64,
    /// Added to the monotonic clock before it is cut in buckets.
    offset: u64,
    observed: u128,
    held: u128,
    buckets: Box<[Bucket]>,
}

impl TokenRing {
    /// `buckets` words: 61 for a sliding window of 60 buckets and the current one, 1 for a fixed window.
    pub(crate) fn new(period: u64, buckets: usize, offset: u64) -> TokenRing {
        let full = (buckets as u64 - 1).max(1);
        TokenRing {
            head: 0,
            length: period.div_ceil(full).max(1),
            offset,
            observed: 0,
            held: 0,
            buckets: vec![Bucket::default(); buckets].into_boxed_slice(),
        }
    }

    /// Moves to `now`: buckets that leave the window are forgotten.
    pub(crate) fn advance(&mut self, now: Monotonic) {
        let epoch = now.0.saturating_add(self.offset) / self.length;
        if epoch <= self.head {
            return;
        }
        let steps = (epoch - self.head).min(self.buckets.len() as u64);
        for step in 1..=steps {
            let slot = self.slot(self.head + step);
            let left = std::mem::take(&mut self.buckets[slot]);
            self.observed -= u128::from(left.observed);
            self.held -= u128::from(left.held);
        }
        self.head = epoch;
    }

    pub(crate) fn figures(&self) -> (u128, u128) {
        (self.observed, self.held)
    }

    /// Charges a hold in the current bucket and returns that bucket's epoch.
    pub(crate) fn hold(&mut self, tokens: u64) -> u64 {
        let slot = self.slot(self.head);
        self.buckets[slot].held += tokens;
        self.held += u128::from(tokens);
        self.head
    }

    /// Exchanges a hold for what was used, in the hold's own bucket; nothing if that has left the window.
    pub(crate) fn settle(&mut self, epoch: u64, held: u64, used: u64) {
        if epoch + (self.buckets.len() as u64) <= self.head {
            return;
        }
        let slot = self.slot(epoch);
        let bucket = &mut self.buckets[slot];
        bucket.held -= held;
        self.held -= u128::from(held);
        let before = bucket.observed;
        bucket.observed = before.saturating_add(used);
        self.observed += u128::from(bucket.observed - before);
    }

    pub(crate) fn is_current(&self, epoch: u64) -> bool {
        epoch + self.buckets.len() as u64 > self.head
    }

    /// Nanoseconds until the total is at most `ceiling`, if nothing else comes.
    pub(crate) fn falls_to(&self, now: Monotonic, ceiling: u128) -> u64 {
        let mut left = self.observed + self.held;
        for age in (0..self.buckets.len() as u64).rev() {
            if left <= ceiling {
                break;
            }
            let Some(epoch) = self.head.checked_sub(age) else { continue };
            let bucket = self.buckets[self.slot(epoch)];
            left -= u128::from(bucket.observed) + u128::from(bucket.held);
            if left <= ceiling {
                return self.leaves_at(epoch).saturating_sub(now.0);
            }
        }
        0
    }

    /// Nanoseconds until nothing is counted, if nothing else comes.
    pub(crate) fn empty_in(&self, now: Monotonic) -> u64 {
        for age in 0..self.buckets.len() as u64 {
            let Some(epoch) = self.head.checked_sub(age) else { break };
            let bucket = self.buckets[self.slot(epoch)];
            if bucket.observed > 0 || bucket.held > 0 {
                return self.leaves_at(epoch).saturating_sub(now.0);
            }
        }
        0
    }

    pub(crate) fn invariants(&self) {
        let observed: u128 = self.buckets.iter().map(|bucket| u128::from(bucket.observed)).sum();
        let held: u128 = self.buckets.iter().map(|bucket| u128::from(bucket.held)).sum();
        assert_eq!((self.observed, self.held), (observed, held), "totals are the sums of the buckets");
    }

    fn leaves_at(&self, epoch: u64) -> u64 {
        (epoch + self.buckets.len() as u64).saturating_mul(self.length).saturating_sub(self.offset)
    }

    fn slot(&self, epoch: u64) -> usize {
        (epoch % self.buckets.len() as u64) as usize
    }
}

/// Where a meter stood just after a hold: what giving back needs.
#[derive(Copy, Clone, Debug)]
pub(crate) struct MeterMark {
    sequence: u64,
    level: u128,
    drained: u128,
}

/// A bucket of tokens read as a meter: it fills by what is held and used, and drains by `amount` a period.
///
/// The level is in token-nanoseconds (tokens x period), so a nanosecond drains exactly `amount` and nothing is rounded.
#[derive(Debug)]
pub(crate) struct TokenMeter {
    period: u64,
    level: u128,
    at: Monotonic,
    /// All that ever drained: what a hold's own share has lost is told from it.
    drained: u128,
    held: u128,
    /// By the sequence of each live hold: what holds before it gave back, so that it drains that much sooner.
    live: BTreeMap<u64, u128>,
    holds: u64,
    /// The amount that it was last drained by, for who comes without one: an ending, a sweep.
    rate: u128,
}

impl TokenMeter {
    pub(crate) fn new(period: u64) -> TokenMeter {
        TokenMeter {
            period: period.max(1),
            level: 0,
            at: Monotonic(0),
            drained: 0,
            held: 0,
            live: BTreeMap::new(),
            holds: 0,
            rate: 0,
        }
    }

    pub(crate) fn advance(&mut self, now: Monotonic, amount: u128) {
        let elapsed = u128::from(now.since(self.at).0);
        let drained = elapsed.saturating_mul(amount).min(self.level);
        self.level -= drained;
        self.drained = self.drained.saturating_add(drained);
        self.at = self.at.max(now);
        self.rate = amount;
    }

    /// As [`TokenMeter::advance`], by the amount of the last time.
    pub(crate) fn advance_as_before(&mut self, now: Monotonic) {
        self.advance(now, self.rate);
    }

    /// Whole tokens, rounded up; what has drained was the oldest, so holds are shown first.
    pub(crate) fn figures(&self) -> (u128, u128) {
        let total = self.level.div_ceil(u128::from(self.period));
        let held = self.held.min(total);
        (total - held, held)
    }

    pub(crate) fn held(&self) -> u128 {
        self.held
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.level == 0
    }

    /// Token-nanoseconds above `ceiling` (in the same), with and without the live holds.
    pub(crate) fn excess(&self, ceiling: u128) -> (u128, u128) {
        let holds = self.held.saturating_mul(u128::from(self.period));
        (self.level.saturating_sub(ceiling), self.level.saturating_sub(holds).saturating_sub(ceiling))
    }

    pub(crate) fn scaled(&self, tokens: u128) -> u128 {
        tokens.saturating_mul(u128::from(self.period))
    }

    /// Puts a hold in. Beyond `most` tokens, if there is such a bound, the oldest counts as drained.
    pub(crate) fn hold(&mut self, tokens: u64, most: Option<u128>) -> MeterMark {
        self.held += u128::from(tokens);
        self.level = self.level.saturating_add(self.scaled(tokens.into()));
        let beyond = most.map_or(0, |most| self.level.saturating_sub(self.scaled(most)));
        self.level -= beyond;
        self.drained = self.drained.saturating_add(beyond);
        self.holds += 1;
        self.live.insert(self.holds, 0);
        MeterMark { sequence: self.holds, level: self.level, drained: self.drained }
    }

    /// Exchanges a hold for what was used, now: to be called on a meter that was advanced, or the outcome would depend on
    /// who looked at it in between. What is given back is at most what of the hold has not drained yet: the oldest drains
    /// first, sooner by what holds before it gave back, and what others put in since is theirs.
    pub(crate) fn settle(&mut self, mark: MeterMark, held: u64, used: u64) {
        self.held -= u128::from(held);
        let sooner = self.live.remove(&mark.sequence).unwrap_or(0);
        if used >= held {
            self.level = self.level.saturating_add(self.scaled((used - held).into()));
            return;
        }
        let left = mark.level.saturating_sub(self.drained - mark.drained).saturating_sub(sooner);
        let back = self.scaled((held - used).into()).min(left);
        self.level = self.level.saturating_sub(back);
        self.live.range_mut(mark.sequence..).for_each(|(_, sooner)| *sooner += back);
    }

    /// Nanoseconds until nothing is counted, if nothing else comes; `amount` is at least 1.
    pub(crate) fn empty_in(&self, amount: u128) -> u64 {
        u64::try_from(self.level.div_ceil(amount.max(1))).unwrap_or(u64::MAX)
    }
}
