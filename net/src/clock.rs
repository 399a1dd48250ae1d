//! The two clocks, read together and passed down.
//!
//! Gate 1 counts a request at the instant it is judged, so the clock is read once for each request and not once
//! for each turn of the loop: a reading older than the request's own arrival would let one period hold an
//! admission that belongs to the next.

use std::time::Instant;

use engine::{Monotonic, Now, Span};
use jiff::Timestamp;

/// The process' own start, shared by all cores so that their readings compare.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose monotonic zero is now.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        Now { monotonic: self.monotonic(), wall: Timestamp::now() }
    }

    /// The wall clock, as nanoseconds since 1970, at the monotonic clock's zero.
    pub fn epoch_offset(&self) -> Span {
        let now = self.now();
        let wall = u64::try_from(now.wall.as_nanosecond()).unwrap_or_default();
        Span(wall.saturating_sub(now.monotonic.0))
    }

    /// The monotonic clock alone.
    pub fn monotonic(&self) -> Monotonic {
        Monotonic(self.start.elapsed().as_nanos() as u64)
    }
}
