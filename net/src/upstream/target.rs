//! Where a request can go: the addresses of a provider's base URLs, and how many may go there at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};
use crossbeam_utils::CachePadded;
use engine::Monotonic;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::health::{Health, Standing};

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

/// One address of one base URL, with what all cores know of its state.
#[derive(Debug)]
pub struct Target {
    /// No other target of this process has it.
    pub number: u64,
    /// Where to connect.
    pub address: SocketAddr,
    /// Asked only when the others are not well: the IPv6 addresses of a name that has IPv4 ones too.
    pub is_second_choice: bool,
    /// Absent when the base URL is a plain one.
    pub tls: Option<ClientTls>,
    /// The `Host` header.
    pub host: String,
    /// The base URL's path, without a closing slash.
    pub prefix: String,
    /// Whether it is well.
    pub health: Health,
    busy: CachePadded<AtomicUsize>,
}

impl Target {
    /// A target believed to be well.
    pub fn new(address: SocketAddr, host: String, prefix: String, tls: Option<ClientTls>) -> Target {
        Target {
            number: TARGETS.fetch_add(1, Ordering::Relaxed),
            address,
            is_second_choice: false,
            tls,
            host,
            prefix,
            health: Health::default(),
            busy: CachePadded::default(),
        }
    }

    /// The same as a second choice, or not.
    #[must_use]
    pub fn second_choice(mut self, is_second_choice: bool) -> Target {
        self.is_second_choice = is_second_choice;
        self
    }

    /// Exchanges under way on it, on all cores.
    pub fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// How it stands.
    pub fn standing(&self, now: Monotonic) -> Standing {
        self.health.standing(now)
    }
}

/// One exchange under way on a target, counted until it is dropped.
#[derive(Debug)]
pub struct Occupied {
    target: Arc<Target>,
    /// Whether it finds out if the target is well again.
    pub probes: bool,
}

impl Occupied {
    /// Counts one.
    pub fn new(target: &Arc<Target>, probes: bool) -> Occupied {
        target.busy.fetch_add(1, Ordering::Relaxed);
        Occupied { target: target.clone(), probes }
    }

    /// Which one.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.target.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The targets of a provider. They change while the snapshot stays, when a name is found to have other addresses.
#[derive(Debug, Clone)]
pub struct Targets(Arc<Published>);

#[derive(Debug)]
struct Published {
    targets: ArcSwap<Vec<Arc<Target>>>,
    /// Some address could not be reached: its name may have others by now.
    doubted: AtomicBool,
}

impl Targets {
    /// These.
    pub fn new(targets: Vec<Arc<Target>>) -> Targets {
        Targets(Arc::new(Published {
            targets: ArcSwap::from_pointee(targets),
            doubted: AtomicBool::new(false),
        }))
    }

    /// Those in force.
    pub fn load(&self) -> Guard<Arc<Vec<Arc<Target>>>> {
        self.0.targets.load()
    }

    /// Puts others in force for every request that has not picked one yet.
    pub fn replace(&self, targets: Vec<Arc<Target>>) {
        self.0.targets.store(Arc::new(targets));
    }

    /// Asks for the names to be looked up soon.
    pub fn doubt(&self) {
        if !self.0.doubted.load(Ordering::Relaxed) {
            self.0.doubted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether somebody asked for that.
    pub fn is_doubted(&self) -> bool {
        self.0.doubted.load(Ordering::Relaxed)
    }

    /// They are about to be looked up.
    pub fn trust(&self) {
        self.0.doubted.store(false, Ordering::Relaxed);
    }
}

/// How many exchanges a provider takes at a time (`max_connections`), counted exactly over all cores.
#[derive(Debug)]
pub struct Room {
    most: AtomicUsize,
    taken: CachePadded<AtomicUsize>,
}

impl Room {
    /// Room for `most`.
    pub fn new(most: usize) -> Arc<Room> {
        Arc::new(Room { most: AtomicUsize::new(most), taken: CachePadded::default() })
    }

    /// Room for `most` from now on. Exchanges under way keep their places.
    pub fn set(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// One place, given back when it is dropped; `None` when all are taken.
    pub fn enter(self: &Arc<Self>) -> Option<Place> {
        let most = self.most.load(Ordering::Relaxed);
        let more = |taken| (taken < most).then_some(taken + 1);
        let entered = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        entered.ok().map(|_| Place(self.clone()))
    }
}

/// One exchange's place in a [`Room`].
#[derive(Debug)]
pub struct Place(Arc<Room>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_has_so_many_places_and_never_loses_one() {
        let room = Room::new(2);
        let (first, second) = (room.enter(), room.enter());
        assert!(first.is_some() && second.is_some() && room.enter().is_none());
        drop(first);
        let third = room.enter();
        assert!(third.is_some() && room.enter().is_none());
        room.set(1);
        drop(second);
        assert!(room.enter().is_none(), "one is under way still");
        drop(third);
        let fourth = room.enter();
        assert!(fourth.is_some() && room.enter().is_none());
    }
}
