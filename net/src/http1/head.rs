//! Request heads: found, parsed, and their framing decided, all before a byte of body is looked at.
//!
//! A head that came whole is parsed at once. One that arrives in pieces is searched for its end from where
//! the last search stopped, so a slow 64 KiB head costs one pass and one parse more. The search also sees a
//! bare LF or a first byte that begins no method at once; such a peer is answered without waiting for a head
//! that never ends. What is refused is what the search and the parse behind it refuse, in that order.
//!
//! Refused, with the status in brackets: no or more than one `Host` in 1.1, control bytes, bare CR or LF,
//! folded lines, a blank before the colon, names that are no tokens, framing that is not single-valued
//! [400]; codings other than `chunked` and CONNECT [501]; an unknown expectation [417]; more than 128
//! lines or more bytes than the bound [431]; an HTTP version other than 1.0 and 1.1 [505].

use super::headers::{ConnectionOptions, Declared, Header, Lines, RawLine, Role, declared};
use super::target::{self, Target};
use crate::bounds::{MAX_HEADER_LINES, MAX_LEADING_EMPTY_LINES};
use std::fmt;
use std::mem::MaybeUninit;

/// What a head may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadBounds {
    /// Bytes from the first of the start line to the end of the empty line (`http.max_head`).
    pub max_bytes: usize,
}

/// HTTP/1.0 or HTTP/1.1; there is nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// HTTP/1.0: no chunked coding, closes unless asked not to.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

/// Why a head is refused. The connection closes after the answer: where the next message would begin
/// is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadError {
    /// 400, 417, 431, 501 or 505.
    pub status: u16,
    /// What is wrong, as the middle of a sentence, without any byte of the request.
    pub reason: &'static str,
}

impl HeadError {
    pub(super) const fn bad(reason: &'static str) -> HeadError {
        HeadError { status: 400, reason }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

/// How far a head is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum HeadProgress<T> {
    /// More bytes are needed.
    Partial,
    /// The head ends after `consumed` bytes of the buffer (leading empty lines included).
    Complete {
        /// What was parsed.
        head: T,
        /// Bytes of the buffer that belong to it.
        consumed: usize,
    },
    /// There will never be a head here.
    Bad(HeadError),
}

/// How a request's body is framed (RFC 9112 §6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BodyFraming {
    /// No body.
    #[default]
    None,
    /// So many bytes; u64::MAX also stands for any larger number.
    Length(u64),
    /// Chunked; see [`super::ChunkedDecoder`].
    Chunked,
}

/// Where the search for the end of a head stopped. Belongs to one connection; starts over by itself
/// whenever a head is complete or bad.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadSearch {
    searched: usize,
    line_from: usize,
    head_from: usize,
    lines: usize,
}

enum Found {
    Partial,
    Head { from: usize, to: usize },
    Bad(HeadError),
}

impl HeadSearch {
    fn find(&mut self, buffer: &[u8], bounds: &HeadBounds, leading_lines: usize) -> Found {
        while let Some(step) = buffer.get(self.searched..).and_then(|rest| memchr::memchr(b'\n', rest)) {
            let at = self.searched + step;
            if at == self.line_from || buffer[at - 1] != b'\r' {
                return Found::Bad(BARE_LF);
            }
            let empty = at - 1 == self.line_from;
            self.searched = at + 1;
            self.line_from = at + 1;
            if !empty {
                self.lines += 1;
                if self.lines > MAX_HEADER_LINES + 1 {
                    return Found::Bad(HeadError {
                        status: 431,
                        reason: "there are more than 128 header lines",
                    });
                }
            } else if self.lines > 0 {
                return match at + 1 - self.head_from <= bounds.max_bytes {
                    true => Found::Head { from: self.head_from, to: at + 1 },
                    false => Found::Bad(TOO_LARGE),
                };
            } else {
                self.head_from = at + 1;
                if self.head_from > 2 * leading_lines {
                    return Found::Bad(HeadError::bad("there is no start line"));
                }
            }
        }
        self.searched = buffer.len();
        let first = buffer.get(self.head_from).copied();
        if first.is_some_and(|byte| !(byte.is_ascii_graphic() || byte == b'\r')) {
            return Found::Bad(HeadError::bad("this is not HTTP"));
        }
        match buffer.len() - self.head_from.min(buffer.len()) > bounds.max_bytes {
            true => Found::Bad(TOO_LARGE),
            false => Found::Partial,
        }
    }

    /// Search and, when the head is whole, parse it with `parse`, which tells the length of the head at the front of
    /// its bytes: one of which every line ends in CRLF.
    ///
    /// What begins as a head is parsed without a search, once: if that fails the search says why.
    pub(super) fn run(
        &mut self,
        buffer: &[u8],
        bounds: &HeadBounds,
        leading_lines: usize,
        mut parse: impl FnMut(&[u8]) -> Result<usize, HeadError>,
    ) -> HeadProgress<()> {
        let begins = self.searched == 0 && buffer.first().is_some_and(u8::is_ascii_graphic);
        if begins
            && let Ok(consumed) = parse(buffer)
            && consumed <= bounds.max_bytes
        {
            return HeadProgress::Complete { head: (), consumed };
        }
        let progress = match self.find(buffer, bounds, leading_lines) {
            Found::Partial => return HeadProgress::Partial,
            Found::Bad(error) => HeadProgress::Bad(error),
            Found::Head { from, to } => match parse(&buffer[from..to]) {
                Ok(length) if length == to - from => HeadProgress::Complete { head: (), consumed: to },
                Ok(_) => HeadProgress::Bad(UNFINISHED),
                Err(error) => HeadProgress::Bad(error),
            },
        };
        *self = HeadSearch::default();
        progress
    }
}

const TOO_LARGE: HeadError =
    HeadError { status: 431, reason: "the request line and headers are larger than http.max_head" };
pub(super) const UNFINISHED: HeadError = HeadError::bad("the head does not end at its empty line");
pub(super) const BARE_LF: HeadError = HeadError::bad("a line ends in LF alone");

/// A request's head. Reused from request to request, it allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    lines: Lines,
    method: (u32, u32),
    raw_target: (u32, u32),
    target: Target,
    /// The path in its normal form.
    path: String,
    version: Version,
    framing: BodyFraming,
    connection: ConnectionOptions,
    continues: bool,
}

/// Parse one request head at the front of `buffer`, from scratch.
///
/// For a head that arrives in pieces use [`RequestHead::parse`], which remembers its search.
pub fn parse_request(buffer: &[u8], bounds: &HeadBounds) -> HeadProgress<RequestHead> {
    let mut head = RequestHead::default();
    match head.parse(buffer, bounds, &mut HeadSearch::default()) {
        HeadProgress::Partial => HeadProgress::Partial,
        HeadProgress::Bad(error) => HeadProgress::Bad(error),
        HeadProgress::Complete { consumed, .. } => HeadProgress::Complete { head, consumed },
    }
}

impl RequestHead {
    /// Parse the head at the front of `buffer` into `self`, which holds a head only after `Complete`.
    ///
    /// `buffer` must begin with the same bytes in each call until the head is complete or bad.
    pub fn parse(&mut self, buffer: &[u8], bounds: &HeadBounds, search: &mut HeadSearch) -> HeadProgress<()> {
        search.run(buffer, bounds, MAX_LEADING_EMPTY_LINES, |head| self.fill(head))
    }

    fn fill(&mut self, bytes: &[u8]) -> Result<usize, HeadError> {
        let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADER_LINES];
        let mut request = httparse::Request::new(&mut []);
        let length = match request.parse_with_uninit_headers(bytes, &mut slots) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Err(UNFINISHED),
            Err(httparse::Error::Version) => return Err(version_error(bytes)),
            Err(error) => return Err(parse_error(error)),
        };
        let (Some(method), Some(raw), Some(minor)) = (request.method, request.path, request.version) else {
            return Err(HeadError::bad("the request line is incomplete"));
        };
        if method == "CONNECT" {
            return Err(HeadError { status: 501, reason: "CONNECT is not supported" });
        }
        self.target = target::read(method.as_bytes(), raw.as_bytes()).map_err(HeadError::bad)?;
        let (from, to) = self.target.path;
        self.path.clear();
        self.path.push_str(self.target.normal.as_deref().unwrap_or(&raw[from..to]));
        let end = method.len() as u32;
        self.method = (0, end);
        self.raw_target = (end + 1, end + 1 + raw.len() as u32);
        self.version = if minor == 0 { Version::Http10 } else { Version::Http11 };
        self.lines.fill(&bytes[..length], request.headers)?;
        self.check_host()?;
        self.connection = self.lines.connection();
        self.framing = match declared(&self.lines, self.version == Version::Http10) {
            Declared::Nothing => BodyFraming::None,
            Declared::Length(0) => BodyFraming::None,
            Declared::Length(length) => BodyFraming::Length(length),
            Declared::Chunked => BodyFraming::Chunked,
            Declared::Ambiguous(reason) => return Err(HeadError::bad(reason)),
            Declared::Unsupported(reason) => return Err(HeadError { status: 501, reason }),
        };
        self.continues = self.expectation()? && self.framing != BodyFraming::None;
        Ok(length)
    }

    /// RFC 9112 §3.2: exactly one `Host` in 1.1, at most one in 1.0, and it agrees with the target.
    fn check_host(&self) -> Result<(), HeadError> {
        let mut hosts = self.lines.values(Role::Host);
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host,
            (None, _) if self.version == Version::Http10 => return Ok(()),
            (None, _) => return Err(HeadError::bad("there is no Host header")),
            _ => return Err(HeadError::bad("there is more than one Host header")),
        };
        if !target::is_authority(host) {
            return Err(HeadError::bad("the Host header is malformed"));
        }
        match self.target.authority {
            Some((from, to)) if !self.raw_target()[from..to].eq_ignore_ascii_case(host) => {
                Err(HeadError::bad("the request target and the Host header name different hosts"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a 100 is waited for (RFC 9110 §10.1.1; a 1.0 client's expectation is ignored).
    fn expectation(&self) -> Result<bool, HeadError> {
        let mut expects = false;
        for value in self.lines.values(Role::Expect) {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(HeadError { status: 417, reason: "the only known expectation is 100-continue" });
            }
            expects = self.version == Version::Http11;
        }
        Ok(expects)
    }

    /// The method as sent; it is case-sensitive.
    pub fn method(&self) -> &[u8] {
        self.lines.slice(self.method)
    }

    /// The path in its one normal form, beginning with `/` (or `*`).
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What follows `?`, as sent.
    pub fn query(&self) -> Option<&[u8]> {
        self.target.query.map(|(from, to)| &self.raw_target()[from..to])
    }

    /// The target as sent.
    pub fn raw_target(&self) -> &[u8] {
        self.lines.slice(self.raw_target)
    }

    /// 1.0 or 1.1.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Every header line in order.
    pub fn headers(&self) -> impl Iterator<Item = Header<'_>> {
        self.lines.iter()
    }

    /// The role and value of every header line in order.
    pub fn roles(&self) -> impl Iterator<Item = (Role, &[u8])> {
        self.lines.roles()
    }

    /// The first value of a header, its name in any case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.lines.get(name)
    }

    /// The first value of a header with a role; faster than by name.
    pub fn first(&self, role: Role) -> Option<&[u8]> {
        self.lines.first(role)
    }

    /// Every value of a header with a role, in order.
    pub fn values(&self, role: Role) -> impl Iterator<Item = &[u8]> {
        self.lines.values(role)
    }

    /// How the body is framed.
    pub fn body(&self) -> BodyFraming {
        self.framing
    }

    /// Whether the client lets the connection stay open after the answer (RFC 9112 §9.3).
    pub fn keep_alive(&self) -> bool {
        !self.connection.close && (self.version == Version::Http11 || self.connection.keep_alive)
    }

    /// Whether the client waits for `100 Continue` before it sends its body.
    pub fn expects_continue(&self) -> bool {
        self.continues
    }

    pub(super) fn end_to_end(&self) -> impl Iterator<Item = RawLine<'_>> {
        self.lines.end_to_end(self.connection)
    }
}

/// A line of three words that ends in `HTTP/d.d` with other digits is a version we do not speak; anything
/// else is no HTTP.
fn version_error(head: &[u8]) -> HeadError {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or(head);
    let mut words = line.split(|byte| *byte == b' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(_), Some(_), Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]), None)
            if major.is_ascii_digit() && minor.is_ascii_digit() && [*major, *minor] != *b"11" =>
        {
            HeadError { status: 505, reason: "only HTTP/1.0 and HTTP/1.1 are spoken here" }
        }
        _ => HeadError::bad("the start line is malformed"),
    }
}

pub(super) fn parse_error(error: httparse::Error) -> HeadError {
    use httparse::Error;
    match error {
        Error::TooManyHeaders => HeadError { status: 431, reason: "there are more than 128 header lines" },
        Error::HeaderName => HeadError::bad("a header name is not a token followed by a colon"),
        Error::HeaderValue => HeadError::bad("a header value has a control character"),
        Error::NewLine => HeadError::bad("a line does not end in CRLF"),
        Error::Status => HeadError::bad("the status line has no three-digit status"),
        Error::Token | Error::Version => HeadError::bad("the start line is malformed"),
    }
}
