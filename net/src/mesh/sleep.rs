//! The park flag of one core and the waker behind it.
//!
//! Invariant: a core that sleeps has stored its waker and raised its flag *before* it looked at its rings for the
//! last time, and a sender looks at the flag *after* it has pushed; both with a full fence between, so at least
//! one of the two sees the other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Waker;

#[derive(Debug, Default)]
pub(super) struct Bed {
    asleep: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bed {
    /// The owner is about to look at its rings for the last time.
    pub(super) fn lie_down(&self, waker: &Waker) {
        let mut slot = self.waker.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &mut *slot {
            Some(kept) => kept.clone_from(waker),
            empty => *empty = Some(waker.clone()),
        }
        drop(slot);
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The owner is awake by itself.
    pub(super) fn get_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// A sender has pushed something: wakes the owner if it sleeps.
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            let waker = self.waker.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
