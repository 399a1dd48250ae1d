//! `/metrics`: what was measured, for whoever reaches this listener.
//!
//! It asks for no credential: what scrapes it should not hold the root token, and what it shows is bounded and names no key,
//! node or model. It is not part of the management API, so `openapi.json` leaves it out.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::{App, work};
use crate::metrics::{CONTENT_TYPE, InForce};

/// The figures, in the format that Prometheus reads.
pub async fn show(State(app): State<App>) -> Response {
    let text = work::read(&app, |management| {
        let state = management.state();
        let in_force = InForce {
            version: state.ruleset.version(),
            limits: state.ruleset.limits().len(),
            nodes: state.ruleset.tree().len(),
            keys: state.keys.len(),
        };
        drop(state);
        Ok(management.board().text(in_force))
    });
    match text.await {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => error.into_response(),
    }
}
