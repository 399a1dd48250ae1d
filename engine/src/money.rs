//! Money as integers: pico-USD, and prices in pico-USD a token.
//!
//! Why pico: the cheapest listed prices are a few nano-USD a token, so a pico-USD leaves three digits below them, and
//! `u128` holds 3.4e26 USD, so sums never get near the end. Floats were rejected: a budget of 0.001 USD at
//! 0.15 USD per million tokens must admit exactly 6667 requests of one token (SPEC section 4.8), and no binary
//! fraction keeps that promise.
//!
//! Invariants: parsing is exact or an error (prices round up, and say so); arithmetic saturates, so an absurd
//! figure can only make a cap stricter. Units: 1 = 1e-12 USD.

use std::fmt;

use crate::units::Tokens;

/// Decimal digits of a USD below the point.
const PICO_DIGITS: u32 = 12;

/// Integer pico-USD (1e-12 USD). All money in the program.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub struct PicoUsd(pub u128);

impl PicoUsd {
    /// No money.
    pub const ZERO: PicoUsd = PicoUsd(0);

    /// The largest sum that text may name: 1e18 USD. It is far above any budget and far below `u128::MAX`, so that
    /// "observed + held + estimate" of accepted figures is never cut short by saturation.
    pub const LARGEST: PicoUsd = PicoUsd(10u128.pow(30));

    /// Reads a decimal number of USD, exactly: `0.15`, `1e-3`, `5000`.
    ///
    /// # Errors
    /// Not a decimal number, negative, non-finite, finer than one pico-USD, or above [`PicoUsd::LARGEST`].
    pub fn parse_usd(text: &str) -> Result<PicoUsd, MoneyError> {
        let decimal = Decimal::parse(text)?;
        let (pico, exact) = decimal.scaled_down_to_integer(PICO_DIGITS)?;
        if !exact {
            return Err(MoneyError::TooFine);
        }
        if pico > Self::LARGEST.0 {
            return Err(MoneyError::TooLarge);
        }
        Ok(PicoUsd(pico))
    }

    /// Reads a price in USD, as [`PicoUsd::parse_usd`] does, but what is finer than one pico-USD is rounded **up**: a governor
    /// may charge a trace too much, never too little.
    ///
    /// # Errors
    /// As [`PicoUsd::parse_usd`], but for fineness.
    pub fn parse_price(text: &str) -> Result<PicoUsd, MoneyError> {
        let (below, exact) = Decimal::parse(text)?.scaled_down_to_integer(PICO_DIGITS)?;
        let pico = below.checked_add(u128::from(!exact)).ok_or(MoneyError::TooLarge)?;
        if pico > Self::LARGEST.0 { Err(MoneyError::TooLarge) } else { Ok(PicoUsd(pico)) }
    }

    /// The sum, at most `u128::MAX`.
    #[must_use]
    pub fn saturating_add(self, other: PicoUsd) -> PicoUsd {
        PicoUsd(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub fn saturating_sub(self, other: PicoUsd) -> PicoUsd {
        PicoUsd(self.0.saturating_sub(other.0))
    }
}

/// Plain decimal USD without exponent or trailing zeros: `0.0000126`, `200`, `0`.
impl fmt::Display for PicoUsd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 10u128.pow(PICO_DIGITS);
        let (whole, mut below) = (self.0 / one, self.0 % one);
        if below == 0 {
            return write!(out, "{whole}");
        }
        let mut width = PICO_DIGITS as usize;
        while below % 10 == 0 {
            below /= 10;
            width -= 1;
        }
        write!(out, "{whole}.{below:0width$}")
    }
}

/// Pico-USD a token.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub struct TokenPrice(pub u64);

impl TokenPrice {
    /// Reads a price given in USD per million tokens, as in the `prices` block of the config.
    ///
    /// A price finer than one pico-USD a token is rounded **up** to the next pico-USD: a governor may charge a trace
    /// too much, never too little.
    ///
    /// # Errors
    /// As [`PicoUsd::parse_usd`], but for fineness; above `u64::MAX` pico-USD a token (18 million USD) is too large.
    pub fn parse_usd_per_million(text: &str) -> Result<TokenPrice, MoneyError> {
        Self::rounded_up(text, PICO_DIGITS - 6)
    }

    /// Reads a price given in USD per token, as in LiteLLM's price map (`1.5e-07`). Rounds as
    /// [`TokenPrice::parse_usd_per_million`] does.
    ///
    /// # Errors
    /// As [`TokenPrice::parse_usd_per_million`].
    pub fn parse_usd_per_token(text: &str) -> Result<TokenPrice, MoneyError> {
        Self::rounded_up(text, PICO_DIGITS)
    }

    fn rounded_up(text: &str, digits: u32) -> Result<TokenPrice, MoneyError> {
        let (below, exact) = Decimal::parse(text)?.scaled_down_to_integer(digits)?;
        let pico = below.checked_add(u128::from(!exact)).ok_or(MoneyError::TooLarge)?;
        u64::try_from(pico).map(TokenPrice).map_err(|_| MoneyError::TooLarge)
    }

    /// What that many tokens cost; exact, for the product of two `u64` fits `u128`.
    #[must_use]
    pub fn times(self, tokens: Tokens) -> PicoUsd {
        PicoUsd(u128::from(self.0) * u128::from(tokens.0))
    }
}

/// Why a text is not a sum of money.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum MoneyError {
    /// Not written as a decimal number.
    NotANumber,
    /// Infinity or "not a number".
    NotFinite,
    /// Below zero.
    Negative,
    /// Has digits below one pico-USD.
    TooFine,
    /// Beyond what the program counts.
    TooLarge,
}

impl fmt::Display for MoneyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            MoneyError::NotANumber => "is not a decimal number",
            MoneyError::NotFinite => "is not a finite number",
            MoneyError::Negative => "is negative",
            MoneyError::TooFine => "is finer than one pico-USD (1e-12 USD)",
            MoneyError::TooLarge => "is too large to count",
        })
    }
}

impl std::error::Error for MoneyError {}

/// A non-negative decimal number in parts: `digits` x 10^`exponent`.
struct Decimal<'a> {
    /// Digits before the point, then after it; ASCII digits only.
    whole: &'a [u8],
    below: &'a [u8],
    /// The exponent as written, clamped far outside of what can matter.
    exponent: i64,
}

impl<'a> Decimal<'a> {
    fn parse(text: &'a str) -> Result<Decimal<'a>, MoneyError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let named = unsigned.strip_prefix('.').unwrap_or(unsigned);
        if ["inf", "infinity", "nan"].iter().any(|name| named.eq_ignore_ascii_case(name)) {
            return Err(MoneyError::NotFinite);
        }
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, below) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.len() + below.len() == 0 || !all_digits(whole) || !all_digits(below) {
            return Err(MoneyError::NotANumber);
        }
        let decimal = Decimal { whole: whole.as_bytes(), below: below.as_bytes(), exponent };
        if text.starts_with('-') && decimal.digits().any(|digit| digit != 0) {
            return Err(MoneyError::Negative);
        }
        Ok(decimal)
    }

    fn digits(&self) -> impl Iterator<Item = u8> + 'a {
        self.whole.iter().chain(self.below).map(|byte| byte - b'0')
    }

    /// The number times 10^`shift`, rounded down, and whether that was exact.
    fn scaled_down_to_integer(&self, shift: u32) -> Result<(u128, bool), MoneyError> {
        // Position of the new point, counted in digits from the left.
        let point = self.whole.len() as i64 + self.exponent + i64::from(shift);
        let mut value = 0u128;
        let mut exact = true;
        let mut position = 0i64;
        for digit in self.digits() {
            if position < point {
                value = value
                    .checked_mul(10)
                    .and_then(|tens| tens.checked_add(u128::from(digit)))
                    .ok_or(MoneyError::TooLarge)?;
            } else if digit != 0 {
                exact = false;
            }
            position += 1;
        }
        if value != 0 {
            while position < point {
                value = value.checked_mul(10).ok_or(MoneyError::TooLarge)?;
                position += 1;
            }
        }
        Ok((value, exact))
    }
}

fn parse_exponent(text: &str) -> Result<i64, MoneyError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(MoneyError::NotANumber);
    }
    // Beyond a million the answer no longer depends on the exponent; texts are shorter than that.
    let size = digits.bytes().fold(0i64, |sum, b| (sum * 10 + i64::from(b - b'0')).min(1 << 40));
    Ok(if text.starts_with('-') { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usd_is_read_exactly_or_refused() {
        let check = |text: &str, wanted: Result<u128, MoneyError>| {
            assert_eq!(PicoUsd::parse_usd(text).map(|money| money.0), wanted, "{text}");
        };
        for (text, pico) in [
            ("0", 0),
            ("0.15", 150_000_000_000),
            ("1e-3", 1_000_000_000),
            ("1E-12", 1),
            ("5000", 5_000_000_000_000_000),
            (".5", 500_000_000_000),
            ("5.", 5_000_000_000_000),
            ("+1.50", 1_500_000_000_000),
            ("1e3", 1_000_000_000_000_000),
            ("0.0000000000010000000000000000000000000000000000000000000000000000", 1),
            ("0e999999999999999999999", 0),
            ("0e-99999999999999999999", 0),
            ("-0", 0),
            ("10000000000000e-13", 1_000_000_000_000),
            ("1e18", 10u128.pow(30)),
        ] {
            check(text, Ok(pico));
        }
        for (text, error) in [
            ("", MoneyError::NotANumber),
            (".", MoneyError::NotANumber),
            ("e3", MoneyError::NotANumber),
            ("1e", MoneyError::NotANumber),
            ("1e+-3", MoneyError::NotANumber),
            ("1_000", MoneyError::NotANumber),
            ("0x10", MoneyError::NotANumber),
            ("1 ", MoneyError::NotANumber),
            ("++1", MoneyError::NotANumber),
            ("1.2.3", MoneyError::NotANumber),
            ("ten", MoneyError::NotANumber),
            (".inf", MoneyError::NotFinite),
            ("-.Inf", MoneyError::NotFinite),
            (".nan", MoneyError::NotFinite),
            ("infinity", MoneyError::NotFinite),
            ("-1", MoneyError::Negative),
            ("-0.0000000000000001", MoneyError::Negative),
            ("1e-13", MoneyError::TooFine),
            ("1e-99999999999999999999", MoneyError::TooFine),
            ("0.0000000000001", MoneyError::TooFine),
            ("1.0000000000000000000000001", MoneyError::TooFine),
            ("1e99999999999999999999", MoneyError::TooLarge),
            ("1000000000000000000.1", MoneyError::TooLarge),
            ("99999999999999999999999999999999999999999999999999", MoneyError::TooLarge),
        ] {
            check(text, Err(error));
        }
    }

    #[test]
    fn usd_is_shown_as_a_plain_decimal() {
        for text in ["0", "0.0000126", "200", "0.000000000001", "1.5", "10", "0.1", "123456.000001"] {
            assert_eq!(PicoUsd::parse_usd(text).unwrap().to_string(), text);
        }
        assert_eq!(PicoUsd(u128::MAX).to_string(), "340282366920938463463374607.431768211455");
    }

    #[test]
    fn prices_round_up_and_never_down() {
        let million = |text: &str| TokenPrice::parse_usd_per_million(text).map(|price| price.0);
        let token = |text: &str| TokenPrice::parse_usd_per_token(text).map(|price| price.0);
        assert_eq!(million("0.15"), Ok(150_000));
        assert_eq!(million("0"), Ok(0));
        assert_eq!(million("0.0000001"), Ok(1));
        assert_eq!(million("0.1500001"), Ok(150_001));
        assert_eq!(token("1.5e-07"), Ok(150_000));
        assert_eq!(token("1.5000001e-07"), Ok(150_001));
        assert_eq!(token("1e-900"), Ok(1));
        assert_eq!(token("18446744.073709551615"), Ok(u64::MAX));
        assert_eq!(token("18446744.0737095516151"), Err(MoneyError::TooLarge));
        assert_eq!(million("-1"), Err(MoneyError::Negative));
        let single = |text: &str| PicoUsd::parse_price(text).map(|price| price.0);
        assert_eq!(single("0.04"), Ok(40_000_000_000));
        assert_eq!(single("1e-13"), Ok(1));
        assert_eq!(single("4.0054321e-08"), Ok(40_055));
        assert_eq!(single("1e18"), Ok(PicoUsd::LARGEST.0));
        assert_eq!(single("1000000000000000000.0000000000001"), Err(MoneyError::TooLarge));
        assert_eq!(single("-1"), Err(MoneyError::Negative));
    }

    #[test]
    fn a_tenth_of_a_cent_admits_6667_tokens_at_15_cents_a_million() {
        let price = TokenPrice::parse_usd_per_million("0.15").unwrap();
        let budget = PicoUsd::parse_usd("0.001").unwrap();
        let mut spent = PicoUsd::ZERO;
        let mut admitted = 0;
        while spent < budget {
            spent = spent.saturating_add(price.times(Tokens(1)));
            admitted += 1;
        }
        assert_eq!(admitted, 6667);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(PicoUsd(u128::MAX).saturating_add(PicoUsd(1)), PicoUsd(u128::MAX));
        assert_eq!(PicoUsd(1).saturating_sub(PicoUsd(2)), PicoUsd::ZERO);
        assert_eq!(TokenPrice(u64::MAX).times(Tokens(u64::MAX)).0, u128::from(u64::MAX).pow(2));
    }
}
