//! The config file: its schema, and reading it whole.
//!
//! The file is YAML with the schema of SPEC §2. Reading it answers either a [`Config`] or every error that it has,
//! each with path and line. What a config means is decided here and nowhere else: defaults, units, relative
//! paths (against the folder of the config file, so that every verb finds the same database from every folder).
//!
//! A setting whose behaviour this version does not have is an error that says "not yet supported": to accept and
//! ignore a setting of a governor is to let traffic through that somebody believes is stopped.

mod decode;
mod governance;
mod limits;
mod number;
mod prices;
mod providers;
mod server;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::{Limit, NodeId, PriceBook, ProviderId, Routes, Zone};
use rustls::pki_types::ServerName;

use decode::{At, Decoder};
pub use decode::{Environment, Finding};
pub use tls::{ClientTls, ServerTls};

use crate::bounds;
use crate::secret::Secret;
use crate::yaml;

/// A whole config.
#[derive(Debug)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// Where the data plane listens.
    pub listen: SocketAddr,
    /// What the data plane shows its clients; absent when it listens for plain HTTP.
    pub tls: Option<ServerTls>,
    /// The management listener; absent without an `admin` block.
    pub admin: Option<Admin>,
    /// How many cores serve.
    pub workers: Workers,
    /// How long a core with nothing to do looks for work before it sleeps, at most; zero for not at all.
    pub spin: Duration,
    /// The folder of `governance.db`.
    pub data_dir: PathBuf,
    /// Whether traffic without a key is refused.
    pub require_key: bool,
    /// Bounds of the HTTP side.
    pub http: Http,
    /// The model backends.
    pub providers: Vec<Provider>,
    /// Which model goes to which provider.
    pub routes: Routes,
    /// What tokens cost.
    pub prices: PriceBook,
    /// The price map that `prices.file` names.
    pub price_file: Option<PathBuf>,
    /// The tree and the limits.
    pub governance: Governance,
}

/// The management listener.
#[derive(Debug)]
pub struct Admin {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The root token; `None` only where credentials were not asked for ([`Credentials::Unused`]).
    pub token: Option<Secret>,
    /// What it shows its callers; absent when it listens for plain HTTP.
    pub tls: Option<ServerTls>,
}

/// How many cores serve.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Workers {
    /// As many as this process may use.
    Auto,
    /// This many.
    Count(usize),
}

/// Bounds of the HTTP side.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Http {
    /// Largest request head, in bytes.
    pub max_head: usize,
    /// Largest request body, in bytes.
    pub max_body: u64,
    /// From a connection's first byte of a request to the end of its head.
    pub header_timeout: Duration,
    /// A connection between two requests.
    pub idle_timeout: Duration,
    /// Connecting to a backend.
    pub connect_timeout: Duration,
    /// From the whole request sent to the backend's first byte.
    pub first_byte_timeout: Duration,
    /// Between two bytes of a backend.
    pub between_bytes_timeout: Duration,
    /// From the signal to stop to the end of the last exchange.
    pub drain_timeout: Duration,
}

impl Default for Http {
    fn default() -> Http {
        Http {
            max_head: 64 << 10,
            max_body: 64 << 20,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            connect_timeout: Duration::from_secs(2),
            first_byte_timeout: Duration::from_secs(300),
            between_bytes_timeout: Duration::from_secs(300),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// A model backend.
#[derive(Debug)]
pub struct Provider {
    /// Its id.
    pub id: ProviderId,
    /// The dialect it speaks.
    pub api: engine::Api,
    /// Where it is: at least one.
    pub base_urls: Vec<BaseUrl>,
    /// The credential put into each request; `None` without `api_key_env`, or under [`Credentials::Unused`].
    pub api_key: Option<Secret>,
    /// What its base URLs with TLS need; `None` when it has none.
    pub tls: Option<ClientTls>,
    /// Requests that it is sent at a time; `None` for any number.
    pub max_connections: Option<usize>,
}

/// A backend's base URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BaseUrl {
    /// Whether it is `https`.
    pub secure: bool,
    /// The host as written, an IPv6 address without its brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What stands before every path, without a slash at its end; mostly empty.
    pub prefix: String,
    /// The `Host` header: the host, and the port unless it is the scheme's own.
    pub host_header: String,
}

impl BaseUrl {
    /// Whom the backend's certificate must be for; there is one whenever the URL is `https`.
    pub fn server_name(&self) -> Option<ServerName<'static>> {
        ServerName::try_from(self.host.clone()).ok()
    }
}

/// The `governance` block.
#[derive(Debug)]
pub struct Governance {
    /// Whether anything of it is in force.
    pub enabled: bool,
    /// The time zone of calendar periods.
    pub timezone: Zone,
    /// Whether minted keys are nodes of the tree.
    pub key_nodes: bool,
    /// The declared nodes, in file order.
    pub nodes: Vec<NodeId>,
    /// The limits, in file order.
    pub limits: Vec<Limit>,
}

/// Whether the load needs the secrets that the config names by environment variable.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Credentials {
    /// An unset variable is an error: `serve`, `validate`.
    Needed,
    /// They are not looked at: `keys`, `govern preview`, `audit` work in a shell that does not have them.
    Unused,
}

/// A config that is right, and what to say about it.
#[derive(Debug)]
pub struct Loaded {
    /// The config.
    pub config: Config,
    /// What loads and has no effect.
    pub warnings: Vec<Finding>,
}

/// A config that is wrong: every error in it, and the warnings beside them.
#[derive(Debug)]
pub struct Rejected {
    /// The errors, by line; never empty.
    pub errors: Vec<Finding>,
    /// The warnings, by line.
    pub warnings: Vec<Finding>,
}

impl Rejected {
    fn whole_file(message: String) -> Rejected {
        Rejected { errors: vec![Finding { path: String::new(), line: 1, message }], warnings: Vec::new() }
    }
}

impl Config {
    /// Every other file whose content is part of the config.
    pub fn files(&self) -> Vec<&Path> {
        let ca_files = self.providers.iter().filter_map(|provider| provider.tls.as_ref()?.ca_file.as_deref());
        let listeners = [self.tls.as_ref(), self.admin.as_ref().and_then(|admin| admin.tls.as_ref())];
        let pairs =
            listeners.into_iter().flatten().flat_map(|tls| [tls.cert_file.as_path(), tls.key_file.as_path()]);
        self.price_file.as_deref().into_iter().chain(ca_files).chain(pairs).collect()
    }

    /// Reads a config file with the process' own environment.
    pub fn load(path: &Path, credentials: Credentials) -> Result<Loaded, Rejected> {
        Config::load_with(path, credentials, &process_environment)
    }

    /// The text of a config file.
    pub fn text(path: &Path) -> Result<String, Rejected> {
        read_bounded(path, bounds::CONFIG_BYTES).map_err(Rejected::whole_file)
    }

    /// Reads a config file with an environment given as a function.
    pub fn load_with(
        path: &Path,
        credentials: Credentials,
        environment: Environment<'_>,
    ) -> Result<Loaded, Rejected> {
        Config::parse(&Config::text(path)?, path, credentials, environment)
    }

    /// Reads a config from its text. `path` is what relative paths are relative to.
    pub fn parse(
        text: &str,
        path: &Path,
        credentials: Credentials,
        environment: Environment<'_>,
    ) -> Result<Loaded, Rejected> {
        let root = match yaml::parse(text) {
            Ok(Some(root)) if !root.is_null() => root,
            Ok(_) => return Err(Rejected::whole_file("the config is empty".to_owned())),
            Err(error) => {
                let finding = Finding { path: String::new(), line: error.mark.line, message: error.message };
                return Err(Rejected { errors: vec![finding], warnings: Vec::new() });
            }
        };
        let mut decoder = Decoder::new(environment);
        let config = whole(&mut decoder, At { node: &root, path: String::new() }, path, credentials);
        let (errors, warnings) = decoder.into_findings();
        match config {
            Some(config) if errors.is_empty() => Ok(Loaded { config, warnings }),
            _ if errors.is_empty() => Err(Rejected::whole_file("the config could not be read".to_owned())),
            _ => Err(Rejected { errors, warnings }),
        }
    }
}

/// The root mapping. Every part is read before the first missing one decides, so that all errors are seen.
fn whole(decoder: &mut Decoder<'_>, root: At<'_>, path: &Path, credentials: Credentials) -> Option<Config> {
    let known = [
        "listen",
        "tls",
        "admin",
        "workers",
        "spin",
        "data_dir",
        "require_key",
        "http",
        "providers",
        "routes",
        "prices",
        "governance",
    ];
    let fields = decoder.fields(root, &known)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let listen = server::listen(decoder, &fields);
    let tls = tls::server(decoder, &fields, folder, credentials);
    let admin = server::admin(decoder, &fields, folder, credentials);
    let workers = server::workers(decoder, &fields);
    let spin = server::spin(decoder, &fields);
    let data_dir = server::data_dir(decoder, &fields, folder);
    let require_key = server::require_key(decoder, &fields);
    let http = server::http(decoder, &fields);
    let providers = providers::providers(decoder, &fields, folder, credentials);
    let routes = providers::routes(decoder, &fields);
    let prices = prices::prices(decoder, &fields, folder, routes.as_ref());
    let governance = governance::governance(decoder, &fields);
    let (prices, price_file) = prices?;
    Some(Config {
        path: path.to_owned(),
        listen: listen?,
        tls: tls?,
        admin: admin?,
        workers: workers?,
        spin: spin?,
        data_dir: data_dir?,
        require_key: require_key?,
        http: http?,
        providers: providers?,
        routes: routes?,
        prices,
        price_file,
        governance: governance?,
    })
}

/// The line on which a path of a config's text stands, as near as the path leads: an item of a list is named by its
/// index. Line 1 when the text is no YAML.
pub fn line_of(text: &str, path: &[&str]) -> usize {
    let Ok(Some(root)) = yaml::parse(text) else { return 1 };
    let (mut node, mut line) = (&root, root.mark.line);
    for step in path {
        let next = match &node.value {
            yaml::Value::Mapping(entries) => {
                entries.iter().find(|entry| entry.key == *step).map(|entry| (&entry.value, entry.mark))
            }
            yaml::Value::Sequence(items) => {
                step.parse::<usize>().ok().and_then(|index| items.get(index)).map(|item| (item, item.mark))
            }
            yaml::Value::Scalar(_) => None,
        };
        let Some((found, mark)) = next else { break };
        (node, line) = (found, mark.line);
    }
    line
}

/// A whole number of at most `largest`, by its digits; the error is a sentence without its subject.
pub fn whole_number(text: &str, largest: u128) -> Result<u128, String> {
    match number::integer(text) {
        Ok(value) if value <= largest => Ok(value),
        Ok(_) | Err(number::NumberError::Overflow) => Err(format!("is out of range: at most {largest}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The environment of this process.
pub fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A text file of at most `bound` bytes; the error is a sentence without the path.
fn read_bounded(path: &Path, bound: u64) -> Result<String, String> {
    use std::io::Read;
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(bound + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > bound {
        return Err(format!("is larger than {bound} bytes"));
    }
    String::from_utf8(bytes)
        .map_err(|error| format!("is not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
}

#[cfg(test)]
mod tests;
