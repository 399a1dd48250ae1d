//! One runtime a core, built by the best means this kernel grants.

use std::future::Future;
use std::io;

use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};
use tracing::{debug, info, warn};

use super::patience::keep_watch;
use super::{spawn, sys, vigil};
use crate::bounds::{CORE_SLICE, RING_ENTRIES, SMALL_RING_ENTRIES};

/// Pins the calling thread to `cpu` and runs `work` to its end on a runtime of its own.
///
/// Tried in turn: io_uring with `SINGLE_ISSUER | COOP_TASKRUN`, a plain ring, a small plain ring (what a tight
/// `RLIMIT_MEMLOCK` allows), epoll. The first reason for a step down is logged.
///
/// # Errors
/// When not even epoll is to be had.
pub fn run_core<T>(cpu: Option<usize>, work: impl Future<Output = T>) -> io::Result<T> {
    let work = async move {
        spawn("patience", keep_watch());
        work.await
    };
    let mut pinned = false;
    if let Some(cpu) = cpu {
        match monoio::utils::bind_to_cpu_set([cpu]) {
            Ok(()) => pinned = true,
            Err(refused) => warn!(cpu, %refused, "core not pinned"),
        }
    }
    vigil::permit(pinned);
    if let Err(refused) = sys::run_in_slices(CORE_SLICE.as_nanos() as u64) {
        debug!(%refused, "a core wakes like any other thread");
    }
    for (entries, tuned) in [(RING_ENTRIES, true), (RING_ENTRIES, false), (SMALL_RING_ENTRIES, false)] {
        match ring(entries, tuned).build() {
            Ok(mut runtime) => return Ok(runtime.block_on(work)),
            Err(refused) => info!(entries, tuned, %refused, "io_uring ring refused, trying the next form"),
        }
    }
    warn!("no io_uring: running on epoll");
    vigil::permit(false);
    let mut runtime = RuntimeBuilder::<LegacyDriver>::new().enable_timer().build()?;
    Ok(runtime.block_on(work))
}

fn ring(entries: u32, tuned: bool) -> RuntimeBuilder<monoio::time::TimeDriver<IoUringDriver>> {
    let mut flags = io_uring::IoUring::builder();
    flags.setup_cqsize(entries * 4);
    if tuned {
        flags.setup_single_issuer().setup_coop_taskrun();
    }
    RuntimeBuilder::<IoUringDriver>::new().with_entries(entries).uring_builder(flags).enable_timer()
}
