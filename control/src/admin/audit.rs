//! `audit`: the trail, newest first.

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::caller::Caller;
use super::cursor;
use super::error::{ApiError, ErrorBody};
use super::input::{self, Params};
use super::work;
use crate::store::{AuditFilter, AuditRow, Under};

/// A row of the trail.
#[derive(Serialize, ToSchema)]
pub struct AuditBody {
    /// Its number, from 1.
    seq: i64,
    at: String,
    /// root, a delegated admin's kid, cli:<user>, file or signal
    actor: String,
    action: String,
    target: String,
    /// The node that it is about.
    node: Option<String>,
    /// How it was before.
    before: Option<Value>,
    /// How it is after; of a refused write, what was tried.
    after: Option<Value>,
    /// `done`, or `refused: ` and why
    result: String,
    /// SHA-256 of the row and of the hash of the row before it.
    hash: String,
}

impl From<AuditRow> for AuditBody {
    fn from(row: AuditRow) -> AuditBody {
        let AuditRow { seq, at, actor, action, target, node, before, after, result, hash } = row;
        AuditBody { seq, at, actor, action, target, node, before, after, result, hash }
    }
}

/// A page of the trail.
#[derive(Serialize, ToSchema)]
pub struct AuditPageBody {
    /// Newest first.
    audit: Vec<AuditBody>,
    /// Where the next page begins; null on the last one.
    next_cursor: Option<String>,
}

/// The rows asked for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// At most so many rows.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Where the page before ended: its `next_cursor`.
    #[param(pattern = "^(3[0-9]){0,18}$")]
    cursor: Option<String>,
    /// By this actor.
    actor: Option<String>,
    /// Of this action, such as override.set.
    action: Option<String>,
    /// On this target: a kid, a node, a limit id.
    target: Option<String>,
    /// About this node or one below it.
    node: Option<String>,
}

/// The audit trail. A delegated admin sees what is about its subtree.
#[utoipa::path(
    get,
    path = "/tt/v1/admin/audit",
    operation_id = "list_audit",
    params(AuditQuery),
    responses(
        (status = 200, description = "The rows", body = AuditPageBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<AuditQuery>,
) -> Result<Json<AuditPageBody>, ApiError> {
    let count = input::count(query.limit)?;
    let wrong = || ApiError::invalid("cursor", "the cursor is not one that a list gave out");
    let before_seq = match cursor::after(query.cursor.as_deref())? {
        None => None,
        Some(text) => Some(text.parse::<i64>().map_err(|_| wrong())?),
    };
    if let Some(node) = &query.node {
        caller.may_act_on("node", node)?;
    }
    let filter = AuditFilter {
        under: Under::new(query.node.as_deref(), caller.bound()),
        actor: query.actor,
        action: query.action,
        target: query.target,
        before_seq,
    };
    work::read(&app, move |management| {
        let rows = management.state().store.audit_page(&filter, count + 1)?;
        let (rows, next_cursor) = cursor::cut(rows, count, |row| row.seq.to_string());
        Ok(Json(AuditPageBody { audit: rows.into_iter().map(AuditBody::from).collect(), next_cursor }))
    })
    .await
}
