//! Tasks and waiting.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use monoio::time::Sleep;
use tracing::error;

use super::patience::Seat;
use super::{Late, Stream, within};
use crate::bounds::{CLIENT_WATCH_DELAY, CLIENT_WATCH_TICK};

/// Runs `work` beside the caller on this core. A panic in it ends it alone: what it owned is dropped as it
/// unwinds, so its permits and holds are released, and the core goes on.
pub fn spawn(what: &'static str, work: impl Future<Output = ()> + 'static) {
    monoio::spawn(async move {
        let seat = Seat::take();
        let mut work = pin!(work);
        let guarded = poll_fn(|context| {
            let poll = || std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
            match seat.polled(poll) {
                Ok(poll) => poll,
                Err(_) => {
                    error!(what, "a task panicked and was ended");
                    Poll::Ready(())
                }
            }
        });
        guarded.await;
    });
}

/// Waits for `span`, rounded up to the runtime's millisecond. Not an `async fn`: that would hold the timer, which is
/// large, twice.
pub fn sleep(span: Duration) -> Sleep {
    monoio::time::sleep(span)
}

/// The output of whichever is ready first; `left` is asked first.
pub async fn first_of<A, B>(left: impl Future<Output = A>, right: impl Future<Output = B>) -> Result<A, B> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|context| {
        if let Poll::Ready(value) = left.as_mut().poll(context) {
            return Poll::Ready(Ok(value));
        }
        right.as_mut().poll(context).map(Err)
    })
    .await
}

/// How a wait on the backend ended.
#[derive(Debug)]
#[must_use]
pub enum Waited<T> {
    /// The work is done.
    Ready(T),
    /// The client closed, half-closed or reset its connection first.
    ClientGone,
    /// The bound passed first.
    TimedOut,
}

/// How long a wait on the backend may take, and when the client is looked after meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// The bound on the whole wait.
    pub bound: Duration,
}

/// Waits for `work` on the backend's side while looking after the client, lazily: watching costs microseconds,
/// and many answers and most events come before [`CLIENT_WATCH_DELAY`] is over.
pub async fn watched<T>(work: impl Future<Output = T>, client: &mut Stream, watch: Watch) -> Waited<T> {
    let mut work = pin!(work);
    let delay = CLIENT_WATCH_DELAY.min(watch.bound);
    if let Ok(value) = within(delay, work.as_mut()).await {
        return Waited::Ready(value);
    }
    if delay == watch.bound {
        return Waited::TimedOut;
    }
    match within(watch.bound - delay, first_of(work, gone(client))).await {
        Ok(Ok(value)) => Waited::Ready(value),
        Ok(Err(())) => Waited::ClientGone,
        Err(Late) => Waited::TimedOut,
    }
}

/// Ends when the client has gone. Bytes that it sent ahead stay unread; behind them its going is found by
/// looking every [`CLIENT_WATCH_TICK`].
async fn gone(client: &mut Stream) {
    loop {
        if client.peer_closed() {
            return;
        }
        if client.has_unread() {
            sleep(CLIENT_WATCH_TICK).await;
        } else {
            client.readable().await;
        }
    }
}
