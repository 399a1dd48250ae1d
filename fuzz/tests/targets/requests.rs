//! What clients send: heads, framing, bodies.

use fuzz::{arrivals, fuzz};
use net::endpoint::Endpoint;
use net::form;
use net::http1::head::parse_request;
use net::http1::{BodyFraming, ChunkStep, ChunkedDecoder, HeadBounds, HeadProgress, HeadSearch, RequestHead};
use net::json::{Asked, expected, read_body, rewrite};
use serde_json::Value;

const HEAD_WORDS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    " ",
    ":",
    "\0",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/2.0",
    "Content-Length: 5\r\n",
    "Content-Length: +5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Host: a\r\n",
    "Connection: close, x-a\r\n",
    "Expect: 100-continue\r\n",
    "%2e",
    "%2F",
    "..",
    "//",
    "\\",
    "http://a/",
    "*",
    ", ",
    "\t",
];

/// A head that arrives in pieces is the head that arrives whole, its end is inside what came, and its path has one reading.
#[test]
fn request_head() {
    let bounds = HeadBounds { max_bytes: 4096 };
    fuzz("request_head", HEAD_WORDS, |input| {
        let whole = parse_request(input, &bounds);
        if let HeadProgress::Complete { head, consumed } = &whole {
            assert!(*consumed <= input.len() && *consumed <= bounds.max_bytes + 16);
            let path = head.path();
            assert!(path == "*" || path.starts_with('/'), "{path:?}");
            for segment in path.split('/').skip(1) {
                assert!(segment != "." && segment != "..", "{path:?}");
            }
            assert!(!path.contains("//") && !path.contains('\\'), "{path:?}");
            assert!(!path.bytes().any(|byte| byte <= b' ' || byte == 0x7f), "{path:?}");
            for name in ["content-length", "transfer-encoding"] {
                let given = head.headers().filter(|header| header.name.eq_ignore_ascii_case(name)).count();
                assert!(given <= 1, "{name} {given} times");
            }
            if head.header("transfer-encoding").is_some() {
                assert!(head.header("content-length").is_none());
                assert_eq!(head.body(), BodyFraming::Chunked);
            }
        }
        let mut head = RequestHead::default();
        let mut search = HeadSearch::default();
        for end in 0..=input.len().min(600) {
            match (head.parse(&input[..end], &bounds, &mut search), &whole) {
                (HeadProgress::Partial, _) => {}
                (
                    HeadProgress::Complete { consumed, .. },
                    HeadProgress::Complete { head: wanted, consumed: all },
                ) => {
                    assert_eq!((consumed, head.path(), head.body()), (*all, wanted.path(), wanted.body()));
                    assert_eq!((head.method(), head.query()), (wanted.method(), wanted.query()));
                    return;
                }
                (HeadProgress::Bad(_), HeadProgress::Bad(_)) => return,
                (progress, whole) => panic!("{progress:?} after {end} bytes, {whole:?} of all"),
            }
        }
    });
}

/// The data of a chunked body in so many pieces, what it ended with, and the bytes behind it that are not its own.
fn decoded(pieces: &[&[u8]]) -> (Vec<u8>, Result<bool, &'static str>, usize) {
    let (mut decoder, mut data, mut used_of_all) = (ChunkedDecoder::default(), Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let (used, step) = decoder.step(rest);
            assert!(used <= rest.len());
            used_of_all += used;
            match step {
                ChunkStep::Data(range) => {
                    assert!(!range.is_empty() && range.end <= used);
                    data.extend_from_slice(&rest[range]);
                    rest = &rest[used..];
                }
                ChunkStep::NeedMore => break,
                ChunkStep::Done => return (data, Ok(true), used_of_all),
                ChunkStep::Bad(reason) => return (data, Err(reason), used_of_all),
            }
        }
    }
    (data, Ok(false), used_of_all)
}

/// Any arrival gives the same data, the same end, and takes the same bytes.
#[test]
fn chunked() {
    let words =
        &["\r\n", "0\r\n\r\n", "5\r\nhello\r\n", ";x=\"y\"", "ffffffffffffffff\r\n", "A: b\r\n", "\n", " "];
    fuzz("chunked", words, |input| {
        let whole = decoded(&[input]);
        assert!(whole.0.len() <= input.len());
        for pieces in arrivals(input) {
            assert_eq!(decoded(&pieces), whole);
        }
    });
}

/// What is read as a body is JSON for every other reader too, and says the same there; a rewrite changes what it must and
/// nothing else.
#[test]
fn request_body() {
    let words = &[
        "\"model\":\"m\"",
        "\"stream\":true",
        "\"stream_options\":{}",
        "\"stream_options\":null",
        "\"include_usage\":false",
        "\"n\":2",
        "\"max_tokens\":-1",
        "\"max_tokens\":1e3",
        "\\u006dodel",
        "\\ud83d",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "null",
        "1e999",
        "\u{17f}",
        "data:image/png;base64,AAAA",
    ];
    fuzz("request_body", words, |input| {
        for endpoint in [Endpoint::ChatCompletions, Endpoint::AudioSpeech, Endpoint::OllamaChat] {
            let Ok(facts) = read_body(input, endpoint) else { continue };
            let document: Value = match serde_json::from_slice(input) {
                Ok(document) => document,
                // Half a surrogate pair and deep nesting are JSON by its grammar, though not for this reader.
                Err(error) => {
                    let reason = error.to_string();
                    assert!(reason.contains("hex escape") || reason.contains("recursion limit"), "{reason}");
                    continue;
                }
            };
            let model = facts.model(input);
            assert_eq!(document["model"].as_str(), Some(model));
            assert!(facts.n >= 1 && facts.prompt_bytes <= 4 * input.len() as u64);
            assert!(expected(&facts, endpoint, engine::Tokens(1), None).input.0 <= input.len() as u64);
            let rewritten = rewrite(input, &facts, Some("served \"one\""), true);
            let Some(rewritten) = rewritten else { continue };
            let mut after: Value = serde_json::from_slice(&rewritten).expect("JSON after a rewrite");
            assert_eq!(after["model"], "served \"one\"");
            let facts = read_body(&rewritten, endpoint).expect("read again");
            assert_eq!(facts.include_usage, Asked::Yes);
            after["model"] = document["model"].clone();
            match document.get("stream_options") {
                Some(Value::Object(before)) => {
                    let options = after["stream_options"].as_object_mut().expect("an object");
                    match before.get("include_usage") {
                        Some(asked) => options["include_usage"] = asked.clone(),
                        None => _ = options.shift_remove("include_usage"),
                    }
                }
                Some(_) => after["stream_options"] = Value::Null,
                None => _ = after.as_object_mut().expect("an object").shift_remove("stream_options"),
            }
            assert!(after == document, "{after}\n{document}");
        }
    });
}

/// A form that is taken has its model in one part and nowhere else, for who cuts it at its boundary without thinking; and
/// with another model in its place it is the same form.
#[test]
fn request_form() {
    const BOUNDARY: &str = "-b0";
    let words = &[
        "\r\n",
        "\r\n\r\n",
        "\r\n---b0",
        "\r\n---b0--",
        "---b0\r\n",
        "Content-Disposition: form-data; name=\"model\"\r\n\r\n",
        "name=\"prompt\"",
        "; name=model",
        "; filename=\"",
        "\\\"",
        "Content-Transfer-Encoding: base64\r\n",
        "Model",
        "true",
        "0",
        "-",
    ];
    fuzz("request_form", words, |input| {
        let Ok(facts) = form::read(input, BOUNDARY, Endpoint::ImagesEdits) else { return };
        let model = facts.model(input);
        let text = String::from_utf8_lossy(input);
        let framed = format!("\r\n{text}");
        let parts: Vec<&str> = framed.split("\r\n---b0").skip(1).collect();
        assert!(parts.last().is_some_and(|last| last.starts_with("--")), "{text}");
        let holds = |part: &&&str| {
            let (head, content) = part.split_once("\r\n\r\n").unwrap_or((part, ""));
            content == model && head.to_ascii_lowercase().contains("model")
        };
        assert!(parts.iter().any(|part| holds(&part)), "{model:?} is in no part of {text}");
        let other = rewrite(input, &facts, Some("another-1"), false).unwrap_or_else(|| input.to_vec());
        let again = form::read(&other, BOUNDARY, Endpoint::ImagesEdits).expect("a form after a rewrite");
        assert_eq!(again.model(&other), "another-1");
        assert_eq!((again.stream, again.n, again.prompt_bytes), (facts.stream, facts.n, facts.prompt_bytes));
        let back = rewrite(&other, &again, Some(model), false).unwrap_or(other);
        assert_eq!(back, input);
    });
}
