//! Bounds on waiting, by one coarse clock a core instead of a timer a wait.
//!
//! Every read and every write of a core has a bound, and nearly all end long before it. A timer each would cost two looks at
//! the clock and a place in the runtime's wheel. Here a wait leaves its bound, in ticks, in a slot; every [`PATIENCE_TICK`]
//! the core looks over its slots and wakes whoever has waited too long. A task has a slot of its own, which remembers whom to
//! wake from one wait to the next; a wait inside another one, and one outside of any task, takes another slot.
//!
//! Invariant: no bound ends early. It ends up to two ticks late, and as much later as the core itself is.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use slab::Slab;

use crate::bounds::PATIENCE_TICK;

thread_local! {
    static WAITS: Waits = Waits::default();
    /// The slot of the task that is being polled.
    static CURRENT: Cell<usize> = const { Cell::new(NOBODY) };
}

const NOBODY: usize = usize::MAX;
/// The tick with which a slot that nobody waits in is over.
const IDLE: u64 = u64::MAX;

/// The slot of a task, until it is dropped.
pub(super) struct Seat(usize);

impl Seat {
    /// A slot for a task of this thread.
    pub(super) fn take() -> Seat {
        Seat(WAITS.with(Waits::seat))
    }

    /// Polls the task that it belongs to. The poll must not unwind.
    pub(super) fn polled<T>(&self, poll: impl FnOnce() -> T) -> T {
        CURRENT.set(self.0);
        let polled = poll();
        CURRENT.set(NOBODY);
        polled
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // A thread that ends has no slots any more.
        let _ = WAITS.try_with(|waits| waits.remove(self.0));
    }
}

/// The bound passed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late;

/// The result of `work`, or [`Late`] when it was not done within `span`. A read given up this way may have eaten bytes: close
/// its connection. Needs the core's [`keep_watch`].
pub fn within<F: Future>(span: Duration, work: F) -> Within<F> {
    Within { work, span, wait: None }
}

pin_project! {
    /// See [`within`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Within<F> {
        #[pin]
        work: F,
        span: Duration,
        wait: Option<Wait>,
    }
}

impl<F: Future> Future for Within<F> {
    type Output = Result<F::Output, Late>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(value) = this.work.poll(context) {
            *this.wait = None;
            return Poll::Ready(Ok(value));
        }
        match this.wait {
            None => *this.wait = Some(Wait::begin(*this.span, context.waker())),
            Some(wait) if wait.is_over(context.waker()) => return Poll::Ready(Err(Late)),
            Some(_) => {}
        }
        Poll::Pending
    }
}

/// A place in this thread's slots, until it is dropped.
struct Wait(usize);

impl Wait {
    fn begin(span: Duration, waker: &Waker) -> Wait {
        WAITS.with(|waits| Wait(waits.begin(CURRENT.get(), span, waker)))
    }

    fn is_over(&self, waker: &Waker) -> bool {
        WAITS.with(|waits| waits.is_over(self.0, waker))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // A thread that ends has no slots any more.
        let _ = WAITS.try_with(|waits| waits.end(self.0));
    }
}

/// Looks over this core's waits for as long as the core lives.
pub async fn keep_watch() {
    let mut looked = Instant::now();
    loop {
        monoio::time::sleep(PATIENCE_TICK).await;
        let passed = looked.elapsed().as_nanos() / PATIENCE_TICK.as_nanos();
        looked += PATIENCE_TICK * u32::try_from(passed).unwrap_or(u32::MAX);
        for waker in WAITS.with(|waits| waits.pass(u64::try_from(passed).unwrap_or(u64::MAX))) {
            waker.wake();
        }
    }
}

#[derive(Default)]
struct Waits {
    /// Ticks that have passed.
    now: Cell<u64>,
    slots: RefCell<Slab<Slot>>,
}

struct Slot {
    /// The tick in which the wait began.
    began: u64,
    /// The tick with which it is over; [`IDLE`] while nobody waits.
    due: u64,
    /// Whom to wake then; absent once that was done.
    waker: Option<Waker>,
    /// Whether it is a task's own, which stays when a wait is over.
    seat: bool,
}

impl Slot {
    /// Returns what it remembered instead: to be dropped outside of the borrow of all slots, because with its last waker a task
    /// may go, and its own slots with it.
    #[must_use]
    fn wakes(&mut self, waker: &Waker) -> Option<Waker> {
        match &self.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => self.waker.replace(waker.clone()),
        }
    }
}

impl Waits {
    /// A slot that stays until it is removed.
    fn seat(&self) -> usize {
        self.slots.borrow_mut().insert(Slot { began: 0, due: IDLE, waker: None, seat: true })
    }

    /// Begins a wait, in `seat` if there is one and nobody waits in it.
    fn begin(&self, seat: usize, span: Duration, waker: &Waker) -> usize {
        let ticks = span.as_nanos().div_ceil(PATIENCE_TICK.as_nanos());
        let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
        let began = self.now.get();
        // The tick under way is not a whole one.
        let due = began.saturating_add(ticks).saturating_add(1).min(IDLE - 1);
        let mut slots = self.slots.borrow_mut();
        match slots.get_mut(seat) {
            Some(slot) if slot.seat && slot.due == IDLE => {
                (slot.began, slot.due) = (began, due);
                let other = slot.wakes(waker);
                drop(slots);
                drop(other);
                seat
            }
            _ => slots.insert(Slot { began, due, waker: Some(waker.clone()), seat: false }),
        }
    }

    fn is_over(&self, slot: usize, waker: &Waker) -> bool {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(slot) else { return false };
        let over = slot.due <= self.now.get();
        let other = if over { None } else { slot.wakes(waker) };
        drop(slots);
        drop(other);
        over
    }

    fn end(&self, slot: usize) {
        match self.slots.borrow_mut().get_mut(slot) {
            Some(slot) if slot.seat => return slot.due = IDLE,
            _ => {}
        }
        self.remove(slot);
    }

    fn remove(&self, slot: usize) {
        let removed = self.slots.borrow_mut().try_remove(slot);
        // Outside of the borrow: as of `Slot::wakes`.
        drop(removed);
    }

    /// So many ticks have passed; returns who has waited long enough.
    fn pass(&self, ticks: u64) -> Vec<Waker> {
        let before = self.now.get();
        self.now.set(before.saturating_add(ticks));
        let mut over = Vec::new();
        for (_, slot) in self.slots.borrow_mut().iter_mut() {
            if slot.began == before && ticks > 1 {
                // It may have begun in the last of these ticks, not in the first.
                slot.due = slot.due.saturating_add(ticks - 1);
            }
            if slot.due <= self.now.get() {
                over.extend(slot.waker.take());
            }
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins waits and lets time pass in jumps; no wait may be over before its span, and each must be two ticks after it,
    /// counted from the jump that made it known.
    #[test]
    fn no_wait_is_over_early_and_none_is_forgotten() {
        let tick = PATIENCE_TICK.as_nanos() as u64;
        let mut random = crate::seeded::seeded();
        let waits = Waits::default();
        let seats = [(); 4].map(|()| waits.seat());
        // When it really began, and its span, in nanoseconds.
        let mut open: Vec<(usize, u64, u64)> = Vec::new();
        let (mut now, mut looked, mut overs) = (0u64, 0u64, 0);
        for _ in 0..20_000 {
            for _ in 0..random(4) {
                now += random(tick);
                let span = random(20 * tick);
                // Half of them try the seats, and find them free or taken.
                let seat = seats.get(random(8) as usize).copied().unwrap_or(NOBODY);
                open.push((waits.begin(seat, Duration::from_nanos(span), Waker::noop()), now, span));
            }
            now += tick + random(2) * random(6 * tick);
            let passed = (now - looked) / tick;
            looked += passed * tick;
            let woken = waits.pass(passed).len();
            let before = open.len();
            open.retain(|(slot, began, span)| {
                let over = waits.is_over(*slot, Waker::noop());
                assert!(!over || now >= began + span, "early by {} ns", began + span - now);
                assert!(over || now < began + span + 10 * tick, "late by {} ns", now - began - span);
                if over {
                    waits.end(*slot);
                }
                !over
            });
            assert_eq!(woken, before - open.len(), "whoever is over is woken, once");
            overs += woken;
        }
        assert!(overs > 10_000);
        let seated = open.iter().filter(|(slot, ..)| seats.contains(slot)).count();
        assert_eq!(waits.slots.borrow().len(), open.len() - seated + seats.len());
    }

    #[test]
    fn a_wait_that_ends_leaves_its_slot() {
        let waits = Waits::default();
        let slot = waits.begin(NOBODY, Duration::from_secs(1), Waker::noop());
        waits.end(slot);
        assert!(waits.pass(1_000).is_empty() && waits.slots.borrow().is_empty());
        let for_ever = waits.begin(NOBODY, Duration::MAX, Waker::noop());
        assert!(!waits.is_over(for_ever, Waker::noop()));
    }

    #[test]
    fn a_task_has_one_seat_and_a_wait_inside_another_one_its_own_slot() {
        let waits = Waits::default();
        let seat = waits.seat();
        let outer = waits.begin(seat, PATIENCE_TICK, Waker::noop());
        let inner = waits.begin(seat, 10 * PATIENCE_TICK, Waker::noop());
        assert!(outer == seat && inner != seat);
        assert_eq!((waits.pass(1).len(), waits.pass(1).len()), (0, 1), "the outer one alone");
        assert!(waits.is_over(outer, Waker::noop()) && !waits.is_over(inner, Waker::noop()));
        waits.end(outer);
        assert_eq!(waits.pass(1_000).len(), 1, "the inner one, and nobody who does not wait");
        waits.end(inner);
        assert_eq!(waits.begin(seat, PATIENCE_TICK, Waker::noop()), seat, "free again");
        assert_eq!((waits.pass(1).len(), waits.pass(1).len()), (0, 1), "whom to wake is known again");
        waits.remove(seat);
        assert!(waits.slots.borrow().is_empty());
        assert_ne!(waits.begin(seat, PATIENCE_TICK, Waker::noop()), NOBODY, "a stale seat is no seat");
    }
}
