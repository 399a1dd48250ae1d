//! `providers` and `routes`.

use std::collections::{HashMap, HashSet};
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::Arc;

use engine::{Api, Glob, ProviderId, Route, Routes, Tokens};
use rustls::pki_types::ServerName;

use super::decode::{At, Decoder, Fields, shown};
use super::{BaseUrl, Credentials, Provider, server, tls};
use crate::bounds;
use crate::yaml::Value;

/// An id that can stand in a header, a path and a log: letters, digits, `-`, `_`, `.`.
pub fn id(decoder: &mut Decoder<'_>, at: &At<'_>) -> Option<String> {
    let text = decoder.string(at)?;
    if text.len() > bounds::ID_BYTES {
        decoder.error(at, format!("is longer than {} characters", bounds::ID_BYTES));
        return None;
    }
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        decoder.error(at, format!("{} may have letters, digits, `-`, `_` and `.` only", shown(at)));
        return None;
    }
    Some(text)
}

/// An id under `key` that must be there.
pub fn required_id(decoder: &mut Decoder<'_>, fields: &Fields<'_>, key: &str) -> Option<String> {
    match fields.spelt(key) {
        Some(at) => id(decoder, &at),
        None => {
            decoder.required(fields, key);
            None
        }
    }
}

/// Notes a duplicate id; answers whether the id is new.
pub fn is_new(decoder: &mut Decoder<'_>, seen: &mut HashMap<String, usize>, id: &str, at: &At<'_>) -> bool {
    if let Some(line) = seen.get(id) {
        decoder.error(at, format!("the id {id:?} is given twice (first on line {line})"));
        return false;
    }
    seen.insert(id.to_owned(), at.node.mark.line);
    true
}

/// A `path.Match` pattern.
pub fn glob(decoder: &mut Decoder<'_>, at: &At<'_>) -> Option<Glob> {
    let text = decoder.string(at)?;
    if text.len() > engine::bounds::PATTERN_BYTES {
        decoder.error(at, format!("is longer than {} bytes", engine::bounds::PATTERN_BYTES));
        return None;
    }
    match Glob::new(&text) {
        Ok(glob) => Some(glob),
        Err(error) => {
            decoder.error(at, format!("{} is not a pattern: {error}", shown(at)));
            None
        }
    }
}

/// `providers`.
pub fn providers(
    decoder: &mut Decoder<'_>,
    fields: &Fields<'_>,
    folder: &Path,
    credentials: Credentials,
) -> Option<Vec<Provider>> {
    let Some(at) = fields.get("providers") else { return Some(Vec::new()) };
    let items = decoder.list(&at)?;
    let mut seen = HashMap::new();
    let read: Vec<_> =
        items.into_iter().map(|item| provider(decoder, item, &mut seen, folder, credentials)).collect();
    read.into_iter().collect()
}

fn provider(
    decoder: &mut Decoder<'_>,
    item: At<'_>,
    seen: &mut HashMap<String, usize>,
    folder: &Path,
    credentials: Credentials,
) -> Option<Provider> {
    let fields =
        decoder.fields(item, &["id", "api", "base_urls", "api_key_env", "tls", "max_connections"])?;
    let id = required_id(decoder, &fields, "id")
        .filter(|id| fields.spelt("id").is_none_or(|at| is_new(decoder, seen, id, &at)));
    let apis = [("openai", Api::OpenAi), ("anthropic", Api::Anthropic), ("ollama", Api::Ollama)];
    let api = decoder.required(&fields, "api").and_then(|at| decoder.word(&at, &apis));
    let base_urls = decoder.required(&fields, "base_urls").and_then(|at| base_urls(decoder, &at));
    let api_key = match fields.get("api_key_env") {
        None => Some(None),
        Some(at) => server::secret(decoder, &at, credentials),
    };
    // A URL that is wrong is told already; that the block has no effect would be one word too many.
    let secure = base_urls.as_ref().is_none_or(|urls| urls.iter().any(|url| url.secure));
    let tls = tls::client(decoder, &fields, folder, credentials, secure);
    let max_connections = match fields.get("max_connections") {
        None => Some(None),
        Some(at) => {
            decoder.integer(&at, 1, bounds::CONNECTIONS_MAX).and_then(|n| usize::try_from(n).ok()).map(Some)
        }
    };
    Some(Provider {
        id: ProviderId::new(&id?),
        api: api?,
        base_urls: base_urls?,
        api_key: api_key?,
        tls: tls?,
        max_connections: max_connections?,
    })
}

fn base_urls(decoder: &mut Decoder<'_>, at: &At<'_>) -> Option<Vec<BaseUrl>> {
    let items = decoder.list(at)?;
    if items.is_empty() {
        decoder.error(at, "must name at least one URL");
        return None;
    }
    let read: Vec<_> = items
        .iter()
        .map(|item| {
            let text = decoder.string(item)?;
            match base_url(&text) {
                Ok(url) => Some(url),
                Err(message) => {
                    decoder.error(item, message);
                    None
                }
            }
        })
        .collect();
    read.into_iter().collect()
}

/// Reads `http://host[:port][/prefix]`, or the same with `https`. The message never repeats the URL: it may have come from the environment.
pub fn base_url(text: &str) -> Result<BaseUrl, String> {
    let (secure, usual, rest) = match text.split_once("://") {
        Some(("http", rest)) => (false, "80", rest),
        Some(("https", rest)) => (true, "443", rest),
        _ => return Err("must be a URL such as https://api.example.com or http://127.0.0.1:8000".to_owned()),
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    if authority.contains('@') {
        return Err("must not hold a user name; a credential belongs in api_key_env".to_owned());
    }
    if text.contains(['?', '#']) {
        return Err("must not have a query or a fragment".to_owned());
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"' | b'<' | b'>')) {
        return Err("holds a character that a URL cannot have".to_owned());
    }
    let prefix = path.trim_end_matches('/');
    if prefix.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")) {
        return Err("has an empty, `.` or `..` segment in its path".to_owned());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => {
            let (host, after) = inner.split_once(']').ok_or("has `[` without `]`")?;
            host.parse::<Ipv6Addr>().map_err(|_| "has no IPv6 address between its brackets")?;
            (
                host,
                after
                    .strip_prefix(':')
                    .or(after.is_empty().then_some(usual))
                    .ok_or("has text after its `]`")?,
            )
        }
        None => authority.split_once(':').unwrap_or((authority, usual)),
    };
    let usual_port = port == usual;
    let digits = !port.starts_with('0') && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port.parse::<u16>() {
        Ok(port) if digits => port,
        _ => return Err("has a port that is not a number from 1 to 65535".to_owned()),
    };
    if host.is_empty() || (!authority.starts_with('[') && !is_host(host)) {
        return Err("has no host name or IP address".to_owned());
    }
    let shown = if authority.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    if secure && ServerName::try_from(host).is_err() {
        return Err("has a host that no certificate can be for".to_owned());
    }
    let host_header = if usual_port { shown } else { format!("{shown}:{port}") };
    Ok(BaseUrl { secure, host: host.to_owned(), port, prefix: prefix.to_owned(), host_header })
}

fn is_host(host: &str) -> bool {
    host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

/// `routes`. Needs the ids that `providers` declares, read from the tree so that a broken provider does not make
/// its routes wrong too.
pub fn routes(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Routes> {
    let Some(at) = fields.get("routes") else { return Some(Routes::new(Vec::new())) };
    let declared = declared_providers(fields);
    let items = decoder.list(&at)?;
    let mut patterns: HashMap<String, usize> = HashMap::new();
    let read: Vec<_> = items.into_iter().map(|item| route(decoder, item, &declared, &mut patterns)).collect();
    read.into_iter().collect::<Option<Vec<_>>>().map(Routes::new)
}

fn declared_providers(fields: &Fields<'_>) -> HashSet<String> {
    let Some(Value::Sequence(items)) = fields.get("providers").map(|at| &at.node.value) else {
        return HashSet::new();
    };
    let ids = items.iter().filter_map(|item| match &item.value {
        Value::Mapping(entries) => entries.iter().find(|entry| entry.key == "id"),
        _ => None,
    });
    ids.filter_map(|entry| match &entry.value.value {
        Value::Scalar(scalar) => Some(scalar.text.clone()),
        _ => None,
    })
    .collect()
}

fn route(
    decoder: &mut Decoder<'_>,
    item: At<'_>,
    declared: &HashSet<String>,
    patterns: &mut HashMap<String, usize>,
) -> Option<Route> {
    let fields = decoder.fields(item, &["model", "provider", "served_model", "output_hold", "estimate"])?;
    let model = decoder.required(&fields, "model").and_then(|at| {
        let glob = glob(decoder, &at)?;
        if let Some(line) = patterns.get(glob.pattern()) {
            decoder.warn(
                &at,
                format!("is never reached: line {line} has the same pattern, and the first match wins"),
            );
        }
        patterns.entry(glob.pattern().to_owned()).or_insert(at.node.mark.line);
        Some(glob)
    });
    let provider = required_id(decoder, &fields, "provider").and_then(|id| {
        let at = fields.spelt("provider")?;
        // Compared as written: an id made by the environment is written the same way in both places.
        let raw = matches!(&at.node.value, Value::Scalar(scalar) if declared.contains(&scalar.text));
        if !raw && !declared.contains(&id) {
            decoder.error(&at, format!("names a provider that is not declared: {id:?}"));
            return None;
        }
        Some(id)
    });
    let served_model = match fields.get("served_model") {
        None => Some(None),
        Some(at) => decoder.string(&at).map(|text| Some(Arc::from(text.as_str()))),
    };
    let output_hold = match fields.get("output_hold") {
        None => Some(Route::DEFAULT_OUTPUT_HOLD),
        Some(at) => {
            let hold = decoder.integer(&at, 0, bounds::OUTPUT_HOLD_MAX);
            hold.and_then(|hold| u64::try_from(hold).ok()).map(Tokens)
        }
    };
    let learns = match fields.get("estimate") {
        None => Some(false),
        Some(at) => decoder.word(&at, &[("request", false), ("learned", true)]),
    };
    Some(Route {
        model: model?,
        provider: ProviderId::new(&provider?),
        served_model: served_model?,
        output_hold: output_hold?,
        learns: learns?,
    })
}
