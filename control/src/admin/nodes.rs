//! `nodes`: the tree of both planes, and the part of it that is created at run time.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use engine::{Attach, Level, NodeId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::caller::Caller;
use super::cursor;
use super::error::{ApiError, ErrorBody};
use super::input::{Body, PageQuery, Params};
use super::work::{self, Attempt};
use crate::keys::parse_owner;
use crate::management::State as InForce;
use crate::store::AuditEntry;

/// A node of the tree.
#[derive(Serialize, ToSchema)]
pub struct NodeBody {
    node: String,
    /// config or runtime; a node of both is the config's
    source: &'static str,
    /// Whether templates have an instance at it now.
    in_force: bool,
    /// What the next reload does with it: create or delete; null when nothing.
    pending: Option<&'static str>,
}

/// A page of the tree.
#[derive(Serialize, ToSchema)]
pub struct NodesBody {
    /// In lexical order.
    nodes: Vec<NodeBody>,
    /// Where the next page begins; null on the last one.
    next_cursor: Option<String>,
}

/// A node and what to know about it.
#[derive(Serialize, ToSchema)]
pub struct NodeWrittenBody {
    #[serde(flatten)]
    node: NodeBody,
    /// What works otherwise than one may think.
    warnings: Vec<String>,
}

/// A node to be created.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeInput {
    /// Its id, taken as given: segments `<kind>:<id>` joined by `/`.
    #[schema(min_length = 1, max_length = 512)]
    node: String,
}

/// Which node is meant.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NodeQuery {
    /// The node's id.
    node: String,
}

fn row(state: &InForce, node: &str, stored: bool) -> NodeBody {
    let id = NodeId::new(node);
    let declared = state.declared.binary_search(&id).is_ok();
    let in_force = state.ruleset.tree().contains(&id);
    let pending = match (stored || declared, in_force) {
        (true, false) if state.config.governance.enabled => Some("create"),
        (false, true) => Some("delete"),
        _ => None,
    };
    NodeBody { node: node.to_owned(), source: if declared { "config" } else { "runtime" }, in_force, pending }
}

/// The nodes of both planes.
#[utoipa::path(
    get,
    path = "/tt/v1/admin/nodes",
    operation_id = "list_nodes",
    params(PageQuery),
    responses(
        (status = 200, description = "The nodes", body = NodesBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Params(page): Params<PageQuery>,
) -> Result<Json<NodesBody>, ApiError> {
    let (count, after) = (page.count()?, page.after()?.unwrap_or_default());
    work::read(&app, move |management| {
        let state = management.state();
        let stored = state.store.nodes()?;
        let is_stored = |node: &str| stored.binary_search_by(|known| known.as_str().cmp(node)).is_ok();
        // Three ascending lists; what they have in common is one node.
        let lists = [
            state.declared.iter().map(NodeId::as_str).collect::<Vec<_>>(),
            stored.iter().map(String::as_str).collect(),
            state.runtime.nodes.iter().map(String::as_str).collect(),
        ];
        let mut names: Vec<&str> = lists
            .iter()
            .flat_map(|list| {
                let rest = &list[list.partition_point(|name| *name <= after.as_str())..];
                rest.iter().copied().filter(|name| caller.sees(&NodeId::new(name))).take(count + 1)
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        let rows = names.into_iter().take(count + 1).map(|name| row(&state, name, is_stored(name)));
        let (nodes, next_cursor) = cursor::cut(rows.collect(), count, |row| row.node.clone());
        Ok(Json(NodesBody { nodes, next_cursor }))
    })
    .await
}

/// What to know about a node that is created.
fn warnings(state: &InForce, node: &NodeId) -> Result<Vec<String>, ApiError> {
    let mut found = Vec::new();
    if !node.in_charset() {
        found.push(format!(
            "node {node:?} is out of charset (kind: lowercase letters; id: lowercase letters, digits, - and _); \
             no delegated admin can act on it"
        ));
    }
    match node.level() {
        None => {
            found.push(format!("node {node:?} is at no level of org, team and user: no template reaches it"))
        }
        Some(Level::Key) => found.push(format!("node {node:?} is spelt as a key; keys are minted")),
        Some(_) => {}
    }
    if let Some(parent) = node.parent().filter(|parent| !parent.is_global())
        && !state.ruleset.tree().contains(&parent)
        && !state.store.has_node(parent.as_str())?
    {
        found.push(format!("its parent {parent:?} is not in the tenancy tree"));
    }
    Ok(found)
}

/// Creates a node at run time. It is stored at once and in force from the next reload.
#[utoipa::path(
    post,
    path = "/tt/v1/admin/nodes",
    operation_id = "create_node",
    request_body(content = NodeInput),
    responses(
        (status = 201, description = "Stored", body = NodeWrittenBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 409, description = "There is such a node", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn create(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Body<NodeInput>,
) -> Result<(StatusCode, Json<NodeWrittenBody>), ApiError> {
    let attempt = Attempt::of_body("node.create", "node", "node", &body.raw);
    work::write(&app, caller, attempt, move |management, caller| {
        let node = body.parsed?.node;
        let node = parse_owner(&node)
            .map_err(|reason| ApiError::invalid("node", reason.replace("owner", "node")))?;
        let id = NodeId::new(&node);
        if id.is_global() {
            return Err(ApiError::invalid("node", "__global is where every chain ends, and no tree node"));
        }
        caller.may_act_on("node", &node)?;
        let mut state = management.state();
        let warnings = warnings(&state, &id)?;
        let now = Timestamp::now();
        let entry = AuditEntry {
            at: now,
            actor: caller.name(),
            action: "node.create",
            target: &node,
            node: Some(&node),
            before: None,
            after: Some(json!({ "node": node, "warnings": warnings })),
            result: "done",
        };
        if !state.store.insert_node(&node, now, &entry)? {
            return Err(ApiError::conflict("node", format!("node {node:?} was created before")));
        }
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let node = row(&state, &node, true);
        Ok((StatusCode::CREATED, Json(NodeWrittenBody { node, warnings })))
    })
    .await
}

/// Removes a node that was created at run time. It is gone from the next reload on.
#[utoipa::path(
    delete,
    path = "/tt/v1/admin/nodes",
    operation_id = "delete_node",
    params(NodeQuery),
    responses(
        (status = 200, description = "Removed", body = NodeWrittenBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Outside of the caller's subtree", body = ErrorBody),
        (status = 404, description = "No such node was created at run time", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn remove(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Params(NodeQuery { node }): Params<NodeQuery>,
) -> Result<Json<NodeWrittenBody>, ApiError> {
    let attempt = Attempt::on("node.delete", &node, &json!({ "node": node })).at(&node);
    work::write(&app, caller, attempt, move |management, caller| {
        caller.may_act_on("node", &node)?;
        let mut state = management.state();
        let id = NodeId::new(&node);
        let declared = state.declared.binary_search(&id).is_ok();
        let entry = AuditEntry {
            at: Timestamp::now(),
            actor: caller.name(),
            action: "node.delete",
            target: &node,
            node: Some(&node),
            before: Some(json!({ "node": node })),
            after: None,
            result: "done",
        };
        if !state.store.delete_node(&node, &entry)? {
            let hint = if declared { "; it is declared in the config" } else { "" };
            return Err(ApiError::not_found(
                "node_not_found",
                format!("no node {node:?} was created at run time{hint}"),
            ));
        }
        let pinned = state.ruleset.limits().iter().filter(|limit| limit.attach == Attach::Node(id.clone()));
        let warnings = pinned.filter(|_| !declared).map(|limit| {
            format!("limit {:?} is pinned at it: the next reload is refused while it is", limit.id.as_str())
        });
        let warnings = warnings.collect();
        Ok(Json(NodeWrittenBody { node: row(&state, &node, false), warnings }))
    })
    .await
}
