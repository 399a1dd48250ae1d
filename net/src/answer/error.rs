//! Every answer that is not a 429 and not a success, worded in the client's dialect (SPEC §5).
//!
//! A message says what is wrong, where, and what to do about it. `type` is the word that the OpenAI or
//! Anthropic API uses for the status, `code` the machine-readable reason, the same in both.

use super::{Escaped, To, write_json, write_quoted, write_word};
use crate::endpoint::Dialect;
use crate::http1::HeadError;
use crate::http1::write::write_header;
use crate::json::BodyError;
use std::fmt::{self, Write};

/// Why a request gets no answer from a backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure<'a> {
    /// The head is refused: 400, 417, 431, 501 or 505.
    Head(HeadError),
    /// The body is refused: 400.
    Body(&'a BodyError),
    /// The framing of the body broke: 400.
    Framing(&'a str),
    /// The body is no whole gzip, which its head says it is: 400.
    BrokenCoding,
    /// The body has a coding that is not read here: 415 (RFC 9110 §15.5.16).
    UnknownCoding,
    /// Two headers carry different credentials: 400.
    ConflictingCredentials,
    /// No credential where one is needed: 401.
    NoCredential,
    /// A credential that proves no live key: 401.
    InvalidKey,
    /// The key's scope leaves it out: 403. What (`model`, `provider`, `endpoint`), and its name.
    ScopeDenied(&'static str, &'a str),
    /// No route takes the model: 404.
    ModelNotFound(&'a str),
    /// No endpoint has this path: 404.
    UnknownEndpoint(&'a str),
    /// The path is served, but not by this method: 405. The methods that are allowed.
    Method(&'static str),
    /// The client did not send its request in time: 408.
    Slow,
    /// The body is larger than `http.max_body`, so many bytes: 413.
    BodyTooLarge(u64),
    /// No connection to the backend, or it ended before it answered: 502. The reason, without addresses.
    BadGateway(&'a str),
    /// The backend broke off inside its answer, before any of it was sent on: 502. The reason.
    BrokenAnswer(&'a str),
    /// The gateway cannot serve this now: 503. The reason.
    Unavailable(&'a str),
    /// The backend did not answer in time: 504. The reason.
    GatewayTimeout(&'a str),
}

impl Failure<'_> {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Failure::Head(error) => error.status,
            Failure::Body(_)
            | Failure::Framing(_)
            | Failure::BrokenCoding
            | Failure::ConflictingCredentials => 400,
            Failure::NoCredential | Failure::InvalidKey => 401,
            Failure::ScopeDenied(..) => 403,
            Failure::ModelNotFound(_) | Failure::UnknownEndpoint(_) => 404,
            Failure::Method(_) => 405,
            Failure::Slow => 408,
            Failure::BodyTooLarge(_) => 413,
            Failure::UnknownCoding => 415,
            Failure::BadGateway(_) | Failure::BrokenAnswer(_) => 502,
            Failure::Unavailable(_) => 503,
            Failure::GatewayTimeout(_) => 504,
        }
    }

    /// The machine-readable reason.
    pub fn code(&self) -> &'static str {
        match self {
            Failure::Head(error) => match error.status {
                431 => "request_headers_too_large",
                501 => "not_implemented",
                505 => "http_version_not_supported",
                _ => "malformed_request",
            },
            Failure::Framing(_) => "malformed_request",
            Failure::Body(_) | Failure::BrokenCoding => "invalid_request_body",
            Failure::UnknownCoding => "unsupported_content_encoding",
            Failure::ConflictingCredentials => "conflicting_credentials",
            Failure::NoCredential | Failure::InvalidKey => "invalid_api_key",
            Failure::ScopeDenied(..) => "scope_denied",
            Failure::ModelNotFound(_) => "model_not_found",
            Failure::UnknownEndpoint(_) => "unknown_endpoint",
            Failure::Method(_) => "method_not_allowed",
            Failure::Slow => "request_timeout",
            Failure::BodyTooLarge(_) => "request_too_large",
            Failure::BadGateway(_) | Failure::BrokenAnswer(_) => "bad_gateway",
            Failure::Unavailable(_) => "unavailable",
            Failure::GatewayTimeout(_) => "gateway_timeout",
        }
    }

    fn param(&self) -> Option<&'static str> {
        match self {
            Failure::Body(error) => error.param(),
            Failure::ModelNotFound(_) | Failure::ScopeDenied("model", _) => Some("model"),
            _ => None,
        }
    }

    /// The API's word for this kind of error.
    fn kind(&self, dialect: Dialect) -> &'static str {
        let anthropic = dialect == Dialect::Anthropic;
        match self.status() {
            401 if anthropic => "authentication_error",
            403 if anthropic => "permission_error",
            404 if anthropic => "not_found_error",
            413 if anthropic => "request_too_large",
            503 if anthropic => "overloaded_error",
            504 if anthropic => "timeout_error",
            500.. if anthropic => "api_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Head(error) => {
                write!(f, "The HTTP request is refused: {error}. The connection is closed.")
            }
            Failure::Framing(reason) => {
                write!(f, "The request body's framing is refused: {reason}. The connection is closed.")
            }
            Failure::Body(error) => write!(f, "Invalid request: {error}."),
            Failure::BrokenCoding => {
                f.write_str("Invalid request: the body is not whole in the coding that its Content-Encoding says it has.")
            }
            Failure::UnknownCoding => f.write_str(
                "The request body's Content-Encoding is not read here; send it plain, or in gzip, br or zstd alone.",
            ),
            Failure::ConflictingCredentials => f.write_str(
                "Two different API keys are given; give one, in Authorization, x-api-key or api-key.",
            ),
            Failure::NoCredential => f.write_str(
                "An API key is required; give it as `Authorization: Bearer <key>`, or in x-api-key or api-key.",
            ),
            Failure::InvalidKey => f.write_str(
                "The API key is not valid here: it is unknown, revoked or expired. Ask whoever minted it for a new one.",
            ),
            Failure::ScopeDenied(what, name) => write!(
                f,
                "This API key may not use the {what} `{name}`: its {what} scope leaves it out. `GET /tt/v1/me` shows \
                 the key's scopes."
            ),
            Failure::ModelNotFound(model) => write!(
                f,
                "The model `{model}` does not exist here: no route takes it. `GET /v1/models` lists the routes."
            ),
            Failure::UnknownEndpoint(path) => {
                write!(f, "Unknown endpoint `{path}`: this gateway serves no such path. Check its spelling.")
            }
            Failure::Method(allowed) => write!(f, "This path does not take that method; use {allowed}."),
            Failure::Slow => f.write_str("The request did not arrive in time; send it again on a new connection."),
            Failure::BodyTooLarge(bytes) => write!(
                f,
                "The request body is larger than this gateway takes (http.max_body, {bytes} bytes); send less."
            ),
            Failure::BadGateway(reason) => {
                write!(f, "The model backend could not be used: {reason}. Nothing was charged; try again.")
            }
            Failure::BrokenAnswer(reason) => {
                write!(f, "The model backend's answer could not be read to its end: {reason}. The request was charged.")
            }
            Failure::Unavailable(reason) => {
                write!(f, "The gateway cannot serve this request now: {reason}. Nothing was charged; try again.")
            }
            Failure::GatewayTimeout(reason) => {
                write!(f, "The model backend did not answer in time: {reason}. Nothing was charged; try again.")
            }
        }
    }
}

/// Append the whole answer to a request that failed.
pub fn write_failure(out: &mut Vec<u8>, to: &To<'_>, failure: &Failure<'_>) {
    let extra = |out: &mut Vec<u8>| match failure {
        Failure::NoCredential | Failure::InvalidKey => write_header(out, "WWW-Authenticate", b"Bearer"),
        Failure::Method(allowed) => write_header(out, "Allow", allowed.as_bytes()),
        Failure::UnknownCoding => write_header(out, "Accept-Encoding", b"gzip, br, zstd, identity"),
        Failure::Unavailable(_) => write_header(out, "Retry-After", b"1"),
        _ => {}
    };
    write_json(out, to, failure.status(), extra, |out| {
        // Writing into a vector cannot fail.
        let message = |out: &mut Vec<u8>| _ = write!(Escaped(out), "{failure}");
        open(out, to, message, failure.kind(to.dialect), failure.code(), failure.param());
        close(out, to);
    });
}

/// Begin an error document up to the members that all errors have; `close` ends it. `message` writes the inside of a JSON
/// string.
pub(super) fn open(
    out: &mut Vec<u8>,
    to: &To<'_>,
    message: impl FnOnce(&mut Vec<u8>),
    kind: &'static str,
    code: &'static str,
    param: Option<&'static str>,
) {
    if to.dialect == Dialect::Anthropic {
        out.extend_from_slice(br#"{"type":"error","error":{"#);
        write_word(out, "type", kind);
        write_quoted(out, "message", message);
    } else {
        out.extend_from_slice(br#"{"error":{"message":""#);
        message(out);
        out.extend_from_slice(br#"","type":""#);
        out.extend_from_slice(kind.as_bytes());
        out.push(b'"');
    }
    match param {
        Some(param) => write_word(out, "param", param),
        None => out.extend_from_slice(br#","param":null"#),
    }
    out.extend_from_slice(br#","code":""#);
    out.extend_from_slice(code.as_bytes());
    out.push(b'"');
}

pub(super) fn close(out: &mut Vec<u8>, to: &To<'_>) {
    out.push(b'}');
    if to.dialect == Dialect::Anthropic {
        write_quoted(out, "request_id", |out| out.extend_from_slice(to.request_id));
    }
    out.push(b'}');
}
