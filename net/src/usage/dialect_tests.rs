//! Each dialect as backends really send it, whole and cut, in pieces of every size.

use super::*;
use crate::endpoint::Dialect::{self, Anthropic, Ollama, OpenAi, Responses};
use engine::{Tokens, Usage};

/// What a tap knows of a body that came in two pieces, split at `split`.
fn tapped(dialect: Dialect, kind: BodyKind, body: &[u8], split: usize) -> (Option<Usage>, Seen, bool, bool) {
    let mut tap = Tap::new(dialect, kind, false);
    let (head, tail) = body.split_at(split);
    for piece in [head, tail] {
        assert_eq!(tap.feed(piece, &mut Vec::new()), Relay::Chunk);
    }
    tap.finish(&mut Vec::new());
    (tap.usage(), tap.seen(), tap.is_behind(), tap.failed())
}

/// Every split of `body` into two must give `wanted`.
fn check(name: &str, dialect: Dialect, kind: BodyKind, body: &str, wanted: Option<Usage>) {
    for split in 0..=body.len() {
        let found = tapped(dialect, kind, body.as_bytes(), split).0;
        assert_eq!(found, wanted, "{name}, split at {split}: {body}");
    }
}

fn of(input: u64, output: u64) -> Usage {
    Usage { input: Tokens(input), output: Tokens(output), ..Usage::default() }
}

/// Events as OpenAI and Anthropic send them: named by their `type` where they have one.
fn events(data: &[&str]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

#[test]
fn a_document_reports_each_kind_of_tokens() {
    let (of_input, of_output) = (Tokens(40), Tokens(30));
    for (name, dialect, body, wanted) in [
        (
            "chat",
            OpenAi,
            r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":100,"completion_tokens":60,"total_tokens":160,
               "prompt_tokens_details":{"cached_tokens":40,"cache_write_tokens":9,"audio_tokens":5,"image_tokens":7,"text_tokens":1},
               "completion_tokens_details":{"reasoning_tokens":30,"audio_tokens":11,"text_tokens":2,
               "accepted_prediction_tokens":3,"rejected_prediction_tokens":4}},"service_tier":"default"}"#,
            Usage {
                cached_input: of_input,
                cache_write: Tokens(9),
                audio_input: Tokens(5),
                image_input: Tokens(7),
                reasoning: of_output,
                audio_output: Tokens(11),
                ..of(100, 60)
            },
        ),
        (
            "completions",
            OpenAi,
            r#"{"choices":[{"text":"hi"}],"usage":{"prompt_tokens":5,"completion_tokens":7}}"#,
            of(5, 7),
        ),
        (
            "details that are null",
            OpenAi,
            r#"{"usage":{"prompt_tokens":5,"completion_tokens":7,"prompt_tokens_details":null,"completion_tokens_details":null}}"#,
            of(5, 7),
        ),
        (
            "parts beyond their wholes",
            OpenAi,
            r#"{"usage":{"prompt_tokens":5,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":50,"audio_tokens":50},
               "completion_tokens_details":{"reasoning_tokens":70}}}"#,
            Usage { cached_input: Tokens(5), audio_input: Tokens(5), reasoning: Tokens(7), ..of(5, 7) },
        ),
        (
            "embeddings",
            OpenAi,
            r#"{"data":[{"embedding":[0.1,2]},{"embedding":[3]}],"usage":{"prompt_tokens":8,"total_tokens":8}}"#,
            of(8, 0),
        ),
        ("moderations", OpenAi, r#"{"results":[{"flagged":false}],"usage":{"prompt_tokens":8}}"#, of(8, 0)),
        (
            "images",
            OpenAi,
            r#"{"created":1,"data":[{"b64_json":"AAAA"},{"b64_json":"BBBB","revised_prompt":"x"}],"usage":{"total_tokens":100,
               "input_tokens":50,"output_tokens":50,"input_tokens_details":{"text_tokens":10,"image_tokens":40},
               "output_tokens_details":{"image_tokens":30,"text_tokens":20}}}"#,
            Usage { image_input: of_input, image_output: of_output, images: 2, ..of(50, 50) },
        ),
        (
            "a transcription by tokens",
            OpenAi,
            r#"{"text":"hi","usage":{"type":"tokens","input_tokens":50,"output_tokens":4,"total_tokens":54,
               "input_token_details":{"audio_tokens":40,"text_tokens":10}}}"#,
            Usage { audio_input: of_input, ..of(50, 4) },
        ),
        (
            "a transcription by time",
            OpenAi,
            r#"{"text":"hi","usage":{"type":"duration","seconds":12.5}}"#,
            Usage { milliseconds: 12_500, ..of(0, 0) },
        ),
        (
            "realtime",
            OpenAi,
            r#"{"usage":{"input_tokens":100,"input_token_details":{"text_tokens":10,"audio_tokens":20,"image_tokens":7,
               "cached_tokens":40,"cached_tokens_details":{"audio_tokens":99}},"output_tokens":60,
               "output_token_details":{"text_tokens":30,"audio_tokens":30}}}"#,
            Usage {
                cached_input: of_input,
                audio_input: Tokens(20),
                image_input: Tokens(7),
                audio_output: of_output,
                ..of(100, 60)
            },
        ),
        (
            "llama.cpp's completion",
            OpenAi,
            r#"{"content":"hi","tokens_predicted":4,"tokens_evaluated":9,"tokens_cached":12,
               "timings":{"cache_n":3,"prompt_n":6,"predicted_n":4}}"#,
            Usage { cached_input: Tokens(3), ..of(9, 4) },
        ),
        (
            "responses",
            Responses,
            r#"{"output":[],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":40,"cache_write_tokens":9},
               "output_tokens":60,"output_tokens_details":{"reasoning_tokens":30},"total_tokens":160}}"#,
            Usage { cached_input: of_input, cache_write: Tokens(9), reasoning: of_output, ..of(100, 60) },
        ),
        (
            "messages",
            Anthropic,
            r#"{"content":[],"usage":{"input_tokens":3,"cache_creation_input_tokens":50,"cache_read_input_tokens":40,
               "cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":30},"output_tokens":4,
               "server_tool_use":{"web_search_requests":1},"service_tier":"standard"}}"#,
            Usage {
                cached_input: of_input,
                cache_write: Tokens(50),
                cache_write_hour: Tokens(30),
                ..of(93, 4)
            },
        ),
        (
            "messages with the split alone",
            Anthropic,
            r#"{"usage":{"input_tokens":3,"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":30}}}"#,
            Usage { cache_write: Tokens(50), cache_write_hour: Tokens(30), ..of(53, 0) },
        ),
        (
            "messages with the sum alone",
            Anthropic,
            r#"{"usage":{"input_tokens":3,"cache_creation_input_tokens":50,"cache_creation":null}}"#,
            Usage { cache_write: Tokens(50), ..of(53, 0) },
        ),
        (
            "Ollama",
            Ollama,
            r#"{"done":true,"prompt_eval_count":26,"eval_count":298,"eval_duration":9}"#,
            of(26, 298),
        ),
        ("Ollama's embeddings", Ollama, r#"{"embeddings":[[0.1]],"prompt_eval_count":8}"#, of(8, 0)),
    ] {
        check(name, dialect, BodyKind::Json, body, Some(wanted));
    }
}

#[test]
fn a_stream_reports_each_kind_of_tokens() {
    let image = |part: &str| format!("{{\"type\":\"image_generation.{part}\",\"b64_json\":\"AAAA\"");
    let whole_image = image("completed")
        + r#","usage":{"input_tokens":50,"output_tokens":50,"output_tokens_details":{"image_tokens":30}}}"#;
    let partial_image = image("partial_image") + ",\"partial_image_index\":0}";
    let closing = |kind: &str| {
        format!(
            "{{\"type\":\"response.{kind}\",\"response\":{{\"status\":\"{kind}\",\"error\":null,\"usage\":{{\"input_tokens\":20,\
             \"output_tokens\":60,\"output_tokens_details\":{{\"reasoning_tokens\":30}}}}}}}}"
        )
    };
    let started = r#"{"type":"message_start","message":{"content":[],"usage":{"input_tokens":25,"cache_read_input_tokens":5,
        "cache_creation_input_tokens":7,"cache_creation":{"ephemeral_5m_input_tokens":7,"ephemeral_1h_input_tokens":0},"output_tokens":1}}}"#
        .replace('\n', "");
    let anthropic = Usage { cached_input: Tokens(5), cache_write: Tokens(7), ..of(37, 15) };
    let reasoned = Usage { reasoning: Tokens(30), ..of(20, 60) };
    for (name, dialect, body, wanted) in [
        (
            "a chunk for the usage",
            OpenAi,
            events(&[
                r#"{"choices":[{"delta":{"content":"hi"}}],"usage":null}"#,
                r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":3}}}"#,
                "[DONE]",
            ]),
            Usage { reasoning: Tokens(3), ..of(7, 5) },
        ),
        (
            "vLLM's running totals",
            OpenAi,
            events(&[
                r#"{"choices":[{"delta":{"role":"assistant"}}],"usage":{"prompt_tokens":7,"completion_tokens":0}}"#,
                r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}"#,
                r#"{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#,
                r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#,
                "[DONE]",
            ]),
            of(7, 2),
        ),
        (
            "Ollama's zeros on every event but the last",
            OpenAi,
            events(&[
                r#"{"choices":[{"text":"a"}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}"#,
                r#"{"choices":[{"text":"b"}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}"#,
                r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}"#,
                "[DONE]",
            ]),
            of(7, 2),
        ),
        (
            "llama.cpp's timings",
            OpenAi,
            events(&[
                r#"{"choices":[{"delta":{"content":"a"}}]}"#,
                r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"timings":{"cache_n":2,"prompt_n":3,"predicted_n":4,"predicted_ms":1.5}}"#,
                "[DONE]",
            ]),
            Usage { cached_input: Tokens(2), ..of(5, 4) },
        ),
        (
            "llama.cpp's timings beside a usage",
            OpenAi,
            events(&[
                r#"{"choices":[],"timings":{"cache_n":2,"prompt_n":3,"predicted_n":4},"usage":{"prompt_tokens":5,"completion_tokens":9}}"#,
            ]),
            of(5, 9),
        ),
        (
            "an image with a sketch before it",
            OpenAi,
            events(&[&partial_image, &partial_image, &whole_image]),
            Usage { image_output: Tokens(30), images: 1, ..of(50, 50) },
        ),
        (
            "an edited image",
            OpenAi,
            events(&[&whole_image.replace("generation", "edit")]),
            Usage { image_output: Tokens(30), images: 1, ..of(50, 50) },
        ),
        (
            "a transcript",
            OpenAi,
            events(&[
                r#"{"type":"transcript.text.delta","delta":"hi"}"#,
                r#"{"type":"transcript.text.done","text":"hi","usage":{"type":"tokens","input_tokens":14,"output_tokens":4,
                   "input_token_details":{"audio_tokens":14}}}"#.replace('\n', "").as_str(),
            ]),
            Usage { audio_input: Tokens(14), ..of(14, 4) },
        ),
        ("a response", Responses, events(&[&closing("completed")]), reasoned),
        ("a response cut by its cap", Responses, events(&[&closing("incomplete")]), reasoned),
        ("a response that failed", Responses, events(&[&closing("failed")]), reasoned),
        (
            "a message",
            Anthropic,
            events(&[
                &started,
                r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}"#,
                r#"{"type":"message_stop"}"#,
            ]),
            anthropic,
        ),
        (
            "a message whose totals grow",
            Anthropic,
            events(&[
                &started,
                r#"{"type":"message_delta","usage":{"output_tokens":9,"input_tokens":null}}"#,
                r#"{"type":"message_delta","usage":{"input_tokens":26,"cache_read_input_tokens":6,"output_tokens":15}}"#,
            ]),
            Usage { cached_input: Tokens(6), ..Usage { input: Tokens(39), ..anthropic } },
        ),
        (
            "a message that llama.cpp ends with its output alone",
            Anthropic,
            events(&[r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":15}}"#]),
            of(0, 15),
        ),
    ] {
        for newline in ["\n", "\r\n", "\r"] {
            check(name, dialect, BodyKind::EventStream, &body.replace('\n', newline), Some(wanted));
        }
    }
}

/// Nonsense in any field of any dialect, at any place in a stream: nothing sinks, nothing panics.
#[test]
fn nonsense_lowers_no_field() {
    let fields: [(Dialect, &str, &[&str]); 4] = [
        (OpenAi, r#"{"choices":[],"usage":{"F":V}}"#, &["prompt_tokens", "completion_tokens"]),
        (Responses, r#"{"response":{"usage":{"F":V}}}"#, &["input_tokens", "output_tokens"]),
        (
            Anthropic,
            r#"{"usage":{"F":V}}"#,
            &["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"],
        ),
        (Ollama, r#"{"F":V}"#, &["prompt_eval_count", "eval_count"]),
    ];
    let max = u64::MAX;
    for (dialect, form, names) in fields {
        for name in names {
            let event = |value: &str| form.replace('F', name).replace('V', value);
            let tokens = |events: &[String]| {
                let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
                let whole = tapped(dialect, BodyKind::EventStream, body.as_bytes(), 0).0;
                for split in 0..=body.len() {
                    assert_eq!(
                        tapped(dialect, BodyKind::EventStream, body.as_bytes(), split).0,
                        whole,
                        "{body}"
                    );
                }
                whole.map(|usage| usage.tokens().0)
            };
            for (value, alone, after_seven) in [
                ("-1", None, Some(7)),
                ("-99999999999999999999999", None, Some(7)),
                ("-0.5", None, Some(7)),
                ("null", None, Some(7)),
                ("true", None, Some(7)),
                ("\"9\"", None, Some(7)),
                ("[9]", None, Some(7)),
                ("{}", None, Some(7)),
                ("2.5", Some(3), Some(7)),
                ("8.5", Some(9), Some(9)),
                ("1e999", Some(max), Some(max)),
                ("1e-999", Some(1), Some(7)),
                ("99999999999999999999", Some(max), Some(max)),
                ("0", Some(0), Some(0)),
                ("6", Some(6), Some(6)),
            ] {
                // A cache's part alone is no report of the whole.
                let alone = if name.starts_with("cache") { None } else { alone };
                assert_eq!(tokens(&[event(value)]), alone, "{name}: {value}");
                if !name.starts_with("cache") {
                    let (seven, nonsense) = (event("7"), event(value));
                    assert_eq!(tokens(&[seven.clone(), nonsense.clone()]), after_seven, "{name}: 7, {value}");
                    assert_eq!(tokens(&[nonsense.clone(), seven.clone()]), Some(7), "{name}: {value}, 7");
                    assert_eq!(tokens(&[seven.clone(), nonsense, seven]), Some(7), "{name}: 7, {value}, 7");
                }
            }
        }
    }
}

#[test]
fn a_cut_stream_is_behind_where_its_report_was_a_beginning() {
    let word = r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"twelve bytes"}}"#;
    let started = r#"{"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}"#;
    let ended = r#"{"type":"message_delta","usage":{"output_tokens":15}}"#;
    let zeros = r#"{"choices":[{"text":"twelve bytes"}],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#;
    let running =
        r#"{"choices":[{"text":"twelve bytes"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#;
    for (name, dialect, data, behind) in [
        ("a message that has begun", Anthropic, vec![started, word], true),
        ("a message that has not", Anthropic, vec![started], true),
        ("a message at its end", Anthropic, vec![started, word, ended], false),
        ("zeros", OpenAi, vec![zeros, zeros], true),
        ("running totals", OpenAi, vec![running, running], false),
        (
            "a zero that is true",
            OpenAi,
            vec![r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":0}}"#],
            false,
        ),
        ("nothing", OpenAi, vec![], false),
    ] {
        let body = events(&data);
        for split in 0..=body.len() {
            let (usage, seen, found, _) = tapped(dialect, BodyKind::EventStream, body.as_bytes(), split);
            assert_eq!(found, behind, "{name}, split at {split}: {usage:?} {seen:?}");
        }
    }
}

#[test]
fn an_error_in_an_answer_with_status_200_is_known_unless_something_was_generated() {
    use BodyKind::{EventStream, Json, JsonLines};
    let error = r#"{"error":{"message":"overloaded","type":"server_error"}}"#;
    let text = r#"{"choices":[{"delta":{"content":"hi"}}],"error":null}"#;
    for (name, dialect, kind, body, failed) in [
        ("an event", OpenAi, EventStream, events(&[error]), true),
        ("an event after text", OpenAi, EventStream, events(&[text, error]), false),
        ("no error", OpenAi, EventStream, events(&[text, "[DONE]"]), false),
        ("an error that is null", OpenAi, Json, r#"{"error":null}"#.into(), false),
        ("a document", OpenAi, Json, error.into(), true),
        (
            "a response",
            Responses,
            EventStream,
            events(&[r#"{"type":"response.failed","response":{"error":{"code":"x"},"usage":null}}"#]),
            true,
        ),
        (
            "Anthropic's event",
            Anthropic,
            EventStream,
            events(&[r#"{"type":"error","error":{"type":"overloaded_error"}}"#]),
            true,
        ),
        ("Ollama's line", Ollama, JsonLines, "{\"error\":\"out of memory\"}\n".into(), true),
        ("an image", OpenAi, Json, r#"{"data":[{"url":"x"}],"error":{}}"#.into(), false),
    ] {
        for split in 0..=body.len() {
            assert_eq!(tapped(dialect, kind, body.as_bytes(), split).3, failed, "{name}, split at {split}");
        }
    }
}

#[test]
fn images_are_counted_once_each_and_are_no_text() {
    for (body, images) in [
        (r#"{"data":[{"b64_json":"AAAA"},{"url":"http://x"},{"url":"http://x","b64_json":"A"}]}"#, 3),
        (r#"{"data":[{"b64_json":""},{"revised_prompt":"x"},{"b64_json":null}]}"#, 0),
        (r#"{"data":[{"embedding":[1]}]}"#, 0),
        (r#"{"data":[]}"#, 0),
        (r#"{"b64_json":"AAAA"}"#, 0),
    ] {
        for split in 0..=body.len() {
            let (usage, seen, ..) = tapped(OpenAi, BodyKind::Json, body.as_bytes(), split);
            assert_eq!((usage, seen.images), (None, images), "{body}, split at {split}");
            assert!(images == 0 || seen.text_bytes == 0, "{body}: an image was counted as text");
        }
    }
}

#[test]
fn a_line_of_two_hundred_megabytes_costs_no_memory_and_hides_nothing() {
    let chunk = vec![b'x'; 1024 * 1024];
    for withhold in [false, true] {
        let mut tap = Tap::new(OpenAi, BodyKind::EventStream, withhold);
        let mut out = Vec::new();
        let mut passed = 0;
        let mut feed = |tap: &mut Tap, bytes: &[u8]| {
            out.clear();
            match tap.feed(bytes, &mut out) {
                Relay::Chunk => passed += bytes.len(),
                Relay::Out => passed += out.len(),
            }
            assert!(out.capacity() <= 4 * 1024 * 1024, "{} bytes are kept", out.capacity());
        };
        feed(&mut tap, b"data: {\"choices\":[{\"delta\":{\"content\":\"");
        for _ in 0..200 {
            feed(&mut tap, &chunk);
        }
        feed(&mut tap, b"\"}}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n");
        assert_eq!(tap.usage(), Some(of(7, 5)));
        assert_eq!(tap.seen().text_bytes, 200 * 1024 * 1024);
        assert!(passed > 200 * 1024 * 1024, "only {passed} bytes passed");
    }
}
