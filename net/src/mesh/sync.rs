//! What cores share of the standard library's synchronisation, exchanged for loom's in its test build.
//!
//! Whatever decides whether a core sleeps is named through this module, so that `--cfg loom` checks all interleavings
//! of the very code that runs. The model is `engine/tests/loom_bed.rs`, which takes in the two files alone: loom in the
//! whole of this crate's tree would build the runtime under a flag that is not meant for it.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering, fence},
};
