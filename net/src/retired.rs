//! What was published before: kept until no core holds it, and freed here.
//!
//! A core takes a new snapshot at its next request and lets go of the old one then. Whoever lets go last frees it, and a tree of
//! a hundred thousand nodes takes ten milliseconds to be freed: on a core these would be everybody's who waits there. So this
//! thread holds on to each until it is the only one that does.
//!
//! Bounds: what waits here is what the cores hold anyway, an exchange at most as long as it lasts, and what was published within
//! one look.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

use crate::bounds::RETIRE_PERIOD;

/// Anything that was published.
pub type Published = Arc<dyn Any + Send + Sync>;

/// Where to hand over what was published before. The thread behind it ends when this is dropped.
pub struct Retired(Sender<Published>);

impl Retired {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start() -> io::Result<Retired> {
        let (sender, receiver) = channel();
        std::thread::Builder::new().name("retired".to_owned()).spawn(move || free(&receiver))?;
        Ok(Retired(sender))
    }

    /// Hands over what is in force no longer.
    pub fn take(&self, published: Published) {
        // The thread lives as long as the sender.
        let _ = self.0.send(published);
    }
}

fn free(handed_over: &Receiver<Published>) {
    let mut held: Vec<Published> = Vec::new();
    let mut looked = Instant::now();
    loop {
        let next = match held.is_empty() {
            true => handed_over.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => handed_over.recv_timeout(RETIRE_PERIOD),
        };
        match next {
            Ok(published) => held.push(published),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // Also while one comes after another: most of them no core has ever held.
        if looked.elapsed() >= RETIRE_PERIOD {
            held.retain(|published| Arc::strong_count(published) > 1);
            looked = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use super::*;

    /// Tells which thread freed it.
    struct Told(Sender<ThreadId>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).expect("somebody listens");
        }
    }

    #[test]
    fn what_a_core_holds_is_freed_when_it_lets_go_and_not_by_it() {
        let retired = Retired::start().expect("a thread");
        let (sender, freed) = channel();
        let [held, free] = [sender.clone(), sender].map(|sender| Arc::new(Told(sender)));
        let core = held.clone();
        retired.take(held);
        retired.take(free);
        let by = freed.recv_timeout(Duration::from_secs(10)).expect("the one that nobody holds is freed");
        assert_ne!(by, thread::current().id());
        assert!(freed.recv_timeout(RETIRE_PERIOD * 3).is_err(), "the other one is held");
        drop(core);
        assert_eq!(freed.recv_timeout(Duration::from_secs(10)).expect("it is freed"), by);
    }
}
