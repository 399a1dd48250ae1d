//! The management listener.
//!
//! Its own listener with its own credential: the root token is never looked at on the data plane, and a virtual key is
//! nothing here. In this version every management path answers 501 once the token is right.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::secret::Secret;

/// What the management paths begin with.
pub const PREFIX: &str = "/tt/v1/admin/";

/// The root token, kept as its hash: equal lengths make the comparison say nothing about the token's.
struct RootToken([u8; 32]);

impl RootToken {
    fn allows(&self, presented: &str) -> bool {
        let presented: [u8; 32] = Sha256::digest(presented.as_bytes()).into();
        self.0.ct_eq(&presented).into()
    }
}

/// The listener's routes.
pub fn router(token: &Secret) -> Router {
    let token = RootToken(Sha256::digest(token.expose().as_bytes()).into());
    Router::new().fallback(answer).with_state(Arc::new(token))
}

async fn answer(State(token): State<Arc<RootToken>>, request: Request) -> Response {
    let path = request.uri().path();
    if !path.starts_with(PREFIX) {
        return refuse(StatusCode::NOT_FOUND, "not_found", format!("there is nothing at {path}"));
    }
    if !bearer(request.headers()).is_some_and(|presented| token.allows(presented)) {
        let message = "the management API needs the header `Authorization: Bearer` with the root token";
        let mut response = refuse(StatusCode::UNAUTHORIZED, "unauthorized", message.to_owned());
        response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        return response;
    }
    refuse(StatusCode::NOT_IMPLEMENTED, "not_supported", format!("{path} is not yet supported"))
}

/// The one bearer credential of a request; the scheme in any case.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, credential) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| credential.trim())
}

fn refuse(status: StatusCode, code: &str, message: String) -> Response {
    let body: Value = json!({ "error": { "code": code, "message": message } });
    (status, Json(body)).into_response()
}
