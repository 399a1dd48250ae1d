//! JSON as the data plane needs it: whole bodies are validated and a few members found (`scan`, `body`),
//! responses are watched while they stream past (`capture`), and a rewrite splices spans (`rewrite`).
//!
//! No tree is ever built and nothing recurses: a body is forwarded as it came, so only places in it
//! matter. Rejected: sonic-rs and serde_json for bodies (a tree or typed structs lose the spans, hide
//! duplicates and unknown spellings, and recurse).

pub mod body;
pub mod capture;
mod escape;
mod members;
mod names;
mod nesting;
mod plain;
pub mod rewrite;
pub mod scan;
mod watch;

pub use body::{Asked, BYTES_PER_TOKEN, BodyError, BodyFacts, expected, read_body};
pub use rewrite::rewrite;

#[cfg(test)]
mod tests;
