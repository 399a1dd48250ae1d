//! From the configuration's terms to the data plane's. Nothing is decided here.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use control::config::{BaseUrl, Config, Http, Provider, Workers};
use control::names::{Host, Names};
use control::start::StartError;
use engine::{ProviderId, Ruleset};
use net::{Backend, ClientTls, HttpBounds, Room, Secret, Settings, Snapshot, Target, Targets};
use tracing::info;

/// What is fixed for the life of the process.
pub fn settings(config: &Config) -> Settings {
    let workers = match config.workers {
        Workers::Count(count) => count,
        Workers::Auto => std::thread::available_parallelism().map_or(1, usize::from),
    };
    Settings { listen: config.listen, workers, spin: config.spin }
}

/// Makes snapshots of configs, one after another, and follows the names of their backends.
#[derive(Default)]
pub struct Wiring {
    names: Names,
    published: Arc<Mutex<Published>>,
}

/// What the snapshot that was published last sends requests to.
#[derive(Default)]
struct Published {
    /// One that stays keeps what the cores know of it: how busy it is, and whether it is well.
    targets: HashMap<TargetKey, Arc<Target>>,
    rooms: HashMap<ProviderId, Arc<Room>>,
    providers: Vec<Wired>,
}

/// One provider of it.
struct Wired {
    id: ProviderId,
    urls: Vec<Url>,
    targets: Targets,
}

/// One base URL.
struct Url {
    host: Host,
    host_header: String,
    prefix: String,
    /// Whose certificates are believed.
    roots: Option<[u8; 32]>,
    tls: Option<ClientTls>,
}

/// Provider, address, whether it is a second choice, `Host` header, prefix, and whose certificates are believed: what makes
/// a target the same one in another config, and after another lookup.
type TargetKey = (ProviderId, SocketAddr, bool, String, String, Option<[u8; 32]>);

impl Wiring {
    /// What requests are judged and forwarded by, but for the ruleset. Host names that were never found are looked up here,
    /// off the cores.
    ///
    /// # Errors
    /// A host name that resolves to nothing; what was made before stays.
    pub fn snapshot(
        &self,
        config: &Config,
    ) -> Result<impl FnOnce(Arc<Ruleset>) -> Snapshot + Send + use<>, StartError> {
        let wired = config.providers.iter().map(wired).collect::<Result<Vec<_>, _>>()?;
        let hosts: Vec<Host> = wired.iter().flat_map(Wired::hosts).cloned().collect();
        self.names.look_up(&self.names.unknown(&hosts));
        let mut next = Published::default();
        let mut backends = Vec::with_capacity(config.providers.len());
        let before = self.published();
        for (provider, wired) in config.providers.iter().zip(wired) {
            let own = next.targets_of(&wired, &self.names, &before.targets)?;
            wired.targets.replace(own);
            let room = provider.max_connections.map(|most| {
                let kept = before.rooms.get(&provider.id).cloned();
                (kept.unwrap_or_else(|| Room::new(most)), most)
            });
            backends.push((
                Backend {
                    id: provider.id.clone(),
                    api: provider.api,
                    targets: wired.targets.clone(),
                    room: room.as_ref().map(|(room, _)| room.clone()),
                    credential: provider.api_key.as_ref().map(|key| Secret(key.expose().to_owned())),
                },
                room,
            ));
            next.providers.push(wired);
        }
        drop(before);
        let (published, names) = (Arc::clone(&self.published), self.names.clone());
        let (routes, prices) = (config.routes.clone(), config.prices.clone());
        let (require_key, http) = (config.require_key, http_bounds(&config.http));
        let tls = config.tls.as_ref().map(|tls| Arc::clone(&tls.config));
        Ok(move |ruleset: Arc<Ruleset>| {
            let mut in_force = Vec::with_capacity(backends.len());
            for (backend, room) in backends {
                if let Some((room, most)) = room {
                    room.set(most);
                    next.rooms.insert(backend.id.clone(), room);
                }
                in_force.push(backend);
            }
            *published.lock().unwrap_or_else(PoisonError::into_inner) = next;
            names.keep_only(&hosts);
            let version = ruleset.version();
            Snapshot { version, ruleset, routes, prices, backends: in_force, require_key, http, tls }
        })
    }

    /// Looks up the names that are due, and puts other addresses in force where there are some. Exchanges under way keep
    /// the one they have.
    pub fn refresh(&self) {
        let due: Vec<Host> = {
            let published = self.published();
            let due = published.providers.iter().flat_map(|wired| {
                let mut due = self.names.due(wired.hosts(), false);
                if due.is_empty() && wired.targets.is_doubted() {
                    due = self.names.due(wired.hosts(), true);
                }
                if !due.is_empty() {
                    wired.targets.trust();
                }
                due
            });
            due.collect()
        };
        if due.is_empty() {
            return;
        }
        self.names.look_up(&due);
        let mut published = self.published();
        let before = std::mem::take(&mut published.targets);
        for wired in std::mem::take(&mut published.providers) {
            // A name in force was found once, so it has addresses.
            if let Ok(own) = published.targets_of(&wired, &self.names, &before) {
                let same = |(a, b): (&Arc<Target>, &Arc<Target>)| Arc::ptr_eq(a, b);
                let current = wired.targets.load();
                if own.len() != current.len() || !own.iter().zip(current.iter()).all(same) {
                    info!(provider = %wired.id, addresses = own.len(), "a backend has other addresses now");
                    wired.targets.replace(own);
                }
            }
            published.providers.push(wired);
        }
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Published {
    /// The targets of a provider, noted here; those that were there `before` are taken over.
    fn targets_of(
        &mut self,
        wired: &Wired,
        names: &Names,
        before: &HashMap<TargetKey, Arc<Target>>,
    ) -> Result<Vec<Arc<Target>>, StartError> {
        let mut own = Vec::with_capacity(wired.urls.len());
        for url in &wired.urls {
            let addresses = names.addresses(&url.host).map_err(|reason| {
                let (id, host) = (&wired.id, &url.host.0);
                StartError::new(format!("provider `{id}`: base URL host {host:?}: {reason}"))
            })?;
            let both = addresses.iter().any(SocketAddr::is_ipv4);
            for address in addresses {
                let second = both && address.is_ipv6();
                let (header, prefix) = (url.host_header.clone(), url.prefix.clone());
                let key = (wired.id.clone(), address, second, header.clone(), prefix.clone(), url.roots);
                let fresh = || {
                    let target = Target::new(address, header, prefix, url.tls.clone());
                    Arc::new(target.second_choice(second))
                };
                let known = self.targets.get(&key).or_else(|| before.get(&key)).cloned();
                let target = known.unwrap_or_else(fresh);
                self.targets.insert(key, Arc::clone(&target));
                own.push(target);
            }
        }
        Ok(own)
    }
}

impl Wired {
    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.urls.iter().map(|url| &url.host)
    }
}

fn wired(provider: &Provider) -> Result<Wired, StartError> {
    let urls = provider.base_urls.iter().map(|url| wired_url(provider, url)).collect::<Result<_, _>>()?;
    Ok(Wired { id: provider.id.clone(), urls, targets: Targets::new(Vec::new()) })
}

fn wired_url(provider: &Provider, url: &BaseUrl) -> Result<Url, StartError> {
    let settings = provider.tls.as_ref().filter(|_| url.secure);
    let name = url.server_name().ok_or_else(|| {
        StartError::new(format!("provider `{}`: no certificate can be for its host", provider.id))
    });
    let tls = match settings {
        None => None,
        Some(tls) => Some(ClientTls { config: tls.config.clone(), name: name? }),
    };
    Ok(Url {
        host: (url.host.clone(), url.port),
        host_header: url.host_header.clone(),
        prefix: url.prefix.clone(),
        roots: settings.map(|tls| tls.roots),
        tls,
    })
}

fn http_bounds(http: &Http) -> HttpBounds {
    HttpBounds {
        max_head: http.max_head,
        max_body: http.max_body,
        header_timeout: http.header_timeout,
        idle_timeout: http.idle_timeout,
        connect_timeout: http.connect_timeout,
        first_byte_timeout: http.first_byte_timeout,
        between_bytes_timeout: http.between_bytes_timeout,
        drain_timeout: http.drain_timeout,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use control::config::Credentials;
    use control::names::Times;

    use super::*;

    fn config(providers: &str) -> Config {
        let text = format!("providers: [ {providers} ]");
        Config::parse(&text, Path::new("gateway.yaml"), Credentials::Unused, &|_| None)
            .expect("a config")
            .config
    }

    fn publish(wiring: &Wiring, providers: &str) -> Snapshot {
        let snapshot = wiring.snapshot(&config(providers)).expect("resolved");
        snapshot(Arc::new(Ruleset::empty(1)))
    }

    fn targets(snapshot: &Snapshot, backend: usize) -> Vec<Arc<Target>> {
        snapshot.backends[backend].targets.load().to_vec()
    }

    #[test]
    fn a_target_that_stays_keeps_what_is_known_of_it() {
        let wiring = Wiring::default();
        let east = r#"{ id: east, api: openai, base_urls: ["http://127.0.0.1:1", "http://127.0.0.1:2/v9"] }"#;
        let west = r#"{ id: west, api: openai, base_urls: ["http://127.0.0.1:1"] }"#;
        let first = publish(&wiring, &format!("{east}, {west}"));
        let (first_east, first_west) = (targets(&first, 0), targets(&first, 1));
        assert!(!Arc::ptr_eq(&first_east[0], &first_west[0]), "one a provider");
        // What is readied and never published changes nothing.
        drop(wiring.snapshot(&config(west)).expect("resolved"));
        let absent = r#"{ id: x, api: openai, base_urls: ["http://no-such-host.invalid:1"] }"#;
        assert!(wiring.snapshot(&config(absent)).is_err());
        let moved = east.replace("127.0.0.1:1", "127.0.0.1:3");
        let second = publish(&wiring, &format!("{west}, {moved}"));
        let (second_west, second_east) = (targets(&second, 0), targets(&second, 1));
        assert!(Arc::ptr_eq(&first_west[0], &second_west[0]));
        assert!(!Arc::ptr_eq(&first_east[0], &second_east[0]));
        assert!(Arc::ptr_eq(&first_east[1], &second_east[1]));
        // Another scheme, or other roots, is another target.
        let secure = publish(&wiring, &west.replace("http", "https"));
        assert!(!Arc::ptr_eq(&targets(&secure, 0)[0], &second_west[0]));
    }

    #[test]
    fn a_room_is_the_same_one_after_a_reload() {
        let wiring = Wiring::default();
        let provider = |most: &str| {
            let rest = r#"id: east, api: openai, base_urls: ["http://127.0.0.1:1"]"#;
            format!("{{ {rest}, max_connections: {most} }}")
        };
        let room = |snapshot: &Snapshot| snapshot.backends[0].room.clone();
        let first = room(&publish(&wiring, &provider("1"))).expect("bounded");
        let place = first.enter();
        drop(wiring.snapshot(&config(&provider("9"))).expect("resolved"));
        assert!(first.enter().is_none(), "what is never published changes nothing");
        let second = room(&publish(&wiring, &provider("2"))).expect("bounded");
        assert!(Arc::ptr_eq(&first, &second));
        let other = second.enter();
        assert!(place.is_some() && other.is_some() && first.enter().is_none());
        assert!(room(&publish(&wiring, &provider("null"))).is_none());
    }

    #[test]
    fn a_name_that_moves_takes_its_targets_with_it() {
        let found = Arc::new(Mutex::new(vec!["10.0.0.1:80", "[::1]:80", "10.0.0.2:80"]));
        let (answers, asked) = (found.clone(), Arc::new(AtomicUsize::new(0)));
        let count = asked.clone();
        let resolver = move |_: &str, _: u16| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(answers.lock().unwrap().iter().map(|text| text.parse().expect("an address")).collect())
        };
        let hour = Duration::from_secs(3600);
        let times = Times { wait: Duration::from_secs(10), age: hour, doubted_age: Duration::ZERO };
        let wiring = Wiring { names: Names::new(Box::new(resolver), times), ..Wiring::default() };
        let provider = r#"{ id: a, api: openai, base_urls: ["http://name"] }"#;
        let snapshot = publish(&wiring, provider);
        let list = || -> Vec<(String, bool)> {
            let targets = targets(&snapshot, 0);
            targets.iter().map(|one| (one.address.to_string(), one.is_second_choice)).collect()
        };
        let of = |list: &[(&str, bool)]| -> Vec<(String, bool)> {
            list.iter().map(|(text, second)| ((*text).to_owned(), *second)).collect()
        };
        let before = of(&[("10.0.0.1:80", false), ("10.0.0.2:80", false), ("[::1]:80", true)]);
        assert_eq!(list(), before);
        let kept = targets(&snapshot, 0)[1].clone();
        *found.lock().unwrap() = vec!["[::1]:80", "10.0.0.2:80", "10.0.0.3:80"];
        wiring.refresh();
        publish(&wiring, provider);
        assert_eq!((list(), asked.load(Ordering::SeqCst)), (before.clone(), 1), "it is not due");
        let snapshot = publish(&wiring, provider);
        snapshot.backends[0].targets.doubt();
        wiring.refresh();
        wiring.refresh();
        assert_eq!(asked.load(Ordering::SeqCst), 2, "looked up once for a doubt");
        let moved = targets(&snapshot, 0);
        assert_eq!(
            moved.iter().map(|one| one.address.to_string()).collect::<Vec<_>>(),
            ["10.0.0.2:80", "10.0.0.3:80", "[::1]:80"]
        );
        assert!(Arc::ptr_eq(&moved[0], &kept), "what stays is the same one");
        // Nothing found leaves all as it is.
        found.lock().unwrap().clear();
        snapshot.backends[0].targets.doubt();
        wiring.refresh();
        assert_eq!(targets(&snapshot, 0).len(), 3);
    }
}
