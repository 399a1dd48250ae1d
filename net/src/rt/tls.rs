//! TLS on a connection: rustls is the protocol, this is its way to and from the socket.
//!
//! rustls does no input or output, so the buffers that the kernel reads into and writes from stay owned, as the
//! runtime wants them. Rejected: `monoio-rustls`, which copies through buffers of its own, corrupts the session when
//! a read is dropped, and hides what is needed here: whether bytes of a record that waits are the application's, and
//! whether any byte of a write has left.
//!
//! Invariants:
//!
//! * after [`Session::read`] no plaintext waits inside, unless the client was looked after meanwhile
//!   ([`Session::look`]);
//! * what waits to be sent goes out before, or together with, what is written next, and before any wait for bytes;
//! * a read that was dropped half-way leaves the session torn, and nothing is read or written any more; a write that was
//!   dropped or failed leaves it mute, and nothing is written any more;
//! * the end is [`End::Closed`] only after the peer's `close_notify`. A bare end of the connection is an error, so that
//!   a body that ends with its connection cannot be cut short unnoticed.

mod carrier;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, BufRead, ErrorKind, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use carrier::{Carrier, Returned};

use crate::bounds::{TLS_BUFFER, TLS_LOOKS, TLS_READ, TLS_READ_MOST};

/// Why a connection did not become a TLS one.
#[derive(Debug)]
pub enum NoTls {
    /// The peers do not agree, or one does not believe the other's certificate.
    Refused(rustls::Error),
    /// The connection ended or broke first.
    Broken(ErrorKind),
    /// What the client sent begins no TLS record: these bytes.
    Plain(Vec<u8>),
}

/// How the peer's bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// With its `close_notify`: everything has come.
    Closed,
    /// Otherwise.
    Broken(ErrorKind),
}

/// One TLS session on one connection.
pub(super) struct Session {
    connection: Connection,
    /// Ciphertext as it came, of which `fed` bytes are taken.
    incoming: Vec<u8>,
    fed: usize,
    /// Ciphertext that is about to go.
    outgoing: Vec<u8>,
    /// Bytes of plaintext that nobody has taken yet.
    waiting: usize,
    end: Option<End>,
    fault: Option<rustls::Error>,
    /// A read is under way, or was dropped half-way.
    torn: bool,
    /// A write is under way, was dropped half-way, or has failed: half a record may be out.
    mute: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session").field("end", &self.end).finish_non_exhaustive()
    }
}

impl Session {
    /// The client's side.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Session, NoTls> {
        ClientConnection::new(config, name)
            .map(|connection| Session::new(connection.into()))
            .map_err(NoTls::Refused)
    }

    /// The server's side.
    pub fn server(config: Arc<ServerConfig>) -> Result<Session, NoTls> {
        ServerConnection::new(config)
            .map(|connection| Session::new(connection.into()))
            .map_err(NoTls::Refused)
    }

    fn new(mut connection: Connection) -> Session {
        connection.set_buffer_limit(Some(TLS_BUFFER));
        Session {
            connection,
            incoming: Vec::new(),
            fed: 0,
            outgoing: Vec::new(),
            waiting: 0,
            end: None,
            fault: None,
            torn: false,
            mute: false,
        }
    }

    /// Shakes hands. What is left to be sent then goes with what is written first.
    ///
    /// # Errors
    /// [`NoTls`]; the peer has been sent the alert that belongs to it.
    pub async fn handshake(&mut self, io: &mut impl Carrier) -> Result<(), NoTls> {
        let mut begun = matches!(self.connection, Connection::Client(_));
        loop {
            let flushed = self.flush(io).await;
            if let Some(fault) = self.fault.take() {
                return Err(NoTls::Refused(fault));
            }
            flushed.map_err(|error| NoTls::Broken(error.kind()))?;
            if !self.connection.is_handshaking() {
                return Ok(());
            }
            if self.end.is_some() {
                return Err(NoTls::Broken(ErrorKind::UnexpectedEof));
            }
            self.receive(io, 0).await.map_err(|error| NoTls::Broken(error.kind()))?;
            if !begun && self.incoming.first().is_some_and(|kind| *kind != HANDSHAKE_RECORD) {
                return Err(NoTls::Plain(std::mem::take(&mut self.incoming)));
            }
            begun = true;
            self.digest();
            // Nothing of a handshake is left over but what its protocol has no room for.
            if self.fed < self.incoming.len() && self.connection.is_handshaking() {
                return Err(NoTls::Broken(ErrorKind::InvalidData));
            }
        }
    }

    /// As [`super::Stream::read`].
    pub async fn read(&mut self, io: &mut impl Carrier, mut buffer: Vec<u8>, room: usize) -> Returned {
        let before = buffer.len();
        loop {
            self.drain(&mut buffer);
            if buffer.len() > before {
                return (Ok(buffer.len() - before), buffer);
            }
            match self.end {
                Some(End::Closed) => return (Ok(0), buffer),
                Some(End::Broken(kind)) => return (Err(kind.into()), buffer),
                None => {}
            }
            // What cannot be sent any more does not keep from reading what has come.
            let _ = self.flush(io).await;
            if let Err(error) = self.receive(io, room).await {
                return (Err(error), buffer);
            }
        }
    }

    /// As [`super::Stream::write_rest`].
    pub async fn write_rest(&mut self, io: &mut impl Carrier, buffer: Vec<u8>, from: usize) -> Returned {
        let mut at = from;
        while at < buffer.len() {
            let taken = match self.encrypt(&buffer[at..]) {
                Ok(taken) => taken,
                Err(error) => return (Err(error), buffer),
            };
            at += taken;
            if let Err(error) = self.flush(io).await {
                return (Err(error), buffer);
            }
        }
        (Ok(at - from), buffer)
    }

    /// As [`super::Stream::write_once`]: an error means that the kernel took no byte. When it took some and the rest cannot
    /// follow, 0 is the answer, and every later write fails.
    pub async fn write_once(&mut self, io: &mut impl Carrier, buffer: Vec<u8>) -> Returned {
        let taken = match self.encrypt(&buffer) {
            Ok(taken) => taken,
            Err(error) => return (Err(error), buffer),
        };
        self.collect();
        self.mute = true;
        let outgoing = std::mem::take(&mut self.outgoing);
        let (first, mut outgoing) = io.write_some(outgoing, 0).await;
        let first = match first {
            Ok(0) => return (Err(ErrorKind::WriteZero.into()), buffer),
            Ok(count) => count,
            Err(error) => return (Err(error), buffer),
        };
        if first < outgoing.len() {
            let rest;
            (rest, outgoing) = io.write_from(outgoing, first).await;
            if rest.is_err() {
                return (Ok(0), buffer);
            }
        }
        outgoing.clear();
        self.outgoing = outgoing;
        self.mute = false;
        (Ok(taken), buffer)
    }

    /// Tells the peer that nothing more will come.
    pub async fn close(&mut self, io: &mut impl Carrier) {
        self.connection.send_close_notify();
        let _ = self.flush(io).await;
    }

    /// Takes in what has come, without waiting: an end of the session is seen, and records that are the session's own
    /// (tickets, key updates) are consumed. Plaintext waits.
    pub fn look(&mut self, io: &mut impl Carrier) {
        for _ in 0..TLS_LOOKS {
            self.digest();
            let full = self.fed < self.incoming.len();
            if self.end.is_some() || self.torn || full {
                return;
            }
            self.incoming.resize(TLS_READ, 0);
            let received = io.read_now(&mut self.incoming);
            self.incoming.truncate(*received.as_ref().unwrap_or(&0));
            match received {
                Ok(0) => self.end = Some(End::Broken(ErrorKind::UnexpectedEof)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => self.end = Some(End::Broken(error.kind())),
            }
        }
        self.digest();
    }

    /// The peer has ended the session, rightly or not.
    pub fn is_over(&self) -> bool {
        self.end.is_some() || self.torn
    }

    /// It carries requests still.
    pub fn is_whole(&self) -> bool {
        !self.is_over() && !self.mute
    }

    /// Bytes have come that nobody has taken yet.
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0 || self.fed < self.incoming.len()
    }

    /// Decrypts what has come, until plaintext fills its bound.
    fn digest(&mut self) {
        while self.fed < self.incoming.len() && self.end.is_none() {
            let mut rest = &self.incoming[self.fed..];
            match self.connection.read_tls(&mut rest) {
                Ok(count) if count > 0 => self.fed += count,
                // Its plaintext has to be taken first.
                _ => break,
            }
            match self.connection.process_new_packets() {
                Ok(state) => {
                    self.waiting = state.plaintext_bytes_to_read();
                    if state.peer_has_closed() {
                        self.end = Some(End::Closed);
                    }
                }
                Err(fault) => {
                    self.end = Some(End::Broken(ErrorKind::InvalidData));
                    self.fault = Some(fault);
                }
            }
        }
        if self.fed == self.incoming.len() || self.end.is_some() {
            self.incoming.clear();
            self.fed = 0;
        }
    }

    /// Decrypts all that has come, behind what `buffer` holds.
    fn drain(&mut self, buffer: &mut Vec<u8>) {
        loop {
            let unfed = self.incoming.len() - self.fed;
            self.digest();
            let mut reader = self.connection.reader();
            let mut taken = 0;
            while let Ok(chunk) = reader.fill_buf()
                && !chunk.is_empty()
            {
                buffer.extend_from_slice(chunk);
                let count = chunk.len();
                taken += count;
                reader.consume(count);
            }
            self.waiting = 0;
            let left = self.incoming.len() - self.fed;
            if left == 0 {
                return;
            }
            if left == unfed && taken == 0 {
                self.end = Some(End::Broken(ErrorKind::InvalidData));
                return;
            }
        }
    }

    /// Reads ciphertext once; the end of the connection is noted.
    async fn receive(&mut self, io: &mut impl Carrier, room: usize) -> io::Result<()> {
        if self.torn {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let mut incoming = std::mem::take(&mut self.incoming);
        incoming.reserve(room.clamp(TLS_READ, TLS_READ_MOST));
        self.torn = true;
        let (result, incoming) = io.read_some(incoming).await;
        self.torn = false;
        self.incoming = incoming;
        match result {
            Ok(0) => self.end = Some(End::Broken(ErrorKind::UnexpectedEof)),
            Ok(_) => {}
            Err(error) => {
                self.end = Some(End::Broken(error.kind()));
                return Err(error);
            }
        }
        Ok(())
    }

    fn encrypt(&mut self, plaintext: &[u8]) -> io::Result<usize> {
        self.speaks()?;
        match self.connection.writer().write(plaintext)? {
            0 if !plaintext.is_empty() => Err(ErrorKind::WriteZero.into()),
            count => Ok(count),
        }
    }

    /// Sends all that waits to be sent.
    async fn flush(&mut self, io: &mut impl Carrier) -> io::Result<()> {
        self.speaks()?;
        self.collect();
        if self.outgoing.is_empty() {
            return Ok(());
        }
        self.mute = true;
        let (result, mut outgoing) = io.write_from(std::mem::take(&mut self.outgoing), 0).await;
        outgoing.clear();
        self.outgoing = outgoing;
        result?;
        self.mute = false;
        Ok(())
    }

    fn collect(&mut self) {
        while self.connection.wants_write() {
            if !matches!(self.connection.write_tls(&mut self.outgoing), Ok(count) if count > 0) {
                return;
            }
        }
    }

    fn speaks(&self) -> io::Result<()> {
        if self.torn || self.mute { Err(ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }
}

/// The first byte of every TLS record of a handshake (RFC 8446 §5.1).
const HANDSHAKE_RECORD: u8 = 22;
