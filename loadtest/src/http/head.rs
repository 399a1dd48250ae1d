//! Request and response heads.

use std::mem::MaybeUninit;

use crate::bounds;

/// What parsing a head gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// More bytes are needed.
    Partial,
    /// The head, and how many bytes it takes.
    Complete(T, usize),
    /// These bytes are no head this crate accepts, with the reason.
    Bad(&'static str),
    /// The head is over `bounds::MAX_HEAD` or has too many fields.
    TooLarge,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
    /// The connection's end (responses only).
    UntilClose,
}

/// What the backend needs of a request head.
#[derive(Debug, PartialEq, Eq)]
pub struct RequestHead<'b> {
    /// As sent.
    pub method: &'b str,
    /// The target's path, without the query.
    pub path: &'b str,
    /// HTTP/1.1 (else 1.0).
    pub is_1_1: bool,
    /// `None`, `Length` or `Chunked`.
    pub framing: Framing,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
    /// The client waits for a `100 Continue`.
    pub expects_continue: bool,
}

/// What the generator needs of a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code.
    pub status: u16,
    /// Where the body ends.
    pub framing: Framing,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
    /// The body is `text/event-stream`.
    pub is_event_stream: bool,
    /// The limit that refused the request, as `X-Tt-Refused-By` names it.
    pub refused_by: Option<Refuser>,
}

/// The name of a limit, cut after 32 bytes: enough to tell people, and no allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refuser {
    bytes: [u8; 32],
    length: u8,
}

impl Refuser {
    /// Of the value of the header field.
    pub fn new(value: &[u8]) -> Refuser {
        let (mut bytes, length) = ([0; 32], value.len().min(32));
        bytes[..length].copy_from_slice(&value[..length]);
        Refuser { bytes, length: length as u8 }
    }

    /// As text.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..usize::from(self.length)]).into_owned()
    }
}

/// Fields that decide about framing and the connection.
struct Fields {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
    is_event_stream: bool,
    refused_by: Option<Refuser>,
}

fn read_fields(headers: &[httparse::Header<'_>]) -> Result<Fields, &'static str> {
    let mut fields = Fields {
        length: None,
        chunked: false,
        close: false,
        keep_alive: false,
        expects_continue: false,
        is_event_stream: false,
        refused_by: None,
    };
    for header in headers {
        let (name, value) = (header.name, header.value);
        // The length of a name decides first: most fields are skipped without a comparison of bytes.
        match name.len() {
            14 if name.eq_ignore_ascii_case("content-length") => {
                if fields.length.is_some() {
                    return Err("Content-Length is given twice");
                }
                fields.length = Some(parse_length(value).ok_or("Content-Length is no number")?);
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                if fields.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err("Transfer-Encoding is not just \"chunked\"");
                }
                fields.chunked = true;
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                for word in value.split(|byte| *byte == b',') {
                    let word = word.trim_ascii();
                    fields.close |= word.eq_ignore_ascii_case(b"close");
                    fields.keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            6 if name.eq_ignore_ascii_case("expect") => {
                fields.expects_continue = value.eq_ignore_ascii_case(b"100-continue");
            }
            12 if name.eq_ignore_ascii_case("content-type") => {
                const STREAM: &[u8] = b"text/event-stream";
                fields.is_event_stream =
                    value.len() >= STREAM.len() && value[..STREAM.len()].eq_ignore_ascii_case(STREAM);
            }
            15 if name.eq_ignore_ascii_case("x-tt-refused-by") => {
                fields.refused_by = Some(Refuser::new(value));
            }
            _ => {}
        }
    }
    if fields.chunked && fields.length.is_some() {
        return Err("both Content-Length and Transfer-Encoding are given");
    }
    Ok(fields)
}

fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // At most 19 digits: no overflow.
    Some(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Parses the request head at the start of `bytes`.
pub fn parse_request(bytes: &[u8]) -> Parsed<RequestHead<'_>> {
    let mut headers = [const { MaybeUninit::uninit() }; bounds::MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let consumed = match request.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(httparse::Status::Complete(consumed)) => consumed,
        Ok(httparse::Status::Partial) if bytes.len() >= bounds::MAX_HEAD => {
            return Parsed::TooLarge;
        }
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(httparse::Error::TooManyHeaders) => return Parsed::TooLarge,
        Err(_) => return Parsed::Bad("the request head is malformed"),
    };
    let fields = match read_fields(request.headers) {
        Ok(fields) => fields,
        Err(reason) => return Parsed::Bad(reason),
    };
    let is_1_1 = request.version == Some(1);
    let target = request.path.unwrap_or("/");
    let head = RequestHead {
        method: request.method.unwrap_or(""),
        path: target.split_once('?').map_or(target, |(path, _)| path),
        is_1_1,
        framing: match fields.length {
            _ if fields.chunked => Framing::Chunked,
            Some(0) | None => Framing::None,
            Some(length) => Framing::Length(length),
        },
        keep_alive: !fields.close && (is_1_1 || fields.keep_alive),
        expects_continue: fields.expects_continue,
    };
    Parsed::Complete(head, consumed)
}

/// Parses the response head at the start of `bytes`; `to_head_request` says that no body follows whatever the fields say.
pub fn parse_response(bytes: &[u8], to_head_request: bool) -> Parsed<ResponseHead> {
    let mut headers = [const { MaybeUninit::uninit() }; bounds::MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let consumed = match httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut headers,
    ) {
        Ok(httparse::Status::Complete(consumed)) => consumed,
        Ok(httparse::Status::Partial) if bytes.len() >= bounds::MAX_HEAD => {
            return Parsed::TooLarge;
        }
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(httparse::Error::TooManyHeaders) => return Parsed::TooLarge,
        Err(_) => return Parsed::Bad("the response head is malformed"),
    };
    let fields = match read_fields(response.headers) {
        Ok(fields) => fields,
        Err(reason) => return Parsed::Bad(reason),
    };
    let status = response.code.unwrap_or(0);
    let bodiless = to_head_request || status < 200 || status == 204 || status == 304;
    let framing = match fields.length {
        _ if bodiless => Framing::None,
        _ if fields.chunked => Framing::Chunked,
        Some(0) => Framing::None,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    };
    let is_1_1 = response.version == Some(1);
    let head = ResponseHead {
        status,
        framing,
        keep_alive: !fields.close && framing != Framing::UntilClose && (is_1_1 || fields.keep_alive),
        is_event_stream: fields.is_event_stream,
        refused_by: fields.refused_by,
    };
    Parsed::Complete(head, consumed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_framed_and_kept_alive_as_their_fields_say() {
        fn check(text: &str, framing: Framing, keep_alive: bool) {
            match parse_request(text.as_bytes()) {
                Parsed::Complete(head, consumed) => {
                    assert_eq!((head.framing, head.keep_alive), (framing, keep_alive));
                    assert_eq!(consumed, text.len());
                }
                other => panic!("{text:?} gave {other:?}"),
            }
        }
        check("GET /a HTTP/1.1\r\n\r\n", Framing::None, true);
        check("GET /a HTTP/1.0\r\n\r\n", Framing::None, false);
        let kept = "POST /a HTTP/1.0\r\nConnection: Keep-Alive\r\ncontent-LENGTH: 12\r\n\r\n";
        check(kept, Framing::Length(12), true);
        let chunks = "POST /a?b=c HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nconnection: te, close\r\n\r\n";
        check(chunks, Framing::Chunked, false);
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for fields in [
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Content-Length: +1",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: gzip, chunked",
        ] {
            let request = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n");
            assert!(matches!(parse_request(request.as_bytes()), Parsed::Bad(_)), "{fields}");
            let response = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            assert!(matches!(parse_response(response.as_bytes(), false), Parsed::Bad(_)), "{fields}");
        }
    }

    #[test]
    fn responses_without_a_length_end_with_the_connection() {
        fn check(text: &str, framing: Framing, keep_alive: bool) {
            match parse_response(text.as_bytes(), false) {
                Parsed::Complete(head, _) => {
                    assert_eq!((head.framing, head.keep_alive), (framing, keep_alive), "{text}");
                }
                other => panic!("{text:?} gave {other:?}"),
            }
        }
        check("HTTP/1.1 200 OK\r\n\r\n", Framing::UntilClose, false);
        check("HTTP/1.1 204 No Content\r\n\r\n", Framing::None, true);
        check("HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n", Framing::None, true);
        let zero = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        check(zero, Framing::None, false);
    }

    #[test]
    fn a_refusal_names_its_limit() {
        fn check(fields: &str, wanted: Option<&str>) {
            let text = format!("HTTP/1.1 429 Too Many Requests\r\n{fields}Content-Length: 0\r\n\r\n");
            let Parsed::Complete(head, _) = parse_response(text.as_bytes(), false) else { panic!("{text}") };
            assert_eq!(head.refused_by.map(|limit| limit.name()).as_deref(), wanted, "{text}");
        }
        check("X-Tt-Refused-By: ml_daily\r\n", Some("ml_daily"));
        check("x-tt-refused-by:   ml_daily  \r\n", Some("ml_daily"));
        check("X-Tt-Refused-Node: org:acme\r\n", None);
        let long = format!("X-Tt-Refused-By: {}\r\n", "a".repeat(40));
        check(&long, Some("a".repeat(32).as_str()));
    }
}
