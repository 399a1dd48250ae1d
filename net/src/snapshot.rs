//! What the control plane hands to the cores: immutable, numbered, swapped whole. An exchange keeps the snapshot
//! that it began with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use engine::Monotonic;
use engine::PriceBook;
use engine::Ruleset;
use engine::{Api, ProviderId, Routes};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::bounds::SET_ASIDE;

/// What is fixed for the life of the process.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The data plane's address.
    pub listen: SocketAddr,
    /// Cores to serve on; each gets a thread, a runtime, a listener and a shard.
    pub workers: usize,
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
    /// Its `base_urls`, resolved.
    pub targets: Vec<Arc<Target>>,
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

/// How a backend is spoken to over TLS.
#[derive(Debug, Clone)]
pub struct ClientTls {
    /// Whose certificates are believed; it also keeps what is needed to resume sessions.
    pub config: Arc<ClientConfig>,
    /// Whom the backend's certificate must be for: the base URL's host.
    pub name: ServerName<'static>,
}

/// The number of the next target.
static TARGETS: AtomicU64 = AtomicU64::new(0);

/// One base URL, with what all cores know of its state.
#[derive(Debug)]
pub struct Target {
    /// No other target of this process has it.
    pub number: u64,
    /// Where to connect.
    pub address: SocketAddr,
    /// Absent when the base URL is a plain one.
    pub tls: Option<ClientTls>,
    /// The `Host` header.
    pub host: String,
    /// The base URL's path, without a closing slash.
    pub prefix: String,
    busy: CachePadded<AtomicUsize>,
    /// Monotonic nanoseconds until which it is passed over; 0 when it is well.
    aside_until: AtomicU64,
}

impl Target {
    /// A target believed to be well.
    pub fn new(address: SocketAddr, host: String, prefix: String, tls: Option<ClientTls>) -> Target {
        Target {
            number: TARGETS.fetch_add(1, Ordering::Relaxed),
            address,
            tls,
            host,
            prefix,
            busy: CachePadded::default(),
            aside_until: AtomicU64::new(0),
        }
    }

    /// Exchanges under way on it, on all cores.
    pub fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether it is passed over while another one is left.
    pub fn is_aside(&self, now: Monotonic) -> bool {
        self.aside_until.load(Ordering::Relaxed) > now.0
    }

    /// It refused a connection: passed over for [`SET_ASIDE`], then tried again by ordinary traffic.
    pub fn set_aside(&self, now: Monotonic) {
        self.aside_until.store(now.0 + SET_ASIDE.as_nanos() as u64, Ordering::Relaxed);
    }

    /// It answered.
    pub fn is_well(&self) {
        if self.aside_until.load(Ordering::Relaxed) != 0 {
            self.aside_until.store(0, Ordering::Relaxed);
        }
    }

    /// Counts one exchange on it until the return value is dropped.
    pub fn occupy(self: &Arc<Self>) -> Occupied {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Occupied(self.clone())
    }
}

/// One exchange under way on a target.
#[derive(Debug)]
pub struct Occupied(Arc<Target>);

impl Occupied {
    /// Which one.
    pub fn target(&self) -> &Target {
        &self.0
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}
