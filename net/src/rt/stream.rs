//! A connection: owned buffers in, owned buffers out, over TLS or not.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use monoio::buf::{IoBuf, IoBufMut};
use monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt};
use monoio::net::TcpStream;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use super::sys;
use super::tls::{NoTls, Session};
use super::vigil::arrived;

/// One connection of this core. Dropping it closes it.
///
/// What is said of bytes below holds for the application's own, whether or not TLS carries them.
#[derive(Debug)]
pub struct Stream {
    inner: TcpStream,
    /// Absent on a plain connection, which pays for this with one look at a pointer a call: what TLS needs while it reads
    /// or writes is a box of its own, so that no plain exchange is as large.
    tls: Option<Box<Session>>,
}

impl Stream {
    pub(super) fn new(inner: TcpStream) -> Stream {
        // Without it an answer's last segment would wait for an acknowledgement; a failure costs only that.
        let _ = inner.set_nodelay(true);
        Stream { inner, tls: None }
    }

    /// Connects to `address`. No bound of its own: put it [`super::within`] one.
    ///
    /// # Errors
    /// What the kernel reports: refused, unreachable, no descriptors left.
    pub async fn connect(address: SocketAddr) -> io::Result<Stream> {
        let connected = TcpStream::connect_addr(address).await;
        arrived();
        connected.map(Stream::new)
    }

    /// Begins TLS as a client that wants to speak to `name`. No bound of its own.
    ///
    /// # Errors
    /// [`NoTls`]; no byte of the application's has been sent.
    pub async fn secure(
        &mut self,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<(), NoTls> {
        let mut session = Box::new(Session::client(config, name)?);
        session.handshake(&mut self.inner).await?;
        self.tls = Some(session);
        Ok(())
    }

    /// Begins TLS as a server. No bound of its own.
    ///
    /// # Errors
    /// [`NoTls`]; the connection is a plain one still.
    pub async fn accept_tls(&mut self, config: Arc<ServerConfig>) -> Result<(), NoTls> {
        let mut session = Box::new(Session::server(config)?);
        session.handshake(&mut self.inner).await?;
        self.tls = Some(session);
        Ok(())
    }

    /// Reads once, behind what `buffer` holds, into at least `room` bytes of spare capacity. `Ok(0)` is the end: over
    /// TLS one that the peer has announced, and a connection that just ends is an error.
    pub async fn read(&mut self, mut buffer: Vec<u8>, room: usize) -> (io::Result<usize>, Vec<u8>) {
        if let Some(session) = &mut self.tls {
            let read = Box::pin(session.read(&mut self.inner, buffer, room)).await;
            arrived();
            return read;
        }
        buffer.reserve(room);
        let (from, to) = (buffer.len(), buffer.capacity());
        let (result, slice) = self.inner.read(buffer.slice_mut(from..to)).await;
        arrived();
        (result, slice.into_inner())
    }

    /// Writes the whole of `buffer`.
    pub async fn write_all(&mut self, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        match &mut self.tls {
            None => self.inner.write_all(buffer).await,
            Some(session) => Box::pin(session.write_rest(&mut self.inner, buffer, 0)).await,
        }
    }

    /// Writes once; says how many bytes are on their way. An error means that none is: the kernel took nothing.
    pub async fn write_once(&mut self, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        match &mut self.tls {
            None => self.inner.write(buffer).await,
            Some(session) => Box::pin(session.write_once(&mut self.inner, buffer)).await,
        }
    }

    /// Writes `buffer` from `from` on.
    pub async fn write_rest(&mut self, buffer: Vec<u8>, from: usize) -> (io::Result<usize>, Vec<u8>) {
        if let Some(session) = &mut self.tls {
            return Box::pin(session.write_rest(&mut self.inner, buffer, from)).await;
        }
        let (result, slice) = self.inner.write_all(buffer.slice(from..)).await;
        (result, slice.into_inner())
    }

    /// Announces the end to a peer that can tell it from a connection that broke. Without TLS nothing is done.
    pub async fn announce_end(&mut self) {
        if let Some(session) = &mut self.tls {
            session.close(&mut self.inner).await;
        }
    }

    /// Ends the sending half: the peer reads all that was written, then the end.
    pub async fn finish(&mut self) {
        self.announce_end().await;
        let _ = self.inner.shutdown().await;
    }

    /// Whether closing resets a plain connection, however it comes to that; else the peer sees an end. Over TLS the peer
    /// knows an end that was not announced.
    pub fn reset_at_close(&self, reset: bool) {
        if self.tls.is_none() {
            sys::reset_at_close(self.descriptor(), reset);
        }
    }

    /// Ready when there is something to read: bytes, the end, or an error; over TLS a record of the session's own too.
    /// May be dropped freely.
    pub async fn readable(&self) {
        let _ = self.inner.readable(false).await;
    }

    /// The peer has closed, half-closed or reset.
    pub fn peer_closed(&mut self) -> bool {
        if let Some(session) = &mut self.tls {
            session.look(&mut self.inner);
            if session.is_over() {
                return true;
            }
        }
        sys::peer_closed(self.descriptor())
    }

    /// Something can be read at this moment.
    pub fn has_unread(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.has_waiting()) || sys::readable_now(self.descriptor())
    }

    /// Whether the connection can wait for its next request: the peer has not ended it, and nothing has come that
    /// nobody asked for. A TLS session's own records are taken in.
    pub fn is_at_rest(&mut self) -> bool {
        let descriptor = self.descriptor();
        if !sys::readable_now(descriptor) {
            return self.tls.as_ref().is_none_or(|session| session.is_whole() && !session.has_waiting());
        }
        let Some(session) = &mut self.tls else { return false };
        session.look(&mut self.inner);
        session.is_whole() && !session.has_waiting() && !sys::readable_now(descriptor)
    }

    /// The descriptor's number, valid while the stream lives.
    pub fn descriptor(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}
