//! Numbers by their digits. No float is ever made of a number in the config: 0.1 has no exact one, and an amount
//! of 9007199254740993 would lose its last digit.

use std::fmt;

/// Why a text is not the number wanted.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum NumberError {
    /// No number at all.
    NotNumber,
    /// `.inf` or `.nan`.
    NotFinite,
    /// Below zero.
    Negative,
    /// Has a fraction where a whole number is wanted.
    Fraction,
    /// Too large for 128 bits.
    Overflow,
}

impl fmt::Display for NumberError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            NumberError::NotNumber => "must be a number",
            NumberError::NotFinite => "must be a finite number",
            NumberError::Negative => "must not be negative",
            NumberError::Fraction => "must be a whole number",
            NumberError::Overflow => "is out of range",
        })
    }
}

/// The parts of a decimal number.
struct Parts<'t> {
    negative: bool,
    whole: &'t str,
    fraction: &'t str,
    exponent: i64,
}

/// Splits `[+-]digits[.digits][e[+-]digits]`.
fn split(text: &str) -> Result<Parts<'_>, NumberError> {
    let (negative, body) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if matches!(
        body,
        ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" | "inf" | "nan" | "NaN" | "Infinity"
    ) {
        return Err(NumberError::NotFinite);
    }
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        None => (body, 0),
        Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return Err(NumberError::NotNumber);
    }
    Ok(Parts { negative, whole, fraction, exponent })
}

/// An exponent; one beyond any number here is cut to a million, which over- or underflows all the same.
fn read_exponent(text: &str) -> Result<i64, NumberError> {
    let (sign, digits) = match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NumberError::NotNumber);
    }
    Ok(sign * digits.parse::<i64>().unwrap_or(1_000_000).min(1_000_000))
}

/// Whether the text is a finite decimal number that is not below zero.
pub fn check_decimal(text: &str) -> Result<(), NumberError> {
    let parts = split(text)?;
    let zero = parts.whole.bytes().chain(parts.fraction.bytes()).all(|digit| digit == b'0');
    if parts.negative && !zero { Err(NumberError::Negative) } else { Ok(()) }
}

/// The whole number a decimal is; `1e6` and `200.0` are whole.
pub fn integer(text: &str) -> Result<u128, NumberError> {
    check_decimal(text)?;
    let parts = split(text)?;
    let digits: Vec<u8> =
        parts.whole.bytes().chain(parts.fraction.bytes()).map(|digit| digit - b'0').collect();
    // How many of the digits stand before the decimal point once the exponent has moved it.
    let point = parts.whole.len() as i64 + parts.exponent;
    let mut value: u128 = 0;
    for (index, digit) in digits.iter().enumerate() {
        if (index as i64) < point {
            value = value
                .checked_mul(10)
                .and_then(|value| value.checked_add(u128::from(*digit)))
                .ok_or(NumberError::Overflow)?;
        } else if *digit != 0 {
            return Err(NumberError::Fraction);
        }
    }
    if value == 0 {
        return Ok(0);
    }
    for _ in digits.len() as i64..point {
        value = value.checked_mul(10).ok_or(NumberError::Overflow)?;
    }
    Ok(value)
}

/// Bytes: a whole number, or one with `B`, `KiB`, `MiB` or `GiB` behind it.
pub fn size(text: &str) -> Option<Result<u64, NumberError>> {
    let split = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    let value = match integer(digits.trim_end()) {
        Err(NumberError::NotNumber) => return None,
        other => other,
    };
    Some(value.and_then(|value| {
        let bytes = value.checked_mul(1 << shift).ok_or(NumberError::Overflow)?;
        u64::try_from(bytes).map_err(|_| NumberError::Overflow)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_by_their_digits() {
        use NumberError::{Fraction, Negative, NotFinite, NotNumber, Overflow};
        for (text, want) in [
            ("0", Ok(0)),
            ("-0", Ok(0)),
            ("007", Ok(7)),
            ("+5", Ok(5)),
            ("200.0", Ok(200)),
            ("1e6", Ok(1_000_000)),
            ("1.5e1", Ok(15)),
            ("1500e-2", Ok(15)),
            ("9007199254740993", Ok(9_007_199_254_740_993)),
            ("0e999999999999999999999", Ok(0)),
            ("1.5", Err(Fraction)),
            ("1e-1", Err(Fraction)),
            ("-1", Err(Negative)),
            (".inf", Err(NotFinite)),
            ("-.inf", Err(NotFinite)),
            (".nan", Err(NotFinite)),
            ("1e400", Err(Overflow)),
            ("1e99999999999999999999", Err(Overflow)),
            ("999999999999999999999999999999999999999999", Err(Overflow)),
            ("", Err(NotNumber)),
            (".", Err(NotNumber)),
            ("1_000", Err(NotNumber)),
            ("0x10", Err(NotNumber)),
            ("1e", Err(NotNumber)),
            ("ten", Err(NotNumber)),
            ("1 000", Err(NotNumber)),
        ] {
            assert_eq!(integer(text), want, "{text}");
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        for (text, want) in [
            ("64KiB", Some(Ok(65536))),
            ("1MiB", Some(Ok(1 << 20))),
            ("1 GiB", Some(Ok(1 << 30))),
            ("77", Some(Ok(77))),
            ("77B", Some(Ok(77))),
            ("1.5KiB", Some(Err(NumberError::Fraction))),
            ("-1KiB", Some(Err(NumberError::Negative))),
            ("99999999999GiB", Some(Err(NumberError::Overflow))),
            ("64KB", None),
            ("KiB", None),
            ("", None),
        ] {
            assert_eq!(size(text), want, "{text}");
        }
    }
}
