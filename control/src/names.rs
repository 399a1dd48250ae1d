//! Host names of backends and the addresses that they stand for.
//!
//! The system's resolver blocks, for half a minute when no server answers, and cannot be told to stop. So every lookup has a
//! thread of its own, at most one a name and [`bounds::NAME_LOOKUPS`] in all; who waits for it waits no longer than
//! [`bounds::NAME_WAIT_MS`], and what comes later is there the next time.
//!
//! A name that was found once keeps its last addresses however often it is not found afterwards: a resolver that is away
//! must not take backends with it that are well.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bounds;
use crate::management::Management;

/// How a host and a port become addresses.
pub type Resolver = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// A host and a port.
pub type Host = (String, u16);

/// How long names are waited for and believed.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Whoever asks waits no longer.
    pub wait: Duration,
    /// After this a name is looked up again.
    pub age: Duration,
    /// The same when one of its addresses could not be reached.
    pub doubted_age: Duration,
}

impl Default for Times {
    fn default() -> Times {
        Times {
            wait: Duration::from_millis(bounds::NAME_WAIT_MS),
            age: Duration::from_millis(bounds::NAME_AGE_MS),
            doubted_age: Duration::from_millis(bounds::DOUBTED_NAME_AGE_MS),
        }
    }
}

/// What is known of names.
#[derive(Clone)]
pub struct Names {
    shared: Arc<Shared>,
}

struct Shared {
    resolver: Box<Resolver>,
    times: Times,
    known: Mutex<Known>,
    news: Condvar,
}

#[derive(Default)]
struct Known {
    names: HashMap<Host, Name>,
    under_way: usize,
}

#[derive(Default)]
struct Name {
    /// As they were found last; empty when they never were.
    addresses: Vec<SocketAddr>,
    /// Why the last lookup found nothing.
    failure: Option<String>,
    looked_up: Option<Instant>,
    under_way: bool,
    /// Lookups that have ended.
    rounds: u64,
}

impl Default for Names {
    fn default() -> Names {
        let system = |host: &str, port: u16| (host, port).to_socket_addrs().map(Iterator::collect);
        Names::new(Box::new(system), Times::default())
    }
}

impl Names {
    /// Names that `resolver` finds.
    pub fn new(resolver: Box<Resolver>, times: Times) -> Names {
        let shared = Shared { resolver, times, known: Mutex::default(), news: Condvar::new() };
        Names { shared: Arc::new(shared) }
    }

    /// The addresses of a host as they were found last, those of IPv4 first; an address stands for itself.
    ///
    /// # Errors
    /// Why it has none: a sentence without its subject.
    pub fn addresses(&self, host: &Host) -> Result<Vec<SocketAddr>, String> {
        if let Some(literal) = literal(host) {
            return Ok(vec![literal]);
        }
        let late = || format!("cannot be resolved within {:?}", self.shared.times.wait);
        match self.known().names.get(host) {
            Some(name) if !name.addresses.is_empty() => Ok(name.addresses.clone()),
            name => Err(name.and_then(|name| name.failure.clone()).unwrap_or_else(late)),
        }
    }

    /// Those of `hosts` that are names and were never found.
    pub fn unknown<'a>(&self, hosts: impl IntoIterator<Item = &'a Host>) -> Vec<Host> {
        let known = self.known();
        let is_known = |host: &Host| known.names.get(host).is_some_and(|name| !name.addresses.is_empty());
        hosts.into_iter().filter(|host| literal(host).is_none() && !is_known(host)).cloned().collect()
    }

    /// Those of `hosts` that are names and due to be looked up again. `doubted`: some address could not be reached.
    pub fn due<'a>(&self, hosts: impl IntoIterator<Item = &'a Host>, doubted: bool) -> Vec<Host> {
        let (known, now) = (self.known(), Instant::now());
        let age = if doubted { self.shared.times.doubted_age } else { self.shared.times.age };
        let is_old = |host: &Host| {
            let looked_up = known.names.get(host).and_then(|name| name.looked_up);
            looked_up.is_none_or(|at| now.duration_since(at) >= age)
        };
        hosts.into_iter().filter(|host| literal(host).is_none() && is_old(host)).cloned().collect()
    }

    /// Forgets all names but these.
    pub fn keep_only(&self, hosts: &[Host]) {
        self.known().names.retain(|host, name| name.under_way || hosts.contains(host));
    }

    /// Looks names up, all at once, and waits for what comes in time. A name that is not found any more is told of once.
    pub fn look_up(&self, hosts: &[Host]) {
        let end = Instant::now() + self.shared.times.wait;
        let mut known = self.known();
        let mut wanted = Vec::with_capacity(hosts.len());
        for host in hosts {
            let name = known.names.entry(host.clone()).or_default();
            wanted.push((host, name.rounds + 1));
        }
        loop {
            for (host, round) in &wanted {
                if known.under_way < bounds::NAME_LOOKUPS {
                    self.begin(&mut known, host, *round);
                }
            }
            let ended = |(host, round): &(&Host, u64)| {
                known.names.get(*host).is_none_or(|name| name.rounds >= *round)
            };
            let left = end.saturating_duration_since(Instant::now());
            if wanted.iter().all(ended) || left.is_zero() {
                return;
            }
            known = self.shared.news.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Starts the lookup of a name that still needs it.
    fn begin(&self, known: &mut Known, host: &Host, round: u64) {
        let Some(name) = known.names.get_mut(host) else { return };
        if name.under_way || name.rounds >= round {
            return;
        }
        let (shared, wanted) = (Arc::clone(&self.shared), host.clone());
        let work = move || {
            let found = (shared.resolver)(&wanted.0, wanted.1);
            shared.found(&wanted, found);
        };
        match std::thread::Builder::new().name("lookup".to_owned()).spawn(work) {
            Ok(_) => {
                name.under_way = true;
                known.under_way += 1;
            }
            Err(error) => {
                name.failure = Some(format!("cannot be resolved: no thread for it: {error}"));
                name.rounds = round;
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Notes what a lookup has brought.
    fn found(&self, host: &Host, found: io::Result<Vec<SocketAddr>>) {
        let outcome = match found {
            Ok(addresses) if addresses.is_empty() => Err("has no address".to_owned()),
            Ok(addresses) => Ok(in_order(addresses)),
            Err(error) => Err(format!("cannot be resolved: {error}")),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.under_way -= 1;
        if let Some(name) = known.names.get_mut(host) {
            (name.under_way, name.looked_up) = (false, Some(Instant::now()));
            name.rounds += 1;
            match outcome {
                Ok(addresses) => {
                    if name.failure.take().is_some() && !name.addresses.is_empty() {
                        tracing::info!(host = host.0, "the name of a backend is found again");
                    }
                    name.addresses = addresses;
                }
                Err(reason) => {
                    if name.failure.is_none() && !name.addresses.is_empty() {
                        tracing::warn!(
                            host = host.0,
                            "the name of a backend {reason}; the addresses found last stay in use"
                        );
                    }
                    name.failure = Some(reason);
                }
            }
        }
        drop(known);
        self.news.notify_all();
    }
}

/// Looks every name of a backend up again that is due, for as long as the runtime lives.
pub async fn keep_fresh(management: Arc<Management>) {
    loop {
        tokio::time::sleep(Duration::from_millis(bounds::NAME_TICK_MS)).await;
        let managed = Arc::clone(&management);
        if let Err(error) = tokio::task::spawn_blocking(move || managed.refresh_names()).await {
            tracing::error!(%error, "looking up the names of backends has panicked");
        }
    }
}

/// Each address once, those of IPv4 first, else in the resolver's order; not more than the bound.
fn in_order(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let mut ordered: Vec<SocketAddr> = Vec::new();
    for family in [true, false] {
        for address in addresses.iter().filter(|address| address.is_ipv4() == family) {
            if !ordered.contains(address) {
                ordered.push(*address);
            }
        }
    }
    ordered.truncate(bounds::NAME_ADDRESSES);
    ordered
}

fn literal(host: &Host) -> Option<SocketAddr> {
    host.0.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, host.1))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn waiting(wait: Duration) -> Times {
        Times { wait, ..Times::default() }
    }

    fn host(name: &str) -> Host {
        (name.to_owned(), 80)
    }

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn an_address_stands_for_itself() {
        let names = Names::new(Box::new(|_, _| panic!("nothing to look up")), waiting(Duration::ZERO));
        for (text, want) in [("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80")] {
            assert_eq!(names.addresses(&host(text)), Ok(addresses(&[want])));
            assert!(names.unknown([&host(text)]).is_empty());
            assert!(names.due([&host(text)], false).is_empty());
        }
    }

    #[test]
    fn a_name_keeps_its_addresses_when_it_is_not_found_any_more() {
        let round = Arc::new(AtomicUsize::new(0));
        let asked = Arc::clone(&round);
        let resolver = move |_: &str, _: u16| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(addresses(&["[::1]:80", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.1:80"])),
            1 => Err(io::ErrorKind::NotFound.into()),
            2 => Ok(Vec::new()),
            _ => Ok(addresses(&["10.0.0.3:80"])),
        };
        let names = Names::new(Box::new(resolver), waiting(Duration::from_secs(10)));
        let first = addresses(&["10.0.0.1:80", "10.0.0.2:80", "[::1]:80"]);
        for want in [&first, &first, &first, &addresses(&["10.0.0.3:80"])] {
            names.look_up(&[host("a")]);
            assert_eq!(names.addresses(&host("a")).as_ref(), Ok(want));
        }
        assert_eq!(round.load(Ordering::SeqCst), 4, "each time it was asked for");
        assert!(names.due([&host("a")], true).is_empty());
        names.keep_only(&[]);
        assert_eq!(names.unknown([&host("a")]), [host("a")]);
    }

    #[test]
    fn why_a_name_has_no_address_is_said() {
        let resolver = |name: &str, _: u16| match name {
            "empty" => Ok(Vec::new()),
            _ => Err(io::Error::other("no such host")),
        };
        let names = Names::new(Box::new(resolver), waiting(Duration::from_secs(10)));
        names.look_up(&[host("empty"), host("gone")]);
        assert_eq!(names.addresses(&host("empty")), Err("has no address".to_owned()));
        assert_eq!(names.addresses(&host("gone")), Err("cannot be resolved: no such host".to_owned()));
    }

    /// A resolver that hangs holds up nobody longer than was said, is asked once, and its answer is not lost.
    #[test]
    fn a_slow_lookup_is_not_waited_for() {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (held, asked) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&asked);
        let resolver = move |name: &str, _: u16| {
            if name == "slow" {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = held.lock().expect("one at a time").recv();
            }
            Ok(addresses(&["10.0.0.9:80"]))
        };
        let names = Names::new(Box::new(resolver), waiting(Duration::from_millis(50)));
        names.look_up(&[host("slow"), host("fast")]);
        assert!(names.unknown([&host("fast")]).is_empty(), "the others are found meanwhile");
        assert_eq!(names.addresses(&host("slow")), Err("cannot be resolved within 50ms".to_owned()));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        drop(release);
        let end = Instant::now() + Duration::from_secs(10);
        while names.addresses(&host("slow")).is_err() {
            assert!(Instant::now() < end, "the answer never came");
        }
        assert_eq!(names.addresses(&host("slow")), Ok(addresses(&["10.0.0.9:80"])));
    }
}
