//! Counting the events of a `text/event-stream` as its bytes come.
//!
//! An event counts when its blank line has come and it had a data line, as the HTML standard says. The `[DONE]` that ends an
//! OpenAI stream is a mark, not an event: counting it would put a gap of zero behind each stream.

const DONE: &[u8] = b"[DONE]";

/// The counter of one stream. Any split of the bytes gives the same counts.
#[derive(Debug)]
pub struct EventCounter {
    /// Bytes of the line so far, at most as many as are looked at.
    line: [u8; 16],
    length: usize,
    has_data: bool,
    is_mark: bool,
    /// The line before ended with a carriage return; a line feed now belongs to it.
    after_return: bool,
}

impl Default for EventCounter {
    fn default() -> Self {
        EventCounter::new()
    }
}

impl EventCounter {
    /// At the start of a stream.
    pub fn new() -> EventCounter {
        EventCounter { line: [0; 16], length: 0, has_data: false, is_mark: false, after_return: false }
    }

    /// Takes the next bytes; says how many events they complete.
    pub fn feed(&mut self, mut bytes: &[u8]) -> u64 {
        let mut events = 0;
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                self.collect(bytes);
                break;
            };
            self.collect(&bytes[..end]);
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            events += u64::from(self.end_line());
        }
        events
    }

    fn collect(&mut self, part: &[u8]) {
        let kept = self.length.min(self.line.len());
        let fits = part.len().min(self.line.len() - kept);
        self.line[kept..kept + fits].copy_from_slice(&part[..fits]);
        self.length = self.length.saturating_add(part.len());
    }

    /// Whether the line that just ended completed an event.
    fn end_line(&mut self) -> bool {
        let line = &self.line[..self.length.min(self.line.len())];
        let whole = self.length;
        self.length = 0;
        if whole == 0 {
            let counts = self.has_data && !self.is_mark;
            self.has_data = false;
            self.is_mark = false;
            return counts;
        }
        let is_data = line.starts_with(b"data") && (whole == 4 || line.get(4) == Some(&b':'));
        if is_data {
            let value = line.get(5..).unwrap_or_default();
            let value = value.strip_prefix(b" ").unwrap_or(value);
            self.is_mark = !self.has_data && whole <= line.len() && value == DONE;
            self.has_data = true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_at_any_split() {
        fn check(text: &str, events: u64) {
            for size in 1..=text.len() {
                let mut counter = EventCounter::new();
                let counted: u64 = text.as_bytes().chunks(size).map(|part| counter.feed(part)).sum();
                assert_eq!(counted, events, "{text:?} in pieces of {size}");
            }
        }
        check("data: 1\n\ndata: 2\n\n", 2);
        check("data:1\r\n\r\nevent: x\r\ndata: a\r\ndata: b\r\n\r\n", 2);
        check("data\r\rdata: \r\r", 2);
        check(": comment\n\n\n\nevent: only-a-name\n\ndataset: 1\n\n", 0);
        check("data: 1\n\ndata: [DONE]\n\n", 1);
        check("data: [DONE]x\n\ndata: [DONE]\ndata: more\n\n", 2);
        check("data: never ended\n", 0);
        check("data: {\"a long line that is cut\":\"0123456789\"}\n\n", 1);
    }
}
