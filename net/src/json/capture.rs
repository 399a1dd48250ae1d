//! A resumable scanner that watches a JSON document go by in pieces and reports a few values of it.
//!
//! Which values is a static tree of names ([`Watch`]); everything else is passed over. Nothing is kept but
//! the name or number being read (fixed buffers) and one bit for each open container, so a response of any
//! size costs the same memory, and any split of the input reports the same. Rejected: collecting each
//! event and parsing it whole, because the last event of the Responses API repeats the entire answer.
//!
//! It does not validate: what it cannot follow ends its interest in the document, not the relay.

use super::escape::{Escape, unit, utf8_bytes};
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

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum State {
    Value,
    FirstElement,
    FirstName,
    Name,
    Colon,
    AfterValue,
    // A piece ended within these.
    InName,
    NameEscape,
    InString,
    StringEscape,
    Number,
    Word,
    Lost,
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
        let (mut at, mut state) = (0, self.state);
        // The parts of the grammar stand in the order in which they follow each other, so that one turn reads a member
        // with all that belongs to it; wherever the piece ends, the state says what is next.
        loop {
            if state >= State::InName {
                if at == piece.len() {
                    break;
                }
                (at, state) = self.resume(piece, at, state, sink);
            }
            if state == State::AfterValue {
                let Some(byte) = next_mark(piece, &mut at) else { break };
                state = match (byte, self.nesting.in_object()) {
                    (b',', true) => State::Name,
                    (b',', false) => {
                        self.here = self.container.element();
                        State::Value
                    }
                    (b'}', true) | (b']', false) => self.close(),
                    _ => State::Lost,
                };
            }
            if matches!(state, State::Name | State::FirstName) {
                let Some(byte) = next_mark(piece, &mut at) else { break };
                (at, state) = match byte {
                    b'"' => self.in_name(piece, at, true),
                    b'}' if state == State::FirstName => (at, self.close()),
                    _ => (at, State::Lost),
                };
            }
            if state == State::Colon {
                let Some(byte) = next_mark(piece, &mut at) else { break };
                state = if byte == b':' { State::Value } else { State::Lost };
            }
            if matches!(state, State::Value | State::FirstElement) {
                let Some(byte) = next_mark(piece, &mut at) else { break };
                (at, state) = match byte {
                    b'"' => self.in_string(piece, at, sink),
                    b'-' | b'0'..=b'9' => self.in_number(piece, at - 1, true, sink),
                    b't' | b'f' | b'n' => self.in_word(piece, at),
                    b'{' => {
                        if let Some(slot) = self.here.slot {
                            sink.object(slot);
                        }
                        (at, self.open(true, State::FirstName))
                    }
                    b'[' => (at, self.open(false, State::FirstElement)),
                    b']' if state == State::FirstElement => {
                        if let Some(slot) = self.container.slot {
                            sink.empty_array(slot);
                        }
                        (at, self.close())
                    }
                    _ => (at, State::Lost),
                };
            }
        }
        self.state = state;
    }

    /// Goes on where a piece ended within a name or a value: behind it, or to the end of this piece.
    #[inline(never)]
    fn resume(
        &mut self,
        piece: &[u8],
        mut at: usize,
        mut state: State,
        sink: &mut impl Sink,
    ) -> (usize, State) {
        while at < piece.len() && state >= State::InName {
            (at, state) = match state {
                State::InName => self.in_name(piece, at, false),
                State::InString => self.in_string(piece, at, sink),
                State::Number => self.in_number(piece, at, false, sink),
                State::Word => self.in_word(piece, at),
                State::NameEscape | State::StringEscape => (at + 1, self.in_escape(piece[at], state, sink)),
                _ => return (piece.len(), state),
            };
        }
        (at, state)
    }

    #[inline(always)]
    fn open(&mut self, object: bool, state: State) -> State {
        let level = self.nesting.depth();
        if self.nesting.open(object).is_err() {
            return State::Lost;
        }
        self.container = &NOTHING;
        if let Some(open) = self.open.get_mut(level) {
            *open = self.here;
            self.container = self.here;
        }
        self.here = self.container.element();
        state
    }

    #[inline(always)]
    fn close(&mut self) -> State {
        self.nesting.close();
        let around = self.nesting.depth().checked_sub(1).and_then(|level| self.open.get(level));
        self.container = around.copied().unwrap_or(&NOTHING);
        self.after_value()
    }

    #[inline(always)]
    fn after_value(&mut self) -> State {
        if self.nesting.depth() > 0 {
            return State::AfterValue;
        }
        self.here = self.root;
        State::Value
    }

    /// `whole`: nothing of it came in an earlier piece; most come whole, and need not be kept.
    #[inline(always)]
    fn in_number(&mut self, piece: &[u8], at: usize, whole: bool, sink: &mut impl Sink) -> (usize, State) {
        let end = at
            + run(&piece[at..], |byte| {
                byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-')
            });
        if let Some(slot) = self.here.slot {
            if whole && end < piece.len() {
                sink.number(slot, &piece[at..end.min(at + MAX_NUMBER_BYTES)]);
            } else {
                self.keep_number(&piece[at..end], whole);
                if end < piece.len() {
                    sink.number(slot, &self.kept[..self.kept_bytes]);
                }
            }
        }
        (end, if end < piece.len() { self.after_value() } else { State::Number })
    }

    #[inline(always)]
    fn in_word(&mut self, piece: &[u8], at: usize) -> (usize, State) {
        let end = at + run(&piece[at..], |byte| byte.is_ascii_lowercase());
        (end, if end < piece.len() { self.after_value() } else { State::Word })
    }

    #[inline(always)]
    fn in_string(&mut self, piece: &[u8], at: usize, sink: &mut impl Sink) -> (usize, State) {
        let text = &piece[at..];
        let plain = before_quote(text);
        if text.get(plain) != Some(&b'"') {
            return self.in_long_string(piece, at, sink);
        }
        if let Some(slot) = self.here.slot
            && plain > 0
        {
            sink.text(slot, plain as u64);
        }
        (at + plain + 1, self.after_value())
    }

    /// A string with escapes, or one that does not end in this piece.
    #[inline(never)]
    fn in_long_string(&mut self, piece: &[u8], mut at: usize, sink: &mut impl Sink) -> (usize, State) {
        let (slot, mut bytes) = (self.here.slot, 0);
        let state = loop {
            let rest = &piece[at..];
            let plain = before_quote(rest);
            bytes += plain as u64;
            match &rest[plain..] {
                [] => {
                    at = piece.len();
                    break State::InString;
                }
                [b'"', ..] => {
                    at += plain + 1;
                    break self.after_value();
                }
                escape @ [_, b'u', _, _, _, _, ..] => {
                    bytes += utf8_bytes(unit(escape));
                    at += plain + 6;
                }
                [_, b'u', ..] | [_] => {
                    at += plain + 1;
                    break self.begin_escape(State::StringEscape);
                }
                [_, _, ..] => {
                    bytes += 1;
                    at += plain + 2;
                }
            }
        };
        if let Some(slot) = slot
            && bytes > 0
        {
            sink.text(slot, bytes);
        }
        (at, state)
    }

    /// `whole`: as of a number.
    #[inline(always)]
    fn in_name(&mut self, piece: &[u8], at: usize, whole: bool) -> (usize, State) {
        let name = &piece[at..];
        let (name, after) = name.split_at(before_quote(name));
        let end = at + name.len();
        if whole {
            if let [b'"', after @ ..] = after {
                self.here = self.container.member(name);
                return match after.first() {
                    Some(b':') => (end + 2, State::Value),
                    _ => (end + 1, State::Colon),
                };
            }
            self.kept_bytes = 0;
        }
        self.kept_name(name, after.first(), end)
    }

    #[inline(never)]
    fn kept_name(&mut self, part: &[u8], mark: Option<&u8>, end: usize) -> (usize, State) {
        self.keep_name(part);
        match mark {
            Some(b'"') => {
                self.here =
                    self.kept.get(..self.kept_bytes).map_or(&NOTHING, |name| self.container.member(name));
                (end + 1, State::Colon)
            }
            Some(_) => (end + 1, self.begin_escape(State::NameEscape)),
            None => (end, State::InName),
        }
    }

    #[inline(never)]
    fn keep_number(&mut self, digits: &[u8], whole: bool) {
        if whole {
            self.kept_bytes = 0;
        }
        let kept = digits.len().min(KEPT_BYTES - self.kept_bytes);
        self.kept[self.kept_bytes..self.kept_bytes + kept].copy_from_slice(&digits[..kept]);
        self.kept_bytes += kept;
    }

    fn keep_name(&mut self, bytes: &[u8]) {
        let to = self.kept_bytes + bytes.len();
        if let Some(room) = self.kept.get_mut(self.kept_bytes..to) {
            room.copy_from_slice(bytes);
            self.kept_bytes = to;
        } else {
            self.kept_bytes = KEPT_BYTES + 1;
        }
    }

    fn begin_escape(&mut self, state: State) -> State {
        self.escape = Escape::Begun;
        state
    }

    fn in_escape(&mut self, byte: u8, state: State, sink: &mut impl Sink) -> State {
        let Some(unit) = self.escape.take(byte) else { return state };
        if state == State::NameEscape {
            // Every watched name is ASCII; 0xff stands for anything else.
            self.keep_name(&[u8::try_from(unit).ok().filter(u8::is_ascii).unwrap_or(0xff)]);
            return State::InName;
        }
        if let Some(slot) = self.here.slot {
            sink.text(slot, utf8_bytes(unit));
        }
        State::InString
    }
}

/// The next byte that is no blank; `at` moves behind it.
#[inline(always)]
fn next_mark(piece: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        let byte = *piece.get(*at)?;
        *at += 1;
        if byte > b' ' || !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            return Some(byte);
        }
    }
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
