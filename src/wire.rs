//! From the configuration's terms to the data plane's. Nothing is decided here.

use std::sync::Arc;

use control::config::{BaseUrl, Config, Http, Provider, Workers};
use control::start::StartError;
use engine::Ruleset;
use net::{Backend, HttpBounds, Secret, Settings, Snapshot, Target};

/// What is fixed for the life of the process.
pub fn settings(config: &Config) -> Settings {
    let workers = match config.workers {
        Workers::Count(count) => count,
        Workers::Auto => std::thread::available_parallelism().map_or(1, usize::from),
    };
    Settings { listen: config.listen, workers }
}

/// What requests are judged and forwarded by. Host names are resolved here, off the cores.
///
/// # Errors
/// A host name that resolves to nothing.
pub fn snapshot(config: &Config, ruleset: Arc<Ruleset>) -> Result<Snapshot, StartError> {
    Ok(Snapshot {
        version: ruleset.version(),
        ruleset,
        routes: config.routes.clone(),
        prices: config.prices.clone(),
        backends: config.providers.iter().map(backend).collect::<Result<_, _>>()?,
        require_key: config.require_key,
        http: http_bounds(&config.http),
    })
}

fn backend(provider: &Provider) -> Result<Backend, StartError> {
    Ok(Backend {
        id: provider.id.clone(),
        api: provider.api,
        targets: provider.base_urls.iter().map(|url| target(provider, url)).collect::<Result<_, _>>()?,
        credential: provider.api_key.as_ref().map(|key| Secret(key.expose().to_owned())),
    })
}

fn target(provider: &Provider, url: &BaseUrl) -> Result<Arc<Target>, StartError> {
    let address =
        url.resolve().map_err(|error| StartError::new(format!("provider `{}`: {error}", provider.id)))?;
    Ok(Arc::new(Target::new(address, url.host_header.clone(), url.prefix.clone())))
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
