//! Usage taps: the response streams past, and what it reports is what is charged (SPEC §4.7).
//!
//! `sse` finds the data of events, `watch` says which members matter in which dialect, `report` keeps the
//! last value of each field, `unpack` reads packed bodies, `tap` joins them and withholds the usage event
//! that the client did not ask for. A tap never changes a byte that it passes, never fails, and keeps bounded memory.

pub mod report;
pub mod sse;
pub mod tap;
pub(crate) mod unpack;
pub mod watch;

pub use report::Report;
pub use tap::{BodyKind, Coding, Relay, Seen, Tap};

#[cfg(test)]
mod dialect_tests;
#[cfg(test)]
mod tests;
