//! Server-sent events (the WHATWG stream grammar): where data is, and where an event ends.
//!
//! CR, LF and CRLF end a line, in any mixture; a byte order mark at the start, comments and other fields
//! are passed over. Nothing is copied: pieces borrow from the chunk, and all state between two chunks is
//! in three small fields, so any split gives the same pieces of data.

/// What comes next in a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// Bytes of the value of a `data` line.
    Data(&'a [u8]),
    /// A `data` line is over: a line feed in the event's data.
    DataLineEnd,
    /// An empty line: the event is over.
    EventEnd,
    /// The LF of a CRLF whose CR was the event's end.
    EventEndLf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Start,
    /// So many letters of `data` were read.
    Name(usize),
    ValueStart,
    Data,
    Other,
}

const FIELD: &[u8] = b"data";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The state of one stream.
#[derive(Clone, Debug)]
pub struct EventStream {
    /// Bytes of the byte order mark read; None once past it.
    mark: Option<usize>,
    line: Line,
    after_cr: bool,
    ended: bool,
}

impl Default for EventStream {
    fn default() -> Self {
        EventStream { mark: Some(0), line: Line::Start, after_cr: false, ended: false }
    }
}

impl EventStream {
    /// The next piece of `chunk` from `at` on, which moves behind it; None when the chunk is used up.
    pub fn next<'a>(&mut self, chunk: &'a [u8], at: &mut usize) -> Option<Piece<'a>> {
        loop {
            let byte = *chunk.get(*at)?;
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                *at += 1;
                match self.ended {
                    true => return Some(Piece::EventEndLf),
                    false => continue,
                }
            }
            if let Some(read) = self.mark {
                self.mark = (byte == BYTE_ORDER_MARK[read]).then_some(read + 1).filter(|read| *read < 3);
                if byte == BYTE_ORDER_MARK[read] {
                    *at += 1;
                    continue;
                }
                if read > 0 {
                    self.line = Line::Other; // a broken mark is the start of some other field
                }
            }
            let ends = matches!(byte, b'\r' | b'\n');
            match self.line {
                Line::Data | Line::Other if !ends => {
                    let rest = &chunk[*at..];
                    let length = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                    *at += length;
                    if self.line == Line::Data {
                        return Some(Piece::Data(&rest[..length]));
                    }
                }
                _ if ends => {
                    *at += 1;
                    self.after_cr = byte == b'\r';
                    let line = std::mem::replace(&mut self.line, Line::Start);
                    self.ended = line == Line::Start;
                    match line {
                        Line::Start => return Some(Piece::EventEnd),
                        Line::Data | Line::ValueStart => return Some(Piece::DataLineEnd),
                        Line::Name(_) | Line::Other => {}
                    }
                }
                // As almost all begin.
                Line::Start if chunk[*at..].starts_with(b"data: ") => {
                    self.line = Line::Data;
                    *at += b"data: ".len();
                }
                Line::Start if byte == FIELD[0] => {
                    self.line = Line::Name(1);
                    *at += 1;
                }
                Line::Name(read) if FIELD.get(read) == Some(&byte) => {
                    self.line = Line::Name(read + 1);
                    *at += 1;
                }
                Line::Name(4) if byte == b':' => {
                    self.line = Line::ValueStart;
                    *at += 1;
                }
                Line::ValueStart => {
                    self.line = Line::Data;
                    *at += usize::from(byte == b' ');
                }
                _ => self.line = Line::Other,
            }
        }
    }
}
