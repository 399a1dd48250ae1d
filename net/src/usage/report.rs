//! What a response has reported so far: the last value of each field, never a sum of reports.
//!
//! Zero is a value. A negative number says nothing and changes nothing; a fraction is rounded up and can
//! only raise a field, because no backend means one; a number beyond u64 saturates.

use super::watch::{
    CACHE_CREATION, CACHE_READ, CACHED, CHOICES, INPUT, NUMBERS, OUTPUT, TEXT, TIMED_CACHE, TIMED_OUTPUT,
    TIMED_PROMPT, TOTAL, USAGE, VECTORS,
};
use crate::endpoint::Dialect;
use crate::json::capture::Sink;
use engine::{Tokens, Usage};

/// Fields as reported, and what is needed to estimate without a report.
#[derive(Clone, Default, Debug)]
pub struct Report {
    numbers: [Option<u64>; NUMBERS],
    /// Bytes of generated text seen.
    pub(super) text_bytes: u64,
    /// The response holds vectors: embeddings have no generated text.
    pub(super) vectors: bool,
    /// This event: `choices` is `[]`.
    pub(super) choices_empty: bool,
    /// This event: `usage` is an object.
    pub(super) usage_object: bool,
}

impl Report {
    fn get(&self, slot: u8) -> Option<u64> {
        self.numbers[usize::from(slot)]
    }

    /// The usage reported, in the engine's terms; None when nothing was.
    pub fn usage(&self, dialect: Dialect) -> Option<Usage> {
        let timed = |slot| self.get(slot).unwrap_or(0);
        let usage = match (self.get(INPUT), self.get(OUTPUT), self.get(TOTAL)) {
            (None, None, None) => {
                self.get(TIMED_PROMPT).or(self.get(TIMED_OUTPUT))?;
                let cached = timed(TIMED_CACHE);
                return Some(Usage {
                    input: Tokens(timed(TIMED_PROMPT).saturating_add(cached)),
                    cached_input: Tokens(cached),
                    output: Tokens(timed(TIMED_OUTPUT)),
                });
            }
            (None, None, Some(total)) => (total, 0),
            (None, Some(output), total) => (total.unwrap_or(0).saturating_sub(output), output),
            (Some(input), None, total) => (input, total.unwrap_or(0).saturating_sub(input)),
            (Some(input), Some(output), _) => (input, output),
        };
        let (mut input, output) = usage;
        let mut cached = self.get(CACHED).unwrap_or(0);
        if dialect == Dialect::Anthropic {
            let read = self.get(CACHE_READ).unwrap_or(0);
            cached = cached.max(read);
            input = input.saturating_add(read).saturating_add(self.get(CACHE_CREATION).unwrap_or(0));
        }
        Some(Usage { input: Tokens(input), cached_input: Tokens(cached.min(input)), output: Tokens(output) })
    }

    /// Forget what belongs to one event alone.
    pub(super) fn next_event(&mut self) {
        self.choices_empty = false;
        self.usage_object = false;
    }

    /// Whether this event is the one that OpenAI sends for `include_usage`.
    pub(super) fn is_closing_event(&self) -> bool {
        self.choices_empty && self.usage_object
    }
}

impl Sink for Report {
    fn number(&mut self, slot: u8, text: &[u8]) {
        if slot == VECTORS {
            self.vectors = true;
        }
        let Some(field) = self.numbers.get_mut(usize::from(slot)) else { return };
        if text.iter().all(u8::is_ascii_digit) {
            *field = Some(
                text.iter()
                    .fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))),
            );
            return;
        }
        let value = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        if let Some(value) = value.filter(|value| *value >= 0.0) {
            *field = (*field).max(Some(value.ceil() as u64)); // `as` saturates
        }
    }

    fn text(&mut self, slot: u8, bytes: u64) {
        match slot {
            TEXT => self.text_bytes = self.text_bytes.saturating_add(bytes),
            VECTORS => self.vectors = true,
            _ => {}
        }
    }

    fn object(&mut self, slot: u8) {
        match slot {
            USAGE => self.usage_object = true,
            VECTORS => self.vectors = true,
            _ => {}
        }
    }

    fn empty_array(&mut self, slot: u8) {
        if slot == CHOICES {
            self.choices_empty = true;
        }
    }
}
