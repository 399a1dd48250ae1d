//! Gate 2 as seen by the one who asks: `tpm`, quotas and budgets (SPEC §4.1, §4.4).
//!
//! The counters of one request may be owned by several cores. Each owner decides over its own group, all or nothing,
//! inside one call of [`Shard::apply`](crate::shard::Shard::apply); the [`Conjunction`] drives the owners and makes one
//! verdict of their answers. What crosses between cores is an [`Ask`] one way and an [`Answer`] the other.
//!
//! Rejected: reading the figures first and reserving after (two requests then pass on one slot); splitting a cap over
//! cores and balancing it in the background (not exact).

mod conjunction;
mod plan;

pub use conjunction::{Asks, Conjunction, Reservation, Step};
pub(crate) use plan::GateTwoItem;
pub use plan::GateTwoPlan;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::counter_identity::CoreId;
use crate::money::PicoUsd;
use crate::shard::MarkNumber;
use crate::time::Monotonic;
use crate::units::Tokens;
use crate::verdict::{RateLeft, Reading, Tripped};

/// The name of one conjunction: made by the asking core, never used again.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct ReservationId(pub u64);

impl ReservationId {
    /// The `sequence`th reservation of a core: the core in the upper 16 bits.
    pub const fn new(core: CoreId, sequence: u64) -> ReservationId {
        ReservationId(((core.0 as u64) << 48) | (sequence & ((1 << 48) - 1)))
    }

    /// The core that made it.
    pub const fn core(self) -> CoreId {
        CoreId((self.0 >> 48) as u16)
    }
}

/// What a request is expected to use (SPEC §4.5).
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Estimate {
    /// Tokens, prompt and output together.
    pub tokens: Tokens,
    /// Their price; `None` if the model has none.
    pub money: Option<PicoUsd>,
}

/// What a request really used.
#[must_use]
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Settlement {
    /// Tokens, prompt and output together.
    pub tokens: Tokens,
    /// Their price; `None` if the model has none, which marks the budgets `unpriced`.
    pub money: Option<PicoUsd>,
    /// The figures are estimated, because the backend reported none.
    pub estimated: bool,
}

/// A message to the core that owns counters. It acts on the plan's items that it owns, and on no other.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Hold the estimate on every item, or on none.
    Reserve {
        /// The conjunction.
        id: ReservationId,
        /// Its plan.
        plan: Arc<GateTwoPlan>,
        /// What to hold.
        estimate: Estimate,
        /// When the hold ends by itself: later than any exchange can last.
        deadline: Monotonic,
        /// The second round, owner after owner: there is no third.
        final_round: bool,
    },
    /// Say what would refuse now; hold nothing, count nothing.
    Check {
        /// The plan.
        plan: Arc<GateTwoPlan>,
        /// What would be held.
        estimate: Estimate,
    },
    /// Exchange the holds for what was used. No-op if the reservation is not known (any more).
    Settle {
        /// The conjunction.
        id: ReservationId,
        /// What was used.
        settlement: Settlement,
    },
    /// Give everything back. No-op if the reservation is not known (any more).
    Void {
        /// The conjunction.
        id: ReservationId,
    },
    /// Tell the figures. Counts nothing and makes no counter.
    Read {
        /// The plan.
        plan: Arc<GateTwoPlan>,
    },
}

/// What an owner answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Ask::Reserve`]: everything is held.
    Reserved(Reserved),
    /// To [`Ask::Reserve`]: nothing is held, these were over. To [`Ask::Check`]: these are over, or none.
    Refused(PartialRefusal),
    /// To [`Ask::Read`]: the figures by the item's place in the plan.
    Read(Vec<(u16, Reading)>),
    /// To [`Ask::Settle`] and [`Ask::Void`]; nobody waits for it.
    Done,
}

/// Places in the plan of items that only observe and would have refused.
pub(crate) type Noted = SmallVec<[u16; 4]>;

/// One owner's yes.
#[derive(Clone, Debug, Default)]
pub struct Reserved {
    /// The batch of the owner's marks that is to be written before anything is spent.
    pub(crate) after: MarkNumber,
    pub(crate) noted: Noted,
    pub(crate) tokens_left: Option<RateLeft>,
}

/// One owner's no: each of its caps that was over, by its place in the plan.
#[derive(Clone, Debug)]
pub struct PartialRefusal {
    /// Ascending by place.
    pub tripped: Vec<(u16, Tripped)>,
    /// Only what other requests in flight hold, or were counted for, stands in the way: a second try may pass.
    pub in_flight_only: bool,
}
