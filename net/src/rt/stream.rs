//! A connection: owned buffers in, owned buffers out.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use monoio::buf::{IoBuf, IoBufMut};
use monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt};
use monoio::net::TcpStream;

use super::sys;

/// One TCP connection of this core. Dropping it closes it.
#[derive(Debug)]
pub struct Stream {
    inner: TcpStream,
}

impl Stream {
    pub(super) fn new(inner: TcpStream) -> Stream {
        // Without it an answer's last segment would wait for an acknowledgement; a failure costs only that.
        let _ = inner.set_nodelay(true);
        Stream { inner }
    }

    /// Connects to `address`. No bound of its own: put it [`super::within`] one.
    ///
    /// # Errors
    /// What the kernel reports: refused, unreachable, no descriptors left.
    pub async fn connect(address: SocketAddr) -> io::Result<Stream> {
        TcpStream::connect_addr(address).await.map(Stream::new)
    }

    /// Reads once, behind what `buffer` holds, into at least `room` bytes of spare capacity. `Ok(0)` is the end.
    pub async fn read(&mut self, mut buffer: Vec<u8>, room: usize) -> (io::Result<usize>, Vec<u8>) {
        buffer.reserve(room);
        let (from, to) = (buffer.len(), buffer.capacity());
        let (result, slice) = self.inner.read(buffer.slice_mut(from..to)).await;
        (result, slice.into_inner())
    }

    /// Writes the whole of `buffer`.
    pub async fn write_all(&mut self, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.inner.write_all(buffer).await
    }

    /// Writes once; says how many bytes the kernel took.
    pub async fn write_once(&mut self, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.inner.write(buffer).await
    }

    /// Writes `buffer` from `from` on.
    pub async fn write_rest(&mut self, buffer: Vec<u8>, from: usize) -> (io::Result<usize>, Vec<u8>) {
        let (result, slice) = self.inner.write_all(buffer.slice(from..)).await;
        (result, slice.into_inner())
    }

    /// Ends the sending half: the peer reads all that was written, then the end.
    pub async fn finish(&mut self) {
        let _ = self.inner.shutdown().await;
    }

    /// Ready when there is something to read: bytes, the end, or an error. May be dropped freely.
    pub async fn readable(&self) {
        let _ = self.inner.readable(false).await;
    }

    /// The peer has closed, half-closed or reset.
    pub fn peer_closed(&self) -> bool {
        sys::peer_closed(self.descriptor())
    }

    /// Something can be read at this moment.
    pub fn has_unread(&self) -> bool {
        sys::readable_now(self.descriptor())
    }

    /// The descriptor's number, valid while the stream lives.
    pub fn descriptor(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}
