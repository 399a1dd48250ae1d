//! Resolution: from a chain and a request's dims to the instances that bind it, in evaluation order.
//!
//! The page's steps 1 to 6, turned around: instead of expanding every limit into nodes and dropping what is off the
//! chain, each node of the chain looks up what is attached to it. A chain is deepest first and its nodes differ in
//! depth, so walking it, and at each node the limits in ascending id, is already the order of step 6. The cost is
//! that of the chain and its own limits, whatever the size of the tree. `tests/resolution.rs` holds the page's
//! steps written out literally, and compares.

use std::sync::Arc;

use crate::counter_identity::Identity;
use crate::limits::{Attach, Dims, Gate, Limit};
use crate::ruleset::Ruleset;
use crate::tenancy::{Chain, NodeId};
use crate::units::Units;

/// One cap at one node, with the amount in force there and the counter it is kept under.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Instance {
    /// The limit.
    pub limit: Arc<Limit>,
    /// The node.
    pub node: NodeId,
    /// The limit's amount, or the override's.
    pub amount: Units,
    /// What its counter is kept under.
    pub identity: Identity,
}

/// The instances that bind one request at one gate, in evaluation order.
#[derive(Clone, Eq, PartialEq, Default, Debug)]
#[must_use]
pub struct Selected(pub Vec<Instance>);

impl Selected {
    /// The instances, in evaluation order.
    #[must_use]
    pub fn instances(&self) -> &[Instance] {
        &self.0
    }

    /// Whether nothing binds the request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Ruleset {
    /// What binds a request at a gate (steps 1 to 6), in evaluation order: node depth descending, then limit id, then
    /// node id ascending.
    ///
    /// Gate one sees the endpoint only, whatever `dims` holds. Instances that are off or suspended are included: they
    /// are shown to the caller, and the gates' plans skip them.
    pub fn resolve(&self, chain: &Chain, gate: Gate, dims: &Dims<'_>) -> Selected {
        let dims = dims.seen_at(gate);
        let mut instances = Vec::new();
        for node in chain.nodes() {
            for place in merged(self.pinned_at(gate, node), self.templates_at(gate, node)) {
                let limit = &self.limits()[place as usize];
                if limit.matches.fits(&dims) {
                    instances.push(self.instance(place, node, &dims));
                }
            }
        }
        Selected(instances)
    }

    /// Every instance of every limit, both gates together, in evaluation order: the listing without a request.
    ///
    /// With no request there are no dims: a constrained dim is the empty string in these identities, so they name
    /// no request's counter. Inert limits have no instance; see [`Ruleset::inert`].
    #[must_use]
    pub fn all_instances(&self) -> Vec<Instance> {
        let dims = Dims::default();
        let mut instances = Vec::new();
        for (place, limit) in self.limits().iter().enumerate() {
            if limit.inert_reason(self.key_nodes()).is_some() {
                continue;
            }
            let nodes = match &limit.attach {
                Attach::Node(node) => std::slice::from_ref(node),
                Attach::Level(level) => self.tree().nodes_at(*level),
            };
            instances.extend(nodes.iter().map(|node| self.instance(place as u32, node, &dims)));
        }
        // The sort is stable and each limit's nodes are in lexical order already, but say the whole rule.
        instances.sort_by(|one, other| {
            let depths = other.node.depth().cmp(&one.node.depth());
            depths.then_with(|| one.limit.id.cmp(&other.limit.id)).then_with(|| one.node.cmp(&other.node))
        });
        instances
    }

    fn instance(&self, place: u32, node: &NodeId, dims: &Dims<'_>) -> Instance {
        let limit = Arc::clone(&self.limits()[place as usize]);
        let amount = self.amount_at(place, node);
        let identity = Identity::new(&limit, node, dims);
        Instance { limit, node: node.clone(), amount, identity }
    }
}

/// Two ascending lists as one.
fn merged<'a>(one: &'a [u32], other: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    let (mut one, mut other) = (one.iter().copied().peekable(), other.iter().copied().peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(left), Some(right)) if right < left => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}
