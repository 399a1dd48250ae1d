//! Listening: one `SO_REUSEPORT` socket a core, one accept task each.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::time::{Duration, Instant};

use monoio::io::Canceller;
use monoio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};
use tracing::warn;

use super::{Stream, arrived, sleep};
use crate::bounds::{ACCEPT_BACK_OFF, ACCEPT_BACKLOG, ADDRESS_PATIENCE};

/// Binds `count` listeners to one address and returns them with the address in force (a port of 0 is chosen by
/// the kernel, once). An address that another process listens on is refused, which `SO_REUSEPORT` alone would
/// hide.
///
/// # Errors
/// The address is in use, not of this machine, or not allowed.
pub fn bind_all(address: SocketAddr, count: usize) -> io::Result<(Vec<StdListener>, SocketAddr)> {
    let address = free_address(address)?;
    let listeners = (0..count).map(|_| socket(address, true)).collect::<io::Result<Vec<_>>>()?;
    Ok((listeners, address))
}

/// Proves that nobody listens on `address`. A process that has just ended may still do so for a moment: the kernel
/// takes rings apart, and with them the accepts under way, after the process is gone.
fn free_address(address: SocketAddr) -> io::Result<SocketAddr> {
    let until = Instant::now() + ADDRESS_PATIENCE;
    let mut told = false;
    loop {
        match bound(address, false) {
            Ok(probe) => {
                return probe.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into());
            }
            Err(error) if error.kind() != io::ErrorKind::AddrInUse || Instant::now() >= until => {
                return Err(error);
            }
            Err(_) => {
                if !std::mem::replace(&mut told, true) {
                    warn!(%address, patience = ?ADDRESS_PATIENCE, "the address is in use; waiting for it");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// A socket that has its address and does not listen, so that no client can reach a probe.
fn bound(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<StdListener> {
    let socket = bound(address, shared)?;
    socket.listen(ACCEPT_BACKLOG)?;
    Ok(socket.into())
}

/// The accept side of one core.
#[derive(Default)]
pub struct Acceptor {
    canceller: RefCell<Option<Canceller>>,
}

impl Acceptor {
    /// Accepts until [`Acceptor::stop`], handing each connection to `serve`. Backs off when descriptors run out.
    ///
    /// # Errors
    /// The listener could not be taken over by the runtime.
    pub async fn run(&self, listener: StdListener, mut serve: impl FnMut(Stream)) -> io::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        let canceller = Canceller::new();
        let handle = canceller.handle();
        *self.canceller.borrow_mut() = Some(canceller);
        loop {
            match listener.cancelable_accept(handle.clone()).await {
                Ok((stream, _)) => {
                    arrived();
                    serve(Stream::new(stream));
                }
                Err(_) if self.canceller.borrow().is_none() => return Ok(()),
                Err(refused) => self.back_off(&refused).await,
            }
        }
    }

    async fn back_off(&self, refused: &io::Error) {
        if matches!(refused.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR | libc::EPROTO)) {
            return;
        }
        warn!(%refused, "cannot accept connections; trying again");
        sleep(Duration::from_millis(ACCEPT_BACK_OFF)).await;
    }

    /// Ends the accept task; connections already accepted go on.
    pub fn stop(&self) {
        let canceller = self.canceller.borrow_mut().take();
        if let Some(canceller) = canceller {
            let _ = canceller.cancel();
        }
    }
}
