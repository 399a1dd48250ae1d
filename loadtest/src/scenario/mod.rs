//! Scenarios: load, backend and governance written down together, run with one command, and checked against the gateway's own counters.
//!
//! A gateway that is started here is a process like any other: configured by its config file, asked through its public APIs, and
//! ended on every path. A target that is already there is driven as it is.
//!
//! Rooms: `file` and `values` are the TOML, `source` finds and reads it; `gateway`, `children` and `backend` start what is driven;
//! `client` and `views` ask what was counted, `check` compares it with what clients saw; `ramp` searches; `disturbance` says what else ran; `execute` does all of it in
//! order, and `outcome` shows what it came to.

mod backend;
pub mod check;
pub mod children;
mod client;
mod disturbance;
mod execute;
pub mod file;
mod gateway;
mod outcome;
pub mod ramp;
mod source;
mod values;
pub mod views;

pub use execute::{Existing, Own, Settings, Step, Where, run};
pub use outcome::Outcome;
pub use source::{BUILT_IN, Changes, Scenario};

#[cfg(test)]
mod tests;
