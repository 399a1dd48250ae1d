//! Towards the backend: which base URL, over which connection.
//!
//! A request is sent at most once. It is tried again, on another connection or another base URL, only while no
//! byte of it can have left: the connection was refused or timed out, or the kernel took nothing of the first
//! write on a pooled connection that had died.

mod pick;
mod pool;

pub use pick::pick;
pub use pool::{Connection, Pool};

use std::sync::Arc;

use crate::rt;
use crate::snapshot::{HttpBounds, Target};

/// Why a backend could not be reached. Nothing was sent.
#[derive(Debug)]
pub enum Unreachable {
    /// The connection was refused, or the network would not carry it. The kind alone: the system's own words can
    /// hold addresses.
    Refused(std::io::ErrorKind),
    /// No answer to the connect within `http.connect_timeout`.
    TimedOut,
}

/// A new connection to `target`.
///
/// # Errors
/// [`Unreachable`].
pub async fn connect(target: &Arc<Target>, http: &HttpBounds) -> Result<Connection, Unreachable> {
    match rt::within(http.connect_timeout, rt::Stream::connect(target.address)).await {
        Ok(Ok(stream)) => Ok(Connection::new(stream, target.address)),
        Ok(Err(reason)) => Err(Unreachable::Refused(reason.kind())),
        Err(_) => Err(Unreachable::TimedOut),
    }
}
