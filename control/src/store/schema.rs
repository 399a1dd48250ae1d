//! The tables, as numbered migrations.

use super::{Store, StoreError};

/// Each entry takes the schema from the version that is its index to the next one. Entries are never edited once
/// released, only added.
const MIGRATIONS: [&str; 1] = ["
CREATE TABLE nodes (
    node       TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE overrides (
    limit_id   TEXT NOT NULL,
    node       TEXT NOT NULL,
    amount     TEXT NOT NULL,              -- a count, or pico-USD, in decimal digits
    updated_at TEXT NOT NULL,
    PRIMARY KEY (limit_id, node)
) STRICT;

CREATE TABLE keys (
    kid               TEXT PRIMARY KEY NOT NULL,
    owner             TEXT NOT NULL,
    name              TEXT,
    models            TEXT,                -- a JSON list of patterns; NULL: any
    providers         TEXT,
    endpoints         TEXT,
    allow_passthrough INTEGER NOT NULL,
    admin             INTEGER NOT NULL,
    secret_hash       BLOB NOT NULL,       -- SHA-256 of the whole credential
    created_at        TEXT NOT NULL,
    expires_at        TEXT,
    revoked_at        TEXT
) STRICT;

CREATE TABLE audit (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    at     TEXT NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    before TEXT,                           -- JSON, never a secret
    after  TEXT,
    result TEXT NOT NULL                   -- 'done', or 'refused: ' and why
) STRICT;
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit rows are never changed'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit rows are never removed'); END;

-- Calendar counters. The identity is all but the last four columns; dims is a JSON list of three, null where the
-- limit does not ask.
CREATE TABLE counters (
    limit_id     TEXT NOT NULL,
    node         TEXT NOT NULL,
    dims         TEXT NOT NULL,
    period       TEXT NOT NULL,
    algorithm    TEXT NOT NULL,
    window_index INTEGER NOT NULL,
    observed     TEXT NOT NULL,            -- a count, or pico-USD, in decimal digits
    estimated    INTEGER NOT NULL,
    unpriced     INTEGER NOT NULL,
    PRIMARY KEY (limit_id, node, dims, period, algorithm)
) STRICT, WITHOUT ROWID;

-- What exchanges used, rolled up by the hour of their admission. Money is whole dollars and the pico-dollars beyond
-- them, so that sums stay exact in 64 bits.
CREATE TABLE usage (
    hour          INTEGER NOT NULL,        -- its first second, since 1970, UTC
    node          TEXT NOT NULL,           -- the key's owner; __global for keyless traffic
    kid           TEXT NOT NULL,           -- empty for keyless traffic
    model         TEXT NOT NULL,           -- as asked for
    served        TEXT NOT NULL,
    provider      TEXT NOT NULL,
    endpoint      TEXT NOT NULL,
    requests      INTEGER NOT NULL,
    estimated     INTEGER NOT NULL,        -- of the requests: with estimated usage
    unpriced      INTEGER NOT NULL,        -- of the requests: of a model without a price
    input_tokens  INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,        -- of the input tokens
    output_tokens INTEGER NOT NULL,
    usd           INTEGER NOT NULL,
    pico_usd      INTEGER NOT NULL,        -- below 10^12
    PRIMARY KEY (hour, node, kid, model, served, provider, endpoint)
) STRICT, WITHOUT ROWID;
"];

/// The schema's version after all migrations.
const NEWEST: u32 = MIGRATIONS.len() as u32;

/// Brings the database to this version's schema. Two processes may try at once: the version is read again under the
/// write lock.
pub fn migrate(store: &mut Store) -> Result<(), StoreError> {
    if check_version(store)? == NEWEST {
        return Ok(());
    }
    store.transaction("migrate", true, |transaction| {
        let version: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        for step in MIGRATIONS.iter().skip(version as usize) {
            transaction.execute_batch(step)?;
        }
        transaction.pragma_update(None, "user_version", NEWEST)
    })
}

/// The database's version; an error when it is newer than this program.
pub fn check_version(store: &Store) -> Result<u32, StoreError> {
    let version: u32 = store.doing("read the version", |connection| {
        connection.pragma_query_value(None, "user_version", |row| row.get(0))
    })?;
    if version > NEWEST {
        let reason = format!(
            "its schema has version {version}, this program knows {NEWEST} at most; use the newer program"
        );
        return Err(store.wrong("use it", reason));
    }
    Ok(version)
}
