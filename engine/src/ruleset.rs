//! The compiled ruleset: limits, tree and overrides, indexed for resolution.
//!
//! Compilation is all or nothing for limits, and one by one for overrides: a bad override is dropped with its reason and
//! the others stay, so that one tenant's mistake cannot put every other tenant back on the template's amount.
//!
//! Instances are not materialised: 1,000 templates over 100,000 nodes would be 100 million of them. Limits are indexed
//! by gate and level and by gate and pinned node instead, and a chain looks up its own few nodes. Memory is
//! O(limits + nodes + overrides). Limits that can never select anything are left out of the index, so that "inert" is
//! true by construction.

use std::fmt;
use std::sync::Arc;

use ahash::AHashMap;
use smallvec::SmallVec;

use crate::limits::{Attach, Gate, Limit, LimitId, LimitType, Window};
use crate::tenancy::{NodeId, Tree};
use crate::time::Span;
use crate::units::Units;

/// The amount of one instance, set apart from its limit's.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Override {
    /// The limit.
    pub limit_id: LimitId,
    /// The node whose instance it changes.
    pub node: NodeId,
    /// The amount instead of the limit's own.
    pub amount: Units,
}

/// An override that is not applied, and why.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct DroppedOverride {
    /// The override.
    pub override_: Override,
    /// Why, in a sentence without a full stop.
    pub reason: String,
}

/// Why a set of limits does not compile.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum CompileError {
    /// A limit is pinned at a node that does not exist.
    PinnedNodeMissing {
        /// The limit.
        limit_id: LimitId,
        /// The node.
        node: NodeId,
    },
    /// Two limits have one id.
    DuplicateLimit {
        /// The id.
        limit_id: LimitId,
    },
    /// The amount is zero.
    ZeroAmount {
        /// The limit.
        limit_id: LimitId,
    },
    /// The window is not one that the limit's type counts over, or is a rolling period of no length.
    WrongWindow {
        /// The limit.
        limit_id: LimitId,
        /// Its type.
        kind: LimitType,
    },
}

impl fmt::Display for CompileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::PinnedNodeMissing { limit_id, node } => {
                write!(out, "govern: limit {limit_id:?}: pinned node {node:?} not in tenancy tree")
            }
            CompileError::DuplicateLimit { limit_id } => {
                write!(out, "govern: limit {limit_id:?}: duplicate id")
            }
            CompileError::ZeroAmount { limit_id } => {
                write!(out, "govern: limit {limit_id:?}: amount must be above zero")
            }
            CompileError::WrongWindow { limit_id, kind } => {
                write!(out, "govern: limit {limit_id:?}: period is not one of type {kind}")
            }
        }
    }
}

impl std::error::Error for CompileError {}

/// Places of limits in the ruleset's ascending list.
pub(crate) type Places = SmallVec<[u32; 4]>;

/// Everything that resolution reads: an immutable snapshot, shared by `Arc`.
#[derive(Debug)]
pub struct Ruleset {
    version: u64,
    tree: Tree,
    key_nodes: bool,
    /// In ascending id.
    limits: Vec<Arc<Limit>>,
    /// Templates by gate and level, each in ascending id.
    templates: [[Places; 5]; 2],
    /// Pinned limits by gate and node, each in ascending id.
    pinned: [AHashMap<NodeId, Places>; 2],
    /// By node, then by the limit's place.
    overrides: AHashMap<NodeId, SmallVec<[(u32, Units); 2]>>,
}

impl Ruleset {
    /// Compiles limits against a tree, and applies the overrides that hold.
    ///
    /// Pinned limits need their node in the tree, `__global` excepted. With `key_nodes` off, `level: key` selects
    /// nothing.
    ///
    /// # Errors
    /// The first limit in ascending id that does not compile.
    pub fn compile(
        version: u64,
        tree: Tree,
        limits: Vec<Limit>,
        overrides: Vec<Override>,
        key_nodes: bool,
    ) -> Result<(Ruleset, Vec<DroppedOverride>), CompileError> {
        let mut limits: Vec<Arc<Limit>> = limits.into_iter().map(Arc::new).collect();
        limits.sort_by(|one, other| one.id.cmp(&other.id));
        let mut previous = None;
        for limit in &limits {
            if previous == Some(&limit.id) {
                return Err(CompileError::DuplicateLimit { limit_id: limit.id.clone() });
            }
            previous = Some(&limit.id);
            check_limit(limit, &tree)?;
        }
        let mut ruleset = Ruleset { tree, key_nodes, limits, ..Ruleset::empty(version) };
        ruleset.index_limits();
        let dropped = ruleset.apply_overrides(overrides);
        Ok((ruleset, dropped))
    }

    /// A ruleset that limits nothing.
    #[must_use]
    pub fn empty(version: u64) -> Ruleset {
        Ruleset {
            version,
            tree: Tree::default(),
            key_nodes: false,
            limits: Vec::new(),
            templates: Default::default(),
            pinned: Default::default(),
            overrides: AHashMap::new(),
        }
    }

    fn index_limits(&mut self) {
        for (place, limit) in self.limits.iter().enumerate() {
            if limit.inert_reason(self.key_nodes).is_some() {
                continue;
            }
            let gate = limit.kind.gate() as usize;
            let places = match &limit.attach {
                Attach::Level(level) => &mut self.templates[gate][level.slot()],
                Attach::Node(node) => self.pinned[gate].entry(node.clone()).or_default(),
            };
            places.push(place as u32);
        }
    }

    fn apply_overrides(&mut self, overrides: Vec<Override>) -> Vec<DroppedOverride> {
        let mut dropped = Vec::new();
        // Backwards, so that of two for one instance the later is the one that stays.
        for override_ in overrides.into_iter().rev() {
            match self.accept_override(&override_) {
                Ok(()) => {}
                Err(reason) => dropped.push(DroppedOverride { override_, reason }),
            }
        }
        dropped.reverse();
        dropped
    }

    fn accept_override(&mut self, override_: &Override) -> Result<(), String> {
        let place = self.check_override(override_)?;
        let amounts = self.overrides.entry(override_.node.clone()).or_default();
        if amounts.iter().any(|(taken, _)| *taken == place) {
            return Err("a later override of the same limit and node takes its place".to_owned());
        }
        amounts.push((place, override_.amount));
        Ok(())
    }

    /// Whether an override would be applied: for a management API that turns a bad one down at once.
    ///
    /// # Errors
    /// Why it would be dropped, in a sentence without a full stop.
    pub fn validate_override(&self, override_: &Override) -> Result<(), String> {
        self.check_override(override_).map(|_| ())
    }

    /// The place of the limit that the override is good for.
    fn check_override(&self, override_: &Override) -> Result<u32, String> {
        let Override { limit_id, node, amount } = override_;
        let place =
            self.place_of(limit_id).ok_or_else(|| format!("no limit has the id {:?}", limit_id.as_str()))?;
        let limit = &self.limits[place];
        if !limit.kind.overridable() {
            return Err(format!(
                "limit type {} takes no override: its amount is fixed when the limit compiles; pin a separate limit \
                 at that node",
                limit.kind
            ));
        }
        if !limit.overrides.allow {
            return Err("the limit does not allow overrides (override.allow is false)".to_owned());
        }
        if *amount == Units::ZERO {
            return Err("the amount must be above zero".to_owned());
        }
        if let Some(ceiling) = limit.overrides.effective_ceiling().filter(|ceiling| amount > ceiling) {
            let figure = |units| limit.kind.figure(units);
            return Err(format!("the amount {} is above the ceiling {}", figure(*amount), figure(ceiling)));
        }
        if !node.is_global() && !self.tree.contains(node) {
            return Err(format!("node {node:?} is not in the tenancy tree"));
        }
        if !self.has_instance_at(limit, node) {
            return Err(format!("the limit has no instance at node {node:?}"));
        }
        Ok(place as u32)
    }

    /// Whether the limit, as attached, fans out to that node.
    fn has_instance_at(&self, limit: &Limit, node: &NodeId) -> bool {
        limit.inert_reason(self.key_nodes).is_none()
            && match &limit.attach {
                Attach::Node(pinned) => pinned == node,
                Attach::Level(level) => node.level() == Some(*level) && self.tree.contains(node),
            }
    }

    fn place_of(&self, limit_id: &LimitId) -> Option<usize> {
        self.limits.binary_search_by(|limit| limit.id.cmp(limit_id)).ok()
    }

    /// The number of this snapshot.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All limits, in ascending id, inert ones included.
    #[must_use]
    pub fn limits(&self) -> &[Arc<Limit>] {
        &self.limits
    }

    /// The limit of that id.
    #[must_use]
    pub fn limit(&self, limit_id: &LimitId) -> Option<&Arc<Limit>> {
        self.place_of(limit_id).map(|place| &self.limits[place])
    }

    /// The tenancy tree.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Whether minted keys are nodes of the tree.
    #[must_use]
    pub fn key_nodes(&self) -> bool {
        self.key_nodes
    }

    /// The limits that can never select anything, in ascending id, each with the reason.
    pub fn inert(&self) -> impl Iterator<Item = (&Arc<Limit>, &'static str)> {
        self.limits.iter().filter_map(|limit| Some((limit, limit.inert_reason(self.key_nodes)?)))
    }

    /// The templates that have an instance at that node, in ascending id.
    pub(crate) fn templates_at(&self, gate: Gate, node: &NodeId) -> &[u32] {
        match node.level() {
            Some(level)
                if !self.templates[gate as usize][level.slot()].is_empty() && self.tree.contains(node) =>
            {
                &self.templates[gate as usize][level.slot()]
            }
            _ => &[],
        }
    }

    /// The limits pinned at that node, in ascending id.
    pub(crate) fn pinned_at(&self, gate: Gate, node: &NodeId) -> &[u32] {
        self.pinned[gate as usize].get(node).map_or(&[], |places| places)
    }

    /// The amount of a limit's instance at a node.
    pub(crate) fn amount_at(&self, place: u32, node: &NodeId) -> Units {
        self.overrides
            .get(node)
            .and_then(|amounts| amounts.iter().find(|(limit, _)| *limit == place))
            .map_or(self.limits[place as usize].amount, |(_, amount)| *amount)
    }
}

/// Whether a limit can be armed at all.
fn check_limit(limit: &Limit, tree: &Tree) -> Result<(), CompileError> {
    let limit_id = || limit.id.clone();
    if let Attach::Node(node) = &limit.attach
        && !node.is_global()
        && !tree.contains(node)
    {
        return Err(CompileError::PinnedNodeMissing { limit_id: limit_id(), node: node.clone() });
    }
    if limit.amount == Units::ZERO {
        return Err(CompileError::ZeroAmount { limit_id: limit_id() });
    }
    let window_fits = match (limit.kind, &limit.window) {
        (LimitType::Rpm | LimitType::Tpm, Window::Rolling { period, .. }) => *period > Span::ZERO,
        (LimitType::Concurrency, Window::Live) => true,
        (
            LimitType::QuotaRequests | LimitType::QuotaTokens | LimitType::BudgetUsd,
            Window::Calendar { .. },
        ) => true,
        _ => false,
    };
    if window_fits {
        Ok(())
    } else {
        Err(CompileError::WrongWindow { limit_id: limit_id(), kind: limit.kind })
    }
}

#[cfg(test)]
#[path = "ruleset_tests.rs"]
mod tests;
