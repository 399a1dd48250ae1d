//! Tasks and waiting.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use monoio::time::{Sleep, Timeout};
use tracing::error;

use super::Stream;
use crate::bounds::{CLIENT_WATCH_DELAY, CLIENT_WATCH_TICK};

/// Runs `work` beside the caller on this core. A panic in it ends it alone: what it owned is dropped as it
/// unwinds, so its permits and holds are released, and the core goes on.
pub fn spawn(what: &'static str, work: impl Future<Output = ()> + 'static) {
    monoio::spawn(async move {
        let mut work = pin!(work);
        let guarded = poll_fn(|context| {
            match std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
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

/// The result of `work`, or an error when it was not done within `span`. A read given up this way may have eaten
/// bytes: close its connection.
pub fn within<F: Future>(span: Duration, work: F) -> Timeout<F> {
    monoio::time::timeout(span, work)
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
/// and most answers come before [`CLIENT_WATCH_DELAY`] is over. One timer serves both the delay and the bound.
pub async fn watched<T>(work: impl Future<Output = T>, client: &mut Stream, watch: Watch) -> Waited<T> {
    let mut work = pin!(work);
    let delay = CLIENT_WATCH_DELAY.min(watch.bound);
    if let Ok(value) = first_of(work.as_mut(), sleep(delay)).await {
        return Waited::Ready(value);
    }
    if delay == watch.bound {
        return Waited::TimedOut;
    }
    let (mut gone, mut late) = (pin!(gone(client)), pin!(sleep(watch.bound - delay)));
    poll_fn(|context: &mut Context<'_>| {
        if let Poll::Ready(value) = work.as_mut().poll(context) {
            return Poll::Ready(Waited::Ready(value));
        }
        if gone.as_mut().poll(context).is_ready() {
            return Poll::Ready(Waited::ClientGone);
        }
        Pin::as_mut(&mut late).poll(context).map(|()| Waited::TimedOut)
    })
    .await
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
