//! A snapshot as one core holds it: with the plans compiled from it so far.
//!
//! What a request resolves to depends on its chain and its dims alone, so the outcome of steps 1 to 6 is kept, with
//! the counters already found. A plan is found by a hash of borrowed parts and verified against them: no shared
//! reference count is touched, no string is copied. When a core holds [`KEPT_PLANS`] of one kind it starts anew: a
//! client that asks for a new model name each time costs itself a resolution, and nobody memory.
//!
//! Plans that are of no use any more, because there were too many or another snapshot is in force, are freed a few at a time, by the
//! requests that follow: thousands at once would hold everybody on the core up for milliseconds. A request makes at most one plan
//! of each kind and frees more than that, so what is left over ends. To free them on another thread was rejected: their
//! names would need counts that threads share, on every request.

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
use engine::{Chain, Key, ModelPrice, NodeId, ProviderId, Route};

use crate::bounds::{FREED_PLANS, KEPT_PLANS};
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
    /// What the served model costs, if it has a price.
    pub price: Option<ModelPrice>,
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
                price: self.snapshot.prices.find(route.served(model)).cloned(),
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
        let skip = chain.begins_with_key() && !self.snapshot.ruleset.key_nodes();
        &chain.nodes()[usize::from(skip)]
    }
}

struct PlanMap<P: 'static> {
    hasher: RandomState,
    kept: usize,
    plans: HashMap<u64, Vec<Kept<P>>, RandomState>,
}

thread_local! {
    /// What is to be freed on this thread: it outlives the snapshots that it was made for.
    static LEFT_OVER: RefCell<LeftOver> = RefCell::default();
}

/// Plans to be freed.
#[derive(Default)]
struct LeftOver {
    /// Each frees one plan's place when it is called, and says whether there was one.
    maps: Vec<Box<dyn FnMut() -> bool>>,
}

impl LeftOver {
    fn free_some(&mut self) {
        for _ in 0..FREED_PLANS {
            let Some(map) = self.maps.last_mut() else { return };
            if !map() {
                self.maps.pop();
            }
        }
    }
}

struct Kept<P> {
    node: NodeId,
    dims: [Box<str>; 3],
    plan: P,
}

impl<P: 'static> Default for PlanMap<P> {
    fn default() -> Self {
        PlanMap { hasher: RandomState::new(), kept: 0, plans: HashMap::default() }
    }
}

impl<P: 'static> PlanMap<P> {
    /// Begins anew.
    fn leave_all(&mut self) {
        self.kept = 0;
        let mut plans = std::mem::take(&mut self.plans).into_iter();
        let free_one = move || plans.next().is_some();
        // A thread that ends has nothing left to hold up: its plans are freed here and now.
        let _ = LEFT_OVER.try_with(move |left| left.borrow_mut().maps.push(Box::new(free_one)));
    }
}

impl<P: 'static> Drop for PlanMap<P> {
    fn drop(&mut self) {
        if !self.plans.is_empty() {
            self.leave_all();
        }
    }
}

impl<P: Clone + 'static> PlanMap<P> {
    fn get_or_make(&mut self, node: &NodeId, dims: &Dims<'_>, make: impl FnOnce() -> P) -> P {
        let _ = LEFT_OVER.try_with(|left| left.borrow_mut().free_some());
        let parts = [dims.model, dims.provider, dims.endpoint];
        let hash = self.hasher.hash_one(HashedParts(node, &parts));
        if let Some(kept) = self.plans.get(&hash)
            && let Some(found) = kept.iter().find(|kept| kept.is(node, &parts))
        {
            return found.plan.clone();
        }
        if self.kept >= KEPT_PLANS {
            self.leave_all();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn left_over() -> usize {
        LEFT_OVER.with_borrow(|left| left.maps.len())
    }

    fn dims(model: &str) -> Dims<'_> {
        Dims { model, provider: "p", endpoint: "/e" }
    }

    #[test]
    fn plans_of_no_use_are_freed_a_few_at_a_time_until_none_is_left() {
        let node = NodeId::new("org:a");
        let live = Rc::new(());
        let alive = || Rc::strong_count(&live) - 1;
        let mut old = PlanMap::default();
        for number in 0..100 {
            old.get_or_make(&node, &dims(&number.to_string()), || live.clone());
        }
        drop(old);
        assert_eq!((alive(), left_over()), (100, 1), "dropping frees nothing yet");
        let mut new = PlanMap::default();
        let mut before = 100;
        while left_over() > 0 {
            new.get_or_make(&node, &dims("m"), || Rc::new(()));
            assert!(before - alive() <= FREED_PLANS, "{before} and then {}", alive());
            before = alive();
        }
        assert_eq!(alive(), 0);
    }

    #[test]
    fn too_many_plans_begin_anew_and_are_made_again() {
        let node = NodeId::new("org:a");
        let live = Rc::new(());
        let mut plans = PlanMap::default();
        let (most, mut made) = (KEPT_PLANS + 2 * KEPT_PLANS / FREED_PLANS, 0);
        for number in (0..most).chain([most - 1, 0]) {
            plans.get_or_make(&node, &dims(&number.to_string()), || {
                made += 1;
                live.clone()
            });
        }
        assert_eq!(made, most + 1, "the last one is known, the first one is made again");
        let kept = most - KEPT_PLANS + 1;
        assert_eq!((Rc::strong_count(&live) - 1, plans.kept, left_over()), (kept, kept, 0));
    }
}
