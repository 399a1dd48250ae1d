//! Random and damaged configs: whatever the text, the answer is a config or a list of errors.

use proptest::prelude::*;

use super::*;

/// Pieces that make YAML which is nearly a config.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "listen",
        "governance",
        "limits",
        "tenants",
        "org",
        "teams",
        "users",
        "id",
        "attach",
        "node",
        "level",
        "type",
        "rpm",
        "budget_usd",
        "amount",
        "amount_usd",
        "period",
        "1m",
        "day",
        "override",
        "allow",
        "true",
        "max_amount_usd",
        "providers",
        "routes",
        "prices",
        "models",
        "match",
        "model",
        "http",
        "max_head",
        ": ",
        ": ",
        ": ",
        "\n",
        "\n  ",
        "\n    - ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "\"",
        "'",
        "&a ",
        "*a",
        "!!str ",
        "!x",
        "|",
        ">",
        "#",
        "---",
        "${HOST}",
        "${",
        "~",
        "null",
        "0",
        "-1",
        "1e9",
        ".inf",
        ".nan",
        "99999999999999999999999",
        "\t",
        "?",
        "%",
        "\u{feff}",
        "\u{e4}",
        "\u{0}",
    ];
    prop_oneof![
        8 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_text_makes_the_reader_panic(pieces in proptest::collection::vec(piece(), 0..60)) {
        let text = pieces.concat();
        if let Err(rejected) = load(&text) {
            prop_assert!(!rejected.errors.is_empty());
            prop_assert!(rejected.errors.iter().all(|error| error.line >= 1));
        }
    }

    /// A right config with one place cut, doubled or replaced.
    #[test]
    fn no_damage_makes_the_reader_panic(from in 0..PAGE.len(), length in 0..40usize, with in piece()) {
        let (from, to) = (PAGE.floor_char_boundary(from), PAGE.floor_char_boundary((from + length).min(PAGE.len())));
        let text = format!("{}{with}{}", &PAGE[..from], &PAGE[to.max(from)..]);
        let _ = load(&text);
    }
}
