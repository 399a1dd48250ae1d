//! `prices`: what tokens cost, from the config and from a price map in LiteLLM's format.
//!
//! Prices are read by their digits. The map writes USD a token as floats (`1.5e-07`); those digits too are taken
//! exactly as they stand in the file. Of an entry four keys are read: `input_cost_per_token`,
//! `output_cost_per_token`, `cache_read_input_token_cost`, `max_output_tokens`; the last one is kept under a local price. An entry that prices no tokens (an image model, a
//! search) is left out, so its model has no price rather than a price of zero.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use engine::{ModelPrice, MoneyError, PriceBook, TokenPrice, Tokens};
use serde_json::{Map, Value};

use super::decode::{At, Decoder, Fields};
use super::read_bounded;
use crate::bounds;

/// The map's entry that explains its format.
const SAMPLE: &str = "sample_spec";

/// `prices`: the file first, the local entries on top of it. Also which file that is.
pub fn prices(
    decoder: &mut Decoder<'_>,
    fields: &Fields<'_>,
    folder: &Path,
) -> Option<(PriceBook, Option<PathBuf>)> {
    let Some(at) = fields.get("prices") else { return Some((PriceBook::default(), None)) };
    let fields = decoder.fields(at, &["models", "file"])?;
    let named = fields.get("file");
    let path = named.as_ref().and_then(|at| decoder.string(at)).map(|name| folder.join(name));
    let from_file = match (&named, &path) {
        (None, _) => Some(HashMap::new()),
        (Some(at), Some(path)) => file(decoder, at, path),
        (Some(_), None) => None,
    };
    let local = match fields.get("models") {
        None => Some(HashMap::new()),
        Some(at) => models(decoder, &at),
    };
    let (mut prices, local) = (from_file?, local?);
    for (model, mut price) in local {
        price.max_output = prices.get(&model).and_then(|filed: &ModelPrice| filed.max_output);
        prices.insert(model, price);
    }
    Some((PriceBook::new(prices), path))
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

fn model(decoder: &mut Decoder<'_>, at: At<'_>) -> Option<ModelPrice> {
    let fields = decoder.fields(at, &["input", "cached_input", "output"])?;
    let input = decoder.required(&fields, "input").and_then(|at| per_million(decoder, &at));
    let cached_input = match fields.get("cached_input") {
        None => Some(None),
        Some(at) => per_million(decoder, &at).map(Some),
    };
    let output = decoder.required(&fields, "output").and_then(|at| per_million(decoder, &at));
    Some(ModelPrice { input: input?, cached_input: cached_input?, output: output?, max_output: None })
}

fn per_million(decoder: &mut Decoder<'_>, at: &At<'_>) -> Option<TokenPrice> {
    let text = decoder.decimal(at)?;
    match TokenPrice::parse_usd_per_million(&text) {
        Ok(price) => Some(price),
        Err(error) => {
            decoder.error(at, error.to_string());
            None
        }
    }
}

fn file(decoder: &mut Decoder<'_>, at: &At<'_>, path: &Path) -> Option<HashMap<String, ModelPrice>> {
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
        match map_entry(&entry) {
            Ok(Some(price)) => _ = prices.insert(model, price),
            Ok(None) => {}
            Err(message) => {
                decoder.error(at, format!("{}: {model:?}: {message}", path.display()));
                ok = false;
            }
        }
    }
    ok.then_some(prices)
}

/// The price of one entry of the map; `None` when it prices no tokens.
fn map_entry(entry: &Value) -> Result<Option<ModelPrice>, String> {
    let entry = entry.as_object().ok_or("must be a JSON object")?;
    let price = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => TokenPrice::parse_usd_per_token(&number.to_string())
            .map(Some)
            .map_err(|error: MoneyError| format!("{key} {error}")),
        Some(_) => Err(format!("{key} must be a number")),
    };
    let (input, output, cached_input) = (
        price("input_cost_per_token")?,
        price("output_cost_per_token")?,
        price("cache_read_input_token_cost")?,
    );
    if input.is_none() && output.is_none() {
        return Ok(None);
    }
    let free = TokenPrice(0);
    // Only an estimate hangs on it, so an entry that says it in another way is taken without.
    let max_output = entry.get("max_output_tokens").and_then(Value::as_u64).map(Tokens);
    Ok(Some(ModelPrice {
        input: input.unwrap_or(free),
        cached_input,
        output: output.unwrap_or(free),
        max_output,
    }))
}
