//! The two clocks, read together and passed down.
//!
//! Gate 1 counts a request at the instant it is judged, so the clock is read once for each request and not once
//! for each turn of the loop: a reading older than the request's own arrival would let one period hold an
//! admission that belongs to the next.

use std::time::Instant;

use engine::{Monotonic, Now};
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

    /// The monotonic clock alone.
    pub fn monotonic(&self) -> Monotonic {
        Monotonic(self.start.elapsed().as_nanos() as u64)
    }
}
