//! `governance.db`: what must outlive the process.
//!
//! One SQLite file in `data_dir`, in WAL mode, so that the command line reads and writes beside a running server.
//! Its tables: `nodes`, `overrides` and `suspended` (the runtime plane), `keys`, `audit`, `counters` (calendar windows
//! only: rates and gauges start empty), `usage`. The schema grows by numbered migrations counted in `user_version`; a database of a
//! newer version is refused, never guessed at.
//!
//! Durability: counters are written with `synchronous=NORMAL` (a killed process loses nothing that was committed; a power
//! cut may lose what was committed since the last checkpoint, [`bounds::SYNC_PERIOD_MS`] ago at most), keys and audit with
//! `FULL`. Money and counts are decimal texts, because
//! SQLite's integers end at 63 bits.
//!
//! Invariants: no secret is ever written, only its hash; audit rows are only ever added (triggers refuse the rest), each
//! chained to the one before ([`Store::verify_audit`]).

mod audit;
mod counters;
mod keys;
mod planes;
mod schema;
mod usage;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

pub(crate) use audit::hexadecimal;
pub use audit::{AuditEntry, AuditFilter, AuditRow, Verified};
pub use keys::KeyRow;
pub use planes::{OverrideRow, RuntimePlane};
pub use usage::UsageRecord;

use crate::bounds;

/// The name of the database in `data_dir`.
pub const FILE: &str = "governance.db";

/// Why the database could not be used: which one, doing what, and SQLite's reason.
#[derive(Debug)]
pub struct StoreError {
    path: PathBuf,
    doing: &'static str,
    reason: String,
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: cannot {}: {}", self.path.display(), self.doing, self.reason)
    }
}

impl std::error::Error for StoreError {}

/// An open database.
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens the database of a `data_dir`; folder, file and tables are made where they are missing.
    pub fn open(data_dir: &Path) -> Result<Store, StoreError> {
        let path = data_dir.join(FILE);
        create_private_folder(data_dir).map_err(|error| StoreError {
            path: data_dir.to_owned(),
            doing: "make the folder",
            reason: error.to_string(),
        })?;
        create_private_file(&path).map_err(|error| StoreError {
            path: path.clone(),
            doing: "make the file",
            reason: error.to_string(),
        })?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut store = Store::connect(path, flags)?;
        store.doing("set up", |connection| {
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "normal")?;
            connection.pragma_update(None, "foreign_keys", true)
        })?;
        schema::migrate(&mut store)?;
        Ok(store)
    }

    /// Opens the database to read only, for verbs that must change nothing; `None` when there is none yet. One that an
    /// older version of this program has left is brought to this version's schema first.
    pub fn open_existing(data_dir: &Path) -> Result<Option<Store>, StoreError> {
        let path = data_dir.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        let store = Store::connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        if schema::check_version(&store)? < schema::NEWEST {
            drop(store);
            return Store::open(data_dir).map(Some);
        }
        Ok(Some(store))
    }

    fn connect(path: PathBuf, flags: OpenFlags) -> Result<Store, StoreError> {
        match Connection::open_with_flags(&path, flags) {
            Ok(connection) => {
                let store = Store { connection, path };
                store.doing("set up", |connection| {
                    connection.busy_timeout(Duration::from_millis(bounds::BUSY_TIMEOUT_MS))
                })?;
                Ok(store)
            }
            Err(error) => Err(StoreError { path, doing: "open", reason: error.to_string() }),
        }
    }

    /// Moves the write-ahead log into the database, so that a stopped server leaves one file.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.doing("checkpoint", |connection| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        })
    }

    /// Leaves the moving of the write-ahead log into the database to whoever calls [`Store::sync`]: a writer that others
    /// wait for must not stop for it.
    pub fn never_checkpoint(&self) -> Result<(), StoreError> {
        self.doing("set up", |connection| connection.pragma_update(None, "wal_autocheckpoint", 0))
    }

    /// Puts what was committed so far on the disk and moves it into the database, beside writers, who do not wait. A log
    /// that has grown beyond [`bounds::WAL_BYTES`] is begun anew, for which writers do wait.
    pub fn sync(&self) -> Result<(), StoreError> {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        let grown = std::fs::metadata(log).is_ok_and(|log| log.len() > bounds::WAL_BYTES);
        let mode = if grown { "RESTART" } else { "PASSIVE" };
        self.doing("sync", |connection| {
            connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()))
        })
    }

    /// A disk that is full, for tests: the database may have so many pages, and no fewer than it has.
    #[cfg(test)]
    pub(crate) fn limit_pages(&self, pages: u32) -> Result<(), StoreError> {
        self.doing("limit", |connection| {
            connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
        })
    }

    /// Runs `work` on the connection and puts path and purpose on its error.
    fn doing<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        work(&self.connection).map_err(|error| self.wrong(doing, error))
    }

    /// Runs `work` in one immediate transaction, synced to the disk when `durable`.
    fn transaction<T>(
        &mut self,
        doing: &'static str,
        durable: bool,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let outcome = run_transaction(&mut self.connection, durable, work);
        outcome.map_err(|error| self.wrong(doing, error))
    }

    fn wrong(&self, doing: &'static str, error: impl fmt::Display) -> StoreError {
        StoreError { path: self.path.clone(), doing, reason: error.to_string() }
    }
}

/// Which part of the tree rows are asked about.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Under {
    /// This node and what begins with it and a slash; absent: everything.
    node: Option<String>,
    /// Only ids in charset: what a delegated admin may see.
    strict: bool,
}

impl Under {
    /// Below the node asked for, else below the one that the asker is bound to. Whether the asker may ask for the first is
    /// to be checked before.
    pub fn new(asked: Option<&str>, bound: Option<&engine::NodeId>) -> Under {
        let node = asked.map(str::to_owned).or_else(|| bound.map(ToString::to_string));
        Under { node: node.filter(|node| node != engine::tenancy::GLOBAL), strict: bound.is_some() }
    }
}

/// The condition that a column names a node under `?N` (a text or null), and is in charset when `?M` is true. Ids
/// below a node are the texts from `node/` up to `node0`, the next text after every one that begins so.
fn under(column: &str, node: usize, strict: usize) -> String {
    format!(
        "(?{node} IS NULL OR {column} = ?{node} OR ({column} > ?{node} || '/' AND {column} < ?{node} || '0'))
         AND (NOT ?{strict} OR {column} NOT GLOB '*[^a-z0-9:/_-]*')"
    )
}

fn run_transaction<T>(
    connection: &mut Connection,
    durable: bool,
    work: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    connection.pragma_update(None, "synchronous", if durable { "full" } else { "normal" })?;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let value = work(&transaction)?;
    transaction.commit()?;
    Ok(value)
}

/// The folder holds hashes of keys and what tenants spent: it is for its owner alone. One that is there already
/// keeps its mode.
fn create_private_folder(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if path.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// SQLite gives the files beside the database its mode, so this one call protects them all. A database that is there
/// keeps its mode.
fn create_private_file(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::File::options().create(true).truncate(false).write(true).mode(0o600).open(path).map(drop)
}

/// The time as it is stored: RFC 3339 in UTC with milliseconds, which sorts as text.
fn stamp(at: jiff::Timestamp) -> String {
    format!("{at:.3}")
}

#[cfg(test)]
pub(crate) mod tests;
