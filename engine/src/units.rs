//! What is counted: tokens, requests, and the common [`Units`] that a counter holds.
//!
//! A counter does not know its limit's type; it adds and compares [`Units`], and only the edges turn them back into
//! tokens or money. All arithmetic saturates: a figure at the end of its range can only make a cap stricter.

use std::fmt;

use crate::money::PicoUsd;

/// Tokens of a model.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub struct Tokens(pub u64);

/// Requests.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub struct Requests(pub u64);

/// What a counter counts in: requests, tokens, slots, or pico-USD, by the limit's type.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub struct Units(pub u128);

impl Tokens {
    /// No tokens.
    pub const ZERO: Tokens = Tokens(0);

    /// The sum, at most `u64::MAX`.
    #[must_use]
    pub fn saturating_add(self, other: Tokens) -> Tokens {
        Tokens(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub fn saturating_sub(self, other: Tokens) -> Tokens {
        Tokens(self.0.saturating_sub(other.0))
    }

    /// That many times as much, at most `u64::MAX`.
    #[must_use]
    pub fn saturating_mul(self, times: u64) -> Tokens {
        Tokens(self.0.saturating_mul(times))
    }
}

impl Units {
    /// Nothing.
    pub const ZERO: Units = Units(0);

    /// One request, or one slot.
    pub const ONE: Units = Units(1);

    /// The sum, at most `u128::MAX`.
    #[must_use]
    pub fn saturating_add(self, other: Units) -> Units {
        Units(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub fn saturating_sub(self, other: Units) -> Units {
        Units(self.0.saturating_sub(other.0))
    }

    /// Read as money; only meaningful for the units of a spend limit.
    #[must_use]
    pub fn as_pico_usd(self) -> PicoUsd {
        PicoUsd(self.0)
    }

    /// Read as a count, at most `u64::MAX`.
    #[must_use]
    pub fn as_count(self) -> u64 {
        u64::try_from(self.0).unwrap_or(u64::MAX)
    }
}

impl From<Tokens> for Units {
    fn from(tokens: Tokens) -> Units {
        Units(u128::from(tokens.0))
    }
}

impl From<Requests> for Units {
    fn from(requests: Requests) -> Units {
        Units(u128::from(requests.0))
    }
}

impl From<PicoUsd> for Units {
    fn from(money: PicoUsd) -> Units {
        Units(money.0)
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_saturate_and_keep_what_they_were_made_of() {
        assert_eq!(Units(u128::MAX).saturating_add(Units::ONE), Units(u128::MAX));
        assert_eq!(Units::ZERO.saturating_sub(Units::ONE), Units::ZERO);
        assert_eq!(Units::from(Tokens(7)), Units(7));
        assert_eq!(Units::from(Requests(7)), Units(7));
        assert_eq!(Units::from(PicoUsd(u128::MAX)).as_pico_usd(), PicoUsd(u128::MAX));
        assert_eq!(Units(u128::MAX).as_count(), u64::MAX);
        assert_eq!(Tokens(u64::MAX).saturating_add(Tokens(1)), Tokens(u64::MAX));
        assert_eq!(Tokens(3).saturating_mul(u64::MAX), Tokens(u64::MAX));
        assert_eq!(Tokens(3).saturating_sub(Tokens(4)), Tokens::ZERO);
    }
}
