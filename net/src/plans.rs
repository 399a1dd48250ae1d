//! A snapshot as one core holds it: with the plans compiled from it so far.
//!
//! What a request resolves to depends on its chain and its dims alone, so the outcome of steps 1 to 6 is kept, with
//! the counters already found. A plan is found by a hash of borrowed parts and verified against them: no shared
//! reference count is touched, no string is copied. When a core holds [`KEPT_PLANS`] of one kind it starts anew: a
//! client that asks for a new model name each time costs itself a resolution, and nobody memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use ahash::RandomState;
use engine::Dims;
use engine::Gate;
use engine::cells::{CellTable, GateOnePlan};
use engine::gates::GateTwoPlan;
use engine::{Chain, Level, NodeId};

use crate::bounds::KEPT_PLANS;
use crate::snapshot::Snapshot;

/// One snapshot on one core.
pub struct Armed {
    /// What was published.
    pub snapshot: Arc<Snapshot>,
    cells: Arc<CellTable>,
    cores: usize,
    gate_one: RefCell<PlanMap<GateOnePlan>>,
    gate_two: RefCell<PlanMap<GateTwoPlan>>,
}

impl Armed {
    /// `snapshot` with no plan compiled yet.
    pub fn new(snapshot: Arc<Snapshot>, cells: Arc<CellTable>, cores: usize) -> Armed {
        Armed { snapshot, cells, cores, gate_one: RefCell::default(), gate_two: RefCell::default() }
    }

    /// The gate-1 plan of a chain at an endpoint.
    pub fn gate_one(&self, chain: &Chain, endpoint: &str) -> Arc<GateOnePlan> {
        let dims = Dims { model: "", provider: "", endpoint };
        self.gate_one.borrow_mut().get_or_make(self.place(chain), &dims, || {
            self.cells.plan(&self.snapshot.ruleset.resolve(chain, Gate::One, &dims))
        })
    }

    /// The gate-2 plan of a chain for what a request asks.
    pub fn gate_two(&self, chain: &Chain, dims: &Dims<'_>) -> Arc<GateTwoPlan> {
        self.gate_two.borrow_mut().get_or_make(self.place(chain), dims, || {
            GateTwoPlan::new(&self.snapshot.ruleset.resolve(chain, Gate::Two, dims), self.cores)
        })
    }

    /// The node that decides what a chain selects: the key's leaf only where keys are nodes of the tree.
    fn place<'a>(&self, chain: &'a Chain) -> &'a NodeId {
        let nodes = chain.nodes();
        let leaf_counts = self.snapshot.ruleset.key_nodes();
        let skip = nodes.len() > 1 && nodes[0].level() == Some(Level::Key) && !leaf_counts;
        &nodes[usize::from(skip)]
    }
}

struct PlanMap<P> {
    hasher: RandomState,
    kept: usize,
    plans: HashMap<u64, Vec<Kept<P>>, RandomState>,
}

struct Kept<P> {
    node: NodeId,
    dims: [Box<str>; 3],
    plan: Arc<P>,
}

impl<P> Default for PlanMap<P> {
    fn default() -> Self {
        PlanMap { hasher: RandomState::new(), kept: 0, plans: HashMap::default() }
    }
}

impl<P> PlanMap<P> {
    fn get_or_make(&mut self, node: &NodeId, dims: &Dims<'_>, make: impl FnOnce() -> Arc<P>) -> Arc<P> {
        let parts = [dims.model, dims.provider, dims.endpoint];
        let hash = self.hasher.hash_one(HashedParts(node, &parts));
        if let Some(kept) = self.plans.get(&hash)
            && let Some(found) = kept.iter().find(|kept| kept.is(node, &parts))
        {
            return found.plan.clone();
        }
        if self.kept >= KEPT_PLANS {
            self.plans.clear();
            self.kept = 0;
        }
        let plan = make();
        let kept = Kept { node: node.clone(), dims: parts.map(Box::from), plan: plan.clone() };
        self.plans.entry(hash).or_default().push(kept);
        self.kept += 1;
        plan
    }
}

struct HashedParts<'a>(&'a NodeId, &'a [&'a str; 3]);

impl Hash for HashedParts<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.as_str().hash(state);
        self.1.hash(state);
    }
}

impl<P> Kept<P> {
    fn is(&self, node: &NodeId, parts: &[&str; 3]) -> bool {
        self.node == *node && self.dims.iter().zip(parts).all(|(kept, asked)| **kept == **asked)
    }
}
