//! Reload: the config file and the runtime plane, read, compiled and published as a whole, or not at all.
//!
//! Three triggers lead here: the file has changed, SIGHUP, and the management API. What can fail comes first: reading
//! and decoding the file, settings that only a restart can change, names that do not resolve, limits that do not
//! compile, an audit row that cannot be written. Only then is anything published, and publishing cannot fail.
//!
//! A change of the file is known by its content: a touch, or an event for a rename that put the same bytes there, does
//! nothing. The API and SIGHUP always reload, because they also bring the runtime plane in.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use engine::{CompileError, DroppedOverride};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Management, State, admin_tls, sorted_nodes};
use crate::arm::{self, ArmError};
use crate::bounds;
use crate::config::{Config, Credentials, Finding, Loaded, line_of, process_environment};
use crate::start::{StartError, dropped_line, located};
use crate::store::{AuditEntry, StoreError, hexadecimal};

/// Who asks for a reload.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Trigger {
    /// The file has changed.
    File,
    /// SIGHUP.
    Signal,
    /// The management API, by this actor.
    Api(String),
}

impl Trigger {
    /// As the audit trail names it.
    fn actor(&self) -> &str {
        match self {
            Trigger::File => "file",
            Trigger::Signal => "signal",
            Trigger::Api(actor) => actor,
        }
    }
}

/// The content of a config file and of the files that it names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a config's text and the files of [`Config::files`]. One that cannot be read counts as empty.
    pub fn of(text: &str, files: &[&Path]) -> Fingerprint {
        let mut hash = Sha256::new();
        hash.update(text.len().to_le_bytes());
        hash.update(text);
        for path in files {
            // What an error leaves unread makes another hash than the whole file, and is read again then.
            let mut bytes = Vec::new();
            if let Ok(file) = std::fs::File::open(path) {
                let _ = file.take(bounds::PRICE_FILE_BYTES).read_to_end(&mut bytes);
            }
            hash.update(bytes.len().to_le_bytes());
            hash.update(bytes);
        }
        Fingerprint(hash.finalize().into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&hexadecimal(&self.0))
    }
}

/// What a reload has brought in.
#[derive(Clone, Debug, PartialEq)]
pub struct Reloaded {
    /// The version in force now.
    pub version: u64,
    /// Overrides that do not hold, with the reason.
    pub dropped: Vec<DroppedOverride>,
    /// What loads and has no effect, each a line.
    pub warnings: Vec<String>,
}

/// Why a reload changed nothing.
#[derive(Debug)]
pub enum ReloadRefused {
    /// The config is wrong, or not one for this process: every error.
    Config(Vec<Finding>),
    /// The database could not be read or written.
    Store(StartError),
}

impl ReloadRefused {
    fn one(path: impl Into<String>, line: usize, message: impl Into<String>) -> ReloadRefused {
        ReloadRefused::Config(vec![Finding { path: path.into(), line, message: message.into() }])
    }
}

impl fmt::Display for ReloadRefused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadRefused::Config(errors) => {
                let lines: Vec<_> =
                    errors.iter().map(|error| format!("line {}: {error}", error.line)).collect();
                out.write_str(&lines.join("; "))
            }
            ReloadRefused::Store(error) => error.fmt(out),
        }
    }
}

impl From<StoreError> for ReloadRefused {
    fn from(error: StoreError) -> ReloadRefused {
        ReloadRefused::Store(error.into())
    }
}

/// A config that was read, before anything of it is in force.
struct Candidate {
    text: String,
    loaded: Loaded,
    fingerprint: Fingerprint,
}

impl Management {
    /// Reads config and runtime plane and puts both in force as a whole.
    ///
    /// # Errors
    /// Everything that is wrong; what was in force still is. It is logged and audited here.
    pub fn reload(&self, trigger: &Trigger) -> Result<Reloaded, ReloadRefused> {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let config = self.config();
        let text = match Config::text(&config.path) {
            Ok(text) => text,
            Err(rejected) => {
                return self.refuse(trigger, &config.path, None, ReloadRefused::Config(rejected.errors));
            }
        };
        self.reload_text(trigger, &config, text, &mut tried)
    }

    /// The same, when the content of the file is not the one tried last. A file that is not there is not one that has
    /// changed: it is about to be put back, or a reload asked for by hand will say that it is missing.
    pub fn reload_if_changed(&self) -> Option<Result<Reloaded, ReloadRefused>> {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let config = self.config();
        let text = match Config::text(&config.path) {
            Ok(text) => text,
            Err(rejected) => {
                let reason = rejected.errors.first().map(Finding::to_string).unwrap_or_default();
                tracing::warn!(path = %config.path.display(), "the config {reason}; the one in force stays");
                return None;
            }
        };
        let changed = Fingerprint::of(&text, &config.files()) != *tried;
        changed.then(|| self.reload_text(&Trigger::File, &config, text, &mut tried))
    }

    fn reload_text(
        &self,
        trigger: &Trigger,
        current: &Config,
        text: String,
        tried: &mut Fingerprint,
    ) -> Result<Reloaded, ReloadRefused> {
        let path = current.path.clone();
        *tried = Fingerprint::of(&text, &current.files());
        let parsed = Config::parse(&text, &path, Credentials::Needed, &process_environment);
        let loaded = match parsed {
            Ok(loaded) => loaded,
            Err(rejected) => {
                return self.refuse(trigger, &path, Some(*tried), ReloadRefused::Config(rejected.errors));
            }
        };
        *tried = Fingerprint::of(&text, &loaded.config.files());
        let candidate = Candidate { text, loaded, fingerprint: *tried };
        self.put_in_force(trigger, current, candidate)
            .or_else(|refused| self.refuse(trigger, &path, Some(*tried), refused))
    }

    fn put_in_force(
        &self,
        trigger: &Trigger,
        current: &Config,
        candidate: Candidate,
    ) -> Result<Reloaded, ReloadRefused> {
        let Candidate { text, loaded, fingerprint } = candidate;
        let Loaded { config, warnings } = loaded;
        let fixed = fixed_settings(current, &config, &text);
        if !fixed.is_empty() {
            return Err(ReloadRefused::Config(fixed));
        }
        let ready = (self.publish.config)(&config).map_err(|error| {
            ReloadRefused::one("providers", line_of(&text, &["providers"]), error.to_string())
        })?;
        let mut state = self.state();
        state.take_changed_keys(&self.publish).map_err(ReloadRefused::Store)?;
        let runtime = state.store.runtime_plane()?;
        let rows = state.key_rows(&config).map_err(ReloadRefused::Store)?;
        let version = state.ruleset.version() + 1;
        let armed = arm::arm(version, &config, &runtime, &rows)
            .map_err(|error| ReloadRefused::Config(vec![compile_finding(&config, &text, &error)]))?;
        let next = Next { config: Arc::new(config), runtime, armed, fingerprint };
        audit_done(&mut state, trigger, &next)?;
        let Next { config, runtime, armed, .. } = next;
        ready(Arc::clone(&armed.ruleset));
        *self.admin_tls.lock().unwrap_or_else(PoisonError::into_inner) = admin_tls(&config);
        let warnings: Vec<_> = warnings.iter().map(|warning| located(&config.path, warning)).collect();
        for line in warnings.iter().cloned().chain(armed.dropped.iter().map(dropped_line)) {
            tracing::warn!("{line}");
        }
        tracing::info!(
            version,
            by = trigger.actor(),
            limits = armed.ruleset.limits().len(),
            nodes = armed.ruleset.tree().len(),
            "reloaded"
        );
        self.board().reloaded(true);
        state.declared = sorted_nodes(&config);
        (state.config, state.runtime) = (config, runtime);
        (state.ruleset, state.dropped) = (armed.ruleset, armed.dropped.clone());
        Ok(Reloaded { version, dropped: armed.dropped, warnings })
    }

    /// Logs and audits a refusal, and hands it on.
    fn refuse(
        &self,
        trigger: &Trigger,
        path: &Path,
        fingerprint: Option<Fingerprint>,
        refused: ReloadRefused,
    ) -> Result<Reloaded, ReloadRefused> {
        self.board().reloaded(false);
        tracing::error!(by = trigger.actor(), "reload refused, the config in force stays: {refused}");
        let errors: &[Finding] = match &refused {
            ReloadRefused::Config(errors) => &errors[..errors.len().min(bounds::AUDITED_FINDINGS)],
            ReloadRefused::Store(_) => &[],
        };
        let errors: Vec<_> = errors.iter().map(finding_json).collect();
        let target = path.display().to_string();
        let result = format!("refused: {refused}");
        let entry = AuditEntry {
            at: Timestamp::now(),
            actor: trigger.actor(),
            action: "reload",
            target: &target,
            node: None,
            before: None,
            after: Some(json!({ "sha256": fingerprint.map(|print| print.to_string()), "errors": errors })),
            result: cut(&result, bounds::AUDITED_RESULT_BYTES),
        };
        if let Err(error) = self.state().store.audit(&entry) {
            tracing::error!(%error, "the refused reload is not audited");
        }
        Err(refused)
    }
}

/// Everything of a reload, about to be in force.
struct Next {
    config: Arc<Config>,
    runtime: crate::store::RuntimePlane,
    armed: arm::Armed,
    fingerprint: Fingerprint,
}

/// The audit row of a reload. It is written first: what cannot be audited is not done.
fn audit_done(state: &mut State, trigger: &Trigger, next: &Next) -> Result<(), ReloadRefused> {
    let target = next.config.path.display().to_string();
    let dropped: Vec<_> =
        next.armed.dropped.iter().take(bounds::AUDITED_FINDINGS).map(dropped_line).collect();
    let before = state.summary();
    let after = json!({
        "version": next.armed.ruleset.version(),
        "limits": next.armed.ruleset.limits().len(),
        "nodes": next.armed.ruleset.tree().len(),
        "overrides": next.runtime.overrides.len() - next.armed.dropped.len(),
        "dropped_overrides": next.armed.dropped.len(),
        "dropped": dropped,
        "suspended": next.runtime.suspended,
        "keys": state.keys.len(),
        "sha256": next.fingerprint.to_string(),
    });
    let entry = AuditEntry {
        at: Timestamp::now(),
        actor: trigger.actor(),
        action: "reload",
        target: &target,
        node: None,
        before: Some(before),
        after: Some(after),
        result: "done",
    };
    Ok(state.store.audit(&entry)?)
}

/// A finding as JSON.
pub(crate) fn finding_json(finding: &Finding) -> Value {
    json!({ "path": finding.path, "line": finding.line, "message": finding.message })
}

/// At most so many bytes of a text, whole characters.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The settings that a running process cannot change, where the two configs differ.
fn fixed_settings(current: &Config, wanted: &Config, text: &str) -> Vec<Finding> {
    let listen = |config: &Config| config.admin.as_ref().map(|admin| admin.listen);
    let token = |config: &Config| config.admin.as_ref().and_then(|admin| admin.token.clone());
    let differing = [
        (current.listen != wanted.listen, &["listen"][..]),
        (listen(current) != listen(wanted), &["admin", "listen"]),
        (token(current) != token(wanted), &["admin", "token_env"]),
        (current.workers != wanted.workers, &["workers"]),
        (current.spin != wanted.spin, &["spin"]),
        (current.data_dir != wanted.data_dir, &["data_dir"]),
    ];
    let finding = |(_, path): (bool, &[&str])| Finding {
        path: path.join("."),
        line: line_of(text, path),
        message: "cannot change while the gateway runs; restart it, or put the old value back".to_owned(),
    };
    differing.into_iter().filter(|(differs, _)| *differs).map(finding).collect()
}

/// Where in the file a limit stands that does not compile.
fn compile_finding(config: &Config, text: &str, error: &ArmError) -> Finding {
    let limit_id = match &error.0 {
        CompileError::PinnedNodeMissing { limit_id, .. }
        | CompileError::DuplicateLimit { limit_id }
        | CompileError::ZeroAmount { limit_id }
        | CompileError::WrongWindow { limit_id, .. } => limit_id,
    };
    let place = config.governance.limits.iter().position(|limit| limit.id == *limit_id);
    let index = place.unwrap_or_default().to_string();
    let mut path = vec!["governance", "limits", index.as_str()];
    if matches!(error.0, CompileError::PinnedNodeMissing { .. }) {
        path.extend(["attach", "node"]);
    }
    let suffix = if path.len() > 3 { ".attach.node" } else { "" };
    Finding {
        path: format!("governance.limits[{index}]{suffix}"),
        line: line_of(text, &path),
        message: error.to_string(),
    }
}
