//! Waking at a precise instant.
//!
//! The runtime's timer wheel has steps of 1 ms and rounds up: a load generator that sends by it measures itself. A `timerfd`, which
//! the ring polls, is late by tens of microseconds only. Rejected: spinning through a second task (precise, but it burns the core
//! that the backend may share).
//!
//! Invariant: `waiting` is sorted by deadline, and while it is not empty the driver task has the timer armed for its front.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::TcpStream as StdStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use monoio::net::TcpStream;

use super::Tasks;

/// One timer that wakes many tasks of this thread, each at its own instant.
#[derive(Clone)]
pub struct Alarm {
    state: Rc<RefCell<State>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Instant, Waker)>,
    driver: Option<Waker>,
    closed: bool,
}

impl Alarm {
    /// Starts the alarm's driver as one of `tasks`.
    ///
    /// # Errors
    /// The kernel gives no timer descriptor.
    pub fn start(tasks: &Tasks) -> io::Result<Alarm> {
        let timer = Timer::new()?;
        let alarm = Alarm { state: Rc::default() };
        let driver = alarm.clone();
        tasks.start(async move { driver.drive(timer).await });
        Ok(alarm)
    }

    /// Ends the driver. Tasks that still wait are woken.
    pub fn close(&self) {
        let mut state = self.state.borrow_mut();
        state.closed = true;
        for (_, waker) in state.waiting.drain(..) {
            waker.wake();
        }
        if let Some(driver) = state.driver.take() {
            driver.wake();
        }
    }

    /// Waits until `deadline` (or until the alarm is closed). Returns at once when it has passed.
    pub async fn until(&self, deadline: Instant) {
        let mut entered = false;
        poll_fn(|context| {
            if Instant::now() >= deadline || self.state.borrow().closed {
                return Poll::Ready(());
            }
            if !entered {
                entered = true;
                self.enter(deadline, context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    fn enter(&self, deadline: Instant, waker: Waker) {
        let mut state = self.state.borrow_mut();
        // Deadlines mostly come in order, so the search from the back is short.
        let place =
            state.waiting.iter().rposition(|(earlier, _)| *earlier <= deadline).map_or(0, |index| index + 1);
        state.waiting.insert(place, (deadline, waker));
        if place == 0
            && let Some(driver) = state.driver.take()
        {
            driver.wake();
        }
    }

    async fn drive(&self, timer: Timer) {
        loop {
            let front = poll_fn(|context| {
                let mut state = self.state.borrow_mut();
                if state.closed {
                    return Poll::Ready(None);
                }
                if let Some((deadline, _)) = state.waiting.front() {
                    return Poll::Ready(Some(*deadline));
                }
                state.driver = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
            let Some(deadline) = front else { return };
            let left = deadline.saturating_duration_since(Instant::now());
            if !left.is_zero() && !self.timer_rang(&timer, left).await {
                continue;
            }
            let now = Instant::now();
            let mut state = self.state.borrow_mut();
            while state.waiting.front().is_some_and(|(deadline, _)| *deadline <= now) {
                if let Some((_, waker)) = state.waiting.pop_front() {
                    waker.wake();
                }
            }
        }
    }

    /// Whether the timer rang; `false` when an earlier deadline (or the close) came in first.
    async fn timer_rang(&self, timer: &Timer, left: Duration) -> bool {
        if timer.arm(left).is_err() {
            // No reason is known for a valid time to be refused; the wheel is late but right.
            super::sleep(left).await;
            return true;
        }
        let changed = poll_fn({
            let mut armed = false;
            move |context| {
                let mut state = self.state.borrow_mut();
                if armed && state.driver.is_none() {
                    return Poll::Ready(());
                }
                armed = true;
                state.driver = Some(context.waker().clone());
                Poll::Pending
            }
        });
        matches!(super::either(timer.rang(), changed).await, super::Either::First(()))
    }
}

/// A monotonic kernel timer. Arming it again forgets what it rang for, so it is never read.
struct Timer {
    // Only polled for readiness: the runtime has no type for other descriptors, and polling is the same for all of them.
    polled: TcpStream,
    descriptor: RawFd,
}

impl Timer {
    fn new() -> io::Result<Timer> {
        // SAFETY: the call takes no memory.
        let descriptor =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and has no other owner.
        let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let polled = TcpStream::from_std(StdStream::from(owned))?;
        Ok(Timer { descriptor: polled.as_raw_fd(), polled })
    }

    fn arm(&self, left: Duration) -> io::Result<()> {
        let at = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: libc::c_long::from(left.subsec_nanos() as i32),
            },
        };
        // SAFETY: `at` outlives the call, the old value is not asked for, and `polled` keeps the descriptor open.
        let result = unsafe { libc::timerfd_settime(self.descriptor, 0, &at, std::ptr::null_mut()) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    async fn rang(&self) {
        // An error of the poll itself would only make the alarm early: the driver looks at the clock after it.
        let _ = self.polled.readable(false).await;
    }
}
