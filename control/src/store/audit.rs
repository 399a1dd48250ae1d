//! The audit trail: rows are added, never changed.

use jiff::Timestamp;
use rusqlite::{Transaction, params};
use serde_json::Value;

use super::{Store, StoreError, stamp};

/// What one write did, or tried.
#[derive(Clone, Debug)]
pub struct AuditEntry<'a> {
    /// When.
    pub at: Timestamp,
    /// Who: `cli:<user>`, `root`, or a kid.
    pub actor: &'a str,
    /// What, such as `key.mint`.
    pub action: &'a str,
    /// On what: a kid, a node, a limit id.
    pub target: &'a str,
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
    /// How it was before.
    pub before: Option<Value>,
    /// How it is after.
    pub after: Option<Value>,
    /// The outcome.
    pub result: String,
}

/// Adds a row in the transaction of the write that it tells of.
pub(super) fn add(transaction: &Transaction<'_>, entry: &AuditEntry<'_>) -> rusqlite::Result<()> {
    let json = |value: &Option<Value>| value.as_ref().map(Value::to_string);
    transaction.execute(
        "INSERT INTO audit (at, actor, action, target, before, after, result) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            stamp(entry.at),
            entry.actor,
            entry.action,
            entry.target,
            json(&entry.before),
            json(&entry.after),
            entry.result
        ],
    )?;
    Ok(())
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

    /// The trail, oldest first.
    pub fn audit_rows(&self) -> Result<Vec<AuditRow>, StoreError> {
        self.doing("read the audit trail", |connection| {
            let mut statement = connection.prepare(
                "SELECT seq, at, actor, action, target, before, after, result FROM audit ORDER BY seq",
            )?;
            let rows = statement.query_map([], |row| {
                let json = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
                Ok(AuditRow {
                    seq: row.get(0)?,
                    at: row.get(1)?,
                    actor: row.get(2)?,
                    action: row.get(3)?,
                    target: row.get(4)?,
                    before: json(row.get(5)?),
                    after: json(row.get(6)?),
                    result: row.get(7)?,
                })
            })?;
            rows.collect()
        })
    }
}
