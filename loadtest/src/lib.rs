//! A load generator and a model backend that drive any URL.
//!
//! `backend` is a stub of a model server that speaks the OpenAI HTTP API, reports usage and paces its tokens: for benchmarks,
//! tests and the demonstration. `run` sends load to a URL and reports latencies that hide nothing. Neither knows the gateway:
//! they see only HTTP, so that peers are measured with the same instruments.
//!
//! `results` shows what runs came to: side by side, and as a page with plots. `scenario` starts a gateway as a process (or drives one
//! that is there), sends it what a file says, and compares the counters that it shows with what clients saw.
//!
//! Rooms: `rt` is the runtime (the only place that names monoio), `http` the protocol without sockets, `random` what is
//! drawn, `bounds` every limit.

pub mod backend;
mod bounds;
pub mod duration;
mod http;
mod random;
pub mod results;
mod rt;
pub mod run;
pub mod scenario;
