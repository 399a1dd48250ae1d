//! A resumable scanner that watches a JSON document go by in pieces and reports a few values of it.
//!
//! Which values is a static tree of names ([`Watch`]); everything else is passed over. Nothing is kept but
//! the name or number being read (fixed buffers) and one bit for each open container, so a response of any
//! size costs the same memory, and any split of the input reports the same. Rejected: collecting each
//! event and parsing it whole, because the last event of the Responses API repeats the entire answer.
//!
//! It does not validate: what it cannot follow ends its interest in the document, not the relay.

use crate::bounds::{MAX_JSON_DEPTH, MAX_NUMBER_BYTES};

/// A node of the tree of names that are of interest.
#[derive(Debug)]
pub struct Watch {
    /// Reported when the value here is a number, a string, an object or an empty array.
    pub slot: Option<u8>,
    /// Below an object: names and their nodes.
    pub members: &'static [(&'static str, &'static Watch)],
    /// Below an array: the node of every element.
    pub elements: Option<&'static Watch>,
}

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
/// Longer names are of no interest.
const NAME_BYTES: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Value,
    FirstElement,
    FirstName,
    Name,
    InName,
    Colon,
    InString,
    Number,
    Word,
    AfterValue,
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Escape {
    None,
    Begun,
    Unicode { digits: u8, value: u16 },
}

/// The scanner's state between two pieces.
#[derive(Clone, Debug)]
pub struct Capture {
    root: &'static Watch,
    /// The node of the value that is next or being read.
    here: Option<&'static Watch>,
    /// The nodes of the open containers.
    open: [Option<&'static Watch>; WATCHED_LEVELS],
    objects: [u64; MAX_JSON_DEPTH / 64],
    depth: usize,
    state: State,
    escape: Escape,
    name: [u8; NAME_BYTES],
    name_bytes: usize,
    number: [u8; MAX_NUMBER_BYTES],
    number_bytes: usize,
}

impl Capture {
    /// A scanner for documents in which `root` is of interest.
    pub fn new(root: &'static Watch) -> Capture {
        Capture {
            root,
            here: Some(root),
            open: [None; WATCHED_LEVELS],
            objects: [0; MAX_JSON_DEPTH / 64],
            depth: 0,
            state: State::Value,
            escape: Escape::None,
            name: [0; NAME_BYTES],
            name_bytes: 0,
            number: [0; MAX_NUMBER_BYTES],
            number_bytes: 0,
        }
    }

    /// Begin a new document, whatever became of the last one.
    pub fn restart(&mut self) {
        self.here = Some(self.root);
        self.depth = 0;
        self.state = State::Value;
        self.escape = Escape::None;
    }

    /// Read the next piece. A document may follow another directly.
    pub fn feed(&mut self, piece: &[u8], sink: &mut impl Sink) {
        let mut at = 0;
        while at < piece.len() {
            at += match self.state {
                State::Lost => return,
                State::InString => self.in_string(&piece[at..], sink),
                State::InName => self.in_name(&piece[at..]),
                State::Number => self.in_number(&piece[at..], sink),
                State::Word => {
                    let letters = piece[at..].iter().take_while(|byte| byte.is_ascii_lowercase()).count();
                    if at + letters < piece.len() {
                        self.after_value();
                    }
                    letters
                }
                _ => {
                    self.structure(piece[at], sink);
                    1
                }
            };
        }
    }

    fn structure(&mut self, byte: u8, sink: &mut impl Sink) {
        match self.state {
            _ if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => {}
            State::Colon if byte == b':' => self.state = State::Value,
            State::FirstName | State::Name if byte == b'"' => {
                self.name_bytes = 0;
                self.state = State::InName;
            }
            State::FirstName if byte == b'}' => self.close(),
            State::AfterValue if self.depth > 0 => match (byte, self.in_object()) {
                (b',', true) => {
                    self.here = None;
                    self.state = State::Name;
                }
                (b',', false) => {
                    self.here = self.element();
                    self.state = State::Value;
                }
                (b'}', true) | (b']', false) => self.close(),
                _ => self.state = State::Lost,
            },
            State::FirstElement if byte == b']' => {
                if let Some(slot) = self.container().and_then(|watch| watch.slot) {
                    sink.empty_array(slot);
                }
                self.close();
            }
            State::Value | State::FirstElement => self.begin_value(byte, sink),
            _ => self.state = State::Lost,
        }
    }

    fn begin_value(&mut self, byte: u8, sink: &mut impl Sink) {
        let slot = self.here.and_then(|watch| watch.slot);
        match byte {
            b'{' => {
                if let Some(slot) = slot {
                    sink.object(slot);
                }
                self.open(true);
            }
            b'[' => self.open(false),
            b'"' => self.state = State::InString,
            b'-' | b'0'..=b'9' => {
                self.number[0] = byte;
                self.number_bytes = 1;
                self.state = State::Number;
            }
            b't' | b'f' | b'n' => self.state = State::Word,
            _ => self.state = State::Lost,
        }
    }

    fn in_object(&self) -> bool {
        self.depth > 0 && self.objects[(self.depth - 1) / 64] >> ((self.depth - 1) % 64) & 1 == 1
    }

    /// The node of the innermost open container.
    fn container(&self) -> Option<&'static Watch> {
        self.depth.checked_sub(1).and_then(|level| self.open.get(level).copied().flatten())
    }

    /// The node of the next element, when the innermost container is an array.
    fn element(&self) -> Option<&'static Watch> {
        self.container().filter(|_| !self.in_object()).and_then(|watch| watch.elements)
    }

    fn open(&mut self, object: bool) {
        if self.depth == MAX_JSON_DEPTH {
            self.state = State::Lost;
            return;
        }
        let (word, bit) = (self.depth / 64, 1u64 << (self.depth % 64));
        self.objects[word] = if object { self.objects[word] | bit } else { self.objects[word] & !bit };
        if let Some(level) = self.open.get_mut(self.depth) {
            *level = self.here;
        }
        self.depth += 1;
        self.here = self.element();
        self.state = if object { State::FirstName } else { State::FirstElement };
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.after_value();
    }

    fn after_value(&mut self) {
        if self.depth == 0 {
            self.here = Some(self.root);
            self.state = State::Value;
        } else {
            self.state = State::AfterValue;
        }
    }

    fn in_number(&mut self, piece: &[u8], sink: &mut impl Sink) -> usize {
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let digits = piece.iter().take_while(|byte| is_part(byte)).count();
        let slot = self.here.and_then(|watch| watch.slot);
        if slot.is_some() {
            let room = MAX_NUMBER_BYTES - self.number_bytes;
            let kept = digits.min(room);
            self.number[self.number_bytes..self.number_bytes + kept].copy_from_slice(&piece[..kept]);
            self.number_bytes += kept;
        }
        if digits < piece.len() {
            if let Some(slot) = slot {
                sink.number(slot, &self.number[..self.number_bytes]);
            }
            self.after_value();
        }
        digits
    }

    fn in_string(&mut self, piece: &[u8], sink: &mut impl Sink) -> usize {
        let slot = self.here.and_then(|watch| watch.slot);
        if self.escape != Escape::None {
            if let Some(decoded) = self.unescape(piece[0])
                && let Some(slot) = slot
            {
                sink.text(slot, decoded.bytes());
            }
            return 1;
        }
        let plain = plain_bytes(piece);
        if let Some(slot) = slot.filter(|_| plain > 0) {
            sink.text(slot, plain as u64);
        }
        match piece.get(plain) {
            Some(b'"') => self.after_value(),
            Some(_) => self.escape = Escape::Begun,
            None => return plain,
        }
        plain + 1
    }

    fn in_name(&mut self, piece: &[u8]) -> usize {
        if self.escape != Escape::None {
            if let Some(decoded) = self.unescape(piece[0]) {
                // Every watched name is ASCII; 0xff stands for anything else.
                self.push_name(&[decoded.ascii().unwrap_or(0xff)]);
            }
            return 1;
        }
        let plain = plain_bytes(piece);
        let quoted = piece.get(plain) == Some(&b'"');
        if quoted && self.name_bytes == 0 {
            // Most names come whole, and need not be kept.
            self.here = self.named(&piece[..plain]);
            self.state = State::Colon;
            return plain + 1;
        }
        self.push_name(&piece[..plain]);
        match piece.get(plain) {
            Some(_) if quoted => {
                self.here = self.name.get(..self.name_bytes).and_then(|name| self.named(name));
                self.state = State::Colon;
            }
            Some(_) => self.escape = Escape::Begun,
            None => return plain,
        }
        plain + 1
    }

    /// The node of the member of that name.
    fn named(&self, name: &[u8]) -> Option<&'static Watch> {
        let members = self.container()?.members;
        members.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, watch)| *watch)
    }

    fn push_name(&mut self, bytes: &[u8]) {
        if self.container().is_none_or(|watch| watch.members.is_empty()) {
            return; // no name is of interest here
        }
        let to = self.name_bytes + bytes.len();
        if let Some(room) = self.name.get_mut(self.name_bytes..to) {
            room.copy_from_slice(bytes);
            self.name_bytes = to;
        } else {
            self.name_bytes = NAME_BYTES + 1; // too long: no name is found
        }
    }

    /// Take the next byte of an escape; Some when it is complete.
    fn unescape(&mut self, byte: u8) -> Option<Decoded> {
        let (next, decoded) = match (self.escape, byte) {
            (Escape::Begun, b'u') => (Escape::Unicode { digits: 0, value: 0 }, None),
            (Escape::Begun, b'n' | b't' | b'r' | b'b' | b'f') => (Escape::None, Some(Decoded::Simple(b' '))),
            (Escape::Begun, other) => (Escape::None, Some(Decoded::Simple(other))),
            (Escape::Unicode { digits, value }, digit) => {
                let digit = char::from(digit).to_digit(16).unwrap_or(0) as u16;
                let value = value << 4 | digit;
                match digits {
                    3 => (Escape::None, Some(Decoded::Unit(value))),
                    _ => (Escape::Unicode { digits: digits + 1, value }, None),
                }
            }
            (Escape::None, _) => (Escape::None, None),
        };
        self.escape = next;
        decoded
    }
}

/// How many bytes stand in front of a quote or a backslash. Most names and many values are short, which a search that is
/// made for long ones only delays.
fn plain_bytes(piece: &[u8]) -> usize {
    const NEAR: usize = 16;
    let (near, far) = piece.split_at(piece.len().min(NEAR));
    let special = |byte: &u8| matches!(byte, b'"' | b'\\');
    let beyond = || near.len() + memchr::memchr2(b'"', b'\\', far).unwrap_or(far.len());
    near.iter().position(special).unwrap_or_else(beyond)
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
