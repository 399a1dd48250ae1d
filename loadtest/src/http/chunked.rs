//! The chunked transfer coding, decoded as the bytes come. Any split of the input gives the same result.

use crate::bounds;

/// A body that is not chunked as it says, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadChunk(pub &'static str);

/// What one feed came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// All bytes are taken; the body goes on.
    More,
    /// The body ended; so many bytes were its own.
    Done(usize),
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// In the digits of a chunk size; how many there were.
    Size { digits: u8 },
    /// Behind the size, up to the end of the line.
    Extension,
    /// In the data of a chunk.
    Data,
    /// The line end behind the data.
    AfterData { return_seen: bool },
    /// In the trailer; whether the line so far is empty.
    Trailer { empty: bool },
    /// Behind the last line end.
    Done,
}

/// The decoder of one body.
///
/// Invariant: `line` and `trailer` never pass their bounds; `left` is the rest of the chunk in `Data`, the size so far in `Size`.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    left: u64,
    line: usize,
    trailer: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new()
    }
}

impl Decoder {
    /// At the start of a body.
    pub fn new() -> Decoder {
        Decoder { state: State::Size { digits: 0 }, left: 0, line: 0, trailer: 0 }
    }

    /// Takes the next bytes; each piece of data goes to `data`.
    ///
    /// # Errors
    /// The bytes are no chunked body, or a line of it passes its bound.
    pub fn feed(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Result<Fed, BadChunk> {
        let mut at = 0;
        while at < bytes.len() {
            if let State::Data = self.state {
                let there = (bytes.len() - at) as u64;
                let taken = self.left.min(there) as usize;
                data(&bytes[at..at + taken]);
                at += taken;
                self.left -= taken as u64;
                if self.left == 0 {
                    self.state = State::AfterData { return_seen: false };
                }
                continue;
            }
            self.step(bytes[at])?;
            at += 1;
            if let State::Done = self.state {
                return Ok(Fed::Done(at));
            }
        }
        Ok(Fed::More)
    }

    fn step(&mut self, byte: u8) -> Result<(), BadChunk> {
        self.state = match (self.state, byte) {
            (State::Size { digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == 15 {
                    return Err(BadChunk("a chunk size has too many digits"));
                }
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.left = self.left * 16 + u64::from(digit);
                State::Size { digits: digits + 1 }
            }
            (State::Size { digits: 0 }, _) => return Err(BadChunk("a chunk has no size")),
            (State::Size { .. } | State::Extension, b'\n') => {
                self.line = 0;
                if self.left == 0 { State::Trailer { empty: true } } else { State::Data }
            }
            (State::Size { .. }, b'\r' | b';' | b' ' | b'\t') | (State::Extension, _) => {
                self.line += 1;
                if self.line > bounds::MAX_CHUNK_LINE {
                    return Err(BadChunk("a chunk's size line is too long"));
                }
                State::Extension
            }
            (State::Size { .. }, _) => return Err(BadChunk("a chunk size is no number")),
            (State::AfterData { return_seen: false }, b'\r') => State::AfterData { return_seen: true },
            (State::AfterData { .. }, b'\n') => State::Size { digits: 0 },
            (State::AfterData { .. }, _) => {
                return Err(BadChunk("a chunk is longer than its size"));
            }
            (State::Trailer { empty: true }, b'\n') => State::Done,
            (State::Trailer { .. }, b'\n') => State::Trailer { empty: true },
            (State::Trailer { empty: true }, b'\r') => State::Trailer { empty: true },
            (State::Trailer { .. }, _) => {
                self.trailer += 1;
                if self.trailer > bounds::MAX_TRAILER {
                    return Err(BadChunk("the trailer is too long"));
                }
                State::Trailer { empty: false }
            }
            (State::Data | State::Done, _) => return Err(BadChunk("bytes behind the body")),
        };
        Ok(())
    }
}

/// Appends `data` as one chunk; nothing for no data, which would end the body.
pub fn write_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let mut digits = [0u8; 16];
    let mut start = digits.len();
    let mut rest = data.len();
    while rest > 0 {
        start -= 1;
        digits[start] = b"0123456789abcdef"[rest % 16];
        rest /= 16;
    }
    out.extend_from_slice(&digits[start..]);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// The chunk that ends a body, without a trailer.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, Fed), BadChunk> {
        let (mut decoder, mut out, mut last) = (Decoder::new(), Vec::new(), Fed::More);
        for piece in pieces {
            last = decoder.feed(piece, |data| out.extend_from_slice(data))?;
        }
        Ok((out, last))
    }

    #[test]
    fn every_split_gives_the_same_body() {
        let mut body = Vec::new();
        write_chunk(&mut body, b"hello ");
        write_chunk(&mut body, &[b'x'; 300]);
        body.extend_from_slice(b"3;name=value\r\nabc\r\n0\r\nTrailer: yes\r\n\r\n");
        let whole = decode(&[&body]).unwrap();
        assert_eq!(whole.1, Fed::Done(body.len()));
        for cut in 1..body.len() {
            let (text, fed) = decode(&[&body[..cut], &body[cut..]]).unwrap();
            assert_eq!(text, whole.0, "cut at {cut}");
            assert_eq!(fed, Fed::Done(body.len() - cut));
        }
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(decode(&bytes).unwrap().0, whole.0);
    }

    #[test]
    fn what_follows_the_body_is_left() {
        let fed = decode(&[b"0\r\n\r\nHTTP/1.1"]).unwrap().1;
        assert_eq!(fed, Fed::Done(5));
    }

    #[test]
    fn nonsense_is_refused() {
        let long = format!("1;{}", "x".repeat(1000));
        for body in ["x\r\n", "\r\n", "2\r\nabc\r\n", "1234567890123456\r\n", &long, "1g\r\n"] {
            assert!(decode(&[body.as_bytes()]).is_err(), "{body}");
        }
    }
}
