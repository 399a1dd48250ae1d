//! The keys about the process itself: listeners, cores, folders, HTTP bounds.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::Span;

use super::decode::{At, Decoder, Fields, is_variable_name, shown};
use super::{Admin, Credentials, Http, Workers, number, tls};
use crate::bounds;
use crate::secret::Secret;

/// `listen`, `127.0.0.1:8790` when absent.
pub fn listen(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<SocketAddr> {
    match fields.get("listen") {
        None => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 8790))),
        Some(at) => address(decoder, &at),
    }
}

fn address(decoder: &mut Decoder<'_>, at: &At<'_>) -> Option<SocketAddr> {
    let text = decoder.string(at)?;
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    if let Some(Ok(port)) = text.strip_prefix("localhost:").map(str::parse::<u16>) {
        return Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    decoder.error(at, format!("must be an IP address and a port, such as 127.0.0.1:8790, not {}", shown(at)));
    None
}

/// `admin`; the outer `Option` is "no error", the inner one "there is such a block".
pub fn admin(
    decoder: &mut Decoder<'_>,
    fields: &Fields<'_>,
    folder: &Path,
    credentials: Credentials,
) -> Option<Option<Admin>> {
    let Some(at) = fields.get("admin") else { return Some(None) };
    let fields = decoder.fields(at, &["listen", "token_env", "tls"])?;
    let listen = match fields.get("listen") {
        None => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 8791))),
        Some(at) => address(decoder, &at),
    };
    let token = decoder.required(&fields, "token_env").and_then(|at| secret(decoder, &at, credentials));
    let tls = tls::server(decoder, &fields, folder, credentials);
    Some(Some(Admin { listen: listen?, token: token?, tls: tls? }))
}

/// A credential by the name of its environment variable. It goes into a header, so it must be visible ASCII; an
/// error never shows it.
pub fn secret(decoder: &mut Decoder<'_>, at: &At<'_>, credentials: Credentials) -> Option<Option<Secret>> {
    let name = decoder.string(at)?;
    if !is_variable_name(&name) {
        decoder.error(at, format!("must be the name of an environment variable, not {}", shown(at)));
        return None;
    }
    if credentials == Credentials::Unused {
        return Some(None);
    }
    let wrong = match decoder.variable(&name) {
        None => "is not set",
        Some(value) if value.is_empty() => "is empty",
        Some(value) if !value.bytes().all(|byte| byte.is_ascii_graphic()) => {
            "holds a character that cannot stand in a header"
        }
        Some(value) => return Some(Some(Secret::new(value))),
    };
    decoder.error(at, format!("environment variable {name} {wrong}"));
    None
}

/// `workers`.
pub fn workers(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Workers> {
    let Some(at) = fields.get("workers") else { return Some(Workers::Auto) };
    let (text, _) = decoder.scalar(&at)?;
    if text == "auto" {
        return Some(Workers::Auto);
    }
    if number::integer(&text) == Err(number::NumberError::NotNumber) {
        decoder.error(&at, format!("must be auto or a number of cores, not {}", shown(&at)));
        return None;
    }
    let count = decoder.integer(&at, 1, bounds::WORKERS_MAX)?;
    usize::try_from(count).ok().map(Workers::Count)
}

/// `spin`; `0` is off.
pub fn spin(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Duration> {
    let Some(at) = fields.get("spin") else { return Some(Duration::from_micros(bounds::SPIN_US)) };
    duration(decoder, &at, Span::ZERO, Span(bounds::SPIN_MAX_US * 1_000))
        .map(|span| Duration::from_nanos(span.0))
}

/// `data_dir`, relative to the folder of the config file.
pub fn data_dir(decoder: &mut Decoder<'_>, fields: &Fields<'_>, folder: &Path) -> Option<PathBuf> {
    let text = match fields.get("data_dir") {
        None => "tokentriage-data".to_owned(),
        Some(at) => {
            let text = decoder.string(&at)?;
            if text.contains('\0') {
                decoder.error(&at, "holds a NUL character");
                return None;
            }
            text
        }
    };
    Some(folder.join(text))
}

/// `require_key`, off when absent.
pub fn require_key(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<bool> {
    match fields.get("require_key") {
        None => Some(false),
        Some(at) => decoder.word(&at, &[("on", true), ("off", false)]),
    }
}

/// The `http` block.
pub fn http(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Http> {
    let Some(at) = fields.get("http") else { return Some(Http::default()) };
    let known = [
        "max_head",
        "max_body",
        "header_timeout",
        "idle_timeout",
        "connect_timeout",
        "first_byte_timeout",
        "between_bytes_timeout",
        "drain_timeout",
    ];
    let fields = decoder.fields(at, &known)?;
    let default = Http::default();
    let max_head = size(decoder, &fields, "max_head", default.max_head as u64, bounds::MAX_HEAD);
    let max_body = size(decoder, &fields, "max_body", default.max_body, bounds::MAX_BODY);
    let header_timeout = timeout(decoder, &fields, "header_timeout", default.header_timeout);
    let idle_timeout = timeout(decoder, &fields, "idle_timeout", default.idle_timeout);
    let connect_timeout = timeout(decoder, &fields, "connect_timeout", default.connect_timeout);
    let first_byte_timeout = timeout(decoder, &fields, "first_byte_timeout", default.first_byte_timeout);
    let between_bytes_timeout =
        timeout(decoder, &fields, "between_bytes_timeout", default.between_bytes_timeout);
    let drain_timeout = timeout(decoder, &fields, "drain_timeout", default.drain_timeout);
    Some(Http {
        max_head: usize::try_from(max_head?).ok()?,
        max_body: max_body?,
        header_timeout: header_timeout?,
        idle_timeout: idle_timeout?,
        connect_timeout: connect_timeout?,
        first_byte_timeout: first_byte_timeout?,
        between_bytes_timeout: between_bytes_timeout?,
        drain_timeout: drain_timeout?,
    })
}

fn size(
    decoder: &mut Decoder<'_>,
    fields: &Fields<'_>,
    key: &str,
    default: u64,
    range: (u64, u64),
) -> Option<u64> {
    let Some(at) = fields.get(key) else { return Some(default) };
    let (text, _) = decoder.scalar(&at)?;
    let wrong = match number::size(&text) {
        Some(Ok(bytes)) if (range.0..=range.1).contains(&bytes) => return Some(bytes),
        Some(Ok(_) | Err(number::NumberError::Overflow)) => {
            format!("is out of range: from {} to {} bytes", range.0, range.1)
        }
        Some(Err(error)) => error.to_string(),
        None => format!("must be a size such as 64KiB, 1MiB or a number of bytes, not {}", shown(&at)),
    };
    decoder.error(&at, wrong);
    None
}

fn timeout(decoder: &mut Decoder<'_>, fields: &Fields<'_>, key: &str, default: Duration) -> Option<Duration> {
    let Some(at) = fields.get(key) else { return Some(default) };
    let (low, high) = (Span::from_millis(bounds::TIMEOUT_MS.0), Span::from_millis(bounds::TIMEOUT_MS.1));
    duration(decoder, &at, low, high).map(|span| Duration::from_nanos(span.0))
}

/// A Go duration within bounds, both inclusive.
pub fn duration(decoder: &mut Decoder<'_>, at: &At<'_>, low: Span, high: Span) -> Option<Span> {
    let (text, _) = decoder.scalar(at)?;
    let wrong = match Span::parse_go(&text) {
        Ok(span) if span < low => format!("must be at least {}", low.go_string()),
        Ok(span) if span > high => format!("must be at most {}", high.go_string()),
        Ok(span) => return Some(span),
        Err(error) => format!("must be a duration such as 30s, 1m or 1h30m, not {}: {error}", shown(at)),
    };
    decoder.error(at, wrong);
    None
}
