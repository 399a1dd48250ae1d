//! The data plane: one pinned core, one runtime, one listener, one shard each.
//!
//! ```text
//! connection -> http1 -> identity -> plans -> gate 1 -> json -> gate 2 -> upstream -> relay + usage -> charge
//! ```
//!
//! [`Gateway`] starts it and publishes to it. The rooms without sockets ([`http1`], [`json`], [`usage`], [`answer`],
//! [`identity`], [`endpoint`]) know nothing of the others; `exchange` is the order in which they are called; `rt` is the
//! only room that knows the runtime, and the only one with `unsafe` code.

pub mod answer;
pub mod bounds;
mod charge;
mod clock;
mod connection;
mod core;
pub mod endpoint;
mod exchange;
pub mod form;
mod gateway;
pub mod http1;
pub mod identity;
mod journal;
pub mod json;
pub mod mesh;
mod meter;
mod plans;
mod relay;
mod retired;
#[doc(hidden)]
pub mod rt;
#[cfg(test)]
mod seeded;
mod server;
mod snapshot;
mod tally;
mod upstream;
pub mod usage;
mod visit;

pub use gateway::{Gateway, Publisher};
pub use snapshot::{Backend, ClientTls, HttpBounds, Room, Secret, Settings, Snapshot, Target, Targets};
