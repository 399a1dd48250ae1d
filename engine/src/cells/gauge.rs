//! `concurrency`: a live count of slots in use (SPEC §4.3).
//!
//! A slot is taken by an exchange that succeeds only below the amount, never by adding first and taking back when it
//! was too many: that would refuse wrongly for as long as the excess stands. The amount is the caller's, so a changed
//! amount neither loses nor invents a slot.
//!
//! Invariant: the figure equals the slots taken and not yet released. It is zero at rest.

use crate::sync::{AtomicU64, Ordering};

/// Slots in use.
#[derive(Debug)]
pub struct Gauge {
    live: AtomicU64,
}

impl Default for Gauge {
    fn default() -> Self {
        Gauge::new()
    }
}

impl Gauge {
    /// A gauge at zero.
    pub fn new() -> Gauge {
        Gauge { live: AtomicU64::new(0) }
    }

    /// Takes a slot if fewer than `amount` are in use.
    pub fn admit(&self, amount: u64) -> bool {
        let mut live = self.live.load(Ordering::Relaxed);
        while live < amount {
            match self.live.compare_exchange_weak(live, live + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => live = other,
            }
        }
        false
    }

    /// Takes a slot whatever the figure: for limits that only observe.
    pub fn record(&self) {
        self.live.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives a slot back. To be called once for each slot taken.
    pub fn release(&self) {
        let before = self.live.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a slot was released that nobody held");
    }

    /// Slots in use now.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Acquire)
    }
}
