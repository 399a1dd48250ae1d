//! Arming: config and runtime plane folded into one ruleset.
//!
//! Both planes make one tree, so a node created at run time can carry a template of the config. Where both have a
//! node the config's is kept and nothing is said. Limits compile all or nothing; overrides one by one, a bad one
//! dropped with its reason (the engine does both).

use std::sync::Arc;

use engine::{DroppedOverride, LimitId, NodeId, Override, Ruleset, Tree, Units};

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

/// Compiles. Governance that is off is the empty ruleset: its limits are not looked at.
///
/// `keys` matter only under `governance.key_nodes`, which makes each key that is not revoked a node of the tree.
pub fn arm(
    version: u64,
    config: &Config,
    runtime: &RuntimePlane,
    keys: &[KeyRow],
) -> Result<Armed, StartError> {
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
        .map(|(limit_id, node, amount)| Override {
            limit_id: LimitId::new(limit_id),
            node: NodeId::new(node),
            amount: Units(*amount),
        })
        .collect();
    let compiled =
        Ruleset::compile(version, tree, governance.limits.clone(), overrides, governance.key_nodes);
    let (ruleset, dropped) =
        compiled.map_err(|error| StartError::new(format!("governance: compile limits: {error}")))?;
    Ok(Armed { ruleset: Arc::new(ruleset), dropped })
}

fn key_leaves(key_nodes: bool, keys: &[KeyRow]) -> impl Iterator<Item = NodeId> {
    let live = keys.iter().filter(move |key| key_nodes && !key.admin && key.revoked_at.is_none());
    live.map(|key| NodeId::new(&key.owner).key_leaf(&key.kid))
}

/// Whether a node is declared or created; what `keys mint` warns about when it is not.
pub fn is_known_node(config: &Config, runtime: &RuntimePlane, node: &NodeId) -> bool {
    config.governance.nodes.contains(node) || runtime.nodes.iter().any(|known| known == node.as_str())
}
