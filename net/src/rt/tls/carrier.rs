//! What a connection's bytes go through: a socket, or in tests of TLS a pipe in memory. Buffers are handed over and come
//! back, as the runtime wants them.

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;

use monoio::buf::{IoBuf, IoBufMut};
use monoio::io::{AsyncReadRent, AsyncWriteRent};
use monoio::net::TcpStream;

use super::super::sys;

/// What came of a call, and the buffer that it was given.
pub type Returned = (io::Result<usize>, Vec<u8>);

/// Something that carries bytes both ways.
pub trait Carrier {
    /// Reads once, behind what `buffer` holds, into its spare capacity; `Ok(0)` is the end.
    async fn read_some(&mut self, buffer: Vec<u8>) -> Returned;

    /// Writes once, from `from` on.
    async fn write_some(&mut self, buffer: Vec<u8>, from: usize) -> Returned;

    /// Reads what has come, without waiting; `WouldBlock` when nothing has.
    fn read_now(&mut self, room: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `buffer` from `from` on.
    async fn write_from(&mut self, mut buffer: Vec<u8>, from: usize) -> Returned {
        let mut at = from;
        while at < buffer.len() {
            let result;
            (result, buffer) = self.write_some(buffer, at).await;
            match result {
                Ok(0) => return (Err(ErrorKind::WriteZero.into()), buffer),
                Ok(count) => at += count,
                Err(error) => return (Err(error), buffer),
            }
        }
        (Ok(at - from), buffer)
    }
}

impl Carrier for TcpStream {
    async fn read_some(&mut self, buffer: Vec<u8>) -> Returned {
        let (from, to) = (buffer.len(), buffer.capacity());
        let (result, slice) = AsyncReadRent::read(self, buffer.slice_mut(from..to)).await;
        (result, slice.into_inner())
    }

    async fn write_some(&mut self, buffer: Vec<u8>, from: usize) -> Returned {
        let (result, slice) = AsyncWriteRent::write(self, buffer.slice(from..)).await;
        (result, slice.into_inner())
    }

    fn read_now(&mut self, room: &mut [u8]) -> io::Result<usize> {
        sys::receive_now(self.as_raw_fd(), room)
    }
}
