//! The tables, as numbered migrations.

use rusqlite::Transaction;

use super::{Store, StoreError, audit};

/// What takes the schema one version further: statements, then what statements cannot do.
struct Migration {
    statements: &'static str,
    then: fn(&Transaction<'_>) -> rusqlite::Result<()>,
}

/// Each entry takes the schema from the version that is its index to the next one. Entries are never edited once
/// released, only added.
const MIGRATIONS: [Migration; 5] = [
    Migration { statements: FIRST, then: |_| Ok(()) },
    Migration { statements: AUDIT_CHAIN_AND_SUSPENSION, then: audit::chain_old_rows },
    Migration { statements: HIGH_WATER, then: |_| Ok(()) },
    Migration { statements: LAST_USE, then: |_| Ok(()) },
    Migration { statements: KINDS_OF_TOKENS, then: |_| Ok(()) },
];

/// Parts of the tokens that have prices of their own, as far as backends tell them apart.
const KINDS_OF_TOKENS: &str = "
ALTER TABLE usage ADD COLUMN cache_write_tokens  INTEGER NOT NULL DEFAULT 0;  -- of the input tokens, as the next two
ALTER TABLE usage ADD COLUMN audio_input_tokens  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN image_input_tokens  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN reasoning_tokens    INTEGER NOT NULL DEFAULT 0;  -- of the output tokens, as the next two
ALTER TABLE usage ADD COLUMN audio_output_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN image_output_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN images              INTEGER NOT NULL DEFAULT 0;
";

/// What the trail says of a key does not change with each use of it, so this is in no audit row.
const LAST_USE: &str = "
ALTER TABLE keys ADD COLUMN last_used_at TEXT;               -- the newest request with it, refused ones too
";

/// What a counter may come to before it is written again, and what earlier crashes left open of it.
const HIGH_WATER: &str = "
ALTER TABLE counters ADD COLUMN high_water TEXT NOT NULL DEFAULT '0';  -- in the units of observed
ALTER TABLE counters ADD COLUMN uncertain  TEXT NOT NULL DEFAULT '0';
UPDATE counters SET high_water = observed;
";

/// Who adds to the audit trail states the row before; `audit::chain_old_rows` puts the guard against updates back.
const AUDIT_CHAIN_AND_SUSPENSION: &str = "
DROP TRIGGER audit_no_update;
ALTER TABLE audit ADD COLUMN node TEXT;                      -- the node that it is about, if it is about one
ALTER TABLE audit ADD COLUMN prev TEXT NOT NULL DEFAULT '';  -- the hash of the row before
ALTER TABLE audit ADD COLUMN hash TEXT NOT NULL DEFAULT '';  -- SHA-256 of prev and of all that the row says
CREATE INDEX audit_by_node ON audit (node, seq);
CREATE INDEX keys_by_owner ON keys (owner, kid);

CREATE TABLE suspended (
    limit_id     TEXT PRIMARY KEY NOT NULL,
    suspended_at TEXT NOT NULL
) STRICT;
";

/// The schema of the first version.
pub const FIRST: &str = "
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
";

/// The schema's version after all migrations.
pub const NEWEST: u32 = MIGRATIONS.len() as u32;

/// Brings the database to this version's schema. Two processes may try at once: the version is read again under the
/// write lock.
pub fn migrate(store: &mut Store) -> Result<(), StoreError> {
    if check_version(store)? == NEWEST {
        return Ok(());
    }
    store.transaction("migrate", true, |transaction| {
        let version: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        for step in MIGRATIONS.iter().skip(version as usize) {
            transaction.execute_batch(step.statements)?;
            (step.then)(transaction)?;
        }
        transaction.pragma_update(None, "user_version", NEWEST)
    })
}

/// A database as a program of that version left it.
#[cfg(test)]
pub fn made_by(folder: &std::path::Path, version: usize) -> rusqlite::Connection {
    let mut connection = rusqlite::Connection::open(folder.join(super::FILE)).expect("opened");
    let transaction = connection.transaction().expect("begun");
    for step in &MIGRATIONS[..version] {
        transaction.execute_batch(step.statements).expect("made");
        (step.then)(&transaction).expect("made");
    }
    transaction.pragma_update(None, "user_version", version as u32).expect("marked");
    transaction.commit().expect("kept");
    connection
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
