//! A snapshot as one core holds it: with the plans compiled from it so far.
//!
//! What a request resolves to depends on its chain and its dims alone, so the outcome of steps 1 to 6 is kept, with
//! the counters already found. A plan is found by a hash of borrowed parts and verified against them: no shared
//! reference count is touched, no string is copied. When a core holds [`KEPT_PLANS`] of one kind it starts anew: a
//! client that asks for a new model name each time costs itself a resolution, and nobody memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;

use ahash::RandomState;
use engine::Dims;
use engine::Gate;
use engine::cells::{CellTable, GateOnePlan};
use engine::gates::GateTwoPlan;
use engine::{Chain, Key, Level, NodeId, ProviderId, Route};

use crate::bounds::KEPT_PLANS;
use crate::snapshot::Snapshot;

/// One snapshot on one core.
pub struct Armed {
    /// What was published.
    pub snapshot: Arc<Snapshot>,
    cells: Arc<CellTable>,
    cores: usize,
    gate_one: RefCell<PlanMap<Arc<GateOnePlan>>>,
    gate_two: RefCell<PlanMap<Rc<Resolved>>>,
}

/// What a request of one chain for one model at one endpoint comes to. The names are this core's own copies: their
/// reference counts are shared with nobody.
pub struct Resolved {
    /// The caps of gate 2.
    pub plan: Arc<GateTwoPlan>,
    /// The key's owner, or `__global`.
    pub node: NodeId,
    /// The model asked for.
    pub model: Arc<str>,
    /// The model served.
    pub served: Arc<str>,
    /// Who serves it.
    pub provider: ProviderId,
    /// The normalised path.
    pub endpoint: &'static str,
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

    /// What a request of `key` comes to, once its route is known.
    pub fn resolved(
        &self,
        key: Option<&Key>,
        model: &str,
        route: &Route,
        endpoint: &'static str,
    ) -> Rc<Resolved> {
        let anonymous;
        let chain = match key {
            Some(key) => &key.chain,
            None => {
                anonymous = Chain::anonymous();
                &anonymous
            }
        };
        let dims = Dims { model, provider: route.provider.as_str(), endpoint };
        self.gate_two.borrow_mut().get_or_make(self.place(chain), &dims, || {
            let owner = key.map_or(NodeId::global(), |key| NodeId::new(key.owner.as_str()));
            Rc::new(Resolved {
                plan: GateTwoPlan::new(&self.snapshot.ruleset.resolve(chain, Gate::Two, &dims), self.cores),
                node: owner,
                model: model.into(),
                served: route.served(model).into(),
                provider: ProviderId::new(route.provider.as_str()),
                endpoint,
            })
        })
    }

    /// The gate-1 plan for a dry run, not kept.
    pub fn gate_one_shown(&self, chain: &Chain, dims: &Dims<'_>) -> Arc<GateOnePlan> {
        self.cells.plan(&self.snapshot.ruleset.resolve(chain, Gate::One, dims))
    }

    /// The gate-2 plan of a chain for dims that no request has: what `/tt/v1/me` and a dry run show.
    pub fn shown(&self, chain: &Chain, dims: &Dims<'_>) -> Arc<GateTwoPlan> {
        GateTwoPlan::new(&self.snapshot.ruleset.resolve(chain, Gate::Two, dims), self.cores)
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
    plan: P,
}

impl<P> Default for PlanMap<P> {
    fn default() -> Self {
        PlanMap { hasher: RandomState::new(), kept: 0, plans: HashMap::default() }
    }
}

impl<P: Clone> PlanMap<P> {
    fn get_or_make(&mut self, node: &NodeId, dims: &Dims<'_>, make: impl FnOnce() -> P) -> P {
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
