//! Requests that are malformed, ambiguous, too large or not for us: the status of each, a JSON
//! error, the connection closed where it must be, and nothing consumed anywhere.

use std::io::Write;

use super::support::backend::answers;
use super::support::client::request;
use super::support::gateway::{CHAT, Key, chat_body};
use super::support::rig::{Figures, Rig};
use serde_json::{Value, json};

/// Bounds of the gateway under test: small, so that what is too large is quickly sent.
const MAX_HEAD: usize = 8 << 10;
const MAX_BODY: usize = 32 << 10;

/// What becomes of the connection after the answer.
#[derive(Copy, Clone, PartialEq)]
enum Connection {
    /// The gateway closes it: what follows could be read in two ways.
    Ends,
    /// The gateway may keep it: the request was framed well.
    MayGoOn,
}
use Connection::{Ends, MayGoOn};

/// One bad request.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    statuses: &'static [u16],
    /// `error.code`, where SPEC names one.
    code: Option<&'static str>,
    connection: Connection,
}

fn check(rig: &Rig, case: Case) {
    let Case { name, bytes, statuses, code, connection } = case;
    let mut client = rig.gateway.connect();
    let answer = client.ask(&bytes);
    assert!(statuses.contains(&answer.status), "{name}: {} {}", answer.status, answer.text());
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("application/json"), "{name}: an error of type {kind:?}");
    assert_ne!(answer.error_text("message"), "", "{name}: no message in {}", answer.text());
    assert!(!answer.text().contains(&rig.key.credential), "{name}: the key is in the answer");
    if let Some(code) = code {
        assert_eq!(answer.code(), code, "{name}: {}", answer.text());
    }
    if connection == Ends {
        assert!(client.is_closed_by_peer(), "{name}: the connection stays open");
    }
}

/// Runs a table of cases on one gateway; then nothing may have been consumed or delivered.
fn check_all(cases: impl Fn(&Key) -> Vec<Case>) {
    let rig = Rig::with(answers(1, 1), super::support::rig::all_types(1000), |config: &mut Value| {
        config["require_key"] = json!("on");
        config["http"] = json!({
            "max_head": format!("{MAX_HEAD}"), "max_body": format!("{MAX_BODY}"),
        });
    });
    for case in cases(&rig.key) {
        check(&rig, case);
    }
    assert_eq!(rig.backend.count(), 0, "requests that reached the backend");
    rig.comes_to("after nothing but bad requests", &Figures::default());
    let answer = rig.gateway.chat(&rig.key, chat_body());
    assert_eq!(answer.status, 200, "the next good request: {}", answer.text());
}

/// A chat request with these further header lines, each with its line end, and this body.
fn raw(key: &Key, lines: &str, body: &str) -> Vec<u8> {
    let bearer = key.bearer();
    format!("POST {CHAT} HTTP/1.1\r\nHost: gateway\r\nAuthorization: {bearer}\r\n{lines}\r\n{body}")
        .into_bytes()
}

#[test]
fn heads_that_are_no_http_or_can_be_read_in_two_ways() {
    let body = chat_body();
    let length = body.len();
    check_all(|key| {
        let framed = |name, lines: &str, statuses| Case {
            name,
            bytes: raw(key, lines, body),
            statuses,
            code: None,
            connection: Ends,
        };
        let whole = |name, text: &str, statuses| Case {
            name,
            bytes: text.as_bytes().to_vec(),
            statuses,
            code: None,
            connection: Ends,
        };
        vec![
            framed("two lengths", &format!("Content-Length: {length}\r\nContent-Length: 3\r\n"), &[400]),
            framed("a list of lengths", &format!("Content-Length: {length}, 3\r\n"), &[400]),
            framed("a signed length", &format!("Content-Length: +{length}\r\n"), &[400]),
            framed("an empty length", "Content-Length:\r\n", &[400]),
            framed("a length past 64 bits", "Content-Length: 99999999999999999999\r\n", &[400, 413]),
            framed(
                "length and chunks",
                &format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
                &[400],
            ),
            framed("an unknown coding", "Transfer-Encoding: gzip, chunked\r\n", &[400, 501]),
            framed("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", &[400]),
            framed("a space before the colon", &format!("Content-Length : {length}\r\n"), &[400]),
            framed("a folded line", &format!("X-One: a\r\n b\r\nContent-Length: {length}\r\n"), &[400]),
            framed("a control in a value", &format!("X-One: a\0b\r\nContent-Length: {length}\r\n"), &[400]),
            framed("a name that is no token", &format!("X One: a\r\nContent-Length: {length}\r\n"), &[400]),
            framed("a second Host", &format!("Host: other\r\nContent-Length: {length}\r\n"), &[400]),
            framed(
                "an unknown expectation",
                &format!("Expect: rain\r\nContent-Length: {length}\r\n"),
                &[400, 417],
            ),
            whole("no Host", "GET /v1/models HTTP/1.1\r\n\r\n", &[400]),
            whole("no version", "GET /v1/models\r\n\r\n", &[400]),
            whole("a version of its own", "GET /v1/models HTTP/3.7\r\nHost: a\r\n\r\n", &[400, 505]),
            whole("no HTTP at all", "\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n", &[400]),
            whole(
                "a tunnel",
                "CONNECT example:443 HTTP/1.1\r\nHost: example:443\r\n\r\n",
                &[400, 404, 405, 501],
            ),
        ]
    });
}

#[test]
fn chunks_that_are_none() {
    check_all(|key| {
        let chunked = |name, body: &str| Case {
            name,
            bytes: raw(key, "Transfer-Encoding: chunked\r\n", body),
            statuses: &[400],
            code: None,
            connection: Ends,
        };
        vec![
            chunked("a size that is no number", "zz\r\n{}\r\n0\r\n\r\n"),
            chunked("a negative size", "-2\r\n{}\r\n0\r\n\r\n"),
            chunked("an empty size", "\r\n{}\r\n0\r\n\r\n"),
            chunked("data longer than its size", "2\r\n{}{}\r\n0\r\n\r\n"),
            chunked("a size with 0x", "0x2\r\n{}\r\n0\r\n\r\n"),
        ]
    });
}

#[test]
fn what_is_too_large() {
    check_all(|key| {
        let big = "x".repeat(MAX_BODY);
        let too_long = format!(r#"{{"model":"m1","prompt":"{big}"}}"#);
        let chunk = format!("{:x}\r\n{too_long}\r\n0\r\n\r\n", too_long.len());
        vec![
            Case {
                name: "a head above the bound",
                bytes: raw(key, &format!("X-Long: {}\r\n", "h".repeat(MAX_HEAD)), ""),
                statuses: &[431],
                code: None,
                connection: Ends,
            },
            Case {
                name: "a thousand headers",
                bytes: raw(key, &"A: b\r\n".repeat(1000), ""),
                statuses: &[431],
                code: None,
                connection: Ends,
            },
            Case {
                name: "a request line above the bound",
                bytes: format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "p".repeat(2 * MAX_HEAD)).into_bytes(),
                statuses: &[414, 431],
                code: None,
                connection: Ends,
            },
            Case {
                name: "a body above the bound, by its length",
                bytes: request("POST", CHAT, &[("Authorization", &key.bearer())], too_long.as_bytes()),
                statuses: &[413],
                code: None,
                connection: MayGoOn,
            },
            Case {
                name: "a length above the bound, and no body",
                bytes: raw(key, "Content-Length: 9999999\r\n", ""),
                statuses: &[413],
                code: None,
                connection: Ends,
            },
            Case {
                name: "a body above the bound, in chunks",
                bytes: raw(key, "Transfer-Encoding: chunked\r\n", &chunk),
                statuses: &[413],
                code: None,
                connection: Ends,
            },
            Case {
                name: "a chunk that says it is larger than the world",
                bytes: raw(key, "Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\n{"),
                statuses: &[400, 413],
                code: None,
                connection: Ends,
            },
        ]
    });
}

#[test]
fn bodies_that_cannot_be_governed() {
    check_all(|key| {
        let bearer = key.bearer();
        let body = |name, text: &str| Case {
            name,
            bytes: request("POST", CHAT, &[("Authorization", &bearer)], text.as_bytes()),
            statuses: &[400],
            code: None,
            connection: MayGoOn,
        };
        let deep = format!(r#"{{"model":"m1","messages":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
        vec![
            body("an empty body", ""),
            body("no JSON", "model=m1"),
            body("half of a JSON", r#"{"model":"m1","messages":["#),
            body("JSON and a tail", r#"{"model":"m1"} x"#),
            body("an array", r#"["model","m1"]"#),
            body("no model", r#"{"messages":[]}"#),
            body("a model that is a number", r#"{"model":1,"messages":[]}"#),
            body("two models", r#"{"model":"m1","messages":[],"model":"m2"}"#),
            body("two models, one escaped", r#"{"model":"m1","messages":[],"mod\u0065l":"m2"}"#),
            body("two streams", r#"{"model":"m1","stream":false,"stream":true}"#),
            body("two output caps", r#"{"model":"m1","max_tokens":1,"max_tokens":9}"#),
            body("an output cap below zero", r#"{"model":"m1","max_tokens":-1}"#),
            body("an output cap in words", r#"{"model":"m1","max_tokens":"many"}"#),
            body("n of zero", r#"{"model":"m1","n":0}"#),
            body("bytes that are no UTF-8", "{\"model\":\"m1\",\"user\":\"\u{0}\"}"),
            body("five thousand brackets", &deep),
        ]
    });
}

#[test]
fn keys_models_and_endpoints_that_are_unknown() {
    check_all(|key| {
        let bearer = key.bearer();
        let ask = |name, path: &str, headers: &[(&str, &str)], body: &str, statuses, code| Case {
            name,
            bytes: request("POST", path, headers, body.as_bytes()),
            statuses,
            code,
            connection: MayGoOn,
        };
        let good = [("Authorization", bearer.as_str())];
        let model = r#"{"model":"other","messages":[]}"#;
        let unknown = "Bearer tt_vk_AAAAAAAAAAAA_0123456789abcdef0123456789abcdef";
        let cut = &bearer[..bearer.len() - 1];
        let two = [("Authorization", bearer.as_str()), ("x-api-key", "another")];
        let invalid = Some("invalid_api_key");
        vec![
            ask("no key", CHAT, &[], chat_body(), &[401], invalid),
            ask("an unknown key", CHAT, &[("Authorization", unknown)], chat_body(), &[401], invalid),
            ask("a key cut short", CHAT, &[("Authorization", cut)], chat_body(), &[401], invalid),
            ask("no key of ours", CHAT, &[("api-key", "sk-123")], chat_body(), &[401], invalid),
            ask("two different keys", CHAT, &two, chat_body(), &[400], None),
            ask("an unknown model", CHAT, &good, model, &[404], Some("model_not_found")),
            ask("an unknown endpoint", "/v1/other", &good, chat_body(), &[404], Some("unknown_endpoint")),
            ask("a path with dots", "/v1/../admin", &good, chat_body(), &[400, 404], None),
            ask("a path with encoded dots", "/v1/%2e%2e/admin", &good, chat_body(), &[400, 404], None),
            ask(
                "a path with an encoded slash",
                "/v1%2fchat/completions",
                &good,
                chat_body(),
                &[400, 404],
                None,
            ),
        ]
    });
}

#[test]
fn a_refusal_before_the_body_does_not_confuse_what_follows() {
    let rig = Rig::with(answers(1, 1), super::support::rig::all_types(1000), |_| {});
    let mut client = rig.gateway.connect();
    let model = r#"{"model":"other","messages":[]}"#;
    let bad = request("POST", CHAT, &[("Authorization", &rig.key.bearer())], model.as_bytes());
    let good = request("POST", CHAT, &[("Authorization", &rig.key.bearer())], chat_body().as_bytes());
    client.send(&[bad.as_slice(), &good, &bad, &good].concat());
    let statuses: Vec<u16> = (0..4).map(|_| client.read().status).collect();
    assert_eq!(statuses, [404, 200, 404, 200], "pipelined, in order");
    rig.comes_to("two of four", &Figures { rpm: 2, slots: 0, requests: 2, tokens: 4, millis: 4 });
}

/// A chat request whose body has this coding.
fn coded(key: &Key, coding: &str, body: &[u8]) -> Vec<u8> {
    request("POST", CHAT, &[("Authorization", &key.bearer()), ("Content-Encoding", coding)], body)
}

/// Packs a body.
type Pack = fn(&[u8]) -> Vec<u8>;

fn brotli(plain: &[u8]) -> Vec<u8> {
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
    encoder.write_all(plain).expect("memory takes it");
    encoder.into_inner()
}

fn zstd(plain: &[u8]) -> Vec<u8> {
    zstd::encode_all(plain, 3).expect("memory takes it")
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(plain).and_then(|()| encoder.finish()).expect("memory takes it")
}

#[test]
fn packed_bodies_that_cannot_be_read() {
    let packed = gzip(chat_body().as_bytes());
    let large = chat_body().replace("say something", &"x".repeat(MAX_BODY));
    let (bomb, bomb_of_zstd) = (gzip(large.as_bytes()), zstd(large.as_bytes()));
    check_all(|key| {
        let case = |name, coding, body: &[u8], statuses| Case {
            name,
            bytes: coded(key, coding, body),
            statuses,
            code: None,
            connection: MayGoOn,
        };
        vec![
            case("a coding that nobody reads here", "compress", &packed, &[415]),
            case("one that is read in two ways", "deflate", &packed, &[415]),
            case("gzip that says it is brotli", "br", &packed, &[400]),
            case("gzip that says it is zstd", "zstd", &packed, &[400]),
            case("two codings", "gzip, gzip", &packed, &[415]),
            case("gzip that is cut", "gzip", &packed[..packed.len() - 3], &[400]),
            case("plain that says it is gzip", "gzip", chat_body().as_bytes(), &[400]),
            case("gzip of more than is taken", "gzip", &bomb, &[413]),
            case("zstd of more than is taken", "zstd", &bomb_of_zstd, &[413]),
        ]
    });
}

#[test]
fn a_packed_body_is_governed_and_goes_on_plain() {
    let rig = Rig::wide(answers(3, 2));
    let packings: [(&str, Pack); 5] =
        [("gzip", gzip), ("GZIP", gzip), ("x-gzip", gzip), ("br", brotli), ("zstd", zstd)];
    for (coding, pack) in packings {
        let bytes = coded(&rig.key, coding, &pack(chat_body().as_bytes()));
        let answer = rig.gateway.connect().ask(&bytes);
        assert_eq!(answer.status, 200, "{coding}: {}", answer.text());
    }
    for asked in rig.backend.requests() {
        assert_eq!(asked.body, chat_body().as_bytes());
        assert_eq!(asked.header("content-encoding"), None, "{}", asked.head);
    }
    rig.comes_to("five packed requests", &Figures { rpm: 5, slots: 0, requests: 5, tokens: 25, millis: 25 });
}
