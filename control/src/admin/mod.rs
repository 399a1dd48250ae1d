//! The management API, on its own listener with its own credentials.
//!
//! A request passes: the connection's bounds ([`listener`]), the caller's credential ([`caller`]: the root token, or a
//! delegated admin's key; a data key is nothing here, and the root token is nothing on the data plane), the body read whole
//! within its bound ([`input`]), and one handler. Handlers say what they may answer, and `openapi.json` is generated
//! from that. What a handler does, it does under the lock of [`Management`] on a thread that may wait for the disk
//! ([`work`]); a write that is refused is audited there, in one place, so that no handler can forget it.
//!
//! To add a resource: a file with its handlers, and a line in [`router`].

mod audit;
mod caller;
mod cursor;
mod error;
mod input;
mod keys;
mod limits;
mod listener;
mod metrics;
mod nodes;
mod overrides;
mod probe;
mod reload;
#[cfg(test)]
mod tests;
mod usage;
mod work;

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::routing::get;
use axum::{Json, Router, middleware};
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::management::Management;
use crate::secret::Secret;
use caller::RootToken;
use error::ApiError;

pub use listener::serve;

/// What the management paths begin with.
pub const PREFIX: &str = "/tt/v1/admin/";

/// What every handler is given.
#[derive(Clone)]
pub(crate) struct App {
    management: Arc<Management>,
    token: Arc<RootToken>,
}

#[derive(OpenApi)]
#[openapi(
    info(title = "tokentriage management API", description = "What an operator does while traffic flows."),
    security(("token" = [])),
    modifiers(&Bearer)
)]
struct Description;

/// Every path wants a bearer credential.
struct Bearer;

impl utoipa::Modify for Bearer {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        openapi.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// The listener's routes.
pub fn router(management: Arc<Management>, token: &Secret) -> Router {
    let app = App { management, token: Arc::new(RootToken::new(token)) };
    let (router, description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(limits::list))
        .routes(routes!(limits::suspend))
        .routes(routes!(limits::resume))
        .routes(routes!(nodes::list, nodes::create, nodes::remove))
        .routes(routes!(overrides::list, overrides::create, overrides::remove))
        .routes(routes!(keys::list, keys::mint))
        .routes(routes!(keys::show, keys::change, keys::remove))
        .routes(routes!(keys::revoke))
        .routes(routes!(keys::rotate))
        .routes(routes!(audit::list))
        .routes(routes!(usage::list))
        .routes(routes!(probe::run))
        .routes(routes!(reload::run))
        .split_for_parts();
    router
        .route("/tt/v1/admin/openapi.json", get(move || async move { Json(description) }))
        .route("/metrics", get(metrics::show))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), caller::authenticate))
        .with_state(app)
}

async fn nothing_here(State(_): State<App>, uri: Uri) -> ApiError {
    ApiError::not_found("not_found", format!("there is nothing at {}", uri.path()))
}

async fn wrong_method(uri: Uri) -> ApiError {
    ApiError::method_not_allowed(uri.path())
}
