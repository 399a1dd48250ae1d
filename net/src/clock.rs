//! The two clocks, read together and passed down.
//!
//! Gate 1 counts a request at the instant at which its head was read, so the clock is read for each request and not once
//! for each turn of the loop: a reading older than the request's own arrival would let one period hold an
//! admission that belongs to the next. Nothing is waited for between that reading and the verdict; a step that may have
//! waited reads the clock anew.
//!
//! **The wall clock is disciplined by the monotonic one** (SPEC §4.10). What is handed out is the monotonic clock plus an
//! offset. The offset follows the system's wall clock while that is slewed, and a suspended machine's sleep; it does not
//! follow a step. A step forward that no elapsed time confirms would hand out a fresh budget, a step back would refuse
//! a window that is due. Such a step is logged, and taken over by a restart, where the stored windows still never go
//! back.

use std::sync::atomic::{AtomicI64, Ordering};

use engine::{Monotonic, Now, Span};
use jiff::Timestamp;
use tracing::warn;

use crate::bounds::CLOCK_STEP;
use crate::rt;

/// The process' own start and the wall clock beside it, shared by all cores so that their readings compare.
#[derive(Debug)]
pub struct Clock {
    /// What the system's monotonic clock showed then.
    start: u64,
    /// Nanoseconds from the monotonic clock to the wall clock in force.
    offset: AtomicI64,
    /// Nanoseconds that the machine slept, when the offset was last looked after.
    slept: AtomicI64,
    /// The step logged last, so that each is logged once.
    reported: AtomicI64,
}

impl Clock {
    /// A clock whose monotonic zero is now.
    pub fn start() -> Clock {
        Clock {
            start: rt::monotonic_nanoseconds(),
            offset: AtomicI64::new(system_wall()),
            slept: AtomicI64::new(rt::nanoseconds_asleep()),
            reported: AtomicI64::new(0),
        }
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        let monotonic = self.monotonic();
        let wall = self.offset.load(Ordering::Relaxed).saturating_add_unsigned(monotonic.0);
        let (second, nanosecond) = (wall.div_euclid(1_000_000_000), wall.rem_euclid(1_000_000_000));
        let wall = Timestamp::new(second, nanosecond as i32).unwrap_or(Timestamp::MAX);
        Now { monotonic, wall }
    }

    /// The monotonic clock alone.
    pub fn monotonic(&self) -> Monotonic {
        Monotonic(rt::monotonic_nanoseconds().saturating_sub(self.start))
    }

    /// The wall clock, as nanoseconds since 1970, at the monotonic clock's zero.
    pub fn epoch_offset(&self) -> Span {
        Span(u64::try_from(self.offset.load(Ordering::Relaxed)).unwrap_or_default())
    }

    /// Lets the wall clock in force follow the system's as far as it may. Called by one core, several times a second.
    pub fn follow(&self) {
        let slept = rt::nanoseconds_asleep();
        let just_slept = slept - self.slept.swap(slept, Ordering::Relaxed);
        let monotonic = self.monotonic();
        let system = system_wall().saturating_sub_unsigned(monotonic.0);
        let kept = self.offset.load(Ordering::Relaxed);
        match follow(kept, system, just_slept) {
            Followed::To(offset) => {
                self.offset.store(offset, Ordering::Relaxed);
                self.reported.store(0, Ordering::Relaxed);
            }
            Followed::NotTheStep { offset, by } => {
                self.offset.store(offset, Ordering::Relaxed);
                let reported = self.reported.swap(by, Ordering::Relaxed);
                if (reported - by).unsigned_abs() > CLOCK_STEP.as_nanos() as u64 {
                    warn!(
                        seconds = by / 1_000_000_000,
                        "the wall clock was stepped; windows go on by elapsed time, a restart takes the new time over"
                    );
                }
            }
        }
    }
}

/// What becomes of the offset.
#[derive(Debug, PartialEq, Eq)]
enum Followed {
    /// It follows.
    To(i64),
    /// The system's clock is further away than slewing can explain.
    NotTheStep { offset: i64, by: i64 },
}

/// `kept` is the offset in force, `system` the one that the system's clock shows now, `slept` how long the machine
/// was suspended in between; all in nanoseconds.
fn follow(kept: i64, system: i64, slept: i64) -> Followed {
    let expected = kept.saturating_add(slept.max(0));
    let by = system.saturating_sub(expected);
    match by.unsigned_abs() <= CLOCK_STEP.as_nanos() as u64 {
        true => Followed::To(system),
        false => Followed::NotTheStep { offset: expected, by },
    }
}

fn system_wall() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn slewing_and_sleep_are_followed_steps_are_not() {
        let day = 86_400 * SECOND;
        let stepped = |offset, by| Followed::NotTheStep { offset, by };
        // offset in force, the system's, slept meanwhile, what follows
        let table = [
            (1_000 * SECOND, 1_000 * SECOND, 0, Followed::To(1_000 * SECOND)),
            (1_000 * SECOND, 1_000 * SECOND + 125_000, 0, Followed::To(1_000 * SECOND + 125_000)),
            (1_000 * SECOND, 999 * SECOND, 0, Followed::To(999 * SECOND)),
            (1_000 * SECOND, 1_000 * SECOND + day, 0, stepped(1_000 * SECOND, day)),
            (10 * day, 9 * day, 0, stepped(10 * day, -day)),
            (1_000 * SECOND, 1_000 * SECOND + day, day, Followed::To(1_000 * SECOND + day)),
            (1_000 * SECOND, 1_000 * SECOND + 3 * day, day, stepped(1_000 * SECOND + day, 2 * day)),
            (i64::MAX - 1, 0, 5, stepped(i64::MAX, -i64::MAX)),
        ];
        for (kept, system, slept, wanted) in table {
            assert_eq!(follow(kept, system, slept), wanted, "{kept} {system} {slept}");
        }
    }

    #[test]
    fn the_wall_clock_in_force_starts_at_the_systems_and_never_goes_back() {
        let clock = Clock::start();
        let mut before = clock.now();
        assert!((system_wall() - before.wall.as_nanosecond() as i64).abs() < SECOND);
        for _ in 0..1_000 {
            clock.follow();
            let now = clock.now();
            assert!(now.monotonic >= before.monotonic);
            assert!(now.wall.as_second() >= before.wall.as_second() - 1);
            before = now;
        }
    }
}
