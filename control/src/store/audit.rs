//! The audit trail: rows are added, never changed, and each one states the hash of the row before.
//!
//! The hash of a row is the SHA-256 of its canonical form, the JSON list `[prev, seq, at, actor, action, target, node,
//! before, after, result]` of the texts as they are stored. Whoever edits, removes or reorders rows behind the
//! program's back breaks the chain at that place, or has to recompute every row after it: then the hash of the newest
//! row, which `audit verify` prints, is no longer the one that was noted elsewhere.
//!
//! Triggers refuse updates and removals by accident; the chain shows those on purpose.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Transaction, params};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Store, StoreError, Under, stamp};

/// What the first row states as the hash of the row before.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Keeps the trail append-only.
const GUARD: &str = "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN \
                     SELECT RAISE(ABORT, 'audit rows are never changed'); END;";

const COLUMNS: &str = "seq, at, actor, action, target, node, before, after, result, prev, hash";

/// What one write did, or tried.
#[derive(Clone, Debug)]
pub struct AuditEntry<'a> {
    /// When.
    pub at: Timestamp,
    /// Who: `root`, a delegated admin's kid, `cli:<user>`, `file` or `signal`.
    pub actor: &'a str,
    /// What, such as `key.mint`.
    pub action: &'a str,
    /// On what: a kid, a node, a limit id.
    pub target: &'a str,
    /// The node that it is about, if it is about one: what a delegated admin of it may read.
    pub node: Option<&'a str>,
    /// How it was before; never a secret.
    pub before: Option<Value>,
    /// How it is after.
    pub after: Option<Value>,
    /// `done`, or `refused: ` and why.
    pub result: &'a str,
}

/// A row of the trail.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditRow {
    /// Its number; numbers only grow.
    pub seq: i64,
    /// When, RFC 3339.
    pub at: String,
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// On what.
    pub target: String,
    /// The node that it is about.
    pub node: Option<String>,
    /// How it was before.
    pub before: Option<Value>,
    /// How it is after.
    pub after: Option<Value>,
    /// The outcome.
    pub result: String,
    /// The hash of the row.
    pub hash: String,
}

/// Which rows are asked for. Everything absent asks for all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// About this part of the tree.
    pub under: Under,
    /// By this actor.
    pub actor: Option<String>,
    /// Of this action.
    pub action: Option<String>,
    /// On this target.
    pub target: Option<String>,
    /// Older than this row.
    pub before_seq: Option<i64>,
}

/// What `audit verify` found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verified {
    /// Every row follows from the one before.
    Whole {
        /// How many rows there are.
        rows: i64,
        /// The hash of the newest one.
        head: String,
    },
    /// The trail was changed at or before this row.
    Broken {
        /// The row.
        seq: i64,
        /// How it shows.
        reason: String,
    },
}

/// A row as it is stored, which is what its hash is of.
struct Stored {
    seq: i64,
    at: String,
    actor: String,
    action: String,
    target: String,
    node: Option<String>,
    before: Option<String>,
    after: Option<String>,
    result: String,
    prev: String,
    hash: String,
}

impl Stored {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Stored> {
        Ok(Stored {
            seq: row.get(0)?,
            at: row.get(1)?,
            actor: row.get(2)?,
            action: row.get(3)?,
            target: row.get(4)?,
            node: row.get(5)?,
            before: row.get(6)?,
            after: row.get(7)?,
            result: row.get(8)?,
            prev: row.get(9)?,
            hash: row.get(10)?,
        })
    }

    fn computed_hash(&self) -> String {
        let canonical = json!([
            self.prev,
            self.seq,
            self.at,
            self.actor,
            self.action,
            self.target,
            self.node,
            self.before,
            self.after,
            self.result
        ]);
        hexadecimal(&Sha256::digest(canonical.to_string().as_bytes()))
    }

    fn shown(self) -> AuditRow {
        let json = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        AuditRow {
            seq: self.seq,
            at: self.at,
            actor: self.actor,
            action: self.action,
            target: self.target,
            node: self.node,
            before: json(self.before),
            after: json(self.after),
            result: self.result,
            hash: self.hash,
        }
    }
}

/// Bytes as lowercase hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Number and hash of the newest row.
fn newest(transaction: &Transaction<'_>) -> rusqlite::Result<(i64, String)> {
    let row = transaction
        .query_row("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    Ok(row.unwrap_or((0, GENESIS.to_owned())))
}

/// Adds a row in the transaction of the write that it tells of.
pub(super) fn add(transaction: &Transaction<'_>, entry: &AuditEntry<'_>) -> rusqlite::Result<()> {
    let json = |value: &Option<Value>| value.as_ref().map(Value::to_string);
    let (newest, prev) = newest(transaction)?;
    let mut row = Stored {
        seq: newest + 1,
        at: stamp(entry.at),
        actor: entry.actor.to_owned(),
        action: entry.action.to_owned(),
        target: entry.target.to_owned(),
        node: entry.node.map(str::to_owned),
        before: json(&entry.before),
        after: json(&entry.after),
        result: entry.result.to_owned(),
        prev,
        hash: String::new(),
    };
    row.hash = row.computed_hash();
    let values = params![
        row.seq, row.at, row.actor, row.action, row.target, row.node, row.before, row.after, row.result,
        row.prev, row.hash
    ];
    let insert =
        format!("INSERT INTO audit ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)");
    transaction.prepare_cached(&insert)?.execute(values)?;
    Ok(())
}

/// Chains the rows that were written before rows were chained, and finds the node each is about.
pub(super) fn chain_old_rows(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut select = transaction.prepare(&format!("SELECT {COLUMNS} FROM audit ORDER BY seq"))?;
    let rows: Vec<Stored> = select.query_map([], Stored::read)?.collect::<rusqlite::Result<_>>()?;
    let mut prev = GENESIS.to_owned();
    let mut update =
        transaction.prepare("UPDATE audit SET node = ?2, prev = ?3, hash = ?4 WHERE seq = ?1")?;
    for mut row in rows {
        row.node = [&row.after, &row.before].into_iter().flatten().find_map(|text| {
            let value: Value = serde_json::from_str(text).ok()?;
            Some(value.get("owner")?.as_str()?.to_owned())
        });
        row.prev = prev;
        row.hash = row.computed_hash();
        update.execute(params![row.seq, row.node, row.prev, row.hash])?;
        prev = row.hash;
    }
    transaction.execute_batch(GUARD)
}

impl Store {
    /// Adds a row for a write that was refused, so that nothing else changed.
    pub fn audit(&mut self, entry: &AuditEntry<'_>) -> Result<(), StoreError> {
        self.transaction("write the audit trail", true, |transaction| add(transaction, entry))
    }

    /// The number of the newest row, 0 without one. It grows with every write of the runtime plane.
    pub fn last_audit_row(&self) -> Result<i64, StoreError> {
        self.doing("read the audit trail", |connection| {
            connection.query_row("SELECT coalesce(max(seq), 0) FROM audit", [], |row| row.get(0))
        })
    }

    /// The keys that rows after this one tell of, and the number of the newest row.
    pub fn keys_changed_since(&self, seq: i64) -> Result<(Vec<String>, i64), StoreError> {
        let newest = self.last_audit_row()?;
        let kids = self.doing("read the audit trail", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT DISTINCT target FROM audit WHERE seq > ?1 AND seq <= ?2 AND action GLOB 'key.*'",
            )?;
            statement.query_map([seq, newest], |row| row.get(0))?.collect()
        })?;
        Ok((kids, newest))
    }

    /// The trail, oldest first.
    pub fn audit_rows(&self) -> Result<Vec<AuditRow>, StoreError> {
        self.doing("read the audit trail", |connection| {
            let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM audit ORDER BY seq"))?;
            statement.query_map([], |row| Ok(Stored::read(row)?.shown()))?.collect()
        })
    }

    /// At most `count` rows of the trail, newest first.
    pub fn audit_page(&self, filter: &AuditFilter, count: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.doing("read the audit trail", |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM audit
                 WHERE (?1 IS NULL OR seq < ?1) AND (?2 IS NULL OR actor = ?2) AND (?3 IS NULL OR action = ?3)
                   AND (?4 IS NULL OR target = ?4) AND {}
                 ORDER BY seq DESC LIMIT ?7",
                super::under("node", 5, 6)
            ))?;
            let AuditFilter { under, actor, action, target, before_seq } = filter;
            let values = params![before_seq, actor, action, target, under.node, under.strict, count as i64];
            statement.query_map(values, |row| Ok(Stored::read(row)?.shown()))?.collect()
        })
    }

    /// Goes through the whole chain. One of the rows must have the hash `noted`, if one is given.
    pub fn verify_audit(&self, noted: Option<&str>) -> Result<Verified, StoreError> {
        self.doing("read the audit trail", |connection| {
            // One moment for all that is read: a running server goes on writing.
            let moment = connection.unchecked_transaction()?;
            let mut statement = moment.prepare(&format!("SELECT {COLUMNS} FROM audit ORDER BY seq"))?;
            let mut rows = statement.query([])?;
            let (mut last, mut head) = (0, GENESIS.to_owned());
            let mut met = noted.is_none_or(|noted| noted == GENESIS);
            while let Some(row) = rows.next()? {
                let row = Stored::read(row)?;
                if let Some(reason) = fault(&row, last, &head) {
                    return Ok(Verified::Broken { seq: row.seq, reason });
                }
                met |= noted.is_some_and(|noted| noted.eq_ignore_ascii_case(&row.hash));
                (last, head) = (row.seq, row.hash);
            }
            // SQLite remembers the largest number ever given, so rows cut off at the end are missed too.
            let given: Option<i64> = moment
                .query_row("SELECT seq FROM sqlite_sequence WHERE name = 'audit'", [], |row| row.get(0))
                .optional()?;
            if given.unwrap_or(0) != last {
                let reason =
                    format!("rows up to {} were written, the last one is {last}", given.unwrap_or(0));
                return Ok(Verified::Broken { seq: last, reason });
            }
            if !met {
                let reason = "no row has the hash that was noted".to_owned();
                return Ok(Verified::Broken { seq: last, reason });
            }
            Ok(Verified::Whole { rows: last, head })
        })
    }
}

/// Why a row does not follow the one before it.
fn fault(row: &Stored, last: i64, head: &str) -> Option<String> {
    if row.seq != last + 1 {
        Some(format!("row {} is missing", last + 1))
    } else if row.prev != head {
        Some("it states another hash of the row before it than that row has".to_owned())
    } else if row.hash != row.computed_hash() {
        Some("its hash is not that of what it says".to_owned())
    } else {
        None
    }
}
