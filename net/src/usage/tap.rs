//! The tap: bytes of a response's body pass through it on their way to the client.
//!
//! Without withholding the bytes are only looked at, and the caller sends its own chunk. With withholding
//! (this gateway asked for `include_usage`, the client did not) whole events are collected, so that the
//! closing one can be dropped; an event that outgrows the bound passes at once and stays.
//!
//! Invariant: the bytes given out are the bytes taken in, in order, without the dropped events.

use super::report::Report;
use super::sse::{EventStream, Piece};
use super::unpack::Unpacker;
use super::watch;
use crate::bounds::MAX_WITHHELD_EVENT_BYTES;
use crate::endpoint::Dialect;
use crate::http1::{ResponseHead, Role};
use crate::json::capture::Capture;
use engine::Usage;

/// What a response's body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyKind {
    /// One JSON document.
    Json,
    /// Server-sent events with JSON data.
    EventStream,
    /// One JSON document a line.
    JsonLines,
    /// Audio, images, video: nothing of it is text.
    Media,
    /// Anything that cannot be read.
    Opaque,
}

impl BodyKind {
    /// The kind by `Content-Type`; without one, JSON is tried.
    pub fn of(content_type: Option<&[u8]>) -> BodyKind {
        let Some(value) = content_type.filter(|value| *value != b"application/json") else {
            return BodyKind::Json; // as almost every answer says that is no stream
        };
        let kind = value.split(|byte| *byte == b';').next().unwrap_or(value).trim_ascii();
        let is = |name: &str| kind.eq_ignore_ascii_case(name.as_bytes());
        if is("text/event-stream") {
            BodyKind::EventStream
        } else if [
            "application/x-ndjson",
            "application/ndjson",
            "application/jsonl",
            "application/x-jsonlines",
        ]
        .iter()
        .any(|name| is(name))
        {
            BodyKind::JsonLines
        } else if is("application/json") || kind.to_ascii_lowercase().ends_with(b"+json") || is("text/plain")
        {
            BodyKind::Json
        } else if [&b"audio/"[..], b"image/", b"video/"]
            .iter()
            .any(|of| kind.get(..of.len()).is_some_and(|start| start.eq_ignore_ascii_case(of)))
        {
            BodyKind::Media
        } else {
            BodyKind::Opaque
        }
    }
}

/// How a body is coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coding {
    /// As it is.
    Identity,
    /// gzip.
    Gzip,
    /// deflate: the zlib format, as RFC 9110 §8.4.1.2 has it.
    Deflate,
    /// br (RFC 7932).
    Brotli,
    /// zstd (RFC 8878, with the window of RFC 9659).
    Zstd,
    /// Something that is not read here.
    Other,
}

impl Coding {
    /// The coding by `Content-Encoding`.
    pub fn of(content_encoding: Option<&[u8]>) -> Coding {
        let Some(value) = content_encoding else { return Coding::Identity };
        let known = [
            ("", Coding::Identity),
            ("identity", Coding::Identity),
            ("gzip", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("deflate", Coding::Deflate),
            ("br", Coding::Brotli),
            ("zstd", Coding::Zstd),
        ];
        let value = value.trim_ascii();
        known
            .into_iter()
            .find(|(name, _)| value.eq_ignore_ascii_case(name.as_bytes()))
            .map_or(Coding::Other, |(_, coding)| coding)
    }

    /// The coding of a response: one that was coded twice is not read.
    pub fn of_response(head: &ResponseHead) -> Coding {
        let mut codings = head
            .values(Role::ContentEncoding)
            .map(|value| Coding::of(Some(value)))
            .filter(|coding| *coding != Coding::Identity);
        match (codings.next(), codings.next()) {
            (None, _) => Coding::Identity,
            (Some(coding), None) => coding,
            (Some(_), Some(_)) => Coding::Other,
        }
    }
}

/// What of an answer passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Bytes of generated text.
    pub text_bytes: u64,
    /// Images.
    pub images: u64,
}

/// What the caller sends to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Relay {
    /// The chunk itself.
    Chunk,
    /// What was appended to `out` instead; it may be nothing.
    Out,
}

/// A tap on one response's body.
#[derive(Debug)]
pub struct Tap {
    dialect: Dialect,
    kind: BodyKind,
    /// Set for a packed body.
    packed: Option<Box<Unpacker>>,
    withhold: bool,
    capture: Capture,
    report: Report,
    events: EventStream,
    /// Bytes of the current event, while it may still be dropped.
    held: Vec<u8>,
    /// The current event is too large to be held and passes.
    passing: bool,
    /// The last event was dropped, and so is the LF of its CRLF.
    dropped: bool,
    raw_bytes: u64,
}

impl Tap {
    /// A tap for a body of `kind`. `withhold`: drop the closing usage event of an event stream.
    pub fn new(dialect: Dialect, kind: BodyKind, withhold: bool) -> Tap {
        Tap {
            dialect,
            kind,
            packed: None,
            withhold: withhold && kind == BodyKind::EventStream,
            capture: Capture::new(watch::of(dialect)),
            report: Report::default(),
            events: EventStream::default(),
            held: Vec::new(),
            passing: false,
            dropped: false,
            raw_bytes: 0,
        }
    }

    /// A tap for a response by its head's `Content-Type` and `Content-Encoding`.
    pub fn of_response(dialect: Dialect, head: &ResponseHead, withhold: bool) -> Tap {
        let kind = BodyKind::of(head.first(Role::ContentType));
        Tap::of_coded(dialect, kind, Coding::of_response(head), withhold)
    }

    /// A tap for a body of `kind` in that coding. A packed body is relayed as it came, so nothing of it is withheld:
    /// the client sees the usage event that this gateway asked for. The gateway asks backends for `identity`, so only
    /// one that does not listen brings that about.
    pub fn of_coded(dialect: Dialect, kind: BodyKind, coding: Coding, withhold: bool) -> Tap {
        if coding == Coding::Identity {
            return Tap::new(dialect, kind, withhold);
        }
        match Unpacker::of(coding) {
            None => Tap::new(dialect, BodyKind::Opaque, false),
            Some(unpacker) => Tap { packed: Some(Box::new(unpacker)), ..Tap::new(dialect, kind, false) },
        }
    }

    /// Whether bytes may be withheld, so that the backend's `Content-Length` does not hold.
    pub fn withholds(&self) -> bool {
        self.withhold
    }

    /// Look at the next bytes of the body (without transfer coding).
    pub fn feed(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> Relay {
        let Some(mut packed) = self.packed.take() else { return self.look(chunk, out) };
        packed.feed(chunk, |piece| _ = self.look(piece, &mut Vec::new()));
        self.packed = Some(packed);
        Relay::Chunk
    }

    fn look(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> Relay {
        self.raw_bytes = self.raw_bytes.saturating_add(chunk.len() as u64);
        match self.kind {
            BodyKind::Opaque | BodyKind::Media => {}
            BodyKind::Json => self.capture.feed(chunk, &mut self.report),
            BodyKind::JsonLines => self.lines(chunk),
            BodyKind::EventStream => {
                self.events(chunk, out);
                if self.withhold {
                    return Relay::Out;
                }
            }
        }
        Relay::Chunk
    }

    fn lines(&mut self, chunk: &[u8]) {
        for line in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.capture.feed(line, &mut self.report);
            if line.ends_with(b"\n") {
                self.capture.restart();
                self.report.document_ends();
            }
        }
    }

    fn events(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        // From here on the chunk's bytes are neither given out nor held nor dropped.
        let (mut from, mut at) = (0, 0);
        while let Some(piece) = self.events.next(chunk, &mut at) {
            match piece {
                Piece::Data(data) => self.capture.feed(data, &mut self.report),
                Piece::DataLineEnd => self.capture.feed(b"\n", &mut self.report),
                Piece::EventEnd => {
                    let fits = !self.passing && self.held.len() + at - from <= MAX_WITHHELD_EVENT_BYTES;
                    self.dropped = self.withhold && fits && self.report.is_closing_event();
                    self.capture.restart();
                    self.report.document_ends();
                    self.passing = false;
                    self.give(&chunk[from..at], out);
                    from = at;
                }
                Piece::EventEndLf => {
                    self.give(&chunk[from..at], out);
                    from = at;
                }
            }
        }
        if !self.withhold {
            return;
        }
        if self.passing {
            out.extend_from_slice(&chunk[from..]);
        } else {
            self.held.extend_from_slice(&chunk[from..]);
            if self.held.len() > MAX_WITHHELD_EVENT_BYTES {
                out.append(&mut self.held);
                self.passing = true;
            }
        }
    }

    /// The end of an event: what was held and `rest` go out, or nowhere.
    fn give(&mut self, rest: &[u8], out: &mut Vec<u8>) {
        if !self.withhold {
            return;
        }
        if self.dropped {
            self.held.clear();
        } else {
            out.append(&mut self.held);
            out.extend_from_slice(rest);
        }
    }

    /// The body is over (or cut): append what was still held.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if !(self.withhold && self.report.is_closing_event()) {
            out.append(&mut self.held);
        }
        self.held.clear();
        self.report.document_ends();
    }

    /// The usage reported so far; None when nothing was.
    pub fn usage(&self) -> Option<Usage> {
        self.report.usage(self.dialect)
    }

    /// Whether a body that was cut here left what it had reported behind what it had written: Anthropic counts its output
    /// at the start and at the end, and Ollama's completions put zeros on every event but the last.
    pub fn is_behind(&self) -> bool {
        self.report.output_is_open()
    }

    /// Whether the body says that it failed, and holds nothing that was generated.
    pub fn failed(&self) -> bool {
        self.report.error && self.report.text_bytes == 0 && self.report.images == 0
    }

    /// What passed, as far as it can be seen, for an estimate when nothing was reported.
    pub fn seen(&self) -> Seen {
        Seen { text_bytes: self.relayed_text_bytes(), images: self.report.images }
    }

    /// Bytes of generated text that passed.
    ///
    /// When no member with text was recognised, all bytes of the body, but none for vectors and media. What could not be unpacked
    /// counts as it came.
    fn relayed_text_bytes(&self) -> u64 {
        if self.kind == BodyKind::Media {
            return 0;
        }
        let unread = self.packed.as_ref().map_or(0, |packed| packed.unread());
        let read = match self.report.text_bytes {
            0 if !self.report.vectors => self.raw_bytes,
            text => text,
        };
        read.saturating_add(unread)
    }
}
