use super::*;

fn price(text: &str) -> TokenPrice {
    TokenPrice::parse_usd_per_million(text).unwrap()
}

fn usd(text: &str) -> PicoUsd {
    PicoUsd::parse_usd(text).unwrap()
}

fn usage(input: u64, cached: u64, output: u64) -> Usage {
    Usage { input: Tokens(input), cached_input: Tokens(cached), output: Tokens(output), ..Usage::default() }
}

fn check(price: &ModelPrice, usage: Usage, wanted: &str) {
    assert_eq!(price.cost(&usage).to_string(), wanted, "{usage:?}");
}

/// Every kind has a price of its own: a million tokens of it cost so many dollars.
fn every_kind() -> Rates {
    Rates {
        input: price("1"),
        cached_input: Some(price("2")),
        cache_write: Some(price("4")),
        cache_write_hour: Some(price("8")),
        audio_input: Some(price("16")),
        image_input: Some(price("32")),
        output: price("100"),
        reasoning: Some(price("200")),
        audio_output: Some(price("400")),
        image_output: Some(price("800")),
    }
}

#[test]
fn costs_are_exact() {
    let rates = Rates {
        input: price("0.15"),
        cached_input: Some(price("0.075")),
        output: price("0.6"),
        ..Rates::default()
    };
    let full = ModelPrice::new(rates, Vec::new());
    let plain = ModelPrice::new(Rates { cached_input: None, ..rates }, Vec::new());
    check(&full, usage(40, 0, 11), "0.0000126");
    check(&full, usage(40, 20, 0), "0.0000045");
    check(&plain, usage(40, 20, 0), "0.000006");
    check(&full, usage(10, 99, 0), "0.00000075");
    check(&full, usage(0, 0, 0), "0");
    let expected = Expected { input: Tokens(40), output: Tokens(11), ..Expected::default() };
    assert_eq!(full.estimate(&expected), full.cost(&usage(40, 0, 11)));
}

#[test]
fn each_kind_costs_its_own_price_and_without_one_that_of_its_whole() {
    let dear = ModelPrice::new(every_kind(), Vec::new());
    let bare =
        ModelPrice::new(Rates { input: price("1"), output: price("100"), ..Rates::default() }, Vec::new());
    let million = Tokens(1_000_000);
    let read = Usage { input: million, ..Usage::default() };
    let written = Usage { output: million, ..Usage::default() };
    for (usage, wanted, without) in [
        (read, "1", "1"),
        (Usage { cached_input: million, ..read }, "2", "1"),
        (Usage { cache_write: million, ..read }, "4", "1"),
        (Usage { cache_write: million, cache_write_hour: million, ..read }, "8", "1"),
        (Usage { cache_write: million, cache_write_hour: Tokens(500_000), ..read }, "6", "1"),
        // An hour's write that is no write: only what was written counts.
        (Usage { cache_write_hour: million, ..read }, "1", "1"),
        (Usage { audio_input: million, ..read }, "16", "1"),
        (Usage { image_input: million, ..read }, "32", "1"),
        (Usage { cached_input: Tokens(500_000), image_input: Tokens(250_000), ..read }, "9.25", "1"),
        // Parts that overlap are paid once each, up to the whole.
        (Usage { cached_input: million, image_input: million, ..read }, "2", "1"),
        (written, "100", "100"),
        (Usage { reasoning: million, ..written }, "200", "100"),
        (Usage { audio_output: million, ..written }, "400", "100"),
        (Usage { image_output: million, ..written }, "800", "100"),
        (Usage { reasoning: Tokens(u64::MAX), audio_output: million, ..written }, "200", "100"),
    ] {
        check(&dear, usage, wanted);
        check(&bare, usage, without);
    }
    let hourless = ModelPrice::new(Rates { cache_write_hour: None, ..every_kind() }, Vec::new());
    check(&hourless, Usage { cache_write: million, cache_write_hour: million, ..read }, "4");
}

#[test]
fn long_prompts_cost_the_price_of_their_step() {
    let step = |tokens, input: &str, output: &str| Above {
        tokens: Tokens(tokens),
        rates: Rates { input: price(input), output: price(output), ..Rates::default() },
    };
    let base = step(0, "1", "10").rates;
    let stepped =
        ModelPrice::new(base, vec![step(200, "4", "40"), step(100, "9", "9"), step(100, "2", "20")]);
    assert_eq!(stepped.above().iter().map(|step| step.tokens.0).collect::<Vec<_>>(), [100, 200]);
    for (input, output, wanted) in [
        (0, 1, "0.00001"),
        (100, 0, "0.0001"),
        (100, 1, "0.00011"),
        (101, 0, "0.000202"),
        (101, 1, "0.000222"),
        (200, 1, "0.00042"),
        (201, 1, "0.000844"),
    ] {
        check(&stepped, usage(input, 0, output), wanted);
    }
}

#[test]
fn what_is_no_token_has_its_price() {
    let mut model = ModelPrice::new(Rates { output: price("1"), ..Rates::default() }, Vec::new());
    model.per_request = usd("0.01");
    model.per_image = usd("0.04");
    model.per_second = usd("0.0001");
    model.per_character = usd("0.000015");
    check(&model, Usage::default(), "0.01");
    check(&model, Usage { images: 3, ..Usage::default() }, "0.13");
    // An image whose tokens are reported is paid by these.
    check(&model, Usage { images: 3, ..usage(0, 0, 1_000_000) }, "1.01");
    let mut by_image = ModelPrice::new(Rates { input: price("1"), ..Rates::default() }, Vec::new());
    by_image.per_image = usd("0.04");
    check(&by_image, Usage { images: 3, image_output: Tokens(5), ..usage(1_000_000, 0, 7) }, "1.12");
    check(&model, Usage { milliseconds: 12_500, ..Usage::default() }, "0.01125");
    check(&model, Usage { milliseconds: 1, ..Usage::default() }, "0.0100001");
    check(&model, Usage { characters: 1000, ..Usage::default() }, "0.025");
    let expected = Expected { images: 2, characters: 10, ..Expected::default() };
    assert_eq!(model.estimate(&expected).to_string(), "0.09015");
}

#[test]
fn absurd_reports_saturate() {
    let dear = TokenPrice(u64::MAX);
    let mut model = ModelPrice::new(Rates { input: dear, output: dear, ..Rates::default() }, Vec::new());
    assert_eq!(model.cost(&usage(u64::MAX, 0, u64::MAX)), PicoUsd(u128::MAX));
    model.per_image = PicoUsd(u128::MAX);
    model.per_second = PicoUsd(u128::MAX);
    let all = Usage { images: u64::MAX, milliseconds: u64::MAX, characters: u64::MAX, ..Usage::default() };
    assert_eq!(model.cost(&all), PicoUsd(u128::MAX));
}

#[test]
fn a_price_of_zero_is_a_price() {
    let free = ModelPrice::default();
    let book = PriceBook::new([("free", free.clone())]);
    assert_eq!(book.find("free"), Some(&free));
    assert_eq!(book.find("Free"), None);
    assert_eq!((book.len(), book.is_empty(), PriceBook::default().is_empty()), (1, false, true));
}

proptest::proptest! {
    /// `if_fits` never overshoots while the estimate bounds the usage (SPEC §4.4): whatever an exchange within the
    /// estimate is made of, it costs no more than was held.
    #[test]
    fn no_usage_within_the_estimate_costs_more_than_the_estimate(
        prices in proptest::collection::vec(proptest::option::of(0..1000u64), 40),
        steps in proptest::collection::vec(0..60u64, 3),
        parts in proptest::collection::vec(0..100u64, 10),
        counts in proptest::collection::vec(0..5u64, 4),
        slack in proptest::collection::vec(0..50u64, 2),
    ) {
        let rates = |from: usize| {
            let one = |at: usize| prices[from + at].map(TokenPrice);
            Rates {
                input: one(0).unwrap_or_default(),
                cached_input: one(1),
                cache_write: one(2),
                cache_write_hour: one(3),
                audio_input: one(4),
                image_input: one(5),
                output: one(6).unwrap_or_default(),
                reasoning: one(7),
                audio_output: one(8),
                image_output: one(9),
            }
        };
        let above = (0..3).map(|at| Above { tokens: Tokens(steps[at]), rates: rates(10 * (at + 1)) });
        let mut model = ModelPrice::new(rates(0), above.collect());
        model.per_request = PicoUsd(u128::from(counts[2]) * 100);
        model.per_image = PicoUsd(u128::from(counts[3]) * 100);
        model.per_character = PicoUsd(7);
        let usage = Usage {
            input: Tokens(parts[0]),
            cached_input: Tokens(parts[1]),
            cache_write: Tokens(parts[2]),
            cache_write_hour: Tokens(parts[3]),
            audio_input: Tokens(parts[4]),
            image_input: Tokens(parts[5]),
            output: Tokens(parts[6]),
            reasoning: Tokens(parts[7]),
            audio_output: Tokens(parts[8]),
            image_output: Tokens(parts[9]),
            images: counts[0],
            milliseconds: 0,
            characters: counts[1],
        };
        let expected = Expected {
            input: Tokens(parts[0] + slack[0]),
            output: Tokens(parts[6] + slack[1]),
            images: counts[0],
            characters: counts[1],
        };
        proptest::prop_assert!(model.cost(&usage) <= model.estimate(&expected));
    }
}
