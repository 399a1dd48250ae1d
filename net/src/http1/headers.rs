//! Header lines as offsets into one copied block of bytes, each tagged with the role it plays here.
//!
//! The copy (a few hundred bytes) frees the connection's buffer for the body and for pipelined requests;
//! both vectors keep their capacity, so a connection that reuses its head allocates nothing a request.
//! The role is decided once, by length and then by name, so that framing, identity and the writers
//! compare bytes and not names.

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

/// The names that have a role, in lower case, by ascending length (asserted below).
const NAMED: [(&str, Role); 33] = [
    ("te", Role::HopByHop),
    ("host", Role::Host),
    ("expect", Role::Expect),
    ("api-key", Role::ApiKey),
    ("trailer", Role::HopByHop),
    ("upgrade", Role::HopByHop),
    ("x-api-key", Role::XApiKey),
    ("connection", Role::Connection),
    ("keep-alive", Role::HopByHop),
    ("request-id", Role::AnthropicRequestId),
    ("content-type", Role::ContentType),
    ("x-request-id", Role::RequestId),
    ("authorization", Role::Authorization),
    ("content-length", Role::ContentLength),
    ("accept-encoding", Role::AcceptEncoding),
    ("content-encoding", Role::ContentEncoding),
    ("proxy-connection", Role::HopByHop),
    ("transfer-encoding", Role::TransferEncoding),
    ("proxy-authenticate", Role::HopByHop),
    ("proxy-authorization", Role::HopByHop),
    ("x-ratelimit-limit-tokens", Role::RateLimit),
    ("x-ratelimit-reset-tokens", Role::RateLimit),
    ("proxy-authentication-info", Role::HopByHop),
    ("x-ratelimit-limit-requests", Role::RateLimit),
    ("x-ratelimit-reset-requests", Role::RateLimit),
    ("x-ratelimit-remaining-tokens", Role::RateLimit),
    ("x-ratelimit-remaining-requests", Role::RateLimit),
    ("anthropic-ratelimit-tokens-limit", Role::AnthropicRateLimit),
    ("anthropic-ratelimit-tokens-reset", Role::AnthropicRateLimit),
    ("anthropic-ratelimit-requests-limit", Role::AnthropicRateLimit),
    ("anthropic-ratelimit-requests-reset", Role::AnthropicRateLimit),
    ("anthropic-ratelimit-tokens-remaining", Role::AnthropicRateLimit),
    ("anthropic-ratelimit-requests-remaining", Role::AnthropicRateLimit),
];

/// The longest name that has a role.
const LONGEST_NAME: usize = 38;

/// For each length, where its names begin in NAMED (they are sorted by length): most names are dismissed
/// by their length alone, the others compared with two or three.
const BY_LENGTH: [u8; LONGEST_NAME + 2] = {
    let mut starts = [0; LONGEST_NAME + 2];
    let (mut length, mut at) = (0, 0);
    while length < starts.len() {
        while at < NAMED.len() && NAMED[at].0.len() < length {
            at += 1;
            assert!(at == NAMED.len() || NAMED[at - 1].0.len() <= NAMED[at].0.len());
        }
        starts[length] = at as u8;
        length += 1;
    }
    starts
};

impl Role {
    /// The role of a header name, in any case. `name` is a token (RFC 9110 §5.6.2), as every parsed name is.
    pub fn of(name: &str) -> Role {
        if name.len() > LONGEST_NAME {
            return Role::Other;
        }
        NAMED[usize::from(BY_LENGTH[name.len()])..usize::from(BY_LENGTH[name.len() + 1])]
            .iter()
            .find(|(named, _)| is_same_token(named, name))
            .map_or(Role::Other, |(_, role)| *role)
    }
}

/// Whether a token of `named`'s length is `named`, in any case. Of all bytes of tokens only upper case letters become the
/// letters, digits and hyphens of `named` by the bit that makes them lower case; without a branch a byte, many are compared
/// at once.
fn is_same_token(named: &str, token: &str) -> bool {
    let differences = named.bytes().zip(token.bytes()).map(|(known, byte)| known ^ (byte | 0x20));
    differences.fold(0, |all, difference| all | difference) == 0
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
}

impl Lines {
    /// Take over a parsed head: `parsed` borrows from `head`.
    pub(super) fn fill(&mut self, head: &[u8], parsed: &[httparse::Header<'_>]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
        self.lines.clear();
        let base = head.as_ptr() as usize;
        let span = |part: &[u8]| {
            let from = (part.as_ptr() as usize).saturating_sub(base).min(head.len());
            (from as u32, (from + part.len()).min(head.len()) as u32)
        };
        self.lines.extend(parsed.iter().map(|header| Line {
            name: span(header.name.as_bytes()),
            value: span(header.value.trim_ascii()),
            end: 0,
            role: Role::of(header.name),
        }));
        let mut end = head.len().saturating_sub(2) as u32; // the empty line's CRLF
        for line in self.lines.iter_mut().rev() {
            line.end = end;
            end = line.name.0;
        }
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
        self.lines.iter().filter(move |line| line.role == role).map(|line| self.slice(line.value))
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
    let (mut lengths, mut codings) =
        (lines.values(Role::ContentLength), lines.values(Role::TransferEncoding));
    let (length, coding) = (lengths.next(), codings.next());
    if lengths.next().or(codings.next()).is_some() {
        return Declared::Ambiguous("Content-Length or Transfer-Encoding is given twice");
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
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}
