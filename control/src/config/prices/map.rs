//! A price map in LiteLLM's format, `model_prices_and_context_window.json`, taken whole as it is published.
//!
//! Of an entry the prices of what a gateway can count are read: tokens by kind, prompts above a length
//! (`..._above_200k_tokens`, `tiered_pricing`), requests, images, seconds, characters. What else it lists (tools, pixels,
//! pages, faster service tiers) is not charged; for models that a route names this is said. Batches and `flex` are
//! cheaper than what is charged and off-peak hours too, so they are passed over in silence. An entry with no price of the
//! first sort has no price, rather than a price of zero.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use engine::{Above, ModelPrice, MoneyError, PicoUsd, Rates, TokenPrice, Tokens};
use serde_json::{Map, Value};

use super::super::decode::{At, Decoder};
use super::super::number;
use super::super::read_bounded;
use crate::bounds;

/// The map's entry that explains its format.
const SAMPLE: &str = "sample_spec";

/// Prices of tokens, by their key.
const RATES: [(&str, Rate); 11] = [
    ("input_cost_per_token", |rates| &mut rates.input),
    ("cache_read_input_token_cost", |rates| &mut rates.cached_input),
    ("input_cost_per_token_cache_hit", |rates| &mut rates.cached_input),
    ("cache_creation_input_token_cost", |rates| &mut rates.cache_write),
    ("cache_creation_input_token_cost_above_1hr", |rates| &mut rates.cache_write_hour),
    ("input_cost_per_audio_token", |rates| &mut rates.audio_input),
    ("input_cost_per_image_token", |rates| &mut rates.image_input),
    ("output_cost_per_token", |rates| &mut rates.output),
    ("output_cost_per_reasoning_token", |rates| &mut rates.reasoning),
    ("output_cost_per_audio_token", |rates| &mut rates.audio_output),
    ("output_cost_per_image_token", |rates| &mut rates.image_output),
];

/// Ends of keys that are prices of dearer service tiers.
const SERVICE_TIERS: [&str; 4] = ["_priority", "_ultrafast", "_balanced", "_decisions"];

/// Where a price of tokens goes.
type Rate = fn(&mut Given) -> &mut Option<TokenPrice>;

/// Prices of tokens, as far as they are given.
#[derive(Clone, Copy, Default)]
struct Given {
    input: Option<TokenPrice>,
    cached_input: Option<TokenPrice>,
    cache_write: Option<TokenPrice>,
    cache_write_hour: Option<TokenPrice>,
    audio_input: Option<TokenPrice>,
    image_input: Option<TokenPrice>,
    output: Option<TokenPrice>,
    reasoning: Option<TokenPrice>,
    audio_output: Option<TokenPrice>,
    image_output: Option<TokenPrice>,
}

impl Given {
    /// With `base` where nothing is given.
    fn or(self, base: &Given) -> Given {
        Given {
            input: self.input.or(base.input),
            cached_input: self.cached_input.or(base.cached_input),
            cache_write: self.cache_write.or(base.cache_write),
            cache_write_hour: self.cache_write_hour.or(base.cache_write_hour),
            audio_input: self.audio_input.or(base.audio_input),
            image_input: self.image_input.or(base.image_input),
            output: self.output.or(base.output),
            reasoning: self.reasoning.or(base.reasoning),
            audio_output: self.audio_output.or(base.audio_output),
            image_output: self.image_output.or(base.image_output),
        }
    }

    fn has_tokens(&self) -> bool {
        self.input.is_some() || self.output.is_some()
    }

    fn rates(&self) -> Rates {
        Rates {
            input: self.input.unwrap_or_default(),
            cached_input: self.cached_input,
            cache_write: self.cache_write,
            cache_write_hour: self.cache_write_hour,
            audio_input: self.audio_input,
            image_input: self.image_input,
            output: self.output.unwrap_or_default(),
            reasoning: self.reasoning,
            audio_output: self.audio_output,
            image_output: self.image_output,
        }
    }
}

/// Reads the file. Of the models that are `routed` by name, warns of what their prices hold and nobody counts.
pub fn read(
    decoder: &mut Decoder<'_>,
    at: &At<'_>,
    path: &Path,
    routed: &dyn Fn(&str) -> bool,
) -> Option<HashMap<String, ModelPrice>> {
    let read = read_bounded(path, bounds::PRICE_FILE_BYTES)
        .and_then(|text| serde_json::from_str(&text).map_err(|error| format!("is not JSON: {error}")));
    let map: Map<String, Value> = match read {
        Ok(Value::Object(map)) => map,
        Ok(_) => {
            decoder.error(at, format!("{}: must hold a JSON object of models", path.display()));
            return None;
        }
        Err(message) => {
            decoder.error(at, format!("{}: {message}", path.display()));
            return None;
        }
    };
    let mut prices = HashMap::with_capacity(map.len());
    let mut ok = true;
    for (model, entry) in map.into_iter().filter(|(model, _)| model != SAMPLE) {
        match Entry::read(&entry) {
            Ok(entry) => {
                let price = entry.price();
                if routed(&model) {
                    entry.tell(decoder, at, &model, price.is_some());
                }
                if let Some(price) = price {
                    prices.insert(model, price);
                }
            }
            Err(message) => {
                decoder.error(at, format!("{}: {model:?}: {message}", path.display()));
                ok = false;
            }
        }
    }
    ok.then_some(prices)
}

/// One model's entry.
#[derive(Default)]
struct Entry {
    base: Given,
    above: BTreeMap<Tokens, Given>,
    per_request: Option<PicoUsd>,
    per_image: Option<PicoUsd>,
    per_second: Option<PicoUsd>,
    per_character: Option<PicoUsd>,
    max_output: Option<Tokens>,
    /// Keys of what is paid for and not counted.
    uncounted: BTreeSet<String>,
}

impl Entry {
    fn read(entry: &Value) -> Result<Entry, String> {
        let members = entry.as_object().ok_or("must be a JSON object")?;
        let mode = members.get("mode").and_then(Value::as_str).unwrap_or("");
        let mut read = Entry {
            // Only an estimate hangs on it, so an entry that says it in another way is taken without.
            max_output: members.get("max_output_tokens").and_then(Value::as_u64).map(Tokens),
            ..Entry::default()
        };
        for (key, value) in members.iter().filter(|(_, value)| !value.is_null()) {
            read.member(key, value, mode)?;
        }
        Ok(read)
    }

    fn member(&mut self, key: &str, value: &Value, mode: &str) -> Result<(), String> {
        if key == "tiered_pricing" {
            return self.tiers(value);
        }
        let (stem, tokens) = above(key);
        if let Some((_, rate)) = RATES.iter().find(|(name, _)| *name == stem) {
            let given = match tokens {
                None => &mut self.base,
                Some(tokens) => self.above.entry(tokens).or_default(),
            };
            return set(rate(given), key, value, TokenPrice::parse_usd_per_token, TokenPrice::max);
        }
        let single = match (key, mode) {
            ("input_cost_per_request", _) | ("input_cost_per_query", _) => &mut self.per_request,
            ("output_cost_per_image", _) | ("input_cost_per_image", "image_generation") => {
                &mut self.per_image
            }
            ("input_cost_per_second" | "output_cost_per_second", "audio_transcription") => {
                &mut self.per_second
            }
            ("input_cost_per_character", "audio_speech") => &mut self.per_character,
            _ => {
                if is_uncounted(key, value) {
                    let service = SERVICE_TIERS.into_iter().find(|tier| key.ends_with(tier));
                    self.uncounted.insert(service.map_or(key.to_owned(), |tier| format!("*{tier}")));
                }
                return Ok(());
            }
        };
        set(single, key, value, PicoUsd::parse_price, PicoUsd::max)
    }

    /// A list of prices, each for prompts of a range of lengths.
    fn tiers(&mut self, list: &Value) -> Result<(), String> {
        let list = list.as_array().ok_or("tiered_pricing must be a list")?;
        for tier in list {
            let tier = tier.as_object().ok_or("tiered_pricing must hold JSON objects")?;
            let range = tier.get("range").and_then(Value::as_array);
            let Some(Value::Number(from)) = range.and_then(|range| range.first()) else {
                // Tiers by something else than the prompt's length.
                self.uncounted.insert("tiered_pricing".to_owned());
                continue;
            };
            let tokens = number::integer(&from.to_string())
                .ok()
                .and_then(|from| u64::try_from(from).ok())
                .ok_or("tiered_pricing: a range must begin with a whole number of tokens")?;
            let given = match tokens {
                0 => &mut self.base,
                _ => self.above.entry(Tokens(tokens)).or_default(),
            };
            for (key, value) in tier.iter().filter(|(_, value)| !value.is_null()) {
                if let Some((_, rate)) = RATES.iter().find(|(name, _)| name == key) {
                    set(rate(given), key, value, TokenPrice::parse_usd_per_token, TokenPrice::max)?;
                } else if is_uncounted(key, value) {
                    self.uncounted.insert(key.clone());
                }
            }
            // A tier stands for itself: what it leaves out costs as any other token of it.
            given.cached_input = given.cached_input.or(given.input);
            given.cache_write = given.cache_write.or(given.input);
            given.reasoning = given.reasoning.or(given.output);
        }
        Ok(())
    }

    fn price(&self) -> Option<ModelPrice> {
        let single = [self.per_request, self.per_image, self.per_second, self.per_character];
        if !self.base.has_tokens() && self.above.is_empty() && single.iter().all(Option::is_none) {
            return None;
        }
        let mut base = self.base;
        if !base.has_tokens()
            && let Some(first) = self.above.values().next()
        {
            base = *first; // no price for short prompts: they cost what the next longer ones do
        }
        let above = self.above.iter().map(|(tokens, given)| Above {
            tokens: *tokens,
            rates: super::long(given.or(&base).rates(), given.reasoning.is_some()),
        });
        let mut price = ModelPrice::new(base.rates(), above.collect());
        price.per_request = self.per_request.unwrap_or_default();
        price.per_image = self.per_image.unwrap_or_default();
        price.per_second = self.per_second.unwrap_or_default();
        price.per_character = self.per_character.unwrap_or_default();
        price.max_output = self.max_output;
        Some(price)
    }

    fn tell(&self, decoder: &mut Decoder<'_>, at: &At<'_>, model: &str, priced: bool) {
        // Where tokens have prices, those of characters are another way of saying the same.
        let same = |key: &&str| self.base.has_tokens() && key.contains("_per_character");
        let keys: Vec<&str> = self.uncounted.iter().map(String::as_str).filter(|key| !same(key)).collect();
        if keys.is_empty() {
            return;
        }
        let keys = keys.join(", ");
        decoder.warn(
            at,
            match priced {
                true => format!("{model:?} is routed, and these prices of it are not charged: {keys}"),
                false => format!(
                    "{model:?} is routed and has no price, because only this is priced: {keys}; price it under prices.models"
                ),
            },
        );
    }
}

/// A key without the length of prompts that it is for.
fn above(key: &str) -> (&str, Option<Tokens>) {
    let split = || {
        let rest = key.strip_suffix("k_tokens")?;
        let (stem, thousands) = rest.rsplit_once("_above_")?;
        let tokens = thousands.parse::<u64>().ok()?.checked_mul(1000)?;
        Some((stem, Some(Tokens(tokens))))
    };
    split().unwrap_or((key, None))
}

/// Puts a price in its place; of two keys that mean the same the dearer one holds.
fn set<T: Copy>(
    place: &mut Option<T>,
    key: &str,
    value: &Value,
    parse: fn(&str) -> Result<T, MoneyError>,
    dearer: fn(T, T) -> T,
) -> Result<(), String> {
    let Value::Number(number) = value else { return Err(format!("{key} must be a number")) };
    let price = parse(&number.to_string()).map_err(|error| format!("{key} {error}"))?;
    *place = Some(place.map_or(price, |before| dearer(before, price)));
    Ok(())
}

/// Whether a key names something that is paid for, and may cost more than what is counted.
fn is_uncounted(key: &str, value: &Value) -> bool {
    let costs = key.contains("cost") || key.contains("uplift_multiplier") || key == "provider_specific_entry";
    // The last is the same price in another currency.
    let cheaper = ["_batches", "_flex"].iter().any(|end| key.ends_with(end)) || key.contains("_dbu_");
    let free = match value {
        Value::Number(number) => {
            let digits = number.to_string();
            let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
            !mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
        }
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    costs && !cheaper && !free
}
