//! The runtime room: the only place of this crate that names monoio.
//!
//! One runtime a thread, on io_uring with `SINGLE_ISSUER | COOP_TASKRUN`; where the kernel or the locked-memory limit refuses
//! that, a plain ring, then a small plain ring, then epoll. Left out on purpose: `DEFER_TASKRUN` (I/O starves while tasks wake
//! each other), `SQPOLL` (panics under a burst), and the runtime's own fusion driver, which probes with a tiny ring and then
//! fails instead of falling back.
//!
//! Rules kept here: an accept is ended by its canceller only, never by a time-out; a read that was dropped may have eaten bytes,
//! so whoever drops one closes the connection; no task wakes itself while it is polled; a task that panics ends alone.

mod alarm;
mod net;
mod tasks;

use std::io;
use std::time::{Duration, Instant};

use crate::bounds;

pub use alarm::Alarm;
pub use net::{Connection, Listener, StopRequest, StopSignal, connect, stop_signal};
pub use tasks::{Either, Tasks, either};

/// Pins the calling thread, and every thread it starts from now on, to one core.
///
/// # Errors
/// The core does not exist or this process may not use it.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    monoio::utils::bind_to_cpu_set([core])
        .map_err(|error| io::Error::other(format!("cannot pin to core {core}: {error}")))
}

/// The same for several cores, of which the system takes one at a time.
///
/// # Errors
/// One does not exist, or this process may not use any.
pub fn pin_to_cores(cores: &[usize]) -> io::Result<()> {
    monoio::utils::bind_to_cpu_set(cores.iter().copied())
        .map_err(|error| io::Error::other(format!("cannot pin to cores {cores:?}: {error}")))
}

/// Runs `main` to its end on a new runtime of the calling thread.
///
/// # Errors
/// No driver at all could be built.
pub fn block_on<F: Future>(main: F) -> io::Result<F::Output> {
    let mut flagged = io_uring::IoUring::builder();
    flagged.setup_single_issuer().setup_coop_taskrun();
    let plain = io_uring::IoUring::builder();
    let attempts = [
        (flagged.clone(), bounds::RING_ENTRIES),
        (flagged, bounds::SMALL_RING_ENTRIES),
        (plain, bounds::SMALL_RING_ENTRIES),
    ];
    for (mut ring, entries) in attempts {
        ring.setup_cqsize(entries * 4);
        let built = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
            .uring_builder(ring)
            .with_entries(entries)
            .enable_timer()
            .build();
        if let Ok(mut runtime) = built {
            return Ok(runtime.block_on(main));
        }
    }
    block_on_epoll(main)
}

/// The same without io_uring.
fn block_on_epoll<F: Future>(main: F) -> io::Result<F::Output> {
    let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().enable_timer().build()?;
    Ok(runtime.block_on(main))
}

/// Sleeps at least until `deadline`; the wheel has steps of 1 ms and rounds up. `Alarm` is the precise one.
pub async fn sleep_until(deadline: Instant) {
    monoio::time::sleep_until(monoio::time::Instant::from_std(deadline)).await;
}

/// Sleeps at least for `duration`, in steps of 1 ms.
pub async fn sleep(duration: Duration) {
    monoio::time::sleep(duration).await;
}

/// Runs `work` until `deadline` at the latest; `None` when it was not done by then.
///
/// The future is dropped then: a connection it was reading from must be closed.
pub async fn before<F: Future>(deadline: Instant, work: F) -> Option<F::Output> {
    monoio::time::timeout_at(monoio::time::Instant::from_std(deadline), work).await.ok()
}

#[cfg(test)]
mod tests;
