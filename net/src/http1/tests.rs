//! Heads and bodies as tables: what is taken, what is refused and by which clause, and that no split of
//! the input changes the answer.

use super::head::parse_request;
use super::response::parse_response;
use super::write::{
    AcceptEncoding, ClientFraming, ProviderCredential, RelayedHead, UpstreamRequest, write_request,
    write_response,
};
use super::*;
use crate::bounds::{MAX_CHUNK_LINE_BYTES, MAX_HEADER_LINES, MAX_TRAILER_BYTES};

const BOUNDS: HeadBounds = HeadBounds { max_bytes: 64 * 1024 };

fn good(head: &str) -> RequestHead {
    match parse_request(head.as_bytes(), &BOUNDS) {
        HeadProgress::Complete { head: parsed, consumed } => {
            assert_eq!(consumed, head.len(), "{head:?}");
            parsed
        }
        HeadProgress::Partial => panic!("partial: {head:?}"),
        HeadProgress::Bad(error) => panic!("{error}: {head:?}"),
    }
}

fn status_of(head: &[u8]) -> u16 {
    match parse_request(head, &BOUNDS) {
        HeadProgress::Complete { .. } => 200,
        HeadProgress::Partial => 0,
        HeadProgress::Bad(error) => error.status,
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let tables: &[(&str, &[(&str, u16)])] = &[
        // Header lines behind a good request line and Host.
        (
            "POST / HTTP/1.1\r\nHost: a\r\n",
            &[
                // RFC 9112 §6.2, §6.3: lengths
                ("Content-Length: 5\r\n", 200),
                ("content-length:5\r\n", 200),
                ("Content-Length: \t 5 \t\r\n", 200),
                ("Content-Length: 005\r\n", 200),
                ("Content-Length: 99999999999999999999999999\r\n", 200),
                ("Content-Length: 5\r\nContent-Length: 5\r\n", 400),
                ("Content-Length: 5\r\nContent-Length: 6\r\n", 400),
                ("Content-Length: 5, 5\r\n", 400),
                ("Content-Length: 5,6\r\n", 400),
                ("Content-Length: +5\r\n", 400),
                ("Content-Length: -5\r\n", 400),
                ("Content-Length: 0x5\r\n", 400),
                ("Content-Length: 5.0\r\n", 400),
                ("Content-Length: 5 5\r\n", 400),
                ("Content-Length:\r\n", 400),
                ("Content-Length: five\r\n", 400),
                ("Content-Length: \u{b2}\r\n", 400),
                // RFC 9112 §6.1: codings
                ("Transfer-Encoding: chunked\r\n", 200),
                ("transfer-encoding: CHUNKED\r\n", 200),
                ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
                ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
                ("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", 400),
                ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
                ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", 400),
                ("Transfer-Encoding: chunked, chunked\r\n", 400),
                ("Transfer-Encoding: chunked, gzip\r\n", 400),
                ("Transfer-Encoding: gzip, chunked\r\n", 501),
                ("Transfer-Encoding: identity\r\n", 400),
                ("Transfer-Encoding: xchunked\r\n", 400),
                ("Transfer-Encoding: chunked;q=1\r\n", 400),
                ("Transfer-Encoding: \"chunked\"\r\n", 400),
                ("Transfer-Encoding: chunked,\r\n", 400),
                ("Transfer-Encoding:\r\n", 400),
                ("Transfer-Encoding: \u{b}chunked\r\n", 400),
                // RFC 9112 §5: field lines
                ("Content-Length : 5\r\n", 400),
                ("Content-Length\t: 5\r\n", 400),
                (" Content-Length: 5\r\n", 400),
                ("X: a\r\n b\r\n", 400),
                ("X: a\r\n\tb\r\n", 400),
                ("X: a\rb\r\n", 400),
                ("X: a\nY: b\r\n", 400),
                ("X: a\r\r\n", 400),
                ("X: a\0b\r\n", 400),
                ("X: a\x7fb\r\n", 400),
                ("X: a\x1bb\r\n", 400),
                ("X: a\tb\r\n", 200),
                ("X: \u{e9}\r\n", 200),
                ("X:\r\n", 200),
                ("X\u{e9}: 1\r\n", 400),
                ("X(Y): 1\r\n", 400),
                (": 1\r\n", 400),
                ("no colon here\r\n", 400),
                // RFC 9112 §3.2: Host
                ("Host: a\r\n", 400),
                ("hOsT: b\r\n", 400),
                // RFC 9110 §10.1.1: expectations
                ("Expect: 100-continue\r\n", 200),
                ("Expect: 100-CONTINUE\r\n", 200),
                ("Expect: 200-ok\r\n", 417),
                ("Expect: 100-continue, x\r\n", 417),
            ],
        ),
        // Whole heads but for the empty line.
        (
            "",
            &[
                ("GET / HTTP/1.1\r\nHost: a\r\n", 200),
                ("\r\nGET / HTTP/1.1\r\nHost: a\r\n", 200),
                ("\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n", 400),
                ("\nGET / HTTP/1.1\r\nHost: a\r\n", 400),
                ("GET / HTTP/1.1\r\n", 400),
                ("GET / HTTP/1.1\r\nHost:\r\n", 200),
                ("GET / HTTP/1.1\r\nHost: a b\r\n", 400),
                ("GET / HTTP/1.1\r\nHost: a/b\r\n", 400),
                ("GET / HTTP/1.1\r\nHost: u@a\r\n", 400),
                ("GET / HTTP/1.1\r\nHost: a:80, b\r\n", 400),
                ("GET / HTTP/1.1\r\nHost: a:8o\r\n", 400),
                ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n", 200),
                ("GET / HTTP/1.1\r\nHost: [::1\r\n", 400),
                ("GET / HTTP/1.0\r\n", 200),
                ("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n", 400),
                ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", 400),
                ("POST / HTTP/1.0\r\nContent-Length: 5\r\n", 200),
                // RFC 9112 §2.3, §3: the request line
                ("GET / HTTP/9.9\r\nHost: a\r\n", 505),
                ("GET / HTTP/2.0\r\nHost: a\r\n", 505),
                ("GET / HTTP/1.2\r\nHost: a\r\n", 505),
                ("GET / HTTP/1.10\r\nHost: a\r\n", 400),
                ("GET / http/1.1\r\nHost: a\r\n", 400),
                ("GET /\r\nHost: a\r\n", 400),
                ("NONSENSE\r\n", 400),
                ("GET  / HTTP/1.1\r\nHost: a\r\n", 400),
                ("GET /  HTTP/1.1\r\nHost: a\r\n", 400),
                ("GET / HTTP/1.1 \r\nHost: a\r\n", 400),
                (" GET / HTTP/1.1\r\nHost: a\r\n", 400),
                ("G(T / HTTP/1.1\r\nHost: a\r\n", 400),
                ("GET\t/\tHTTP/1.1\r\nHost: a\r\n", 400),
                ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n", 501),
                ("OPTIONS * HTTP/1.1\r\nHost: a\r\n", 200),
                ("GET * HTTP/1.1\r\nHost: a\r\n", 400),
                ("GET v1/models HTTP/1.1\r\nHost: a\r\n", 400),
                ("GET http://a/x HTTP/1.1\r\nHost: a\r\n", 200),
                ("GET HTTP://A/x HTTP/1.1\r\nHost: a\r\n", 200),
                ("GET http://b/x HTTP/1.1\r\nHost: a\r\n", 400),
                ("GET http://u@a/x HTTP/1.1\r\nHost: u@a\r\n", 400),
                ("GET http:///x HTTP/1.1\r\nHost: a\r\n", 400),
                ("GET ftp://a/x HTTP/1.1\r\nHost: a\r\n", 400),
                ("\x16\x03\x01\x02\r\n", 400),
            ],
        ),
    ];
    for (front, rows) in tables {
        for (lines, wanted) in *rows {
            let head = format!("{front}{lines}\r\n");
            assert_eq!(status_of(head.as_bytes()), *wanted, "{head:?}");
        }
    }
}

#[test]
fn no_line_of_a_head_that_came_whole_ends_in_lf_alone() {
    for lines in [
        "GET / HTTP/1.1\r\nHost: a\r\nX:\r\nY: \t\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\nY:\r\n\r\n",
        "HTTP/1.1 200\r\n\r\n",
    ] {
        for (at, _) in lines.match_indices('\r') {
            let mut head = lines.to_owned();
            head.remove(at);
            let is_bad = match lines.starts_with("GET") {
                true => is_bare_lf(parse_request(head.as_bytes(), &BOUNDS)),
                false => is_bare_lf(parse_response(head.as_bytes(), &BOUNDS, false)),
            };
            assert!(is_bad, "{head:?}");
        }
    }
}

fn is_bare_lf<T>(progress: HeadProgress<T>) -> bool {
    matches!(progress, HeadProgress::Bad(error) if error == head::BARE_LF)
}

#[test]
fn a_peer_that_speaks_no_http_is_answered_without_waiting_for_the_end_of_a_head() {
    for (bytes, wanted) in [
        (&b"\x16\x03\x01"[..], 400),
        (b"\0", 400),
        (b"GET / HTTP/1.1\n", 400),
        (b"\n", 400),
        (b"", 0),
        (b"\r", 0),
        (b"\r\n", 0),
        (b"G", 0),
    ] {
        assert_eq!(status_of(bytes), wanted, "{bytes:?}");
    }
}

#[test]
fn heads_over_the_bounds_are_431() {
    let lines = |count: usize| {
        let lines: String = (1..count).map(|line| format!("X-{line}: 1\r\n")).collect();
        format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
    };
    assert_eq!(status_of(lines(MAX_HEADER_LINES).as_bytes()), 200);
    assert_eq!(status_of(lines(MAX_HEADER_LINES + 1).as_bytes()), 431);
    let padded = |bytes: usize| {
        let rest = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n".len();
        format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(bytes - rest))
    };
    let bounds = HeadBounds { max_bytes: 1000 };
    for (bytes, fits) in [(1000, true), (1001, false)] {
        let progress = parse_request(padded(bytes).as_bytes(), &bounds);
        assert_eq!(matches!(progress, HeadProgress::Complete { .. }), fits, "{bytes}");
    }
    let endless = vec![b'G'; 1001];
    assert!(matches!(parse_request(&endless, &bounds), HeadProgress::Bad(HeadError { status: 431, .. })));
}

#[test]
fn a_path_has_one_reading_or_none() {
    for (target, wanted) in [
        ("/v1/chat/completions", Ok("/v1/chat/completions")),
        ("/v1/chat/completions?trace=1", Ok("/v1/chat/completions")),
        ("/v1/chat%2Dcompletions", Ok("/v1/chat-completions")),
        ("/v1/%63hat/completions", Ok("/v1/chat/completions")),
        ("/v1/%7e", Ok("/v1/~")),
        ("/v1/a%20b%c3%a9", Ok("/v1/a%20b%C3%A9")),
        ("/v1/", Ok("/v1/")),
        ("/", Ok("/")),
        ("http://a", Ok("/")),
        ("http://a?x", Ok("/")),
        ("/.well-known/x", Ok("/.well-known/x")),
        ("/v1/...", Ok("/v1/...")),
        ("/v1/x?a=../b//c%2f", Ok("/v1/x")),
        ("//v1/chat/completions", Err(())),
        ("/v1//chat/completions", Err(())),
        ("/v1/chat/completions//", Err(())),
        ("/v1/./chat", Err(())),
        ("/v1/../chat", Err(())),
        ("/v1/chat/..", Err(())),
        ("/v1/chat/.", Err(())),
        ("/v1/..;x/chat", Err(())),
        ("/v1/%2e%2e/chat", Err(())),
        ("/v1/%2E/chat", Err(())),
        ("/v1%2fchat", Err(())),
        ("/v1%5cchat", Err(())),
        ("/v1\\chat", Err(())),
        ("/v1/%00", Err(())),
        ("/v1/%0a", Err(())),
        ("/v1/%252e", Err(())),
        ("/v1/%2", Err(())),
        ("/v1/%zz", Err(())),
        ("/v1/\u{e9}", Err(())),
        ("/v1/a#b", Err(())),
        ("/v1/<a>", Err(())),
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let found = match parse_request(head.as_bytes(), &BOUNDS) {
            HeadProgress::Complete { head, .. } => Ok(head.path().to_owned()),
            HeadProgress::Bad(error) => {
                assert_eq!(error.status, 400, "{target}");
                Err(())
            }
            HeadProgress::Partial => panic!("partial: {target}"),
        };
        assert_eq!(found, wanted.map(str::to_owned), "{target}");
    }
}

#[test]
fn a_head_says_how_its_body_and_its_connection_go_on() {
    use BodyFraming::{Chunked, Length, None};
    // version and lines, framing, keep-alive, expects 100
    for (rest, framing, keep_alive, expects) in [
        ("1.1\r\nHost: a\r\n", None, true, false),
        ("1.1\r\nHost: a\r\nConnection: close\r\n", None, false, false),
        ("1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n", None, false, false),
        ("1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: close\r\n", None, false, false),
        ("1.0\r\n", None, false, false),
        ("1.0\r\nConnection: Keep-Alive\r\n", None, true, false),
        ("1.1\r\nHost: a\r\nContent-Length: 0\r\n", None, true, false),
        ("1.1\r\nHost: a\r\nContent-Length: 7\r\n", Length(7), true, false),
        ("1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n", Length(u64::MAX), true, false),
        ("1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n", Chunked, true, false),
        ("1.1\r\nHost: a\r\nContent-Length: 7\r\nExpect: 100-continue\r\n", Length(7), true, true),
        ("1.1\r\nHost: a\r\nExpect: 100-continue\r\n", None, true, false),
        ("1.0\r\nContent-Length: 7\r\nExpect: 100-continue\r\n", Length(7), false, false),
    ] {
        let head = good(&format!("POST /x HTTP/{rest}\r\n"));
        assert_eq!(
            (head.body(), head.keep_alive(), head.expects_continue()),
            (framing, keep_alive, expects),
            "{rest:?}"
        );
    }
}

#[test]
fn a_head_is_the_same_in_any_pieces_and_leaves_what_follows_alone() {
    let text = b"\r\nPOST /v1/a?b=c HTTP/1.1\r\nHost: a\r\nX-Y:  z \r\nContent-Length: 3\r\n\r\nabcGET ";
    let whole = text.len() - 7;
    for step in 1..=text.len() {
        let (mut head, mut search) = (RequestHead::default(), HeadSearch::default());
        let mut end = 0;
        let consumed = loop {
            end = (end + step).min(text.len());
            match head.parse(&text[..end], &BOUNDS, &mut search) {
                HeadProgress::Partial => assert!(end < whole, "step {step}"),
                HeadProgress::Complete { consumed, .. } => break consumed,
                HeadProgress::Bad(error) => panic!("{error}, step {step}"),
            }
        };
        assert_eq!(consumed, whole, "step {step}");
        assert_eq!(head.method(), b"POST");
        assert_eq!((head.path(), head.query()), ("/v1/a", Some(&b"b=c"[..])));
        assert_eq!(head.header("x-y"), Some(&b"z"[..]));
        assert_eq!(head.body(), BodyFraming::Length(3));
    }
}

/// The whole head is searched once however slowly it comes: the work is counted, not timed.
#[test]
fn a_slow_large_head_is_searched_once() {
    let mut text = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
    text.resize(60 * 1024, b'y');
    let (mut head, mut search) = (RequestHead::default(), HeadSearch::default());
    let started = std::time::Instant::now();
    for end in 1..text.len() {
        assert_eq!(head.parse(&text[..end], &BOUNDS, &mut search), HeadProgress::Partial);
    }
    // A search from the front each time would look at 1.9e9 bytes.
    assert!(started.elapsed().as_secs() < 5);
}

/// The data, and how many bytes were used; Err at broken framing.
fn unchunk(input: &[u8], step: usize) -> Result<Option<(Vec<u8>, usize)>, &'static str> {
    let (mut decoder, mut data, mut at) = (ChunkedDecoder::default(), Vec::new(), 0);
    for piece in input.chunks(step) {
        let mut rest = piece;
        loop {
            let (used, found) = decoder.step(rest);
            at += used;
            match found {
                ChunkStep::Data(span) => data.extend_from_slice(&rest[span]),
                ChunkStep::NeedMore => break,
                ChunkStep::Done => return Ok(Some((data, at))),
                ChunkStep::Bad(reason) => return Err(reason),
            }
            rest = &rest[used..];
        }
    }
    Ok(None)
}

#[test]
fn a_chunked_body_is_the_same_in_any_pieces() {
    let long_extension = format!("1;{}\r\na\r\n0\r\n\r\n", "e".repeat(MAX_CHUNK_LINE_BYTES + 1));
    let long_trailer = format!("0\r\nX: {}\r\n\r\n", "t".repeat(MAX_TRAILER_BYTES));
    let many_trailers = format!("0\r\n{}\r\n", "X: t\r\n".repeat(MAX_TRAILER_BYTES / 4 + 1));
    for (input, wanted) in [
        ("0\r\n\r\n", Ok(Some(""))),
        ("3\r\nabc\r\n0\r\n\r\n", Ok(Some("abc"))),
        ("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nGET", Ok(Some("abcde"))),
        ("A\r\n0123456789\r\n000\r\n\r\n", Ok(Some("0123456789"))),
        ("0000000000000003\r\nabc\r\n0\r\n\r\n", Ok(Some("abc"))),
        ("3;a=b;c=\"d e\"\r\nabc\r\n0;x\r\n\r\n", Ok(Some("abc"))),
        ("3\r\n\r\n\r\r\n0\r\n\r\n", Ok(Some("\r\n\r"))),
        ("0\r\nX: y\r\nZ:\r\n\r\n", Ok(Some(""))),
        ("3\r\nabc\r\n0\r\n", Ok(None)),
        ("3\r\nab", Ok(None)),
        ("3\r\nabcd\r\n0\r\n\r\n", Err(())),
        ("3\r\nabc\n0\r\n\r\n", Err(())),
        ("3\nabc\r\n0\r\n\r\n", Err(())),
        ("3 \r\nabc\r\n0\r\n\r\n", Err(())),
        (" 3\r\nabc\r\n0\r\n\r\n", Err(())),
        ("0x3\r\nabc\r\n0\r\n\r\n", Err(())),
        ("+3\r\nabc\r\n0\r\n\r\n", Err(())),
        ("-3\r\nabc\r\n0\r\n\r\n", Err(())),
        ("\r\nabc\r\n0\r\n\r\n", Err(())),
        (";x\r\nabc\r\n0\r\n\r\n", Err(())),
        ("10000000000000000\r\nabc", Err(())),
        ("00000000000000003\r\nabc\r\n0\r\n\r\n", Err(())),
        ("3;\n\r\nabc\r\n0\r\n\r\n", Err(())),
        ("3\rabc", Err(())),
        ("0\r\nX: y\nZ: z\r\n\r\n", Err(())),
        ("0\r\nX: \0\r\n\r\n", Err(())),
        (&long_extension, Err(())),
        (&long_trailer, Err(())),
        (&many_trailers, Err(())),
    ] {
        let whole = unchunk(input.as_bytes(), input.len());
        let data = whole.as_ref().map(|end| end.as_ref().map(|(data, _)| std::str::from_utf8(data).unwrap()));
        assert_eq!(data.map_err(|_| ()), wanted, "{:?}", &input[..input.len().min(60)]);
        for step in 1..input.len().min(64) {
            assert_eq!(unchunk(input.as_bytes(), step), whole, "{input:?} in pieces of {step}");
        }
    }
    assert_eq!(unchunk(b"0\r\n\r\nGET", 8).unwrap().unwrap().1, 5, "what follows stays");
}

#[test]
fn chunk_sizes_are_written_as_they_are_read() {
    for bytes in [1usize, 9, 10, 15, 16, 255, 256, 4096, 65_535, 1 << 40] {
        let mut out = Vec::new();
        chunked::write_chunk_size(&mut out, bytes);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{bytes:x}\r\n"));
    }
}

#[test]
fn a_response_has_one_framing_or_is_bad() {
    use ResponseBody::{Chunked, Length, None, UntilClose};
    // head, to a HEAD, framing and keep-alive
    for (head, to_head, wanted) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", false, Some((Length(5), true))),
        ("HTTP/1.1 200\r\nContent-Length: 0\r\n", false, Some((Length(0), true))),
        ("HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n", false, Some((Chunked, true))),
        ("HTTP/1.1 200 OK\r\n", false, Some((UntilClose, false))),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n", false, Some((Length(5), false))),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n",
            false,
            Some((Length(5), true)),
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n", false, Some((Length(5), false))),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", true, Some((None, true))),
        ("HTTP/1.1 204 No Content\r\n", false, Some((None, true))),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n", false, Some((None, true))),
        ("HTTP/1.1 100 Continue\r\n", false, Some((None, true))),
        ("HTTP/1.1 999 \u{e9}\r\nContent-Length: 5\r\n", false, Some((Length(5), true))),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n", false, Option::None),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n", false, Option::None),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n", false, Option::None),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n", false, Option::None),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n", false, Option::None),
        ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\n", false, Option::None),
        ("HTTP/1.1 200 OK\r\nX : a\r\n", false, Option::None),
        ("HTTP/2 200 OK\r\n", false, Option::None),
        ("HTTP/1.1 20 OK\r\n", false, Option::None),
        ("HTTP/1.1 099 OK\r\n", false, Option::None),
        ("\r\nHTTP/1.1 200 OK\r\n", false, Option::None),
        ("ICY 200 OK\r\n", false, Option::None),
    ] {
        let head = format!("{head}\r\n");
        let found = match parse_response(head.as_bytes(), &BOUNDS, to_head) {
            HeadProgress::Complete { head, .. } => Some((head.body(), head.keep_alive())),
            HeadProgress::Bad(_) => Option::None,
            HeadProgress::Partial => panic!("partial: {head:?}"),
        };
        assert_eq!(found, wanted, "{head:?}");
    }
}

#[test]
fn interim_answers_are_told_from_final_ones() {
    for (status, interim) in [(100, true), (102, true), (103, true), (101, false), (200, false)] {
        let head = format!("HTTP/1.1 {status} X\r\n\r\n");
        let HeadProgress::Complete { head, .. } = parse_response(head.as_bytes(), &BOUNDS, false) else {
            panic!("{status}")
        };
        assert_eq!(head.is_interim(), interim, "{status}");
    }
}

#[test]
fn a_backend_gets_what_is_end_to_end_and_only_its_own_credential() {
    let head = good(
        "POST /v1/%63hat/completions?a=%2f HTTP/1.1\r\nHost: gateway\r\nConnection: keep-alive, X-Mine\r\n\
         X-Mine: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authorization: Basic eA==\r\nTE: trailers\r\n\
         Trailer: X\r\nUpgrade: h2c\r\nProxy-Connection: keep-alive\r\nauthorization: Bearer tt_secret\r\n\
         X-API-Key: tt_secret\r\napi-key: tt_secret\r\nX-kEPT: b  c\r\nx-kept:\t\u{e9} \r\n\
         Accept-Encoding: br, GZIP\r\nExpect: 100-continue\r\nContent-Length: 9\r\nContent-Encoding: gzip\r\nUser-Agent: t/1\r\n\r\n",
    );
    let written = |credential, accept_encoding, body_bytes| {
        let mut out = Vec::new();
        let request = UpstreamRequest {
            head: &head,
            host: "10.0.0.1:8000",
            prefix: "/base",
            credential,
            accept_encoding,
            body_bytes,
        };
        write_request(&mut out, &request);
        String::from_utf8(out).unwrap()
    };
    let front = "POST /base/v1/chat/completions?a=%2f HTTP/1.1\r\nHost: 10.0.0.1:8000\r\nX-kEPT: b  c\r\n\
                 x-kept:\t\u{e9} \r\nUser-Agent: t/1\r\n";
    assert_eq!(
        written(ProviderCredential::Bearer("sk"), AcceptEncoding::GzipIfAsked, Some(12)),
        format!("{front}Accept-Encoding: gzip\r\nAuthorization: Bearer sk\r\nContent-Length: 12\r\n\r\n")
    );
    assert_eq!(
        written(ProviderCredential::XApiKey("sk"), AcceptEncoding::Identity, None),
        format!("{front}Accept-Encoding: identity\r\nx-api-key: sk\r\n\r\n")
    );
    assert_eq!(
        written(ProviderCredential::Absent, AcceptEncoding::Identity, Some(0)),
        format!("{front}Accept-Encoding: identity\r\nContent-Length: 0\r\n\r\n")
    );
}

#[test]
fn gzip_is_asked_for_only_when_the_client_takes_it() {
    for (value, gzip) in [
        ("gzip", true),
        ("deflate, gzip;q=0.5", true),
        ("*", true),
        ("gzip;q=0", false),
        ("gzip; q=0.000", false),
        ("br", false),
        ("", false),
    ] {
        let head = good(&format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {value}\r\n\r\n"));
        let mut out = Vec::new();
        let request = UpstreamRequest {
            head: &head,
            host: "b",
            prefix: "",
            credential: ProviderCredential::Absent,
            accept_encoding: AcceptEncoding::GzipIfAsked,
            body_bytes: None,
        };
        write_request(&mut out, &request);
        assert_eq!(String::from_utf8(out).unwrap().contains("Accept-Encoding: gzip\r\n"), gzip, "{value}");
    }
}

#[test]
fn a_response_head_is_relayed_byte_for_byte_but_for_its_hop() {
    let head =
        b"HTTP/1.1 418 I'm \xe9\r\nX-One: a\r\nConnection: x-back\r\nX-Back: 1\r\nKeep-Alive: timeout=9\r\n\
                 x-two: \xff B  b\r\nX-RateLimit-Limit-Requests: 9\r\nx-ratelimit-limit-tokens: 8\r\n\
                 Content-Length: 5\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\n";
    let HeadProgress::Complete { head, .. } = parse_response(head, &BOUNDS, false) else { panic!() };
    let check = |framing, version, keep_alive, wanted: &[u8]| {
        let mut out = Vec::new();
        let relayed = RelayedHead {
            head: &head,
            framing,
            version,
            keep_alive,
            request_id: b"r1",
            extra: b"x-ratelimit-limit-requests: 5\r\n",
            replaces: Some(Role::RateLimit),
        };
        write_response(&mut out, &relayed);
        let front = b"HTTP/1.1 418 I'm \xe9\r\nX-One: a\r\nx-two: \xff B  b\r\nx-ratelimit-limit-tokens: 8\r\n\
                      Set-Cookie: a\r\nSet-Cookie: b\r\nx-request-id: r1\r\nx-ratelimit-limit-requests: 5\r\n";
        assert_eq!(out.escape_ascii().to_string(), [front, wanted].concat().escape_ascii().to_string());
    };
    check(ClientFraming::Length(5), Version::Http11, true, b"Content-Length: 5\r\n\r\n");
    check(ClientFraming::Chunked, Version::Http11, true, b"Transfer-Encoding: chunked\r\n\r\n");
    check(ClientFraming::UntilClose, Version::Http10, true, b"Connection: close\r\n\r\n");
    let kept = b"Content-Length: 5\r\nConnection: keep-alive\r\n\r\n";
    check(ClientFraming::Length(5), Version::Http10, true, kept);
    check(ClientFraming::None, Version::Http11, false, b"Content-Length: 5\r\nConnection: close\r\n\r\n");
}

#[test]
fn a_backends_request_id_is_kept() {
    let head = b"HTTP/1.1 200 OK\r\nX-Request-Id: theirs\r\n\r\n";
    let HeadProgress::Complete { head, .. } = parse_response(head, &BOUNDS, false) else { panic!() };
    let mut out = Vec::new();
    let relayed = RelayedHead {
        head: &head,
        framing: ClientFraming::choose(Version::Http11, head.body(), false),
        version: Version::Http11,
        keep_alive: true,
        request_id: b"ours",
        extra: b"",
        replaces: None,
    };
    write_response(&mut out, &relayed);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "HTTP/1.1 200 OK\r\nX-Request-Id: theirs\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
}

#[test]
fn roles_are_found_in_any_case_and_only_by_whole_names() {
    for (name, role) in [
        ("Host", Role::Host),
        ("TE", Role::HopByHop),
        ("CONTENT-LENGTH", Role::ContentLength),
        ("Content-Lengths", Role::Other),
        ("content_length", Role::Other),
        ("x-ratelimit-reset-tokens", Role::RateLimit),
        ("Anthropic-Ratelimit-Tokens-Reset", Role::AnthropicRateLimit),
        ("x", Role::Other),
        ("", Role::Other),
        ("x-ratelimit-remix!!!-tokens", Role::Other),
        ("transfer-xncoding", Role::Other),
        ("tE", Role::HopByHop),
        ("tee", Role::Other),
        ("hosts", Role::Other),
        ("eXpect", Role::Expect),
        ("api_key", Role::Other),
        ("y-request-id-with-a-name-that-is-longer-than-any-name-that-has-a-role", Role::Other),
    ] {
        assert_eq!(Role::of(name), role, "{name}");
    }
}

proptest::proptest! {
    /// No bytes make a parser panic, and pieces never change the outcome.
    #[test]
    fn arbitrary_bytes_end_in_a_verdict(bytes in proptest::collection::vec(
        proptest::prop_oneof![
            proptest::sample::select(&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n:;0123af"[..]),
            proptest::arbitrary::any::<u8>(),
        ],
        0..200,
    )) {
        let whole = parse_request(&bytes, &BOUNDS);
        let (mut head, mut search) = (RequestHead::default(), HeadSearch::default());
        let mut last = HeadProgress::Partial;
        for end in 0..=bytes.len() {
            last = head.parse(&bytes[..end], &BOUNDS, &mut search);
            if last != HeadProgress::Partial {
                break;
            }
        }
        match (whole, last) {
            (HeadProgress::Partial, HeadProgress::Partial) => {}
            (HeadProgress::Bad(_), HeadProgress::Bad(_)) => {}
            (
                HeadProgress::Complete { consumed: one, .. },
                HeadProgress::Complete { consumed: other, .. },
            ) => proptest::prop_assert_eq!(one, other),
            (one, other) => proptest::prop_assert!(false, "{:?} and {:?}", one, other),
        }
        let _ = parse_response(&bytes, &BOUNDS, false);
        for step in [1, 3, 1000] {
            let split = unchunk(&bytes, step);
            let whole = unchunk(&bytes, bytes.len().max(1));
            proptest::prop_assert_eq!(split, whole);
        }
    }
}
