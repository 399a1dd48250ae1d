//! The answer's way back: from the backend's connection to the client's, counted on the way.
//!
//! Bytes pass as they come: what one read brought is written before the next one, so that an event never waits for
//! its successor. The one exception is a short body of known length, which goes out with its head in one write.
//!
//! The charge is closed when the last byte has come from the backend, just *before* the last write to the client:
//! a client that has read the whole answer finds its slot free and its usage settled.

use std::time::{Duration, Instant};

use engine::Now;

use crate::bounds::{CLIENT_WATCH_TICK, EXCHANGE_BOUND, ONE_WRITE, READ_ROOM};
use crate::charge::{Charge, Ending};
use crate::connection::Client;
use crate::core::Core;
use crate::http1::write::ClientFraming;
use crate::http1::{ChunkStep, ChunkedDecoder, ResponseBody};
use crate::rt::{Waited, Watch, watched};
use crate::snapshot::HttpBounds;
use crate::upstream::Connection;
use crate::usage::{self, Tap};

/// How a relay ended. The charge is closed in each case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Relayed {
    /// The whole answer was written.
    Complete {
        /// Whether the backend's connection can carry another request.
        reusable: bool,
    },
    /// The client left; the backend's connection must be closed, which stops its generation.
    ClientGone,
    /// The backend broke off, stalled, or broke its framing, after part of the answer was written.
    BrokenOff,
    /// The same, but the client has not been sent a byte yet: it can be told.
    BrokenBeforeAnything(&'static str),
}

/// One answer under way. [`Client::out`] already holds its head.
pub struct Relay<'a> {
    /// Where it goes.
    pub client: &'a mut Client,
    /// Where it comes from.
    pub upstream: &'a mut Connection,
    /// Reads usage on the way.
    pub tap: Tap,
    /// How the client's copy is framed.
    pub framing: ClientFraming,
    /// What is owed.
    pub charge: &'a mut Charge,
    /// Whether the status was a success.
    pub success: bool,
    /// Times.
    pub http: HttpBounds,
    /// What a tap that withholds lets pass. Empty at the start.
    pub passed: Vec<u8>,
    /// Where it is relayed.
    pub core: &'a Core,
    /// The present, for as long as nothing has been waited for since.
    pub fresh: Option<Now>,
}

/// What one pass over the bytes at hand found.
enum Pass {
    More,
    Done,
    Bad(&'static str),
}

/// Of a relay that waits for its backend.
struct Times {
    /// When the exchange must be over.
    end: Instant,
    /// When the client was last looked after.
    looked: Instant,
}

impl Times {
    fn begin() -> Times {
        let now = Instant::now();
        Times { end: now + EXCHANGE_BOUND, looked: now }
    }
}

enum Decoder {
    Empty,
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

impl Decoder {
    fn step(&mut self, input: &[u8]) -> (usize, ChunkStep) {
        match self {
            Decoder::Empty | Decoder::Length(0) => (0, ChunkStep::Done),
            Decoder::Length(_) | Decoder::UntilClose if input.is_empty() => (0, ChunkStep::NeedMore),
            Decoder::Length(left) => {
                let take = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= take as u64;
                (take, ChunkStep::Data(0..take))
            }
            Decoder::UntilClose => (input.len(), ChunkStep::Data(0..input.len())),
            Decoder::Chunked(decoder) => decoder.step(input),
        }
    }
}

impl Relay<'_> {
    /// Relays the body to its end, whichever it is.
    pub async fn run(&mut self, body: ResponseBody) -> Relayed {
        let mut decoder = match body {
            ResponseBody::None => Decoder::Empty,
            ResponseBody::Length(length) => Decoder::Length(length),
            ResponseBody::Chunked => Decoder::Chunked(ChunkedDecoder::default()),
            ResponseBody::UntilClose => Decoder::UntilClose,
        };
        let in_one_write = matches!(body, ResponseBody::Length(length) if length <= ONE_WRITE as u64);
        // Begins with the first wait: most answers come whole with their head.
        let mut times: Option<Times> = None;
        let mut nothing_sent = true;
        loop {
            match self.pass(&mut decoder) {
                Pass::Done => return self.complete(body).await,
                Pass::Bad(reason) => return self.broken(nothing_sent, reason),
                Pass::More if in_one_write => {}
                Pass::More => {
                    nothing_sent &= self.client.out.is_empty();
                    self.fresh = None;
                    if !self.client.send(&self.http).await {
                        return self.client_gone();
                    }
                }
            }
            self.fresh = None;
            let times = times.get_or_insert_with(Times::begin);
            if times.looked.elapsed() >= CLIENT_WATCH_TICK {
                times.looked = Instant::now();
                if self.client.stream.peer_closed() {
                    return self.client_gone();
                }
                if times.looked >= times.end {
                    return self.broken(nothing_sent, "the answer took longer than any exchange may");
                }
            }
            let watch = Watch { bound: self.http.between_bytes_timeout.max(Duration::from_millis(1)) };
            match watched(self.upstream.read(READ_ROOM), &mut self.client.stream, watch).await {
                Waited::Ready(Ok(count)) if count > 0 => {}
                Waited::Ready(Ok(_)) if matches!(body, ResponseBody::UntilClose) => {
                    return self.complete(body).await;
                }
                Waited::Ready(_) => return self.broken(nothing_sent, "the backend closed inside its answer"),
                Waited::TimedOut => {
                    return self.broken(nothing_sent, "the backend stalled inside its answer");
                }
                Waited::ClientGone => return self.client_gone(),
            }
        }
    }

    /// Decodes, taps and frames everything that has been read.
    fn pass(&mut self, decoder: &mut Decoder) -> Pass {
        let mut used = 0;
        let outcome = loop {
            let rest = &self.upstream.buffer[used..];
            let (count, step) = decoder.step(rest);
            if let ChunkStep::Data(range) = &step {
                let data = &rest[range.clone()];
                self.passed.clear();
                match self.tap.feed(data, &mut self.passed) {
                    usage::Relay::Chunk => frame(self.framing, data, &mut self.client.out),
                    usage::Relay::Out => frame(self.framing, &self.passed, &mut self.client.out),
                }
            }
            used += count;
            match step {
                ChunkStep::Data(_) => {}
                ChunkStep::NeedMore => break Pass::More,
                ChunkStep::Done => break Pass::Done,
                ChunkStep::Bad(reason) => break Pass::Bad(reason),
            }
        };
        if used == self.upstream.buffer.len() {
            self.upstream.buffer.clear();
        } else {
            self.upstream.buffer.drain(..used);
        }
        outcome
    }

    async fn complete(&mut self, body: ResponseBody) -> Relayed {
        self.passed.clear();
        self.tap.finish(&mut self.passed);
        frame(self.framing, &self.passed, &mut self.client.out);
        if self.framing == ClientFraming::Chunked {
            self.client.out.extend_from_slice(b"0\r\n\r\n");
        }
        let reusable = self.upstream.buffer.is_empty() && !matches!(body, ResponseBody::UntilClose);
        let ending = self.ending(true);
        self.charge.end(ending, self.now());
        self.upstream.place = None;
        match self.client.send(&self.http).await {
            true => Relayed::Complete { reusable },
            false => Relayed::ClientGone,
        }
    }

    fn client_gone(&mut self) -> Relayed {
        self.close();
        Relayed::ClientGone
    }

    fn broken(&mut self, nothing_sent: bool, reason: &'static str) -> Relayed {
        self.close();
        match nothing_sent {
            true => {
                self.client.out.clear();
                Relayed::BrokenBeforeAnything(reason)
            }
            false => Relayed::BrokenOff,
        }
    }

    /// Ends the charge of an answer that did not end as it should. What the tap withheld is not sent any more, but
    /// counts as seen.
    fn close(&mut self) {
        self.tap.finish(&mut self.passed);
        let ending = self.ending(false);
        self.charge.end(ending, self.now());
    }

    fn now(&self) -> Now {
        self.fresh.unwrap_or_else(|| self.core.now())
    }

    /// `whole`: the body came to its end, so that what it reported is its last word.
    fn ending(&self, whole: bool) -> Ending {
        match self.tap.usage() {
            Some(usage) if !whole && self.tap.is_behind() => Ending::Behind(usage, self.tap.seen()),
            Some(usage) => Ending::Reported(usage),
            None if self.success && !self.tap.failed() => Ending::Unreported(self.tap.seen()),
            None => Ending::BackendError,
        }
    }
}

/// Appends `data`, as one chunk where the framing wants chunks; an empty chunk would end the body.
fn frame(framing: ClientFraming, data: &[u8], out: &mut Vec<u8>) {
    if framing != ClientFraming::Chunked {
        out.extend_from_slice(data);
    } else if !data.is_empty() {
        write_hexadecimal(out, data.len());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }
}

fn write_hexadecimal(out: &mut Vec<u8>, number: usize) {
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[number >> (4 * place) & 15]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_carry_their_size_in_hexadecimal() {
        for (size, line) in [(1, "1"), (15, "f"), (16, "10"), (255, "ff"), (4096, "1000"), (70_000, "11170")]
        {
            let mut out = Vec::new();
            let data = vec![b'x'; size];
            frame(ClientFraming::Chunked, &data, &mut out);
            let wanted = [format!("{line}\r\n").as_bytes(), &data, b"\r\n"].concat();
            assert_eq!(out, wanted, "{size}");
        }
        for framing in [ClientFraming::Chunked, ClientFraming::UntilClose] {
            let mut out = Vec::new();
            frame(framing, b"", &mut out);
            assert_eq!(out, b"", "an empty piece ends no body");
        }
    }
}
