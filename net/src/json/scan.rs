//! A strict pull scanner for RFC 8259 over a whole body.
//!
//! It checks everything (grammar, UTF-8, escapes, nothing after the value) and builds nothing. Open
//! containers are one bit each in a fixed array, so hostile nesting costs neither stack nor heap. String
//! bodies are passed over in blocks of 32 bytes that the compiler turns into vector compares: most of a
//! body is text.
//!
//! Invariant: a token is returned only where the grammar allows it; after an error or `End` the scanner
//! is not asked again.

use super::escape::{unescape, unit};
use super::nesting::Nesting;
use super::plain::before_special;
use std::borrow::Cow;
use std::ops::Range;

/// Why a body is no JSON, and at which byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanError {
    /// Offset of the offending byte.
    pub offset: usize,
    /// What is wrong there.
    pub reason: &'static str,
}

/// A string: its content between the quotes, still escaped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text<'a> {
    /// The bytes between the quotes; valid UTF-8.
    pub raw: &'a [u8],
    /// Offset of `raw` in the body.
    pub from: usize,
    /// How many bytes its escapes take more than what they stand for, in UTF-8; a lone surrogate is the three of U+FFFD.
    spare: usize,
}

impl<'a> Text<'a> {
    /// The span in the body with the quotes.
    pub fn quoted_span(&self) -> Range<usize> {
        self.from - 1..self.from + self.raw.len() + 1
    }

    /// Whether `raw` has a backslash.
    #[inline]
    pub fn is_escaped(&self) -> bool {
        self.spare > 0
    }

    /// The text itself; None when it has a lone surrogate, which no Unicode text can hold.
    pub fn decoded(&self) -> Option<Cow<'a, str>> {
        if !self.is_escaped() {
            return std::str::from_utf8(self.raw).ok().map(Cow::Borrowed);
        }
        let (mut out, mut rest) = (Vec::with_capacity(self.raw.len()), self.raw);
        while let Some(at) = memchr::memchr(b'\\', rest) {
            out.extend_from_slice(&rest[..at]);
            let (one, used) = unescape(&rest[at..]);
            out.extend_from_slice(one?.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[at + used..];
        }
        out.extend_from_slice(rest);
        String::from_utf8(out).ok().map(Cow::Owned)
    }

    /// Bytes of the decoded text in UTF-8; a lone surrogate counts as the three of U+FFFD.
    #[inline]
    pub fn decoded_bytes(&self) -> u64 {
        (self.raw.len() - self.spare) as u64
    }

    /// Whether the decoded text equals `other`, without building it.
    pub fn is(&self, other: &str) -> bool {
        match self.is_escaped() {
            false => self.raw == other.as_bytes(),
            true => self.decoded().is_some_and(|text| text == other),
        }
    }
}

/// One step through a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token<'a> {
    /// `{`, at this offset.
    ObjectStart(usize),
    /// `}`
    ObjectEnd,
    /// `[`
    ArrayStart,
    /// `]`
    ArrayEnd,
    /// A member's name; its value follows.
    Key(Text<'a>),
    /// A string value.
    Str(Text<'a>),
    /// A number as written, and its offset.
    Number(&'a [u8], usize),
    /// `true` or `false`, and its offset.
    Bool(bool, usize),
    /// `null`, and its offset.
    Null(usize),
    /// The document is over, and nothing but blanks follows it.
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expect {
    Value,
    ValueOrArrayEnd,
    KeyOrObjectEnd,
    Key,
    CommaOrEnd,
    End,
}

/// The scanner.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    expect: Expect,
    nesting: Nesting,
    /// All bytes are ASCII.
    ascii: bool,
}

type Scanned<T> = Result<T, ScanError>;

impl<'a> Scanner<'a> {
    /// A scanner over a whole document, which must be UTF-8 (checked here, once, for all of it).
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Scanned<Scanner<'a>> {
        let ascii = bytes.is_ascii(); // most bodies are, which is told sooner
        if !ascii && let Err(error) = std::str::from_utf8(bytes) {
            return Err(ScanError { offset: error.valid_up_to(), reason: "the body is not UTF-8" });
        }
        Ok(Scanner { bytes, at: 0, expect: Expect::Value, nesting: Nesting::default(), ascii })
    }

    /// Whether all bytes are ASCII (what escapes stand for need not be).
    pub fn is_ascii(&self) -> bool {
        self.ascii
    }

    /// Open containers.
    #[inline]
    pub fn depth(&self) -> usize {
        self.nesting.depth()
    }

    /// The offset behind the last token.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Whether the innermost open container is an array.
    pub fn in_array(&self) -> bool {
        self.nesting.in_array()
    }

    fn fail<T>(&self, reason: &'static str) -> Scanned<T> {
        Err(ScanError { offset: self.at, reason })
    }

    #[inline(always)]
    fn skip_blanks(&mut self) -> Option<u8> {
        loop {
            let byte = *self.bytes.get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// The next token.
    pub fn token(&mut self) -> Scanned<Token<'a>> {
        self.next_token()
    }

    /// As [`Scanner::token`], but a part of its caller: for where most tokens are read.
    #[inline(always)]
    pub fn next_token(&mut self) -> Scanned<Token<'a>> {
        let mut byte = self.skip_blanks();
        if self.expect == Expect::CommaOrEnd {
            match byte {
                Some(b',') => {
                    self.at += 1;
                    byte = self.skip_blanks();
                    self.expect = if self.nesting.in_object() { Expect::Key } else { Expect::Value };
                }
                Some(b'}') if self.nesting.in_object() => return Ok(self.close(Token::ObjectEnd)),
                Some(b']') if self.nesting.in_array() => return Ok(self.close(Token::ArrayEnd)),
                Some(_) => return self.fail("a comma or the end of the container is expected"),
                None => return self.fail("the body ends inside a container"),
            }
        }
        match (self.expect, byte) {
            (Expect::End, None) => Ok(Token::End),
            (Expect::End, Some(_)) => self.fail("something follows the JSON value"),
            (_, None) => self.fail("the body ends where more is expected"),
            (Expect::KeyOrObjectEnd, Some(b'}')) => Ok(self.close(Token::ObjectEnd)),
            (Expect::KeyOrObjectEnd | Expect::Key, Some(b'"')) => self.key().map(Token::Key),
            (Expect::KeyOrObjectEnd | Expect::Key, Some(_)) => self.fail("a member's name is expected"),
            (Expect::ValueOrArrayEnd, Some(b']')) => Ok(self.close(Token::ArrayEnd)),
            (_, Some(byte)) => self.value(byte),
        }
    }

    #[inline(always)]
    fn key(&mut self) -> Scanned<Text<'a>> {
        let text = self.string()?;
        if self.skip_blanks() != Some(b':') {
            return self.fail("a colon is expected after a member's name");
        }
        self.at += 1;
        self.expect = Expect::Value;
        Ok(text)
    }

    /// The next member's name; None when the next token is anything else, which it then passed.
    #[inline(always)]
    pub fn member(&mut self) -> Scanned<Option<Text<'a>>> {
        let mut byte = self.skip_blanks();
        if byte == Some(b',') && self.expect == Expect::CommaOrEnd && self.nesting.in_object() {
            self.at += 1;
            self.expect = Expect::Key;
            byte = self.skip_blanks();
        }
        match (self.expect, byte) {
            (Expect::Key | Expect::KeyOrObjectEnd, Some(b'"')) => self.key().map(Some),
            (Expect::CommaOrEnd | Expect::KeyOrObjectEnd, Some(b'}')) if self.nesting.in_object() => {
                self.close(Token::ObjectEnd);
                Ok(None)
            }
            _ => match self.token()? {
                Token::Key(key) => Ok(Some(key)),
                _ => Ok(None),
            },
        }
    }

    /// Nothing but blanks follows the value that the document is.
    #[inline(always)]
    pub fn end(&mut self) -> Scanned<()> {
        match (self.expect, self.skip_blanks()) {
            (Expect::End, None) => Ok(()),
            _ => self.token().map(|_| ()),
        }
    }

    /// The value of a member when it is a string; None, and nothing is passed, when it is not.
    #[inline(always)]
    pub fn text(&mut self) -> Scanned<Option<Text<'a>>> {
        if self.expect != Expect::Value || self.skip_blanks() != Some(b'"') {
            return Ok(None);
        }
        let text = self.string()?;
        self.after_value();
        Ok(Some(text))
    }

    #[inline(always)]
    fn value(&mut self, byte: u8) -> Scanned<Token<'a>> {
        let from = self.at;
        let token = match byte {
            b'{' => return self.open(true, Token::ObjectStart(from)),
            b'[' => return self.open(false, Token::ArrayStart),
            b'"' => Token::Str(self.string()?),
            b't' => self.word(b"true", Token::Bool(true, from))?,
            b'f' => self.word(b"false", Token::Bool(false, from))?,
            b'n' => self.word(b"null", Token::Null(from))?,
            b'-' | b'0'..=b'9' => {
                self.number()?;
                Token::Number(&self.bytes[from..self.at], from)
            }
            _ => return self.fail("a value is expected"),
        };
        self.after_value();
        Ok(token)
    }

    fn after_value(&mut self) {
        self.expect = if self.depth() == 0 { Expect::End } else { Expect::CommaOrEnd };
    }

    #[inline(always)]
    fn open(&mut self, object: bool, token: Token<'a>) -> Scanned<Token<'a>> {
        if self.nesting.open(object).is_err() {
            return self.fail("containers are nested too deep");
        }
        self.at += 1;
        self.expect = if object { Expect::KeyOrObjectEnd } else { Expect::ValueOrArrayEnd };
        Ok(token)
    }

    #[inline(always)]
    fn close(&mut self, token: Token<'a>) -> Token<'a> {
        self.at += 1;
        self.nesting.close();
        self.after_value();
        token
    }

    fn word(&mut self, word: &[u8], token: Token<'a>) -> Scanned<Token<'a>> {
        if !self.bytes[self.at..].starts_with(word) {
            return self.fail("a value is expected");
        }
        self.at += word.len();
        Ok(token)
    }

    fn digits(&mut self) -> Scanned<()> {
        let from = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == from { self.fail("a digit is expected") } else { Ok(()) }
    }

    fn number(&mut self) -> Scanned<()> {
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// The string whose opening quote is at `self.at`.
    #[inline(always)]
    fn string(&mut self) -> Scanned<Text<'a>> {
        let from = self.at + 1;
        let plain = before_special(&self.bytes[from..]);
        self.at = from + plain;
        if self.bytes.get(self.at) != Some(&b'"') {
            return self.string_beyond(from);
        }
        self.at += 1;
        Ok(Text { raw: &self.bytes[from..from + plain], from, spare: 0 })
    }

    /// A string that began at `from` and was plain up to `self.at`, where no quote is.
    #[inline(never)]
    fn string_beyond(&mut self, from: usize) -> Scanned<Text<'a>> {
        // `pair`: where an escape would be the second half of a surrogate pair.
        let (mut spare, mut pair) = (0, 0);
        loop {
            match self.bytes.get(self.at..) {
                Some([b'"', ..]) => {
                    self.at += 1;
                    return Ok(Text { raw: &self.bytes[from..self.at - 1], from, spare });
                }
                Some([b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..]) => {
                    spare += 1;
                    self.at += 2;
                }
                Some(escape @ [b'\\', b'u', digits @ ..]) => {
                    if !digits.get(..4).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                        return self.fail("\\u is not followed by four hexadecimal digits");
                    }
                    spare += match unit(escape) {
                        ..0x80 => 5,
                        0x80..0x800 => 4,
                        // Both halves are four bytes.
                        0xdc00..0xe000 if pair == self.at => 5,
                        _ => 3,
                    };
                    self.at += 6;
                    if (0xd800..0xdc00).contains(&unit(escape)) {
                        pair = self.at;
                    }
                }
                Some([b'\\', ..]) => return self.fail("an unknown escape in a string"),
                Some([_, ..]) => return self.fail("a control character in a string is not escaped"),
                _ => return self.fail("a string is not closed"),
            }
            self.at += before_special(&self.bytes[self.at..]);
        }
    }

    /// Pass over one whole value (after a key, or an element).
    #[inline(always)]
    pub fn skip_value(&mut self) -> Scanned<()> {
        match self.text()? {
            Some(_) => Ok(()),
            None => self.skip_other(),
        }
    }

    fn skip_other(&mut self) -> Scanned<()> {
        let base = self.depth();
        loop {
            self.token()?;
            if self.depth() <= base && matches!(self.expect, Expect::CommaOrEnd | Expect::End) {
                return Ok(());
            }
        }
    }

    /// Pass over what is left of the containers down to `depth`.
    pub fn leave(&mut self, depth: usize) -> Scanned<()> {
        while self.depth() > depth {
            self.token()?;
        }
        Ok(())
    }
}
