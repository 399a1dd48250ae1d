//! Keep-alive connections of one core, last in first out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;

use crate::bounds::{KEPT_BUFFER, POOLED_CONNECTIONS};
use crate::rt::Stream;

/// A connection to a backend, with the bytes read from it and not yet used.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub stream: Stream,
    /// Read and not yet used. Empty whenever the connection is pooled.
    pub buffer: Vec<u8>,
    /// Whether it came from the pool, so may have died there.
    pub pooled: bool,
    /// Part of a request was lost on it: it carries no other one.
    pub spoilt: bool,
    address: SocketAddr,
}

impl Connection {
    pub(super) fn new(stream: Stream, address: SocketAddr) -> Connection {
        Connection { stream, buffer: Vec::new(), pooled: false, spoilt: false, address }
    }

    /// Reads once behind the unused bytes; `Ok(0)` is the end.
    ///
    /// # Errors
    /// What the socket reports.
    pub async fn read(&mut self, room: usize) -> std::io::Result<usize> {
        let buffer = std::mem::take(&mut self.buffer);
        let (result, buffer) = self.stream.read(buffer, room).await;
        self.buffer = buffer;
        result
    }
}

/// The idle connections of one core.
#[derive(Debug, Default)]
pub struct Pool {
    idle: RefCell<HashMap<SocketAddr, Vec<Connection>, ahash::RandomState>>,
}

impl Pool {
    /// The connection used last that is still good. One on which something can be read has died or holds bytes
    /// that nobody asked for: it is closed.
    pub fn take(&self, address: SocketAddr) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        let connections = idle.get_mut(&address)?;
        while let Some(mut connection) = connections.pop() {
            if !connection.stream.has_unread() {
                connection.pooled = true;
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose last answer was read to its end.
    pub fn keep(&self, mut connection: Connection) {
        debug_assert!(connection.buffer.is_empty(), "surplus bytes must not be pooled");
        if connection.buffer.capacity() > KEPT_BUFFER {
            connection.buffer = Vec::new();
        }
        let mut idle = self.idle.borrow_mut();
        let connections = idle.entry(connection.address).or_default();
        if connections.len() < POOLED_CONNECTIONS {
            connections.push(connection);
        }
    }

    /// Closes what has died while idle.
    pub fn prune(&self) {
        self.idle.borrow_mut().retain(|_, connections| {
            connections.retain(|connection| !connection.stream.has_unread());
            !connections.is_empty()
        });
    }
}
