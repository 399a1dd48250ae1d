//! Heads out: the request to the backend and the response to the client, appended to reused buffers.
//!
//! Towards the backend everything end-to-end passes as it came, in its order and spelling, except what
//! is replaced: `Host`, the framing, `Expect`, `Accept-Encoding` (only codings whose usage can be read)
//! and every credential. Towards the client the backend's status, reason and end-to-end headers pass byte
//! for byte, except the framing, which is chosen for that client, and the rate headers, which are this
//! gateway's when it has figures.

use super::head::{RequestHead, Version};
use super::headers::{Role, list};
use super::response::{ResponseBody, ResponseHead};

/// The provider's credential in the dialect of its `api`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProviderCredential<'a> {
    /// The backend takes none.
    Absent,
    /// `Authorization: Bearer`.
    Bearer(&'a str),
    /// `x-api-key`, for Anthropic.
    XApiKey(&'a str),
}

/// What goes into `Accept-Encoding`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcceptEncoding {
    /// `identity`: the answer must be readable as it is.
    Identity,
    /// `gzip` when the client takes it, else `identity`.
    GzipIfAsked,
}

/// One request to a backend.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamRequest<'a> {
    /// The client's head.
    pub head: &'a RequestHead,
    /// `Host` for the backend.
    pub host: &'a str,
    /// The path prefix of the provider's base URL, without a final slash; may be empty.
    pub prefix: &'a str,
    /// The provider's own credential.
    pub credential: ProviderCredential<'a>,
    /// Which codings the backend may use.
    pub accept_encoding: AcceptEncoding,
    /// Bytes of the body that follows; None when the request has no body at all.
    pub body_bytes: Option<u64>,
}

/// Append the head of a request to a backend.
pub fn write_request(out: &mut Vec<u8>, request: &UpstreamRequest<'_>) {
    let head = request.head;
    out.extend_from_slice(head.method());
    out.push(b' ');
    out.extend_from_slice(request.prefix.as_bytes());
    out.extend_from_slice(head.path().as_bytes());
    if let Some(query) = head.query() {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(request.host.as_bytes());
    out.extend_from_slice(b"\r\n");
    let mut gzip = false;
    for line in head.end_to_end() {
        match line.role() {
            // The body goes on plain, whatever its coding was.
            Role::Host
            | Role::Expect
            | Role::Authorization
            | Role::XApiKey
            | Role::ApiKey
            | Role::ContentEncoding => {}
            Role::AcceptEncoding => gzip |= accepts_gzip(line.value()),
            _ => out.extend_from_slice(line.raw()),
        }
    }
    out.extend_from_slice(match request.accept_encoding {
        AcceptEncoding::GzipIfAsked if gzip => b"Accept-Encoding: gzip\r\n",
        _ => &b"Accept-Encoding: identity\r\n"[..],
    });
    match request.credential {
        ProviderCredential::Absent => {}
        ProviderCredential::Bearer(key) => {
            out.extend_from_slice(b"Authorization: Bearer ");
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        ProviderCredential::XApiKey(key) => write_header(out, "x-api-key", key.as_bytes()),
    }
    if let Some(bytes) = request.body_bytes {
        write_length(out, bytes);
    }
    out.extend_from_slice(b"\r\n");
}

/// Whether an `Accept-Encoding` takes gzip: named, or `*`, and not with a weight of zero.
fn accepts_gzip(value: &[u8]) -> bool {
    list(value).any(|member| {
        let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let coding = parts.next().unwrap_or(b"");
        let named = [&b"gzip"[..], b"x-gzip", b"*"].iter().any(|name| coding.eq_ignore_ascii_case(name));
        let refused = parts.any(|part| {
            let weight = part.strip_prefix(b"q=").or(part.strip_prefix(b"Q="));
            weight.is_some_and(|weight| weight.iter().all(|byte| matches!(byte, b'0' | b'.')))
        });
        named && !refused
    })
}

/// How an answer's body is framed towards the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientFraming {
    /// No body is sent; a `Content-Length` of the backend stays where it is allowed (HEAD, 304).
    None,
    /// So many bytes.
    Length(u64),
    /// Chunked.
    Chunked,
    /// Until the connection closes (an HTTP/1.0 client and no known length).
    UntilClose,
}

impl ClientFraming {
    /// The framing for relaying `body` to a client of `version`.
    ///
    /// `rewritten` when bytes may be withheld, so that the backend's length no longer holds.
    pub fn choose(version: Version, body: ResponseBody, rewritten: bool) -> ClientFraming {
        match (body, version) {
            (ResponseBody::None, _) => ClientFraming::None,
            (ResponseBody::Length(bytes), _) if !rewritten => ClientFraming::Length(bytes),
            (_, Version::Http11) => ClientFraming::Chunked,
            (_, Version::Http10) => ClientFraming::UntilClose,
        }
    }
}

/// What is added to a relayed head.
#[derive(Clone, Copy, Debug)]
pub struct RelayedHead<'a> {
    /// The backend's head.
    pub head: &'a ResponseHead,
    /// The framing towards the client.
    pub framing: ClientFraming,
    /// The client's version, which decides how a kept connection is announced.
    pub version: Version,
    /// Whether the connection stays open afterwards (never with `UntilClose`).
    pub keep_alive: bool,
    /// This request's id, put in when the backend gave none.
    pub request_id: &'a [u8],
    /// Whole header lines, each ending in CRLF, that are this gateway's: rate headers, `X-Tt-Alert`.
    pub extra: &'a [u8],
    /// The rate headers that `extra` holds: those of the backend with the same role are left out.
    pub replaces: Option<Role>,
}

/// Append the head of a relayed response.
pub fn write_response(out: &mut Vec<u8>, relayed: &RelayedHead<'_>) {
    let head = relayed.head;
    let status = head.status_and_reason();
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status);
    // An empty reason is sent as such, with its blank.
    out.extend_from_slice(if status.len() == 3 { b" \r\n" } else { &b"\r\n"[..] });
    let mut identified = false;
    for line in head.end_to_end() {
        identified |= line.role() == Role::RequestId;
        let ours = relayed.replaces == Some(line.role()) && contains_name(relayed.extra, line.name());
        if !ours {
            out.extend_from_slice(line.raw());
        }
    }
    if !identified {
        write_header(out, "x-request-id", relayed.request_id);
    }
    out.extend_from_slice(relayed.extra);
    match relayed.framing {
        ClientFraming::Length(bytes) => write_length(out, bytes),
        ClientFraming::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        ClientFraming::UntilClose => {}
        ClientFraming::None => {
            let length = head.first(Role::ContentLength);
            if let Some(length) = length.filter(|_| head.status() >= 200 && head.status() != 204) {
                write_header(out, "Content-Length", length);
            }
        }
    }
    write_connection(
        out,
        relayed.version,
        relayed.keep_alive && relayed.framing != ClientFraming::UntilClose,
    );
    out.extend_from_slice(b"\r\n");
}

/// Whether a block of header lines holds a line of this name.
fn contains_name(block: &[u8], name: &str) -> bool {
    block.split(|byte| *byte == b'\n').any(|line| {
        line.len() > name.len()
            && line[name.len()] == b':'
            && line[..name.len()].eq_ignore_ascii_case(name.as_bytes())
    })
}

/// Append a status line; `status` has three digits. An empty reason is sent as such, with its blank.
pub fn write_status(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    let mut begin = *b"HTTP/1.1 000 ";
    for (place, digit) in [(9, status / 100), (10, status / 10), (11, status)] {
        begin[place] = b'0' + (digit % 10) as u8;
    }
    out.extend_from_slice(&begin);
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

/// Append one header line.
#[inline]
pub fn write_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Append `Content-Length`.
#[inline]
pub fn write_length(out: &mut Vec<u8>, bytes: u64) {
    out.extend_from_slice(b"Content-Length: ");
    write_number(out, bytes);
    out.extend_from_slice(b"\r\n");
}

/// Append what the client must know about the connection: nothing where the version's default holds.
pub fn write_connection(out: &mut Vec<u8>, version: Version, keep_alive: bool) {
    match (version, keep_alive) {
        (Version::Http11, true) => {}
        (Version::Http10, true) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (_, false) => out.extend_from_slice(b"Connection: close\r\n"),
    }
}

/// Append a number in decimal.
pub fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The interim answer that lets a waiting client send its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
