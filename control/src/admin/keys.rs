//! `keys`: minting, listing, changing, rotating and revoking, live at once.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use engine::{Kid, NodeId};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::caller::Caller;
use super::cursor;
use super::error::{ApiError, ErrorBody};
use super::input::{self, Body, Name, Nothing, Params};
use super::work::{self, Attempt};
use crate::bounds;
use crate::keys::{self, Changes, Expiry, MintRequest, Minted, Revoked};
use crate::management::{Management, State as InForce};
use crate::store::{KeyRow, Under};

/// A key, without its secret.
#[derive(Serialize, ToSchema)]
pub struct KeyBody {
    kid: String,
    /// The node that it belongs to.
    owner: String,
    /// A name for people.
    name: Option<String>,
    /// Patterns of the models it may ask for; null: any.
    models: Option<Vec<String>>,
    /// Patterns of the providers; null: any.
    providers: Option<Vec<String>>,
    /// Patterns of the endpoints; null: any.
    endpoints: Option<Vec<String>>,
    allow_passthrough: bool,
    /// Whether it is a delegated admin of its owner node, valid here and not on the data plane.
    admin: bool,
    /// active, expired or revoked
    state: &'static str,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    /// When the last request came with it, admitted or not, a second or so late; null: never.
    last_used_at: Option<String>,
}

impl KeyBody {
    fn of(row: KeyRow, now: Timestamp) -> KeyBody {
        let state = keys::state(&row, now);
        let text = |at: Option<Timestamp>| at.map(|at| at.to_string());
        let (created_at, expires_at) = (row.created_at.to_string(), text(row.expires_at));
        let (revoked_at, last_used_at) = (text(row.revoked_at), text(row.last_used_at));
        let KeyRow { kid, owner, name, models, providers, endpoints, allow_passthrough, admin, .. } = row;
        KeyBody {
            kid,
            owner,
            name,
            models,
            providers,
            endpoints,
            allow_passthrough,
            admin,
            state,
            created_at,
            expires_at,
            revoked_at,
            last_used_at,
        }
    }
}

/// A page of keys.
#[derive(Serialize, ToSchema)]
pub struct KeysBody {
    /// By kid.
    keys: Vec<KeyBody>,
    /// Where the next page begins; null on the last one.
    next_cursor: Option<String>,
}

/// A key that was just minted.
#[derive(Serialize, ToSchema)]
pub struct MintedBody {
    #[serde(flatten)]
    row: KeyBody,
    /// The whole credential, shown this once.
    key: String,
    /// What works otherwise than one may think.
    warnings: Vec<String>,
}

/// The keys asked for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct KeysQuery {
    /// At most so many rows.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Where the page before ended: its `next_cursor`.
    #[param(pattern = "^([0-9a-f]{2})*$")]
    cursor: Option<String>,
    /// Keys of this node and of the nodes below it.
    owner: Option<String>,
}

/// A key to be minted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MintInput {
    /// The node that it belongs to, taken as given.
    #[schema(min_length = 1, max_length = 512)]
    owner: String,
    /// A name for people.
    #[schema(max_length = 256)]
    name: Option<String>,
    /// Patterns of the models it may ask for; absent: any.
    #[schema(max_items = 1000)]
    models: Option<Vec<String>>,
    /// Patterns of the providers; absent: any.
    #[schema(max_items = 1000)]
    providers: Option<Vec<String>>,
    /// Patterns of the endpoints; absent: any.
    #[schema(max_items = 1000)]
    endpoints: Option<Vec<String>>,
    /// Whether endpoints that the gateway does not understand may be passed through.
    #[serde(default)]
    allow_passthrough: bool,
    /// When it stops working: `90s`, `24h`, `30d`, or a time such as `2030-01-01T00:00:00Z`.
    expires: Option<String>,
    /// Whether to make it a delegated admin of its owner node instead of a key of the data plane.
    #[serde(default)]
    admin: bool,
}

/// What to change of a key. What is absent stays as it is; null takes a scope, a name or an expiry away.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeInput {
    /// A name for people.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, max_length = 256)]
    name: Option<Option<String>>,
    /// Patterns of the models it may ask for; null: any.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Vec<String>>, max_items = 1000)]
    models: Option<Option<Vec<String>>>,
    /// Patterns of the providers; null: any.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Vec<String>>, max_items = 1000)]
    providers: Option<Option<Vec<String>>>,
    /// Patterns of the endpoints; null: any.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Vec<String>>, max_items = 1000)]
    endpoints: Option<Option<Vec<String>>>,
    /// Whether endpoints that the gateway does not understand may be passed through.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    allow_passthrough: Option<bool>,
    /// When it stops working; null: never.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    expires: Option<Option<String>>,
}

/// How to rotate a key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateInput {
    /// How long the old key still works: `0s`, `1h`, `7d`; a day when absent.
    #[schema(pattern = "^(0s|[1-9][0-9]{0,3}[smhd])$")]
    overlap: Option<String>,
}

/// A member that may be null, told apart from one that is absent.
fn given<'d, T: Deserialize<'d>, D: Deserializer<'d>>(reader: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(reader).map(Some)
}

/// A member that may be absent and not null.
pub fn present<'d, T: Deserialize<'d>, D: Deserializer<'d>>(reader: D) -> Result<Option<T>, D::Error> {
    T::deserialize(reader).map(Some)
}

fn check_patterns(param: &str, patterns: Option<&Vec<String>>) -> Result<(), ApiError> {
    let Some(patterns) = patterns else { return Ok(()) };
    if patterns.len() > bounds::SCOPE_PATTERNS {
        let message = format!("{param} has more than {} patterns", bounds::SCOPE_PATTERNS);
        return Err(ApiError::invalid(param, message));
    }
    for (index, pattern) in patterns.iter().enumerate() {
        keys::check_pattern(pattern)
            .map_err(|reason| ApiError::invalid(&format!("{param}[{index}]"), reason))?;
    }
    Ok(())
}

fn check_name(name: Option<&String>) -> Result<(), ApiError> {
    match name {
        Some(name) if name.len() > bounds::KEY_NAME_BYTES || name.contains(char::is_control) => {
            let message =
                format!("a name is at most {} bytes without control characters", bounds::KEY_NAME_BYTES);
            Err(ApiError::invalid("name", message))
        }
        _ => Ok(()),
    }
}

fn expiry(text: &str) -> Result<Expiry, ApiError> {
    Expiry::parse(text).map_err(|reason| ApiError::invalid("expires", reason))
}

/// What to know about the owner of a new key.
fn warnings(state: &InForce, owner: &str, admin: bool) -> Result<Vec<String>, ApiError> {
    let owner = NodeId::new(owner);
    let known = owner.is_global()
        || state.ruleset.tree().contains(&owner)
        || state.declared.binary_search(&owner).is_ok()
        || state.store.has_node(owner.as_str())?;
    let mut found: Vec<_> = keys::owner_warning(&owner, known).into_iter().collect();
    if admin && !owner.in_charset() {
        found.push(format!("an admin of {owner:?} may do nothing: its node is out of charset"));
    }
    Ok(found)
}

/// The key, if the caller may act on it.
fn find(state: &InForce, caller: &Caller, kid: &str) -> Result<KeyRow, ApiError> {
    let row = state.store.key(kid)?;
    let row = row.ok_or_else(|| ApiError::not_found("key_not_found", format!("there is no key {kid:?}")))?;
    caller.may_act_on("kid", &row.owner)?;
    Ok(row)
}

/// Tells the data plane of keys that it may know.
fn publish(management: &Management, rows: &[&KeyRow]) -> Result<(), ApiError> {
    let kids: Vec<_> = rows.iter().filter(|row| !row.admin).filter_map(|row| Kid::parse(&row.kid)).collect();
    if kids.is_empty() { Ok(()) } else { Ok(management.take_keys(&kids)?) }
}

fn minted_body(minted: Minted, warnings: Vec<String>, now: Timestamp) -> MintedBody {
    MintedBody { row: KeyBody::of(minted.row, now), key: minted.credential.expose().to_owned(), warnings }
}

/// The keys, revoked ones too.
#[utoipa::path(
    get,
    path = "/tt/v1/admin/keys",
    operation_id = "list_keys",
    params(KeysQuery),
    responses(
        (status = 200, description = "The keys", body = KeysBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<KeysQuery>,
) -> Result<Json<KeysBody>, ApiError> {
    let count = input::count(query.limit)?;
    let after = cursor::after(query.cursor.as_deref())?;
    if let Some(owner) = &query.owner {
        caller.may_act_on("owner", owner)?;
    }
    let under = Under::new(query.owner.as_deref(), caller.bound());
    work::read(&app, move |management| {
        let rows = management.state().store.keys_page(&under, after.as_deref(), count + 1)?;
        let (rows, next_cursor) = cursor::cut(rows, count, |row| row.kid.clone());
        let now = Timestamp::now();
        Ok(Json(KeysBody { keys: rows.into_iter().map(|row| KeyBody::of(row, now)).collect(), next_cursor }))
    })
    .await
}

/// One key.
#[utoipa::path(
    get,
    path = "/tt/v1/admin/keys/{kid}",
    operation_id = "show_key",
    params(("kid" = String, Path, description = "The key's public id")),
    responses(
        (status = 200, description = "The key", body = KeyBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 404, description = "No such key", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Name(kid): Name,
) -> Result<Json<KeyBody>, ApiError> {
    work::read(&app, move |management| {
        let row = find(&management.state(), &caller, &kid)?;
        Ok(Json(KeyBody::of(row, Timestamp::now())))
    })
    .await
}

/// Mints a key. It works at once, and its secret is shown this once.
#[utoipa::path(
    post,
    path = "/tt/v1/admin/keys",
    operation_id = "mint_key",
    request_body(content = MintInput),
    responses(
        (status = 201, description = "Minted", body = MintedBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn mint(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    input: Body<MintInput>,
) -> Result<(StatusCode, Json<MintedBody>), ApiError> {
    let attempt = Attempt::of_body("key.mint", "owner", "owner", &input.raw);
    work::write(&app, caller, attempt, move |management, caller| {
        let input = input.parsed?;
        let owner = keys::parse_owner(&input.owner).map_err(|reason| ApiError::invalid("owner", reason))?;
        check_name(input.name.as_ref())?;
        for (param, patterns) in
            [("models", &input.models), ("providers", &input.providers), ("endpoints", &input.endpoints)]
        {
            check_patterns(param, patterns.as_ref())?;
        }
        let expires = input.expires.as_deref().map(expiry).transpose()?;
        caller.may_act_on("owner", &owner)?;
        let now = Timestamp::now();
        let until = expires.map(|expires| expires.from(now)).transpose()?;
        if until.is_some_and(|until| until <= now) {
            return Err(ApiError::invalid("expires", "the expiry has passed already"));
        }
        if input.admin {
            caller.may_grant_admin_until(until)?;
        }
        let mut state = management.state();
        let warnings = warnings(&state, &owner, input.admin)?;
        let request = MintRequest {
            owner,
            name: input.name,
            models: input.models,
            providers: input.providers,
            endpoints: input.endpoints,
            allow_passthrough: input.allow_passthrough,
            expires,
            admin: input.admin,
        };
        let minted = keys::mint(&mut state.store, request, caller.name(), now)?;
        drop(state);
        publish(management, &[&minted.row])?;
        Ok((StatusCode::CREATED, Json(minted_body(minted, warnings, now))))
    })
    .await
}

/// Changes a key's name, scopes or expiry, at once.
#[utoipa::path(
    patch,
    path = "/tt/v1/admin/keys/{kid}",
    operation_id = "change_key",
    params(("kid" = String, Path, description = "The key's public id")),
    request_body(content = ChangeInput),
    responses(
        (status = 200, description = "Changed", body = KeyBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 404, description = "No such key", body = ErrorBody),
        (status = 409, description = "The key is revoked", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn change(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Name(kid): Name,
    input: Body<ChangeInput>,
) -> Result<Json<KeyBody>, ApiError> {
    let attempt = Attempt::on("key.change", &kid, &input.raw);
    work::write(&app, caller, attempt, move |management, caller| {
        let mut state = management.state();
        let row = find(&state, caller, &kid)?;
        let input = input.parsed?;
        check_name(input.name.as_ref().and_then(Option::as_ref))?;
        for (param, patterns) in
            [("models", &input.models), ("providers", &input.providers), ("endpoints", &input.endpoints)]
        {
            check_patterns(param, patterns.as_ref().and_then(Option::as_ref))?;
        }
        let now = Timestamp::now();
        let expires_at = match &input.expires {
            None => None,
            Some(None) => Some(None),
            Some(Some(text)) => Some(Some(expiry(text)?.from(now)?)),
        };
        if let (true, Some(expires_at)) = (row.admin, expires_at) {
            caller.may_grant_admin_until(expires_at)?;
        }
        if row.revoked_at.is_some() {
            return Err(ApiError::conflict("kid", format!("key {kid} is revoked")));
        }
        let ChangeInput { name, models, providers, endpoints, allow_passthrough, .. } = input;
        let changes = Changes { name, models, providers, endpoints, allow_passthrough, expires_at };
        let after = keys::change(&mut state.store, row, changes, caller.name(), now)?;
        drop(state);
        publish(management, &[&after])?;
        Ok(Json(KeyBody::of(after, now)))
    })
    .await
}

/// Mints a key in place of another one, which still works for a while.
///
/// The new key has the owner, the scopes and the expiry of the old one, and a kid of its own.
#[utoipa::path(
    post,
    path = "/tt/v1/admin/keys/{kid}/rotate",
    operation_id = "rotate_key",
    params(("kid" = String, Path, description = "The old key's public id")),
    request_body(content = Option<RotateInput>),
    responses(
        (status = 201, description = "The new key", body = MintedBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 404, description = "No such key", body = ErrorBody),
        (status = 409, description = "The key is revoked or expired", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn rotate(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Name(kid): Name,
    input: Body<RotateInput>,
) -> Result<(StatusCode, Json<MintedBody>), ApiError> {
    let attempt = Attempt::on("key.rotate", &kid, &input.raw);
    work::write(&app, caller, attempt, move |management, caller| {
        let mut state = management.state();
        let row = find(&state, caller, &kid)?;
        let overlap = match input.parsed?.overlap.as_deref() {
            None => SignedDuration::from_secs(bounds::ROTATE_OVERLAP_SECS),
            Some("0s") => SignedDuration::ZERO,
            Some(text) => keys::parse_expiry(text).map_err(|reason| ApiError::invalid("overlap", reason))?,
        };
        let now = Timestamp::now();
        match keys::state(&row, now) {
            "active" => {}
            state => return Err(ApiError::conflict("kid", format!("key {kid} is {state}"))),
        }
        if row.admin {
            caller.may_grant_admin_until(row.expires_at)?;
        }
        let warnings = warnings(&state, &row.owner, row.admin)?;
        let (old, minted) = keys::rotate(&mut state.store, row, overlap, caller.name(), now)?;
        drop(state);
        publish(management, &[&old, &minted.row])?;
        Ok((StatusCode::CREATED, Json(minted_body(minted, warnings, now))))
    })
    .await
}

/// Revokes a key at once, also on connections that are open.
#[utoipa::path(
    post,
    path = "/tt/v1/admin/keys/{kid}/revoke",
    operation_id = "revoke_key",
    params(("kid" = String, Path, description = "The key's public id")),
    request_body(content = Option<Nothing>),
    responses(
        (status = 200, description = "Revoked", body = KeyBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 404, description = "No such key", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn revoke(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Name(kid): Name,
    body: Body<Nothing>,
) -> Result<Json<KeyBody>, ApiError> {
    end(app, caller, kid, Some(body)).await
}

/// The same as revoking: a key's row is kept for the audit trail.
#[utoipa::path(
    delete,
    path = "/tt/v1/admin/keys/{kid}",
    operation_id = "delete_key",
    params(("kid" = String, Path, description = "The key's public id")),
    responses(
        (status = 200, description = "Revoked", body = KeyBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 404, description = "No such key", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn remove(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Name(kid): Name,
) -> Result<Json<KeyBody>, ApiError> {
    end(app, caller, kid, None).await
}

async fn end(
    app: App,
    caller: Caller,
    kid: String,
    body: Option<Body<Nothing>>,
) -> Result<Json<KeyBody>, ApiError> {
    let attempt = Attempt::on("key.revoke", &kid, &json!({ "kid": kid }));
    work::write(&app, caller, attempt, move |management, caller| {
        if let Some(body) = body {
            body.parsed?;
        }
        let mut state = management.state();
        let row = find(&state, caller, &kid)?;
        let now = Timestamp::now();
        let outcome = keys::revoke(&mut state.store, &kid, caller.name(), now)?;
        let after = state.store.key(&kid)?.unwrap_or(row);
        drop(state);
        if outcome == Revoked::Now {
            publish(management, &[&after])?;
        }
        Ok(Json(KeyBody::of(after, now)))
    })
    .await
}
