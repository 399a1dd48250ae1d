//! Bodies as tables, and the scanner beside a naive oracle (serde_json) on random documents.

use super::body::{Asked, BodyError, BodyFacts, expected, read_body};
use super::capture::{Capture, Sink, Watch};
use super::rewrite::rewrite;
use super::scan::{ScanError, Scanner, Token};
use crate::bounds::{MAX_JSON_DEPTH, MAX_MODEL_BYTES};
use crate::endpoint::Endpoint;
use engine::{Expected, Tokens};
use proptest::prelude::*;

fn scan(bytes: &[u8]) -> Result<(), ScanError> {
    let mut scanner = Scanner::new(bytes)?;
    while scanner.token()? != Token::End {}
    Ok(())
}

/// Skipping the whole value must agree with walking it.
fn skip(bytes: &[u8]) -> Result<(), ScanError> {
    let mut scanner = Scanner::new(bytes)?;
    scanner.skip_value()?;
    scanner.token().map(|_| ())
}

#[test]
fn only_the_grammar_of_rfc_8259_is_json() {
    for (text, valid) in [
        ("{}", true),
        ("[]", true),
        (" \t\r\n{ } \n", true),
        ("\"\"", true),
        ("0", true),
        ("-0.5e+10", true),
        ("1E-2", true),
        ("true", true),
        ("[null,false,{\"a\":[1,{}]}]", true),
        ("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"", true),
        ("\"\\ud800\"", true),
        ("\"\u{7f}\u{e9}\u{1f600}\"", true),
        ("", false),
        (" ", false),
        ("{", false),
        ("[", false),
        ("[1", false),
        ("[1,", false),
        ("[1,]", false),
        ("[,1]", false),
        ("[1 2]", false),
        ("{,}", false),
        ("{\"a\"}", false),
        ("{\"a\":}", false),
        ("{\"a\":1,}", false),
        ("{\"a\" 1}", false),
        ("{a:1}", false),
        ("{1:1}", false),
        ("{'a':1}", false),
        ("[1}", false),
        ("{\"a\":1]", false),
        ("{} {}", false),
        ("{}x", false),
        ("]", false),
        ("01", false),
        ("-", false),
        ("-a", false),
        ("1.", false),
        (".5", false),
        ("1e", false),
        ("1e+", false),
        ("+1", false),
        ("0x1", false),
        ("NaN", false),
        ("Infinity", false),
        ("tru", false),
        ("truefalse", false),
        ("nul", false),
        ("\"", false),
        ("\"\\\"", false),
        ("\"\\x\"", false),
        ("\"\\u12\"", false),
        ("\"\\u12g4\"", false),
        ("\"\n\"", false),
        ("\"\u{1f}\"", false),
        ("\"\0\"", false),
        ("\u{feff}{}", false),
        ("// c\n{}", false),
    ] {
        assert_eq!(scan(text.as_bytes()).is_ok(), valid, "{text:?}");
        assert_eq!(skip(text.as_bytes()).is_ok(), valid, "skipping {text:?}");
    }
    for bytes in [&b"\"\xff\""[..], b"\"\xc3\"", b"\"\xed\xa0\x80\"", b"{\"\xc0\x80\":1}"] {
        assert!(scan(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn an_error_names_its_byte() {
    for (text, offset) in [("{\"a\":x}", 5), ("[1,]", 3), ("{}  x", 4), ("[\"a\u{1}\"]", 3), ("[1", 2)] {
        assert_eq!(scan(text.as_bytes()).unwrap_err().offset, offset, "{text:?}");
    }
}

#[test]
fn nesting_is_bounded_without_recursion() {
    for open in ["[", "{\"a\":"] {
        let close = if open == "[" { "]" } else { "}" };
        let nested = |depth: usize| format!("{}0{}", open.repeat(depth), close.repeat(depth));
        assert_eq!(scan(nested(MAX_JSON_DEPTH).as_bytes()), Ok(()));
        assert!(scan(nested(MAX_JSON_DEPTH + 1).as_bytes()).is_err());
        assert!(scan(open.repeat(1_000_000).as_bytes()).is_err());
    }
}

fn facts(body: &str) -> Result<BodyFacts, BodyError> {
    read_body(body.as_bytes(), Endpoint::ChatCompletions)
}

#[test]
fn a_body_that_cannot_be_governed_is_refused_with_its_reason() {
    let long = format!("{{\"model\":\"{}\"}}", "m".repeat(MAX_MODEL_BYTES + 1));
    for (body, wanted) in [
        ("", "not valid JSON"),
        ("{not json", "not valid JSON"),
        ("{\"model\":\"m\"} x", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ("\"m\"", "must be a JSON object"),
        ("[", "not valid JSON"),
        ("[[]]x", "not valid JSON"),
        ("{\"messages\": []}", "no member \"model\""),
        ("{\"metadata\":{\"model\":\"m\"}}", "no member \"model\""),
        ("{\"model\":1}", "\"model\" must be"),
        ("{\"model\":null}", "\"model\" must be"),
        ("{\"model\":[\"m\"]}", "\"model\" must be"),
        ("{\"model\":\"\"}", "\"model\" must be"),
        ("{\"model\":\"\\ud800\"}", "\"model\" must be"),
        (long.as_str(), "\"model\" must be"),
        ("{\"model\":\"a\",\"model\":\"b\"}", "\"model\" is given twice"),
        ("{\"model\":\"a\",\"mod\\u0065l\":\"b\"}", "\"model\" is given twice"),
        ("{\"model\":\"a\",\"Model\":\"b\"}", "differs from \"model\" only in case"),
        ("{\"model\":\"a\",\"\u{17f}tream\":true}", "differs from \"stream\" only in case"),
        ("{\"model\":\"a\",\"max_to\u{212a}ens\":9}", "differs from \"max_tokens\" only in case"),
        ("{\"model\":\"a\",\"\\u017ftream\":true}", "differs from \"stream\" only in case"),
        ("{\"model\":\"a\",\"stream\":false,\"stream\":true}", "\"stream\" is given twice"),
        ("{\"model\":\"a\",\"stream\":null,\"stream\":true}", "\"stream\" is given twice"),
        ("{\"model\":\"a\",\"n\":1,\"n\":9}", "\"n\" is given twice"),
        ("{\"model\":\"a\",\"max_tokens\":1,\"max_tokens\":9}", "\"max_tokens\" is given twice"),
        ("{\"model\":\"a\",\"max_completion_tokens\":1,\"max_completion_tokens\":9}", "given twice"),
        ("{\"model\":\"a\",\"max_output_tokens\":1,\"max_output_tokens\":9}", "given twice"),
        ("{\"model\":\"a\",\"n_predict\":1,\"n_predict\":9}", "given twice"),
        ("{\"model\":\"a\",\"stream_options\":{},\"stream_options\":{}}", "given twice"),
        ("{\"model\":\"a\",\"stream\":\"true\"}", "\"stream\" must be"),
        ("{\"model\":\"a\",\"stream\":1}", "\"stream\" must be"),
        ("{\"model\":\"a\",\"n\":0}", "\"n\" must be"),
        ("{\"model\":\"a\",\"n\":-1}", "\"n\" must be"),
        ("{\"model\":\"a\",\"n\":1.5}", "\"n\" must be"),
        ("{\"model\":\"a\",\"n\":1e3}", "\"n\" must be"),
        ("{\"model\":\"a\",\"n\":\"2\"}", "\"n\" must be"),
        ("{\"model\":\"a\",\"n\":[2]}", "\"n\" must be"),
        ("{\"model\":\"a\",\"max_tokens\":-1}", "\"max_tokens\" must be"),
        ("{\"model\":\"a\",\"max_tokens\":1.0}", "\"max_tokens\" must be"),
        ("{\"model\":\"a\",\"max_tokens\":\"9\"}", "\"max_tokens\" must be"),
        ("{\"model\":\"a\",\"max_tokens\":{}}", "\"max_tokens\" must be"),
        ("{\"model\":\"a\",\"stream_options\":[]}", "\"stream_options\" must be"),
        ("{\"model\":\"a\",\"options\":{\"num_predict\":1.5}}", "\"num_predict\" must be"),
    ] {
        let error = facts(body).expect_err(body).to_string();
        assert!(error.contains(wanted), "{}: {error}", &body[..body.len().min(80)]);
    }
}

#[test]
fn every_governed_name_is_known_in_any_spelling() {
    for name in [
        "model",
        "stream",
        "n",
        "stream_options",
        "max_completion_tokens",
        "max_tokens",
        "max_output_tokens",
        "n_predict",
        "num_predict",
    ] {
        let (first, rest) = name.split_at(1);
        let capital = first.to_ascii_uppercase() + rest;
        for key in
            [capital.clone(), name.to_ascii_uppercase(), format!("\\u{:04X}{rest}", capital.as_bytes()[0])]
        {
            for body in [format!("{{\"{key}\":1}}"), format!("{{\"\u{e9}\":1,\"{key}\":1}}")] {
                assert_eq!(facts(&body), Err(BodyError::Misspelt(name)), "{body}");
            }
        }
        for key in [format!("{name}_"), format!("_{name}"), rest.to_owned(), name.replace(first, "\u{e9}")] {
            let body = format!("{{\"{key}\":[],\"model\":\"m\"}}");
            assert!(facts(&body).is_ok(), "{body}");
        }
    }
}

#[test]
fn what_is_ambiguous_further_down_is_the_backends_own_affair() {
    for body in [
        "{\"model\":\"m\",\"metadata\":{\"model\":\"a\",\"model\":\"b\",\"n\":1,\"n\":2,\"Model\":3}}",
        "{\"model\":\"m\",\"messages\":[{\"content\":\"x\",\"content\":\"y\"}]}",
        "{\"model\":\"m\",\"x\":1,\"x\":2,\"models\":3,\"nn\":4,\"\u{e9}\":5,\"\\ud800\":6}",
        "{\"model\":\"m\",\"messages\":[],\"messages\":[]}",
    ] {
        assert!(facts(body).is_ok(), "{body}");
    }
}

#[test]
fn a_body_says_its_model_its_stream_and_its_caps() {
    // body, model, stream, n, output cap
    for (body, model, stream, n, cap) in [
        ("{\"model\":\"m\"}", "m", false, 1, None),
        (" { \"model\" : \"a/b-c\" , \"stream\" : true } ", "a/b-c", true, 1, None),
        ("{\"model\":\"m\\u00e9\\n\"}", "m\u{e9}\n", false, 1, None),
        ("{\"m\\u006fdel\":\"m\"}", "m", false, 1, None),
        ("{\"model\":\"\u{1f600}\",\"n\":3}", "\u{1f600}", false, 3, None),
        ("{\"model\":\"m\",\"n\":null,\"stream\":null,\"max_tokens\":null}", "m", false, 1, None),
        ("{\"model\":\"m\",\"max_tokens\":0}", "m", false, 1, Some(0)),
        ("{\"model\":\"m\",\"max_tokens\":-0}", "m", false, 1, Some(0)),
        ("{\"model\":\"m\",\"max_tokens\":5,\"max_completion_tokens\":7}", "m", false, 1, Some(7)),
        ("{\"model\":\"m\",\"max_tokens\":9,\"max_output_tokens\":7}", "m", false, 1, Some(9)),
        ("{\"model\":\"m\",\"n_predict\":4}", "m", false, 1, Some(4)),
        ("{\"model\":\"m\",\"n_predict\":-1}", "m", false, 1, None),
        ("{\"model\":\"m\",\"num_predict\":4}", "m", false, 1, Some(4)),
        ("{\"model\":\"m\",\"options\":{\"seed\":[1],\"num_predict\":6}}", "m", false, 1, Some(6)),
        ("{\"model\":\"m\",\"options\":{\"num_predict\":-2}}", "m", false, 1, None),
        ("{\"model\":\"m\",\"options\":null}", "m", false, 1, None),
        ("{\"model\":\"m\",\"options\":[{\"num_predict\":6}]}", "m", false, 1, None),
        (
            "{\"model\":\"m\",\"max_tokens\":99999999999999999999999,\"n\":99999999999999999999}",
            "m",
            false,
            u64::MAX,
            Some(u64::MAX),
        ),
    ] {
        let found = facts(body).expect(body);
        assert_eq!(found.model(body.as_bytes()), model, "{body}");
        assert_eq!((found.stream, found.n, found.output_cap), (stream, n, cap), "{body}");
    }
    let ollama = |body: &str| read_body(body.as_bytes(), Endpoint::OllamaChat).unwrap().stream;
    assert!(ollama("{\"model\":\"m\"}"));
    assert!(!ollama("{\"model\":\"m\",\"stream\":false}"));
}

#[test]
fn the_prompt_is_every_text_and_nothing_else() {
    for (members, bytes) in [
        ("\"x\":1", 0),
        ("\"prompt\":\"abc\"", 3),
        ("\"prompt\":\"\\u00e9\\ud83d\\ude00\\n\\\"\"", 8),
        ("\"prompt\":\"\\ud800x\"", 4),
        ("\"prompt\":\"\\ud800\\ud83d\\ude00\"", 7),
        ("\"prompt\":\"\\ud83d\\ude00\\ude00\"", 7),
        ("\"prompt\":\"\\ud83d\\n\\ude00\"", 7),
        ("\"prompt\":\"\\u007f\\u0080\\u07ff\\u0800\\uffff\\/\\\\\"", 13),
        ("\"prompt\":\"\u{e9}\"", 2),
        ("\"prompt\":[\"ab\",\"cde\"]", 5),
        ("\"prompt\":[1,22,333]", 12),
        ("\"prompt\":[[1,2],[3]]", 12),
        ("\"input\":[\"ab\",[\"c\"]]", 3),
        ("\"prompt\":null", 0),
        ("\"prompt\":7", 0),
        ("\"system\":\"ab\",\"prompt\":\"cd\"", 4),
        ("\"system\":[{\"type\":\"text\",\"text\":\"abc\",\"cache_control\":{\"type\":\"ephemeral\"}}]", 3),
        ("\"messages\":[{\"role\":\"user\",\"content\":\"abc\"},{\"role\":\"tool\",\"content\":\"de\"}]", 5),
        ("\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"abc\"}]}]", 3),
        (
            "\"messages\":[{\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,AAAA\"}},\
             {\"type\":\"text\",\"text\":\"ab\"}]}]",
            2,
        ),
        ("\"messages\":[{\"content\":null,\"tool_calls\":[{\"function\":{\"arguments\":\"{}\"}}]}]", 0),
        (
            "\"messages\":[{\"content\":[{\"type\":\"tool_result\",\"content\":[{\"type\":\"text\",\"text\":\"ab\"}]}]}]",
            2,
        ),
        ("\"messages\":[{\"content\":[{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"AAAA\"}}]}]", 0),
        ("\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"abcd\"}]}]", 4),
        (
            "\"input\":[{\"content\":[{\"type\":\"input_image\",\"image_url\":\"data:image/png;base64,A\"}]}]",
            0,
        ),
        ("\"input\":\"data:image/png;base64,AAAAAAAA\"", 0),
        ("\"input\":\"data: is plural, is it not\"", 26),
        ("\"tools\":[{\"function\":{\"description\":\"abc\",\"text\":\"d\"}}]", 0),
        ("\"metadata\":{\"content\":\"abc\"}", 0),
        ("\"messages\":[{\"content\":\"abc\"}],\"messages\":[{\"content\":\"de\"}]", 5),
        ("\"Messages\":[{\"content\":\"abc\"}]", 3),
        ("\"messages\":{\"content\":\"abc\"}", 3),
        ("\"messages\":[{\"text\":{\"value\":\"abc\"}}]", 0),
    ] {
        for body in [format!("{{\"model\":\"m\",{members}}}"), format!("{{{members},\"model\":\"m\"}}")] {
            let found = facts(&body).unwrap_or_else(|error| panic!("{body}: {error}"));
            assert_eq!(found.prompt_bytes, bytes, "{body}");
            assert_eq!(found.model(body.as_bytes()), "m", "{body}");
        }
    }
}

#[test]
fn an_estimate_is_the_prompt_and_n_times_the_cap() {
    // members, output hold, model's maximum, input, output
    for (members, hold, maximum, input, output) in [
        ("\"x\":1", 256, None, 0, 256),
        ("\"prompt\":\"a\"", 256, None, 1, 256),
        ("\"prompt\":\"abcd\"", 256, None, 1, 256),
        ("\"prompt\":\"abcde\"", 256, None, 2, 256),
        ("\"max_tokens\":10", 256, None, 0, 10),
        ("\"max_tokens\":10,\"n\":3", 256, None, 0, 30),
        ("\"n\":3", 256, None, 0, 768),
        ("\"max_tokens\":0", 256, None, 0, 0),
        ("\"max_tokens\":1000", 256, Some(100), 0, 100),
        ("\"max_tokens\":99999999999999999999,\"n\":2", 256, None, 0, u64::MAX),
        ("\"prompt\":[1,2,3]", 5, None, 3, 5),
    ] {
        let found = facts(&format!("{{\"model\":\"m\",{members}}}")).unwrap();
        for (endpoint, images) in [(Endpoint::ChatCompletions, 0), (Endpoint::ImagesGenerations, found.n)] {
            let made = expected(&found, endpoint, Tokens(hold), maximum.map(Tokens));
            let wanted = Expected { input: Tokens(input), output: Tokens(output), images, characters: 0 };
            assert_eq!(made, wanted, "{members}");
        }
    }
}

#[test]
fn characters_are_counted_where_they_are_paid() {
    for (input, characters) in [
        ("\"abc\"", 3),
        ("\"héllo\"", 5),
        (r#""h\u00e9llo \ud83d\ude00""#, 7),
        (r#""\ud83d""#, 3),
        ("\"\"", 0),
        ("[\"ab\",\"c\"]", 3),
    ] {
        let body = format!("{{\"model\":\"tts\",\"input\":{input}}}");
        for (endpoint, wanted) in [(Endpoint::AudioSpeech, characters), (Endpoint::Embeddings, 0)] {
            let found = read_body(body.as_bytes(), endpoint).unwrap();
            assert_eq!(found.characters, wanted, "{body}");
            assert_eq!(expected(&found, endpoint, Tokens(0), None).characters, wanted, "{body}");
        }
    }
}

#[test]
fn a_rewrite_touches_its_spans_and_no_other_byte() {
    // body, served model, ask for usage, wanted
    for (body, served, ask, wanted) in [
        ("{\"model\":\"a\"}", None, false, None),
        ("{\"model\":\"a\"}", Some("a"), false, None),
        ("{\"model\":\"a\"}", Some("b"), false, Some("{\"model\":\"b\"}")),
        ("{\"model\":\"\\u0061\"}", Some("a"), false, None),
        ("{\"model\":\"\\u0061\"}", Some("b\"\\\u{1}"), false, Some("{\"model\":\"b\\\"\\\\\\u0001\"}")),
        (
            "{\"z\":1, \"metadata\":{\"model\":\"a\"},\n \"model\": \"a\" , \"seed\":12345678901234567890.50}  ",
            Some("tiny"),
            false,
            Some(
                "{\"z\":1, \"metadata\":{\"model\":\"a\"},\n \"model\": \"tiny\" , \"seed\":12345678901234567890.50}  ",
            ),
        ),
        (
            "{\"model\":\"a\"}",
            None,
            true,
            Some("{\"stream_options\":{\"include_usage\":true},\"model\":\"a\"}"),
        ),
        (
            " { \"model\":\"a\"}",
            Some("b"),
            true,
            Some(" {\"stream_options\":{\"include_usage\":true}, \"model\":\"b\"}"),
        ),
        (
            "{\"model\":\"a\",\"stream_options\":null}",
            Some("b"),
            true,
            Some("{\"model\":\"b\",\"stream_options\":{\"include_usage\":true}}"),
        ),
        (
            "{\"stream_options\":{},\"model\":\"a\"}",
            Some("b"),
            true,
            Some("{\"stream_options\":{\"include_usage\":true},\"model\":\"b\"}"),
        ),
        (
            "{\"stream_options\":{ \"x\":[{}]},\"model\":\"a\"}",
            None,
            true,
            Some("{\"stream_options\":{\"include_usage\":true, \"x\":[{}]},\"model\":\"a\"}"),
        ),
        (
            "{\"stream_options\":{\"include_usage\":false,\"x\":1},\"model\":\"a\"}",
            None,
            true,
            Some("{\"stream_options\":{\"include_usage\":true,\"x\":1},\"model\":\"a\"}"),
        ),
        (
            "{\"stream_options\":{\"include_usage\":{\"a\":[1]} ,\"x\":1},\"model\":\"a\"}",
            None,
            true,
            Some("{\"stream_options\":{\"include_usage\":true ,\"x\":1},\"model\":\"a\"}"),
        ),
        (
            "{\"stream_options\":{\"include_usage\":[1,2]},\"model\":\"a\"}",
            None,
            true,
            Some("{\"stream_options\":{\"include_usage\":true},\"model\":\"a\"}"),
        ),
        (
            "{\"stream_options\":{\"include_usage\":\"yes\"},\"model\":\"a\"}",
            None,
            true,
            Some("{\"stream_options\":{\"include_usage\":true},\"model\":\"a\"}"),
        ),
        ("{\"stream_options\":{\"include_usage\":true},\"model\":\"a\"}", None, true, None),
        ("{\"stream_options\":{\"include\\u005fusage\":true},\"model\":\"a\"}", None, true, None),
    ] {
        let found = facts(body).expect(body);
        let made = rewrite(body.as_bytes(), &found, served, ask);
        let made = made.map(|made| String::from_utf8(made).unwrap());
        assert_eq!(made.as_deref(), wanted, "{body}");
        let Some(made) = made else { continue };
        let again = facts(&made).expect(&made);
        assert_eq!(again.model(made.as_bytes()), served.unwrap_or(found.model(body.as_bytes())));
        assert_eq!(again.include_usage, if ask { Asked::Yes } else { found.include_usage }, "{made}");
    }
}

#[test]
fn a_body_of_64_mebibytes_is_read_in_one_pass() {
    let text = "word ".repeat(64 * 1024 * 1024 / 5);
    let body = format!("{{\"model\":\"m\",\"prompt\":\"{text}\"}}");
    assert_eq!(facts(&body).unwrap().prompt_bytes, text.len() as u64);
    let escaped = format!("{{\"model\":\"m\",\"prompt\":\"{}\"}}", "\\n".repeat(1024 * 1024));
    assert_eq!(facts(&escaped).unwrap().prompt_bytes, 1024 * 1024);
}

/// Everything the watcher saw, in order.
#[derive(Default, Debug, PartialEq, Eq)]
struct Seen {
    found: Vec<(u8, String)>,
    text: u64,
}

impl Sink for Seen {
    fn number(&mut self, slot: u8, text: &[u8]) {
        self.found.push((slot, String::from_utf8(text.to_vec()).unwrap()));
    }
    fn text(&mut self, _: u8, bytes: u64) {
        self.text += bytes;
    }
    fn object(&mut self, slot: u8) {
        self.found.push((slot, "{".into()));
    }
    fn empty_array(&mut self, slot: u8) {
        self.found.push((slot, "[]".into()));
    }
}

static LEAF: Watch = Watch::new(Some(1), &[], None);
static INNER: Watch = Watch::new(Some(2), &[("n", &LEAF), ("t", &LEAF)], None);
static LIST: Watch = Watch::new(Some(3), &[], Some(&INNER));
static ROOT: Watch = Watch::new(None, &[("a", &INNER), ("l", &LIST)], None);

#[test]
fn a_capture_reports_the_same_in_any_pieces() {
    for (document, found, text) in [
        ("{\"a\":{\"n\":12}}", &[(2, "{"), (1, "12")][..], 0),
        (" { \"a\" : { \"x\" : [ 1 , { \"n\" : 9 } ] , \"n\" : -1.5e3 } } ", &[(2, "{"), (1, "-1.5e3")], 0),
        ("{\"\\u0061\":{\"n\":0}}", &[(2, "{"), (1, "0")], 0),
        ("{\"b\":{\"n\":1},\"a\":null,\"n\":2}", &[], 0),
        ("{\"l\":[]}", &[(3, "[]")], 0),
        ("{\"l\":[ ],\"a\":{}}", &[(3, "[]"), (2, "{")], 0),
        ("{\"l\":[{\"n\":1},[{\"n\":2}],{\"n\":3}]}", &[(2, "{"), (1, "1"), (2, "{"), (1, "3")], 0),
        ("{\"a\":{\"t\":\"ab\\n\\u00e9\\u20ac\\ud83d\\ude00\u{e9}\",\"u\":\"no\"}}", &[(2, "{")], 14),
        ("{\"a\":{\"t\":\"\\ud83dx\\ud83d\\ude00\\\\\\/\\u0041\\u07FF\\uffff\"}}", &[(2, "{")], 15),
        ("{\"a\":{\"n\":[1],\"t\":{\"n\":5}}}", &[(2, "{"), (1, "{")], 0),
        ("{\"a\":{\"n\":1}}{\"a\":{\"n\":2}}", &[(2, "{"), (1, "1"), (2, "{"), (1, "2")], 0),
        ("[{\"a\":{\"n\":1}}]", &[], 0),
        ("{\"a\":{\"n\":1", &[(2, "{")], 0),
        ("{\"a\":{\"n\":true,\"n\":\"x\"}}", &[(2, "{")], 1),
        ("[DONE]", &[], 0),
        ("{\"a\" {\"n\":1}}", &[], 0),
        ("{\"a]\":\"]}\",\"a\":{\"n\":7}}", &[(2, "{"), (1, "7")], 0),
        (
            "{\"a_name_that_is_longer_than_any_that_is_watched\":{\"n\":1},\"a\":{\"n\":7}}",
            &[(2, "{"), (1, "7")],
            0,
        ),
    ] {
        for step in 1..=document.len() {
            let (mut capture, mut seen) = (Capture::new(&ROOT), Seen::default());
            for piece in document.as_bytes().chunks(step) {
                capture.feed(piece, &mut seen);
            }
            let wanted: Vec<_> = found.iter().map(|(slot, text)| (*slot, (*text).to_owned())).collect();
            assert_eq!(seen, Seen { found: wanted, text }, "{document} in pieces of {step}");
        }
    }
}

#[test]
fn a_capture_finds_its_way_out_of_the_deepest_containers() {
    for depth in [1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 500, MAX_JSON_DEPTH - 1] {
        let opening: String =
            (0..depth).map(|level: usize| if level.is_multiple_of(3) { "{\"a\":" } else { "[" }).collect();
        let closing: String =
            (0..depth).rev().map(|level: usize| if level.is_multiple_of(3) { '}' } else { ']' }).collect();
        let document = format!("{{\"x\":{opening}1{closing},\"a\":{{\"n\":7}}}}");
        for step in [1, 3, document.len()] {
            let (mut capture, mut seen) = (Capture::new(&ROOT), Seen::default());
            for piece in document.as_bytes().chunks(step) {
                capture.feed(piece, &mut seen);
            }
            assert_eq!(seen.found, [(2, "{".to_owned()), (1, "7".to_owned())], "{depth} in pieces of {step}");
        }
    }
}

#[test]
fn a_capture_survives_hostile_documents() {
    let deep = "[".repeat(5000);
    let digits = format!("{{\"a\":{{\"n\":{}}}}}", "9".repeat(5000));
    for (document, found) in [(deep.as_str(), 0), (digits.as_str(), 2), ("}}}]]],,,:::", 0)] {
        let (mut capture, mut seen) = (Capture::new(&ROOT), Seen::default());
        capture.feed(document.as_bytes(), &mut seen);
        assert_eq!(seen.found.len(), found);
        capture.restart();
        capture.feed(b"{\"a\":{\"n\":1}}", &mut seen);
        assert_eq!(seen.found.len(), found + 2, "it starts over");
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    json_with("(content|text|[a-z\"\u{e9}]{0,4})")
}

/// Documents with names of that pattern.
fn json_with(names: &'static str) -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "[ -~\u{e9}\u{1f600}\n\"\\\\]{0,40}".prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            proptest::collection::vec((names, inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

/// What `prompt_bytes` should be, on a tree.
fn naive_prompt(value: &serde_json::Value, in_array: bool) -> u64 {
    match value {
        serde_json::Value::String(text) => text.len() as u64,
        serde_json::Value::Number(_) if in_array => 4,
        serde_json::Value::Array(items) => items.iter().map(|item| naive_prompt(item, true)).sum(),
        serde_json::Value::Object(members) => ["content", "text"]
            .iter()
            .filter_map(|name| members.get(*name))
            .map(|value| naive_prompt(value, false))
            .sum(),
        _ => 0,
    }
}

/// What a watch with that slot should report of a value itself.
fn naive_value(value: &serde_json::Value, slot: u8, seen: &mut Seen) {
    match value {
        serde_json::Value::Number(number) => seen.number(slot, number.to_string().as_bytes()),
        serde_json::Value::String(text) => seen.text(slot, text.len() as u64),
        serde_json::Value::Object(_) => seen.object(slot),
        serde_json::Value::Array(items) if items.is_empty() => seen.empty_array(slot),
        _ => {}
    }
}

/// What INNER should report, on a tree.
fn naive_inner(value: &serde_json::Value, seen: &mut Seen) {
    naive_value(value, 2, seen);
    for (name, value) in value.as_object().into_iter().flatten() {
        if matches!(name.as_str(), "n" | "t") {
            naive_value(value, 1, seen);
        }
    }
}

/// What ROOT should report, on a tree.
fn naive_root(document: &serde_json::Value) -> Seen {
    let mut seen = Seen::default();
    for (name, value) in document.as_object().into_iter().flatten() {
        if name == "a" {
            naive_inner(value, &mut seen);
        } else if name == "l" {
            naive_value(value, 3, &mut seen);
            value.as_array().into_iter().flatten().for_each(|item| naive_inner(item, &mut seen));
        }
    }
    seen
}

fn captured<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let (mut capture, mut seen) = (Capture::new(&ROOT), Seen::default());
    pieces.into_iter().for_each(|piece| capture.feed(piece, &mut seen));
    seen
}

proptest! {
    /// The marks between names and values are read together where they are together, and one by one where a piece ends.
    #[test]
    fn a_capture_agrees_with_a_tree_walk_and_with_itself_in_pieces(
        document in json_with("(a|l|n|t|[a-z\"\\\\]{0,40})"),
        is_pretty: bool,
        cut in any::<prop::sample::Index>(),
        byte in prop_oneof![proptest::sample::select(&b"\"\\{}[],:0-e \n"[..]), any::<u8>()],
    ) {
        let mut text = if is_pretty { format!("{document:#}") } else { document.to_string() }.into_bytes();
        prop_assert_eq!(captured([&text[..]]), naive_root(&document));
        for _ in 0..2 {
            let whole = captured([&text[..]]);
            for step in [1, 2, 3, 7, 16] {
                prop_assert_eq!(&captured(text.chunks(step)), &whole, "in pieces of {}: {}", step, text.escape_ascii());
            }
            let at = cut.index(text.len());
            let (one, other) = text.split_at(at);
            prop_assert_eq!(&captured([one, other]), &whole, "cut at {}: {}", at, text.escape_ascii());
            text[at] = byte; // once more, with one byte changed
        }
    }

    #[test]
    fn the_scanner_agrees_with_a_tree_parser(document in json(), cut in any::<prop::sample::Index>(), byte: u8) {
        let text = document.to_string();
        prop_assert_eq!(scan(text.as_bytes()), Ok(()));
        prop_assert!(skip(text.as_bytes()).is_ok());
        // One byte changed: both still agree on what is JSON (but for lone surrogates, which only JSON's
        // grammar allows).
        let mut bytes = text.into_bytes();
        let at = cut.index(bytes.len());
        bytes[at] = byte;
        let oracle = serde_json::from_slice::<serde_json::Value>(&bytes);
        let surrogate = oracle.as_ref().is_err_and(|error| error.to_string().contains("surrogate"));
        if !surrogate {
            prop_assert_eq!(scan(&bytes).is_ok(), oracle.is_ok(), "{:?}", String::from_utf8_lossy(&bytes));
        }
        prop_assert_eq!(scan(&bytes).is_ok(), skip(&bytes).is_ok());
        let _ = scan(&bytes[..at]);
    }

    #[test]
    fn the_prompt_agrees_with_a_tree_walk(document in json()) {
        let body = format!("{{\"model\":\"m\",\"input\":{document}}}");
        prop_assert_eq!(facts(&body).unwrap().prompt_bytes, naive_prompt(&document, false), "{}", body);
    }
}
