//! The data plane as its owner sees it: started once, published to, drained once.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use engine::CoreId;
use engine::cells::CellTable;
use engine::shard::CounterMark;
use engine::{JournalNews, KeyRing, Probe, ProbeAnswer, Report, Ruleset};
use tracing::{error, info, warn};

use crate::bounds::OFFLOAD_THREADS;
use crate::clock::Clock;
use crate::core::{Core, Shared};
use crate::journal::Journal;
use crate::mesh::Mesh;
use crate::retired::Retired;
use crate::rt::{self, Acceptor, Offload, Vigil};
use crate::server;
use crate::snapshot::{Settings, Snapshot};
use crate::visit::{self, Questions};

/// How often a draining core looks whether its last connection has gone.
const DRAIN_TICK: Duration = Duration::from_millis(5);

/// A running data plane.
pub struct Gateway {
    address: SocketAddr,
    shared: Arc<Shared>,
    retired: Arc<Retired>,
    cores: Vec<JoinHandle<()>>,
}

impl Gateway {
    /// Binds and serves. `restored` are the calendar counters of an earlier run; `reports` receives what
    /// changes and what is used. Threads that must not inherit a core's pinning are to be started before.
    ///
    /// # Errors
    /// The address cannot be bound, or a thread not be started.
    pub fn start(
        settings: &Settings,
        snapshot: Snapshot,
        keys: Arc<KeyRing>,
        restored: Vec<CounterMark>,
        reports: &Sender<Report>,
    ) -> io::Result<Gateway> {
        let count = settings.workers.max(1);
        let (listeners, address) = rt::bind_all(settings.listen, count)?;
        let clock = Clock::start();
        let mesh = Mesh::new(count);
        let epoch_offset = clock.epoch_offset();
        let retired = Arc::new(Retired::start()?);
        let shared = Arc::new(Shared {
            snapshot: Arc::new(ArcSwap::from_pointee(snapshot)),
            keys: Arc::new(ArcSwap::new(keys)),
            cells: Arc::new(CellTable::new(epoch_offset)),
            epoch_offset,
            journal: Journal::new(count, mesh.clone()),
            mesh,
            offload: Offload::start(OFFLOAD_THREADS)?,
            questions: Questions::default(),
            clock,
            draining: AtomicBool::new(false),
            at_work: AtomicUsize::new(count),
            cut: AtomicBool::new(false),
        });
        let cpus = rt::allowed_cpus().unwrap_or_default();
        let spin = if owns_processors(count, cpus.len()) { settings.spin } else { Duration::ZERO };
        if spin != settings.spin {
            info!(cores = count, "spin is off: not every core has a processor's whole time");
        }
        let mut parts: Vec<Vec<CounterMark>> = (0..count).map(|_| Vec::new()).collect();
        for mark in restored {
            match mark.owner(count) {
                Some(owner) => parts[usize::from(owner.0)].push(mark),
                None => warn!(?mark, "a stored counter has no identity any more and is passed over"),
            }
        }
        let mut cores = Vec::new();
        for ((index, listener), restored) in listeners.into_iter().enumerate().zip(parts) {
            let (shared, reports) = (shared.clone(), reports.clone());
            let cpu = (!cpus.is_empty()).then(|| cpus[index % cpus.len()]);
            let run = move || {
                let id = CoreId(index as u16);
                let ended = rt::run_core(cpu, async move {
                    let core = Core::new(id, count, shared, restored, reports);
                    serve_core(core, listener, spin).await;
                });
                if let Err(reason) = ended {
                    error!(core = index, %reason, "core cannot run");
                    std::process::exit(1);
                }
            };
            // A core that panics takes its counters with it: nothing that it would still admit can be trusted.
            let guarded = move || {
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                    error!(core = index, "core lost, stopping the process");
                    std::process::exit(1);
                }
            };
            cores.push(std::thread::Builder::new().name(format!("core-{index}")).spawn(guarded)?);
        }
        info!(%address, cores = count, "data plane listens");
        Ok(Gateway { address, shared, retired, cores })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Puts a new snapshot in force for every request that begins from now on.
    pub fn publish(&self, snapshot: Snapshot) {
        self.publisher().publish(snapshot);
    }

    /// A handle that publishes and outlives no core's use of it.
    pub fn publisher(&self) -> Publisher {
        Publisher { shared: self.shared.clone(), retired: self.retired.clone() }
    }

    /// Stops accepting, lets the exchanges under way end within `http.drain_timeout`, hands over the last marks,
    /// and returns when every core has ended.
    pub fn drain(self) {
        self.shared.draining.store(true, Ordering::SeqCst);
        for index in 0..self.cores.len() {
            self.shared.mesh.ring(CoreId(index as u16));
        }
        for core in self.cores {
            let _ = core.join();
        }
    }
}

/// Publishes to a running data plane.
#[derive(Clone)]
pub struct Publisher {
    shared: Arc<Shared>,
    retired: Arc<Retired>,
}

impl Publisher {
    /// See [`Gateway::publish`].
    pub fn publish(&self, snapshot: Snapshot) {
        self.retired.take(self.shared.snapshot.swap(Arc::new(snapshot)));
    }

    /// Puts a new ruleset in force for every request that begins from now on, all else as it is.
    pub fn publish_ruleset(&self, ruleset: Arc<Ruleset>) {
        let current = self.shared.snapshot.load_full();
        self.publish(Snapshot { version: ruleset.version(), ruleset, ..Snapshot::clone(&current) });
    }

    /// A dry run: what one request would meet now, counting nothing. Waits for the answer on the calling thread, at most
    /// `patience`; `None` when none came.
    pub fn probe(&self, probe: Probe, patience: Duration) -> Option<ProbeAnswer> {
        visit::ask(&self.shared, probe, patience)
    }

    /// How the writing of marks goes: what requests wait for that spend ahead of what is written.
    pub fn journal(&self, news: &JournalNews) {
        self.shared.journal.take(news);
    }

    /// Puts a new key ring in force at once.
    pub fn publish_keys(&self, keys: Arc<KeyRing>) {
        self.retired.take(self.shared.keys.swap(keys));
    }
}

/// Whether each of `cores` has a processor of the `allowed` ones to itself, and all of its time. Where a control group grants
/// less time than there are processors, looking for work would use up what the work needs.
fn owns_processors(cores: usize, allowed: usize) -> bool {
    let granted = std::thread::available_parallelism().map_or(1, usize::from);
    cores <= allowed && granted >= allowed
}

async fn serve_core(core: Rc<Core>, listener: TcpListener, spin: Duration) {
    let acceptor = Rc::new(Acceptor::default());
    let looking = core.clone();
    let vigil = Vigil::begin(spin, move || {
        looking.collect();
    });
    rt::spawn("upkeep", core.clone().upkeep());
    let (accepting, serving) = (acceptor.clone(), core.clone());
    rt::spawn("accept", async move {
        let accept = |stream| {
            let occupancy = serving.occupy();
            rt::spawn("connection", server::serve(serving.clone(), occupancy, stream));
        };
        if let Err(reason) = accepting.run(listener, accept).await {
            error!(%reason, "cannot accept");
        }
    });
    while !core.is_draining() {
        core.arrival().await;
        core.collect();
        visit::answer(&core);
    }
    acceptor.stop();
    vigil.stop();
    // The accept ends and its socket is closed within a turn of the runtime.
    core.tick(DRAIN_TICK).await;
    let until = Instant::now() + core.armed().snapshot.http.drain_timeout;
    while core.connections() > 0 && Instant::now() < until {
        core.close_idle();
        core.tick(DRAIN_TICK).await;
    }
    let cut = core.connections() > 0;
    if cut {
        warn!(core = core.id.0, left = core.connections(), "http.drain_timeout passed, exchanges are cut");
    }
    core.leave(cut).await;
    core.report_last();
}
