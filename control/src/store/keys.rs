//! The rows of `keys`.

use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row, params};

use super::audit::{self, AuditEntry};
use super::{Store, StoreError, stamp};

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

impl Store {
    /// Adds a key and its audit row, synced to the disk.
    pub fn insert_key(&mut self, key: &KeyRow, entry: &AuditEntry<'_>) -> Result<(), StoreError> {
        let list = |patterns: &Option<Vec<String>>| {
            patterns.as_ref().map(|patterns| serde_json::Value::from(patterns.clone()).to_string())
        };
        self.transaction("store the key", true, |transaction| {
            transaction.execute(
                &format!(
                    "INSERT INTO keys ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
                ),
                params![
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
                ],
            )?;
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
