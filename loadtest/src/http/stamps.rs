//! When an event was sent, written into it by the backend and read again by the client: what lies between is the way of that one
//! event, whatever the pauses between events were.
//!
//! The clock is the machine's monotonic one, so backend and client must be on the same machine. Who forwards events and
//! writes them anew may leave the time out; then there is none to read.

use rustix::time::{ClockId, clock_gettime};

/// The member that holds it, in nanoseconds.
pub const MEMBER: &str = "\"sent_ns\":";

/// The present, in nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Finds the times in one stream. Any split of the bytes gives the same.
#[derive(Debug, Default)]
pub struct Stamps {
    /// How much of [`MEMBER`] has been read.
    matched: usize,
    /// What has been read of the number behind it.
    number: u64,
}

impl Stamps {
    /// Takes the next bytes; calls `found` with each time that they complete.
    pub fn feed(&mut self, bytes: &[u8], mut found: impl FnMut(u64)) {
        let member = MEMBER.as_bytes();
        for byte in bytes {
            if self.matched == member.len() {
                if byte.is_ascii_digit() {
                    self.number = self.number.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
                    continue;
                }
                found(std::mem::take(&mut self.number));
                self.matched = 0;
            }
            // Only its first byte begins it, and stands in it once more, as its last but one.
            self.matched = match *byte == member[self.matched] {
                true => self.matched + 1,
                false => usize::from(*byte == member[0]),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_at_any_split() {
        fn check(text: &str, wanted: &[u64]) {
            for size in 1..=text.len() {
                let (mut stamps, mut seen) = (Stamps::default(), Vec::new());
                text.as_bytes().chunks(size).for_each(|part| stamps.feed(part, |at| seen.push(at)));
                assert_eq!(seen, wanted, "{text:?} in pieces of {size}");
            }
        }
        check("data: {\"id\":\"x\",\"sent_ns\":12345}\n\ndata: {\"sent_ns\":7,\"b\":1}\n\n", &[12345, 7]);
        check("\"sent_\"sent_ns\":1 \"sent_ns\"\"sent_ns\":2}", &[1, 2]);
        check("\"\"sent_ns\":3,", &[3]);
        check("sent_ns\":4, \"sent_n\":5, \"sent_ns\": 6, \"sent_ns\":7", &[0]);
    }

    #[test]
    fn time_goes_on() {
        let before = now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(now() >= before + 2_000_000);
    }
}
