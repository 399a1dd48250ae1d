//! Patterns against the vectors that Go tests its own matcher with, and against a backtracking oracle.

use super::*;

fn matches(pattern: &str, text: &str) -> bool {
    Glob::new(pattern).unwrap_or_else(|bad| panic!("{bad}")).matches(text)
}

#[test]
fn texts_match_as_in_go() {
    for (pattern, text, wanted) in [
        ("abc", "abc", true),
        ("", "", true),
        ("", "a", false),
        ("*", "", true),
        ("*", "abc", true),
        ("*c", "abc", true),
        ("a*", "a", true),
        ("a*", "abc", true),
        ("a*", "ab/c", false),
        ("a*/b", "abc/b", true),
        ("a*/b", "a/c/b", false),
        ("a*b*c*d*e*/f", "axbxcxdxe/f", true),
        ("a*b*c*d*e*/f", "axbxcxdxexxx/f", true),
        ("a*b*c*d*e*/f", "axbxcxdxe/xxx/f", false),
        ("a*b*c*d*e*/f", "axbxcxdxexxx/fff", false),
        ("a*b?c*x", "abxbbxdbxebxczzx", true),
        ("a*b?c*x", "abxbbxdbxebxczzy", false),
        ("ab[c]", "abc", true),
        ("ab[b-d]", "abc", true),
        ("ab[e-g]", "abc", false),
        ("ab[^c]", "abc", false),
        ("ab[^b-d]", "abc", false),
        ("ab[^e-g]", "abc", true),
        ("a\\*b", "a*b", true),
        ("a\\*b", "ab", false),
        ("a?b", "a\u{263a}b", true),
        ("a[^a]b", "a\u{263a}b", true),
        ("a???b", "a\u{263a}b", false),
        ("a[^a][^a][^a]b", "a\u{263a}b", false),
        ("[a-\u{3b6}]*", "\u{3b1}", true),
        ("*[a-\u{3b6}]", "A", false),
        ("a?b", "a/b", false),
        ("a*b", "a/b", false),
        ("[\\]a]", "]", true),
        ("[\\-]", "-", true),
        ("[x\\-]", "x", true),
        ("[x\\-]", "-", true),
        ("[x\\-]", "z", false),
        ("[\\-x]", "x", true),
        ("[\\-x]", "-", true),
        ("[\\-x]", "a", false),
        ("*x", "xxx", true),
        ("**", "abc", true),
        ("a**b", "axxb", true),
        ("a**", "a/b", false),
        ("]", "]", true),
        ("-", "-", true),
        ("^a", "^a", true),
        ("[a^]", "^", true),
        ("[z-a]", "m", false),
        ("[^z-a]", "m", true),
        ("[*]", "*", true),
        ("[*]x", "ax", false),
        ("[?]", "?", true),
        ("[[]", "[", true),
        ("[\\\\]", "\\", true),
        ("\\[a]", "[a]", true),
    ] {
        assert_eq!(matches(pattern, text), wanted, "{pattern:?} on {text:?}");
    }
}

#[test]
fn a_class_may_match_a_slash_and_a_piece_keeps_its_first_place() {
    assert!(matches("a[/]b", "a/b"));
    assert!(matches("a[^x]b", "a/b"));
    // Go commits to the first place of `[^x]`; the reading `aa`, `/`, `b` is never tried.
    assert!(!matches("*[^x]*b", "aa/b"));
}

#[test]
fn stars_and_marks_walk_code_points() {
    assert!(matches("*\u{263a}", "\u{263a}\u{263a}"));
    assert!(matches("?", "\u{263a}"));
    assert!(!matches("*??", "\u{263a}"), "no half character");
    assert!(matches("*??", "a\u{263a}"));
}

#[test]
fn malformed_patterns_are_refused_wherever_the_fault_is() {
    for pattern in [
        "[]a]", "[-]", "[x-]", "[-x]", "\\", "a\\", "[a-b-c]", "[", "[^", "[^bc", "a[", "a/b[", "*[",
        "a*b*[x-", "[]", "[^]", "[\\", "[a-\\", "[a-]", "[a",
    ] {
        let bad = Glob::new(pattern).expect_err(pattern);
        assert_eq!(bad.pattern, pattern);
    }
    assert_eq!(Glob::new("a[").unwrap_err().to_string(), "syntax error in pattern \"a[\"");
}

#[test]
fn the_page_s_model_patterns() {
    let name = "accounts/fireworks/models/llama-v3";
    assert!(!matches("llama*", name));
    assert!(matches("accounts/fireworks/models/llama*", name));
    assert!(matches("/v1/chat/*", "/v1/chat/completions"));
}

#[test]
fn many_stars_cost_no_exponential_time() {
    let pattern = format!("{}b", "a*".repeat(200));
    assert!(!matches(&pattern, &"a".repeat(20_000)));
    assert!(matches(&"*".repeat(10_000), &"a".repeat(1_000)));
}

#[test]
fn patterns_are_equal_as_written() {
    let one = Glob::new("gpt-*").unwrap();
    assert_eq!(one, one.clone());
    assert_ne!(one, Glob::new("gpt-**").unwrap());
    assert_eq!((one.pattern(), one.to_string().as_str()), ("gpt-*", "gpt-*"));
}

/// The meaning of a pattern, by trying everything. Agrees with Go's first-place rule wherever no class can match `/`.
fn oracle(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => {
            oracle(rest, text)
                || matches!(text, [first, after @ ..] if *first != '/' && oracle(pattern, after))
        }
        ['?', rest @ ..] => matches!(text, [first, after @ ..] if *first != '/' && oracle(rest, after)),
        ['[', 'a', '-', 'b', ']', rest @ ..] => {
            matches!(text, [first, after @ ..] if "ab".contains(*first) && oracle(rest, after))
        }
        ['\\', wanted, rest @ ..] | [wanted, rest @ ..] => {
            matches!(text, [first, after @ ..] if first == wanted && oracle(rest, after))
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4000))]
    #[test]
    fn every_match_is_what_trying_everything_says(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec!["*", "?", "a", "b", "/", "[a-b]", "\\*", "\u{e9}"]), 0..9),
        text in proptest::collection::vec(proptest::sample::select(vec!['a', 'b', '/', '*', '\u{e9}']), 0..10),
    ) {
        let pattern = pieces.concat();
        let letters: Vec<char> = pattern.chars().collect();
        let wanted = oracle(&letters, &text);
        proptest::prop_assert_eq!(matches(&pattern, &text.iter().collect::<String>()), wanted);
    }

    #[test]
    fn no_pattern_panics(pattern in "[\\[\\]\\\\*?^a-c/\\-\u{e9}]{0,12}", text in "[a-c/\u{e9}]{0,12}") {
        if let Ok(glob) = Glob::new(&pattern) {
            let _ = glob.matches(&text);
        }
    }
}
