//! The compiled gate 2 of one chain and one set of dims: its items, grouped by the core that owns each counter.
//!
//! Invariants: items are in evaluation order; owners ascend; every item is in exactly one group. A plan is shared by the
//! asking core and the owners, so its only changing part is a hint, for each item, at the counter's slot at its owner;
//! the owner verifies the hint and does not trust it.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use smallvec::SmallVec;

use crate::counter_identity::CoreId;
use crate::resolve::{Instance, Selected};
use crate::verdict::Stance;

/// The caps of gate 2 that bind one request, in evaluation order.
#[derive(Debug)]
pub struct GateTwoPlan {
    items: Box<[GateTwoItem]>,
    /// By ascending owner.
    groups: SmallVec<[Group; 4]>,
}

#[derive(Debug)]
struct Group {
    owner: CoreId,
    /// Places of the owner's items, ascending.
    places: SmallVec<[u16; 8]>,
    /// Whether any of them is evaluated.
    active: bool,
}

/// One cap of the plan.
#[derive(Debug)]
pub(crate) struct GateTwoItem {
    pub(crate) instance: Instance,
    pub(crate) stance: Stance,
    /// The counter's slot at its owner, as of last time.
    pub(crate) slot_hint: AtomicU32,
}

impl GateTwoPlan {
    /// Compiles the gate-2 instances of one request, in their order, for that many cores.
    pub fn new(selected: &Selected, cores: usize) -> Arc<GateTwoPlan> {
        let items: Box<[GateTwoItem]> = selected
            .0
            .iter()
            .map(|instance| GateTwoItem {
                instance: instance.clone(),
                stance: Stance::of(&instance.limit),
                slot_hint: AtomicU32::new(u32::MAX),
            })
            .collect();
        let mut groups: SmallVec<[Group; 4]> = SmallVec::new();
        for (place, item) in items.iter().enumerate() {
            let owner = item.instance.identity.owner(cores);
            let at = groups.binary_search_by_key(&owner, |group| group.owner).unwrap_or_else(|at| {
                groups.insert(at, Group { owner, places: SmallVec::new(), active: false });
                at
            });
            groups[at].places.push(place as u16);
            groups[at].active |= item.stance != Stance::Skipped;
        }
        Arc::new(GateTwoPlan { items, groups })
    }

    /// The plan's instances, in evaluation order; those off or suspended too.
    pub fn instances(&self) -> impl ExactSizeIterator<Item = &Instance> {
        self.items.iter().map(|item| &item.instance)
    }

    /// Whether it has no instance at all.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The cores that own a counter of the plan, ascending: those to send an [`Ask::Read`](super::Ask::Read).
    pub fn owners(&self) -> impl Iterator<Item = CoreId> {
        self.groups.iter().map(|group| group.owner)
    }

    /// The cores that own a counter which is evaluated, ascending.
    pub(crate) fn deciders(&self) -> impl Iterator<Item = CoreId> {
        self.groups.iter().filter(|group| group.active).map(|group| group.owner)
    }

    /// The items that `owner` owns, with their places, in evaluation order.
    pub(crate) fn owned_by(&self, owner: CoreId) -> impl Iterator<Item = (u16, &GateTwoItem)> {
        let group = self.groups.iter().find(|group| group.owner == owner);
        let places = group.map_or(&[][..], |group| &group.places[..]);
        places.iter().map(|place| (*place, &self.items[usize::from(*place)]))
    }

    pub(crate) fn item(&self, place: u16) -> &GateTwoItem {
        &self.items[usize::from(place)]
    }
}
