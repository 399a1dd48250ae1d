//! `overrides`: another amount for one limit at one node. Stored and audited at once, in force from the next reload.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use engine::limits::Class;
use engine::{Attach, Limit, LimitId, LimitType, NodeId, Override, PicoUsd, Ruleset, Tree, Units};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::caller::Caller;
use super::cursor;
use super::error::{ApiError, ErrorBody};
use super::input::{Body, PageQuery, Params};
use super::limits::number;
use super::work::{self, Attempt};
use crate::bounds;
use crate::config::whole_number;
use crate::management::State as InForce;
use crate::store::{AuditEntry, OverrideRow};

/// One override.
#[derive(Serialize, ToSchema)]
pub struct OverrideBody {
    limit_id: String,
    node: String,
    /// The amount, of a limit that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, nullable = false)]
    amount: Option<Number>,
    /// The amount, of a limit that spends: exact decimal USD.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, nullable = false)]
    amount_usd: Option<Number>,
    /// Whether this amount is enforced now.
    in_force: bool,
    /// What the next reload does with it: create, update or delete; null when nothing.
    pending: Option<&'static str>,
    /// Why the last reload dropped it, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    dropped: Option<String>,
}

/// A page of the overrides.
#[derive(Serialize, ToSchema)]
pub struct OverridesBody {
    /// By limit id, then node.
    overrides: Vec<OverrideBody>,
    /// Where the next page begins; null on the last one.
    next_cursor: Option<String>,
}

/// An override to be stored.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverrideInput {
    /// The limit, one of the armed ones.
    limit_id: String,
    /// The node whose instance gets another amount.
    node: String,
    /// The amount, of a limit that counts: a whole number above zero.
    #[schema(value_type = Option<u64>, minimum = 1, nullable = false)]
    #[serde(default, deserialize_with = "super::keys::present")]
    amount: Option<Number>,
    /// The amount, of a limit that spends: decimal USD above zero.
    #[schema(value_type = Option<f64>, exclusive_minimum = 0, nullable = false)]
    #[serde(default, deserialize_with = "super::keys::present")]
    amount_usd: Option<Number>,
}

/// Which override is meant.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OverrideQuery {
    /// The limit.
    limit_id: String,
    /// The node.
    node: String,
}

/// What unit an override of a limit is in: the armed limit's, else the configured one's.
fn kind_of(state: &InForce, limit_id: &str) -> Option<LimitType> {
    let armed = state.ruleset.limit(&LimitId::new(limit_id)).map(|limit| limit.kind);
    armed.or_else(|| {
        let mut limits = state.config.governance.limits.iter();
        limits.find(|limit| limit.id.as_str() == limit_id).map(|limit| limit.kind)
    })
}

/// The members that show an amount. One of a limit that is gone shows none: whether it is money is not known.
fn figures(kind: Option<LimitType>, amount: u128) -> (Option<Number>, Option<Number>) {
    match kind {
        Some(kind) if kind.class() == Class::Spend => (None, number(kind.figure(Units(amount)))),
        Some(kind) => (number(kind.figure(Units(amount))), None),
        None => (None, None),
    }
}

fn body(state: &InForce, row: &OverrideRow, stored: bool) -> OverrideBody {
    let armed = state.runtime.amount(&row.limit_id, &row.node);
    let dropped = state.dropped.iter().find(|dropped| {
        let override_ = &dropped.override_;
        override_.limit_id.as_str() == row.limit_id && override_.node.as_str() == row.node
    });
    let pending = match (stored, armed) {
        (false, _) => Some("delete"),
        (true, None) => Some("create"),
        (true, Some(amount)) if amount != row.amount => Some("update"),
        (true, Some(_)) => None,
    };
    let (amount, amount_usd) = figures(kind_of(state, &row.limit_id), row.amount);
    OverrideBody {
        limit_id: row.limit_id.clone(),
        node: row.node.clone(),
        amount,
        amount_usd,
        in_force: armed == Some(row.amount) && dropped.is_none() && state.config.governance.enabled,
        pending,
        dropped: dropped.map(|dropped| dropped.reason.clone()),
    }
}

/// Every override that is stored, and every one that is removed and still in force; by limit id, then node.
fn all(state: &InForce, caller: &Caller) -> Result<Vec<(OverrideRow, bool)>, ApiError> {
    let stored = state.store.overrides()?;
    let is_stored = |row: &OverrideRow| {
        stored
            .binary_search_by(|known| (&known.limit_id, &known.node).cmp(&(&row.limit_id, &row.node)))
            .is_ok()
    };
    let removed: Vec<_> = state
        .runtime
        .overrides
        .iter()
        .filter(|row| !is_stored(row))
        .map(|row| (row.clone(), false))
        .collect();
    let mut rows: Vec<_> = stored.into_iter().map(|row| (row, true)).chain(removed).collect();
    rows.retain(|(row, _)| caller.sees(&NodeId::new(&row.node)));
    rows.sort_by(|(one, _), (other, _)| (&one.limit_id, &one.node).cmp(&(&other.limit_id, &other.node)));
    Ok(rows)
}

/// The overrides that the next reload brings in, changes or takes away; at most `count` of them.
pub fn pending(state: &InForce, caller: &Caller, count: usize) -> Result<Vec<OverrideBody>, ApiError> {
    let rows = all(state, caller)?;
    let differs = |(row, stored): &&(OverrideRow, bool)| {
        !stored || state.runtime.amount(&row.limit_id, &row.node) != Some(row.amount)
    };
    Ok(rows.iter().filter(differs).take(count).map(|(row, stored)| body(state, row, *stored)).collect())
}

/// What a list of overrides is ordered and continued by.
fn place(row: &OverrideRow) -> String {
    format!("{}\n{}", row.limit_id, row.node)
}

/// The overrides that are stored, those not in force yet and those dropped among them.
#[utoipa::path(
    get,
    path = "/tt/v1/admin/overrides",
    operation_id = "list_overrides",
    params(PageQuery),
    responses(
        (status = 200, description = "The overrides", body = OverridesBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Params(page): Params<PageQuery>,
) -> Result<Json<OverridesBody>, ApiError> {
    let (count, after) = (page.count()?, page.after()?);
    let after = after.map(|after| {
        let (limit_id, node) = after.split_once('\n').unwrap_or((&after, ""));
        (limit_id.to_owned(), node.to_owned())
    });
    work::read(&app, move |management| {
        let state = management.state();
        let mut rows = all(&state, &caller)?;
        if let Some((limit_id, node)) = after {
            rows.retain(|(row, _)| (&row.limit_id, &row.node) > (&limit_id, &node));
        }
        rows.truncate(count + 1);
        let (rows, next_cursor) = cursor::cut(rows, count, |(row, _)| place(row));
        let overrides = rows.iter().map(|(row, stored)| body(&state, row, *stored)).collect();
        Ok(Json(OverridesBody { overrides, next_cursor }))
    })
    .await
}

/// The amount that a body gives for a limit, in the limit's unit.
fn amount(limit: &Limit, input: &OverrideInput) -> Result<Units, ApiError> {
    let spends = limit.kind.class() == Class::Spend;
    let (right, wrong) = if spends { ("amount_usd", "amount") } else { ("amount", "amount_usd") };
    let given = |name| if name == "amount" { &input.amount } else { &input.amount_usd };
    let unit = limit.kind.unit();
    if given(wrong).is_some() {
        return Err(ApiError::invalid(
            wrong,
            format!("limit {:?} is in {unit}: give {right}", limit.id.as_str()),
        ));
    }
    let Some(figure) = given(right) else {
        return Err(ApiError::invalid(
            right,
            format!("limit {:?} is in {unit}: {right} is missing", limit.id.as_str()),
        ));
    };
    let text = figure.to_string();
    let units = if spends {
        PicoUsd::parse_usd(&text).map(Units::from).map_err(|error| error.to_string())
    } else {
        whole_number(&text, bounds::QUOTA_AMOUNT_MAX).map(Units)
    };
    match units {
        Ok(Units::ZERO) => Err(ApiError::refused("override_refused", right, "the amount must be above zero")),
        Ok(units) => Ok(units),
        Err(reason) => Err(ApiError::refused("override_refused", right, format!("{right} {reason}"))),
    }
}

/// Whether the override would hold, by the compiler's own rules, against the armed limit. A node that is created and not
/// armed yet counts as there: both come in with the next reload.
fn validate(state: &InForce, limit: &Limit, override_: &Override) -> Result<(), ApiError> {
    let node = &override_.node;
    let known = state.ruleset.tree().contains(node) || state.store.has_node(node.as_str())?;
    let pinned = match &limit.attach {
        Attach::Node(pinned) => Some(pinned.clone()),
        Attach::Level(_) => None,
    };
    let tree = Tree::new(Some(node.clone()).filter(|_| known).into_iter().chain(pinned));
    let compiled = Ruleset::compile(0, tree, vec![limit.clone()], Vec::new(), state.ruleset.key_nodes());
    let (ruleset, _) = compiled.map_err(ApiError::internal)?;
    ruleset
        .validate_override(override_)
        .map_err(|reason| ApiError::refused("override_refused", "", format!("override refused: {reason}")))
}

/// Stores an override, in place of one for the same limit and node.
#[utoipa::path(
    post,
    path = "/tt/v1/admin/overrides",
    operation_id = "create_override",
    request_body(content = OverrideInput),
    responses(
        (status = 201, description = "Stored", body = OverrideBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 404, description = "No such limit is armed", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 422, description = "The override would not hold", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn create(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    input: Body<OverrideInput>,
) -> Result<(StatusCode, Json<OverrideBody>), ApiError> {
    let attempt = Attempt::of_body("override.set", "limit_id", "node", &input.raw);
    work::write(&app, caller, attempt, move |management, caller| {
        let input = input.parsed?;
        caller.may_act_on("node", &input.node)?;
        let mut state = management.state();
        let limit = state.ruleset.limit(&LimitId::new(&input.limit_id)).cloned().ok_or_else(|| {
            ApiError::not_found("limit_not_found", format!("no limit {:?} is armed", input.limit_id))
        })?;
        let node = NodeId::new(&input.node);
        if !limit.kind.overridable() || !limit.overrides.allow {
            // Whatever the amount: the reason is the limit.
            let override_ = Override { limit_id: limit.id.clone(), node, amount: Units::ONE };
            return Err(validate(&state, &limit, &override_).err().unwrap_or_else(|| {
                ApiError::refused("override_refused", "limit_id", "the limit takes no override")
            }));
        }
        let units = amount(&limit, &input)?;
        validate(&state, &limit, &Override { limit_id: limit.id.clone(), node, amount: units })?;
        let row = OverrideRow { limit_id: input.limit_id, node: input.node, amount: units.0 };
        let before = state.store.override_amount(&row.limit_id, &row.node)?;
        let now = Timestamp::now();
        let entry = AuditEntry {
            at: now,
            actor: caller.name(),
            action: "override.set",
            target: &row.limit_id,
            node: Some(&row.node),
            before: before.map(|before| shown(&row, limit.kind, before)),
            after: Some(shown(&row, limit.kind, row.amount)),
            result: "done",
        };
        state.store.put_override(&row, now, &entry)?;
        Ok((StatusCode::CREATED, Json(body(&state, &row, true))))
    })
    .await
}

/// An override as the audit trail shows it.
fn shown(row: &OverrideRow, kind: LimitType, amount: u128) -> Value {
    let member = if kind.class() == Class::Spend { "amount_usd" } else { "amount" };
    json!({ "limit_id": row.limit_id, "node": row.node, member: number(kind.figure(Units(amount))) })
}

/// Removes an override. The limit's own amount is in force from the next reload on.
#[utoipa::path(
    delete,
    path = "/tt/v1/admin/overrides",
    operation_id = "delete_override",
    params(OverrideQuery),
    responses(
        (status = 200, description = "Removed", body = OverrideBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 404, description = "No such override is stored", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn remove(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Params(OverrideQuery { limit_id, node }): Params<OverrideQuery>,
) -> Result<Json<OverrideBody>, ApiError> {
    let tried = json!({ "limit_id": limit_id, "node": node });
    let attempt = Attempt::on("override.delete", &limit_id, &tried).at(&node);
    work::write(&app, caller, attempt, move |management, caller| {
        caller.may_act_on("node", &node)?;
        let mut state = management.state();
        let absent = || {
            let message = format!("no override of limit {limit_id:?} at node {node:?} is stored");
            ApiError::not_found("override_not_found", message)
        };
        let amount = state.store.override_amount(&limit_id, &node)?.ok_or_else(absent)?;
        let row = OverrideRow { limit_id: limit_id.clone(), node: node.clone(), amount };
        let before = match kind_of(&state, &limit_id) {
            Some(kind) => shown(&row, kind, amount),
            None => json!({ "limit_id": row.limit_id, "node": row.node, "stored": amount.to_string() }),
        };
        let entry = AuditEntry {
            at: Timestamp::now(),
            actor: caller.name(),
            action: "override.delete",
            target: &limit_id,
            node: Some(&node),
            before: Some(before),
            after: None,
            result: "done",
        };
        state.store.delete_override(&limit_id, &node, &entry)?;
        Ok(Json(body(&state, &row, false)))
    })
    .await
}
