//! What operators write: the config, its patterns, price maps.

use std::path::Path;

use control::config::{Config, Credentials};
use engine::{Expected, Glob, Tokens, Usage};
use fuzz::fuzz;

/// A config or errors with their places, the same each time; and what is right can be armed or says why not.
#[test]
fn config() {
    let words = &[
        "\n", "  ", "- ", ": ", "{ ", " }", "[", "]", "\"", "'", "#", "&a ", "*a", "!!str ", "${HOME}", "${",
        "no", "007", ".inf", "1e400", "-1", "~", "|\n", "limits:", "prices:", "above:", "routes:", "\t",
        "\u{feff}", "---\n",
    ];
    fuzz("config", words, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let environment = |name: &str| (name == "HOME").then(|| "x".to_owned());
        let parse =
            || Config::parse(text, Path::new("/nowhere/at/all.yaml"), Credentials::Unused, &environment);
        match (parse(), parse()) {
            (Ok(first), Ok(second)) => {
                assert_eq!(first.warnings, second.warnings);
                _ = control::arm::arm(1, &first.config, &Default::default(), &[]);
            }
            (Err(first), Err(second)) => {
                assert_eq!((&first.errors, &first.warnings), (&second.errors, &second.warnings));
                assert!(!first.errors.is_empty() && first.errors.iter().all(|error| error.line >= 1));
            }
            _ => panic!("once right and once wrong"),
        }
    });
}

/// Go's `path.Match`, as slowly as it can be written down. `None`: the pattern is wrong where the match gets to.
fn naive(pattern: &[char], text: &[char]) -> Option<bool> {
    let Some((first, rest)) = pattern.split_first() else { return Some(text.is_empty()) };
    match first {
        '*' => {
            let mut result = Some(false);
            for taken in 0..=text.len() {
                if text[..taken].contains(&'/') {
                    break;
                }
                match naive(rest, &text[taken..]) {
                    Some(true) => return Some(true),
                    None => result = None,
                    Some(false) => {}
                }
            }
            result
        }
        '?' => match text.split_first() {
            Some((one, left)) if *one != '/' => naive(rest, left),
            _ => Some(false),
        },
        '[' | '\\' => None,
        literal => match text.split_first() {
            Some((one, left)) if one == literal => naive(rest, left),
            _ => Some(false),
        },
    }
}

/// Patterns of stars, question marks and letters match as the plain definition says; all others match something or nothing.
#[test]
fn glob() {
    let words = &["*", "?", "[a-z]", "[^a]", "\\*", "[", "]", "-", "/", "\n", "é", "**"];
    fuzz("glob", words, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let (pattern, subject) = text.split_once('\n').unwrap_or((text, ""));
        if pattern.len() > 40 || subject.len() > 40 {
            return;
        }
        let Ok(glob) = Glob::new(pattern) else { return };
        let matches = glob.matches(subject);
        let plain = pattern.chars().filter(|one| *one == '*').count() <= 4 && !pattern.contains(['[', '\\']);
        if plain {
            let [pattern, subject] = [pattern, subject].map(|text| text.chars().collect::<Vec<_>>());
            assert_eq!(Some(matches), naive(&pattern, &subject));
        }
    });
}

/// A price map is taken or refused with a message that names the file, and every price in it can be paid.
#[test]
fn price_map() {
    let words = &[
        "\"input_cost_per_token\":",
        "\"output_cost_per_token_above_200k_tokens\":",
        "_above_99999999999999999999k_tokens",
        "\"tiered_pricing\":[",
        "\"range\":[0,1]",
        "1e-30",
        "1e30",
        "-1",
        "null",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"",
        ":",
        "1.5e-07",
        "\"mode\":\"audio_speech\"",
        "\"max_output_tokens\":",
        "_priority",
        "99999999999999999999999999",
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prices.json");
    let at = folder.path().join("gateway.yaml");
    let text = "prices: { file: prices.json }\nroutes: [ { model: m, provider: p } ]\n\
                providers: [ { id: p, api: openai, base_urls: [ \"http://127.0.0.1:1\" ] } ]\n";
    fuzz("price_map", words, |input| {
        std::fs::write(&file, input).expect("written");
        match Config::parse(text, &at, Credentials::Unused, &|_| None) {
            Err(rejected) => assert!(
                rejected.errors.iter().all(|error| error.path == "prices.file"),
                "{:?}",
                rejected.errors
            ),
            Ok(loaded) => {
                assert!(loaded.warnings.len() <= 1);
                let Some(price) = loaded.config.prices.find("m") else { return };
                for tokens in [0, 1, 200_001, u64::MAX] {
                    let all = Tokens(tokens);
                    let usage = Usage {
                        input: all,
                        cached_input: all,
                        output: all,
                        reasoning: all,
                        ..Usage::default()
                    };
                    let expected = Expected { input: all, output: all, ..Expected::default() };
                    assert!(price.cost(&usage) <= price.estimate(&expected));
                }
            }
        }
    });
}
