//! What a request's body says: the model, whether it streams, how much it may cost, and where the members
//! are that a rewrite touches (SPEC §4.5, §9, §10).
//!
//! One pass over the body finds everything; the rest of the body is only validated. A member that two
//! parsers could read differently is refused: the same name twice after unescaping, and a name that
//! differs only in case (Go's decoders, Ollama's among them, take `Model` for `model`).
//!
//! Units: `prompt_bytes` are decoded UTF-8 bytes; a token id counts as four of them, one token's worth.

use super::members::{MEMBERS, Member, member_of};
use super::scan::{ScanError, Scanner, Text, Token};
use crate::bounds::MAX_MODEL_BYTES;
use crate::endpoint::Endpoint;
use engine::{Expected, Tokens};
use std::fmt;
use std::ops::Range;

/// Bytes of text that are estimated as one token (SPEC §4.5).
pub const BYTES_PER_TOKEN: u64 = 4;

/// Why a body is a 400.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BodyError {
    /// Not JSON: what is wrong, and at which byte.
    NotJson(ScanError),
    /// JSON, but not an object.
    NotAnObject,
    /// No form either, for this reason.
    NotAForm(&'static str),
    /// No member `model`.
    NoModel,
    /// A member of the wrong type or range: its name, and what it must be.
    Wrong(&'static str, &'static str),
    /// A member given twice.
    Duplicate(&'static str),
    /// A member whose name is a governed one in another case.
    Misspelt(&'static str),
}

impl BodyError {
    /// The member the error is about: `param` in the error's JSON.
    pub fn param(&self) -> Option<&'static str> {
        match self {
            BodyError::NotJson(_) | BodyError::NotAnObject | BodyError::NotAForm(_) => None,
            BodyError::NoModel => Some("model"),
            BodyError::Wrong(name, _) | BodyError::Duplicate(name) | BodyError::Misspelt(name) => Some(name),
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::NotJson(error) => {
                write!(f, "the request body is not valid JSON: {} at byte {}", error.reason, error.offset)
            }
            BodyError::NotAnObject => f.write_str("the request body must be a JSON object"),
            BodyError::NotAForm(reason) => {
                write!(f, "the request body is no multipart/form-data that can be read: {reason}")
            }
            BodyError::NoModel => {
                f.write_str("the request body has no member \"model\"; name the model to use")
            }
            BodyError::Wrong(name, must) => write!(f, "the member \"{name}\" must be {must}"),
            BodyError::Duplicate(name) => write!(
                f,
                "the member \"{name}\" is given twice; give it once, so that every reader takes the same one"
            ),
            BodyError::Misspelt(name) => write!(
                f,
                "a member differs from \"{name}\" only in case; spell it \"{name}\" or leave it out"
            ),
        }
    }
}

impl From<ScanError> for BodyError {
    fn from(error: ScanError) -> BodyError {
        BodyError::NotJson(error)
    }
}

/// Whether the client asked for the usage event of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Asked {
    /// `stream_options.include_usage` is true.
    Yes,
    /// It is absent or anything else.
    #[default]
    No,
}

/// Where `stream_options` is, for a rewrite.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum StreamOptions {
    #[default]
    Absent,
    /// The span of `null`.
    Null(Range<usize>),
    /// The offset behind `{`, whether the object has members, and the value of `include_usage`.
    Object { inside: usize, empty: bool, include_usage: Option<Range<usize>> },
}

/// What a request's body says. Spans are offsets into the body it was read from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BodyFacts {
    /// The unescaped name, when the body has it escaped.
    unescaped_model: Option<Box<str>>,
    /// The value of `model`: in JSON with its quotes, in a form its text.
    pub model_span: Range<usize>,
    /// The body is a form.
    pub(super) is_form: bool,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// Choices asked for; at least 1.
    pub n: u64,
    /// The largest output cap given, in tokens for each choice.
    pub output_cap: Option<u64>,
    /// Bytes of prompt text.
    pub prompt_bytes: u64,
    /// Characters of it, where the endpoint is paid by them.
    pub characters: u64,
    /// Whether the client asked for the usage event.
    pub include_usage: Asked,
    pub(super) stream_options: StreamOptions,
    /// The offset behind the body's first `{`.
    pub(super) inside: usize,
}

impl BodyFacts {
    /// Of a form, before any of its fields is read.
    pub fn of_form(endpoint: Endpoint) -> BodyFacts {
        BodyFacts { is_form: true, ..BodyFacts::nothing_of(endpoint) }
    }

    fn nothing_of(endpoint: Endpoint) -> BodyFacts {
        BodyFacts {
            unescaped_model: None,
            model_span: 0..0,
            is_form: false,
            stream: endpoint.streams_by_default(),
            n: 1,
            output_cap: None,
            prompt_bytes: 0,
            characters: 0,
            include_usage: Asked::No,
            stream_options: StreamOptions::Absent,
            inside: 0,
        }
    }

    /// The model asked for; `body` is what the facts were read from.
    pub fn model<'a>(&'a self, body: &'a [u8]) -> &'a str {
        match &self.unescaped_model {
            Some(model) => model,
            None => {
                let quote = usize::from(!self.is_form);
                let inner = self.model_span.start + quote..self.model_span.end.saturating_sub(quote);
                body.get(inner).and_then(|raw| std::str::from_utf8(raw).ok()).unwrap_or("")
            }
        }
    }
}

/// Read a request's body.
///
/// # Errors
///
/// Every [`BodyError`] is a 400 with its text as the message.
pub fn read_body(bytes: &[u8], endpoint: Endpoint) -> Result<BodyFacts, BodyError> {
    let mut scanner = Scanner::new(bytes)?;
    let Token::ObjectStart(start) = scanner.next_token()? else {
        // Not an object; but if it is no JSON either, that is the better answer.
        scanner.leave(0)?;
        scanner.token()?;
        return Err(BodyError::NotAnObject);
    };
    let mut reader = Reader {
        facts: BodyFacts { inside: start + 1, ..BodyFacts::nothing_of(endpoint) },
        scanner,
        counts_characters: endpoint.is_paid_by_characters(),
        seen: 0,
    };
    while let Some(key) = reader.scanner.member()? {
        reader.member(&key)?;
    }
    reader.scanner.end()?;
    if reader.seen & 1 == 0 {
        return Err(BodyError::NoModel);
    }
    Ok(reader.facts)
}

struct Reader<'a> {
    scanner: Scanner<'a>,
    facts: BodyFacts,
    counts_characters: bool,
    /// Bit i: MEMBERS[i] was seen.
    seen: u32,
}

impl<'a> Reader<'a> {
    fn member(&mut self, key: &Text<'_>) -> Result<(), BodyError> {
        let Some((at, exact)) = member_of(key, self.scanner.is_ascii()) else {
            return Ok(self.scanner.skip_value()?);
        };
        let (name, member) = MEMBERS[at];
        if member == Member::Prompt || member == Member::Options {
            return match member == Member::Prompt {
                true => self.prompt(),
                false => self.options(),
            };
        }
        if !exact {
            return Err(BodyError::Misspelt(name));
        }
        if self.seen >> at & 1 == 1 {
            return Err(BodyError::Duplicate(name));
        }
        self.seen |= 1 << at;
        match member {
            Member::Model => self.model(),
            Member::Stream => self.stream(),
            Member::N => self.n(),
            Member::StreamOptions => self.stream_options(),
            Member::Cap(name) => self.cap(name, false),
            Member::LooseCap(name) => self.cap(name, true),
            Member::Prompt | Member::Options => Ok(()),
        }
    }

    #[inline(always)]
    fn model(&mut self) -> Result<(), BodyError> {
        const MUST: BodyError = BodyError::Wrong("model", "a string that is not empty, of at most 256 bytes");
        let Some(text) = self.scanner.text()? else {
            self.value()?;
            return Err(MUST);
        };
        self.facts.model_span = text.quoted_span();
        let mut bytes = text.raw.len();
        if text.is_escaped() {
            let model = text.decoded().ok_or(MUST)?;
            bytes = model.len();
            self.facts.unescaped_model = Some(model.into());
        }
        if bytes == 0 || bytes > MAX_MODEL_BYTES { Err(MUST) } else { Ok(()) }
    }

    /// The next token, with a container passed over to its end.
    fn value(&mut self) -> Result<Token<'a>, BodyError> {
        let base = self.scanner.depth();
        let token = self.scanner.token()?;
        self.scanner.leave(base)?;
        Ok(token)
    }

    fn stream(&mut self) -> Result<(), BodyError> {
        match self.value()? {
            Token::Bool(stream, _) => self.facts.stream = stream,
            Token::Null(_) => {}
            _ => return Err(BodyError::Wrong("stream", "true or false")),
        }
        Ok(())
    }

    fn n(&mut self) -> Result<(), BodyError> {
        match self.value()? {
            Token::Number(text, _) => match integer(text) {
                Some(Integer::Whole(n)) if n > 0 => self.facts.n = n,
                _ => return Err(BodyError::Wrong("n", "a positive integer")),
            },
            Token::Null(_) => {}
            _ => return Err(BodyError::Wrong("n", "a positive integer")),
        }
        Ok(())
    }

    fn cap(&mut self, name: &'static str, loose: bool) -> Result<(), BodyError> {
        let cap = match self.value()? {
            Token::Number(text, _) => match integer(text) {
                Some(Integer::Whole(cap)) => cap,
                Some(Integer::Negative) if loose => return Ok(()),
                _ => return Err(BodyError::Wrong(name, "an integer that is not negative")),
            },
            Token::Null(_) => return Ok(()),
            _ => return Err(BodyError::Wrong(name, "an integer that is not negative")),
        };
        self.facts.output_cap = self.facts.output_cap.max(Some(cap));
        Ok(())
    }

    fn stream_options(&mut self) -> Result<(), BodyError> {
        let base = self.scanner.depth();
        let inside = match self.scanner.token()? {
            Token::ObjectStart(at) => at + 1,
            Token::Null(at) => {
                self.facts.stream_options = StreamOptions::Null(at..at + 4);
                return Ok(());
            }
            _ => return Err(BodyError::Wrong("stream_options", "an object")),
        };
        let (mut empty, mut include_usage) = (true, None);
        while self.scanner.depth() > base {
            let Token::Key(key) = self.scanner.token()? else { continue };
            empty = false;
            let wanted = key.is("include_usage");
            let depth = self.scanner.depth();
            let value = self.scanner.token()?;
            let from = match value {
                Token::Bool(_, at) | Token::Null(at) | Token::Number(_, at) | Token::ObjectStart(at) => at,
                Token::Str(text) => text.from - 1,
                _ => self.scanner.offset() - 1,
            };
            self.scanner.leave(depth)?;
            if wanted {
                include_usage = Some(from..self.scanner.offset());
                self.facts.include_usage =
                    if matches!(value, Token::Bool(true, _)) { Asked::Yes } else { Asked::No };
            }
        }
        self.facts.stream_options = StreamOptions::Object { inside, empty, include_usage };
        Ok(())
    }

    /// Ollama's `options`: only `num_predict` is of interest. The last one given holds, as everywhere
    /// deeper down; the largest is kept, so no reader can use more than was held for.
    fn options(&mut self) -> Result<(), BodyError> {
        let base = self.scanner.depth();
        if !matches!(self.scanner.token()?, Token::ObjectStart(_)) {
            return Ok(self.scanner.leave(base)?);
        }
        while self.scanner.depth() > base {
            let Token::Key(key) = self.scanner.token()? else { continue };
            if key.is("num_predict") {
                self.cap("num_predict", true)?;
            } else {
                self.scanner.skip_value()?;
            }
        }
        Ok(())
    }

    /// Text below a prompt member: strings, lists, and the `text` and `content` members of objects. All
    /// other members (images, audio, files, tool calls and schemas) count nothing.
    fn prompt(&mut self) -> Result<(), BodyError> {
        let base = self.scanner.depth();
        loop {
            let (in_array, depth) = (self.scanner.in_array(), self.scanner.depth());
            if !in_array && depth > base {
                match self.scanner.member()? {
                    Some(key) if key.is("content") || key.is("text") => {}
                    Some(_) => {
                        self.scanner.skip_value()?;
                        continue;
                    }
                    None if self.scanner.depth() == base => return Ok(()),
                    None => continue,
                }
            }
            match self.scanner.next_token()? {
                Token::Str(text) => self.prompt_text(&text),
                Token::Number(..) if in_array => self.count(BYTES_PER_TOKEN),
                _ => {}
            }
            if self.scanner.depth() == base {
                return Ok(());
            }
        }
    }

    fn prompt_text(&mut self, text: &Text<'_>) {
        if is_inline_media(text) {
            return;
        }
        self.count(text.decoded_bytes());
        if self.counts_characters {
            let characters =
                text.decoded().map_or_else(|| text.decoded_bytes(), |text| text.chars().count() as u64);
            self.facts.characters = self.facts.characters.saturating_add(characters);
        }
    }

    fn count(&mut self, bytes: u64) {
        self.facts.prompt_bytes = self.facts.prompt_bytes.saturating_add(bytes);
    }
}

/// A string that is a `data:` URL with base64 content as a whole.
fn is_inline_media(text: &Text<'_>) -> bool {
    text.raw.starts_with(b"data:")
        && memchr::memchr(b',', &text.raw[..text.raw.len().min(256)])
            .is_some_and(|comma| text.raw[..comma].ends_with(b";base64"))
}

enum Integer {
    Whole(u64),
    Negative,
}

/// A JSON number without fraction or exponent; above u64 it saturates.
fn integer(text: &[u8]) -> Option<Integer> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let value = digits.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(sum.saturating_mul(10).saturating_add(digit))
    })?;
    Some(if negative && value > 0 { Integer::Negative } else { Integer::Whole(value) })
}

/// The estimate that gate 2 holds (SPEC §4.5).
///
/// `maximum`: the served model's own largest output, when it is known; a cap asked for beyond it is held
/// at it (SPEC §10).
pub fn expected(
    facts: &BodyFacts,
    endpoint: Endpoint,
    output_hold: Tokens,
    maximum: Option<Tokens>,
) -> Expected {
    let each = facts.output_cap.unwrap_or(output_hold.0).min(maximum.map_or(u64::MAX, |most| most.0));
    Expected {
        input: Tokens(facts.prompt_bytes.div_ceil(BYTES_PER_TOKEN)),
        output: Tokens(facts.n.saturating_mul(each)),
        images: if endpoint.makes_images() { facts.n } else { 0 },
        characters: facts.characters,
    }
}
