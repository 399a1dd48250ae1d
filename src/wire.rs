//! From the configuration's terms to the data plane's. Nothing is decided here.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use control::config::{BaseUrl, Config, Http, Provider, Workers};
use control::start::StartError;
use engine::{ProviderId, Ruleset};
use net::{Backend, ClientTls, HttpBounds, Secret, Settings, Snapshot, Target};

/// What is fixed for the life of the process.
pub fn settings(config: &Config) -> Settings {
    let workers = match config.workers {
        Workers::Count(count) => count,
        Workers::Auto => std::thread::available_parallelism().map_or(1, usize::from),
    };
    Settings { listen: config.listen, workers }
}

/// Makes snapshots of configs, one after another.
#[derive(Default)]
pub struct Wiring {
    /// The targets of the snapshot that was published last. One that stays keeps what the cores know of it: how busy it is, and whether
    /// it is set aside.
    targets: Arc<Mutex<HashMap<TargetKey, Arc<Target>>>>,
}

/// Provider, address, `Host` header, prefix, and whose certificates are believed: what makes a target the same one in
/// another config.
type TargetKey = (ProviderId, SocketAddr, String, String, Option<[u8; 32]>);

impl Wiring {
    /// What requests are judged and forwarded by, but for the ruleset. Host names are resolved here, off the cores.
    ///
    /// # Errors
    /// A host name that resolves to nothing; what was made before stays.
    pub fn snapshot(
        &self,
        config: &Config,
    ) -> Result<impl FnOnce(Arc<Ruleset>) -> Snapshot + Send + use<>, StartError> {
        let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut next = HashMap::new();
        let mut backends = Vec::with_capacity(config.providers.len());
        for provider in &config.providers {
            let mut own = Vec::with_capacity(provider.base_urls.len());
            for url in &provider.base_urls {
                let key = target_key(provider, url)?;
                let (address, host, prefix) = (key.1, key.2.clone(), key.3.clone());
                let tls = client_tls(provider, url)?;
                let fresh = || Arc::new(Target::new(address, host, prefix, tls));
                let target = targets.get(&key).cloned().unwrap_or_else(fresh);
                own.push(Arc::clone(&target));
                next.insert(key, target);
            }
            backends.push(Backend {
                id: provider.id.clone(),
                api: provider.api,
                targets: own,
                credential: provider.api_key.as_ref().map(|key| Secret(key.expose().to_owned())),
            });
        }
        let published = Arc::clone(&self.targets);
        let (routes, prices) = (config.routes.clone(), config.prices.clone());
        let (require_key, http) = (config.require_key, http_bounds(&config.http));
        Ok(move |ruleset: Arc<Ruleset>| {
            *published.lock().unwrap_or_else(PoisonError::into_inner) = next;
            let version = ruleset.version();
            Snapshot { version, ruleset, routes, prices, backends, require_key, http }
        })
    }
}

fn target_key(provider: &Provider, url: &BaseUrl) -> Result<TargetKey, StartError> {
    let address =
        url.resolve().map_err(|error| StartError::new(format!("provider `{}`: {error}", provider.id)))?;
    let roots = provider.tls.as_ref().filter(|_| url.secure).map(|tls| tls.roots);
    Ok((provider.id.clone(), address, url.host_header.clone(), url.prefix.clone(), roots))
}

fn client_tls(provider: &Provider, url: &BaseUrl) -> Result<Option<ClientTls>, StartError> {
    let Some(tls) = provider.tls.as_ref().filter(|_| url.secure) else { return Ok(None) };
    let name = url.server_name().ok_or_else(|| {
        StartError::new(format!("provider `{}`: no certificate can be for its host", provider.id))
    })?;
    Ok(Some(ClientTls { config: tls.config.clone(), name }))
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

    use control::config::Credentials;

    use super::*;

    fn config(providers: &str) -> Config {
        let text = format!("providers: [ {providers} ]");
        Config::parse(&text, Path::new("gateway.yaml"), Credentials::Unused, &|_| None)
            .expect("a config")
            .config
    }

    #[test]
    fn a_target_that_stays_keeps_what_is_known_of_it() {
        let wiring = Wiring::default();
        let publish = |providers: &str| {
            let snapshot = wiring.snapshot(&config(providers)).expect("resolved");
            snapshot(Arc::new(Ruleset::empty(1)))
        };
        let east = r#"{ id: east, api: openai, base_urls: ["http://127.0.0.1:1", "http://127.0.0.1:2/v9"] }"#;
        let west = r#"{ id: west, api: openai, base_urls: ["http://127.0.0.1:1"] }"#;
        let first = publish(&format!("{east}, {west}"));
        let _busy = first.backends[0].targets[1].occupy();
        assert!(!Arc::ptr_eq(&first.backends[0].targets[0], &first.backends[1].targets[0]), "one a provider");
        // What is readied and never published changes nothing.
        drop(wiring.snapshot(&config(west)).expect("resolved"));
        let absent = r#"{ id: x, api: openai, base_urls: ["http://no-such-host.invalid:1"] }"#;
        assert!(wiring.snapshot(&config(absent)).is_err());
        let moved = east.replace("127.0.0.1:1", "127.0.0.1:3");
        let second = publish(&format!("{west}, {moved}"));
        assert!(Arc::ptr_eq(&first.backends[1].targets[0], &second.backends[0].targets[0]));
        assert!(Arc::ptr_eq(&first.backends[0].targets[1], &second.backends[1].targets[1]));
        assert_eq!(second.backends[1].targets.iter().map(|target| target.busy()).collect::<Vec<_>>(), [0, 1]);
    }
}
