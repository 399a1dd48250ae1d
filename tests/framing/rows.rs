//! The bytes, what must come of them, and why.

/// One row of the table.
pub struct Row {
    /// What is odd about the bytes.
    pub what: &'static str,
    /// Where it is said what to do.
    pub clause: &'static str,
    /// What is sent.
    pub bytes: Vec<u8>,
    /// How many requests must reach the backend.
    pub passes: usize,
    /// Why nginx does something else; empty where it does the same.
    pub why: &'static str,
    /// Both pass it on, in different spellings of one target.
    pub read_otherwise: bool,
}

const BODY: &str = r#"{"model":"m1","messages":[{"role":"user","content":"say something"}]}"#;
const CHUNKS: &str = "Transfer-Encoding: chunked\r\n";

/// A chat request with these further lines, each with its end.
fn post(lines: &str, body: &str) -> Vec<u8> {
    format!("POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n{lines}\r\n{body}").into_bytes()
}

/// A good one: what would be smuggled behind another.
fn good() -> Vec<u8> {
    post(&length(BODY.len()), BODY)
}

fn length(bytes: usize) -> String {
    format!("Content-Length: {bytes}\r\n")
}

fn chunked(body: &str) -> Vec<u8> {
    post(CHUNKS, body)
}

/// One chunk, and the last one.
fn in_a_chunk() -> String {
    format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len())
}

fn target(target: &str) -> Vec<u8> {
    let own = length(BODY.len());
    format!("POST {target} HTTP/1.1\r\nHost: gateway\r\n{own}\r\n{BODY}").into_bytes()
}

/// Every row, in the order of the document.
pub fn rows() -> Vec<Row> {
    let own = length(BODY.len());
    let with = |lines: &str| post(&format!("{lines}{own}"), BODY);
    let row =
        |what, clause, bytes, passes, why| Row { what, clause, bytes, passes, why, read_otherwise: false };
    let wide = format!("{:x};name=\"a;b\"\r\n{BODY}\r\n0\r\n\r\n", BODY.len());
    let trailers = format!("{:x}\r\n{BODY}\r\n0\r\nX-Late: 1\r\n\r\n", BODY.len());
    let zeros = format!("000{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len());
    let strict = "the two may count differently; refused rather than guessed";
    vec![
        row("a length", "9112 §6.3", good(), 1, ""),
        row("chunks", "9112 §7.1", chunked(&in_a_chunk()), 1, ""),
        row("two requests in one write", "9112 §9.3.2", [good(), good()].concat(), 2, ""),
        row("an empty line in front", "9112 §2.2", [b"\r\n".to_vec(), good()].concat(), 1, ""),
        row("a length given twice, the same", "9112 §6.3", with(&own), 0, ""),
        row("two lengths", "9112 §6.3", with("Content-Length: 3\r\n"), 0, ""),
        row(
            "a list of equal lengths",
            "9112 §6.3",
            post(&format!("Content-Length: {0}, {0}\r\n", BODY.len()), BODY),
            0,
            "",
        ),
        row(
            "a signed length",
            "9110 §8.6",
            post(&format!("Content-Length: +{}\r\n", BODY.len()), BODY),
            0,
            "",
        ),
        row("a length in hexadecimal", "9110 §8.6", post("Content-Length: 0x10\r\n", BODY), 0, ""),
        row("an empty length", "9110 §8.6", post("Content-Length: \r\n", BODY), 0, ""),
        row(
            "a length beyond 64 bits",
            "9110 §8.6",
            post("Content-Length: 18446744073709551617\r\n", BODY),
            0,
            "any number that large is larger than `http.max_body`",
        ),
        row("a length and chunks", "9112 §6.1", post(&format!("{own}{CHUNKS}"), &in_a_chunk()), 0, ""),
        row("chunks and a length", "9112 §6.1", post(&format!("{CHUNKS}{own}"), &in_a_chunk()), 0, ""),
        row(
            "chunks in 1.0",
            "9112 §6.1",
            format!("POST /v1/chat/completions HTTP/1.0\r\nHost: gateway\r\n{CHUNKS}\r\n{}", in_a_chunk())
                .into_bytes(),
            0,
            "",
        ),
        row("chunked twice", "9112 §6.1", post(&format!("{CHUNKS}{CHUNKS}"), &in_a_chunk()), 0, ""),
        row(
            "a coding that is not the last",
            "9112 §6.1",
            post("Transfer-Encoding: chunked, gzip\r\n", &in_a_chunk()),
            0,
            "as the clause says for a request whose last coding is not chunked; nginx calls it unsupported",
        ),
        row(
            "a coding that nobody knows",
            "9112 §6.1",
            post("Transfer-Encoding: xchunked\r\n", &in_a_chunk()),
            0,
            "the framing cannot be known, so 400; nginx calls it unsupported",
        ),
        row("chunked in capitals", "9112 §7", post("Transfer-Encoding: CHUNKED\r\n", &in_a_chunk()), 1, ""),
        row(
            "a tab before chunked",
            "9112 §5.1",
            post("Transfer-Encoding:\tchunked\r\n", &in_a_chunk()),
            1,
            "a tab is optional white space like a blank; nginx takes it for part of the name of the coding",
        ),
        row(
            "a vertical tab before chunked",
            "9112 §5.1",
            post("Transfer-Encoding: \x0bchunked\r\n", &in_a_chunk()),
            0,
            "a control character; nginx takes it for part of the name of the coding",
        ),
        row("a chunk's extension", "9112 §7.1.1", chunked(&wide), 1, ""),
        row("trailers", "9112 §7.1.2", chunked(&trailers), 1, ""),
        row("zeros before a chunk's size", "9112 §7.1", chunked(&zeros), 1, ""),
        row("a chunk's size with 0x", "9112 §7.1", chunked(&format!("0x{}", in_a_chunk())), 0, ""),
        row("a blank before a chunk's size", "9112 §7.1", chunked(&format!(" {}", in_a_chunk())), 0, ""),
        row("a chunk's size beyond 64 bits", "9112 §7.1", chunked("10000000000000000\r\nx"), 0, ""),
        row("a negative chunk's size", "9112 §7.1", chunked(&format!("-{}", in_a_chunk())), 0, ""),
        row(
            "a chunk that ends in LF",
            "9112 §7.1",
            chunked(&in_a_chunk().replacen("\r\n", "\n", 1)),
            0,
            strict,
        ),
        row(
            "a chunk longer than its size",
            "9112 §7.1",
            chunked(&format!("3\r\n{BODY}\r\n0\r\n\r\n")),
            0,
            "",
        ),
        row(
            "a line that ends in LF",
            "9112 §2.2",
            with("X-One: a\n"),
            0,
            "a recipient MAY take LF for CRLF; a backend that does not would see one header where we see two",
        ),
        row("a bare CR in a value", "9112 §2.2", with("X-One: a\rb\r\n"), 0, ""),
        row("NUL in a value", "9110 §5.5", with("X-One: a\0b\r\n"), 0, ""),
        row("a folded line", "9112 §5.2", with("X-One: a\r\n b\r\n"), 0, ""),
        row(
            "a blank before the colon",
            "9112 §5.1",
            post(&format!("Content-Length : {}\r\n", BODY.len()), BODY),
            0,
            "",
        ),
        row("a blank before the first header", "9112 §2.2", post(" X-One: a\r\n", ""), 0, ""),
        row(
            "a line without a colon",
            "9112 §5.1",
            with("X-One\r\n"),
            0,
            "nginx drops the line silently; who reads it as a header sees another request",
        ),
        row(
            "a name that is no token",
            "9110 §5.1",
            with("X(One): a\r\n"),
            0,
            "nginx drops the line silently; the same",
        ),
        row("a name with an underscore", "9110 §5.1", with("X_One: a\r\n"), 1, ""),
        row("an empty name", "9110 §5.1", with(": a\r\n"), 0, ""),
        row(
            "bytes beyond ASCII in a value",
            "9110 §5.5",
            [
                post_head(),
                b"X-One: \xe4\xff\r\n".to_vec(),
                own.clone().into_bytes(),
                b"\r\n".to_vec(),
                BODY.into(),
            ]
            .concat(),
            1,
            "",
        ),
        row("a hundred headers", "9110 §5.4", with(&"X-One: a\r\n".repeat(100)), 1, ""),
        row(
            "two hundred headers",
            "9110 §5.4",
            with(&"X-One: a\r\n".repeat(200)),
            0,
            "a bound on lines, 128, beside the one on bytes",
        ),
        row(
            "a header of 9 KiB",
            "6585 §5",
            with(&format!("X-One: {}\r\n", "a".repeat(9 << 10))),
            0,
            "the status that RFC 6585 has for it",
        ),
        row(
            "no Host",
            "9112 §3.2",
            format!("POST /v1/chat/completions HTTP/1.1\r\n{own}\r\n{BODY}").into_bytes(),
            0,
            "",
        ),
        row("two Hosts", "9112 §3.2", with("Host: other\r\n"), 0, ""),
        row(
            "a Host with a blank",
            "9112 §3.2",
            format!("POST /v1/chat/completions HTTP/1.1\r\nHost: a b\r\n{own}\r\n{BODY}").into_bytes(),
            0,
            "",
        ),
        row(
            "an absolute target of that Host",
            "9112 §3.2.2",
            target("http://gateway/v1/chat/completions"),
            1,
            "",
        ),
        row(
            "an absolute target of another host",
            "9112 §3.2.2",
            target("http://other/v1/chat/completions"),
            0,
            "the two hosts contradict each other; nginx believes the target, a backend may believe the header",
        ),
        row("a target without a slash", "9112 §3.2.1", target("v1/chat/completions"), 0, ""),
        row(
            "a target with a fragment",
            "9112 §3.2",
            target("/v1/chat/completions#a"),
            0,
            "no request target has one; nginx cuts it off or sends it on, by version",
        ),
        row(
            "a tunnel",
            "9110 §9.3.6",
            b"CONNECT gateway:80 HTTP/1.1\r\nHost: gateway:80\r\n\r\n".to_vec(),
            0,
            "a method that is known and not supported",
        ),
        row(
            "two blanks in the start line",
            "9112 §3",
            format!("POST  /v1/chat/completions HTTP/1.1\r\nHost: a\r\n{own}\r\n{BODY}").into_bytes(),
            0,
            "the clause has one; nginx skips them",
        ),
        row(
            "a version of three",
            "9110 §2.5",
            format!("POST /v1/chat/completions HTTP/3.0\r\nHost: a\r\n{own}\r\n{BODY}").into_bytes(),
            0,
            "",
        ),
        row(
            "no version",
            "9112 §3",
            b"GET /v1/models\r\n\r\n".to_vec(),
            0,
            "HTTP/0.9, which has no headers, so no credential",
        ),
        row(
            "dots in the path",
            "SPEC §10",
            target("/v1/x/../chat/completions"),
            0,
            "the route, the caps and the backend must read the same path; nginx routes one and sends the other",
        ),
        row("dots at the end of the path", "SPEC §10", target("/v1/chat/completions/."), 0, "the same"),
        row("an empty segment", "SPEC §10", target("/v1//chat/completions"), 0, "the same"),
        row("an encoded slash", "SPEC §10", target("/v1%2fchat/completions"), 0, "the same"),
        row("an encoded dot segment", "SPEC §10", target("/v1/%2e%2e/v1/chat/completions"), 0, "the same"),
        row(
            "a backslash",
            "SPEC §10",
            target("/v1\\chat/completions"),
            0,
            "the same; some backends read it as a slash",
        ),
        Row {
            read_otherwise: true,
            ..row("an encoded letter", "3986 §6.2.2.2", target("/v1/%63hat/completions"), 1, "")
        },
        row("an escape that is none", "3986 §2.1", target("/v1/chat/completions%zz"), 0, ""),
        row(
            "a body longer than its length",
            "9112 §6.3",
            post(&own, &format!("{BODY}garbage")),
            1,
            "the rest is read as the next request, and waited for; nginx sees at once that it is none",
        ),
        row("a body shorter than its length", "9112 §6.3", post(&length(BODY.len() + 9), BODY), 0, ""),
        row("an expectation of 100", "9110 §10.1.1", with("Expect: 100-continue\r\n"), 1, ""),
        row(
            "another expectation",
            "9110 §10.1.1",
            with("Expect: rain\r\n"),
            0,
            "as the clause allows; nginx ignores it, and the client waits for what never comes",
        ),
        row("an upgrade", "9110 §7.8", with("Connection: upgrade\r\nUpgrade: h2c\r\n"), 1, ""),
        row(
            "HTTP/2 at once",
            "9113 §3.4",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            0,
            "the version is none that is spoken here",
        ),
        row(
            "a TLS handshake",
            "8446 §4.1.2",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
            0,
            "",
        ),
        row(
            "a smuggled request behind a chunk of no size",
            "9112 §6.1",
            [post(&format!("Content-Length: 4\r\n{CHUNKS}"), "0\r\n\r\n"), good()].concat(),
            0,
            "",
        ),
        row(
            "a good request behind a broken one",
            "9112 §9.3.2",
            [with("X One: a\r\n"), good()].concat(),
            0,
            "",
        ),
    ]
}

fn post_head() -> Vec<u8> {
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n".to_vec()
}
