//! The built command as a whole: real processes, real sockets, this machine only.
//!
//! What the conformance suite does not ask: faults of backends and of clients at every stage, what
//! leaks, how the process ends, and that `demo` prints what works.

#[path = "../support/mod.rs"]
mod support;

mod aborts;
mod analytics;
mod backends;
mod bounds;
mod counting;
mod demo;
mod estimates;
mod exactness;
mod journal;
mod keys;
mod kills;
mod kinds;
mod kit;
mod lifecycle;
mod requests;
mod storm;
mod tls_backends;
mod tls_clients;
mod tls_pieces;
mod upstreams;
