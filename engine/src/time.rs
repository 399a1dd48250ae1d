//! The two clocks as plain numbers, and durations as Go reads and prints them.
//!
//! The engine never reads a clock. [`Now`] is read once a turn by whoever calls, and passed down: windows and
//! deadlines go by [`Monotonic`], calendar periods by the wall time.
//!
//! Go's duration syntax is interface (the page prints `1m0s`), so it is followed to the letter, its float rounding
//! of fractions and its overflow rules included. `std::time::Duration` was rejected: two words instead of one, and
//! its arithmetic panics.

use std::fmt;

/// Nanoseconds on the monotonic clock since the process' own start.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// The moment that much later, at most the end of time (584 years).
    #[must_use]
    pub fn plus(self, span: Span) -> Monotonic {
        Monotonic(self.0.saturating_add(span.0))
    }

    /// How much later than `earlier` this is; zero when it is not later.
    #[must_use]
    pub fn since(self, earlier: Monotonic) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// A length of time, in nanoseconds.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub struct Span(pub u64);

/// Both clocks, read once and passed down.
#[derive(Copy, Clone, Debug)]
pub struct Now {
    /// The monotonic clock.
    pub monotonic: Monotonic,
    /// The wall clock.
    pub wall: jiff::Timestamp,
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

impl Span {
    /// No time.
    pub const ZERO: Span = Span(0);

    /// That many seconds, at most 584 years.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Span {
        Span(seconds.saturating_mul(SECOND))
    }

    /// That many milliseconds, at most 584 years.
    #[must_use]
    pub const fn from_millis(milliseconds: u64) -> Span {
        Span(milliseconds.saturating_mul(MILLISECOND))
    }

    /// Whole milliseconds, rounded up.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(MILLISECOND)
    }

    /// Whole seconds, rounded up.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(SECOND)
    }

    /// As Go's `Duration.String` prints it: `1m0s`, `1m30s`, `500ms`, `1h0m0s`, `0s`.
    #[must_use]
    pub fn go_string(&self) -> GoDuration {
        GoDuration(*self)
    }

    /// Reads what Go's `time.ParseDuration` reads: `30s`, `1m30s`, `1.5h`, `300ms`, `2h45m`, `0`.
    ///
    /// # Errors
    /// As Go's, with Go's text; a bare number such as `60` misses its unit. A duration below zero, which Go accepts,
    /// is [`DurationError::Negative`], for nothing here is ever negative.
    pub fn parse_go(text: &str) -> Result<Span, DurationError> {
        let invalid = || DurationError::Invalid { text: text.to_owned() };
        let negative = text.starts_with('-');
        let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
        if rest == "0" {
            return Ok(Span::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total = 0u64;
        while !rest.is_empty() {
            let (whole, after_whole) = leading_integer(rest).ok_or_else(invalid)?;
            let (fraction, scale, after_number) = match after_whole.strip_prefix('.') {
                Some(digits) => leading_fraction(digits),
                None => (0, 1.0, after_whole),
            };
            let digits = rest.len() - after_number.len();
            if digits == 0 || &rest[..digits] == "." {
                return Err(invalid());
            }
            let unit_end =
                after_number.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after_number.len());
            let (name, after_unit) = after_number.split_at(unit_end);
            if name.is_empty() {
                return Err(DurationError::MissingUnit { text: text.to_owned() });
            }
            let unit = unit_named(name)
                .ok_or_else(|| DurationError::UnknownUnit { unit: name.to_owned(), text: text.to_owned() })?;
            total = add_part(total, whole, fraction, scale, unit).ok_or_else(invalid)?;
            rest = after_unit;
        }
        match (negative, total) {
            (_, 0) => Ok(Span::ZERO),
            (true, _) => Err(DurationError::Negative { text: text.to_owned() }),
            (false, _) if total > i64::MAX as u64 => Err(invalid()),
            (false, _) => Ok(Span(total)),
        }
    }
}

/// Go's overflow threshold: 1 << 63, allowed only for a negative total.
const GO_LIMIT: u64 = 1 << 63;

/// `total + (whole + fraction/scale) x unit`, with Go's rounding; `None` where Go says it overflows.
fn add_part(total: u64, whole: u64, fraction: u64, scale: f64, unit: u64) -> Option<u64> {
    if whole > GO_LIMIT / unit {
        return None;
    }
    let mut part = whole * unit;
    if fraction > 0 {
        // Go computes exactly this in float64, and truncates.
        part += (fraction as f64 * (unit as f64 / scale)) as u64;
    }
    total.checked_add(part).filter(|sum| *sum <= GO_LIMIT)
}

/// The decimal digits in front as a number (0 when there are none), and the rest; `None` on overflow.
fn leading_integer(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut value = 0u64;
    for byte in text[..end].bytes() {
        if value > GO_LIMIT / 10 {
            return None;
        }
        value = value * 10 + u64::from(byte - b'0');
        if value > GO_LIMIT {
            return None;
        }
    }
    Some((value, &text[end..]))
}

/// The decimal digits after a point as `value / scale`, and the rest. Digits that no longer fit are read and dropped.
fn leading_fraction(text: &str) -> (u64, f64, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (mut value, mut scale) = (0u64, 1.0f64);
    for byte in text[..end].bytes() {
        if value > (GO_LIMIT - 1) / 10 {
            break;
        }
        let next = value * 10 + u64::from(byte - b'0');
        if next > GO_LIMIT {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value, scale, &text[end..])
}

fn unit_named(name: &str) -> Option<u64> {
    match name {
        "ns" => Some(1),
        // The micro sign and the Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(MICROSECOND),
        "ms" => Some(MILLISECOND),
        "s" => Some(SECOND),
        "m" => Some(MINUTE),
        "h" => Some(HOUR),
        _ => None,
    }
}

/// A [`Span`] that displays as Go prints a duration.
#[derive(Copy, Clone, Debug)]
pub struct GoDuration(Span);

impl fmt::Display for GoDuration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.0;
        if nanoseconds == 0 {
            return out.write_str("0s");
        }
        if nanoseconds < SECOND {
            let (unit, name) = match nanoseconds {
                ..MICROSECOND => (1, "ns"),
                MICROSECOND..MILLISECOND => (MICROSECOND, "\u{b5}s"),
                _ => (MILLISECOND, "ms"),
            };
            write_fraction(out, nanoseconds, unit)?;
            return out.write_str(name);
        }
        let minutes = nanoseconds / MINUTE;
        if minutes >= 60 {
            write!(out, "{}h", minutes / 60)?;
        }
        if minutes > 0 {
            write!(out, "{}m", minutes % 60)?;
        }
        write_fraction(out, nanoseconds % MINUTE, SECOND)?;
        out.write_str("s")
    }
}

/// `value / unit` in decimals, with no trailing zeros; `unit` is a power of ten.
fn write_fraction(out: &mut fmt::Formatter<'_>, value: u64, unit: u64) -> fmt::Result {
    write!(out, "{}", value / unit)?;
    let mut below = value % unit;
    if below == 0 {
        return Ok(());
    }
    let mut width = unit.ilog10() as usize;
    while below.is_multiple_of(10) {
        below /= 10;
        width -= 1;
    }
    write!(out, ".{below:0width$}")
}

/// Why a text is not a duration. Displays as Go's error does.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum DurationError {
    /// Not written as a duration, or beyond 292 years.
    Invalid {
        /// What was given.
        text: String,
    },
    /// A number without its unit.
    MissingUnit {
        /// What was given.
        text: String,
    },
    /// A unit that Go does not know, such as `d`.
    UnknownUnit {
        /// The unit.
        unit: String,
        /// What was given.
        text: String,
    },
    /// Below zero.
    Negative {
        /// What was given.
        text: String,
    },
}

impl fmt::Display for DurationError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DurationError::Invalid { text } => write!(out, "time: invalid duration {text:?}"),
            DurationError::MissingUnit { text } => write!(out, "time: missing unit in duration {text:?}"),
            DurationError::UnknownUnit { unit, text } => {
                write!(out, "time: unknown unit {unit:?} in duration {text:?}")
            }
            DurationError::Negative { text } => write!(out, "duration {text:?} is negative"),
        }
    }
}

impl std::error::Error for DurationError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("+0", 0),
            ("-0", 0),
            ("-0s", 0),
            ("5s", 5 * SECOND),
            ("30s", 30 * SECOND),
            ("+5s", 5 * SECOND),
            ("1478s", 1478 * SECOND),
            ("5.0s", 5 * SECOND),
            ("5.6s", 5 * SECOND + 600 * MILLISECOND),
            ("5.s", 5 * SECOND),
            (".5s", 500 * MILLISECOND),
            ("1.0s", SECOND),
            ("1.004s", SECOND + 4 * MILLISECOND),
            ("1.0040s", SECOND + 4 * MILLISECOND),
            ("100.00100s", 100 * SECOND + MILLISECOND),
            ("10ns", 10),
            ("11us", 11 * MICROSECOND),
            ("12\u{b5}s", 12 * MICROSECOND),
            ("12\u{3bc}s", 12 * MICROSECOND),
            ("13ms", 13 * MILLISECOND),
            ("3h30m", 3 * HOUR + 30 * MINUTE),
            ("10.5s4m", 4 * MINUTE + 10 * SECOND + 500 * MILLISECOND),
            ("1h2m3s4ms5us6ns", HOUR + 2 * MINUTE + 3 * SECOND + 4_005_006),
            ("39h9m14.425s", 39 * HOUR + 9 * MINUTE + 14 * SECOND + 425 * MILLISECOND),
            ("52763797000ns", 52_763_797_000),
            ("0.3333333333333333333h", 20 * MINUTE),
            ("9007199254740993ns", (1 << 53) + 1),
            ("9223372036854775807ns", i64::MAX as u64),
            ("9223372036854775.807us", i64::MAX as u64),
            ("9223372036s854ms775us807ns", i64::MAX as u64),
            ("0.100000000000000000000h", 6 * MINUTE),
            ("0.830103483285477580700h", 49 * MINUTE + 48 * SECOND + 372_539_827),
            ("1m30s", 90 * SECOND),
            ("1.5h", 90 * MINUTE),
        ] {
            assert_eq!(Span::parse_go(text), Ok(Span(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_with_its_words() {
        for (text, wanted) in [
            ("", "time: invalid duration \"\""),
            ("3", "time: missing unit in duration \"3\""),
            ("60", "time: missing unit in duration \"60\""),
            ("-", "time: invalid duration \"-\""),
            ("s", "time: invalid duration \"s\""),
            (".", "time: invalid duration \".\""),
            ("-.", "time: invalid duration \"-.\""),
            (".s", "time: invalid duration \".s\""),
            ("+.s", "time: invalid duration \"+.s\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("day", "time: invalid duration \"day\""),
            ("1.5.5s", "time: missing unit in duration \"1.5.5s\""),
            ("1s ", "time: unknown unit \"s \" in duration \"1s \""),
            ("9223372036854775810ns", "time: invalid duration \"9223372036854775810ns\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("9223372036854776us", "time: invalid duration \"9223372036854776us\""),
            ("3000000h", "time: invalid duration \"3000000h\""),
            ("9223372036s854ms775us808ns", "time: invalid duration \"9223372036s854ms775us808ns\""),
            ("-1m", "duration \"-1m\" is negative"),
            ("-9223372036854775808ns", "duration \"-9223372036854775808ns\" is negative"),
        ] {
            assert_eq!(Span::parse_go(text).unwrap_err().to_string(), wanted, "{text}");
        }
    }

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        for (span, wanted) in [
            (Span(0), "0s"),
            (Span(1), "1ns"),
            (Span(1_100), "1.1\u{b5}s"),
            (Span(2_200_000), "2.2ms"),
            (Span(3_300_000_000), "3.3s"),
            (Span(4 * MINUTE + 5 * SECOND), "4m5s"),
            (Span(4 * MINUTE + 5 * SECOND + MILLISECOND), "4m5.001s"),
            (Span(5 * HOUR + 6 * MINUTE + 7 * SECOND + MILLISECOND), "5h6m7.001s"),
            (Span(8 * MINUTE + 1), "8m0.000000001s"),
            (Span(i64::MAX as u64), "2562047h47m16.854775807s"),
            (Span::from_secs(60), "1m0s"),
            (Span::from_secs(3600), "1h0m0s"),
            (Span::from_millis(500), "500ms"),
        ] {
            assert_eq!(span.go_string().to_string(), wanted);
            assert_eq!(Span::parse_go(wanted), Ok(span), "and read back");
        }
    }

    #[test]
    fn clocks_saturate_and_waits_round_up() {
        assert_eq!(Monotonic(u64::MAX).plus(Span(1)), Monotonic(u64::MAX));
        assert_eq!(Monotonic(3).since(Monotonic(5)), Span::ZERO);
        assert_eq!(Monotonic(5).since(Monotonic(3)), Span(2));
        assert_eq!((Span(1).as_secs_ceil(), Span(1).as_millis_ceil()), (1, 1));
        assert_eq!((Span::from_secs(2).as_secs_ceil(), Span::from_millis(7).as_millis_ceil()), (2, 7));
        assert_eq!((Span::ZERO.as_secs_ceil(), Span::from_secs(u64::MAX)), (0, Span(u64::MAX)));
    }
}
