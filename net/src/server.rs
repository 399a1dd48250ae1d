//! One connection's life: head, exchange, head, exchange, until either side has had enough.
//!
//! Pipelined requests wait in the connection's buffer and are answered in order.

use std::rc::Rc;

use crate::connection::{Client, HeadRead, Next};
use crate::core::{Core, Occupancy};
use crate::exchange::{self, Denied};
use crate::rt::{self, Stream};

/// Serves a connection to its end. `occupancy` counts it on its core.
pub async fn serve(core: Rc<Core>, occupancy: Occupancy, stream: Stream) {
    let mut client = Client::new(stream);
    loop {
        let http = core.armed().snapshot.http;
        let next = match client.read_head(&core, &http).await {
            HeadRead::Head => {
                core.collect();
                exchange::run(&core, &mut client).await
            }
            HeadRead::Bad(error) => {
                exchange::answer_headless(&core, &mut client, Denied::BadHead(error)).await
            }
            HeadRead::Late => exchange::answer_headless(&core, &mut client, Denied::HeadTimedOut).await,
            HeadRead::Over => Next::Close,
        };
        core.collect();
        match next {
            Next::Keep => {}
            Next::BreakOff => break,
            Next::Close => {
                let _ = rt::within(http.between_bytes_timeout, client.stream.announce_end()).await;
                break;
            }
            Next::Linger => {
                client.linger().await;
                break;
            }
        }
    }
    drop(occupancy);
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use super::*;

    fn future_bytes<A, B, C, F: Future>(_: impl Fn(A, B, C) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    /// A future's bytes are moved when it is made, and held for each connection.
    #[test]
    fn a_connection_is_small() {
        let bytes = future_bytes(serve);
        assert!(bytes <= 8 * 1024, "the future of a connection has {bytes} bytes");
    }
}
