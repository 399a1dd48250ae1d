//! What is in force, and every way to change it while traffic flows.
//!
//! One [`Management`] is shared by the management listener, the control socket, the watch on the config file and the
//! signals. It owns the database's writing side for everything but counters, and what was last published to the
//! data plane. All of it stands behind one lock, so that writes come one after another, published versions ascend, and
//! what a listing shows is one moment.
//!
//! Whoever holds the lock may wait for the disk, so it is taken on blocking threads only, never on the thread that
//! answers connections, and no request ever waits for it.
//!
//! Invariants: what is published is what `State` holds; a key ring, a ruleset or a config is published only after
//! the database has it; under `governance.key_nodes` the ruleset with a key's own caps is published before the key.

mod reload;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{CounterMark, DroppedOverride, KeyRing, Kid, NodeId, Probe, ProbeAnswer, Ruleset};
use jiff::Timestamp;
use rustls::ServerConfig;
use serde_json::json;

use crate::config::Config;
use crate::metrics::Board;
use crate::start::StartError;
use crate::store::{AuditEntry, RuntimePlane, Store};
use crate::{arm, bounds, keys};

pub(crate) use reload::cut;
pub use reload::{Fingerprint, ReloadRefused, Reloaded, Trigger};

/// Puts a config whose outside is ready in force, together with its ruleset.
pub type Ready = Box<dyn FnOnce(Arc<Ruleset>) + Send>;

/// Readies a config.
pub type ReadyConfig = dyn Fn(&Config) -> Result<Ready, StartError> + Send + Sync;

/// How the data plane is given what changes. What publishes returns once every core can see it.
pub struct Publish {
    /// A new key ring.
    pub keys: Box<dyn Fn(Arc<KeyRing>) + Send + Sync>,
    /// A new ruleset, all else as it was.
    pub ruleset: Box<dyn Fn(Arc<Ruleset>) + Send + Sync>,
    /// Readies all else of a new config: names are looked up, which takes time and may fail, and nothing changes yet.
    pub config: Box<ReadyConfig>,
    /// Looks up the names of backends that are due, and puts other addresses in force. Takes a while.
    pub names: Box<dyn Fn() + Send + Sync>,
    /// How the writing of marks goes.
    pub journal: Arc<crate::writer::Tell>,
    /// Asks what one request would meet; `None` when the cores did not answer in time.
    pub probe: Box<dyn Fn(Probe) -> Option<ProbeAnswer> + Send + Sync>,
}

/// What is in force when the control plane starts.
pub struct InForce {
    /// The config.
    pub config: Arc<Config>,
    /// Which file that is, by its content.
    pub fingerprint: Fingerprint,
    /// The ruleset.
    pub ruleset: Arc<Ruleset>,
    /// The runtime plane in force in it.
    pub runtime: RuntimePlane,
    /// Its overrides that are not in force.
    pub dropped: Vec<DroppedOverride>,
    /// The ring.
    pub keys: Arc<KeyRing>,
}

/// What is in force, and the ways to change it.
pub struct Management {
    publish: Publish,
    /// The content that was last tried. Held for a whole reload, so that two never overlap.
    tried: Mutex<Fingerprint>,
    state: Mutex<State>,
    /// Of the config in force. Beside `state`, because who accepts connections may not wait for the disk.
    admin_tls: Mutex<Option<Arc<ServerConfig>>>,
    board: Arc<Board>,
}

/// What the lock guards.
pub(crate) struct State {
    pub store: Store,
    pub config: Arc<Config>,
    pub ruleset: Arc<Ruleset>,
    /// As it was when the ruleset was armed, but for what is suspended, which is always current.
    pub runtime: RuntimePlane,
    pub dropped: Vec<DroppedOverride>,
    pub keys: Arc<KeyRing>,
    /// The declared nodes in lexical order.
    pub declared: Vec<NodeId>,
    /// The last audit row whose change of a key is in the ring.
    keys_as_of: i64,
}

/// The declared nodes in lexical order, each once.
fn sorted_nodes(config: &Config) -> Vec<NodeId> {
    let mut nodes = config.governance.nodes.clone();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// What the management listener of a config shows its callers.
fn admin_tls(config: &Config) -> Option<Arc<ServerConfig>> {
    let tls = config.admin.as_ref()?.tls.as_ref()?;
    Some(Arc::clone(&tls.config))
}

impl Management {
    /// Takes over what [`crate::start::prepare`] has made and the data plane runs on.
    pub fn new(store: Store, in_force: InForce, publish: Publish) -> Management {
        let InForce { config, fingerprint, ruleset, runtime, dropped, keys } = in_force;
        let (declared, keys_as_of) = (sorted_nodes(&config), runtime.as_of);
        let state = State { store, config, ruleset, runtime, dropped, keys, declared, keys_as_of };
        let tried = Mutex::new(fingerprint);
        let admin_tls = Mutex::new(admin_tls(&state.config));
        Management { publish, tried, state: Mutex::new(state), admin_tls, board: Arc::default() }
    }

    /// The state. A panic of somebody who held it loses that one write, which the database has as a whole or not at
    /// all; the next one goes on.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was measured.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The config in force.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.state().config)
    }

    /// What the management listener shows its callers now; absent for plain HTTP.
    pub(crate) fn admin_tls(&self) -> Option<Arc<ServerConfig>> {
        self.admin_tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The ruleset in force.
    pub fn ruleset(&self) -> Arc<Ruleset> {
        Arc::clone(&self.state().ruleset)
    }

    /// Asks the data plane what one request would meet.
    pub(crate) fn probe(&self, probe: Probe) -> Option<ProbeAnswer> {
        (self.publish.probe)(probe)
    }

    /// Looks up the names of backends that are due. No lock is held meanwhile.
    pub(crate) fn refresh_names(&self) {
        (self.publish.names)();
    }

    /// What follows a start: keys that changed meanwhile are published, and the start is audited.
    ///
    /// `recovered` are counters that resume above what they are known to have counted, because the last run ended without
    /// a stop; they are told of, and audited.
    pub fn begin(&self, actor: &str, recovered: &[CounterMark]) {
        let mut state = self.state();
        if let Err(error) = state.take_changed_keys(&self.publish) {
            tracing::error!(%error, "keys that changed during the start are not published");
        }
        let after = state.summary();
        let target = state.config.path.display().to_string();
        let entry = AuditEntry {
            at: Timestamp::now(),
            actor,
            action: "boot",
            target: &target,
            node: None,
            before: None,
            after: Some(after),
            result: "done",
        };
        if let Err(error) = state.store.audit(&entry) {
            tracing::error!(%error, "the start is not audited");
        }
        if !recovered.is_empty() {
            state.audit_recovered(actor, recovered);
        }
    }

    /// Suspends or resumes a limit: stored with its audit row, then in force at once. Everything else stays as it was
    /// armed.
    pub(crate) fn set_suspended(
        &self,
        limit_id: &str,
        suspended: bool,
        entry: &AuditEntry<'_>,
    ) -> Result<(), StartError> {
        let mut state = self.state();
        state.store.set_suspended(limit_id, suspended, entry.at, entry)?;
        if suspended {
            state.runtime.suspended.insert(limit_id.to_owned());
        } else {
            state.runtime.suspended.remove(limit_id);
        }
        state.arm_again(&self.publish)
    }

    /// Publishes these keys as the database has them.
    pub fn take_keys(&self, kids: &[Kid]) -> Result<(), StartError> {
        self.state().take_keys(kids, &self.publish)
    }
}

impl State {
    /// What is in force, in figures.
    fn summary(&self) -> serde_json::Value {
        json!({
            "version": self.ruleset.version(),
            "limits": self.ruleset.limits().len(),
            "nodes": self.ruleset.tree().len(),
            "overrides": self.runtime.overrides.len() - self.dropped.len(),
            "dropped_overrides": self.dropped.len(),
            "suspended": self.runtime.suspended,
            "keys": self.keys.len(),
        })
    }

    /// The last run was killed: its counters resume where they may have come to. The rest of the window is that much
    /// smaller, which somebody may want to know.
    fn audit_recovered(&mut self, actor: &str, recovered: &[CounterMark]) {
        let count = recovered.len();
        tracing::warn!(
            counters = count,
            "the last run did not stop in order: they resume at their high water"
        );
        let listed = recovered.iter().take(bounds::RECOVERED_LISTED).map(|mark| {
            json!({
                "limit_id": mark.limit_id,
                "node": mark.node,
                "dims": [mark.model, mark.provider, mark.endpoint],
                "observed": mark.observed.0.to_string(),
                "uncertain": mark.set_aside().0.to_string(),
            })
        });
        let entry = AuditEntry {
            at: Timestamp::now(),
            actor,
            action: "counters.recover",
            target: "counters",
            node: None,
            before: None,
            after: Some(json!({ "counters": count, "listed": listed.collect::<Vec<_>>() })),
            result: "done",
        };
        if let Err(error) = self.store.audit(&entry) {
            tracing::error!(%error, "the recovery of counters is not audited");
        }
    }

    /// Publishes the keys that the database has otherwise than the ring: their `keys mint` or `keys revoke` found no
    /// server to tell, or could not tell it.
    fn take_changed_keys(&mut self, publish: &Publish) -> Result<(), StartError> {
        let (kids, newest) = self.store.keys_changed_since(self.keys_as_of)?;
        let kids: Vec<_> = kids.iter().filter_map(|kid| Kid::parse(kid)).collect();
        if !kids.is_empty() {
            self.take_keys(&kids, publish)?;
        }
        self.keys_as_of = newest;
        Ok(())
    }

    /// Reads the keys from the database and publishes. Under `key_nodes` the ruleset comes first: a key must not be
    /// known before the caps at its own node are.
    pub fn take_keys(&mut self, kids: &[Kid], publish: &Publish) -> Result<(), StartError> {
        let mut ring = (*self.keys).clone();
        for kid in kids {
            let row = self.store.key(kid.as_str())?;
            ring = keys::ring_with_change(&ring, kid, row.as_ref())?;
        }
        if self.config.governance.enabled && self.config.governance.key_nodes {
            self.arm_again(publish)?;
        }
        self.keys = Arc::new(ring);
        (publish.keys)(Arc::clone(&self.keys));
        tracing::info!(changed = kids.len(), keys = self.keys.len(), "keys published");
        Ok(())
    }

    /// Arms the same config and the same runtime plane anew: for a key that became a node, or a limit that is suspended.
    fn arm_again(&mut self, publish: &Publish) -> Result<(), StartError> {
        let rows = self.key_rows(&self.config)?;
        let version = self.ruleset.version() + 1;
        let armed = arm::arm(version, &self.config, &self.runtime, &rows)?;
        (self.ruleset, self.dropped) = (armed.ruleset, armed.dropped);
        (publish.ruleset)(Arc::clone(&self.ruleset));
        Ok(())
    }

    /// The keys, where they are nodes; else none, for arming does not look at them.
    fn key_rows(&self, config: &Config) -> Result<Vec<crate::store::KeyRow>, StartError> {
        let needed = config.governance.enabled && config.governance.key_nodes;
        Ok(if needed { self.store.keys()? } else { Vec::new() })
    }
}
