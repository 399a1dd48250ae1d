//! From the configuration's terms to the data plane's. Nothing is decided here.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use control::config::{BaseUrl, Config, Http, Provider, Workers};
use control::start::StartError;
use engine::{ProviderId, Ruleset};
use net::{Backend, HttpBounds, Secret, Settings, Snapshot, Target};

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

/// Provider, address, `Host` header, prefix: what makes a target the same one in another config.
type TargetKey = (ProviderId, SocketAddr, String, String);

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
                let fresh = || Arc::new(Target::new(address, host, prefix));
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
    Ok((provider.id.clone(), address, url.host_header.clone(), url.prefix.clone()))
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
