//! Header lines as offsets into one copied block of bytes, each tagged with the role it plays here.
//!
//! The copy (a few hundred bytes) frees the connection's buffer for the body and for pipelined requests;
//! both vectors keep their capacity, so a connection that reuses its head allocates nothing a request.
//! The role is decided once, by length and then by name, so that framing, identity and the writers
//! compare bytes and not names.

use super::head::{BARE_LF, HeadError};

/// What a header line is to this program. Anything that only passes through is `Other`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// End-to-end and of no interest here.
    Other,
    /// `Host`.
    Host,
    /// `Content-Length`.
    ContentLength,
    /// `Transfer-Encoding`.
    TransferEncoding,
    /// `Connection`.
    Connection,
    /// `Keep-Alive`, `Proxy-Connection`, `TE`, `Trailer`, `Upgrade`, `Proxy-Authorization`,
    /// `Proxy-Authenticate`: never passed on (RFC 9110 §7.6.1, RFC 7230 §6.1).
    HopByHop,
    /// `Expect`.
    Expect,
    /// `Authorization`.
    Authorization,
    /// `x-api-key`.
    XApiKey,
    /// `api-key`.
    ApiKey,
    /// `Accept-Encoding`.
    AcceptEncoding,
    /// `Content-Type`.
    ContentType,
    /// `Content-Encoding`.
    ContentEncoding,
    /// `x-request-id`.
    RequestId,
    /// `request-id`, Anthropic's name for it.
    AnthropicRequestId,
    /// One of the rate headers of the OpenAI API that this gateway writes itself.
    RateLimit,
    /// One of the rate headers of the Anthropic API that this gateway writes itself.
    AnthropicRateLimit,
}

/// A name that has a role.
struct Named {
    name: &'static str,
    ends: [u64; 2],
    role: Role,
}

const fn named(name: &'static str, role: Role) -> Named {
    Named { name, ends: ends(name.as_bytes()), role }
}

/// The names that have a role, in lower case, by ascending length (asserted below).
static NAMED: [Named; 33] = [
    named("te", Role::HopByHop),
    named("host", Role::Host),
    named("expect", Role::Expect),
    named("api-key", Role::ApiKey),
    named("trailer", Role::HopByHop),
    named("upgrade", Role::HopByHop),
    named("x-api-key", Role::XApiKey),
    named("connection", Role::Connection),
    named("keep-alive", Role::HopByHop),
    named("request-id", Role::AnthropicRequestId),
    named("content-type", Role::ContentType),
    named("x-request-id", Role::RequestId),
    named("authorization", Role::Authorization),
    named("content-length", Role::ContentLength),
    named("accept-encoding", Role::AcceptEncoding),
    named("content-encoding", Role::ContentEncoding),
    named("proxy-connection", Role::HopByHop),
    named("transfer-encoding", Role::TransferEncoding),
    named("proxy-authenticate", Role::HopByHop),
    named("proxy-authorization", Role::HopByHop),
    named("x-ratelimit-limit-tokens", Role::RateLimit),
    named("x-ratelimit-reset-tokens", Role::RateLimit),
    named("proxy-authentication-info", Role::HopByHop),
    named("x-ratelimit-limit-requests", Role::RateLimit),
    named("x-ratelimit-reset-requests", Role::RateLimit),
    named("x-ratelimit-remaining-tokens", Role::RateLimit),
    named("x-ratelimit-remaining-requests", Role::RateLimit),
    named("anthropic-ratelimit-tokens-limit", Role::AnthropicRateLimit),
    named("anthropic-ratelimit-tokens-reset", Role::AnthropicRateLimit),
    named("anthropic-ratelimit-requests-limit", Role::AnthropicRateLimit),
    named("anthropic-ratelimit-requests-reset", Role::AnthropicRateLimit),
    named("anthropic-ratelimit-tokens-remaining", Role::AnthropicRateLimit),
    named("anthropic-ratelimit-requests-remaining", Role::AnthropicRateLimit),
];

/// The longest name that has a role.
const LONGEST_NAME: usize = 38;

/// For each length, where its names begin in NAMED (they are sorted by length): most names are dismissed
/// by their length alone, the others compared with two or three.
const BY_LENGTH: [u8; LONGEST_NAME + 2] = {
    let mut starts = [0; LONGEST_NAME + 2];
    let (mut length, mut at) = (0, 0);
    while length < starts.len() {
        while at < NAMED.len() && NAMED[at].name.len() < length {
            at += 1;
            assert!(at == NAMED.len() || NAMED[at - 1].name.len() <= NAMED[at].name.len());
        }
        starts[length] = at as u8;
        length += 1;
    }
    starts
};

impl Role {
    /// One of 32 bits for each role.
    fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The role of a header name, in any case. `name` is a token (RFC 9110 §5.6.2), as every parsed name is.
    pub fn of(name: &str) -> Role {
        if name.len() > LONGEST_NAME {
            return Role::Other;
        }
        let ends = ends(name.as_bytes());
        NAMED[usize::from(BY_LENGTH[name.len()])..usize::from(BY_LENGTH[name.len() + 1])]
            .iter()
            .find(|named| named.ends == ends && (name.len() <= 16 || named.name.eq_ignore_ascii_case(name)))
            .map_or(Role::Other, |named| named.role)
    }
}

/// The first and the last bytes of a token, in lower case: of names of one length up to 16, the whole name. Of all bytes of
/// tokens only upper case letters become the letters, digits and hyphens of [`NAMED`] by the bit that makes them lower case.
const fn ends(token: &[u8]) -> [u64; 2] {
    const LOWER: u64 = 0x2020_2020_2020_2020;
    if let (Some(first), Some(last)) = (token.first_chunk(), token.last_chunk()) {
        return [u64::from_le_bytes(*first) | LOWER, u64::from_le_bytes(*last) | LOWER];
    }
    if let (Some(first), Some(last)) = (token.first_chunk(), token.last_chunk()) {
        return [u32::from_le_bytes(*first) as u64 | LOWER, u32::from_le_bytes(*last) as u64 | LOWER];
    }
    match token {
        [first, .., last] => [*first as u64 | LOWER, *last as u64 | LOWER],
        _ => [0; 2],
    }
}

/// One header line. `value` has no surrounding blanks and may hold opaque bytes (RFC 9110 §5.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// The name as it was sent.
    pub name: &'a str,
    /// The value's bytes.
    pub value: &'a [u8],
    /// What it is to this program.
    pub role: Role,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    name: (u32, u32),
    value: (u32, u32),
    /// Where the line ends, CRLF included: the next one begins there.
    end: u32,
    role: Role,
}

/// The lines of one head over a copy of its bytes.
#[derive(Clone, Default, Debug)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    lines: Vec<Line>,
    /// One bit for each role that some line has.
    roles: u32,
}

impl Lines {
    /// Take over a parsed head: `parsed` borrows from `head`, which ends with its empty line. Tells where its first line
    /// ends, CRLF not included.
    pub(super) fn fill(&mut self, head: &[u8], parsed: &[httparse::Header<'_>]) -> Result<u32, HeadError> {
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
        self.lines.clear();
        let base = head.as_ptr() as usize;
        let span = |part: &[u8]| {
            let from = (part.as_ptr() as usize).wrapping_sub(base);
            (from as u32, (from + part.len()) as u32)
        };
        let empty_line = head.len().saturating_sub(2) as u32;
        let mut is_strict = head.ends_with(b"\r\n");
        let mut begin = |line: usize| {
            let begin = parsed.get(line).map_or(empty_line, |header| span(header.name.as_bytes()).0);
            is_strict &= head[..begin as usize].ends_with(b"\r\n");
            begin
        };
        let first_line = begin(0).saturating_sub(2);
        self.roles = 0;
        self.lines.extend(parsed.iter().enumerate().map(|(at, header)| {
            let role = Role::of(header.name);
            self.roles |= role.bit();
            let (name, value) = (span(header.name.as_bytes()), span(header.value));
            Line { name, value, end: begin(at + 1), role }
        }));
        if is_strict { Ok(first_line) } else { Err(BARE_LF) }
    }

    pub(super) fn slice(&self, (from, to): (u32, u32)) -> &[u8] {
        &self.bytes[from as usize..to as usize]
    }

    pub(super) fn text(&self, span: (u32, u32)) -> &str {
        std::str::from_utf8(self.slice(span)).unwrap_or("")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Header<'_>> {
        self.lines.iter().map(|line| Header {
            name: self.text(line.name),
            value: self.slice(line.value),
            role: line.role,
        })
    }

    pub(super) fn roles(&self) -> impl Iterator<Item = (Role, &[u8])> {
        self.lines.iter().map(|line| (line.role, self.slice(line.value)))
    }

    /// The values of the lines with a role, in order.
    pub(super) fn values(&self, role: Role) -> impl Iterator<Item = &[u8]> {
        let lines = if self.roles & role.bit() == 0 { &[] } else { &self.lines[..] };
        lines.iter().filter(move |line| line.role == role).map(|line| self.slice(line.value))
    }

    pub(super) fn first(&self, role: Role) -> Option<&[u8]> {
        self.values(role).next()
    }

    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    }

    /// What all `Connection` lines say together.
    pub(super) fn connection(&self) -> ConnectionOptions {
        let mut options = ConnectionOptions::default();
        if self.roles & Role::Connection.bit() == 0 {
            return options;
        }
        for name in self.nominated() {
            if name.eq_ignore_ascii_case(b"close") {
                options.close = true;
            } else if name.eq_ignore_ascii_case(b"keep-alive") {
                options.keep_alive = true;
            } else {
                options.nominates = true;
            }
        }
        options
    }

    fn nominated(&self) -> impl Iterator<Item = &[u8]> {
        self.values(Role::Connection).flat_map(list)
    }

    /// The lines that may be passed on: not hop-by-hop, not framing, not nominated by `Connection`.
    pub(super) fn end_to_end(&self, options: ConnectionOptions) -> impl Iterator<Item = RawLine<'_>> {
        self.lines.iter().filter_map(move |line| {
            match line.role {
                Role::HopByHop | Role::Connection | Role::TransferEncoding | Role::ContentLength => {
                    return None;
                }
                _ if !options.nominates => {}
                _ => {
                    let named = self.slice(line.name);
                    if self.nominated().any(|name| name.eq_ignore_ascii_case(named)) {
                        return None;
                    }
                }
            }
            Some(RawLine { lines: self, line })
        })
    }
}

/// A line that is passed on.
pub(super) struct RawLine<'a> {
    lines: &'a Lines,
    line: &'a Line,
}

impl<'a> RawLine<'a> {
    pub(super) fn role(&self) -> Role {
        self.line.role
    }

    pub(super) fn name(&self) -> &'a str {
        self.lines.text(self.line.name)
    }

    pub(super) fn value(&self) -> &'a [u8] {
        self.lines.slice(self.line.value)
    }

    /// The whole line as it was sent, with its CRLF.
    pub(super) fn raw(&self) -> &'a [u8] {
        self.lines.slice((self.line.name.0, self.line.end))
    }
}

/// The options of all `Connection` lines.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct ConnectionOptions {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    /// Names headers that end at this hop.
    pub(super) nominates: bool,
}

/// The members of a comma-separated list, without blanks and without empty ones.
pub(super) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// What a message's `Content-Length` and `Transfer-Encoding` lines say together.
pub(super) enum Declared {
    Nothing,
    Length(u64),
    Chunked,
    /// No single reading, with the reason.
    Ambiguous(&'static str),
    /// A transfer coding other than `chunked` beneath a final `chunked`: readable, not supported.
    Unsupported(&'static str),
}

/// Decide a message's framing headers, as RFC 9112 §6.3 does, with every MAY decided as a refusal.
pub(super) fn declared(lines: &Lines, http10: bool) -> Declared {
    let (mut length, mut coding) = (None, None);
    for line in &lines.lines {
        let found = match line.role {
            Role::ContentLength => &mut length,
            Role::TransferEncoding => &mut coding,
            _ => continue,
        };
        if found.replace(lines.slice(line.value)).is_some() {
            return Declared::Ambiguous("Content-Length or Transfer-Encoding is given twice");
        }
    }
    match (length, coding) {
        (None, None) => Declared::Nothing,
        (Some(_), Some(_)) => Declared::Ambiguous("both Content-Length and Transfer-Encoding are given"),
        (None, Some(_)) if http10 => Declared::Ambiguous("HTTP/1.0 knows no Transfer-Encoding"),
        (None, Some(value)) if value.eq_ignore_ascii_case(b"chunked") => Declared::Chunked,
        (None, Some(value)) => {
            let chunked = list(value).filter(|one| one.eq_ignore_ascii_case(b"chunked")).count();
            let last = list(value).last().is_some_and(|one| one.eq_ignore_ascii_case(b"chunked"));
            if chunked == 1 && last && list(value).count() > 1 {
                Declared::Unsupported("the only supported Transfer-Encoding is chunked")
            } else {
                Declared::Ambiguous("Transfer-Encoding is not exactly one chunked")
            }
        }
        (Some(value), None) => match length_of(value) {
            Some(length) => Declared::Length(length),
            None => Declared::Ambiguous("Content-Length is not one plain decimal number"),
        },
    }
}

/// Digits only; what u64 cannot hold saturates (it is over every body bound anyway).
fn length_of(value: &[u8]) -> Option<u64> {
    let number = value.iter().try_fold(0u64, |number, byte| {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        (digit < 10).then(|| number.saturating_mul(10).saturating_add(digit))
    });
    number.filter(|_| !value.is_empty())
}
