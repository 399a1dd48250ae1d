//! What models cost.
//!
//! A model without an entry has no price, which is not a price of zero: budgets treat the two differently (SPEC section
//! 4.8).

use std::sync::Arc;

use ahash::AHashMap;

use crate::money::{PicoUsd, TokenPrice};
use crate::units::Tokens;
use crate::usage::Usage;

/// The prices of one model.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct ModelPrice {
    /// For a token read.
    pub input: TokenPrice,
    /// For a token read from the provider's cache; absent: as any other.
    pub cached_input: Option<TokenPrice>,
    /// For a token written.
    pub output: TokenPrice,
    /// The most tokens that the model writes for one choice, where it is known: an estimate holds no more, whatever
    /// the request asks for (SPEC §10, Estimate).
    pub max_output: Option<Tokens>,
}

impl ModelPrice {
    /// What an exchange cost, exactly. Reports of more cached than read tokens count as all cached.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> PicoUsd {
        let cached = usage.cached_input.min(usage.input);
        let fresh = usage.input.saturating_sub(cached);
        self.input
            .times(fresh)
            .saturating_add(self.cached_input.unwrap_or(self.input).times(cached))
            .saturating_add(self.output.times(usage.output))
    }

    /// What that many tokens read and written would cost, none of them cached.
    #[must_use]
    pub fn estimate(&self, input: Tokens, output: Tokens) -> PicoUsd {
        self.cost(&Usage { input, cached_input: Tokens::ZERO, output })
    }
}

/// The prices of all models, by the exact name of the served model. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub struct PriceBook(Arc<AHashMap<Box<str>, ModelPrice>>);

impl PriceBook {
    /// The book of these entries; of two for one model the later stays.
    #[must_use]
    pub fn new<N: Into<Box<str>>>(entries: impl IntoIterator<Item = (N, ModelPrice)>) -> PriceBook {
        PriceBook(Arc::new(entries.into_iter().map(|(model, price)| (model.into(), price)).collect()))
    }

    /// The prices of a model, if it has any.
    #[must_use]
    pub fn find(&self, model: &str) -> Option<&ModelPrice> {
        self.0.get(model)
    }

    /// How many models have prices.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no model has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cached: u64, output: u64) -> Usage {
        Usage { input: Tokens(input), cached_input: Tokens(cached), output: Tokens(output) }
    }

    #[test]
    fn costs_are_exact() {
        let price = |text| TokenPrice::parse_usd_per_million(text).unwrap();
        let full = ModelPrice {
            input: price("0.15"),
            cached_input: Some(price("0.075")),
            output: price("0.6"),
            max_output: None,
        };
        let plain = ModelPrice { cached_input: None, ..full };
        let check = |price: &ModelPrice, usage: Usage, wanted: &str| {
            assert_eq!(price.cost(&usage).to_string(), wanted, "{usage:?}");
        };
        check(&full, usage(40, 0, 11), "0.0000126");
        check(&full, usage(40, 20, 0), "0.0000045");
        check(&plain, usage(40, 20, 0), "0.000006");
        check(&full, usage(10, 99, 0), "0.00000075");
        check(&full, usage(0, 0, 0), "0");
        assert_eq!(full.estimate(Tokens(40), Tokens(11)), full.cost(&usage(40, 0, 11)));
    }

    #[test]
    fn absurd_reports_saturate() {
        let dear = TokenPrice(u64::MAX);
        let price = ModelPrice { input: dear, cached_input: None, output: dear, max_output: None };
        assert_eq!(price.cost(&usage(u64::MAX, 0, u64::MAX)), PicoUsd(u128::MAX));
    }

    #[test]
    fn a_price_of_zero_is_a_price() {
        let free =
            ModelPrice { input: TokenPrice(0), cached_input: None, output: TokenPrice(0), max_output: None };
        let book = PriceBook::new([("free", free)]);
        assert_eq!(book.find("free"), Some(&free));
        assert_eq!(book.find("Free"), None);
        assert_eq!((book.len(), book.is_empty(), PriceBook::default().is_empty()), (1, false, true));
    }
}
