//! What the gateway itself says: errors in the client's dialect, the 429, `/tt/v1/me`, `/v1/models`, and
//! the headers that it adds to a success (SPEC §5, §6).
//!
//! Everything is appended to a reused buffer; money and counts are written as plain decimals from
//! integers, never through a float. No message holds a credential or a backend's address.

pub mod error;
pub mod headers;
pub mod me;
pub mod models;
pub mod refusal;
mod text;

pub use error::{Failure, write_failure};
pub use headers::{write_alert, write_rate_headers};
pub use me::write_me;
pub use models::write_models;
pub use refusal::write_refusal;

use crate::endpoint::Dialect;
use crate::http1::Version;
use crate::http1::write::{write_connection, write_header, write_number, write_status};
use crate::json::rewrite::{write_escaped, write_string};
use engine::Figure;
use std::fmt::{self, Write};

/// What every answer needs to know of its request.
#[derive(Clone, Copy, Debug)]
pub struct To<'a> {
    /// The dialect to word errors in; see [`Dialect::of_path`].
    pub dialect: Dialect,
    /// This request's id, for `x-request-id`: made here, so that no byte of it needs an escape.
    pub request_id: &'a [u8],
    /// The client's version.
    pub version: Version,
    /// Whether the connection stays open afterwards.
    pub keep_alive: bool,
    /// The request was a HEAD: the head says what a GET would get, and no body follows.
    pub head_only: bool,
}

/// Append a JSON answer: `extra` writes header lines, `body` the document.
///
/// The document's length stands in front of it: three digits are left for it, which nearly all documents take.
fn write_json(
    out: &mut Vec<u8>,
    to: &To<'_>,
    status: u16,
    extra: impl FnOnce(&mut Vec<u8>),
    body: impl FnOnce(&mut Vec<u8>),
) {
    write_status(out, status, reason(status).as_bytes());
    out.extend_from_slice(b"Content-Type: application/json\r\nx-request-id: ");
    out.extend_from_slice(to.request_id);
    out.extend_from_slice(b"\r\n");
    if to.dialect == Dialect::Anthropic {
        write_header(out, "request-id", to.request_id);
    }
    extra(out);
    write_connection(out, to.version, to.keep_alive);
    const LENGTH: &[u8] = b"Content-Length: 000\r\n\r\n";
    out.extend_from_slice(LENGTH);
    let from = out.len();
    body(out);
    let digits = from - LENGTH.len() + b"Content-Length: ".len();
    let mut length = itoa::Buffer::new();
    let length = length.format(out.len() - from).as_bytes();
    if to.head_only {
        out.truncate(from);
    }
    match out.get_mut(digits..digits + 3) {
        Some(place) if place.len() == length.len() => place.copy_from_slice(length),
        _ => _ = out.splice(digits..digits + 3, length.iter().copied()),
    }
}

/// Append a small JSON answer of the gateway itself, such as that of `/tt/v1/healthz`.
pub fn write_document(out: &mut Vec<u8>, to: &To<'_>, status: u16, document: &str) {
    write_json(out, to, status, |_| {}, |out| out.extend_from_slice(document.as_bytes()));
}

/// The reason phrase of a status that this gateway gives.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}

/// Formats into the inside of a JSON string.
struct Escaped<'a>(&'a mut Vec<u8>);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_escaped(self.0, text);
        Ok(())
    }
}

/// Append `"name":"text"`, with a comma in front unless it begins an object.
#[inline]
fn write_member(out: &mut Vec<u8>, name: &str, text: &str) {
    write_name(out, name);
    write_string(out, text);
}

/// Append `"name":"word"`, where `word` is one of this program's own: none of them needs an escape.
#[inline]
fn write_word(out: &mut Vec<u8>, name: &str, word: &'static str) {
    write_quoted(out, name, |out| out.extend_from_slice(word.as_bytes()));
}

/// Append `"name":"..."`, where `inside` writes the inside of a JSON string.
fn write_quoted(out: &mut Vec<u8>, name: &str, inside: impl FnOnce(&mut Vec<u8>)) {
    write_name(out, name);
    out.push(b'"');
    inside(out);
    out.push(b'"');
}

/// Append `"name":raw`: booleans, null, and what begins with a bracket.
#[inline]
fn write_raw(out: &mut Vec<u8>, name: &str, raw: &str) {
    write_name(out, name);
    out.extend_from_slice(raw.as_bytes());
}

#[inline]
fn write_flag(out: &mut Vec<u8>, name: &str, flag: bool) {
    write_raw(out, name, if flag { "true" } else { "false" });
}

/// Append `"name":figure`.
fn write_figure_member(out: &mut Vec<u8>, name: &str, figure: Figure) {
    write_name(out, name);
    write_figure(out, figure);
}

/// Append a figure as plain decimals. Nearly all are counts, for which the standard formatter would take ten times as long.
fn write_figure(out: &mut Vec<u8>, figure: Figure) {
    match figure.count() {
        Some(count) => write_number(out, count),
        // No digit or point is escaped, and writing into a vector cannot fail.
        None => _ = write!(Escaped(out), "{figure}"),
    }
}

#[inline]
fn write_name(out: &mut Vec<u8>, name: &str) {
    if !matches!(out.last(), Some(b'{' | b'[')) {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Append the member `resets_at`, which begins no object: `"2026-09-01T00:00:00Z"`, or null.
fn write_resets_at(out: &mut Vec<u8>, at: Option<jiff::Timestamp>) {
    match at {
        Some(at) => {
            // Writing into a vector cannot fail.
            write_quoted(out, "resets_at", |out| _ = write!(Escaped(out), "{}", whole_seconds(at)));
        }
        None => out.extend_from_slice(br#","resets_at":null"#),
    }
}

/// RFC 3339 in UTC, whole seconds.
fn whole_seconds(at: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests;
