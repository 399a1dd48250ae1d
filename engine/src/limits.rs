//! What a limit is: where it attaches, what it counts, over which window, and what happens when it is over.
//!
//! A [`Limit`] is the definition as the config gives it; resolution turns it into instances at nodes. Amount and
//! posture live here and never in a counter, so that editing them keeps the usage counted so far. Its parts have files
//! of their own: [`crate::limit_types`], [`crate::window`], [`crate::posture`], [`crate::dims`].

use std::fmt;
use std::sync::Arc;

use crate::glob::Glob;
use crate::tenancy::{Level, NodeId};
use crate::units::Units;

pub use crate::dims::{DIM_NAMES, Dims, Match};
pub use crate::limit_types::{Class, Figure, Gate, LimitType};
pub use crate::posture::{Admit, Enforce, Fail, Mode, Posture};
pub use crate::window::{Algorithm, Window, Zone};

/// The id of a limit. Cheap to clone; ordered as its text.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct LimitId(Arc<str>);

impl LimitId {
    /// The id spelt so.
    #[must_use]
    pub fn new(text: &str) -> LimitId {
        LimitId(text.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LimitId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for LimitId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", &*self.0)
    }
}

/// Where a limit attaches.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Attach {
    /// Pinned: one instance, at that node.
    Node(NodeId),
    /// A template: one instance for each tree node at that level.
    Level(Level),
}

/// Whether single nodes may be given another amount.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct OverridePolicy {
    /// Whether at all.
    pub allow: bool,
    /// The largest amount; absent or zero: no ceiling.
    pub ceiling: Option<Units>,
}

impl OverridePolicy {
    /// The ceiling that applies, if one does.
    #[must_use]
    pub fn effective_ceiling(&self) -> Option<Units> {
        self.ceiling.filter(|ceiling| *ceiling > Units::ZERO)
    }

    /// Whether any positive amount is accepted: one of the traps that `validate` warns of.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.allow && self.effective_ceiling().is_none()
    }
}

/// One limit as defined.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Limit {
    /// Its id, unique in a ruleset.
    pub id: LimitId,
    /// Where it attaches.
    pub attach: Attach,
    /// What it counts.
    pub kind: LimitType,
    /// How much it admits, above zero.
    pub amount: Units,
    /// Over which stretch of time.
    pub window: Window,
    /// When it admits.
    pub admit: Admit,
    /// How strictly.
    pub posture: Posture,
    /// Which requests it is about.
    pub matches: Match,
    /// Whether nodes may be given other amounts.
    pub overrides: OverridePolicy,
    /// Suspended through the management API: neither evaluated nor counted.
    pub suspended: bool,
}

impl Limit {
    /// Why this limit can never select anything, if it cannot (the page's "Shapes that resolve to nothing").
    #[must_use]
    pub fn inert_reason(&self, key_nodes: bool) -> Option<&'static str> {
        match self.attach {
            Attach::Level(Level::Global) => {
                return Some(
                    "attach level global selects nothing: no tree node is at that level; attach at node __global",
                );
            }
            Attach::Level(Level::Key) if !key_nodes => {
                return Some(
                    "attach level key selects nothing: keys are not tree nodes; attach at level user, pin it at the \
                     key holder's node, or set governance.key_nodes",
                );
            }
            _ => {}
        }
        let never = |pattern: &Option<Glob>| pattern.as_ref().is_some_and(|pattern| !pattern.matches(""));
        if self.kind.gate() != Gate::One {
            None
        } else if never(&self.matches.model) {
            Some("match.model never fits: rpm and concurrency are evaluated before the body names a model")
        } else if never(&self.matches.provider) {
            Some("match.provider never fits: rpm and concurrency are evaluated before the provider is known")
        } else {
            None
        }
    }

    /// Whether it takes part in decisions: neither off nor suspended.
    #[must_use]
    pub fn is_evaluated(&self) -> bool {
        self.posture.mode != Mode::Off && !self.suspended
    }

    /// Whether an override may be given: the type takes them and the definition allows them.
    #[must_use]
    pub fn override_allowed(&self) -> bool {
        self.kind.overridable() && self.overrides.allow
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
