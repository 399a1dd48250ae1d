//! Whether an address of a backend is well, as all cores have seen it.
//!
//! An address that cannot be reached is set aside at once, one that leaves [`UNANSWERED_IN_A_ROW`] requests without an
//! answer after the last of them; each time in a row for twice as long, from [`SET_ASIDE`] to [`SET_ASIDE_MOST`]. When that
//! time is over, one request probes it, and no other follows before that one has found out. An answer of any
//! status is an answer: what a backend says with a 500 is for its client.
//!
//! Set aside means passed over while another address is left. When none is, it is asked all the same: a request that
//! would be refused here might have been answered there.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use engine::Monotonic;

use crate::bounds::{PROBE_LEASE, SET_ASIDE, SET_ASIDE_MOST, UNANSWERED_IN_A_ROW};

/// How an address stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It may be asked.
    Well,
    /// It has been set aside for long enough: one request may probe it.
    Due,
    /// It is passed over.
    Aside,
}

/// What is known of an address.
#[derive(Debug, Default)]
pub struct Health {
    /// Monotonic nanoseconds until which it is passed over; 0 when it is well. A probe under way is such a time too, so that
    /// one that never ends holds the next one up for a while and not for ever.
    aside_until: AtomicU64,
    /// Times in a row that it was set aside.
    times: AtomicU32,
    /// Requests in a row that had no answer.
    unanswered: AtomicU32,
}

impl Health {
    /// How it stands.
    pub fn standing(&self, now: Monotonic) -> Standing {
        match self.aside_until.load(Ordering::Relaxed) {
            0 => Standing::Well,
            until if until > now.0 => Standing::Aside,
            _ => Standing::Due,
        }
    }

    /// Makes the caller the one that probes; false when somebody else is.
    pub fn claim(&self, now: Monotonic) -> bool {
        let seen = self.aside_until.load(Ordering::Relaxed);
        seen != 0 && seen <= now.0 && self.replace(seen, later(now, PROBE_LEASE))
    }

    /// No connection came about. The time for which it is set aside now; `None` when it already was.
    pub fn unreachable(&self, now: Monotonic, probed: bool) -> Option<Duration> {
        let seen = self.aside_until.load(Ordering::Relaxed);
        if seen != 0 && !probed {
            return None;
        }
        let times = self.times.load(Ordering::Relaxed);
        let span = SET_ASIDE.saturating_mul(1 << times.min(16)).min(SET_ASIDE_MOST);
        self.replace(seen, later(now, span)).then(|| {
            self.times.store(times + 1, Ordering::Relaxed);
            span
        })
    }

    /// A request that was sent had no answer. As [`Health::unreachable`].
    pub fn unanswered(&self, now: Monotonic, probed: bool) -> Option<Duration> {
        let in_a_row = self.unanswered.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if in_a_row < UNANSWERED_IN_A_ROW && !probed {
            return None;
        }
        self.unreachable(now, probed)
    }

    /// A connection came about: it is well, unless it takes connections and answers nothing. Whether it was not.
    pub fn connected(&self) -> bool {
        let aside = self.aside_until.load(Ordering::Relaxed);
        aside != 0 && self.unanswered.load(Ordering::Relaxed) < UNANSWERED_IN_A_ROW && self.recover(aside)
    }

    /// An answer came: it is well. Whether it was not.
    pub fn answered(&self) -> bool {
        if self.unanswered.load(Ordering::Relaxed) != 0 {
            self.unanswered.store(0, Ordering::Relaxed);
        }
        let aside = self.aside_until.load(Ordering::Relaxed);
        aside != 0 && self.recover(aside)
    }

    fn recover(&self, seen: u64) -> bool {
        self.times.store(0, Ordering::Relaxed);
        self.replace(seen, 0)
    }

    fn replace(&self, seen: u64, next: u64) -> bool {
        self.aside_until.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

fn later(now: Monotonic, span: Duration) -> u64 {
    now.0.saturating_add(span.as_nanos() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Monotonic = Monotonic(1_000_000);

    fn after(span: Duration) -> Monotonic {
        Monotonic(START.0 + span.as_nanos() as u64)
    }

    #[test]
    fn each_time_in_a_row_lasts_twice_as_long() {
        let health = Health::default();
        let mut now = START;
        for wanted in [1, 2, 4, 8, 16, 30, 30] {
            let span = Duration::from_secs(wanted);
            let probed = health.standing(now) != Standing::Well;
            assert_eq!(health.unreachable(now, probed), Some(span));
            assert_eq!(health.unreachable(now, false), None, "who was under way meanwhile adds nothing");
            assert_eq!(health.standing(now), Standing::Aside);
            now = Monotonic(now.0 + span.as_nanos() as u64);
            assert_eq!(health.standing(now), Standing::Due);
            assert!(health.claim(now), "the first one probes");
            assert!(!health.claim(now), "and no other");
            assert_eq!(health.standing(now), Standing::Aside);
        }
        assert!(health.answered() && !health.answered());
        assert_eq!(health.standing(now), Standing::Well);
        assert_eq!(health.unreachable(now, false), Some(SET_ASIDE), "begins anew");
    }

    #[test]
    fn a_probe_that_never_ends_is_followed_by_another() {
        let health = Health::default();
        let _ = health.unreachable(START, false);
        let due = after(SET_ASIDE);
        assert!(health.claim(due));
        let over = Monotonic(due.0 + PROBE_LEASE.as_nanos() as u64);
        assert!(!health.claim(Monotonic(over.0 - 1)) && health.claim(over));
    }

    #[test]
    fn silence_counts_in_a_row_and_a_connection_does_not_cure_it() {
        let health = Health::default();
        for _ in 1..UNANSWERED_IN_A_ROW {
            assert_eq!(health.unanswered(START, false), None);
        }
        assert!(!health.answered());
        for _ in 1..UNANSWERED_IN_A_ROW {
            assert_eq!(health.unanswered(START, false), None);
        }
        assert_eq!(health.unanswered(START, false), Some(SET_ASIDE));
        assert!(!health.connected(), "it took connections all the time");
        assert!(health.claim(after(SET_ASIDE)));
        assert_eq!(health.unanswered(after(SET_ASIDE), true), Some(SET_ASIDE * 2));
        assert!(health.answered());
        let _ = health.unreachable(START, false);
        assert!(health.connected(), "what could not be reached is well once it can");
    }
}
