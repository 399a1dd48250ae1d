//! The rows of `keys`.

use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::audit::{self, AuditEntry};
use super::{Store, StoreError, Under, stamp, under};

/// A key as it is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyRow {
    /// Its public id.
    pub kid: String,
    /// The node it belongs to, as given at the mint.
    pub owner: String,
    /// A name for people.
    pub name: Option<String>,
    /// Patterns of the models it may ask for; `None`: any.
    pub models: Option<Vec<String>>,
    /// Patterns of the providers.
    pub providers: Option<Vec<String>>,
    /// Patterns of the endpoints.
    pub endpoints: Option<Vec<String>>,
    /// Whether endpoints that the gateway does not understand may be passed through.
    pub allow_passthrough: bool,
    /// Whether it is a delegated admin of its owner node, and no data key.
    pub admin: bool,
    /// SHA-256 of the whole credential.
    pub secret_hash: [u8; 32],
    /// When it was minted.
    pub created_at: Timestamp,
    /// From when on it is refused.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

const COLUMNS: &str = "kid, owner, name, models, providers, endpoints, allow_passthrough, admin, secret_hash, \
                       created_at, expires_at, revoked_at";

fn unreadable(column: usize, what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, what.into())
}

fn read(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
    let list = |column: usize| -> rusqlite::Result<Option<Vec<String>>> {
        let text: Option<String> = row.get(column)?;
        text.map(|text| serde_json::from_str(&text).map_err(|error| unreadable(column, error))).transpose()
    };
    let time = |column: usize| -> rusqlite::Result<Option<Timestamp>> {
        let text: Option<String> = row.get(column)?;
        text.map(|text| text.parse().map_err(|error: jiff::Error| unreadable(column, error))).transpose()
    };
    Ok(KeyRow {
        kid: row.get(0)?,
        owner: row.get(1)?,
        name: row.get(2)?,
        models: list(3)?,
        providers: list(4)?,
        endpoints: list(5)?,
        allow_passthrough: row.get(6)?,
        admin: row.get(7)?,
        secret_hash: row.get(8)?,
        created_at: time(9)?.ok_or_else(|| unreadable(9, "no time of creation"))?,
        expires_at: time(10)?,
        revoked_at: time(11)?,
    })
}

fn list(patterns: &Option<Vec<String>>) -> Option<String> {
    patterns.as_ref().map(|patterns| serde_json::Value::from(patterns.clone()).to_string())
}

fn insert(transaction: &Transaction<'_>, key: &KeyRow) -> rusqlite::Result<()> {
    let statement =
        format!("INSERT INTO keys ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)");
    let values = params![
        key.kid,
        key.owner,
        key.name,
        list(&key.models),
        list(&key.providers),
        list(&key.endpoints),
        key.allow_passthrough,
        key.admin,
        key.secret_hash,
        stamp(key.created_at),
        key.expires_at.map(stamp),
        key.revoked_at.map(stamp),
    ];
    transaction.prepare_cached(&statement)?.execute(values)?;
    Ok(())
}

fn update(transaction: &Transaction<'_>, key: &KeyRow) -> rusqlite::Result<()> {
    transaction.execute(
        "UPDATE keys SET name = ?2, models = ?3, providers = ?4, endpoints = ?5, allow_passthrough = ?6,
                         expires_at = ?7, revoked_at = ?8
         WHERE kid = ?1",
        params![
            key.kid,
            key.name,
            list(&key.models),
            list(&key.providers),
            list(&key.endpoints),
            key.allow_passthrough,
            key.expires_at.map(stamp),
            key.revoked_at.map(stamp),
        ],
    )?;
    Ok(())
}

impl Store {
    /// Adds a key and its audit row, synced to the disk.
    pub fn insert_key(&mut self, key: &KeyRow, entry: &AuditEntry<'_>) -> Result<(), StoreError> {
        self.transaction("store the key", true, |transaction| {
            insert(transaction, key)?;
            audit::add(transaction, entry)
        })
    }

    /// Marks a key as revoked and adds the audit row, synced to the disk. A key revoked before keeps its time.
    pub fn revoke_key(&mut self, kid: &str, at: Timestamp, entry: &AuditEntry<'_>) -> Result<(), StoreError> {
        self.transaction("revoke the key", true, |transaction| {
            transaction.execute(
                "UPDATE keys SET revoked_at = ?2 WHERE kid = ?1 AND revoked_at IS NULL",
                params![kid, stamp(at)],
            )?;
            audit::add(transaction, entry)
        })
    }

    /// Stores a key that has changed and adds the audit row. Owner, secret and kind of a key never change.
    pub fn update_key(&mut self, key: &KeyRow, entry: &AuditEntry<'_>) -> Result<(), StoreError> {
        self.transaction("change the key", true, |transaction| {
            update(transaction, key)?;
            audit::add(transaction, entry)
        })
    }

    /// Stores a key that has changed and the new one in its place, with an audit row each, or neither.
    pub fn replace_key(
        &mut self,
        old: &KeyRow,
        old_entry: &AuditEntry<'_>,
        new: &KeyRow,
        new_entry: &AuditEntry<'_>,
    ) -> Result<(), StoreError> {
        self.transaction("rotate the key", true, |transaction| {
            update(transaction, old)?;
            audit::add(transaction, old_entry)?;
            insert(transaction, new)?;
            audit::add(transaction, new_entry)
        })
    }

    /// At most `count` keys of a part of the tree, by kid.
    pub fn keys_page(
        &self,
        part: &Under,
        after: Option<&str>,
        count: usize,
    ) -> Result<Vec<KeyRow>, StoreError> {
        self.doing("read the keys", |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM keys WHERE (?1 IS NULL OR kid > ?1) AND {} ORDER BY kid LIMIT ?4",
                under("owner", 2, 3)
            ))?;
            statement.query_map(params![after, part.node, part.strict, count as i64], read)?.collect()
        })
    }

    /// One key.
    pub fn key(&self, kid: &str) -> Result<Option<KeyRow>, StoreError> {
        self.doing("read the key", |connection| {
            connection
                .query_row(&format!("SELECT {COLUMNS} FROM keys WHERE kid = ?1"), [kid], read)
                .optional()
        })
    }

    /// All keys, oldest first.
    pub fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.doing("read the keys", |connection| {
            let mut statement =
                connection.prepare(&format!("SELECT {COLUMNS} FROM keys ORDER BY created_at, kid"))?;
            statement.query_map([], read)?.collect()
        })
    }
}
