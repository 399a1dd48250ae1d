//! Sockets of one thread.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use monoio::buf::{IoBuf, SliceMut};
use monoio::io::{AsyncReadRent, AsyncWriteRentExt, Canceller};
use monoio::net::{TcpListener, TcpStream, UnixStream};

use super::Tasks;
use crate::bounds;

/// A TCP connection. Reads append to a vector, so that what is left of a pipelined request stays in front.
pub struct Connection {
    stream: TcpStream,
    room: usize,
}

impl Connection {
    fn new(stream: TcpStream) -> Connection {
        // Without it a small answer may wait for the peer's delayed acknowledgement; a socket that refuses it still works.
        let _ = stream.set_nodelay(true);
        Connection { stream, room: bounds::READ_SIZE }
    }

    /// Reads once, behind what `buffer` holds. `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// The peer reset the connection, or the socket failed.
    pub async fn read_more(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let mut taken = std::mem::take(buffer);
        let begin = taken.len();
        if taken.capacity() - begin < self.room / 4 {
            taken.reserve(self.room);
        }
        let end = taken.capacity();
        let (result, slice) = self.stream.read(SliceMut::new(taken, begin, end)).await;
        *buffer = slice.into_inner();
        result
    }

    /// Writes all of `bytes` and hands the buffer back.
    ///
    /// # Errors
    /// The peer is gone, or the socket failed; some of the bytes may have been sent.
    pub async fn write_all<B: IoBuf + 'static>(&mut self, bytes: B) -> (io::Result<()>, B) {
        let (result, bytes) = self.stream.write_all(bytes).await;
        (result.map(|_| ()), bytes)
    }

    /// Waits until there is something to read, the end of the stream or an error included. May be dropped freely.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn readable(&self) -> io::Result<()> {
        self.stream.readable(false).await
    }
}

/// Opens a connection.
///
/// # Errors
/// As the kernel reports them.
pub async fn connect(address: SocketAddr) -> io::Result<Connection> {
    TcpStream::connect_addr(address).await.map(Connection::new)
}

/// A bound listening socket, made on any thread, used on one.
pub struct Listener {
    socket: socket2::Socket,
}

impl Listener {
    /// Binds and listens; with `shared` other listeners of this process may share the port.
    ///
    /// # Errors
    /// The address is taken or not ours.
    pub fn bind(address: SocketAddr, shared: bool) -> io::Result<Listener> {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(address),
            socket2::Type::STREAM,
            Some(socket2::Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        if shared {
            socket.set_reuse_port(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(4096)?;
        Ok(Listener { socket })
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::other("the listener has no IP address"))
    }

    /// Accepts until `stop`, starting `serve` for each connection; then ends every connection still open and returns when all
    /// have ended or the grace is over.
    ///
    /// # Errors
    /// The listener cannot be used on this runtime.
    pub async fn serve<S, F>(self, stop: StopSignal, serve: S) -> io::Result<()>
    where
        S: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        self.socket.set_nonblocking(monoio::utils::is_legacy())?;
        let listener = TcpListener::from_std(self.socket.into())?;
        let canceller = Canceller::new();
        let handle = canceller.handle();
        let stopping = Rc::new(Cell::new(false));
        let open = OpenConnections::default();
        let (accepting, serving) = (Tasks::new(), Tasks::new());

        let (stopped, registry, started) = (stopping.clone(), open.clone(), serving.clone());
        accepting.start(async move {
            while !stopped.get() {
                match listener.cancelable_accept(handle.clone()).await {
                    Ok((stream, _)) => {
                        let entry = registry.enter(stream.as_raw_fd());
                        let work = serve(Connection::new(stream));
                        started.start(async move {
                            work.await;
                            drop(entry);
                        });
                    }
                    Err(_) if stopped.get() => return,
                    Err(_) => super::sleep(bounds::ACCEPT_BACK_OFF).await,
                }
            }
        });

        stop.asked().await;
        stopping.set(true);
        let _ended = canceller.cancel();
        accepting.ended(bounds::STOP_GRACE).await;
        open.shut_down();
        serving.ended(bounds::STOP_GRACE).await;
        Ok(())
    }
}

/// The descriptors of the connections being served, so that a stop can end them without a check on every read.
///
/// Invariant: a descriptor is in the set only while its `Connection` lives. The entry is dropped by the same task, right after the
/// connection, and nothing else of this thread runs between the two.
#[derive(Clone, Default)]
struct OpenConnections {
    descriptors: Rc<RefCell<HashSet<RawFd>>>,
}

struct Entry {
    of: OpenConnections,
    descriptor: RawFd,
}

impl OpenConnections {
    fn enter(&self, descriptor: RawFd) -> Entry {
        self.descriptors.borrow_mut().insert(descriptor);
        Entry { of: self.clone(), descriptor }
    }

    /// Ends both directions of each: reads and writes under way return.
    fn shut_down(&self) {
        for descriptor in self.descriptors.borrow().iter() {
            // SAFETY: the call takes no memory, and by the invariant the descriptor is still this connection's.
            unsafe { libc::shutdown(*descriptor, libc::SHUT_RDWR) };
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.of.descriptors.borrow_mut().remove(&self.descriptor);
    }
}

/// The side that asks for a stop: dropping it does.
pub struct StopRequest {
    _ours: std::os::unix::net::UnixStream,
}

/// The side that waits for it, on its own thread's runtime.
pub struct StopSignal {
    theirs: std::os::unix::net::UnixStream,
}

/// A pair of a stop request and the signal that it gives. A socket pair, because it wakes a sleeping ring without a poll.
///
/// # Errors
/// No descriptors are left.
pub fn stop_signal() -> io::Result<(StopRequest, StopSignal)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    Ok((StopRequest { _ours: ours }, StopSignal { theirs }))
}

impl StopSignal {
    async fn asked(self) {
        let waited = async {
            self.theirs.set_nonblocking(monoio::utils::is_legacy())?;
            let mut stream = UnixStream::from_std(self.theirs)?;
            // Nothing is ever written: the read ends when the other side is dropped.
            stream.read(vec![0u8; 1]).await.0
        };
        let _ended: io::Result<usize> = waited.await;
    }
}
