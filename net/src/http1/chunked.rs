//! The chunked transfer coding, decoded byte by byte where it must be and in whole slices where it can be.
//!
//! The decoder keeps no bytes: it says which part of the caller's buffer is data, so a body is copied at
//! most once, by the caller. Any split of the input gives the same data and the same end, because all
//! state between two bytes is in `state` and three counters.
//!
//! Strict where RFC 9112 §7.1 leaves room: one to sixteen hexadecimal digits, CRLF only, no blanks around
//! a size. Extensions and trailers are read, bounded and dropped.

use crate::bounds::{MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES};
use std::ops::Range;

/// What the decoder made of the next bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum ChunkStep {
    /// These bytes of the input are data.
    Data(Range<usize>),
    /// The input is used up and the body goes on.
    NeedMore,
    /// The body is over; what follows belongs to the next message.
    Done,
    /// The framing is broken; the connection cannot be used any more.
    Bad(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Size { digits: u8 },
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    Done,
    Bad(&'static str),
}

/// A decoder for one body.
#[derive(Clone, Debug)]
pub struct ChunkedDecoder {
    state: State,
    /// Bytes of the current chunk that are still to come.
    left: u64,
    line_bytes: usize,
    trailer_bytes: usize,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        ChunkedDecoder { state: State::Size { digits: 0 }, left: 0, line_bytes: 0, trailer_bytes: 0 }
    }
}

impl ChunkedDecoder {
    /// Look at `input` and say what comes first in it, and how many bytes of it are now used.
    ///
    /// Call again with the rest until `NeedMore`, `Done` or `Bad`. `Data` is never empty.
    pub fn step(&mut self, input: &[u8]) -> (usize, ChunkStep) {
        let mut at = 0;
        loop {
            match self.state {
                State::Done => return (at, ChunkStep::Done),
                State::Bad(reason) => return (at, ChunkStep::Bad(reason)),
                State::Data if at < input.len() => {
                    let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len() - at);
                    self.left -= take as u64;
                    if self.left == 0 {
                        self.state = State::DataCr;
                    }
                    return (at + take, ChunkStep::Data(at..at + take));
                }
                _ => {}
            }
            let Some(byte) = input.get(at) else { return (at, ChunkStep::NeedMore) };
            at += 1;
            self.state = self.next(*byte);
        }
    }

    /// Whether the whole body was read.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    fn next(&mut self, byte: u8) -> State {
        match (self.state, byte) {
            (State::Size { digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == 16 {
                    return State::Bad("a chunk size has more than sixteen digits");
                }
                self.left = self.left << 4 | u64::from(char::from(byte).to_digit(16).unwrap_or(0));
                State::Size { digits: digits + 1 }
            }
            (State::Size { digits: 0 }, _) => State::Bad("a chunk size is missing"),
            (State::Size { .. }, b'\r') => State::SizeLf,
            (State::Size { .. }, b';') => State::Extension,
            (State::Size { .. }, _) => State::Bad("a chunk size is not hexadecimal"),
            (State::Extension, b'\r') => State::SizeLf,
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => {
                self.line_bytes += 1;
                match self.line_bytes > MAX_CHUNK_LINE_BYTES {
                    true => State::Bad("a chunk's extensions are too long"),
                    false => State::Extension,
                }
            }
            (State::Extension, _) => State::Bad("a chunk extension has a control character"),
            (State::SizeLf, b'\n') => {
                self.line_bytes = 0;
                if self.left == 0 { State::TrailerStart } else { State::Data }
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { digits: 0 },
            (State::DataCr | State::DataLf, _) => State::Bad("chunk data is not followed by CRLF"),
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::EndLf, b'\n') => State::Done,
            (State::Trailer, b'\r') => State::TrailerLf,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::TrailerStart | State::Trailer, b'\t' | b' '..=b'~' | 0x80..) => {
                self.trailer_bytes += 1;
                match self.trailer_bytes > MAX_TRAILER_BYTES {
                    true => State::Bad("the trailers are too long"),
                    false => State::Trailer,
                }
            }
            (State::TrailerStart | State::Trailer, _) => State::Bad("a trailer has a control character"),
            (State::SizeLf | State::TrailerLf | State::EndLf, _) => State::Bad("a CR is not followed by LF"),
            (State::Data | State::Done | State::Bad(_), _) => self.state,
        }
    }
}

/// What ends a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Append the line in front of a chunk of `bytes` bytes (not 0); CRLF follows the data.
pub fn write_chunk_size(out: &mut Vec<u8>, bytes: usize) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - bytes.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|digit| HEX[bytes >> (4 * digit) & 15]));
    out.extend_from_slice(b"\r\n");
}
