//! A core that has nothing to do looks for work for a short while before it sleeps, while that pays.
//!
//! Being woken is dear: tens of microseconds on a virtual machine, most of what the gateway adds to a single client's
//! latency. So a core whose work comes again and again within that time stays awake for it; [`window`] says how long.
//!
//! A look is one turn of the runtime that cannot sleep: the vigil, a task of its own, waits for something that is always
//! there (an end of a socket pair, to be writable), and the runtime goes on its whole way for that: it hands over what was
//! submitted, takes completions, wakers of other threads and timers, and comes back. So nothing starves, however long
//! looks follow one another, and when the vigil ends the core sleeps as it always did. Other threads that want the processor
//! get it at each look, and are then left alone with it for a while.
//!
//! Rejected: two tasks that wake each other in turn. That is a third less work a look, but the runtime then never gets to
//! timers and to other threads' wakers while it lasts, and those would need a way around it.

mod window;

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use monoio::net::UnixStream;
use tracing::warn;

use super::{spawn, sys};
use crate::bounds::PAUSES_A_LOOK;
use window::Window;

thread_local! {
    /// What has come to this core so far; only differences mean anything.
    static ARRIVALS: Cell<u32> = const { Cell::new(0) };
    /// Whether this core's vigil waits to be told of the next arrival.
    static ASLEEP: Cell<bool> = const { Cell::new(false) };
    /// When the arrival came that ended its sleep.
    static ROUSED: Cell<Option<Instant>> = const { Cell::new(None) };
    static SLEEPER: Cell<Option<Waker>> = const { Cell::new(None) };
    /// Whether this thread may look at all.
    static PERMITTED: Cell<bool> = const { Cell::new(false) };
}

/// Something has come from outside of this core: bytes, a connection, a parcel of another core.
#[inline]
pub fn arrived() {
    ARRIVALS.set(ARRIVALS.get().wrapping_add(1));
    if ASLEEP.get() {
        rouse();
    }
}

#[inline(never)]
fn rouse() {
    ASLEEP.set(false);
    ROUSED.set(Some(Instant::now()));
    if let Some(waker) = SLEEPER.take() {
        waker.wake();
    }
}

/// Whether vigils of this thread may look: it has a processor of its own, and a look costs no more than it should.
pub(super) fn permit(permitted: bool) {
    PERMITTED.set(permitted);
}

/// One core's vigil, from its begin until it is stopped.
#[derive(Debug)]
pub struct Vigil {
    over: Rc<Cell<bool>>,
}

impl Vigil {
    /// Begins it on this core, if the core may have one. A look lasts `longest` at most and calls `take_in` for what comes by
    /// other ways than the runtime's; of that too, [`arrived`] must be told.
    pub fn begin(longest: Duration, take_in: impl FnMut() + 'static) -> Vigil {
        let over = Rc::new(Cell::new(false));
        if !longest.is_zero() && PERMITTED.get() {
            match UnixStream::pair() {
                Ok(pair) => spawn("vigil", keep(Window::new(longest, 0), pair, over.clone(), take_in)),
                Err(refused) => warn!(%refused, "this core sleeps at once when it has nothing to do"),
            }
        }
        Vigil { over }
    }

    /// Ends it, within a turn of the runtime.
    pub fn stop(&self) {
        self.over.set(true);
        arrived();
    }
}

async fn keep(
    mut window: Window,
    (ready, _other_end): (UnixStream, UnixStream),
    over: Rc<Cell<bool>>,
    mut take_in: impl FnMut(),
) {
    let begin = Instant::now();
    let mut displaced = sys::times_displaced();
    while !over.get() {
        let seen = ARRIVALS.get();
        let rest = begin.elapsed();
        let mut until = rest + Duration::from_nanos(window.rest(nanoseconds(rest)));
        if until > rest {
            let before = std::mem::replace(&mut displaced, sys::times_displaced());
            if displaced != before {
                window.displaced(nanoseconds(rest));
                until = rest;
            }
        }
        let mut now = rest;
        while now < until && ARRIVALS.get() == seen {
            for _ in 0..PAUSES_A_LOOK {
                std::hint::spin_loop();
            }
            sys::give_way();
            if ready.writable(false).await.is_err() {
                break;
            }
            take_in();
            now = begin.elapsed();
        }
        if ARRIVALS.get() == seen {
            now = asleep().await.saturating_duration_since(begin);
        }
        window.came(nanoseconds(now));
    }
}

/// Waits for the next arrival; when that was.
async fn asleep() -> Instant {
    ASLEEP.set(true);
    poll_fn(|context| {
        if !ASLEEP.get() {
            return Poll::Ready(ROUSED.take().unwrap_or_else(Instant::now));
        }
        SLEEPER.set(Some(context.waker().clone()));
        Poll::Pending
    })
    .await
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::rt::{Offload, Stream, allowed_cpus, offload, run_core, sleep};

    /// A core that counts its looks. Its window is open: the first look is the longest.
    struct Looking {
        vigil: Vigil,
        looks: Rc<Cell<u64>>,
    }

    impl Looking {
        fn begin(longest: Duration) -> Looking {
            let (over, looks) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
            let mut window = Window::new(longest, 0);
            for _ in 0..5 {
                window.rest(0);
                window.came(nanoseconds(longest));
            }
            let (counted, pair) = (looks.clone(), UnixStream::pair().expect("a pair of sockets"));
            spawn("vigil", keep(window, pair, over.clone(), move || counted.set(counted.get() + 1)));
            Looking { vigil: Vigil { over }, looks }
        }
    }

    /// Runs `work` on a core that may look; nothing is tested where there is no io_uring, because there it may not.
    fn on_a_core<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send + 'static) {
        let cpu = allowed_cpus().expect("a process knows its processors")[0];
        let guarded = || async move {
            if PERMITTED.get() {
                work().await;
            }
        };
        let core = std::thread::spawn(move || run_core(Some(cpu), guarded()).expect("a runtime"));
        core.join().expect("no panic");
    }

    #[test]
    fn all_else_goes_on_while_it_looks() {
        on_a_core(|| async {
            // Longer than the test lasts: whoever had to wait for the end of the look would fail it.
            let looking = Looking::begin(Duration::from_secs(60));
            let begin = Instant::now();
            sleep(Duration::from_millis(5)).await;
            let threads = Offload::start(1).expect("a thread");
            assert_eq!(offload(&threads, || 7).await, 7, "another thread's waker");
            assert!(looking.looks.get() > 20, "{} looks", looking.looks.get());
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("bound");
            let peer = std::thread::spawn(move || {
                let (mut peer, _) = listener.accept().expect("a connection");
                let mut byte = [0];
                peer.read_exact(&mut byte).expect("a byte");
                peer.write_all(&byte).expect("still open");
            });
            let mut stream = Stream::connect(address).await.expect("it listens");
            let _ = stream.write_all(vec![9]).await;
            let (read, bytes) = stream.read(Vec::new(), 1).await;
            assert_eq!((read.expect("a byte"), bytes), (1, vec![9]));
            peer.join().expect("the peer is fine");
            looking.vigil.stop();
            assert!(begin.elapsed() < Duration::from_secs(30));
        });
    }

    #[test]
    fn it_sleeps_when_nothing_comes_and_ends_when_stopped() {
        on_a_core(|| async {
            let looking = Looking::begin(Duration::from_millis(2));
            sleep(Duration::from_millis(20)).await;
            let looked = looking.looks.get();
            assert!(looked > 0, "its window was open");
            sleep(Duration::from_millis(100)).await;
            assert_eq!(looking.looks.get(), looked, "timers are not arrivals");
            assert_eq!(Rc::strong_count(&looking.looks), 2);
            looking.vigil.stop();
            sleep(Duration::from_millis(1)).await;
            assert_eq!(Rc::strong_count(&looking.looks), 1, "what it held is dropped");
        });
    }

    #[test]
    fn arrivals_wake_it_and_open_its_window() {
        on_a_core(|| async {
            let looks = Rc::new(Cell::new(0));
            let counted = looks.clone();
            let vigil = Vigil::begin(Duration::from_secs(60), move || counted.set(counted.get() + 1));
            sleep(Duration::from_millis(20)).await;
            assert_eq!(looks.get(), 0, "no look before there is a reason for one");
            for _ in 0..8 {
                arrived();
                sleep(Duration::from_millis(1)).await;
            }
            assert!(looks.get() > 0);
            vigil.stop();
        });
    }

    #[test]
    fn no_look_without_a_processor_of_its_own() {
        let work = || async {
            let looks = Rc::new(Cell::new(0));
            let counted = looks.clone();
            let vigil = Vigil::begin(Duration::from_secs(60), move || counted.set(counted.get() + 1));
            for _ in 0..8 {
                arrived();
                sleep(Duration::from_millis(1)).await;
            }
            assert_eq!((looks.get(), Rc::strong_count(&looks)), (0, 1));
            vigil.stop();
        };
        std::thread::spawn(move || run_core(None, work()).expect("a runtime")).join().expect("no panic");
    }
}
