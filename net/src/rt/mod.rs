//! The one room that knows the runtime: monoio on io_uring, with epoll as the last resort.
//!
//! Everything else in this crate speaks of [`Stream`], [`spawn`], [`sleep`], [`within`] and [`run_core`].
//! The rules that the runtime imposes are kept here and nowhere else:
//!
//! * a read that was given up may have eaten bytes, so its connection is closed and never pooled;
//! * an accept is never raced with anything: one accept task a listener, ended by a canceller;
//! * a task never wakes itself inside its own poll;
//! * a panic in a task ends that task alone ([`spawn`] catches it);
//! * names are never resolved here: connections go to socket addresses.
//!
//! Rejected: `DEFER_TASKRUN` (starves input and output while tasks are runnable) and `SQPOLL` (panics under
//! bursts of connects).

mod listener;
mod offload;
mod patience;
mod runtime;
mod stream;
mod sys;
mod task;
mod tls;
mod vigil;

pub use listener::{Acceptor, bind_all};
pub use offload::{Offload, offload};
pub use patience::{Late, within};
pub use runtime::run_core;
pub use stream::Stream;
pub use sys::{allowed_cpus, monotonic_nanoseconds, nanoseconds_asleep, shutdown_read};
pub use task::{Waited, Watch, first_of, sleep, spawn, watched};
pub use tls::NoTls;
pub use vigil::{Vigil, arrived};
