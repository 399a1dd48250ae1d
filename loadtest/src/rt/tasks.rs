//! Tasks of one thread: started, counted, and awaited before their runtime goes away.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The tasks one owner has started on this thread.
///
/// Invariant: `live` is the number of tasks started and not yet ended, by return or by panic.
#[derive(Clone, Default)]
pub struct Tasks {
    live: Rc<Cell<usize>>,
    panics: Rc<Cell<usize>>,
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Tasks {
        Tasks::default()
    }

    /// Starts `work`. A panic in it ends this one task and is counted.
    pub fn start(&self, work: impl Future<Output = ()> + 'static) {
        self.live.set(self.live.get() + 1);
        let (live, panics) = (self.live.clone(), self.panics.clone());
        drop(monoio::spawn(async move {
            if !ends_without_panic(work).await {
                panics.set(panics.get() + 1);
            }
            live.set(live.get() - 1);
        }));
    }

    /// How many have not ended.
    pub fn live(&self) -> usize {
        self.live.get()
    }

    /// How many ended by a panic.
    pub fn panics(&self) -> usize {
        self.panics.get()
    }

    /// Waits until every task has ended, at most for `grace`; says whether all have.
    ///
    /// One timer tick more is given at the end, so that the closing of descriptors is submitted before the runtime is dropped.
    pub async fn ended(&self, grace: Duration) -> bool {
        let deadline = Instant::now() + grace;
        while self.live.get() > 0 && Instant::now() < deadline {
            super::sleep(Duration::from_millis(1)).await;
        }
        super::sleep(Duration::from_millis(1)).await;
        self.live.get() == 0
    }
}

async fn ends_without_panic(work: impl Future<Output = ()>) -> bool {
    let mut work = pin!(work);
    // The future is never polled again after a panic, so what it left half-done is only dropped.
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(())) => Poll::Ready(true),
        Err(_) => Poll::Ready(false),
    })
    .await
}

/// Which of two futures ended first.
pub enum Either<A, B> {
    /// The first did (also when both were ready).
    First(A),
    /// The second did.
    Second(B),
}

/// Awaits whichever of two futures ends first, and drops the other.
pub async fn either<A: Future, B: Future>(first: A, second: B) -> Either<A::Output, B::Output> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(move |context| {
        if let Poll::Ready(output) = first.as_mut().poll(context) {
            return Poll::Ready(Either::First(output));
        }
        second.as_mut().poll(context).map(Either::Second)
    })
    .await
}
