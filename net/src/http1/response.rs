//! A backend's response head: parsed as strictly as a request's, relayed byte for byte.
//!
//! What cannot be framed in one way (two lengths, a length beside a coding, an unknown coding) is `Bad`
//! and becomes a 502: relaying it would let a broken backend put words into another client's answer.

use super::head::{HeadBounds, HeadError, HeadProgress, HeadSearch, UNFINISHED, Version, parse_error};
use super::headers::{ConnectionOptions, Declared, Header, Lines, RawLine, Role, declared};
use crate::bounds::MAX_HEADER_LINES;
use std::mem::MaybeUninit;

/// How a response's body is framed (RFC 9112 §6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ResponseBody {
    /// None: an interim answer, 204, 304, or the answer to HEAD.
    #[default]
    None,
    /// So many bytes.
    Length(u64),
    /// Chunked.
    Chunked,
    /// Until the backend closes. Whether it is whole cannot be known.
    UntilClose,
}

/// A response's head. Reused from response to response, it allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    lines: Lines,
    status: u16,
    reason: (u32, u32),
    version: Version,
    body: ResponseBody,
    connection: ConnectionOptions,
}

/// Parse one response head at the front of `buffer`, from scratch.
pub fn parse_response(buffer: &[u8], bounds: &HeadBounds, to_head: bool) -> HeadProgress<ResponseHead> {
    let mut head = ResponseHead::default();
    match head.parse(buffer, bounds, &mut HeadSearch::default(), to_head) {
        HeadProgress::Partial => HeadProgress::Partial,
        HeadProgress::Bad(error) => HeadProgress::Bad(error),
        HeadProgress::Complete { consumed, .. } => HeadProgress::Complete { head, consumed },
    }
}

impl ResponseHead {
    /// Parse the head at the front of `buffer` into `self`; `to_head` when the request was a HEAD.
    ///
    /// An interim answer (1xx) is a head of its own: the caller skips it and parses on.
    pub fn parse(
        &mut self,
        buffer: &[u8],
        bounds: &HeadBounds,
        search: &mut HeadSearch,
        to_head: bool,
    ) -> HeadProgress<()> {
        search.run(buffer, bounds, 0, |head| self.fill(head, to_head))
    }

    fn fill(&mut self, bytes: &[u8], to_head: bool) -> Result<usize, HeadError> {
        let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADER_LINES];
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let length = match config.parse_response_with_uninit_headers(&mut response, bytes, &mut slots) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Err(UNFINISHED),
            Err(error) => return Err(parse_error(error)),
        };
        let (Some(status), Some(minor)) = (response.code, response.version) else {
            return Err(HeadError::bad("the status line is incomplete"));
        };
        if status < 100 {
            return Err(HeadError::bad("the status is below 100"));
        }
        self.status = status;
        self.version = if minor == 0 { Version::Http10 } else { Version::Http11 };
        let line_end = self.lines.fill(&bytes[..length], response.headers)?;
        // "HTTP/1.1 200" is 12 bytes; the reason follows a blank. Taken raw: it may hold opaque bytes.
        self.reason = (line_end.min(13), line_end);
        self.connection = self.lines.connection();
        let framed = match declared(&self.lines, self.version == Version::Http10) {
            Declared::Nothing => ResponseBody::UntilClose,
            Declared::Length(length) => ResponseBody::Length(length),
            Declared::Chunked => ResponseBody::Chunked,
            Declared::Ambiguous(reason) | Declared::Unsupported(reason) => {
                return Err(HeadError::bad(reason));
            }
        };
        let bodyless = to_head || status < 200 || status == 204 || status == 304;
        self.body = if bodyless { ResponseBody::None } else { framed };
        Ok(length)
    }

    /// The status, 100 to 999.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether this is an interim answer that another head follows. 101 is not: it ends HTTP.
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// The status and the reason as they were sent: without a reason the blank may be missing.
    pub(super) fn status_and_reason(&self) -> &[u8] {
        self.lines.slice((9, self.reason.1))
    }

    /// The reason phrase, raw.
    pub fn reason(&self) -> &[u8] {
        self.lines.slice(self.reason)
    }

    /// How the body is framed.
    pub fn body(&self) -> ResponseBody {
        self.body
    }

    /// Whether the connection can carry another request after this body.
    pub fn keep_alive(&self) -> bool {
        self.body != ResponseBody::UntilClose
            && !self.connection.close
            && (self.version == Version::Http11 || self.connection.keep_alive)
    }

    /// Every header line in order.
    pub fn headers(&self) -> impl Iterator<Item = Header<'_>> {
        self.lines.iter()
    }

    /// Every value of a header with a role, in order.
    pub fn values(&self, role: Role) -> impl Iterator<Item = &[u8]> {
        self.lines.values(role)
    }

    /// The first value of a header, its name in any case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.lines.get(name)
    }

    /// The first value of a header with a role; faster than by name.
    pub fn first(&self, role: Role) -> Option<&[u8]> {
        self.lines.first(role)
    }

    pub(super) fn end_to_end(&self) -> impl Iterator<Item = RawLine<'_>> {
        self.lines.end_to_end(self.connection)
    }
}
