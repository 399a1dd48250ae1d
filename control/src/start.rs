//! From a config file to everything that `serve` needs, and why that may fail.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::CounterMark;

use crate::arm::{self, Armed};
use crate::config::{Config, Credentials, Finding, Rejected, process_environment};
use crate::keys;
use crate::management::{Fingerprint, InForce};
use crate::store::Store;

/// The file in `data_dir` whose lock says that a server runs on it.
pub const LOCK_FILE: &str = "lock";

/// Why the gateway cannot start: one line for each reason, ready to be printed.
#[derive(Debug, Eq, PartialEq)]
pub struct StartError {
    lines: Vec<String>,
}

impl StartError {
    /// One reason.
    pub fn new(line: impl Into<String>) -> StartError {
        StartError { lines: vec![line.into()] }
    }

    /// A config that is wrong.
    pub fn config(path: &Path, rejected: &Rejected) -> StartError {
        StartError { lines: rejected.errors.iter().map(|error| located(path, error)).collect() }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.lines.join("\n"))
    }
}

impl std::error::Error for StartError {}

impl From<crate::store::StoreError> for StartError {
    fn from(error: crate::store::StoreError) -> StartError {
        StartError::new(error.to_string())
    }
}

/// A finding as a line: `FILE:LINE: path: message`.
pub fn located(path: &Path, finding: &Finding) -> String {
    format!("{}:{}: {finding}", path.display(), finding.line)
}

/// Everything that `serve` needs, loaded and checked.
pub struct Prepared {
    /// What is in force from the start, at version 1.
    pub in_force: InForce,
    /// The calendar counters of an earlier run.
    pub counters: Vec<CounterMark>,
    /// The open database.
    pub store: Store,
    /// What loads and has no effect, each a line: the config's traps and overrides that were dropped.
    pub warnings: Vec<String>,
    /// Held as long as the server runs.
    pub lock: DataDirLock,
}

/// The proof that no other server runs on a `data_dir`. The lock ends with the process, however it ends.
#[derive(Debug)]
pub struct DataDirLock {
    _file: File,
}

impl DataDirLock {
    /// Takes the lock of a folder that exists.
    pub fn take(data_dir: &Path) -> Result<DataDirLock, StartError> {
        let path = data_dir.join(LOCK_FILE);
        let wrong =
            |error: std::io::Error| StartError::new(format!("{}: cannot be locked: {error}", path.display()));
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(wrong)?;
        match file.try_lock() {
            Ok(()) => Ok(DataDirLock { _file: file }),
            Err(std::fs::TryLockError::WouldBlock) => Err(StartError::new(format!(
                "data_dir {}: another server is running on it (it holds {LOCK_FILE})",
                data_dir.display()
            ))),
            Err(std::fs::TryLockError::Error(error)) => Err(wrong(error)),
        }
    }
}

/// Loads the config, opens the database, compiles the limits, reads keys and counters.
///
/// # Errors
/// Every error of the config, or the first thing that fails after it. Nothing is listening yet.
pub fn prepare(config_path: &Path) -> Result<Prepared, StartError> {
    let wrong = |rejected: Rejected| StartError::config(config_path, &rejected);
    let text = Config::text(config_path).map_err(wrong)?;
    let loaded =
        Config::parse(&text, config_path, Credentials::Needed, &process_environment).map_err(wrong)?;
    let config = Arc::new(loaded.config);
    let fingerprint = Fingerprint::of(&text, &config.files());
    let mut warnings: Vec<_> = loaded.warnings.iter().map(|warning| located(config_path, warning)).collect();
    let store = Store::open(&config.data_dir)?;
    let lock = DataDirLock::take(&config.data_dir)?;
    // First, so that its `as_of` is not later than the keys.
    let runtime = store.runtime_plane()?;
    let rows = store.keys()?;
    let Armed { ruleset, dropped } = arm::arm(1, &config, &runtime, &rows)?;
    warnings.extend(dropped.iter().map(dropped_line));
    let keys = Arc::new(keys::ring(&rows)?);
    let counters = store.counters()?;
    let in_force = InForce { config, fingerprint, ruleset, runtime, dropped, keys };
    Ok(Prepared { in_force, counters, store, warnings, lock })
}

/// An override that was dropped, as a line.
pub fn dropped_line(dropped: &engine::DroppedOverride) -> String {
    let override_ = &dropped.override_;
    format!(
        "override of limit \"{}\" at {} is dropped: {}",
        override_.limit_id, override_.node, dropped.reason
    )
}

/// Where `--config` leads: the path given, else `tokentriage.yaml` here, else `TT_CONFIG`.
pub fn config_path(given: Option<PathBuf>) -> Result<PathBuf, StartError> {
    if let Some(path) = given {
        return Ok(path);
    }
    let here = PathBuf::from("tokentriage.yaml");
    if here.exists() {
        return Ok(here);
    }
    match std::env::var_os("TT_CONFIG") {
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => Err(StartError::new(
            "no config: there is no tokentriage.yaml in this folder and TT_CONFIG is not set; give --config FILE",
        )),
    }
}
