//! What the control plane hands to the cores: immutable, numbered, swapped whole. An exchange keeps the snapshot
//! that it began with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use engine::PriceBook;
use engine::Ruleset;
use engine::{Api, ProviderId, Routes};
use rustls::ServerConfig;

pub use crate::upstream::{ClientTls, Room, Target, Targets};

/// What is fixed for the life of the process.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The data plane's address.
    pub listen: SocketAddr,
    /// Cores to serve on; each gets a thread, a runtime, a listener and a shard.
    pub workers: usize,
    /// How long a core with nothing to do looks for work before it sleeps, at most; zero for not at all.
    pub spin: Duration,
}

/// SPEC §2 `http`: sizes in bytes.
#[derive(Debug, Clone, Copy)]
pub struct HttpBounds {
    /// A request head beyond this is a 431.
    pub max_head: usize,
    /// A request body beyond this is a 413.
    pub max_body: u64,
    /// From a head's first byte to its last.
    pub header_timeout: Duration,
    /// Between two requests of a connection, and before its first.
    pub idle_timeout: Duration,
    /// To connect to a backend.
    pub connect_timeout: Duration,
    /// From the request's last byte to the answer's first.
    pub first_byte_timeout: Duration,
    /// Between two pieces of a body, either way.
    pub between_bytes_timeout: Duration,
    /// How long a stopping process waits for the exchanges under way.
    pub drain_timeout: Duration,
}

/// Everything a request is judged and forwarded by. Cheap to clone but for the list of backends.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Ascending with each publication.
    pub version: u64,
    /// The compiled limits.
    pub ruleset: Arc<Ruleset>,
    /// First match wins.
    pub routes: Routes,
    /// What served models cost.
    pub prices: PriceBook,
    /// In no particular order; found by id.
    pub backends: Vec<Backend>,
    /// Whether keyless traffic is turned away.
    pub require_key: bool,
    /// Sizes and times.
    pub http: HttpBounds,
    /// What connections to come are shown; absent when they speak plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
}

impl Snapshot {
    /// The backend of a route.
    pub fn backend(&self, id: &ProviderId) -> Option<&Backend> {
        self.backends.iter().find(|backend| backend.id == *id)
    }
}

/// One provider of the configuration.
#[derive(Debug, Clone)]
pub struct Backend {
    /// The provider's id.
    pub id: ProviderId,
    /// Which header its credential goes into.
    pub api: Api,
    /// The addresses of its `base_urls`.
    pub targets: Targets,
    /// How many exchanges it takes at a time; absent for any number.
    pub room: Option<Arc<Room>>,
    /// The provider's own credential.
    pub credential: Option<Secret>,
}

/// A credential that no log shows.
#[derive(Clone)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Secret(..)")
    }
}
