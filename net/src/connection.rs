//! One client connection: its bytes in, its answers out, and how it ends.

use std::time::Instant;

use crate::bounds::{BODY_BOUND, DRAIN_BODY, KEPT_BUFFER, LINGER_BYTES, LINGER_TIME, READ_ROOM};
use crate::core::Core;
use crate::http1::{
    BodyFraming, ChunkStep, ChunkedDecoder, HeadBounds, HeadError, HeadProgress, HeadSearch, RequestHead,
    ResponseHead,
};
use crate::identity::Proof;
use crate::rt::{self, Stream};
use crate::snapshot::HttpBounds;

/// What a connection does after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// It waits for the next request.
    Keep,
    /// It is closed.
    Close,
    /// It is closed without announcing the end, since the answer broke off: over TLS the client can tell.
    BreakOff,
    /// It is closed once the client has had the chance to read the answer: part of its request is still unread.
    Linger,
}

/// How reading a head ended.
#[derive(Debug)]
#[must_use]
pub enum HeadRead {
    /// [`Client::head`] holds it.
    Head,
    /// It is no head; the connection closes after the answer.
    Bad(HeadError),
    /// The client closed, or the process is stopping: nothing is to be said.
    Over,
    /// It did not come in time; 408.
    Late,
}

/// How reading a body ended.
#[derive(Debug)]
#[must_use]
pub enum BodyRead {
    /// All of it.
    Body(Vec<u8>),
    /// Larger than `http.max_body`.
    TooLarge,
    /// Its chunked framing is broken, for this reason.
    Bad(&'static str),
    /// The client closed or reset, or stalled beyond `http.between_bytes_timeout`.
    Gone,
}

/// A client's connection.
pub struct Client {
    /// The socket.
    pub stream: Stream,
    /// The head of the request under way.
    pub head: RequestHead,
    /// The head of the backend's answer to it.
    pub answer: ResponseHead,
    /// The answer under way; empty between two of them.
    pub out: Vec<u8>,
    /// What the credential of the last request proved.
    pub proof: Proof,
    input: Vec<u8>,
    search: HeadSearch,
}

impl Client {
    /// A connection that has just been accepted.
    pub fn new(stream: Stream) -> Client {
        Client {
            stream,
            head: RequestHead::default(),
            answer: ResponseHead::default(),
            out: Vec::new(),
            proof: Proof::default(),
            input: Vec::new(),
            search: HeadSearch::default(),
        }
    }

    /// Reads until [`Client::head`] holds the next request's head.
    pub async fn read_head(&mut self, core: &Core, http: &HttpBounds) -> HeadRead {
        let bounds = HeadBounds { max_bytes: http.max_head };
        let mut began: Option<Instant> = None;
        loop {
            if !self.input.is_empty() {
                match self.head.parse(&self.input, &bounds, &mut self.search) {
                    HeadProgress::Complete { consumed, .. } => {
                        self.input.drain(..consumed);
                        return HeadRead::Head;
                    }
                    HeadProgress::Bad(error) => return HeadRead::Bad(error),
                    HeadProgress::Partial => {}
                }
                let began = *began.get_or_insert_with(Instant::now);
                let left = http.header_timeout.saturating_sub(began.elapsed());
                match rt::within(left, self.read_more(READ_ROOM)).await {
                    Ok(Ok(count)) if count > 0 => {}
                    Ok(_) => return HeadRead::Over,
                    Err(_) => return HeadRead::Late,
                }
                continue;
            }
            if core.is_draining() {
                return HeadRead::Over;
            }
            let idle = core.mark_idle(self.stream.descriptor());
            let read = rt::within(http.idle_timeout, self.read_more(READ_ROOM)).await;
            drop(idle);
            match read {
                Ok(Ok(count)) if count > 0 => {}
                _ => return HeadRead::Over,
            }
        }
    }

    /// Reads the body of the request whose head was read last.
    pub async fn read_body(&mut self, http: &HttpBounds) -> BodyRead {
        match self.head.body() {
            BodyFraming::None => BodyRead::Body(Vec::new()),
            BodyFraming::Length(length) if length > http.max_body => BodyRead::TooLarge,
            BodyFraming::Length(length) => self.read_sized(length as usize, http).await,
            BodyFraming::Chunked => self.read_chunked(http).await,
        }
    }

    async fn read_sized(&mut self, length: usize, http: &HttpBounds) -> BodyRead {
        let mut until = None;
        while self.input.len() < length {
            let until = *until.get_or_insert_with(|| Instant::now() + BODY_BOUND);
            let (held, missing) = (self.input.len(), length - self.input.len());
            let room = missing.min(64 * READ_ROOM);
            if self.input.capacity() - held < room {
                // As a vector grows, but never beyond the body.
                self.input.reserve_exact(missing.min(held.max(room)));
            }
            if !self.body_piece(room, until, http).await {
                return BodyRead::Gone;
            }
        }
        let rest = self.input.split_off(length);
        BodyRead::Body(std::mem::replace(&mut self.input, rest))
    }

    async fn read_chunked(&mut self, http: &HttpBounds) -> BodyRead {
        let mut decoder = ChunkedDecoder::default();
        let mut body = Vec::new();
        let until = Instant::now() + BODY_BOUND;
        loop {
            let mut used = 0;
            loop {
                let rest = &self.input[used..];
                let (count, step) = decoder.step(rest);
                if let ChunkStep::Data(range) = &step {
                    body.extend_from_slice(&rest[range.clone()]);
                }
                used += count;
                match step {
                    ChunkStep::Data(_) if body.len() as u64 > http.max_body => return BodyRead::TooLarge,
                    ChunkStep::Data(_) => {}
                    ChunkStep::Bad(reason) => return BodyRead::Bad(reason),
                    ChunkStep::Done => {
                        self.input.drain(..used);
                        return BodyRead::Body(body);
                    }
                    ChunkStep::NeedMore => break,
                }
            }
            self.input.clear();
            if !self.body_piece(READ_ROOM, until, http).await {
                return BodyRead::Gone;
            }
        }
    }

    /// One more piece of a body; false when the client is gone or has stalled, or has sent a byte now and then for
    /// [`BODY_BOUND`].
    async fn body_piece(&mut self, room: usize, until: Instant, http: &HttpBounds) -> bool {
        let patience = http.between_bytes_timeout.min(until.saturating_duration_since(Instant::now()));
        matches!(rt::within(patience, self.read_more(room)).await, Ok(Ok(count)) if count > 0)
    }

    async fn read_more(&mut self, room: usize) -> std::io::Result<usize> {
        let input = std::mem::take(&mut self.input);
        let (result, input) = self.stream.read(input, room).await;
        self.input = input;
        result
    }

    /// Whether part of the request's body has already arrived.
    pub fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Writes [`Client::out`] and empties it; false when the client is gone or does not read.
    pub async fn send(&mut self, http: &HttpBounds) -> bool {
        let out = std::mem::take(&mut self.out);
        if out.is_empty() {
            self.out = out;
            return true;
        }
        let Ok((result, mut out)) = rt::within(http.between_bytes_timeout, self.stream.write_all(out)).await
        else {
            return false;
        };
        out.clear();
        self.out = out;
        result.is_ok()
    }

    /// Whether the connection can be kept although the body of the request will not be looked at: it is short, and
    /// nothing keeps the client from sending it.
    pub fn can_skip_body(&self) -> bool {
        match self.head.body() {
            BodyFraming::None => true,
            BodyFraming::Length(length) => length <= DRAIN_BODY && !self.head.expects_continue(),
            BodyFraming::Chunked => false,
        }
    }

    /// Reads and drops the body of a request that was answered without it.
    pub async fn skip_body(&mut self, http: &HttpBounds) -> Next {
        let BodyFraming::Length(length) = self.head.body() else {
            return Next::Keep;
        };
        let length = length as usize;
        if length <= self.input.len() {
            self.input.drain(..length);
            return Next::Keep;
        }
        match self.read_sized(length, http).await {
            BodyRead::Body(body) => {
                self.reuse(body);
                Next::Keep
            }
            _ => Next::Close,
        }
    }

    /// Closes the connection so that the client can read what was written: sends the end, then reads and drops
    /// what is still coming, within bounds.
    pub async fn linger(&mut self) {
        let _ = rt::within(LINGER_TIME, self.stream.finish()).await;
        let until = Instant::now() + LINGER_TIME;
        let mut dropped = self.input.len() as u64;
        while dropped < LINGER_BYTES {
            self.input.clear();
            let left = until.saturating_duration_since(Instant::now());
            match rt::within(left, self.read_more(READ_ROOM)).await {
                Ok(Ok(count)) if count > 0 => dropped += count as u64,
                _ => return,
            }
        }
    }

    /// Takes a body's buffer back for the next request.
    pub fn reuse(&mut self, mut buffer: Vec<u8>) {
        if self.input.is_empty()
            && buffer.capacity() > self.input.capacity()
            && buffer.capacity() <= KEPT_BUFFER
        {
            buffer.clear();
            self.input = buffer;
        }
        if self.out.capacity() > KEPT_BUFFER {
            self.out = Vec::new();
        }
    }
}
