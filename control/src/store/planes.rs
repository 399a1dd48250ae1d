//! The runtime plane: nodes and overrides created while the gateway runs, read at each arm and folded into the tree,
//! and which limits are suspended.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::audit::{self, AuditEntry};
use super::{Store, StoreError, stamp};

/// What the runtime plane holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RuntimePlane {
    /// Node ids, as given, in lexical order.
    pub nodes: Vec<String>,
    /// Overrides, by limit id, then node.
    pub overrides: Vec<OverrideRow>,
    /// The limits that are suspended; the only part that is in force before the next arm.
    pub suspended: BTreeSet<String>,
    /// The number of the last audit row when this was read: whoever reads on from here misses no write.
    pub as_of: i64,
}

impl RuntimePlane {
    /// Whether a node is part of it.
    pub fn has_node(&self, node: &str) -> bool {
        self.nodes.binary_search_by(|known| known.as_str().cmp(node)).is_ok()
    }

    /// The amount for one limit and node, if there is one.
    pub fn amount(&self, limit_id: &str, node: &str) -> Option<u128> {
        let wanted = (limit_id, node);
        let place = self
            .overrides
            .binary_search_by(|row| (row.limit_id.as_str(), row.node.as_str()).cmp(&wanted))
            .ok()?;
        Some(self.overrides[place].amount)
    }
}

/// One override as it is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OverrideRow {
    /// The limit.
    pub limit_id: String,
    /// The node.
    pub node: String,
    /// A count, or pico-USD.
    pub amount: u128,
}

fn read_override(row: &Row<'_>) -> rusqlite::Result<OverrideRow> {
    let amount: String = row.get(2)?;
    let unreadable = |error| rusqlite::Error::FromSqlConversionFailure(2, Type::Text, Box::new(error));
    Ok(OverrideRow {
        limit_id: row.get(0)?,
        node: row.get(1)?,
        amount: amount.parse::<u128>().map_err(unreadable)?,
    })
}

fn nodes(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached("SELECT node FROM nodes ORDER BY node")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

fn overrides(connection: &Connection) -> rusqlite::Result<Vec<OverrideRow>> {
    let statement = "SELECT limit_id, node, amount FROM overrides ORDER BY limit_id, node";
    connection.prepare_cached(statement)?.query_map([], read_override)?.collect()
}

impl Store {
    /// The nodes as they are stored now, in lexical order.
    pub fn nodes(&self) -> Result<Vec<String>, StoreError> {
        self.doing("read the nodes", nodes)
    }

    /// The overrides as they are stored now, by limit id, then node.
    pub fn overrides(&self) -> Result<Vec<OverrideRow>, StoreError> {
        self.doing("read the overrides", overrides)
    }

    /// The whole runtime plane.
    pub fn runtime_plane(&self) -> Result<RuntimePlane, StoreError> {
        let as_of = self.last_audit_row()?;
        self.doing("read the runtime plane", |connection| {
            let (nodes, overrides) = (nodes(connection)?, overrides(connection)?);
            let mut statement = connection.prepare("SELECT limit_id FROM suspended")?;
            let suspended = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            Ok(RuntimePlane { nodes, overrides, suspended, as_of })
        })
    }

    /// Adds a node and its audit row; `false`, with nothing written, when it was there.
    pub fn insert_node(
        &mut self,
        node: &str,
        at: Timestamp,
        entry: &AuditEntry<'_>,
    ) -> Result<bool, StoreError> {
        self.transaction("store the node", true, |transaction| {
            let added = transaction.execute(
                "INSERT INTO nodes (node, created_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                params![node, stamp(at)],
            )?;
            if added == 0 {
                return Ok(false);
            }
            audit::add(transaction, entry).map(|()| true)
        })
    }

    /// Removes a node, audited; `false`, with nothing written, when there was none.
    pub fn delete_node(&mut self, node: &str, entry: &AuditEntry<'_>) -> Result<bool, StoreError> {
        self.transaction("remove the node", true, |transaction| {
            match transaction.execute("DELETE FROM nodes WHERE node = ?1", [node])? {
                0 => Ok(false),
                _ => audit::add(transaction, entry).map(|()| true),
            }
        })
    }

    /// Whether a node was created at run time and is not removed.
    pub fn has_node(&self, node: &str) -> Result<bool, StoreError> {
        self.doing("read the nodes", |connection| {
            connection
                .query_row("SELECT EXISTS (SELECT 1 FROM nodes WHERE node = ?1)", [node], |row| row.get(0))
        })
    }

    /// The stored amount for one limit and node.
    pub fn override_amount(&self, limit_id: &str, node: &str) -> Result<Option<u128>, StoreError> {
        self.doing("read the override", |connection| {
            let found = connection.query_row(
                "SELECT limit_id, node, amount FROM overrides WHERE limit_id = ?1 AND node = ?2",
                [limit_id, node],
                read_override,
            );
            Ok(found.optional()?.map(|row| row.amount))
        })
    }

    /// Stores an override in place of the one for the same limit and node, audited.
    pub fn put_override(
        &mut self,
        row: &OverrideRow,
        at: Timestamp,
        entry: &AuditEntry<'_>,
    ) -> Result<(), StoreError> {
        self.transaction("store the override", true, |transaction| {
            transaction.execute(
                "INSERT INTO overrides (limit_id, node, amount, updated_at) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET amount = excluded.amount, updated_at = excluded.updated_at",
                params![row.limit_id, row.node, row.amount.to_string(), stamp(at)],
            )?;
            audit::add(transaction, entry)
        })
    }

    /// Removes an override, audited; `false`, with nothing written, when there was none.
    pub fn delete_override(
        &mut self,
        limit_id: &str,
        node: &str,
        entry: &AuditEntry<'_>,
    ) -> Result<bool, StoreError> {
        self.transaction("remove the override", true, |transaction| {
            let statement = "DELETE FROM overrides WHERE limit_id = ?1 AND node = ?2";
            match transaction.execute(statement, [limit_id, node])? {
                0 => Ok(false),
                _ => audit::add(transaction, entry).map(|()| true),
            }
        })
    }

    /// Marks a limit as suspended, or no longer, audited.
    pub fn set_suspended(
        &mut self,
        limit_id: &str,
        suspended: bool,
        at: Timestamp,
        entry: &AuditEntry<'_>,
    ) -> Result<(), StoreError> {
        self.transaction("suspend the limit", true, |transaction| {
            if suspended {
                transaction.execute(
                    "INSERT INTO suspended (limit_id, suspended_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                    params![limit_id, stamp(at)],
                )?;
            } else {
                transaction.execute("DELETE FROM suspended WHERE limit_id = ?1", [limit_id])?;
            }
            audit::add(transaction, entry)
        })
    }
}
