//! The park flag between the cores of the data plane in every interleaving, by loom: what is pushed is seen by the owner,
//! who is never asleep beside it for ever. The flag's own files are taken in from their crate, and nothing else of it.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p engine --release --test loom_bed`

#![cfg(loom)]

#[path = "../../net/src/mesh/sleep.rs"]
mod sleep;
#[path = "../../net/src/mesh/sync.rs"]
mod sync;

/// What [`sleep`] says to its own room only, said to this one.
mod model {
    pub use std::sync::Arc as StdArc;
    pub use std::task::{Poll, Wake, Waker};

    pub use loom::sync::atomic::{AtomicUsize, Ordering};
    pub use loom::sync::{Arc, Notify};
    pub use loom::thread;
}

use model::*;
use sleep::Bed;

/// Rings as the owner and the senders see them: only how many parcels there are, published no more strongly than the
/// real rings publish them.
#[derive(Default)]
struct Core {
    bed: Bed,
    parcels: AtomicUsize,
}

impl Core {
    fn send(&self) {
        self.parcels.fetch_add(1, Ordering::Release);
        self.bed.wake();
    }

    fn nothing_here(&self) -> bool {
        self.parcels.load(Ordering::Acquire) == 0
    }

    fn collect(&self) -> usize {
        self.parcels.swap(0, Ordering::AcqRel)
    }

    /// Polls as the runtime does: sleeps until woken, or now and then comes out by itself. If nobody wakes it, loom reports
    /// the deadlock.
    fn arrival(&self) {
        let bell = Bell::new();
        let mut slept = false;
        while self.bed.rest(&mut slept, &bell.waker(), || self.nothing_here()) == Poll::Pending {
            bell.0.wait();
        }
    }

    /// Lies down and is called away by a timer: the flag stays up.
    fn doze(&self) {
        let _ = self.bed.rest(&mut false, &Bell::new().waker(), || self.nothing_here());
    }
}

struct Bell(Notify);

impl Bell {
    fn new() -> StdArc<Bell> {
        StdArc::new(Bell(Notify::new()))
    }

    fn waker(self: &StdArc<Self>) -> Waker {
        Waker::from(StdArc::clone(self))
    }
}

impl Wake for Bell {
    fn wake(self: StdArc<Self>) {
        self.0.notify();
    }
}

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A model in which `senders` push `each`, and the owner sleeps whenever it has nothing.
fn all_arrive(senders: usize, each: usize) {
    let core = Arc::new(Core::default());
    let sending: Vec<_> = (0..senders)
        .map(|_| {
            let core = Arc::clone(&core);
            thread::spawn(move || (0..each).for_each(|_| core.send()))
        })
        .collect();
    let mut seen = 0;
    while seen < senders * each {
        core.arrival();
        seen += core.collect();
    }
    sending.into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn a_core_that_lies_down_beside_a_sender_sees_it_or_is_woken() {
    check(3, || all_arrive(1, 1));
}

#[test]
fn a_core_that_lies_down_again_and_again_misses_none_of_two_parcels() {
    check(3, || all_arrive(1, 2));
}

#[test]
fn of_two_senders_at_once_one_wakes_and_neither_is_missed() {
    check(2, || all_arrive(2, 1));
}

/// A wake without a parcel, as after a publication: the owner comes out, and a later parcel finds it again.
#[test]
fn a_wake_beside_a_parcel_loses_neither() {
    check(2, || {
        let core = Arc::new(Core::default());
        let sender = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                core.bed.wake();
                core.send();
            })
        };
        let mut seen = 0;
        while seen < 1 {
            core.arrival();
            seen += core.collect();
        }
        sender.join().unwrap();
    });
}

/// A timer calls the owner away while its flag is up; the next time it lies down, nothing is missed.
#[test]
fn a_core_called_away_from_its_sleep_misses_nothing_at_the_next() {
    check(3, || {
        let core = Arc::new(Core::default());
        let sender = {
            let core = Arc::clone(&core);
            thread::spawn(move || (0..2).for_each(|_| core.send()))
        };
        let mut seen = 0;
        core.doze();
        while seen < 2 {
            core.arrival();
            seen += core.collect();
        }
        sender.join().unwrap();
    });
}
