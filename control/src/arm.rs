//! Arming: config and runtime plane folded into one ruleset.
//!
//! Both planes make one tree, so a node created at run time can carry a template of the config. Where both have a
//! node the config's is kept and nothing is said. Limits compile all or nothing; overrides one by one, a bad one
//! dropped with its reason (the engine does both). A suspended limit compiles as one that is neither evaluated nor
//! counted.

use std::fmt;
use std::sync::Arc;

use engine::{CompileError, DroppedOverride, Limit, LimitId, NodeId, Override, Ruleset, Tree, Units};

use crate::config::Config;
use crate::start::StartError;
use crate::store::{KeyRow, RuntimePlane};

/// A ruleset ready to be published, and the overrides that it does not have.
#[derive(Debug)]
pub struct Armed {
    /// The ruleset.
    pub ruleset: Arc<Ruleset>,
    /// Overrides that do not hold, with the reason.
    pub dropped: Vec<DroppedOverride>,
}

/// Why the limits do not compile.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ArmError(pub CompileError);

impl fmt::Display for ArmError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "governance: compile limits: {}", self.0)
    }
}

impl std::error::Error for ArmError {}

impl From<ArmError> for StartError {
    fn from(error: ArmError) -> StartError {
        StartError::new(error.to_string())
    }
}

/// Compiles. Governance that is off is the empty ruleset: its limits are not looked at.
///
/// `keys` matter only under `governance.key_nodes`, which makes each key that is not revoked a node of the tree.
pub fn arm(
    version: u64,
    config: &Config,
    runtime: &RuntimePlane,
    keys: &[KeyRow],
) -> Result<Armed, ArmError> {
    let governance = &config.governance;
    if !governance.enabled {
        return Ok(Armed { ruleset: Arc::new(Ruleset::empty(version)), dropped: Vec::new() });
    }
    let tree = Tree::new(
        governance
            .nodes
            .iter()
            .cloned()
            .chain(runtime.nodes.iter().map(|node| NodeId::new(node)))
            .chain(key_leaves(governance.key_nodes, keys)),
    );
    let overrides = runtime
        .overrides
        .iter()
        .map(|row| Override {
            limit_id: LimitId::new(&row.limit_id),
            node: NodeId::new(&row.node),
            amount: Units(row.amount),
        })
        .collect();
    let limits = governance
        .limits
        .iter()
        .map(|limit| Limit { suspended: runtime.suspended.contains(limit.id.as_str()), ..limit.clone() });
    let compiled = Ruleset::compile(version, tree, limits.collect(), overrides, governance.key_nodes);
    let (ruleset, dropped) = compiled.map_err(ArmError)?;
    Ok(Armed { ruleset: Arc::new(ruleset), dropped })
}

fn key_leaves(key_nodes: bool, keys: &[KeyRow]) -> impl Iterator<Item = NodeId> {
    let live = keys.iter().filter(move |key| key_nodes && !key.admin && key.revoked_at.is_none());
    live.map(|key| NodeId::new(&key.owner).key_leaf(&key.kid))
}

/// Whether a node is declared or created; what `keys mint` warns about when it is not.
pub fn is_known_node(config: &Config, runtime: &RuntimePlane, node: &NodeId) -> bool {
    config.governance.nodes.contains(node) || runtime.has_node(node.as_str())
}
