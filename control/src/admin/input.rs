//! What a request brings: its body, its query, the names in its path. Unknown fields are refused, and whatever is wrong
//! is told in the one form that every refusal has.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::cursor;
use super::error::ApiError;
use crate::bounds;

/// A JSON body: an object. None, or null, is `{}`. What is wrong with it is told by the handler, so that a refused write is audited
/// whatever it was refused for.
pub struct Body<T> {
    /// What was sent, for the audit trail.
    pub raw: Value,
    /// What it says.
    pub parsed: Result<T, ApiError>,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Body<T>, Infallible> {
        let read = axum::body::to_bytes(request.into_body(), bounds::ADMIN_BODY_BYTES);
        let bytes = match tokio::time::timeout(Duration::from_millis(bounds::ADMIN_BODY_MS), read).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(_)) => {
                let parsed = Err(ApiError::too_large(bounds::ADMIN_BODY_BYTES));
                return Ok(Body { raw: Value::Null, parsed });
            }
            Err(_) => return Ok(Body { raw: Value::Null, parsed: Err(ApiError::too_slow()) }),
        };
        Ok(read_body(if matches!(bytes.trim_ascii(), b"" | b"null") { b"{}" } else { &bytes }))
    }
}

fn read_body<T: DeserializeOwned>(bytes: &[u8]) -> Body<T> {
    let raw = match serde_json::from_slice(bytes) {
        // A list of values in the order of the members would be read as well.
        Ok(
            value @ (Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)),
        ) => {
            let parsed = Err(ApiError::invalid("", "the body must be a JSON object"));
            return Body {
                raw: if bytes.len() <= bounds::AUDITED_BODY_BYTES { value } else { Value::Null },
                parsed,
            };
        }
        Ok(value) if bytes.len() <= bounds::AUDITED_BODY_BYTES => value,
        Ok(_) => json!({ "bytes": bytes.len() }),
        Err(error) => {
            let parsed = Err(ApiError::invalid("", format!("the body is not JSON: {error}")));
            return Body { raw: Value::Null, parsed };
        }
    };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let message = error.inner().to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        ApiError::invalid(&blamed(&error.path().to_string(), &message), message)
    });
    Body { raw, parsed }
}

/// The field to blame: the path, or the name in the decoder's own sentence about one that is missing or not known.
fn blamed(path: &str, message: &str) -> String {
    let named = ["missing field `", "unknown field `", "duplicate field `"]
        .into_iter()
        .find_map(|words| message.strip_prefix(words)?.split('`').next());
    match (path, named) {
        (".", None) => String::new(),
        (_, Some(name)) => name.to_owned(),
        (path, None) => path.to_owned(),
    }
}

/// An object without members.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A query string.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Params<T>, ApiError> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Params(query)),
            Err(error) => {
                let message = error.body_text();
                let message = message.rsplit("query string: ").next().unwrap_or_default().to_owned();
                let field = message.split_once(": ").map_or("", |(field, _)| field);
                Err(ApiError::invalid(&blamed(if field.is_empty() { "." } else { field }, &message), message))
            }
        }
    }
}

/// The one name in a path.
pub struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Name, ApiError> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Name(name)),
            Err(error) => Err(ApiError::invalid("", error.body_text())),
        }
    }
}

/// Which part of a list is asked for.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// At most so many rows.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Where the page before ended: its `next_cursor`.
    #[param(pattern = "^([0-9a-f]{2})*$")]
    pub cursor: Option<String>,
}

impl PageQuery {
    /// How many rows.
    pub fn count(&self) -> Result<usize, ApiError> {
        count(self.limit)
    }

    /// After which row, as its list made the cursor.
    pub fn after(&self) -> Result<Option<String>, ApiError> {
        cursor::after(self.cursor.as_deref())
    }
}

/// How many rows a `limit` asks for.
pub fn count(limit: Option<u32>) -> Result<usize, ApiError> {
    match limit.map_or(bounds::PAGE_ROWS, |limit| limit as usize) {
        count if (1..=bounds::PAGE_ROWS).contains(&count) => Ok(count),
        _ => Err(ApiError::invalid("limit", format!("limit must be from 1 to {}", bounds::PAGE_ROWS))),
    }
}
