//! Keep-alive connections of one core, last in first out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::target::{Place, Target};
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
    /// The place among those that its provider takes at a time, while a request is under way on it.
    pub place: Option<Place>,
    target: Arc<Target>,
}

impl Connection {
    pub(super) fn new(stream: Stream, target: Arc<Target>) -> Connection {
        Connection { stream, buffer: Vec::new(), pooled: false, spoilt: false, place: None, target }
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

/// The idle connections of one core, by the number of their target: two targets of one address may have different
/// certificates to show.
#[derive(Debug, Default)]
pub struct Pool {
    idle: RefCell<HashMap<u64, Idle, ahash::RandomState>>,
}

/// The idle connections to one target.
#[derive(Debug)]
struct Idle {
    /// Dead when no snapshot has the target any more.
    target: Weak<Target>,
    connections: Vec<Parked>,
}

/// What is kept of an idle [`Connection`].
#[derive(Debug)]
struct Parked {
    stream: Stream,
    buffer: Vec<u8>,
}

impl Pool {
    /// The connection used last that is still good. One on which something can be read has died or holds bytes
    /// that nobody asked for: it is closed.
    pub fn take(&self, target: &Arc<Target>) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        let connections = &mut idle.get_mut(&target.number)?.connections;
        while let Some(Parked { mut stream, buffer }) = connections.pop() {
            if stream.is_at_rest() {
                return Some(Connection {
                    stream,
                    buffer,
                    pooled: true,
                    spoilt: false,
                    place: None,
                    target: target.clone(),
                });
            }
        }
        None
    }

    /// Keeps a connection whose last answer was read to its end.
    pub fn keep(&self, connection: Connection) {
        let Connection { stream, mut buffer, target, .. } = connection;
        debug_assert!(buffer.is_empty(), "surplus bytes must not be pooled");
        if buffer.capacity() > KEPT_BUFFER {
            buffer = Vec::new();
        }
        let mut idle = self.idle.borrow_mut();
        let fresh = || Idle { target: Arc::downgrade(&target), connections: Vec::new() };
        let connections = &mut idle.entry(target.number).or_insert_with(fresh).connections;
        if connections.len() < POOLED_CONNECTIONS {
            connections.push(Parked { stream, buffer });
        }
    }

    /// Closes what has died while idle, and what leads to targets that are not in force any more.
    pub fn prune(&self) {
        self.idle.borrow_mut().retain(|_, idle| {
            if idle.target.strong_count() == 0 {
                return false;
            }
            idle.connections.retain_mut(|parked| parked.stream.is_at_rest());
            !idle.connections.is_empty()
        });
    }
}
