//! `prices`: local entries, and price maps in LiteLLM's format.

use engine::{Expected, Tokens, Usage};

use super::*;

/// A config whose price map is `map`, with `more` of YAML behind the file's name.
fn with_map(map: &str, more: &str) -> Result<Loaded, Rejected> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("prices.json"), map).expect("written");
    let text = format!("\nprices:\n  file: prices.json\n{more}");
    Config::parse(&text, &folder.path().join("gateway.yaml"), Credentials::Needed, &environment)
}

fn map(entries: &str) -> Config {
    with_map(entries, "").unwrap_or_else(|rejected| panic!("{entries}: {:?}", rejected.errors)).config
}

fn of(input: u64, output: u64) -> Usage {
    Usage { input: Tokens(input), output: Tokens(output), ..Usage::default() }
}

/// What that usage of model `m` costs; `None` when it has no price.
fn cost(config: &Config, usage: Usage) -> Option<String> {
    config.prices.find("m").map(|price| price.cost(&usage).to_string())
}

#[test]
fn a_price_map_lies_under_the_local_entries() {
    let config = with_map(
        r#"{"sample_spec": {"input_cost_per_token": "text"}, "image": {"output_cost_per_image": 1},
            "filed": {"input_cost_per_token": 1.5e-07, "output_cost_per_token": 6e-07, "cache_read_input_token_cost": 7.5E-8},
            "embed": {"input_cost_per_token": 2e-8, "output_cost_per_token": null},
            "both": {"input_cost_per_token": 1, "max_output_tokens": 5}, "search": {"search_cost": 1}}"#,
        "  models: { both: { input: 1, output: 2 } }",
    )
    .expect("right")
    .config;
    let price = |model: &str| {
        config.prices.find(model).map(|price| {
            let rates = price.rates();
            (rates.input.0, rates.cached_input.map(|cached| cached.0), rates.output.0)
        })
    };
    assert_eq!(price("filed"), Some((150_000, Some(75_000), 600_000)));
    assert_eq!(price("embed"), Some((20_000, None, 0)));
    assert_eq!(price("both"), Some((1_000_000, None, 2_000_000)));
    assert_eq!(config.prices.find("both").and_then(|price| price.max_output), Some(Tokens(5)));
    assert_eq!(price("image"), Some((0, None, 0)));
    assert_eq!((price("search"), price("sample_spec")), (None, None));
    for (text, want) in [
        ("[]", "must hold a JSON object of models"),
        ("{", "is not JSON"),
        (r#"{"m": {"input_cost_per_token": "1"}}"#, "\"m\": input_cost_per_token must be a number"),
        (r#"{"m": {"input_cost_per_token": -1}}"#, "\"m\": input_cost_per_token is negative"),
        (r#"{"m": {"input_cost_per_token_above_200k_tokens": -1}}"#, "above_200k_tokens is negative"),
        (r#"{"m": {"output_cost_per_image": []}}"#, "\"m\": output_cost_per_image must be a number"),
        (r#"{"m": {"tiered_pricing": {}}}"#, "\"m\": tiered_pricing must be a list"),
        (r#"{"m": {"tiered_pricing": [1]}}"#, "\"m\": tiered_pricing must hold JSON objects"),
        (r#"{"m": {"tiered_pricing": [{"range": [0.5, 1]}]}}"#, "must begin with a whole number of tokens"),
        (r#"{"m": {"tiered_pricing": [{"range": [0, 1], "input_cost_per_token": -1}]}}"#, "is negative"),
        (r#"{"m": 5}"#, "\"m\": must be a JSON object"),
    ] {
        let rejected = with_map(text, "").expect_err(text);
        let finding = &rejected.errors[0];
        assert_eq!((finding.path.as_str(), finding.line), ("prices.file", 3), "{text}");
        assert!(finding.message.contains(want), "{text}: {}", finding.message);
    }
    let rejected = load("prices: { file: absent.json }").expect_err("no such file");
    assert!(rejected.errors[0].to_string().starts_with("prices.file: "), "{:?}", rejected.errors);
    assert!(rejected.errors[0].message.contains("cannot be read"), "{:?}", rejected.errors);
}

#[test]
fn each_price_of_a_map_is_paid_for_what_it_names() {
    let million = Tokens(1_000_000);
    let (read, written) = (of(1_000_000, 0), of(0, 1_000_000));
    for (entry, usage, wanted) in [
        ("\"input_cost_per_token\": 1e-06", read, "1"),
        (
            "\"input_cost_per_token\": 1e-06, \"cache_read_input_token_cost\": 1e-07",
            Usage { cached_input: million, ..read },
            "0.1",
        ),
        (
            "\"input_cost_per_token\": 1e-06, \"input_cost_per_token_cache_hit\": 1e-07",
            Usage { cached_input: million, ..read },
            "0.1",
        ),
        (
            "\"input_cost_per_token\": 3e-06, \"cache_creation_input_token_cost\": 3.75e-06",
            Usage { cache_write: million, ..read },
            "3.75",
        ),
        (
            "\"input_cost_per_token\": 3e-06, \"cache_creation_input_token_cost\": 3.75e-06, \
             \"cache_creation_input_token_cost_above_1hr\": 6e-06",
            Usage { cache_write: million, cache_write_hour: Tokens(400_000), ..read },
            "4.65",
        ),
        (
            "\"input_cost_per_token\": 1e-06, \"input_cost_per_audio_token\": 4e-05",
            Usage { audio_input: million, ..read },
            "40",
        ),
        (
            "\"input_cost_per_token\": 1e-06, \"input_cost_per_image_token\": 1e-05",
            Usage { image_input: million, ..read },
            "10",
        ),
        (
            "\"output_cost_per_token\": 1e-06, \"output_cost_per_reasoning_token\": 3e-06",
            Usage { reasoning: million, ..written },
            "3",
        ),
        (
            "\"output_cost_per_token\": 1e-06, \"output_cost_per_audio_token\": 8e-05",
            Usage { audio_output: million, ..written },
            "80",
        ),
        (
            "\"output_cost_per_token\": 1e-06, \"output_cost_per_image_token\": 4e-05",
            Usage { image_output: million, ..written },
            "40",
        ),
        ("\"output_cost_per_image\": 0.04", Usage { images: 3, ..of(9, 0) }, "0.12"),
        (
            "\"mode\": \"image_generation\", \"input_cost_per_image\": 0.05",
            Usage { images: 2, ..of(9, 0) },
            "0.1",
        ),
        ("\"input_cost_per_request\": 0.005, \"input_cost_per_token\": 0", of(9, 9), "0.005"),
        ("\"input_cost_per_query\": 0.002", of(9, 9), "0.002"),
        (
            "\"mode\": \"audio_transcription\", \"input_cost_per_second\": 0.0001, \"output_cost_per_second\": 0.0001",
            Usage { milliseconds: 12_500, ..of(0, 0) },
            "0.00125",
        ),
        (
            "\"mode\": \"audio_speech\", \"input_cost_per_character\": 1.5e-05",
            Usage { characters: 1000, ..of(9, 0) },
            "0.015",
        ),
        // Finer than a pico-dollar: up, never down.
        ("\"input_cost_per_token\": 1.5000001e-12", of(1, 0), "0.000000000002"),
    ] {
        assert_eq!(
            cost(&map(&format!("{{\"m\": {{{entry}}}}}")), usage).as_deref(),
            Some(wanted),
            "{entry}: {usage:?}"
        );
    }
    for entry in [
        "\"input_cost_per_pixel\": 1e-8",
        "\"input_cost_per_second\": 0.1",
        "\"input_cost_per_image\": 0.1",
        "\"input_cost_per_token_batches\": 1e-6",
        "\"mode\": \"chat\"",
    ] {
        assert_eq!(cost(&map(&format!("{{\"m\": {{{entry}}}}}")), of(1, 1)), None, "{entry}");
    }
}

#[test]
fn long_prompts_cost_what_the_map_says_of_them() {
    let above = r#"{"m": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-05, "cache_read_input_token_cost": 1e-07,
        "output_cost_per_reasoning_token": 1e-05,
        "input_cost_per_token_above_200k_tokens": 2e-06, "output_cost_per_token_above_200k_tokens": 2e-05,
        "input_cost_per_token_above_200k_tokens_priority": 9, "input_cost_per_token_above_200k_tokens_batches": 9,
        "cache_creation_input_token_cost": 4e-06, "cache_creation_input_token_cost_above_1hr": 8e-06,
        "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 1.6e-05}}"#;
    let tiers = r#"{"m": {"tiered_pricing": [
        {"input_cost_per_token": 2e-06, "output_cost_per_token": 2e-05, "range": [200000.0, 1e6]},
        {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-05, "cache_read_input_token_cost": 1e-07, "range": [0, 2e5]}]}}"#;
    let late = r#"{"m": {"tiered_pricing": [{"input_cost_per_token": 2e-06, "output_cost_per_token": 2e-05, "range": [200000, 1e6]}]}}"#;
    let cached = |input| Usage { cached_input: Tokens(input), ..of(input, 0) };
    let hour = |input| Usage { cache_write: Tokens(input), cache_write_hour: Tokens(input), ..of(input, 0) };
    let thinks = |input| Usage { reasoning: Tokens(100), ..of(input, 100) };
    for (entries, usage, wanted) in [
        (above, of(200_000, 1), "0.20001"),
        (above, of(200_001, 1), "0.400022"),
        (above, cached(200_001), "0.0200001"),
        (above, hour(200_000), "1.6"),
        (above, hour(200_001), "3.200016"),
        (above, thinks(1), "0.001001"),
        (above, thinks(200_001), "0.402002"),
        (tiers, of(200_000, 1), "0.20001"),
        (tiers, of(200_001, 1), "0.400022"),
        (tiers, cached(200_000), "0.02"),
        (tiers, cached(200_001), "0.400002"),
        (late, of(1, 1), "0.000022"),
    ] {
        assert_eq!(cost(&map(entries), usage).as_deref(), Some(wanted), "{usage:?} of {entries}");
    }
    let held = |input| {
        let expected = Expected { input: Tokens(input), output: Tokens(1), ..Expected::default() };
        map(tiers).prices.find("m").map(|price| price.estimate(&expected).to_string())
    };
    assert_eq!(held(200_000).as_deref(), Some("0.20001"));
    assert_eq!(held(200_001).as_deref(), Some("0.400022"), "the step that the estimate reaches is held");
}

#[test]
fn only_what_is_routed_by_its_name_is_told_of() {
    let entries = r#"{
        "m": {"input_cost_per_token": 1e-06, "input_cost_per_token_priority": 2e-06, "output_cost_per_token_priority": 2e-06,
              "input_cost_per_token_flex": 5e-07, "search_context_cost_per_query": {"search_context_size_low": 0.01},
              "input_cost_per_character": 1e-6, "regional_processing_uplift_multiplier_eu": 1.1, "off_peak_pricing": {"x": 1},
              "code_interpreter_cost_per_session": 0.0},
        "dall-e": {"input_cost_per_pixel": 1.9e-08, "output_cost_per_pixel": 0.0},
        "other": {"input_cost_per_token": 1e-06, "input_cost_per_token_priority": 2e-06}}"#;
    let told = |routes: &str, models: &str| -> Vec<String> {
        let more = format!(
            "{models}providers: [{{ id: p, api: openai, base_urls: [\"http://127.0.0.1:1\"] }}]\nroutes: [{routes}]\n"
        );
        let loaded = with_map(entries, &more).unwrap_or_else(|rejected| panic!("{:?}", rejected.errors));
        loaded.warnings.iter().map(ToString::to_string).collect()
    };
    let m = "prices.file: \"m\" is routed, and these prices of it are not charged: *_priority, \
             regional_processing_uplift_multiplier_eu, search_context_cost_per_query";
    let pixels = "prices.file: \"dall-e\" is routed and has no price, because only this is priced: input_cost_per_pixel; \
                  price it under prices.models";
    let local = "  models: { m: { input: 1, output: 1 } }\n";
    for (routes, models, wanted) in [
        ("", "", vec![]),
        ("{ model: \"*\", provider: p }", "", vec![]),
        ("{ model: m, provider: p }", "", vec![m]),
        ("{ model: x, provider: p, served_model: m }", "", vec![m]),
        ("{ model: m, provider: p, served_model: x }", "", vec![]),
        ("{ model: dall-e, provider: p }, { model: m, provider: p }", "", vec![m, pixels]),
        ("{ model: m, provider: p }", local, vec![]),
    ] {
        let mut found = told(routes, models);
        found.sort();
        let mut wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
        wanted.sort();
        let found: Vec<&str> = found.iter().map(|line| line.trim_start_matches(|c: char| c != 'p')).collect();
        assert_eq!(found, wanted, "{routes}");
    }
}

#[test]
fn local_prices_name_each_kind() {
    let config = load(
        "prices:\n  models:\n    m: { input: 1, cached_input: 0.1, cache_write: 1.25, cache_write_1h: 2, audio_input: 40, \
         image_input: 10, output: 4, reasoning: 5, audio_output: 80, image_output: 30, per_request: 0.01, per_image: 0.04, \
         per_second: 0.0001, per_character: 1.5e-5, above: [ { tokens: 200000, input: 2, output: 8 }, \
         { tokens: 500000, input: 3, reasoning: 1 } ] }\n",
    )
    .expect("right")
    .config;
    let million = Tokens(1_000_000);
    let short = Usage { input: Tokens(200_000), ..Usage::default() };
    for (usage, wanted) in [
        (short, "0.21"),
        (Usage { cached_input: short.input, ..short }, "0.03"),
        (Usage { cache_write: short.input, ..short }, "0.26"),
        (Usage { cache_write: short.input, cache_write_hour: short.input, ..short }, "0.41"),
        (Usage { audio_input: short.input, ..short }, "8.01"),
        (Usage { image_input: short.input, ..short }, "2.01"),
        (of(0, 1_000_000), "4.01"),
        (Usage { reasoning: million, ..of(0, 1_000_000) }, "5.01"),
        (Usage { audio_output: million, ..of(0, 1_000_000) }, "80.01"),
        (Usage { image_output: million, ..of(0, 1_000_000) }, "30.01"),
        (Usage { images: 2, milliseconds: 1000, characters: 2, ..of(0, 0) }, "0.09013"),
        (of(200_001, 0), "0.410002"),
        (of(200_001, 1_000_000), "8.410002"),
        (Usage { reasoning: million, ..of(200_001, 1_000_000) }, "8.410002"),
        (Usage { reasoning: million, ..of(500_001, 1_000_000) }, "2.510003"),
    ] {
        assert_eq!(cost(&config, usage).as_deref(), Some(wanted), "{usage:?}");
    }
}

#[test]
fn prices_are_complete_and_not_negative() {
    check(
        "prices:\n  models:\n    a: { input: -1, output: 1 }\n    b: { input: 1 }\n    \"c/d\": { input: .inf, output: x }\n",
        &[
            "E 3 prices.models[\"a\"].input: must not be negative",
            "E 4 prices.models[\"b\"].output: is missing",
            "E 5 prices.models[\"c/d\"].input: must be a finite number",
            "E 5 prices.models[\"c/d\"].output: must be a number, not \"x\"",
        ],
    );
    check(
        "prices:\n  models:\n    a: { input: 1, output: 1 }\n    a: { input: 1, output: 1 }\n",
        &["E 4 prices.models.a: the key is given twice (first on line 3)"],
    );
    check(
        "prices:\n  models:\n    a:\n      input: 1\n      output: 1\n      per_image: -1\n      cache_write: 1e400\n      above:\n        \
         - { input: 1 }\n        - { tokens: 0 }\n        - { tokens: 1, output: -1 }\n        - { tokens: 5 }\n        \
         - { tokens: 5 }\n        - { tokens: 6, cached: 1 }\n",
        &[
            "E 6 prices.models[\"a\"].per_image: must not be negative",
            "E 7 prices.models[\"a\"].cache_write: is too large to count",
            "E 9 prices.models[\"a\"].above[0].tokens: is missing",
            "E 10 prices.models[\"a\"].above[1].tokens: must be above zero",
            "E 11 prices.models[\"a\"].above[2].output: must not be negative",
            "E 13 prices.models[\"a\"].above[4].tokens: another step begins at the same length of the prompt",
            "E 14 prices.models[\"a\"].above[5].cached: unknown key; ..",
        ],
    );
}
