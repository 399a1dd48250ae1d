//! The usage that an answer reports, read from its last bytes: what its client was told that it used.

use memchr::memmem;

/// Tokens that an answer says it used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
}

/// Bytes at the end of an answer that are kept: a report with every detail that the APIs have, and what may come behind it.
const KEPT: usize = 2048;

/// The end of the answer that is being read.
#[derive(Default)]
pub struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    /// Forgets the answer before.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Takes the next bytes of the body.
    pub fn feed(&mut self, data: &[u8]) {
        let data = &data[data.len().saturating_sub(KEPT)..];
        if self.bytes.len() + data.len() > 2 * KEPT {
            let kept = self.bytes.len().min(KEPT);
            self.bytes.drain(..self.bytes.len() - kept);
        }
        self.bytes.extend_from_slice(data);
    }

    /// The last report in it, with the names of the chat and of the Responses API; `None` without one.
    pub fn usage(&self) -> Option<Usage> {
        let at = memmem::rfind(&self.bytes, b"\"usage\"")?;
        let report = &self.bytes[at..];
        let either = |one: &[u8], other: &[u8]| figure(report, one).or_else(|| figure(report, other));
        Some(Usage {
            input: either(b"\"prompt_tokens\"", b"\"input_tokens\"")?,
            output: either(b"\"completion_tokens\"", b"\"output_tokens\"").unwrap_or(0),
        })
    }
}

/// The whole number that is the member's value.
fn figure(text: &[u8], quoted_name: &[u8]) -> Option<u64> {
    let rest = &text[memmem::find(text, quoted_name)? + quoted_name.len()..];
    let rest = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_report_counts_however_the_bytes_come() {
        fn check(text: &str, wanted: Option<(u64, u64)>) {
            let wanted = wanted.map(|(input, output)| Usage { input, output });
            for size in [1, 3, 100, text.len().max(1)] {
                let mut tail = Tail::default();
                tail.feed(b"\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":9}");
                tail.clear();
                text.as_bytes().chunks(size).for_each(|piece| tail.feed(piece));
                assert_eq!(tail.usage(), wanted, "{text:.200} in pieces of {size}");
            }
        }
        check(r#"{"usage":{"prompt_tokens":12,"completion_tokens":8,"total_tokens":20}}"#, Some((12, 8)));
        check(r#"{"usage" : { "completion_tokens" : 8 , "prompt_tokens" : 12 } }"#, Some((12, 8)));
        check(r#"{"usage":{"prompt_tokens":5,"total_tokens":5}}"#, Some((5, 0)));
        check(r#"{"usage":{"input_tokens":3,"output_tokens":4}}"#, Some((3, 4)));
        check(
            "data: {\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
            Some((1, 2)),
        );
        check("data: {\"usage\":null}\n\ndata: [DONE]\n\n", None);
        check("", None);
        check(r#"{"usage":{"prompt_tokens":"many"}}"#, None);
        let long = "x".repeat(50_000);
        let report = r#""usage":{"prompt_tokens":7,"completion_tokens":6}"#;
        check(&format!("{{\"text\":\"{long}\",{report}}}"), Some((7, 6)));
        check(&format!("{{{report},\"text\":\"{long}\"}}"), None);
    }
}
