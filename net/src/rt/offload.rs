//! Work too long for a core: a few threads beside them, not pinned, that take what is handed over and wake who
//! waits for it.
//!
//! What waits is bounded by the exchanges under way: each hands over one piece of work at a time.

use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

type Work = Box<dyn FnOnce() + Send>;

/// The threads. They end when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct Offload {
    queue: Sender<Work>,
}

impl Offload {
    /// Starts `threads` of them.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(threads: usize) -> io::Result<Offload> {
        let (queue, works) = channel::<Work>();
        let works = Arc::new(Mutex::new(works));
        for index in 0..threads {
            let works = works.clone();
            std::thread::Builder::new().name(format!("offload-{index}")).spawn(move || run(&works))?;
        }
        Ok(Offload { queue })
    }
}

fn run(works: &Mutex<Receiver<Work>>) {
    loop {
        let work = works.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match work {
            Ok(work) => work(),
            Err(_) => return,
        }
    }
}

/// Where a result is left for the core that waits for it.
struct Slot<T> {
    result: Option<std::thread::Result<T>>,
    waker: Option<Waker>,
}

/// Runs `work` on one of the threads and waits for its result. A panic in it goes on in the caller.
pub async fn offload<T: Send + 'static>(threads: &Offload, work: impl FnOnce() -> T + Send + 'static) -> T {
    let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
    let filled = slot.clone();
    let job = Box::new(move || {
        let result = catch_unwind(AssertUnwindSafe(work));
        let mut slot = filled.lock().unwrap_or_else(PoisonError::into_inner);
        slot.result = Some(result);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    });
    if let Err(unsent) = threads.queue.send(job) {
        unsent.0();
    }
    let result = poll_fn(|context| {
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await;
    result.unwrap_or_else(|panic| resume_unwind(panic))
}
