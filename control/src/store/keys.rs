//! The rows of `keys`.

use engine::Kid;
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
    /// When the last request came with it, whether it was admitted or not; a second or so late.
    pub last_used_at: Option<Timestamp>,
}

const COLUMNS: &str = "kid, owner, name, models, providers, endpoints, allow_passthrough, admin, secret_hash, \
                       created_at, expires_at, revoked_at, last_used_at";

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
        last_used_at: time(12)?,
    })
}

fn list(patterns: &Option<Vec<String>>) -> Option<String> {
    patterns.as_ref().map(|patterns| serde_json::Value::from(patterns.clone()).to_string())
}

fn insert(transaction: &Transaction<'_>, key: &KeyRow) -> rusqlite::Result<()> {
    let statement = format!(
        "INSERT INTO keys ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
    );
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
        key.last_used_at.map(stamp),
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

    /// Notes when keys were used last. A time before the one that is stored changes nothing; a key that is gone is passed over.
    pub fn note_key_uses<'u>(
        &mut self,
        uses: impl IntoIterator<Item = (&'u Kid, &'u Timestamp)>,
    ) -> Result<(), StoreError> {
        self.transaction("note the use of keys", false, |transaction| {
            let mut statement = transaction.prepare_cached(
                "UPDATE keys SET last_used_at = ?2 WHERE kid = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)",
            )?;
            for (kid, at) in uses {
                statement.execute(params![kid.as_str(), stamp(*at)])?;
            }
            Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    const KIDS: [&str; 2] = ["vk_AAAAAAAAAAAA", "vk_BBBBBBBBBBBB"];

    /// A database of the third schema with two keys.
    fn old_database(folder: &std::path::Path) {
        let old = super::super::schema::made_by(folder, 3);
        for kid in KIDS {
            old.execute(
                "INSERT INTO keys (kid, owner, allow_passthrough, admin, secret_hash, created_at)
                 VALUES (?1, 'org:acme', 0, 0, ?2, '2026-08-01T10:00:00.000Z')",
                params![kid, [7u8; 32]],
            )
            .expect("filled");
        }
    }

    #[test]
    fn the_last_use_only_goes_forward_and_changes_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        old_database(folder.path());
        let mut store = Store::open(folder.path()).expect("brought up");
        let [used, unused, gone] =
            [KIDS[0], KIDS[1], "vk_CCCCCCCCCCCC"].map(|kid| Kid::parse(kid).expect("a kid"));
        let before = store.key(used.as_str()).expect("read").expect("there");
        assert_eq!(before.last_used_at, None);
        for (at, wanted) in [
            ("2026-08-01T10:00:05.1239Z", "2026-08-01T10:00:05.123Z"),
            ("2026-08-01T10:00:04.999Z", "2026-08-01T10:00:05.123Z"),
            ("2026-08-01T10:00:06Z", "2026-08-01T10:00:06Z"),
        ] {
            let at: Timestamp = at.parse().expect("a time");
            store.note_key_uses([(&used, &at), (&gone, &at)]).expect("noted");
            let row = store.key(used.as_str()).expect("read").expect("there");
            let wanted = KeyRow { last_used_at: Some(wanted.parse().expect("a time")), ..before.clone() };
            assert_eq!(row, wanted, "{at}");
        }
        assert_eq!(store.key(unused.as_str()).expect("read").expect("there").last_used_at, None);
        assert_eq!(store.key(gone.as_str()).expect("read"), None);
        assert!(store.audit_rows().expect("read").is_empty());
    }
}
