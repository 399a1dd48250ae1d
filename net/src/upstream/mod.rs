//! Towards the backend: which address of which base URL, over which connection.
//!
//! A request is sent at most once. It is tried again, on another connection or another base URL, only while no
//! byte of it can have left: the connection was refused or timed out, or the kernel took nothing of the first
//! write on a pooled connection that had died.

mod health;
mod pick;
mod pool;
mod target;
mod tls_fault;

pub use pick::{Picked, pick};
pub use pool::{Connection, Pool};
pub use target::{ClientTls, Occupied, Room, Target, Targets};
pub use tls_fault::TlsFault;

use std::sync::Arc;
use std::time::Duration;

use engine::ProviderId;
use tracing::warn;

use crate::rt::{self, NoTls, Stream};
use crate::snapshot::HttpBounds;

/// Why a backend could not be reached. Nothing was sent.
#[derive(Debug)]
pub enum Unreachable {
    /// The connection was refused, or the network would not carry it. The kind alone: the system's own words can
    /// hold addresses.
    Refused(std::io::ErrorKind),
    /// No answer to the connect, or to the TLS handshake after it, within `http.connect_timeout`.
    TimedOut,
    /// It is there, and cannot be spoken to over TLS.
    Tls(TlsFault),
}

impl Unreachable {
    /// Tells the operator. `aside`: for how long the address is passed over.
    pub fn tell(&self, provider: &ProviderId, target: &Target, aside: Duration) {
        let (host, address) = (&target.host, target.address);
        match self {
            Unreachable::Refused(reason) => {
                warn!(%provider, %host, %address, ?aside, %reason, "no connection to a backend");
            }
            Unreachable::TimedOut => {
                warn!(%provider, %host, %address, ?aside, "a backend took no connection within http.connect_timeout");
            }
            Unreachable::Tls(fault) => {
                let TlsFault { what, remedy, detail } = fault;
                warn!(%provider, %host, %address, ?aside, %detail, "no connection to a backend: {what}; {remedy}");
            }
        }
    }
}

/// A new connection to `target`.
///
/// # Errors
/// [`Unreachable`].
pub async fn connect(target: &Arc<Target>, http: &HttpBounds) -> Result<Connection, Unreachable> {
    match rt::within(http.connect_timeout, reach(target)).await {
        Ok(reached) => reached.map(|stream| Connection::new(stream, target.clone())),
        Err(_) => Err(Unreachable::TimedOut),
    }
}

async fn reach(target: &Target) -> Result<Stream, Unreachable> {
    let refused = |kind| Unreachable::Refused(kind);
    let mut stream = Stream::connect(target.address).await.map_err(|error| refused(error.kind()))?;
    if let Some(tls) = &target.tls {
        match stream.secure(tls.config.clone(), tls.name.clone()).await {
            Ok(()) => {}
            Err(NoTls::Broken(kind)) => return Err(refused(kind)),
            Err(NoTls::Refused(error)) => return Err(Unreachable::Tls(TlsFault::of(error))),
            // A client waits for no bytes of such a kind.
            Err(NoTls::Plain(_)) => return Err(refused(std::io::ErrorKind::InvalidData)),
        }
    }
    Ok(stream)
}
