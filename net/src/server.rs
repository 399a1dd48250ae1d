//! One connection's life: head, exchange, head, exchange, until either side has had enough.
//!
//! Pipelined requests wait in the connection's buffer and are answered in order.

use std::rc::Rc;
use std::sync::Arc;

use rustls::ServerConfig;
use tracing::debug;

use crate::connection::{Client, HeadRead, Next};
use crate::core::{Core, Occupancy};
use crate::exchange::{self, Denied};
use crate::http1::HeadError;
use crate::rt::{self, NoTls, Stream};

/// Serves a connection to its end. `occupancy` counts it on its core.
pub async fn serve(core: Rc<Core>, occupancy: Occupancy, stream: Stream) {
    let mut client = Client::new(stream);
    let tls = core.armed().snapshot.tls.clone();
    if let Some(tls) = tls
        && !is_secured(&core, &mut client, tls).await
    {
        return;
    }
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

/// Begins TLS, within the time that a head has; a client that speaks plain HTTP is told so.
async fn is_secured(core: &Rc<Core>, client: &mut Client, tls: Arc<ServerConfig>) -> bool {
    let http = core.armed().snapshot.http;
    // A stopping process ends a handshake as it ends a connection that waits for a request.
    let idle = core.mark_idle(client.stream.descriptor());
    let handshake = rt::within(http.header_timeout, client.stream.accept_tls(tls)).await;
    drop(idle);
    match handshake {
        Ok(Ok(())) => return true,
        Ok(Err(NoTls::Plain(begin))) if begin.first().is_some_and(u8::is_ascii_uppercase) => {
            let reason = "this port speaks TLS, so the URL begins with https://";
            let denied = Denied::BadHead(HeadError { status: 400, reason });
            if exchange::answer_headless(core, client, denied).await == Next::Linger {
                client.linger().await;
            }
        }
        Ok(Err(reason)) => debug!(?reason, "no TLS with a client"),
        Err(_) => debug!("a client made no TLS handshake within http.header_timeout"),
    }
    false
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
