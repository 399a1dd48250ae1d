//! A resumable scanner that watches a JSON document go by in pieces and reports a few values of it.
//!
//! Which values is a static tree of names ([`Watch`]); everything else is passed over. Nothing is kept but
//! the name or number being read (fixed buffers) and one bit for each open container, so a response of any
//! size costs the same memory, and any split of the input reports the same. Rejected: collecting each
//! event and parsing it whole, because the last event of the Responses API repeats the entire answer.
//!
//! It does not validate: what it cannot follow ends its interest in the document, not the relay.

use super::nesting::Nesting;
use super::plain::before_quote;
pub use super::watch::Watch;
use super::watch::{KEPT_BYTES, NOTHING};
use crate::bounds::MAX_NUMBER_BYTES;

/// Receives what is found.
pub trait Sink {
    /// A number, as written (cut at [`MAX_NUMBER_BYTES`]).
    fn number(&mut self, slot: u8, text: &[u8]);
    /// So many more bytes of a string, in UTF-8.
    fn text(&mut self, slot: u8, bytes: u64);
    /// An object begins.
    fn object(&mut self, slot: u8);
    /// An array is empty.
    fn empty_array(&mut self, slot: u8);
}

/// Levels at which names can be watched.
const WATCHED_LEVELS: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Value,
    FirstElement,
    FirstName,
    Name,
    InName,
    NameEscape,
    Colon,
    InString,
    StringEscape,
    Number,
    Word,
    AfterValue,
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Escape {
    Begun,
    Unicode { digits: u8, value: u16 },
}

/// The scanner's state between two pieces.
#[derive(Clone, Debug)]
pub struct Capture {
    root: &'static Watch,
    /// The node of the value that is next or being read.
    here: &'static Watch,
    /// The node of the innermost open container.
    container: &'static Watch,
    /// The nodes of the open containers.
    open: [&'static Watch; WATCHED_LEVELS],
    nesting: Nesting,
    state: State,
    escape: Escape,
    /// What of the name or the number that is being read came in earlier pieces.
    kept: [u8; KEPT_BYTES],
    /// How much of it; more than there is room for: a name that is too long.
    kept_bytes: usize,
}

impl Capture {
    /// A scanner for documents in which `root` is of interest.
    pub fn new(root: &'static Watch) -> Capture {
        Capture {
            root,
            here: root,
            container: &NOTHING,
            open: [&NOTHING; WATCHED_LEVELS],
            nesting: Nesting::default(),
            state: State::Value,
            escape: Escape::Begun,
            kept: [0; KEPT_BYTES],
            kept_bytes: 0,
        }
    }

    /// Begin a new document, whatever became of the last one.
    pub fn restart(&mut self) {
        self.here = self.root;
        self.container = &NOTHING;
        self.nesting.clear();
        self.state = State::Value;
    }

    /// Read the next piece. A document may follow another directly.
    pub fn feed(&mut self, piece: &[u8], sink: &mut impl Sink) {
        let (mut rest, mut state) = (piece, self.state);
        // The parts of the grammar stand in the order in which they follow each other, so that one turn reads a member
        // with all that belongs to it; wherever the piece ends, the state says what is next.
        while !rest.is_empty() && state != State::Lost {
            if state == State::AfterValue {
                if let [b',', b'"', after @ ..] = rest
                    && self.nesting.in_object()
                {
                    // As most documents have it.
                    rest = after;
                    self.kept_bytes = 0;
                    state = State::InName;
                } else {
                    let Some(byte) = next_mark(&mut rest) else { break };
                    state = self.separated(byte);
                }
            }
            if matches!(state, State::Name | State::FirstName) {
                let Some(byte) = next_mark(&mut rest) else { break };
                self.kept_bytes = 0;
                state = match byte {
                    b'"' => State::InName,
                    b'}' if state == State::FirstName => self.close(),
                    _ => State::Lost,
                };
            }
            if state == State::InName {
                state = self.in_name(&mut rest);
            }
            if state == State::Colon {
                let Some(byte) = next_mark(&mut rest) else { break };
                state = if byte == b':' { State::Value } else { State::Lost };
            }
            if state == State::FirstElement {
                past_blanks(&mut rest);
                state = match rest {
                    [] => break,
                    [b']', after @ ..] => {
                        rest = after;
                        if let Some(slot) = self.container.slot {
                            sink.empty_array(slot);
                        }
                        self.close()
                    }
                    _ => State::Value,
                };
            }
            if state == State::Value {
                past_blanks(&mut rest);
                if let [b'"', after @ ..] = rest {
                    rest = after;
                    state = State::InString;
                } else {
                    let Some(byte) = rest.first() else { break };
                    state = self.begin_value(*byte, sink);
                    if !matches!(state, State::Number | State::Word) {
                        rest = &rest[1..];
                    }
                }
            }
            if state == State::InString {
                state = self.in_string(&mut rest, sink);
            } else if state == State::Number {
                state = self.in_number(&mut rest, sink);
            } else if state == State::Word {
                let letters = run(rest, |byte| byte.is_ascii_lowercase());
                rest = &rest[letters..];
                state = if rest.is_empty() { State::Word } else { self.after_value() };
            } else if matches!(state, State::NameEscape | State::StringEscape)
                && let [byte, after @ ..] = rest
            {
                rest = after;
                state = self.in_escape(*byte, state, sink);
            }
        }
        self.state = state;
    }

    /// `byte` follows a value in a container.
    #[inline(never)]
    fn separated(&mut self, byte: u8) -> State {
        match (byte, self.nesting.in_object()) {
            (b',', true) => State::Name,
            (b',', false) => {
                self.here = self.container.element();
                State::Value
            }
            (b'}', true) | (b']', false) => self.close(),
            _ => State::Lost,
        }
    }

    /// What `byte` begins, if it is no string.
    #[inline(always)]
    fn begin_value(&mut self, byte: u8, sink: &mut impl Sink) -> State {
        match byte {
            b'-' | b'0'..=b'9' => {
                self.kept_bytes = 0;
                State::Number
            }
            b'{' => {
                if let Some(slot) = self.here.slot {
                    sink.object(slot);
                }
                self.open(true)
            }
            b'[' => self.open(false),
            b't' | b'f' | b'n' => State::Word,
            _ => State::Lost,
        }
    }

    #[inline(never)]
    fn open(&mut self, object: bool) -> State {
        let level = self.nesting.depth();
        if self.nesting.open(object).is_err() {
            return State::Lost;
        }
        self.container = &NOTHING;
        if let Some(open) = self.open.get_mut(level) {
            *open = self.here;
            self.container = self.here;
        }
        if object {
            return State::FirstName;
        }
        self.here = self.container.element();
        State::FirstElement
    }

    #[inline(never)]
    fn close(&mut self) -> State {
        self.nesting.close();
        let around = self.nesting.depth().checked_sub(1).and_then(|level| self.open.get(level));
        self.container = around.copied().unwrap_or(&NOTHING);
        self.after_value()
    }

    #[inline]
    fn after_value(&mut self) -> State {
        if self.nesting.depth() > 0 {
            return State::AfterValue;
        }
        self.here = self.root;
        State::Value
    }

    #[inline]
    fn in_number(&mut self, rest: &mut &[u8], sink: &mut impl Sink) -> State {
        let is_part = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let (digits, after) = rest.split_at(run(rest, is_part));
        *rest = after;
        if let Some(slot) = self.here.slot {
            if !after.is_empty() && self.kept_bytes == 0 {
                // Most numbers come whole, and need not be kept.
                sink.number(slot, &digits[..digits.len().min(MAX_NUMBER_BYTES)]);
            } else {
                let kept = digits.len().min(KEPT_BYTES - self.kept_bytes);
                self.kept[self.kept_bytes..self.kept_bytes + kept].copy_from_slice(&digits[..kept]);
                self.kept_bytes += kept;
                if !after.is_empty() {
                    sink.number(slot, &self.kept[..self.kept_bytes]);
                }
            }
        }
        if after.is_empty() { State::Number } else { self.after_value() }
    }

    #[inline(always)]
    fn in_string(&mut self, rest: &mut &[u8], sink: &mut impl Sink) -> State {
        let (plain, after) = rest.split_at(before_quote(rest));
        if let Some(slot) = self.here.slot.filter(|_| !plain.is_empty()) {
            sink.text(slot, plain.len() as u64);
        }
        let Some((byte, after)) = after.split_first() else {
            *rest = &[];
            return State::InString;
        };
        *rest = after;
        if *byte == b'"' { self.after_value() } else { self.begin_escape(State::StringEscape) }
    }

    #[inline(always)]
    fn in_name(&mut self, rest: &mut &[u8]) -> State {
        let (part, after) = rest.split_at(before_quote(rest));
        if let [b'"', b':', after @ ..] = after
            && self.kept_bytes == 0
        {
            // As most documents have it; and most names come whole, and need not be kept.
            self.here = self.container.member(part);
            *rest = after;
            return State::Value;
        }
        *rest = after.get(1..).unwrap_or(&[]);
        self.keep_name(part);
        match after.first() {
            Some(b'"') => {
                self.here = self.kept_member();
                State::Colon
            }
            Some(_) => self.begin_escape(State::NameEscape),
            None => State::InName,
        }
    }

    fn begin_escape(&mut self, state: State) -> State {
        self.escape = Escape::Begun;
        state
    }

    fn in_escape(&mut self, byte: u8, state: State, sink: &mut impl Sink) -> State {
        let Some(decoded) = self.unescape(byte) else { return state };
        if state == State::NameEscape {
            // Every watched name is ASCII; 0xff stands for anything else.
            self.keep_name(&[decoded.ascii().unwrap_or(0xff)]);
            return State::InName;
        }
        if let Some(slot) = self.here.slot {
            sink.text(slot, decoded.bytes());
        }
        State::InString
    }

    /// The node of the member whose name was kept.
    fn kept_member(&self) -> &'static Watch {
        self.kept.get(..self.kept_bytes).map_or(&NOTHING, |name| self.container.member(name))
    }

    fn keep_name(&mut self, bytes: &[u8]) {
        if !self.container.has_members() {
            return; // no name is of interest here
        }
        let to = self.kept_bytes + bytes.len();
        if let Some(room) = self.kept.get_mut(self.kept_bytes..to) {
            room.copy_from_slice(bytes);
            self.kept_bytes = to;
        } else {
            self.kept_bytes = KEPT_BYTES + 1;
        }
    }

    /// Take the next byte of an escape; Some when it is complete.
    fn unescape(&mut self, byte: u8) -> Option<Decoded> {
        let (next, decoded) = match (self.escape, byte) {
            (Escape::Begun, b'u') => (Escape::Unicode { digits: 0, value: 0 }, None),
            (Escape::Begun, b'n' | b't' | b'r' | b'b' | b'f') => (Escape::Begun, Some(Decoded::Simple(b' '))),
            (Escape::Begun, other) => (Escape::Begun, Some(Decoded::Simple(other))),
            (Escape::Unicode { digits, value }, digit) => {
                let digit = char::from(digit).to_digit(16).unwrap_or(0) as u16;
                let value = value << 4 | digit;
                match digits {
                    3 => (Escape::Begun, Some(Decoded::Unit(value))),
                    _ => (Escape::Unicode { digits: digits + 1, value }, None),
                }
            }
        };
        self.escape = next;
        decoded
    }
}

/// Takes what is left behind the blanks.
#[inline(always)]
fn past_blanks(rest: &mut &[u8]) {
    while let [b' ' | b'\t' | b'\n' | b'\r', after @ ..] = *rest {
        *rest = after;
    }
}

/// Takes the next byte that is no blank.
#[inline(always)]
fn next_mark(rest: &mut &[u8]) -> Option<u8> {
    past_blanks(rest);
    let (byte, after) = rest.split_first()?;
    *rest = after;
    Some(*byte)
}

/// How many bytes at the front are part of it.
#[inline(always)]
fn run(bytes: &[u8], is_part: impl Fn(u8) -> bool) -> usize {
    let mut run = 0;
    while run < bytes.len() && is_part(bytes[run]) {
        run += 1;
    }
    run
}

/// A decoded escape.
enum Decoded {
    Simple(u8),
    /// A UTF-16 unit.
    Unit(u16),
}

impl Decoded {
    /// Bytes in UTF-8; each half of a surrogate pair is two of its four.
    fn bytes(&self) -> u64 {
        match self {
            Decoded::Simple(_) | Decoded::Unit(..0x80) => 1,
            Decoded::Unit(0x80..0x800 | 0xd800..0xe000) => 2,
            Decoded::Unit(_) => 3,
        }
    }

    fn ascii(&self) -> Option<u8> {
        match self {
            Decoded::Simple(byte) => Some(*byte),
            Decoded::Unit(unit) => u8::try_from(*unit).ok().filter(u8::is_ascii),
        }
    }
}
