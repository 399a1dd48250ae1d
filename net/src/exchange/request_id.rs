//! The `x-request-id` of an exchange.

use std::sync::LazyLock;

/// `req_` and 28 hexadecimal digits: 12 of the process' start time, 16 of the exchange's number. Unique over the
/// cores of a process and, but for a clock set back, over its restarts. Not a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId([u8; LENGTH]);

const LENGTH: usize = 32;

/// What the ids of this process begin with.
static BOOT: LazyLock<[u8; 16]> = LazyLock::new(|| {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let since = since.as_millis() as u64;
    let mut text = [0; 16];
    text[..8].copy_from_slice(&digits((since >> 32) as u32));
    text[8..].copy_from_slice(&digits(since as u32));
    text[..4].copy_from_slice(b"req_");
    text
});

impl RequestId {
    /// The id of exchange `number`.
    pub fn new(number: u64) -> RequestId {
        let mut text = [0; LENGTH];
        text[..16].copy_from_slice(&*BOOT);
        text[16..24].copy_from_slice(&digits((number >> 32) as u32));
        text[24..].copy_from_slice(&digits(number as u32));
        RequestId(text)
    }

    /// As it is sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same as a text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Eight hexadecimal digits, all at once: each half byte gets a byte of its own, and those above nine are moved to the letters.
fn digits(number: u32) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let mut halves = u64::from(number);
    halves = (halves | halves << 16) & 0x0000_ffff_0000_ffff;
    halves = (halves | halves << 8) & 0x00ff_00ff_00ff_00ff;
    halves = (halves | halves << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = (halves + EACH * 6) >> 4 & EACH;
    (halves + EACH * u64::from(b'0') + letters * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_keep_their_form() {
        let ids: Vec<_> = [1, 2, 15, 16, 1 << 48, u64::MAX].map(RequestId::new).into();
        for (index, id) in ids.iter().enumerate() {
            assert!(id.as_str().starts_with("req_"), "{}", id.as_str());
            assert_eq!(id.as_str().len(), LENGTH);
            assert!(ids[..index].iter().all(|other| other != id));
        }
        assert!(ids[2].as_str().ends_with("000000000000000f"));
        assert!(ids[5].as_str().ends_with("ffffffffffffffff"));
    }

    #[test]
    fn digits_are_those_of_the_standard_formatter() {
        for number in
            (0..64).map(|bit| 0x9e37_79b9_7f4a_7c15_u64.rotate_left(bit)).chain([0, 0x0123_4567_89ab_cdef])
        {
            assert_eq!(&RequestId::new(number).as_str()[16..], format!("{number:016x}"));
        }
    }
}
