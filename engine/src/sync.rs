//! The atomics of the gate-1 cells, exchanged for loom's or shuttle's in their own test builds.
//!
//! Every atomic that more than one core writes is named through this module, so that `--cfg loom` checks all
//! interleavings, and `--cfg shuttle` a great many schedules, of the very code that runs, not of a copy. A normal build
//! needs neither.

pub(crate) use chosen::*;

#[cfg(not(any(loom, shuttle)))]
mod chosen {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

    /// Lets others get on, while one waits for the `turn`th time. Cores have a processor each, so there is nobody to give
    /// this one to.
    #[inline]
    pub(crate) fn pause(_turn: u32) {
        std::hint::spin_loop();
    }

    /// A number of this thread: those that ever ask are numbered from zero.
    #[inline]
    pub(crate) fn lane_of_thread() -> usize {
        use std::sync::atomic::AtomicUsize;

        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static LANE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % crate::bounds::LANES;
        }
        LANE.with(|lane| *lane)
    }
}

/// All threads begin at the same lane, so that the models see them contend for it.
#[cfg(loom)]
mod chosen {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

    /// Two who wait could be shown in turn without end, and who they wait for never: after a few turns no other
    /// order of what follows is looked at.
    pub(crate) fn pause(turn: u32) {
        if turn > 1 {
            loom::skip_branch();
        }
        loom::thread::yield_now();
    }

    pub(crate) fn lane_of_thread() -> usize {
        0
    }
}

#[cfg(shuttle)]
mod chosen {
    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};

    pub(crate) fn pause(_turn: u32) {
        shuttle::thread::yield_now();
    }

    pub(crate) fn lane_of_thread() -> usize {
        0
    }
}
