//! Why a request is bound by what binds it, and why each other limit was dropped.
//!
//! For people, not for the request path: it walks every limit.

use std::sync::Arc;

use crate::limits::{Attach, Dims, Gate, Limit};
use crate::resolve::Instance;
use crate::ruleset::Ruleset;
use crate::tenancy::{Chain, NodeId};

/// A limit that does not bind the request, and why.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Dropped {
    /// The limit.
    pub limit: Arc<Limit>,
    /// The node that is to blame: where it is pinned, or the chain's node that does not exist.
    pub node: Option<NodeId>,
    /// Why, in a sentence without a full stop.
    pub reason: String,
}

/// What one request resolves to.
#[derive(Clone, Eq, PartialEq, Default, Debug)]
pub struct Explanation {
    /// What binds it: gate 1, then gate 2, each in evaluation order.
    pub instances: Vec<Instance>,
    /// What does not, in ascending limit id.
    pub dropped: Vec<Dropped>,
}

impl Ruleset {
    /// What a request resolves to at both gates, and why each other limit was dropped.
    #[must_use]
    pub fn explain(&self, chain: &Chain, dims: &Dims<'_>) -> Explanation {
        let mut instances = self.resolve(chain, Gate::One, dims).0;
        instances.append(&mut self.resolve(chain, Gate::Two, dims).0);
        let mut dropped = Vec::new();
        for limit in self.limits() {
            if let Some((node, reason)) = self.why_dropped(limit, chain, dims) {
                dropped.push(Dropped { limit: Arc::clone(limit), node, reason });
            }
        }
        Explanation { instances, dropped }
    }

    /// `None` for a limit that binds the request.
    fn why_dropped(&self, limit: &Limit, chain: &Chain, dims: &Dims<'_>) -> Option<(Option<NodeId>, String)> {
        if let Some(reason) = limit.inert_reason(self.key_nodes()) {
            return Some((None, format!("inert: {reason}")));
        }
        let dims = dims.seen_at(limit.kind.gate());
        if let Some((dim, pattern, value)) = limit.matches.first_unfit(&dims) {
            return Some((None, format!("match.{dim} {:?} does not fit {value:?}", pattern.pattern())));
        }
        match &limit.attach {
            Attach::Node(node) if chain.nodes().contains(node) => None,
            Attach::Node(node) => {
                Some((Some(node.clone()), format!("pinned node {node:?} is not in the request's chain")))
            }
            Attach::Level(level) => {
                let mut at_level =
                    chain.nodes().iter().filter(|node| node.level() == Some(*level)).peekable();
                let Some(first) = at_level.peek().copied() else {
                    return Some((None, format!("the request's chain has no node at level {level}")));
                };
                if at_level.any(|node| self.tree().contains(node)) {
                    return None;
                }
                Some((Some(first.clone()), format!("node {first:?} of the chain is not in the tenancy tree")))
            }
        }
    }
}
