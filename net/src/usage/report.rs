//! What a response has reported so far: the last value of each field, never a sum of reports.
//!
//! Zero is a value. A negative number says nothing and changes nothing; a fraction is rounded up and can
//! only raise a field, because no backend means one; a number beyond u64 saturates.

use super::watch::{
    AUDIO_INPUT, AUDIO_OUTPUT, CACHE_CREATION, CACHE_READ, CACHE_WRITE, CACHED, CHOICES, CREATED_HOUR,
    CREATED_MINUTES, ERROR, IMAGE, IMAGE_INPUT, IMAGE_OUTPUT, INPUT, NATIVE_INPUT, NATIVE_OUTPUT, NUMBERS,
    OUTPUT, OUTPUT_AT_START, REASONING, SECONDS, TEXT, TIMED_CACHE, TIMED_OUTPUT, TIMED_PROMPT, TOTAL, USAGE,
    VECTORS,
};
use crate::endpoint::Dialect;
use crate::json::capture::Sink;
use engine::{Tokens, Usage};

/// Fields as reported, and what is needed to estimate without a report.
#[derive(Clone, Default, Debug)]
pub struct Report {
    numbers: [u64; NUMBERS],
    /// Bit i: `numbers[i]` was reported.
    given: u32,
    /// Bytes of generated text seen.
    pub(super) text_bytes: u64,
    /// The response holds vectors or images: they are no generated text.
    pub(super) vectors: bool,
    /// Images seen.
    pub(super) images: u64,
    /// The response, or an event of it, says that something went wrong.
    pub(super) error: bool,
    /// This event: `choices` is `[]`.
    choices_empty: bool,
    /// This event: `usage` is an object.
    usage_object: bool,
    /// This element of a list: an image was seen. A stream has partial images too, each an event; those with a usage are
    /// whole.
    image: bool,
    /// The elements of this document are in a list, so its end is no image's.
    listed: bool,
}

const _: () = assert!(NUMBERS <= u32::BITS as usize);

impl Report {
    fn get(&self, slot: u8) -> Option<u64> {
        (self.given >> slot & 1 == 1).then(|| self.numbers[usize::from(slot)])
    }

    fn tokens(&self, slot: u8) -> Tokens {
        Tokens(self.get(slot).unwrap_or(0))
    }

    /// The usage reported, in the engine's terms; None when nothing was.
    pub fn usage(&self, dialect: Dialect) -> Option<Usage> {
        let or_zero = |slot| self.get(slot).unwrap_or(0);
        let output = self.get(OUTPUT).or(self.get(OUTPUT_AT_START));
        let (mut input, output, timed_cache) = match (self.get(INPUT), output, self.get(TOTAL)) {
            (None, None, None) => self.reported_otherwise()?,
            (None, None, Some(total)) => (total, 0, 0),
            (None, Some(output), total) => (total.unwrap_or(0).saturating_sub(output), output, 0),
            (Some(input), None, total) => (input, total.unwrap_or(0).saturating_sub(input), 0),
            (Some(input), Some(output), _) => (input, output, 0),
        };
        let (mut cached, mut written) = (or_zero(CACHED).max(timed_cache), or_zero(CACHE_WRITE));
        let hour = or_zero(CREATED_HOUR);
        if dialect == Dialect::Anthropic {
            let created = hour.saturating_add(or_zero(CREATED_MINUTES)).max(or_zero(CACHE_CREATION));
            let read = or_zero(CACHE_READ);
            input = input.saturating_add(read).saturating_add(created);
            (cached, written) = (cached.max(read), written.max(created));
        }
        Some(Usage {
            input: Tokens(input),
            cached_input: Tokens(cached.min(input)),
            cache_write: Tokens(written.min(input)),
            cache_write_hour: Tokens(hour.min(written)),
            audio_input: self.tokens(AUDIO_INPUT).min(Tokens(input)),
            image_input: self.tokens(IMAGE_INPUT).min(Tokens(input)),
            output: Tokens(output),
            reasoning: self.tokens(REASONING).min(Tokens(output)),
            audio_output: self.tokens(AUDIO_OUTPUT).min(Tokens(output)),
            image_output: self.tokens(IMAGE_OUTPUT).min(Tokens(output)),
            images: self.images,
            milliseconds: or_zero(SECONDS),
            characters: 0,
        })
    }

    /// Input, output, and what of the input was cached, from other members than `usage`. Audio that is reported in
    /// seconds has no tokens.
    fn reported_otherwise(&self) -> Option<(u64, u64, u64)> {
        let or_zero = |slot| self.get(slot).unwrap_or(0);
        let given = |slot| self.get(slot).is_some();
        if given(NATIVE_INPUT) || given(NATIVE_OUTPUT) {
            Some((or_zero(NATIVE_INPUT), or_zero(NATIVE_OUTPUT), or_zero(TIMED_CACHE)))
        } else if given(TIMED_PROMPT) || given(TIMED_OUTPUT) {
            let cached = or_zero(TIMED_CACHE);
            Some((or_zero(TIMED_PROMPT).saturating_add(cached), or_zero(TIMED_OUTPUT), cached))
        } else {
            given(SECONDS).then_some((0, 0, 0))
        }
    }

    /// Whether what was reported of the output is from before it was written, as a cut stream leaves it: a start, or a zero
    /// beside text that has passed.
    pub(super) fn output_is_open(&self) -> bool {
        let only_started = self.get(OUTPUT).is_none() && self.get(OUTPUT_AT_START).is_some();
        only_started || self.get(OUTPUT).or(self.get(NATIVE_OUTPUT)) == Some(0) && self.text_bytes > 0
    }

    /// An event, a line or the body is over.
    pub(super) fn document_ends(&mut self) {
        if !self.listed && self.image && self.usage_object {
            self.images = self.images.saturating_add(1);
        }
        (self.choices_empty, self.usage_object, self.image, self.listed) = (false, false, false, false);
    }

    /// Whether this event is the one that OpenAI sends for `include_usage`.
    pub(super) fn is_closing_event(&self) -> bool {
        self.choices_empty && self.usage_object
    }
}

// What is found is rare beside what is passed over, whose loop these would only crowd.
impl Sink for Report {
    #[inline(never)]
    fn number(&mut self, slot: u8, text: &[u8]) {
        if slot == VECTORS {
            self.vectors = true;
        }
        let Some(field) = self.numbers.get_mut(usize::from(slot)) else { return };
        let shift = if slot == SECONDS { 3 } else { 0 };
        let Some((value, exact)) = whole(text, shift) else { return };
        // What was not reported is zero.
        *field = if exact { value } else { value.max(*field) };
        self.given |= 1 << slot;
    }

    #[inline(never)]
    fn text(&mut self, slot: u8, bytes: u64) {
        match slot {
            TEXT => self.text_bytes = self.text_bytes.saturating_add(bytes),
            VECTORS => self.vectors = true,
            IMAGE => {
                self.vectors = true;
                if self.listed && !self.image {
                    self.images = self.images.saturating_add(1);
                }
                self.image = true;
            }
            ERROR => self.error = true,
            _ => {}
        }
    }

    #[inline(never)]
    fn object(&mut self, slot: u8) {
        match slot {
            USAGE => self.usage_object = true,
            VECTORS => {
                self.vectors = true;
                (self.listed, self.image) = (true, false);
            }
            ERROR => self.error = true,
            _ => {}
        }
    }

    #[inline(never)]
    fn empty_array(&mut self, slot: u8) {
        if slot == CHOICES {
            self.choices_empty = true;
        }
    }
}

/// A JSON number times 10^`shift`, rounded up, at most `u64::MAX`; and whether that was exact and unsigned. `None` when it
/// is below zero, or no number.
fn whole(text: &[u8], shift: i64) -> Option<(u64, bool)> {
    if shift == 0
        && let Some(value) = plain(text)
    {
        return Some((value, true));
    }
    let (negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let end = unsigned.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(unsigned.len());
    let exponent: i64 = match &unsigned[end..] {
        [] => 0,
        [_, exponent @ ..] => {
            let (sign, digits) = match exponent {
                [b'-', digits @ ..] => (-1, digits),
                [b'+', digits @ ..] | digits => (1, digits),
            };
            sign * digits
                .iter()
                .try_fold(0i64, |sum, byte| digit(*byte).map(|one| (sum * 10 + one as i64).min(1_000)))?
        }
    };
    let mantissa = &unsigned[..end];
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    // How many digits stand before the point once it is moved.
    let before = point as i64 + exponent + shift;
    let (mut value, mut exact, mut at) = (0u64, !negative, 0i64);
    for byte in mantissa.iter().enumerate().filter(|(place, _)| *place != point).map(|(_, byte)| *byte) {
        let one = digit(byte)?;
        if negative && one > 0 {
            return None;
        }
        if at < before {
            value = value.saturating_mul(10).saturating_add(one);
        } else if one > 0 && exact {
            exact = false;
        }
        at += 1;
    }
    let rounds_up = !exact && !negative;
    for _ in at..if value > 0 { before } else { at } {
        value = value.saturating_mul(10);
    }
    (at > 0).then_some((value.saturating_add(u64::from(rounds_up)), exact))
}

/// The number when it is digits alone, as almost all are, and few enough for none to be lost.
fn plain(text: &[u8]) -> Option<u64> {
    const DIGITS: usize = u64::MAX.ilog10() as usize;
    if text.is_empty() || text.len() > DIGITS {
        return None;
    }
    text.iter().try_fold(0, |value, byte| digit(*byte).map(|one| value * 10 + one))
}

fn digit(byte: u8) -> Option<u64> {
    byte.is_ascii_digit().then(|| u64::from(byte - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_by_their_digits() {
        const MAX: u64 = u64::MAX;
        for (text, shift, wanted) in [
            ("0", 0, Some((0, true))),
            ("7", 0, Some((7, true))),
            ("9999999999999999999", 0, Some((9_999_999_999_999_999_999, true))),
            ("10000000000000000000", 0, Some((10_000_000_000_000_000_000, true))),
            ("0000000000000000000000000042", 0, Some((42, true))),
            ("042", 0, Some((42, true))),
            ("4:", 0, None),
            ("/4", 0, None),
            ("18446744073709551615", 0, Some((MAX, true))),
            ("18446744073709551616", 0, Some((MAX, true))),
            ("9999999999999999999999999999999999999999", 0, Some((MAX, true))),
            ("-1", 0, None),
            ("-0.001", 0, None),
            ("-1e-400", 0, None),
            ("-0", 0, Some((0, false))),
            ("-0.0e5", 0, Some((0, false))),
            ("2.5", 0, Some((3, false))),
            ("2.0", 0, Some((2, true))),
            ("1e3", 0, Some((1000, true))),
            ("1E+3", 0, Some((1000, true))),
            ("1200e-2", 0, Some((12, true))),
            ("1250e-2", 0, Some((13, false))),
            ("1e-400", 0, Some((1, false))),
            ("0e999999999999999999999", 0, Some((0, true))),
            ("1e999999999999999999999", 0, Some((MAX, true))),
            ("0.00000000000000000000000001e26", 0, Some((1, true))),
            ("12.5", 3, Some((12_500, true))),
            ("1.1", 3, Some((1_100, true))),
            ("0.0001", 3, Some((1, false))),
            ("9", 3, Some((9_000, true))),
            ("", 0, None),
            ("-", 0, None),
            ("e", 0, None),
            (".", 0, None),
            ("1e5e5", 0, None),
            ("1-1", 0, None),
            ("1.2.3", 0, None),
        ] {
            assert_eq!(whole(text.as_bytes(), shift), wanted, "{text} shifted by {shift}");
        }
    }
}
