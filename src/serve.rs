//! `serve`: the gateway, from its config to its last exchange.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use control::management::Publish;
use control::plane::{Plane, Setup};
use control::start::{Prepared, StartError, config_path, prepare};
use engine::{CounterMark, Report, Units};
use jiff::Timestamp;
use net::{Gateway, Publisher};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::arguments::ServeArguments;
use crate::keys::actor;
use crate::log;
use crate::wire::{self, Wiring};

/// How long the management API waits for the cores to say what a request would meet.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);

/// Runs the gateway until it is told to stop.
pub fn run(config: Option<PathBuf>, _arguments: ServeArguments) -> Result<ExitCode, StartError> {
    log::start();
    let mut signals = signals()?;
    let running = Running::start(prepare(&config_path(config)?)?)?;
    wait(&mut signals, &running);
    running.stop()?;
    Ok(ExitCode::SUCCESS)
}

/// The signals that a server answers. Taken before anything runs, so that none is missed.
pub fn signals() -> Result<Signals, StartError> {
    Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| StartError::new(format!("cannot take signals: {error}")))
}

/// Returns when the process is told to stop. SIGHUP reloads; what comes of it is logged.
pub fn wait(signals: &mut Signals, running: &Running) {
    for signal in signals.forever() {
        match signal {
            SIGHUP => running.plane.reload_by_signal(),
            _ => {
                info!(signal, "stopping: no new connections, exchanges under way may end");
                return;
            }
        }
    }
}

/// Both planes.
pub struct Running {
    gateway: Gateway,
    plane: Plane,
}

impl Running {
    /// Starts the control plane, then the data plane in front of it.
    ///
    /// # Errors
    /// An address in use, a host that does not resolve, a thread that cannot be started.
    pub fn start(prepared: Prepared) -> Result<Running, StartError> {
        for warning in &prepared.warnings {
            warn!("{warning}");
        }
        let Prepared { in_force, counters, store, lock, .. } = prepared;
        let keys = in_force.keys.clone();
        let wiring = Arc::new(Wiring::default());
        let snapshot = wiring.snapshot(&in_force.config)?(in_force.ruleset.clone());
        let settings = wire::settings(&in_force.config);
        let (reports, written): (Sender<Report>, Receiver<Report>) = channel();
        // The control plane starts first: what it needs may be in use, and nothing may be admitted before it runs.
        let publisher = Arc::new(OnceLock::<Publisher>::new());
        let publish = publish(&publisher, wiring);
        let now = Timestamp::now();
        let is_open = |mark: &&CounterMark| mark.set_aside() > Units(0) && !mark.is_over(now);
        let recovered = counters.iter().filter(is_open).cloned().collect();
        let setup = Setup { in_force, store, lock, recovered, actor: actor() };
        let plane = Plane::start(setup, publish, written)?;
        let gateway = Gateway::start(&settings, snapshot, keys, counters, &reports).map_err(|error| {
            StartError::new(format!("listen: cannot serve on {}: {error}", settings.listen))
        })?;
        // Never set before: this is the only place.
        let _ = publisher.set(gateway.publisher());
        Ok(Running { gateway, plane })
    }

    /// Where the data plane listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.gateway.address()
    }

    /// Drains the data plane, writes what it counted, and stops the control plane.
    ///
    /// # Errors
    /// Counters that could not be written.
    pub fn stop(self) -> Result<(), StartError> {
        self.gateway.drain();
        self.plane.stop()
    }
}

/// What the control plane publishes by. Whoever publishes while the data plane starts waits for it.
fn publish(publisher: &Arc<OnceLock<Publisher>>, wiring: Arc<Wiring>) -> Publish {
    let (for_keys, for_ruleset) = (publisher.clone(), publisher.clone());
    let (for_config, for_probe) = (publisher.clone(), publisher.clone());
    let (for_journal, for_names) = (publisher.clone(), Arc::clone(&wiring));
    Publish {
        keys: Box::new(move |keys| for_keys.wait().publish_keys(keys)),
        ruleset: Box::new(move |ruleset| for_ruleset.wait().publish_ruleset(ruleset)),
        config: Box::new(move |config| {
            let publisher = for_config.clone();
            let snapshot = wiring.snapshot(config)?;
            Ok(Box::new(move |ruleset| publisher.wait().publish(snapshot(ruleset))))
        }),
        names: Box::new(move || for_names.refresh()),
        journal: Arc::new(move |news| for_journal.wait().journal(news)),
        probe: Box::new(move |probe| for_probe.wait().probe(probe, PROBE_PATIENCE)),
    }
}
