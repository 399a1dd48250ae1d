//! What backends send: heads, streams, usage, packed bodies.

use std::io::{Read, Write};

use fuzz::{arrivals, fuzz};
use net::endpoint::Dialect;
use net::http1::response::parse_response;
use net::http1::{HeadBounds, HeadProgress, HeadSearch, ResponseHead};
use net::usage::{BodyKind, Coding, Relay, Seen, Tap};
use serde_json::Value;

const DIALECTS: [Dialect; 4] = [Dialect::OpenAi, Dialect::Responses, Dialect::Anthropic, Dialect::Ollama];

/// A head in pieces is the head as a whole.
#[test]
fn response_head() {
    let bounds = HeadBounds { max_bytes: 4096 };
    let words = &[
        "\r\n",
        "\r\n\r\n",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 ",
        "100 ",
        "204 ",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Encoding: br\r\n",
        "Connection: close\r\n",
        "\0",
        "\n",
        ":",
        " ",
    ];
    fuzz("response_head", words, |input| {
        for to_head in [false, true] {
            let whole = parse_response(input, &bounds, to_head);
            if let HeadProgress::Complete { head, consumed } = &whole {
                assert!(*consumed <= input.len() && head.status() >= 100);
                _ = Coding::of_response(head);
            }
            let (mut head, mut search) = (ResponseHead::default(), HeadSearch::default());
            for end in 0..=input.len().min(600) {
                match (head.parse(&input[..end], &bounds, &mut search, to_head), &whole) {
                    (HeadProgress::Partial, _) => {}
                    (
                        HeadProgress::Complete { consumed, .. },
                        HeadProgress::Complete { head: wanted, consumed: all },
                    ) => {
                        assert_eq!(
                            (consumed, head.status(), head.body()),
                            (*all, wanted.status(), wanted.body())
                        );
                        assert_eq!(head.reason(), wanted.reason());
                        break;
                    }
                    (HeadProgress::Bad(_), HeadProgress::Bad(_)) => break,
                    (progress, whole) => panic!("{progress:?} after {end} bytes, {whole:?} of all"),
                }
            }
        }
    });
}

/// All that a tap knows in the end, and what it let pass.
type Known = (Option<engine::Usage>, Seen, bool, bool, Vec<u8>);

fn tapped(mut tap: Tap, pieces: &[&[u8]]) -> Known {
    let mut out = Vec::new();
    for piece in pieces {
        match tap.feed(piece, &mut out) {
            Relay::Chunk => out.extend_from_slice(piece),
            Relay::Out => assert!(tap.withholds()),
        }
    }
    tap.finish(&mut out);
    (tap.usage(), tap.seen(), tap.is_behind(), tap.failed(), out)
}

const STREAM_WORDS: &[&str] = &[
    "data: ",
    "data",
    "\n\n",
    "\r\n",
    "\r",
    ": ",
    "event: x\n",
    "\u{feff}",
    "[DONE]",
    "\"usage\":{\"prompt_tokens\":7}",
    "\"choices\":[]",
    "\"usage\":null",
    "-1",
    "1e999",
    "2.5",
    "99999999999999999999999",
    "\"error\":{}",
    "\"b64_json\":\"A\"",
    "{",
    "}",
    "\"",
    "\\u0075",
];

/// Any arrival tells the same; nothing is lost, and without withholding nothing is changed.
fn streamed(kind: BodyKind, input: &[u8]) {
    for dialect in DIALECTS {
        for withhold in [false, true] {
            let whole = tapped(Tap::new(dialect, kind, withhold), &[input]);
            if !withhold || kind != BodyKind::EventStream {
                assert_eq!(whole.4, input);
            }
            assert!(whole.4.len() <= input.len());
            for pieces in arrivals(input) {
                assert_eq!(tapped(Tap::new(dialect, kind, withhold), &pieces), whole);
            }
        }
    }
}

#[test]
fn event_stream() {
    fuzz("event_stream", STREAM_WORDS, |input| streamed(BodyKind::EventStream, input));
}

#[test]
fn json_lines() {
    fuzz("json_lines", STREAM_WORDS, |input| streamed(BodyKind::JsonLines, input));
}

/// What a naive reader finds under the two spellings of a field; `None` where it cannot be told apart from here.
fn naive(usage: &Value, names: [&str; 2]) -> Option<Option<u64>> {
    match names.map(|name| usage.get(name)) {
        [None, None] => Some(None),
        [Some(value), None] | [None, Some(value)] if value.is_u64() => Some(value.as_u64()),
        _ => None,
    }
}

/// A usage object that every reader understands is understood; arrivals tell the same.
#[test]
fn usage_document() {
    fuzz("usage_document", STREAM_WORDS, |input| {
        streamed(BodyKind::Json, input);
        let Ok(document) = serde_json::from_slice::<Value>(input) else { return };
        // The last of a name given twice holds for both readers, but not field by field: texts that grow back are single.
        let single =
            document.to_string().len() == input.iter().filter(|byte| !byte.is_ascii_whitespace()).count();
        let Some(usage) = document.get("usage").filter(|usage| usage.is_object() && single) else { return };
        let input_tokens = naive(usage, ["prompt_tokens", "input_tokens"]);
        let output_tokens = naive(usage, ["completion_tokens", "output_tokens"]);
        if let (Some(Some(read)), Some(Some(written))) = (input_tokens, output_tokens) {
            let found =
                tapped(Tap::new(Dialect::OpenAi, BodyKind::Json, false), &[input]).0.expect("a usage");
            assert_eq!((found.input.0, found.output.0), (read, written));
            assert!(found.cached_input <= found.input && found.reasoning <= found.output);
        }
    });
}

fn packed(coding: Coding, plain: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(plain).expect("in memory");
            encoder.finish().expect("in memory")
        }
        Coding::Deflate => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(plain).expect("in memory");
            encoder.finish().expect("in memory")
        }
        Coding::Brotli => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 1, 18);
            encoder.write_all(plain).expect("in memory");
            encoder.into_inner()
        }
        Coding::Zstd => zstd::encode_all(plain, 1).expect("in memory"),
        Coding::Identity | Coding::Other => plain.to_vec(),
    }
}

/// Whether another reader unpacks all of `input`, and little enough of it that no bound is met.
fn is_sound(coding: Coding, input: &[u8]) -> bool {
    let mut plain = Vec::new();
    let most = 500_000;
    let read = match coding {
        Coding::Gzip => flate2::read::MultiGzDecoder::new(input).take(most).read_to_end(&mut plain),
        Coding::Deflate => flate2::read::ZlibDecoder::new(input).take(most).read_to_end(&mut plain),
        Coding::Brotli => brotli::Decompressor::new(input, 4096).take(most).read_to_end(&mut plain),
        Coding::Zstd => match zstd::Decoder::new(input) {
            Ok(decoder) => decoder.take(most).read_to_end(&mut plain),
            Err(error) => Err(error),
        },
        Coding::Identity | Coding::Other => Ok(input.len()),
    };
    read.is_ok_and(|bytes| (bytes as u64) < most)
}

/// Packed nonsense passes unchanged, and what unpacks tells what it told before it was packed.
fn unpacked(coding: Coding, input: &[u8]) {
    let tap = || Tap::of_coded(Dialect::OpenAi, BodyKind::EventStream, coding, true);
    let whole = tapped(tap(), &[input]);
    assert_eq!(whole.4, input);
    // How much is read of what is broken depends on the pieces that it came in.
    let sound = is_sound(coding, input);
    for pieces in [input.chunks(1).collect::<Vec<_>>(), input.chunks(100).collect()] {
        let found = tapped(tap(), &pieces);
        assert!(found.4 == whole.4, "what passed depends on its pieces");
        assert!(!sound || (found.0, found.2) == (whole.0, whole.2), "{found:?}, whole {whole:?}");
    }
    let plain = tapped(Tap::new(Dialect::OpenAi, BodyKind::EventStream, false), &[input]);
    let packed = packed(coding, input);
    let found = tapped(tap(), &[&packed]);
    assert_eq!((found.0, found.1), (plain.0, plain.1));
    assert!(found.4 == packed, "a packed answer passes as it came");
}

#[test]
fn gzip() {
    fuzz("gzip", STREAM_WORDS, |input| unpacked(Coding::Gzip, input));
}

#[test]
fn deflate() {
    fuzz("deflate", STREAM_WORDS, |input| unpacked(Coding::Deflate, input));
}

#[test]
fn brotli_answer() {
    fuzz("brotli", STREAM_WORDS, |input| unpacked(Coding::Brotli, input));
}

#[test]
fn zstandard() {
    fuzz("zstd", STREAM_WORDS, |input| unpacked(Coding::Zstd, input));
}
