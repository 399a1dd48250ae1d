//! `prices`: what models cost, from the config and from a price map in LiteLLM's format (`map`).
//!
//! Prices are read by their digits; no float is ever made of them. What is finer than a pico-dollar is rounded up.

mod map;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use engine::{Above, ModelPrice, MoneyError, PicoUsd, PriceBook, Rates, Routes, TokenPrice, Tokens};

use super::decode::{At, Decoder, Fields};

/// `prices`: the file first, the local entries on top of it. Also which file that is.
pub fn prices(
    decoder: &mut Decoder<'_>,
    fields: &Fields<'_>,
    folder: &Path,
    routes: Option<&Routes>,
) -> Option<(PriceBook, Option<PathBuf>)> {
    let Some(at) = fields.get("prices") else { return Some((PriceBook::default(), None)) };
    let fields = decoder.fields(at, &["models", "file"])?;
    let named = fields.get("file");
    let path = named.as_ref().and_then(|at| decoder.string(at)).map(|name| folder.join(name));
    let local = match fields.get("models") {
        None => Some(HashMap::new()),
        Some(at) => models(decoder, &at),
    };
    // A routed model that a local entry prices is none of the file's business.
    let routed = |model: &str| {
        let local = local.as_ref().is_some_and(|local| local.contains_key(model));
        !local && routes.is_some_and(|routes| names(routes, model))
    };
    let from_file = match (&named, &path) {
        (None, _) => Some(HashMap::new()),
        (Some(at), Some(path)) => map::read(decoder, at, path, &routed),
        (Some(_), None) => None,
    };
    let (mut prices, local) = (from_file?, local?);
    for (model, mut price) in local {
        price.max_output = prices.get(&model).and_then(|filed: &ModelPrice| filed.max_output);
        prices.insert(model, price);
    }
    Some((PriceBook::new(prices), path))
}

/// Whether a route serves that model by its name, rather than by a pattern that it happens to match.
fn names(routes: &Routes, model: &str) -> bool {
    routes.iter().any(|route| route.served(route.model.pattern()) == model)
}

fn models(decoder: &mut Decoder<'_>, at: &At<'_>) -> Option<HashMap<String, ModelPrice>> {
    let entries = decoder.entries(at)?;
    let mut prices = HashMap::with_capacity(entries.len());
    let mut ok = true;
    for entry in entries {
        let place = at.quoted(entry);
        if entry.key.is_empty() {
            decoder.error(&place, "the name of the model is empty");
            ok = false;
            continue;
        }
        match model(decoder, place) {
            Some(price) => _ = prices.insert(entry.key.clone(), price),
            None => ok = false,
        }
    }
    ok.then_some(prices)
}

/// Prices of tokens, in USD per million of them.
const RATES: [&str; 10] = [
    "input",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "audio_input",
    "image_input",
    "output",
    "reasoning",
    "audio_output",
    "image_output",
];

/// Prices of other things, in USD for one of them.
const SINGLE: [&str; 4] = ["per_request", "per_image", "per_second", "per_character"];

fn model(decoder: &mut Decoder<'_>, at: At<'_>) -> Option<ModelPrice> {
    let known: Vec<&str> = RATES.into_iter().chain(SINGLE).chain(["above"]).collect();
    let fields = decoder.fields(at, &known)?;
    let required = ["input", "output"].map(|key| decoder.required(&fields, key).is_some());
    let rates = rates(decoder, &fields, &Rates::default());
    let single = SINGLE.map(|key| single(decoder, &fields, key));
    let base = rates.filter(|_| required == [true; 2]);
    let above = above(decoder, &fields, base.as_ref().unwrap_or(&Rates::default()));
    let [per_request, per_image, per_second, per_character] = single;
    let mut price = ModelPrice::new(base?, above?);
    price.per_request = per_request?;
    price.per_image = per_image?;
    price.per_second = per_second?;
    price.per_character = per_character?;
    Some(price)
}

/// The steps for long prompts: what one leaves out costs as in a short prompt.
fn above(decoder: &mut Decoder<'_>, fields: &Fields<'_>, base: &Rates) -> Option<Vec<Above>> {
    let Some(at) = fields.get("above") else { return Some(Vec::new()) };
    let known: Vec<&str> = RATES.into_iter().chain(["tokens"]).collect();
    let mut steps: Vec<Above> = Vec::new();
    let mut ok = true;
    for item in decoder.list(&at)? {
        let Some(fields) = decoder.fields(item, &known) else {
            ok = false;
            continue;
        };
        let tokens = decoder
            .required(&fields, "tokens")
            .and_then(|at| Some((decoder.integer(&at, 1, u128::from(u64::MAX))?, at)));
        let rates = rates(decoder, &fields, base);
        let (Some((tokens, at)), Some(rates)) = (tokens, rates) else {
            ok = false;
            continue;
        };
        let tokens = Tokens(u64::try_from(tokens).unwrap_or(u64::MAX));
        if steps.iter().any(|step| step.tokens == tokens) {
            decoder.error(&at, "another step begins at the same length of the prompt");
            ok = false;
        }
        steps.push(Above { tokens, rates: long(rates, fields.get("reasoning").is_some()) });
    }
    ok.then_some(steps)
}

/// Rates of a step that were filled up with those of short prompts: reasoning is a way of writing, and does not stay
/// cheaper than what is written unless the step says so.
fn long(mut rates: Rates, says_reasoning: bool) -> Rates {
    if !says_reasoning {
        rates.reasoning = rates.reasoning.map(|price| price.max(rates.output));
    }
    rates
}

fn rates(decoder: &mut Decoder<'_>, fields: &Fields<'_>, base: &Rates) -> Option<Rates> {
    let [input, cached, write, hour, audio, image, output, reasoning, said, drawn] = RATES.map(|key| {
        fields
            .get(key)
            .map_or(Some(None), |at| read(decoder, &at, TokenPrice::parse_usd_per_million).map(Some))
    });
    Some(Rates {
        input: input?.unwrap_or(base.input),
        cached_input: cached?.or(base.cached_input),
        cache_write: write?.or(base.cache_write),
        cache_write_hour: hour?.or(base.cache_write_hour),
        audio_input: audio?.or(base.audio_input),
        image_input: image?.or(base.image_input),
        output: output?.unwrap_or(base.output),
        reasoning: reasoning?.or(base.reasoning),
        audio_output: said?.or(base.audio_output),
        image_output: drawn?.or(base.image_output),
    })
}

fn single(decoder: &mut Decoder<'_>, fields: &Fields<'_>, key: &str) -> Option<PicoUsd> {
    fields.get(key).map_or(Some(PicoUsd::ZERO), |at| read(decoder, &at, PicoUsd::parse_price))
}

fn read<T>(
    decoder: &mut Decoder<'_>,
    at: &At<'_>,
    parse: impl Fn(&str) -> Result<T, MoneyError>,
) -> Option<T> {
    let text = decoder.decimal(at)?;
    match parse(&text) {
        Ok(price) => Some(price),
        Err(error) => {
            decoder.error(at, error.to_string());
            None
        }
    }
}
