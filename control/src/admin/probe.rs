//! `probe`: what one request would meet now, counting nothing.

use axum::extract::State;
use axum::{Extension, Json};
use engine::gates::Estimate;
use engine::limits::Class;
use engine::{
    Cause, Chain, Dims, Expected, Gate, Instance, ModelPrice, NodeId, Probe, ProbeAnswer, Reading, Refusal,
    Route, Scopes, Tokens, Units, Wait,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;

use super::App;
use super::caller::Caller;
use super::error::{ApiError, ErrorBody};
use super::input::Body;
use super::limits::number;
use super::work;
use crate::keys;
use crate::management::{Management, State as InForce};

/// The request to be tried: of a key or at a node.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeInput {
    /// The key, by its kid.
    key: Option<String>,
    /// Or the node; `__global` is traffic without a key.
    #[schema(min_length = 1, max_length = 512)]
    node: Option<String>,
    /// The model that it asks for.
    #[serde(default)]
    model: String,
    /// The path that it goes to, such as /v1/chat/completions.
    #[serde(default)]
    endpoint: String,
}

/// What the request would meet.
#[derive(Serialize, ToSchema)]
pub struct ProbeBody {
    verdict: VerdictBody,
    /// The nodes that it is counted through, deepest first.
    chain: Vec<String>,
    /// The provider that it would go to.
    provider: Option<String>,
    /// The model that would be served.
    served_model: Option<String>,
    /// Each cap that binds it: gate 1, then gate 2, each in the order in which they are evaluated.
    instances: Vec<CapBody>,
    /// The limits that do not bind it.
    dropped: Vec<DroppedLimitBody>,
    /// What else to know.
    warnings: Vec<String>,
}

/// How it would end.
#[derive(Serialize, ToSchema)]
struct VerdictBody {
    /// Whether it would be forwarded.
    admitted: bool,
    /// 200 when it would; else the status of the refusal.
    status: u16,
    /// Why, in a sentence.
    reason: String,
    /// The limit that the 429 would name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    refused_by: Option<String>,
}

/// One cap with its figures.
#[derive(Serialize, ToSchema)]
struct CapBody {
    limit_id: String,
    node: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// 1 or 2
    gate: u8,
    unit: &'static str,
    period: String,
    /// off, shadow, alert_only or hard
    posture: &'static str,
    suspended: bool,
    /// The amount in force here; USD where the unit is usd.
    #[schema(value_type = f64)]
    amount: Option<Number>,
    /// What counts in the current window.
    #[schema(value_type = f64)]
    observed: Option<Number>,
    /// What requests in flight hold.
    #[schema(value_type = f64)]
    held: Option<Number>,
    /// What is left.
    #[schema(value_type = f64)]
    remaining: Option<Number>,
    /// Whether part of what is observed was estimated.
    estimated: bool,
    /// Whether part of what was used had no price.
    unpriced: bool,
    /// End of the window, of calendar caps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    resets_at: Option<String>,
    /// Whether this cap would refuse the request.
    would_refuse: bool,
    /// Why it would.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
}

/// A limit that does not bind the request.
#[derive(Serialize, ToSchema)]
struct DroppedLimitBody {
    /// Its id.
    limit: String,
    /// The node that is to blame, if one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    node: Option<String>,
    /// Why.
    reason: String,
}

/// Tries a request without sending it: every cap that binds it with its figures, and the verdict.
#[utoipa::path(
    post,
    path = "/tt/v1/admin/probe",
    operation_id = "probe",
    request_body(content = ProbeInput),
    responses(
        (status = 200, description = "What it would meet", body = ProbeBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 404, description = "No such key", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 503, description = "The data plane or the database does not answer", body = ErrorBody),
    )
)]
pub async fn run(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    input: Body<ProbeInput>,
) -> Result<Json<ProbeBody>, ApiError> {
    work::read(&app, move |management| probe(management, &caller, &input.parsed?).map(Json)).await
}

/// Whose request it is.
struct Subject {
    chain: Chain,
    scopes: Scopes,
    /// Why a key would be turned away whatever it asks for.
    turned_away: Option<String>,
}

fn subject(state: &InForce, caller: &Caller, input: &ProbeInput) -> Result<Subject, ApiError> {
    match (&input.key, &input.node) {
        (None, None) => Err(ApiError::invalid("key", "give the kid of a key, or a node")),
        (Some(_), Some(_)) => Err(ApiError::invalid("node", "give a key or a node, not both")),
        (None, Some(node)) => {
            caller.may_act_on("node", node)?;
            let node = keys::parse_owner(node)
                .map_err(|reason| ApiError::invalid("node", reason.replace("owner", "node")))?;
            let scopes = Scopes { allow_passthrough: true, ..Scopes::default() };
            Ok(Subject { chain: Chain::of_node(&NodeId::new(&node)), scopes, turned_away: None })
        }
        (Some(kid), None) => {
            let row = state.store.key(kid)?;
            let row =
                row.ok_or_else(|| ApiError::not_found("key_not_found", format!("there is no key {kid:?}")))?;
            caller.may_act_on("key", &row.owner)?;
            let turned_away = match keys::state(&row, Timestamp::now()) {
                _ if row.admin => {
                    Some("it is a delegated admin's key, which the data plane does not take".to_owned())
                }
                "active" => None,
                state => Some(format!("the key is {state}")),
            };
            let chain = Chain::of_key(&NodeId::new(&row.owner), kid);
            Ok(Subject { chain, scopes: keys::scopes(&row)?, turned_away })
        }
    }
}

fn probe(management: &Management, caller: &Caller, input: &ProbeInput) -> Result<ProbeBody, ApiError> {
    let state = management.state();
    let subject = subject(&state, caller, input)?;
    let (config, ruleset) = (state.config.clone(), state.ruleset.clone());
    // The cores answer on their own threads: nobody waits for them under the lock.
    drop(state);
    let route = config.routes.find(&input.model);
    let provider = route.map(|route| route.provider.to_string());
    let served = route.map(|route| route.served_model.as_deref().unwrap_or(&input.model).to_owned());
    let price = served.as_ref().and_then(|served| config.prices.find(served));
    let asked = Probe {
        chain: subject.chain.clone(),
        model: input.model.clone(),
        provider: provider.clone().unwrap_or_default(),
        endpoint: input.endpoint.clone(),
        estimate: estimate(route, price),
    };
    let answer = management.probe(asked);
    let ProbeAnswer { caps, refusal } =
        answer.ok_or_else(|| ApiError::unavailable("the data plane did not answer in time"))?;
    let dims = Dims {
        model: &input.model,
        provider: provider.as_deref().unwrap_or_default(),
        endpoint: &input.endpoint,
    };
    let dropped =
        ruleset.explain(&subject.chain, &dims).dropped.into_iter().map(|dropped| DroppedLimitBody {
            limit: dropped.limit.id.to_string(),
            node: dropped.node.map(|node| node.to_string()),
            reason: dropped.reason,
        });
    let mut warnings = Vec::new();
    if input.model.is_empty() {
        warnings.push("no model is given: limits that match on one do not fit".to_owned());
    }
    let owner = subject.chain.nodes().iter().find(|node| node.level() != Some(engine::Level::Key));
    if let Some(node) = owner.filter(|node| !node.is_global() && !ruleset.tree().contains(node)) {
        warnings.push(format!("node {node:?} is not in the tenancy tree that is armed"));
    }
    Ok(ProbeBody {
        verdict: verdict(
            &subject,
            input,
            route,
            served.as_deref(),
            refusal.as_ref().map(|(_, refusal)| refusal),
        ),
        chain: subject.chain.nodes().iter().map(ToString::to_string).collect(),
        instances: caps.iter().map(|(instance, reading)| cap(instance, reading, refusal.as_ref())).collect(),
        dropped: dropped.collect(),
        served_model: served,
        provider,
        warnings,
    })
}

/// What gate 2 would hold for a request without text.
fn estimate(route: Option<&Route>, price: Option<&ModelPrice>) -> Estimate {
    let hold = route.map_or(Tokens::ZERO, |route| route.output_hold);
    let most = price.and_then(|price| price.max_output);
    let tokens = most.map_or(hold, |most| most.min(hold));
    Estimate {
        tokens,
        money: price.map(|price| price.estimate(&Expected { output: tokens, ..Expected::default() })),
    }
}

/// The verdict, in the order in which the data plane looks.
fn verdict(
    subject: &Subject,
    input: &ProbeInput,
    route: Option<&Route>,
    served: Option<&str>,
    refusal: Option<&Refusal>,
) -> VerdictBody {
    let ends =
        |status, reason: String| VerdictBody { admitted: status == 200, status, reason, refused_by: None };
    let (scopes, model) = (&subject.scopes, input.model.as_str());
    if let Some(reason) = &subject.turned_away {
        return ends(401, reason.clone());
    }
    if !input.endpoint.is_empty() && !scopes.allows_endpoint(&input.endpoint) {
        return ends(403, format!("the key's scope does not allow the endpoint {:?}", input.endpoint));
    }
    if !model.is_empty() {
        for model in [Some(model), served].into_iter().flatten() {
            if !scopes.allows_model(model) {
                return ends(403, format!("the key's scope does not allow the model {model:?}"));
            }
        }
        match route {
            None => return ends(404, format!("no route takes the model {model:?}")),
            Some(route) if !scopes.allows_provider(route.provider.as_str()) => {
                return ends(
                    403,
                    format!("the key's scope does not allow the provider {:?}", route.provider.as_str()),
                );
            }
            Some(_) => {}
        }
    }
    match refusal {
        None => ends(200, "every cap that binds it admits it".to_owned()),
        Some(refusal) => {
            let by = &refusal.refused_by().instance;
            let reason = format!("limit {:?} at {:?} refuses it", by.limit.id.as_str(), by.node.as_str());
            VerdictBody { refused_by: Some(by.limit.id.to_string()), ..ends(429, reason) }
        }
    }
}

fn cap(instance: &Instance, reading: &Reading, refusal: Option<&(Gate, Refusal)>) -> CapBody {
    let limit = &instance.limit;
    let figure = |units: Units| number(limit.kind.figure(units));
    let tripped = refusal.and_then(|(_, refusal)| {
        refusal.tripped.iter().find(|tripped| tripped.instance.identity == instance.identity)
    });
    let reason = tripped.map(|tripped| {
        let spend = if limit.kind.class() == Class::Spend { " USD" } else { "" };
        let why = match tripped.cause {
            Cause::Over => format!(
                "{}{spend} of {}{spend} are used",
                limit.kind.figure(tripped.observed),
                limit.kind.figure(instance.amount)
            ),
            Cause::HeldOnly => "requests in flight hold what is left of it".to_owned(),
            Cause::Unpriced => "the model has no price, and the limit fails closed".to_owned(),
            Cause::Unavailable => "it cannot be evaluated, and the limit fails closed".to_owned(),
        };
        match tripped.wait {
            Wait::For(span) => format!("{why}; it admits again in {}", span.go_string()),
            Wait::Never => format!("{why}; waiting does not help"),
        }
    });
    CapBody {
        limit_id: limit.id.to_string(),
        node: instance.node.to_string(),
        kind: limit.kind.name(),
        gate: if limit.kind.gate() == Gate::One { 1 } else { 2 },
        unit: limit.kind.unit(),
        period: limit.window.period_text().into_owned(),
        posture: limit.posture.word(),
        suspended: limit.suspended,
        amount: figure(instance.amount),
        observed: figure(reading.observed),
        held: figure(reading.held),
        remaining: figure(instance.amount.saturating_sub(reading.observed)),
        estimated: reading.estimated,
        unpriced: reading.unpriced,
        resets_at: reading.resets_at.map(|at| at.to_string()),
        would_refuse: tripped.is_some(),
        reason,
    }
}
