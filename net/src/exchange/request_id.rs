//! The `x-request-id` of an exchange.

use std::sync::LazyLock;

/// `req_` and 28 hexadecimal digits: 12 of the process' start time, 16 of the exchange's number. Unique over the
/// cores of a process and, but for a clock set back, over its restarts. Not a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId([u8; LENGTH]);

const LENGTH: usize = 32;

static BOOT: LazyLock<u64> = LazyLock::new(|| {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
});

impl RequestId {
    /// The id of exchange `number`.
    pub fn new(number: u64) -> RequestId {
        let mut text = *b"req_0000000000000000000000000000";
        write_digits(&mut text[4..16], *BOOT);
        write_digits(&mut text[16..], number);
        RequestId(text)
    }

    /// As it is sent.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

fn write_digits(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[number as usize & 15];
        number >>= 4;
    }
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
}
