//! Headers that the gateway adds to a success: the tightest rate caps and the alerts (SPEC §5).

use crate::endpoint::Dialect;
use crate::http1::Role;
use crate::http1::write::{write_header, write_number};
use engine::{RateLeft, Span};
use jiff::Timestamp;
use std::io::Write;

/// Append the rate headers for the tightest rpm and tpm of the chain, as whole lines.
///
/// OpenAI's names with Go durations, rounded up to the millisecond so that they stay ASCII; on Anthropic
/// paths its names with the moment of the reset, rounded up to the second. Returns the role of the
/// backend's headers that these stand in for, as [`crate::http1::write::RelayedHead::replaces`] wants it.
pub fn write_rate_headers(
    out: &mut Vec<u8>,
    dialect: Dialect,
    requests: Option<RateLeft>,
    tokens: Option<RateLeft>,
    now: Timestamp,
) -> Option<Role> {
    let anthropic = dialect == Dialect::Anthropic;
    for (kind, left) in [("requests", requests), ("tokens", tokens)] {
        let Some(left) = left else { continue };
        for (what, figure) in [("limit", left.limit), ("remaining", left.remaining)] {
            write_name(out, anthropic, kind, what);
            let _ = write!(out, "{}\r\n", figure.0);
        }
        write_name(out, anthropic, kind, "reset");
        let _ = match anthropic {
            true => write!(out, "{}\r\n", moment(now, left.reset)),
            false => write!(out, "{}\r\n", Span::from_millis(left.reset.as_millis_ceil()).go_string()),
        };
    }
    let any = requests.or(tokens).is_some();
    any.then_some(if anthropic { Role::AnthropicRateLimit } else { Role::RateLimit })
}

fn write_name(out: &mut Vec<u8>, anthropic: bool, kind: &str, what: &str) {
    let _ = match anthropic {
        true => write!(out, "anthropic-ratelimit-{kind}-{what}: "),
        false => write!(out, "x-ratelimit-{what}-{kind}: "),
    };
}

/// The first whole second at which `wait` is over.
fn moment(now: Timestamp, wait: Span) -> Timestamp {
    let at = now.as_nanosecond() + i128::from(wait.0);
    let second = i64::try_from(at.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
    let up = i64::from(at.rem_euclid(1_000_000_000) > 0);
    Timestamp::from_second(second.saturating_add(up)).unwrap_or(Timestamp::MAX)
}

/// Append `X-Tt-Alert: <limit id>`.
pub fn write_alert(out: &mut Vec<u8>, limit_id: &str) {
    write_text_header(out, "X-Tt-Alert", limit_id);
}

/// Append a header whose value is free text: ids come from the config and from callers of mint. Control
/// bytes are percent-encoded, so no id can end the line.
pub(super) fn write_text_header(out: &mut Vec<u8>, name: &str, text: &str) {
    if !text.bytes().any(|byte| byte.is_ascii_control()) {
        return write_header(out, name, text.trim_ascii().as_bytes());
    }
    let mut value = Vec::with_capacity(text.len() + 8);
    for byte in text.trim_ascii().bytes() {
        if byte.is_ascii_control() {
            let _ = write!(value, "%{byte:02X}");
        } else {
            value.push(byte);
        }
    }
    write_header(out, name, &value);
}

/// Append a header whose value is a whole number.
pub(super) fn write_number_header(out: &mut Vec<u8>, name: &str, number: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    write_number(out, number);
    out.extend_from_slice(b"\r\n");
}
