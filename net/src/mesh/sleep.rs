//! The park flag of one core and the waker behind it.
//!
//! Invariant: a core that sleeps has stored its waker and raised its flag *before* it looked at its rings for the
//! last time, and a sender looks at the flag *after* it has pushed; both with a full fence between, so at least
//! one of the two sees the other. `engine/tests/loom_bed.rs` checks it in every interleaving.
//!
//! Every change of the flag is an exchange, so all of them stand in one order whatever the memory model: a plain store
//! by the owner would leave open whether a sender's late exchange comes before it. It costs nothing on the way of a
//! request: the owner exchanges only when it goes to sleep, or when it finds that it had said so.

use std::task::{Poll, Waker};

use super::sync::{AtomicBool, Mutex, Ordering, fence};

#[derive(Debug, Default)]
pub(super) struct Bed {
    asleep: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bed {
    /// One poll of the owner, which sleeps while there is `nothing_here` for it. `slept` is false at the first.
    pub(super) fn rest(&self, slept: &mut bool, waker: &Waker, nothing_here: impl Fn() -> bool) -> Poll<()> {
        if !*slept && nothing_here() {
            self.lie_down(waker);
            if nothing_here() {
                *slept = true;
                return Poll::Pending;
            }
        }
        self.get_up();
        Poll::Ready(())
    }

    /// The owner is about to look at its rings for the last time.
    fn lie_down(&self, waker: &Waker) {
        let mut slot = self.waker.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &mut *slot {
            Some(kept) => kept.clone_from(waker),
            empty => *empty = Some(waker.clone()),
        }
        drop(slot);
        self.asleep.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// The owner is awake by itself.
    fn get_up(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.swap(false, Ordering::AcqRel);
        }
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
