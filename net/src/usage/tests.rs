//! Dialects as a table; every row is also fed in pieces of every size, and with withholding on.

use super::sse::{EventStream, Piece};
use super::*;
use crate::bounds::MAX_WITHHELD_EVENT_BYTES;
use crate::endpoint::Dialect;
use engine::{Tokens, Usage};

/// What came out, the usage, and the text bytes, of a body fed in pieces of `step`.
fn run(
    dialect: Dialect,
    kind: BodyKind,
    withhold: bool,
    body: &[u8],
    step: usize,
) -> (Vec<u8>, Option<Usage>, u64) {
    let (mut tap, mut out) = (Tap::new(dialect, kind, withhold), Vec::new());
    for chunk in body.chunks(step.max(1)) {
        if tap.feed(chunk, &mut out) == Relay::Chunk {
            out.extend_from_slice(chunk);
        }
    }
    tap.finish(&mut out);
    (out, tap.usage(), tap.seen().text_bytes)
}

fn usage(input: u64, cached: u64, output: u64) -> Option<Usage> {
    Some(Usage {
        input: Tokens(input),
        cached_input: Tokens(cached),
        output: Tokens(output),
        ..Usage::default()
    })
}

fn check(dialect: Dialect, kind: BodyKind, body: &str, wanted: Option<Usage>) {
    for step in 1..=body.len().clamp(1, 200) {
        for withhold in [false, true] {
            let (out, found, _) = run(dialect, kind, withhold, body.as_bytes(), step);
            assert_eq!(found, wanted, "{body} in pieces of {step}");
            if !withhold {
                assert_eq!(out, body.as_bytes(), "{body} in pieces of {step}");
            }
        }
    }
}

#[test]
fn usage_is_what_the_body_reports() {
    use Dialect::{Anthropic, Ollama, OpenAi, Responses};
    let max = u64::MAX;
    for (dialect, body, wanted) in [
        (OpenAi, r#"{"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}"#, usage(7, 0, 5)),
        (OpenAi, r#"{"usage":{"prompt_tokens":7,"total_tokens":7}}"#, usage(7, 0, 0)),
        (OpenAi, r#"{"usage":{"prompt_tokens":7,"total_tokens":9}}"#, usage(7, 0, 2)),
        (OpenAi, r#"{"usage":{"total_tokens":9}}"#, usage(9, 0, 0)),
        (OpenAi, r#"{"usage":{"completion_tokens":5}}"#, usage(0, 0, 5)),
        (OpenAi, r#"{"usage":{"completion_tokens":5,"total_tokens":9}}"#, usage(4, 0, 5)),
        (OpenAi, r#"{"usage":{"prompt_tokens":0,"completion_tokens":0}}"#, usage(0, 0, 0)),
        (OpenAi, r#"{"usage":{"prompt_tokens":1}}"#, usage(1, 0, 0)),
        (
            OpenAi,
            r#"{"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}}"#,
            usage(9, 4, 1),
        ),
        (
            OpenAi,
            r#"{"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}"#,
            usage(3, 3, 0),
        ),
        (OpenAi, r#"{"usage":{"prompt_tokens":3,"cache_read_input_tokens":2}}"#, usage(3, 0, 0)),
        (OpenAi, r#"{"usage":{"input_tokens":3,"output_tokens":2}}"#, usage(3, 0, 2)),
        (OpenAi, r#"{"usage":null}"#, None),
        (OpenAi, r#"{"usage":{}}"#, None),
        (OpenAi, r#"{"usage":[]}"#, None),
        (OpenAi, r#"{"choices":[{"usage":{"prompt_tokens":7}}]}"#, None),
        (OpenAi, r#"{"x":{"usage":{"prompt_tokens":7}}}"#, None),
        (OpenAi, r#"{"usage":{"prompt_tokens":"7"}}"#, None),
        (OpenAi, r#"{"usage":{"prompt_tokens":-7}}"#, None),
        (OpenAi, r#"{"usage":{"prompt_tokens":5,"prompt_tokens":-7}}"#, usage(5, 0, 0)),
        (OpenAi, r#"{"usage":{"prompt_tokens":5,"prompt_tokens":null}}"#, usage(5, 0, 0)),
        (OpenAi, r#"{"usage":{"prompt_tokens":2.5}}"#, usage(3, 0, 0)),
        (OpenAi, r#"{"usage":{"prompt_tokens":5,"prompt_tokens":2.5}}"#, usage(5, 0, 0)),
        (OpenAi, r#"{"usage":{"prompt_tokens":1e3}}"#, usage(1000, 0, 0)),
        (OpenAi, r#"{"usage":{"prompt_tokens":1e999}}"#, usage(max, 0, 0)),
        (OpenAi, r#"{"usage":{"prompt_tokens":99999999999999999999999}}"#, usage(max, 0, 0)),
        (
            OpenAi,
            r#"{"usage":{"prompt_tokens":99999999999999999999999999999999999999999999999999}}"#,
            usage(max, 0, 0),
        ),
        (OpenAi, r#"{"\u0075sage":{"prompt\u005ftokens":7}}"#, usage(7, 0, 0)),
        (OpenAi, r#"{"timings":{"prompt_n":3,"cache_n":2,"predicted_n":4}}"#, usage(5, 2, 4)),
        (OpenAi, r#"{"timings":{"prompt_n":3,"predicted_n":4},"usage":{"prompt_tokens":1}}"#, usage(1, 0, 0)),
        (OpenAi, r#"{"usage":{"prompt_tokens":7"#, None),
        (OpenAi, r#"{"usage":{"prompt_tokens":7,"#, usage(7, 0, 0)),
        (OpenAi, "not json at all", None),
        (OpenAi, "", None),
        (
            Responses,
            r#"{"output":[],"usage":{"input_tokens":20,"output_tokens":60,"input_tokens_details":{"cached_tokens":8}}}"#,
            usage(20, 8, 60),
        ),
        (Anthropic, r#"{"type":"message","usage":{"input_tokens":3,"output_tokens":4}}"#, usage(3, 0, 4)),
        (
            Anthropic,
            r#"{"usage":{"input_tokens":3,"cache_read_input_tokens":10,"output_tokens":4}}"#,
            usage(13, 10, 4),
        ),
        (
            Anthropic,
            r#"{"usage":{"input_tokens":3,"cache_read_input_tokens":99999999999999999999}}"#,
            usage(max, max, 0),
        ),
        (Ollama, r#"{"done":true,"prompt_eval_count":26,"eval_count":298}"#, usage(26, 0, 298)),
        (Ollama, r#"{"done":true,"eval_count":298}"#, usage(0, 0, 298)),
        (Ollama, r#"{"done":true}"#, None),
    ] {
        check(dialect, BodyKind::Json, body, wanted);
    }
}

#[test]
fn usage_in_a_stream_is_its_last_report_field_by_field() {
    use Dialect::{Anthropic, OpenAi, Responses};
    let total = |p: i64, c: i64| {
        format!("data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{p},\"completion_tokens\":{c}}}}}\n\n")
    };
    let report = "{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}";
    for (dialect, body, wanted) in [
        (OpenAi, format!("data: {{\"choices\":[{{}}]}}\n\n{}data: [DONE]\n\n", total(7, 5)), usage(7, 0, 5)),
        (OpenAi, format!("data: [DONE]\n\n{}", total(7, 5)), usage(7, 0, 5)),
        (OpenAi, format!("data: {report}"), usage(7, 0, 5)),
        (OpenAi, format!("data: {report}\n"), usage(7, 0, 5)),
        (OpenAi, format!("data:{report}\n\n"), usage(7, 0, 5)),
        (OpenAi, format!("data:  {report}\n\n"), usage(7, 0, 5)),
        (OpenAi, format!("data: {report}\r\n\r\n"), usage(7, 0, 5)),
        (OpenAi, format!("data: {report}\r\r"), usage(7, 0, 5)),
        (OpenAi, format!("\u{feff}data: {report}\n\n"), usage(7, 0, 5)),
        (OpenAi, format!("\u{feff}\u{feff}data: {report}\n\n"), None),
        (OpenAi, format!(": comment\nevent: x\nid: 1\ndata: {report}\nretry: 5\n\n"), usage(7, 0, 5)),
        (OpenAi, format!(": data: {report}\n\n"), None),
        (OpenAi, format!("xdata: {report}\n\n"), None),
        (OpenAi, format!("data : {report}\n\n"), None),
        (OpenAi, format!("datax: {report}\n\n"), None),
        (OpenAi, "data: {\"usage\":\ndata: {\"prompt_tokens\":\ndata: 7}}\n\n".into(), usage(7, 0, 0)),
        (OpenAi, "data: {\"usage\":{\"prompt_tokens\":1\ndata: 7}}\n\n".into(), usage(1, 0, 0)),
        (OpenAi, "data: {\"usage\":\n\ndata: {\"prompt_tokens\":7}}\n\n".into(), None),
        (OpenAi, "data\ndata\n\n".into(), None),
        (OpenAi, format!("{}{}{}", total(10, 1), total(10, 2), total(10, 3)), usage(10, 0, 3)),
        (OpenAi, format!("{}{}", total(10, 3), total(0, 0)), usage(0, 0, 0)),
        (OpenAi, format!("{}{}", total(10, 3), total(-1, -1)), usage(10, 0, 3)),
        (OpenAi, format!("{}data: {{\"choices\":[],\"usage\":null}}\n\n", total(10, 3)), usage(10, 0, 3)),
        (OpenAi, format!("data: {{broken\n\n{}", total(10, 3)), usage(10, 0, 3)),
        (OpenAi, "data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":4}}\n\n".into(), usage(4, 0, 0)),
        (
            Responses,
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n\
             event: response.completed\ndata: {\"response\":{\"output\":[{\"usage\":{\"input_tokens\":9}}],\
             \"usage\":{\"input_tokens\":20,\"output_tokens\":60}}}\n\n"
                .into(),
            usage(20, 0, 60),
        ),
        (
            Anthropic,
            "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":5,\
             \"output_tokens\":1}}}\n\nevent: ping\ndata: {}\n\nevent: message_delta\n\
             data: {\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n"
                .into(),
            usage(30, 5, 15),
        ),
        (
            Anthropic,
            "data: {\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n\
             data: {\"usage\":{\"input_tokens\":26,\"output_tokens\":15}}\n\n"
                .into(),
            usage(26, 0, 15),
        ),
    ] {
        check(dialect, BodyKind::EventStream, &body, wanted);
    }
}

#[test]
fn usage_in_lines_is_that_of_the_closing_one() {
    let lines = "{\"message\":{\"content\":\"hi\"},\"done\":false}\n\
                 {\"done\":true,\"prompt_eval_count\":26,\"eval_count\":298}\n";
    for (body, wanted) in [
        (lines.to_owned(), usage(26, 0, 298)),
        (lines.trim_end().to_owned(), usage(26, 0, 298)),
        (lines.replace('\n', "\r\n"), usage(26, 0, 298)),
        (format!("{{broken\n{lines}"), usage(26, 0, 298)),
        (format!("{lines}{{\"eval_count\":"), usage(26, 0, 298)),
    ] {
        check(Dialect::Ollama, BodyKind::JsonLines, &body, wanted);
        check(Dialect::Ollama, BodyKind::Opaque, &body, None);
    }
    check(Dialect::Ollama, BodyKind::Json, lines, usage(26, 0, 298));
}

#[test]
fn the_event_that_the_client_did_not_ask_for_is_withheld_and_no_other() {
    let delta = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n";
    let closing = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}\n\n";
    let done = "data: [DONE]\n\n";
    let large = format!(
        "data: {{\"choices\":[],\"x\":\"{}\",\"usage\":{{}}}}\n\n",
        "y".repeat(MAX_WITHHELD_EVENT_BYTES)
    );
    // the stream, and what of it is dropped
    for (events, dropped) in [
        (vec![delta, delta, closing, done], vec![2]),
        (vec![closing, closing, delta, closing], vec![0, 1, 3]),
        (vec![delta, "data: {\"choices\":[],\"usage\":null}\n\n", done], vec![]),
        (vec![delta, "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n", done], vec![]),
        (vec![delta, "data: {\"usage\":{\"prompt_tokens\":7}}\n\n", done], vec![]),
        (vec![delta, "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":7}}\n\n", done], vec![]),
        (vec![": ping\n\n", "\n", closing, "\n\n", done], vec![2]),
        (vec![delta, "event: x\nid: 1\ndata: {\"usage\":{},\"choices\":[ ]}\n\n", done], vec![1]),
        (vec![delta, closing.trim_end()], vec![1]),
        (vec![delta, "data: {\"choices\":[{\"del"], vec![]),
        (vec![delta, large.as_str(), done], vec![]),
    ] {
        for newline in ["\n", "\r\n", "\r"] {
            let turned: Vec<_> = events.iter().map(|event| event.replace('\n', newline)).collect();
            let kept: String =
                (0..turned.len()).filter(|at| !dropped.contains(at)).map(|at| turned[at].as_str()).collect();
            let body = turned.concat();
            let steps: Vec<usize> =
                if body.len() < 2000 { (1..=body.len()).collect() } else { vec![1000, 65_536, body.len()] };
            for step in steps {
                let (out, ..) = run(Dialect::OpenAi, BodyKind::EventStream, true, body.as_bytes(), step);
                let out = String::from_utf8(out).unwrap();
                assert!(out == kept, "{:.80?} with {newline:?} in pieces of {step}: {out:.300?}", &body);
            }
        }
    }
}

#[test]
fn a_whole_event_goes_out_as_soon_as_it_is_there() {
    for event in ["data: {\"choices\":[{}]}\n\n", "data: {\"choices\":[{}]}\r\n\r\n", ": ping\n\n"] {
        let (mut tap, mut out) = (Tap::new(Dialect::OpenAi, BodyKind::EventStream, true), Vec::new());
        for _ in 0..3 {
            out.clear();
            assert_eq!(tap.feed(event.as_bytes(), &mut out), Relay::Out);
            assert_eq!(out, event.as_bytes());
        }
    }
}

#[test]
fn without_a_report_the_text_that_passed_is_counted() {
    use BodyKind::{EventStream, Json, JsonLines, Media, Opaque};
    use Dialect::{Anthropic, Ollama, OpenAi, Responses};
    for (dialect, kind, body, bytes) in [
        (
            OpenAi,
            EventStream,
            "data: {\"choices\":[{\"delta\":{\"content\":\"word \"}}]}\n\ndata: [DONE]\n\n",
            5,
        ),
        (
            OpenAi,
            EventStream,
            "data: {\"choices\":[{\"text\":\"wo\"}]}\n\ndata: {\"choices\":[{\"text\":\"rd",
            4,
        ),
        (OpenAi, Json, "{\"choices\":[{\"message\":{\"content\":\"abc\",\"role\":\"assistant\"}}]}", 3),
        (
            OpenAi,
            Json,
            "{\"choices\":[{\"message\":{\"reasoning_content\":\"ab\",\"tool_calls\":[{\"function\":\
             {\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}",
            4,
        ),
        (OpenAi, Json, "{\"choices\":[{\"text\":\"a\\u00e9\\n\"}]}", 4),
        (OpenAi, Json, "{\"data\":[{\"embedding\":[0.1,0.2]}]}", 0),
        (OpenAi, Json, "{\"odd\":1}", 9),
        (OpenAi, Opaque, "12345", 5),
        (OpenAi, Media, "12345", 0),
        (Responses, EventStream, "data: {\"delta\":\"abc\"}\n\ndata: {\"text\":\"abc\"}\n\n", 3),
        (Responses, Json, "{\"output\":[{\"content\":[{\"type\":\"output_text\",\"text\":\"abcd\"}]}]}", 4),
        (Anthropic, EventStream, "data: {\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n", 2),
        (Anthropic, Json, "{\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}", 2),
        (Ollama, JsonLines, "{\"message\":{\"content\":\"hi\"}}\n{\"response\":\"abc\"}\n", 5),
        (Ollama, Json, "{\"embeddings\":[[0.1]]}", 0),
    ] {
        for step in 1..=body.len() {
            let (_, usage, text) = run(dialect, kind, false, body.as_bytes(), step);
            assert_eq!((usage, text), (None, bytes), "{body} in pieces of {step}");
        }
    }
}

#[test]
fn the_kind_of_a_body_is_in_its_head() {
    for (content_type, kind) in [
        ("text/event-stream", BodyKind::EventStream),
        ("Text/Event-Stream; charset=utf-8", BodyKind::EventStream),
        ("application/json", BodyKind::Json),
        ("application/problem+JSON ; x", BodyKind::Json),
        ("application/x-ndjson", BodyKind::JsonLines),
        ("audio/mpeg", BodyKind::Media),
        ("Image/PNG; x", BodyKind::Media),
        ("application/octet-stream", BodyKind::Opaque),
        ("audio", BodyKind::Opaque),
        ("", BodyKind::Opaque),
    ] {
        assert_eq!(BodyKind::of(Some(content_type.as_bytes())), kind, "{content_type}");
    }
    assert_eq!(BodyKind::of(None), BodyKind::Json);
    for (value, coding) in [
        ("gzip", Coding::Gzip),
        ("X-GZIP", Coding::Gzip),
        ("identity", Coding::Identity),
        (" GZip ", Coding::Gzip),
        ("deflate", Coding::Deflate),
        ("br", Coding::Brotli),
        ("Zstd", Coding::Zstd),
        ("gzip, br", Coding::Other),
        ("compress", Coding::Other),
        ("aes128gcm", Coding::Other),
    ] {
        assert_eq!(Coding::of(Some(value.as_bytes())), coding, "{value}");
    }
}

/// A naive reading of a whole stream: its events' data.
fn naive_events(text: &str) -> Vec<String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (whole, rest) = text.split_at(text.rfind('\n').map_or(0, |at| at + 1));
    let (mut events, mut data) = (Vec::new(), String::new());
    for line in whole.split_terminator('\n') {
        match line.strip_prefix("data:") {
            Some(value) => data = data + value.strip_prefix(' ').unwrap_or(value) + "\n",
            None if line.is_empty() => events.push(std::mem::take(&mut data)),
            None => {}
        }
    }
    let value = rest.strip_prefix("data:").unwrap_or("");
    data += value.strip_prefix(' ').unwrap_or(value);
    events.push(data);
    events
}

fn events_of(text: &[u8], step: usize) -> Vec<String> {
    let (mut stream, mut events, mut data) = (EventStream::default(), Vec::new(), Vec::new());
    for chunk in text.chunks(step) {
        let mut at = 0;
        while let Some(piece) = stream.next(chunk, &mut at) {
            match piece {
                Piece::Data(bytes) => data.extend_from_slice(bytes),
                Piece::DataLineEnd => data.push(b'\n'),
                Piece::EventEnd => events.push(String::from_utf8(std::mem::take(&mut data)).unwrap()),
                Piece::EventEndLf => {}
            }
        }
    }
    events.push(String::from_utf8(data).unwrap());
    events
}

proptest::proptest! {
    #[test]
    fn a_stream_splits_into_the_events_of_a_naive_reading(
        parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "data:", "data: ", "data", "dat", ":", " ", "x", "{}", "\r", "\n", "\r\n", "\n\n", "event: y",
            ]),
            0..30,
        ),
        mark: bool,
    ) {
        let text = format!("{}{}", if mark { "\u{feff}" } else { "" }, parts.concat());
        let wanted = naive_events(&text);
        for step in 1..=text.len().max(1) {
            proptest::prop_assert_eq!(&events_of(text.as_bytes(), step), &wanted, "{:?} in {}", text, step);
        }
    }

    /// No bytes make a tap panic, and without withholding none are changed; with it, what is left is a
    /// subsequence of events.
    #[test]
    fn arbitrary_bytes_pass(bytes in proptest::collection::vec(
        proptest::prop_oneof![
            proptest::sample::select(&b"data: {\"usage\":[]}\r\n"[..]),
            proptest::arbitrary::any::<u8>(),
        ],
        0..300,
    )) {
        for dialect in [Dialect::OpenAi, Dialect::Responses, Dialect::Anthropic, Dialect::Ollama] {
            for kind in [BodyKind::Json, BodyKind::EventStream, BodyKind::JsonLines] {
                let whole = run(dialect, kind, false, &bytes, bytes.len());
                proptest::prop_assert_eq!(&whole.0, &bytes);
                for step in [1, 2, 7] {
                    proptest::prop_assert_eq!(&run(dialect, kind, false, &bytes, step), &whole);
                    let one = run(dialect, kind, true, &bytes, step);
                    proptest::prop_assert_eq!(one, run(dialect, kind, true, &bytes, bytes.len()));
                }
            }
        }
    }
}

/// A packed answer passes as it came; its usage is read, also where it could be only in part.
#[test]
fn packed_answers_are_counted_and_pass_unchanged() {
    use super::unpack::tests::{CODINGS, pack};
    let events = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}],\"usage\":null}}\n\n\
         data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":5}}}}\n\ndata: [DONE]\n\n",
        "word ".repeat(3000),
    );
    let json = "{\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}";
    let silent = "{\"choices\":[{\"message\":{\"content\":\"four\"}}]}";
    for coding in CODINGS {
        for (kind, body, wanted) in [
            (BodyKind::EventStream, events.as_str(), usage(7, 0, 5)),
            (BodyKind::Json, json, usage(7, 0, 5)),
            (BodyKind::Json, silent, None),
            (BodyKind::Opaque, json, None),
        ] {
            let packed = pack(coding, body.as_bytes());
            for step in [1, 3, 16, packed.len()] {
                let mut tap = Tap::of_coded(Dialect::OpenAi, kind, coding, true);
                assert!(!tap.withholds(), "{coding:?}");
                let mut out = Vec::new();
                for chunk in packed.chunks(step) {
                    assert_eq!(tap.feed(chunk, &mut out), Relay::Chunk);
                }
                tap.finish(&mut out);
                assert_eq!(
                    (tap.usage(), out.len()),
                    (wanted, 0),
                    "{coding:?} {body:.60} in pieces of {step}"
                );
                if body == silent {
                    assert_eq!(tap.seen().text_bytes, 4, "{coding:?}");
                }
            }
        }
        let mut tap = Tap::of_coded(Dialect::OpenAi, BodyKind::Json, coding, false);
        assert_eq!(tap.feed(&[0xfe; 4096], &mut Vec::new()), Relay::Chunk);
        assert_eq!(tap.usage(), None, "{coding:?}");
        assert!(tap.seen().text_bytes >= 3000, "{coding:?}: what cannot be unpacked is estimated as it came");
    }
}

#[test]
fn an_answer_that_is_coded_twice_or_unknown_is_not_read() {
    use crate::http1::{HeadBounds, HeadProgress, response::parse_response};
    for (lines, wanted) in [
        ("", Coding::Identity),
        ("Content-Encoding: identity\r\n", Coding::Identity),
        ("Content-Encoding: br\r\n", Coding::Brotli),
        ("Content-Encoding: identity\r\nContent-Encoding: zstd\r\n", Coding::Zstd),
        ("Content-Encoding: br\r\nContent-Encoding: gzip\r\n", Coding::Other),
        ("Content-Encoding: gzip, br\r\n", Coding::Other),
        ("Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n", Coding::Other),
        ("Content-Encoding: rot13\r\n", Coding::Other),
    ] {
        let head = format!("HTTP/1.1 200 OK\r\n{lines}Content-Type: application/json\r\n\r\n");
        let parsed = parse_response(head.as_bytes(), &HeadBounds { max_bytes: 4096 }, false);
        let HeadProgress::Complete { head, .. } = parsed else { panic!("{head}") };
        assert_eq!(Coding::of_response(&head), wanted, "{lines}");
        let mut tap = Tap::of_response(Dialect::OpenAi, &head, true);
        let body = b"{\"usage\":{\"prompt_tokens\":7}}";
        assert_eq!(tap.feed(body, &mut Vec::new()), Relay::Chunk, "{lines}");
        assert_eq!(tap.usage().is_some(), wanted == Coding::Identity, "{lines}");
    }
}
