//! `usage`: what was spent.

use axum::extract::State;
use axum::{Extension, Json};
use serde::Deserialize;
use tokio::sync::Semaphore;
use utoipa::IntoParams;

use super::App;
use super::caller::Caller;
use super::error::{ApiError, ErrorBody};
use super::input::{self, Params};
use super::work;
use crate::bounds;
use crate::store::Store;
use crate::usage::{Asked, Query, UsageBody, spent_in};

/// A scan reads every row of its time, so few run at once; the others wait.
static SCANS: Semaphore = Semaphore::const_new(bounds::USAGE_SCANS);

/// What is asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// What to group by: any of node, key, model, served, provider, endpoint, hour and day, separated by commas;
    /// node,model,day if absent.
    by: Option<String>,
    /// Only this node and below.
    node: Option<String>,
    /// Only this key, by its kid.
    key: Option<String>,
    /// Only models asked for that match this pattern.
    model: Option<String>,
    /// From when on: a date, or a time, whose hour counts.
    from: Option<String>,
    /// Until when: a date, whose day counts, or a time.
    to: Option<String>,
    /// The zone of days; governance.timezone of the config if absent.
    timezone: Option<String>,
    /// Whether a node's row holds what was spent below it too; the totals count everything once.
    subtree: Option<bool>,
    /// At most so many rows.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Where the page before ended: its `next_cursor`.
    cursor: Option<String>,
}

/// What was spent, exact to the last digit. A delegated admin sees its subtree.
#[utoipa::path(
    get,
    path = "/tt/v1/admin/usage",
    operation_id = "list_usage",
    params(UsageQuery),
    responses(
        (status = 200, description = "The rows and the totals", body = UsageBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<UsageQuery>,
) -> Result<Json<UsageBody>, ApiError> {
    let limit = Some(input::count(query.limit)?);
    if let Some(node) = &query.node {
        caller.may_act_on("node", node)?;
    }
    let UsageQuery { by, node, key, model, from, to, timezone, subtree, limit: _, cursor } = query;
    let subtree = subtree.unwrap_or_default();
    let asked = Asked { by, node, key, model, from, to, timezone, subtree, limit, cursor };
    // Never closed, so it is always granted.
    let _turn = SCANS.acquire().await;
    work::read(&app, move |management| {
        // Its own connection: a scan takes its time, and nothing else is to wait for it.
        let config = management.config();
        let query = Query::read(&asked, &config.governance.timezone)
            .map_err(|wrong| ApiError::invalid(wrong.field, wrong.reason))?
            .seen_by(caller.bound());
        let store = Store::open_existing(&config.data_dir)?;
        let spent = spent_in(store.as_ref(), &query)?;
        Ok(Json(spent.body(&query)))
    })
    .await
}
