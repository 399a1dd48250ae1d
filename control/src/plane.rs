//! The control plane while the gateway runs: three threads of its own, never waited for by a request.
//!
//! - `control` runs a small tokio runtime with the management listener, the control socket and the watch on the config
//!   file. What they are asked to do is done by [`crate::management`], on threads that may wait for the disk.
//! - `writer` takes what the cores report and writes it, `sync` puts it on the disk ([`crate::writer`]).
//!
//! Stopping is in order: the caller has drained the data plane, so the last marks are in the channel; they are
//! written, the write-ahead log is folded into the database, the socket is removed, the folder's lock is given up.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::{CounterMark, Kid, Report};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::management::{InForce, Management, Publish, Trigger};
use crate::socket::SocketAddress;
use crate::start::{DataDirLock, StartError};
use crate::store::Store;
use crate::{admin, bounds, names, watch, writer};

/// What the plane takes over from [`crate::start::prepare`].
pub struct Setup {
    /// What is in force.
    pub in_force: InForce,
    /// The database.
    pub store: Store,
    /// The folder's lock.
    pub lock: DataDirLock,
    /// Counters that resume above what they are known to have counted.
    pub recovered: Vec<CounterMark>,
    /// Who starts the server, for the audit trail.
    pub actor: String,
}

/// The running control plane.
pub struct Plane {
    control: JoinHandle<()>,
    stop_control: oneshot::Sender<()>,
    counters: JoinHandle<Result<(), StartError>>,
    stop_counters: Arc<AtomicBool>,
    sync: JoinHandle<()>,
    /// Dropped to stop it.
    stop_sync: Sender<()>,
    address: SocketAddress,
    management: Arc<Management>,
    _lock: DataDirLock,
}

impl Plane {
    /// Binds the management listener and the control socket, and starts both threads.
    ///
    /// # Errors
    /// An address that cannot be bound, a database that cannot be opened a second time.
    pub fn start(setup: Setup, publish: Publish, reports: Receiver<Report>) -> Result<Plane, StartError> {
        let Setup { in_force, store, lock, recovered, actor } = setup;
        let config = Arc::clone(&in_force.config);
        let address = SocketAddress::of(&config.data_dir).map_err(|error| socket_error(&config, &error))?;
        let listeners = Listeners::bind(&config, &address)?;
        let (tell, tell_synced) = (Arc::clone(&publish.journal), Arc::clone(&publish.journal));
        let management = Management::new(Store::open(&config.data_dir)?, in_force, publish);
        let management = Arc::new(management);
        let (stop_control, stopped) = oneshot::channel();
        let managed = Arc::clone(&management);
        let control = spawn("control", move || serve(managed, listeners, stopped, &actor, &recovered))?;
        let stop_counters = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stop_counters);
        let board = Arc::clone(management.board());
        let health = Arc::new(writer::Health::default());
        let (synced, syncing) = (Store::open(&config.data_dir)?, Arc::clone(&health));
        let (stop_sync, until) = channel();
        let sync = spawn("sync", move || {
            stand_back();
            writer::sync(&synced, &until, &syncing, &*tell_synced);
        })?;
        let counters = spawn("writer", move || writer::run(store, &reports, &stop, &board, &health, &*tell))?;
        Ok(Plane {
            control,
            stop_control,
            counters,
            stop_counters,
            sync,
            stop_sync,
            address,
            management,
            _lock: lock,
        })
    }

    /// Reloads because the process was told to; what comes of it is logged and audited.
    pub fn reload_by_signal(&self) {
        // Both outcomes are told already.
        let _ = self.management.reload(&Trigger::Signal);
    }

    /// Ends both threads; everything the cores have sent is written. Call it after the data plane is drained.
    ///
    /// # Errors
    /// Counters that could not be written: usage since the last good write is lost.
    pub fn stop(self) -> Result<(), StartError> {
        // A control thread that is gone already has nothing to stop.
        let _ = self.stop_control.send(());
        let control = self.control.join();
        if let Err(error) = std::fs::remove_file(&self.address.path) {
            tracing::debug!(%error, "the control socket was gone already");
        }
        drop(self.stop_sync);
        let synced = self.sync.join();
        self.stop_counters.store(true, Ordering::Release);
        let written = self.counters.join();
        control.map_err(|_| StartError::new("the control thread panicked"))?;
        synced.map_err(|_| StartError::new("the sync thread panicked"))?;
        written.map_err(|_| StartError::new("the counters thread panicked"))?
    }
}

/// By how much the control plane's threads stand back; 19 is the most there is.
const BEHIND_REQUESTS: i32 = 10;

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StartError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(|error| StartError::new(format!("cannot start the {name} thread: {error}")))
}

fn socket_error(config: &Config, error: &std::io::Error) -> StartError {
    StartError::new(format!("{}: control socket: {error}", config.data_dir.display()))
}

/// Bound before anything runs, so that an address in use is an error of the start.
struct Listeners {
    admin: Option<std::net::TcpListener>,
    socket: std::os::unix::net::UnixListener,
}

impl Listeners {
    /// The folder's lock is held, so a socket file that is there was left by a server that is dead.
    fn bind(config: &Config, address: &SocketAddress) -> Result<Listeners, StartError> {
        let admin = match &config.admin {
            None => None,
            Some(admin) => {
                let listener = std::net::TcpListener::bind(admin.listen)
                    .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
                Some(listener.map_err(|error| {
                    StartError::new(format!("admin.listen: cannot listen on {}: {error}", admin.listen))
                })?)
            }
        };
        let socket = bind_socket(&address.path).map_err(|error| socket_error(config, &error))?;
        Ok(Listeners { admin, socket })
    }
}

fn bind_socket(path: &Path) -> std::io::Result<std::os::unix::net::UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Nobody waits for the calling thread, nor for those it starts, as long as a request does: a reload of a large tree, or a
/// checkpoint, would hold up whoever shares a processor with it.
fn stand_back() {
    if let Err(error) = rustix::process::nice(BEHIND_REQUESTS) {
        tracing::debug!(%error, "the control plane runs at the priority of requests");
    }
}

fn serve(
    management: Arc<Management>,
    listeners: Listeners,
    stopped: oneshot::Receiver<()>,
    actor: &str,
    recovered: &[CounterMark],
) {
    stand_back();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "the control runtime cannot start"),
    };
    let token = management.config().admin.as_ref().and_then(|admin| admin.token.clone());
    management.begin(actor, recovered);
    runtime.block_on(async move {
        if let (Some(listener), Some(token)) = (listeners.admin, token) {
            let router = admin::router(Arc::clone(&management), &token);
            tokio::spawn(admin::serve(listener, router, Arc::clone(&management)));
        }
        tokio::spawn(watch::run(Arc::clone(&management)));
        tokio::spawn(names::keep_fresh(Arc::clone(&management)));
        tokio::spawn(serve_socket(listeners.socket, management));
        // An error is the sender dropped without a word, which is a stop too.
        let _ = stopped.await;
    });
    // A write under way ends; who asked for it is told no more.
    runtime.shutdown_timeout(Duration::from_millis(bounds::STOP_WAIT_MS));
}

async fn serve_socket(listener: std::os::unix::net::UnixListener, management: Arc<Management>) {
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the control socket has ended"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let management = Arc::clone(&management);
                tokio::spawn(async move {
                    let wait = Duration::from_millis(bounds::CONTROL_WAIT_MS);
                    match tokio::time::timeout(wait, exchange(stream, management)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tracing::warn!(%error, "a caller on the control socket went away"),
                        Err(_) => tracing::warn!("a caller on the control socket said nothing in time"),
                    }
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: wait instead of spinning.
                tracing::warn!(%error, "the control socket cannot accept");
                tokio::time::sleep(Duration::from_millis(bounds::MARKS_RETRY_MS)).await;
            }
        }
    }
}

async fn exchange(stream: UnixStream, management: Arc<Management>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    (&mut stream).take(bounds::CONTROL_LINE_BYTES as u64).read_line(&mut line).await?;
    let obeyed = tokio::task::spawn_blocking(move || obey(&management, line.trim_end())).await;
    let answer = match obeyed.unwrap_or_else(|error| Err(StartError::new(error.to_string()))) {
        Ok(()) => "ok\n".to_owned(),
        Err(error) => format!("error {}\n", error.to_string().replace('\n', "; ")),
    };
    stream.into_inner().write_all(answer.as_bytes()).await
}

fn obey(management: &Management, line: &str) -> Result<(), StartError> {
    let mut words = line.split_ascii_whitespace();
    match words.next() {
        Some("keys") => {
            let kids: Vec<_> = words
                .map(|word| Kid::parse(word).ok_or_else(|| StartError::new(format!("{word:?} is no kid"))))
                .collect::<Result<_, _>>()?;
            management.take_keys(&kids)
        }
        _ => Err(StartError::new(format!("{line:?} is no command of the control socket"))),
    }
}

#[cfg(test)]
mod tests;
