//! A token bucket written down as a level that drains: what `token_bucket` means at both gates (SPEC §4.2).

#![allow(dead_code, reason = "each test file uses its part")]

use engine::{Algorithm, LimitType, Window};

/// Ticks in which `rpm` reads the clock, and level units of one request.
const PARTS: u64 = 1 << 14;

/// How fine a bucket counts.
#[derive(Copy, Clone, Debug)]
pub struct Grain {
    /// Level units of one request or token. A tick drains as many units as the amount.
    pub unit: u128,
    /// Nanoseconds.
    pub tick: u64,
}

impl Grain {
    /// Of a `token_bucket`; `None` for other windows.
    pub fn of(kind: LimitType, window: &Window) -> Option<Grain> {
        match window {
            Window::Rolling { period, algorithm: Algorithm::TokenBucket } if kind == LimitType::Rpm => {
                Some(Grain { unit: PARTS.into(), tick: period.0.div_ceil(PARTS).max(1) })
            }
            Window::Rolling { period, algorithm: Algorithm::TokenBucket } => {
                Some(Grain { unit: period.0.into(), tick: 1 })
            }
            _ => None,
        }
    }
}

/// A bucket at one tick.
#[derive(Copy, Clone, Default, Debug)]
pub struct Bucket {
    pub level: u128,
    tick: u64,
    /// All that ever drained.
    drained: u128,
    /// What the last who came drained it by.
    rate: u128,
    /// At gate 1, the last tick that anyone came at, also if the level stayed.
    seen: u64,
    /// Requests given back at gate 1.
    given_back: u128,
}

/// One admission's share: the bucket just after it.
#[derive(Copy, Clone, Default, Debug)]
pub struct Share {
    bucket: Bucket,
    /// What it put in.
    put: u128,
    /// What shares before it gave back since.
    pub before: u128,
}

impl Bucket {
    /// At `now` nanoseconds, drained by `amount` a period since the last time.
    pub fn at(self, grain: Grain, now: u64, amount: u128) -> Bucket {
        self.at_tick(now / grain.tick, amount)
    }

    fn at_tick(mut self, tick: u64, amount: u128) -> Bucket {
        let drained = (u128::from(tick.saturating_sub(self.tick)) * amount).min(self.level);
        self.level -= drained;
        self.drained += drained;
        self.tick = self.tick.max(tick);
        self.rate = amount;
        self.seen = self.seen.max(tick);
        self
    }

    /// At `now`, drained by what it was drained by last.
    pub fn later(self, grain: Grain, now: u64) -> Bucket {
        self.at(grain, now, self.rate)
    }

    /// Puts in `count` tokens at gate 2. Beyond `most`, which a limit that only observes has, the oldest are let go.
    pub fn put(&mut self, grain: Grain, count: u128, most: Option<u128>) -> Share {
        self.level += count * grain.unit;
        let kept = most.map_or(self.level, |most| self.level.min(most * grain.unit));
        self.drained += self.level - kept;
        self.level = kept;
        Share { bucket: *self, put: count * grain.unit, before: 0 }
    }

    /// Puts in a request at gate 1. One that is only recorded fills the bucket to twice the amount at most.
    pub fn put_request(&mut self, grain: Grain, amount: u128) -> Share {
        let before = self.level;
        self.level = before.max((before + grain.unit).min(2 * amount * grain.unit));
        Share { bucket: *self, put: self.level - before, before: 0 }
    }

    /// Takes back a request at gate 1, as far as it has not drained by the rate it came under; once something has drained,
    /// whatever was given back since its coming drained it that much sooner. Whoever gives back brings no clock: it
    /// happens when somebody came last.
    pub fn give_back_request(&mut self, grain: Grain, share: Share) {
        let drained = u128::from(self.seen - share.bucket.tick) * share.bucket.rate;
        let others = self.given_back - share.bucket.given_back;
        let sooner = if drained > 0 { others * grain.unit } else { 0 };
        let left = share.bucket.level.saturating_sub(drained + sooner).min(share.put);
        self.given_back += 1;
        if left > 0 {
            *self = self.at_tick(self.seen, share.bucket.rate);
            self.level = self.level.saturating_sub(left);
        }
    }

    /// Takes back `count` of a share at gate 2, as far as it has not drained; returns how much that was.
    pub fn give_back(&mut self, grain: Grain, share: Share, count: u128) -> u128 {
        let gone = self.drained - share.bucket.drained + share.before;
        let back = share.bucket.level.saturating_sub(gone).min(count * grain.unit);
        self.level = self.level.saturating_sub(back);
        back
    }
}
