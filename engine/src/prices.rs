//! What models cost.
//!
//! A model without an entry has no price, which is not a price of zero: budgets treat the two differently (SPEC section
//! 4.8). A kind of tokens without a price of its own costs what its whole does: cached and audio tokens as any other
//! token read, reasoning as any other token written.
//!
//! Where prices depend on how long the prompt is, those of the longest step that the prompt exceeds hold for the whole
//! exchange, as the vendors bill it.

use std::sync::Arc;

use ahash::AHashMap;

use crate::money::{PicoUsd, TokenPrice};
use crate::units::Tokens;
use crate::usage::Usage;

/// What tokens cost, by their kind.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct Rates {
    /// For a token read.
    pub input: TokenPrice,
    /// For a token read from the provider's cache; absent: as any other.
    pub cached_input: Option<TokenPrice>,
    /// For a token written to the provider's cache; absent: as any other that is read.
    pub cache_write: Option<TokenPrice>,
    /// For one kept there for an hour; absent: as any other that is written there.
    pub cache_write_hour: Option<TokenPrice>,
    /// For a token of audio that is read; absent: as any other.
    pub audio_input: Option<TokenPrice>,
    /// For a token of an image that is read; absent: as any other.
    pub image_input: Option<TokenPrice>,
    /// For a token written.
    pub output: TokenPrice,
    /// For a token of reasoning; absent: as any other that is written.
    pub reasoning: Option<TokenPrice>,
    /// For a token of audio that is written; absent: as any other.
    pub audio_output: Option<TokenPrice>,
    /// For a token of an image that is written; absent: as any other.
    pub image_output: Option<TokenPrice>,
}

impl Rates {
    /// What tokens cost. Kinds are taken in the order of their fields, each at most what its whole has left: reports of
    /// parts that overlap, or that are more than the whole, are never paid twice.
    fn cost(&self, usage: &Usage) -> PicoUsd {
        let write = self.cache_write.unwrap_or(self.input);
        let hour = usage.cache_write_hour.min(usage.cache_write);
        let read = Split { left: usage.input, whole: self.input, cost: PicoUsd::ZERO }
            .part(usage.cached_input, self.cached_input)
            .part(hour, Some(self.cache_write_hour.unwrap_or(write)))
            .part(usage.cache_write.saturating_sub(hour), Some(write))
            .part(usage.audio_input, self.audio_input)
            .part(usage.image_input, self.image_input);
        let written = Split { left: usage.output, whole: self.output, cost: PicoUsd::ZERO }
            .part(usage.reasoning, self.reasoning)
            .part(usage.audio_output, self.audio_output)
            .part(usage.image_output, self.image_output);
        read.total().saturating_add(written.total())
    }

    /// Whether what was written was reported in tokens, and these have a price.
    fn pays_output(&self, usage: &Usage) -> bool {
        usage.output > Tokens::ZERO && self.dearest_output() > TokenPrice(0)
    }

    /// The dearest price of a token read: what one costs at the most.
    fn dearest_input(&self) -> TokenPrice {
        let kinds =
            [self.cached_input, self.cache_write, self.cache_write_hour, self.audio_input, self.image_input];
        kinds.into_iter().flatten().fold(self.input, TokenPrice::max)
    }

    /// The dearest price of a token written.
    fn dearest_output(&self) -> TokenPrice {
        let kinds = [self.reasoning, self.audio_output, self.image_output];
        kinds.into_iter().flatten().fold(self.output, TokenPrice::max)
    }
}

/// Tokens of which some kinds have prices of their own.
struct Split {
    left: Tokens,
    whole: TokenPrice,
    cost: PicoUsd,
}

impl Split {
    fn part(self, tokens: Tokens, price: Option<TokenPrice>) -> Split {
        let taken = tokens.min(self.left);
        let cost = price.unwrap_or(self.whole).times(taken);
        Split {
            left: self.left.saturating_sub(taken),
            cost: self.cost.saturating_add(cost),
            whole: self.whole,
        }
    }

    fn total(self) -> PicoUsd {
        self.cost.saturating_add(self.whole.times(self.left))
    }
}

/// Other prices for exchanges with long prompts.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Above {
    /// A prompt of more tokens than this is meant.
    pub tokens: Tokens,
    /// What tokens cost then.
    pub rates: Rates,
}

/// The prices of one model.
#[derive(Clone, Eq, PartialEq, Default, Debug)]
pub struct ModelPrice {
    rates: Rates,
    /// Ascending.
    above: Box<[Above]>,
    /// For each exchange.
    pub per_request: PicoUsd,
    /// For each image that is made, where tokens written are not reported or have no price.
    pub per_image: PicoUsd,
    /// For a second of audio, where time is reported in place of tokens.
    pub per_second: PicoUsd,
    /// For a character of the prompt's text.
    pub per_character: PicoUsd,
    /// The most tokens that the model writes for one choice, where it is known: an estimate holds no more, whatever
    /// the request asks for (SPEC §10, Estimate).
    pub max_output: Option<Tokens>,
}

/// What a request may come to, before its backend has been asked.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct Expected {
    /// Tokens read.
    pub input: Tokens,
    /// Tokens written.
    pub output: Tokens,
    /// Images made.
    pub images: u64,
    /// Characters of the prompt's text.
    pub characters: u64,
}

/// Milliseconds in a second.
const SECOND: u128 = 1000;

impl ModelPrice {
    /// Prices of tokens, and those of long prompts, in any order. Of two for prompts of the same length the later stays.
    #[must_use]
    pub fn new(rates: Rates, mut above: Vec<Above>) -> ModelPrice {
        above.reverse();
        above.sort_by_key(|step| step.tokens);
        above.dedup_by_key(|step| step.tokens);
        ModelPrice { rates, above: above.into(), ..ModelPrice::default() }
    }

    /// What tokens cost when the prompt is short.
    #[must_use]
    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// What tokens cost when the prompt is longer, by ascending length.
    #[must_use]
    pub fn above(&self) -> &[Above] {
        &self.above
    }

    /// The steps that a prompt of at most so many tokens can reach.
    fn reached(&self, input: Tokens) -> &[Above] {
        &self.above[..self.above.partition_point(|step| step.tokens < input)]
    }

    /// What an exchange cost, exactly.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> PicoUsd {
        let rates = self.reached(usage.input).last().map_or(&self.rates, |step| &step.rates);
        let images = if rates.pays_output(usage) { 0 } else { usage.images };
        let milliseconds = u128::from(usage.milliseconds);
        rates
            .cost(usage)
            .saturating_add(self.per_request)
            .saturating_add(times(self.per_image, images))
            .saturating_add(PicoUsd(self.per_second.0.saturating_mul(milliseconds).div_ceil(SECOND)))
            .saturating_add(times(self.per_character, usage.characters))
    }

    /// What a request may cost at the most, when it comes to no more than expected: each token at the dearest price that a
    /// token of an exchange up to that size can have.
    #[must_use]
    pub fn estimate(&self, expected: &Expected) -> PicoUsd {
        let mut rates =
            [&self.rates].into_iter().chain(self.reached(expected.input).iter().map(|step| &step.rates));
        let first = rates.next().unwrap_or(&self.rates);
        let (input, output) = rates
            .fold((first.dearest_input(), first.dearest_output()), |(input, output), rates| {
                (input.max(rates.dearest_input()), output.max(rates.dearest_output()))
            });
        input
            .times(expected.input)
            .saturating_add(output.times(expected.output))
            .saturating_add(self.per_request)
            .saturating_add(times(self.per_image, expected.images))
            .saturating_add(times(self.per_character, expected.characters))
    }
}

fn times(price: PicoUsd, count: u64) -> PicoUsd {
    PicoUsd(price.0.saturating_mul(u128::from(count)))
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
#[path = "prices_tests.rs"]
mod tests;
