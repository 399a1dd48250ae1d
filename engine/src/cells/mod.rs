//! Gate 1: `rpm` and `concurrency`, counted in lock-free cells that every core shares (SPEC §4.2, §4.3).
//!
//! A cell is one cache-padded group of atomics, found once through a concurrent map and then kept in the compiled
//! [`GateOnePlan`] of a chain. The amount is never in a cell: the caller passes it, so an edit keeps the usage.
//!
//! Rejected: an owner core that is sent a message for each request (a message costs more than the whole gate); stripes
//! for each core (they must be summed, and an exact limit cannot be split).

mod gauge;
mod map;
mod plan;
mod ring;
mod takers;
mod token_bucket;

use std::fmt;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

pub use gauge::Gauge;
pub use plan::{Admission, Counted, GateOnePlan, GateOneVerdict};
pub use ring::{BucketRing, Epoch, FixedWindow, Level, OverAmount, RollingWindow};
pub use token_bucket::{Drip, TokenBucket};

use self::map::CellMap;
use self::takers::Takers;
use crate::limits::{Algorithm, Limit, Window};
use crate::resolve::Selected;
use crate::time::{Monotonic, Span};

/// One counter of gate 1, of the kind its limit asks for: alone on its cache lines, shared by all cores.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Rolling(Arc<CachePadded<RollingWindow>>),
    Fixed(Arc<CachePadded<FixedWindow>>),
    Bucket(Arc<CachePadded<TokenBucket>>),
    Gauge(Arc<CachePadded<Gauge>>),
}

impl Cell {
    fn of(limit: &Limit, epoch_offset: Span) -> Cell {
        match &limit.window {
            Window::Rolling { period, algorithm: Algorithm::SlidingWindow } => {
                Cell::Rolling(Arc::new(CachePadded::new(RollingWindow::new(period.0, 0))))
            }
            Window::Rolling { period, algorithm: Algorithm::FixedWindow } => {
                Cell::Fixed(Arc::new(CachePadded::new(FixedWindow::new(period.0, epoch_offset.0))))
            }
            Window::Rolling { period, algorithm: Algorithm::TokenBucket } => {
                Cell::Bucket(Arc::new(CachePadded::new(TokenBucket::new(period.0))))
            }
            Window::Live | Window::Calendar { .. } => Cell::Gauge(Arc::new(CachePadded::new(Gauge::new()))),
        }
    }

    /// Requests or slots counted now.
    fn observed(&self, now: Monotonic, amount: u64) -> u64 {
        match self {
            Cell::Rolling(cell) => cell.level(now.0).observed,
            Cell::Fixed(cell) => cell.level(now.0).observed,
            Cell::Bucket(cell) => cell.level(now.0, amount).observed,
            Cell::Gauge(cell) => cell.live(),
        }
    }

    fn is_shared(&self) -> bool {
        let owners = match self {
            Cell::Rolling(cell) => Arc::strong_count(cell),
            Cell::Fixed(cell) => Arc::strong_count(cell),
            Cell::Bucket(cell) => Arc::strong_count(cell),
            Cell::Gauge(cell) => Arc::strong_count(cell),
        };
        owners > 1
    }
}

/// All cells of gate 1, by identity; shared by all cores.
pub struct CellTable {
    cells: CellMap,
    takers: Arc<Takers>,
    epoch_offset: Span,
}

impl CellTable {
    /// An empty table. `epoch_offset` is the wall clock, as nanoseconds since 1970, at zero of the monotonic clock: it
    /// aligns fixed windows to the epoch once (SPEC §10); after that the monotonic clock alone drives them.
    pub fn new(epoch_offset: Span) -> CellTable {
        CellTable { cells: CellMap::new(), takers: Arc::new(Takers::new()), epoch_offset }
    }

    /// Compiles the gate-1 instances of one chain, in their order, and finds or makes the cell of each.
    pub fn plan(&self, selected: &Selected) -> Arc<GateOnePlan> {
        Arc::new(GateOnePlan::new(selected, Arc::clone(&self.takers), |instance| {
            self.cells.find_or_make(&instance.identity, || Cell::of(&instance.limit, self.epoch_offset))
        }))
    }

    /// Forgets the cells that are at zero and that no plan knows; returns how many.
    pub fn sweep(&self, now: Monotonic) -> usize {
        let before = self.cells.len();
        // Within the map's lock a count of one means that nobody else has the cell, and nobody can get it now.
        self.cells.retain(|cell| cell.is_shared() || cell.observed(now, 1) > 0);
        before.saturating_sub(self.cells.len())
    }

    /// Slots held now, over all gauges: zero whenever no request is under way.
    pub fn live_slots(&self) -> u64 {
        let mut live = 0;
        self.cells.each(|cell| {
            if let Cell::Gauge(gauge) = cell {
                live += gauge.live();
            }
        });
        live
    }

    /// Cells in the table.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for CellTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CellTable").field("cells", &self.cells.len()).finish_non_exhaustive()
    }
}
