//! The atomics of the gate-1 cells, exchanged for loom's in its own test build.
//!
//! Every atomic that more than one core writes is named through this module, so that `--cfg loom` checks all
//! interleavings of the very code that runs, not of a copy. A normal build needs no loom.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
