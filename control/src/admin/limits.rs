//! `limits`: the armed definitions, and suspending one of them.

use axum::extract::State;
use axum::{Extension, Json};
use engine::limits::{Class, DIM_NAMES};
use engine::{Admit, Algorithm, Attach, Limit, NodeId, Ruleset, Window};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Number, Value, json};
use utoipa::ToSchema;

use super::App;
use super::caller::Caller;
use super::cursor;
use super::error::{ApiError, ErrorBody};
use super::input::{Body, Name, Nothing, PageQuery, Params};
use super::overrides::{OverrideBody, pending};
use super::work::{self, Attempt};
use crate::store::AuditEntry;

/// What the list says about overrides that are stored and not in force yet.
const NOTE: &str = "definitions are the ARMED limits enforced now; overrides are persisted runtime writes that take \
                    effect on the NEXT governance reload (compile-bound). No override is reported as live-enforced here.";

/// The armed limits.
#[derive(Serialize, ToSchema)]
pub struct LimitsBody {
    /// The version in force.
    version: u64,
    /// The definitions, in ascending id.
    limits: Vec<LimitBody>,
    /// What an override that is stored here means.
    note: &'static str,
    /// Overrides that the next reload brings in, changes or takes away; as many as the page has room for.
    pending_overrides: Vec<OverrideBody>,
    /// Where the next page begins; null on the last one.
    next_cursor: Option<String>,
}

/// One armed limit. Members that would say "as usual" are left out.
#[derive(Serialize, ToSchema)]
pub struct LimitBody {
    limit_id: String,
    limit_type: &'static str,
    /// count or spend
    class: &'static str,
    unit: &'static str,
    /// A Go duration, a calendar period, or empty for concurrency.
    period: String,
    /// off, shadow, alert_only or hard
    posture: &'static str,
    /// template or pinned
    attach: &'static str,
    /// Of a template: the level.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    level: Option<&'static str>,
    /// Of a pinned limit: the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    node: Option<String>,
    /// The amount in force, of a limit that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, nullable = false)]
    amount_count: Option<Number>,
    /// The amount in force, of a limit that spends: exact decimal USD.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, nullable = false)]
    amount_usd: Option<Number>,
    override_allowed: bool,
    /// The largest amount an override may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, nullable = false)]
    override_max_count: Option<Number>,
    /// The same, of a limit that spends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, nullable = false)]
    override_max_usd: Option<Number>,
    /// Which requests it is about, where not all.
    #[serde(rename = "match", skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object, required = false)]
    matches: Map<String, Value>,
    /// fixed_window or token_bucket, where not sliding_window.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    algorithm: Option<&'static str>,
    /// if_fits, where not while_under.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    admit: Option<&'static str>,
    /// The time zone of its calendar period, where not UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    timezone: Option<String>,
    /// closed, where not open.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    fail: Option<&'static str>,
    /// Why it can never select anything, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    inert: Option<&'static str>,
    /// Whether it is suspended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    suspended: bool,
}

/// A figure of a limit's type as an exact JSON number.
pub fn number(figure: impl std::fmt::Display) -> Option<Number> {
    serde_json::from_str(&figure.to_string()).ok()
}

impl LimitBody {
    fn of(limit: &Limit, ruleset: &Ruleset) -> LimitBody {
        let spends = limit.kind.class() == Class::Spend;
        let amount = number(limit.kind.figure(limit.amount));
        let ceiling = limit.overrides.effective_ceiling().filter(|_| limit.override_allowed());
        let ceiling = ceiling.and_then(|units| number(limit.kind.figure(units)));
        let (attach, level, node) = match &limit.attach {
            Attach::Level(level) => ("template", Some(level.name()), None),
            Attach::Node(node) => ("pinned", None, Some(node.to_string())),
        };
        let patterns = DIM_NAMES.into_iter().zip(limit.matches.patterns());
        let matches = patterns.filter_map(|(dim, pattern)| Some((dim.to_owned(), pattern?.pattern().into())));
        let (algorithm, timezone) = match &limit.window {
            Window::Rolling { algorithm, .. } => {
                (Some(algorithm.name()).filter(|_| *algorithm != Algorithm::SlidingWindow), None)
            }
            Window::Calendar { zone, .. } => (None, Some(zone.name.to_string()).filter(|name| name != "UTC")),
            Window::Live => (None, None),
        };
        LimitBody {
            limit_id: limit.id.to_string(),
            limit_type: limit.kind.name(),
            class: limit.kind.class().name(),
            unit: limit.kind.unit(),
            period: limit.window.period_text().into_owned(),
            posture: limit.posture.word(),
            attach,
            level,
            node,
            amount_count: amount.clone().filter(|_| !spends),
            amount_usd: amount.filter(|_| spends),
            override_allowed: limit.override_allowed(),
            override_max_count: ceiling.clone().filter(|_| !spends),
            override_max_usd: ceiling.filter(|_| spends),
            matches: matches.collect(),
            algorithm,
            admit: Some(limit.admit.name()).filter(|_| limit.admit != Admit::WhileUnder),
            timezone,
            fail: Some(limit.posture.fail.name()).filter(|word| *word != "open"),
            inert: limit.inert_reason(ruleset.key_nodes()),
            suspended: limit.suspended,
        }
    }
}

/// Whether a limit has an instance in the caller's subtree.
fn shows(caller: &Caller, limit: &Limit, ruleset: &Ruleset) -> bool {
    let Some(own) = caller.bound() else { return true };
    match &limit.attach {
        Attach::Node(node) => caller.sees(node),
        Attach::Level(level) => {
            // In lexical order the node itself comes first, then, a little later, all that begins with it and a slash.
            let nodes = ruleset.tree().nodes_at(*level);
            let below = NodeId::new(&format!("{own}/"));
            let place = nodes.partition_point(|node| *node < below);
            own.in_charset()
                && (nodes.binary_search(own).is_ok() || nodes.get(place).is_some_and(|node| own.covers(node)))
        }
    }
}

/// The limits that are enforced now.
#[utoipa::path(
    get,
    path = "/tt/v1/admin/limits",
    operation_id = "list_limits",
    params(PageQuery),
    responses(
        (status = 200, description = "The armed definitions", body = LimitsBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Params(page): Params<PageQuery>,
) -> Result<Json<LimitsBody>, ApiError> {
    let (count, after) = (page.count()?, page.after()?);
    work::read(&app, move |management| {
        let state = management.state();
        let ruleset = &state.ruleset;
        let rows = ruleset
            .limits()
            .iter()
            .filter(|limit| after.as_ref().is_none_or(|after| limit.id.as_str() > after.as_str()))
            .filter(|limit| shows(&caller, limit, ruleset))
            .take(count + 1)
            .map(|limit| LimitBody::of(limit, ruleset))
            .collect();
        let (limits, next_cursor) = cursor::cut(rows, count, |row| row.limit_id.clone());
        let pending_overrides = pending(&state, &caller, count)?;
        Ok(Json(LimitsBody {
            version: ruleset.version(),
            limits,
            note: NOTE,
            pending_overrides,
            next_cursor,
        }))
    })
    .await
}

/// What has become of a limit.
#[derive(Serialize, ToSchema)]
pub struct SuspensionBody {
    limit_id: String,
    suspended: bool,
}

/// Suspends a limit at once: it is neither evaluated nor counted until it is resumed, also after a restart.
#[utoipa::path(
    post,
    path = "/tt/v1/admin/limits/{limit_id}/suspend",
    operation_id = "suspend_limit",
    params(("limit_id" = String, Path, description = "The limit")),
    request_body(content = Option<Nothing>),
    responses(
        (status = 200, description = "Suspended", body = SuspensionBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Only the root token may suspend", body = ErrorBody),
        (status = 404, description = "No such limit is armed", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn suspend(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Name(limit_id): Name,
    body: Body<Nothing>,
) -> Result<Json<SuspensionBody>, ApiError> {
    set_suspended(app, caller, limit_id, body, true).await
}

/// Resumes a limit at once, with the usage that it had before.
#[utoipa::path(
    post,
    path = "/tt/v1/admin/limits/{limit_id}/resume",
    operation_id = "resume_limit",
    params(("limit_id" = String, Path, description = "The limit")),
    request_body(content = Option<Nothing>),
    responses(
        (status = 200, description = "Resumed", body = SuspensionBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Only the root token may resume", body = ErrorBody),
        (status = 404, description = "No such limit is armed or suspended", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Name(limit_id): Name,
    body: Body<Nothing>,
) -> Result<Json<SuspensionBody>, ApiError> {
    set_suspended(app, caller, limit_id, body, false).await
}

async fn set_suspended(
    app: App,
    caller: Caller,
    limit_id: String,
    body: Body<Nothing>,
    suspended: bool,
) -> Result<Json<SuspensionBody>, ApiError> {
    let action = if suspended { "limit.suspend" } else { "limit.resume" };
    let attempt = Attempt::on(action, &limit_id, &body.raw);
    work::write(&app, caller, attempt, move |management, caller| {
        body.parsed?;
        caller.must_be_root("suspend or resume a limit")?;
        let state = management.state();
        let armed = state.ruleset.limit(&engine::LimitId::new(&limit_id));
        let before = state.runtime.suspended.contains(&limit_id);
        let leftover = before && !suspended;
        if armed.is_none() && !leftover {
            return Err(ApiError::not_found("limit_not_found", format!("no limit {limit_id:?} is armed")));
        }
        drop(state);
        let entry = AuditEntry {
            at: Timestamp::now(),
            actor: caller.name(),
            action,
            target: &limit_id,
            node: None,
            before: Some(json!({ "suspended": before })),
            after: Some(json!({ "suspended": suspended })),
            result: if before == suspended { "done: it was so before" } else { "done" },
        };
        management.set_suspended(&limit_id, suspended, &entry)?;
        Ok(Json(SuspensionBody { limit_id, suspended }))
    })
    .await
}
