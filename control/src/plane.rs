//! The control plane while the gateway runs: two threads of its own, never waited for by a request.
//!
//! - `control` runs a small tokio runtime with the management listener and the control socket. A change of keys is read
//!   from the database and published to the data plane as a new ring before the socket is answered.
//! - `writer` takes what the cores report and writes it ([`crate::writer`]).
//!
//! Stopping is in order: the caller has drained the data plane, so the last marks are in the channel; they are
//! written, the write-ahead log is folded into the database, the socket is removed, the folder's lock is given up.

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::{KeyRing, Kid, Report, Ruleset};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::socket::SocketAddress;
use crate::start::{DataDirLock, StartError};
use crate::store::{RuntimePlane, Store};
use crate::{admin, arm, bounds, keys, writer};

/// How the data plane is given what changes. Both return once every core can see it.
pub struct Publish {
    /// A new key ring.
    pub keys: Box<dyn Fn(Arc<KeyRing>) + Send>,
    /// A new ruleset, all else as it was; used under `governance.key_nodes`, where a minted key is a node.
    pub ruleset: Box<dyn Fn(Arc<Ruleset>) + Send>,
}

/// What the plane takes over from [`crate::start::prepare`].
pub struct Setup {
    /// The config.
    pub config: Arc<Config>,
    /// The ruleset in force.
    pub ruleset: Arc<Ruleset>,
    /// The runtime plane in force in it.
    pub runtime: RuntimePlane,
    /// The ring in force.
    pub keys: Arc<KeyRing>,
    /// The database.
    pub store: Store,
    /// The folder's lock.
    pub lock: DataDirLock,
}

/// The running control plane.
pub struct Plane {
    control: JoinHandle<()>,
    stop_control: oneshot::Sender<()>,
    counters: JoinHandle<Result<(), StartError>>,
    stop_counters: Arc<AtomicBool>,
    address: SocketAddress,
    _lock: DataDirLock,
}

impl Plane {
    /// Binds the management listener and the control socket, and starts both threads.
    ///
    /// # Errors
    /// An address that cannot be bound, a database that cannot be opened a second time.
    pub fn start(setup: Setup, publish: Publish, reports: Receiver<Report>) -> Result<Plane, StartError> {
        let Setup { config, ruleset, runtime, keys, store, lock } = setup;
        let address = SocketAddress::of(&config.data_dir).map_err(|error| socket_error(&config, &error))?;
        let listeners = Listeners::bind(&config, &address)?;
        let state = State { store: Store::open(&config.data_dir)?, config, ruleset, runtime, keys, publish };
        let (stop_control, stopped) = oneshot::channel();
        let control = spawn("control", move || serve(state, listeners, stopped))?;
        let stop_counters = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stop_counters);
        let counters = spawn("writer", move || writer::run(store, &reports, &stop))?;
        Ok(Plane { control, stop_control, counters, stop_counters, address, _lock: lock })
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
        self.stop_counters.store(true, Ordering::Release);
        let written = self.counters.join();
        control.map_err(|_| StartError::new("the control thread panicked"))?;
        written.map_err(|_| StartError::new("the counters thread panicked"))?
    }
}

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

/// What the control thread works on. Never borrowed over an await.
struct State {
    store: Store,
    config: Arc<Config>,
    ruleset: Arc<Ruleset>,
    runtime: RuntimePlane,
    keys: Arc<KeyRing>,
    publish: Publish,
}

fn serve(state: State, listeners: Listeners, stopped: oneshot::Receiver<()>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "the control runtime cannot start"),
    };
    let token = state.config.admin.as_ref().and_then(|admin| admin.token.clone());
    let local = tokio::task::LocalSet::new();
    let state = Rc::new(RefCell::new(state));
    local.block_on(&runtime, async move {
        if let Err(error) = state.borrow_mut().catch_up() {
            tracing::error!(%error, "keys that changed during the start are not published");
        }
        if let (Some(listener), Some(token)) = (listeners.admin, token) {
            tokio::task::spawn_local(serve_admin(listener, admin::router(&token)));
        }
        tokio::task::spawn_local(serve_socket(listeners.socket, state));
        // An error is the sender dropped without a word, which is a stop too.
        let _ = stopped.await;
    });
}

async fn serve_admin(listener: std::net::TcpListener, router: axum::Router) {
    let served = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => axum::serve(listener, router).await,
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        tracing::error!(%error, "the management listener has ended");
    }
}

async fn serve_socket(listener: std::os::unix::net::UnixListener, state: Rc<RefCell<State>>) {
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the control socket has ended"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let state = Rc::clone(&state);
                tokio::task::spawn_local(async move {
                    let wait = Duration::from_millis(bounds::CONTROL_WAIT_MS);
                    match tokio::time::timeout(wait, exchange(stream, &state)).await {
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

async fn exchange(stream: UnixStream, state: &RefCell<State>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    (&mut stream).take(bounds::CONTROL_LINE_BYTES as u64).read_line(&mut line).await?;
    let answer = match state.borrow_mut().obey(line.trim_end()) {
        Ok(()) => "ok\n".to_owned(),
        Err(error) => format!("error {}\n", error.to_string().replace('\n', "; ")),
    };
    stream.into_inner().write_all(answer.as_bytes()).await
}

impl State {
    fn obey(&mut self, line: &str) -> Result<(), StartError> {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("keys") => {
                let kids: Vec<_> = words
                    .map(|word| {
                        Kid::parse(word).ok_or_else(|| StartError::new(format!("{word:?} is no kid")))
                    })
                    .collect::<Result<_, _>>()?;
                self.take_keys(&kids)
            }
            _ => Err(StartError::new(format!("{line:?} is no command of the control socket"))),
        }
    }

    /// Publishes the keys that have changed between their first reading and the socket's being there:
    /// their `keys mint` or `keys revoke` found no server to tell.
    fn catch_up(&mut self) -> Result<(), StartError> {
        if self.store.last_audit_row()? == self.runtime.as_of {
            return Ok(());
        }
        let rows = self.store.keys()?;
        let changed = rows.iter().filter(|row| keys::is_data_key(row) != self.keys.find(&row.kid).is_some());
        let kids: Vec<_> = changed.filter_map(|row| Kid::parse(&row.kid)).collect();
        self.take_keys(&kids)
    }

    /// Reads the keys from the database and publishes. Under `key_nodes` the ruleset comes first: a key must not be
    /// known before the caps at its own node are.
    fn take_keys(&mut self, kids: &[Kid]) -> Result<(), StartError> {
        let mut ring = (*self.keys).clone();
        for kid in kids {
            let row = self.store.key(kid.as_str())?;
            ring = keys::ring_with_change(&ring, kid, row.as_ref())?;
        }
        if self.config.governance.enabled && self.config.governance.key_nodes {
            let rows = self.store.keys()?;
            let version = self.ruleset.version() + 1;
            self.ruleset = arm::arm(version, &self.config, &self.runtime, &rows)?.ruleset;
            (self.publish.ruleset)(Arc::clone(&self.ruleset));
        }
        self.keys = Arc::new(ring);
        (self.publish.keys)(Arc::clone(&self.keys));
        tracing::info!(changed = kids.len(), keys = self.keys.len(), "keys published");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
