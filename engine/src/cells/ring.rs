//! The sealed bucket ring: how many were admitted in the trailing period, exactly, without a lock.
//!
//! Time is cut in buckets, numbered by *epoch*. A ring of `WORDS` words holds the current bucket and the
//! `WORDS - 1` before it; each word is `lap (31 bits) | sealed (1) | used (32)`, where the lap tells which of the
//! epochs that share the slot the word speaks of. The first thread to see a newer epoch publishes it in `head` and
//! seals the buckets behind it; a late writer's exchange on a sealed word fails, and it tries again in the newer
//! epoch. So the sum of the past is constant for the whole of an epoch (but for refunds, which only lower it), and an
//! admission is one exchange on the current word against `amount - sum(past)`.
//!
//! With 61 words and a bucket of a sixtieth of the period ([`RollingWindow`]), any interval as long as the period
//! lies within 61 buckets, so it never holds more than `amount`; an admission is forgotten when its bucket leaves the
//! ring, at most `period / 60` after it could have been. With one word and a bucket as long as the period
//! ([`FixedWindow`]), the same code counts each aligned window on its own.
//!
//! Rejected: summing unsealed buckets (two threads in two epochs overshoot); one counter for each core, summed (slower,
//! and not exact); GCRA (admits up to `2 x amount - 1` in a period); a ring of time stamps (4 bytes an admission, and
//! a lock).
//!
//! Invariants: `head` never goes back. A word's lap never goes back. A sealed word's `used` never rises. At every
//! moment the words of any `WORDS` adjoining epochs, all admitted under one amount, add up to that amount at most.
//! Units: nanoseconds and requests. A bucket counts up to 2^32 - 1 requests and stays there.

use crate::sync::{AtomicU64, Ordering};

/// `rpm` under `sliding_window`: 60 sealed buckets and the current one (SPEC §4.2).
pub type RollingWindow = BucketRing<61>;

/// `rpm` under `fixed_window`: one bucket as long as the period, aligned to the epoch (SPEC §4.2).
pub type FixedWindow = BucketRing<1>;

const USED_MASK: u64 = 0xffff_ffff;
const SEALED: u64 = 1 << 32;
const LAP_SHIFT: u32 = 33;
const LAP_MASK: u64 = (1 << 31) - 1;

const fn used(word: u64) -> u64 {
    word & USED_MASK
}

const fn lap(word: u64) -> u64 {
    word >> LAP_SHIFT
}

const fn is_sealed(word: u64) -> bool {
    word & SEALED != 0
}

const fn empty(lap: u64) -> u64 {
    lap << LAP_SHIFT
}

/// The bucket an admission was counted in: what a refund needs to find it again.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub struct Epoch(pub u64);

/// Why a cell does not admit: its figure, and when it would admit one more.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct OverAmount {
    /// Requests counted in the window that ends now.
    pub observed: u64,
    /// Nanoseconds until one more fits if nothing else comes; `None` if none ever does (an amount of zero).
    pub wait: Option<u64>,
}

/// What a cell shows: see [`BucketRing::level`].
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Level {
    /// Requests counted in the window that ends now.
    pub observed: u64,
    /// Nanoseconds until the cell is empty again if nothing else comes.
    pub empty_in: u64,
}

/// The ring itself; see the module's text. `WORDS` is at least 1.
#[derive(Debug)]
pub struct BucketRing<const WORDS: usize> {
    /// Highest epoch anyone has seen.
    head: AtomicU64,
    /// `epoch (low 32 bits) | sum of the past`: written only after that epoch's past was sealed, never too low. A refund
    /// that it still holds takes it away.
    past: AtomicU64,
    words: [AtomicU64; WORDS],
    /// Length of a bucket in nanoseconds, at least 1.
    bucket: u64,
    /// Added to the monotonic clock before it is cut in buckets.
    offset: u64,
}

impl<const WORDS: usize> BucketRing<WORDS> {
    /// A ring over `period` nanoseconds; `offset` is added to the monotonic clock (only the fixed window needs it).
    pub fn new(period: u64, offset: u64) -> Self {
        let buckets = if WORDS > 1 { WORDS as u64 - 1 } else { 1 };
        BucketRing {
            head: AtomicU64::new(0),
            past: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            bucket: period.div_ceil(buckets).max(1),
            offset,
        }
    }

    /// Counts one request if fewer than `amount` are counted in the window; `now` in monotonic nanoseconds.
    pub fn admit(&self, now: u64, amount: u64) -> Option<Epoch> {
        self.take(now, amount)
    }

    /// Counts one request whatever the figure: for limits that only observe.
    pub fn record(&self, now: u64) -> Option<Epoch> {
        self.take(now, u64::MAX)
    }

    /// Takes one admission back out of the bucket it was counted in; nothing if that bucket has left the ring.
    pub fn refund(&self, epoch: Epoch) {
        let word = &self.words[Self::slot(epoch.0)];
        let mut seen = word.load(Ordering::Acquire);
        while lap(seen) == Self::lap_of(epoch.0) && used(seen) > 0 {
            match word.compare_exchange_weak(seen, seen - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return self.forget_past(epoch.0),
                Err(other) => seen = other,
            }
        }
    }

    /// The sum of the past held what was just refunded in bucket `of`, unless that is the sum's own epoch: whoever asks
    /// next sums again.
    fn forget_past(&self, of: u64) {
        let cached = self.past.load(Ordering::Acquire);
        if cached >> 32 != of & USED_MASK {
            // No epoch comes twice, so the one before names none that anybody acts in. A sum that another thread is about
            // to write stays, and is too high at worst.
            let forgotten = cached.wrapping_sub(1 << 32);
            let _ = self.past.compare_exchange(cached, forgotten, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// `Some` if one more would not be admitted. Changes nothing.
    pub fn over(&self, now: u64, amount: u64) -> Option<OverAmount> {
        let epoch = self.epoch_at(now);
        if let Some(past) = self.cached_past(epoch) {
            let word = self.words[Self::slot(epoch)].load(Ordering::Acquire);
            if lap(word) == Self::lap_of(epoch) && past + used(word) < amount {
                return None;
            }
        }
        // One more fits once the newest buckets alone are left, which together hold less than `amount`.
        let (mut observed, mut newest) = (0, 0);
        self.counted(epoch).for_each(|counted| {
            newest += usize::from(observed < amount);
            observed += counted;
        });
        if observed < amount {
            return None;
        }
        let wait = newest.checked_sub(1).map(|age| self.empty_in(epoch, age, now));
        Some(OverAmount { observed, wait })
    }

    /// [`level`](BucketRing::level) without a look at every bucket, for headers: what is refunded in a past bucket while
    /// another thread sums the past may stay counted until the current bucket ends.
    pub fn level_at_a_glance(&self, now: u64) -> Level {
        let epoch = self.epoch_at(now);
        if let Some(past) = self.cached_past(epoch) {
            let word = self.words[Self::slot(epoch)].load(Ordering::Acquire);
            if lap(word) == Self::lap_of(epoch) && used(word) > 0 {
                return Level { observed: past + used(word), empty_in: self.empty_in(epoch, 0, now) };
            }
        }
        self.level(now)
    }

    /// When the bucket that was the current one `age` epochs before `epoch` has left the ring.
    fn empty_in(&self, epoch: u64, age: usize, now: u64) -> u64 {
        self.start_of(epoch - age as u64 + WORDS as u64).saturating_sub(now).max(1)
    }

    /// What is counted now, and when the ring would be empty. Changes nothing.
    pub fn level(&self, now: u64) -> Level {
        let epoch = self.epoch_at(now);
        // Empty buckets in front of all others.
        let (mut observed, mut empty) = (0, 0);
        self.counted(epoch).for_each(|counted| {
            observed += counted;
            empty += usize::from(observed == 0);
        });
        Level { observed, empty_in: if observed > 0 { self.empty_in(epoch, empty, now) } else { 0 } }
    }

    fn take(&self, now: u64, bound: u64) -> Option<Epoch> {
        let mut epoch = self.enter(now);
        // Whether the past was summed from the words in this very call: a refusal needs that, because the cached
        // sum may still contain what was refunded since.
        let mut summed = false;
        'epoch: loop {
            let past = match if summed { None } else { self.cached_past(epoch) } {
                Some(past) => past,
                None => {
                    summed = true;
                    match self.seal_past(epoch) {
                        Some(past) => past,
                        None => {
                            epoch = self.enter(now);
                            continue 'epoch;
                        }
                    }
                }
            };
            let allowed = bound.saturating_sub(past).min(USED_MASK);
            let word = &self.words[Self::slot(epoch)];
            let mut seen = word.load(Ordering::Acquire);
            loop {
                if lap(seen) != Self::lap_of(epoch) || is_sealed(seen) {
                    epoch = self.enter(now);
                    summed = false;
                    continue 'epoch;
                }
                if used(seen) >= allowed {
                    if summed {
                        return None;
                    }
                    summed = true;
                    match self.seal_past(epoch) {
                        Some(again) if again < past => continue 'epoch,
                        Some(_) => return None,
                        None => {
                            epoch = self.enter(now);
                            summed = false;
                            continue 'epoch;
                        }
                    }
                }
                match word.compare_exchange_weak(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return Some(Epoch(epoch)),
                    Err(other) => seen = other,
                }
            }
        }
    }

    /// The epoch to act in: that of `now`, or the newest anyone has seen. Publishes it.
    fn enter(&self, now: u64) -> u64 {
        let epoch = self.epoch_of(now);
        let head = self.head.load(Ordering::Acquire);
        if epoch > head { self.head.fetch_max(epoch, Ordering::AcqRel).max(epoch) } else { head }
    }

    /// Seals every bucket behind `epoch`, makes its own word ready and returns the sum of the past; `None` if a newer
    /// epoch has begun.
    fn seal_past(&self, epoch: u64) -> Option<u64> {
        let mut sum = 0;
        for (word, lap) in self.back(epoch).skip(1) {
            sum += used(self.turn(epoch, word, lap, SEALED)?);
        }
        self.turn(epoch, &self.words[Self::slot(epoch)], Self::lap_of(epoch), 0)?;
        if sum <= USED_MASK {
            self.past.store((epoch << 32) | sum, Ordering::Release);
        }
        Some(sum)
    }

    /// Brings a word to its lap, with `flag` set, and returns it; `None` if an epoch newer than `epoch`
    /// has begun, which is the only way for a word to be ahead of it.
    fn turn(&self, epoch: u64, word: &AtomicU64, own: u64, flag: u64) -> Option<u64> {
        let mut seen = word.load(Ordering::Acquire);
        loop {
            let wanted = if lap(seen) == own {
                seen | flag
            } else if self.head.load(Ordering::Acquire) != epoch {
                return None;
            } else {
                empty(own) | flag
            };
            if wanted == seen {
                return Some(seen);
            }
            match word.compare_exchange(seen, wanted, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(wanted),
                Err(other) => seen = other,
            }
        }
    }

    fn cached_past(&self, epoch: u64) -> Option<u64> {
        let cached = self.past.load(Ordering::Acquire);
        (cached >> 32 == epoch & USED_MASK).then_some(cached & USED_MASK)
    }

    /// Requests counted in each bucket of the window that ends at `epoch`, newest first.
    fn counted(&self, epoch: u64) -> impl Iterator<Item = u64> {
        self.back(epoch).map(|(word, own)| {
            let word = word.load(Ordering::Acquire);
            if lap(word) == own { used(word) } else { 0 }
        })
    }

    fn epoch_at(&self, now: u64) -> u64 {
        self.epoch_of(now).max(self.head.load(Ordering::Acquire))
    }

    /// The first epoch is `WORDS`, so that no past bucket has a negative number and every word starts out old.
    fn epoch_of(&self, now: u64) -> u64 {
        (now.saturating_add(self.offset)) / self.bucket + WORDS as u64
    }

    fn start_of(&self, epoch: u64) -> u64 {
        (epoch - WORDS as u64).saturating_mul(self.bucket).saturating_sub(self.offset)
    }

    const fn slot(epoch: u64) -> usize {
        (epoch % WORDS as u64) as usize
    }

    const fn lap_of(epoch: u64) -> u64 {
        (epoch / WORDS as u64) & LAP_MASK
    }

    /// The words of `epoch` and of those before it, newest first and once round the ring, each with the lap that it must show:
    /// without a division for each.
    fn back(&self, epoch: u64) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let (same, before) = self.words.split_at(Self::slot(epoch) + 1);
        let lap = Self::lap_of(epoch);
        let same = same.iter().rev().map(move |word| (word, lap));
        same.chain(before.iter().rev().map(move |word| (word, lap.wrapping_sub(1) & LAP_MASK)))
    }
}
