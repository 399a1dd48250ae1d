//! The atomics of the gate-1 cells, exchanged for loom's or shuttle's in their own test builds.
//!
//! Every atomic that more than one core writes is named through this module, so that `--cfg loom` checks all
//! interleavings, and `--cfg shuttle` a great many schedules, of the very code that runs, not of a copy. A normal build
//! needs neither.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
