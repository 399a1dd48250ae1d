//! Virtual keys: minting, listing, revoking, and the ring that the data plane looks them up in.
//!
//! A credential is `tt_<kid>_<secret>`: the kid is public and names the key everywhere, the secret is 43 random letters
//! and digits (256 bits), shown once and stored only as the SHA-256 of the whole credential. A slow password hash
//! was rejected: it protects guessable secrets, and these are not; on the request path it would cost a core.
//!
//! The database is written first, then the running server is told ([`crate::socket`]): a key that is shown works,
//! and one that is revoked is gone even if the telling fails and the server is restarted.

use engine::{Chain, Glob, Key, KeyRing, Kid, NodeId, Scopes};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::bounds;
use crate::secret::Secret;
use crate::start::StartError;
use crate::store::{AuditEntry, KeyRow, Store, StoreError};

const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const KID_LETTERS: usize = 12;
const SECRET_LETTERS: usize = 43;

/// What a key is minted for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MintRequest {
    /// The node it belongs to, taken as given.
    pub owner: String,
    /// A name for people.
    pub name: Option<String>,
    /// Patterns of models; `None`: any.
    pub models: Option<Vec<String>>,
    /// Patterns of providers.
    pub providers: Option<Vec<String>>,
    /// Patterns of endpoints.
    pub endpoints: Option<Vec<String>>,
    /// Whether endpoints that the gateway does not understand may be passed through.
    pub allow_passthrough: bool,
    /// From when on it is refused.
    pub expires: Option<Expiry>,
    /// Whether it is a delegated admin of its owner node, valid on the management listener alone.
    pub admin: bool,
}

/// When a key stops working.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Expiry {
    /// So long after it is minted.
    After(SignedDuration),
    /// At that time.
    At(Timestamp),
}

impl Expiry {
    /// Reads `90s`, `24h`, `30d`, or a time such as `2026-12-31T00:00:00Z`.
    pub fn parse(text: &str) -> Result<Expiry, String> {
        match text.parse::<Timestamp>() {
            Ok(at) => Ok(Expiry::At(at)),
            Err(_) => parse_expiry(text).map(Expiry::After),
        }
    }

    /// The moment, for a key of now.
    pub fn from(self, now: Timestamp) -> Result<Timestamp, StartError> {
        match self {
            Expiry::At(at) => Ok(to_milliseconds(at)),
            Expiry::After(span) => now
                .checked_add(span)
                .map(to_milliseconds)
                .map_err(|error| StartError::new(format!("the expiry is beyond the calendar: {error}"))),
        }
    }
}

/// A minted key, and the one time that its credential is seen.
#[derive(Debug)]
pub struct Minted {
    /// The stored row.
    pub row: KeyRow,
    /// The whole credential.
    pub credential: Secret,
}

/// Text of random letters and digits, each equally likely: a byte beyond the last full alphabet is thrown again.
fn random_text(length: usize) -> Result<String, StartError> {
    let mut text = String::with_capacity(length);
    let mut bytes = [0u8; 64];
    while text.len() < length {
        getrandom::fill(&mut bytes)
            .map_err(|error| StartError::new(format!("the system gives no random bytes: {error}")))?;
        let fair = bytes.iter().filter(|byte| usize::from(**byte) < LETTERS.len() * 4);
        let letters = fair.map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
        text.extend(letters.take(length - text.len()));
    }
    Ok(text)
}

/// The hash that is stored of a credential: SHA-256 of the whole text.
pub fn hash_credential(credential: &str) -> [u8; 32] {
    Sha256::digest(credential.as_bytes()).into()
}

/// A new kid and the credential that goes with it.
fn fresh_credential() -> Result<(String, String), StartError> {
    let kid = format!("vk_{}", random_text(KID_LETTERS)?);
    let credential = format!("tt_{kid}_{}", random_text(SECRET_LETTERS)?);
    Ok((kid, credential))
}

/// Mints a key: random, stored hashed, audited.
pub fn mint(
    store: &mut Store,
    request: MintRequest,
    actor: &str,
    now: Timestamp,
) -> Result<Minted, StartError> {
    let (kid, credential) = fresh_credential()?;
    let expires_at = request.expires.map(|expiry| expiry.from(now)).transpose()?;
    let row = KeyRow {
        kid,
        owner: request.owner,
        name: request.name,
        models: request.models,
        providers: request.providers,
        endpoints: request.endpoints,
        allow_passthrough: request.allow_passthrough,
        admin: request.admin,
        secret_hash: hash_credential(&credential),
        created_at: to_milliseconds(now),
        expires_at,
        revoked_at: None,
        last_used_at: None,
    };
    store.insert_key(&row, &entry("key.mint", actor, now, None, Some(&row)))?;
    Ok(Minted { row, credential: Secret::new(credential) })
}

/// The audit row of a change of a key.
fn entry<'a>(
    action: &'a str,
    actor: &'a str,
    at: Timestamp,
    before: Option<&'a KeyRow>,
    after: Option<&'a KeyRow>,
) -> AuditEntry<'a> {
    let row = after.or(before);
    AuditEntry {
        at,
        actor,
        action,
        target: row.map_or("", |row| &row.kid),
        node: row.map(|row| row.owner.as_str()),
        before: before.map(describe),
        after: after.map(describe),
        result: "done",
    }
}

/// What to change of a key; `None` leaves it as it is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// The name for people.
    pub name: Option<Option<String>>,
    /// Patterns of models; `Some(None)`: any.
    pub models: Option<Option<Vec<String>>>,
    /// Patterns of providers.
    pub providers: Option<Option<Vec<String>>>,
    /// Patterns of endpoints.
    pub endpoints: Option<Option<Vec<String>>>,
    /// Whether endpoints that the gateway does not understand may be passed through.
    pub allow_passthrough: Option<bool>,
    /// From when on it is refused; `Some(None)`: never.
    pub expires_at: Option<Option<Timestamp>>,
}

/// Changes a key, audited; the row as it is after.
pub fn change(
    store: &mut Store,
    before: KeyRow,
    changes: Changes,
    actor: &str,
    now: Timestamp,
) -> Result<KeyRow, StoreError> {
    let mut after = before.clone();
    let Changes { name, models, providers, endpoints, allow_passthrough, expires_at } = changes;
    after.name = name.unwrap_or(after.name);
    after.models = models.unwrap_or(after.models);
    after.providers = providers.unwrap_or(after.providers);
    after.endpoints = endpoints.unwrap_or(after.endpoints);
    after.allow_passthrough = allow_passthrough.unwrap_or(after.allow_passthrough);
    after.expires_at = expires_at.map_or(after.expires_at, |at| at.map(to_milliseconds));
    store.update_key(&after, &entry("key.change", actor, now, Some(&before), Some(&after)))?;
    Ok(after)
}

/// Mints a key like another one, which expires when `overlap` has passed: the old row as it is after, and the new key.
///
/// A second secret for the same kid was rejected: whoever reads the trail or the usage could not tell which of the two
/// was used, and the old one could not be revoked by itself.
pub fn rotate(
    store: &mut Store,
    before: KeyRow,
    overlap: SignedDuration,
    actor: &str,
    now: Timestamp,
) -> Result<(KeyRow, Minted), StartError> {
    let (kid, credential) = fresh_credential()?;
    let new = KeyRow {
        kid,
        secret_hash: hash_credential(&credential),
        created_at: to_milliseconds(now),
        last_used_at: None,
        ..before.clone()
    };
    let end = Expiry::After(overlap).from(now)?;
    let old = KeyRow {
        expires_at: Some(before.expires_at.map_or(end, |expires_at| expires_at.min(end))),
        ..before.clone()
    };
    let mut rotated = entry("key.rotate", actor, now, Some(&before), Some(&old));
    if let Some(Value::Object(after)) = &mut rotated.after {
        after.insert("replaced_by".to_owned(), new.kid.clone().into());
    }
    store.replace_key(&old, &rotated, &new, &entry("key.mint", actor, now, None, Some(&new)))?;
    Ok((old, Minted { row: new, credential: Secret::new(credential) }))
}

/// The database keeps milliseconds; what is shown at the mint is what is read back later.
fn to_milliseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

/// What came of a revocation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Revoked {
    /// It was in force and is not any more.
    Now,
    /// It was revoked before.
    Before,
    /// There is no such key; the try is audited all the same.
    Unknown,
}

/// Revokes a key, audited.
pub fn revoke(store: &mut Store, kid: &str, actor: &str, now: Timestamp) -> Result<Revoked, StoreError> {
    let before = store.key(kid)?;
    let owner = before.as_ref().map(|row| row.owner.clone());
    let entry = |before: Option<Value>, after: Option<Value>, result| AuditEntry {
        at: now,
        actor,
        action: "key.revoke",
        target: kid,
        node: owner.as_deref(),
        before,
        after,
        result,
    };
    match before {
        None => {
            store.audit(&entry(None, None, "refused: no such key"))?;
            Ok(Revoked::Unknown)
        }
        Some(row) if row.revoked_at.is_some() => {
            store.audit(&entry(Some(describe(&row)), Some(describe(&row)), "done: was revoked before"))?;
            Ok(Revoked::Before)
        }
        Some(row) => {
            let after = KeyRow { revoked_at: Some(now), ..row.clone() };
            store.revoke_key(kid, now, &entry(Some(describe(&row)), Some(describe(&after)), "done"))?;
            Ok(Revoked::Now)
        }
    }
}

/// A key as the audit trail shows it: everything but the hash.
pub fn describe(row: &KeyRow) -> Value {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    json!({
        "kid": row.kid,
        "owner": row.owner,
        "name": row.name,
        "models": row.models,
        "providers": row.providers,
        "endpoints": row.endpoints,
        "allow_passthrough": row.allow_passthrough,
        "admin": row.admin,
        "created_at": row.created_at.to_string(),
        "expires_at": time(row.expires_at),
        "revoked_at": time(row.revoked_at),
    })
}

/// A key as `keys list` shows it: with its state and its last use, which are in no audit row because time changes them.
pub fn listed(row: &KeyRow, now: Timestamp) -> Value {
    let mut shown = describe(row);
    if let Value::Object(members) = &mut shown {
        members.insert("state".to_owned(), state(row, now).into());
        members.insert("last_used_at".to_owned(), row.last_used_at.map(|at| at.to_string()).into());
    }
    shown
}

/// `active`, `expired` or `revoked`.
pub fn state(row: &KeyRow, now: Timestamp) -> &'static str {
    match row {
        KeyRow { revoked_at: Some(_), .. } => "revoked",
        KeyRow { expires_at: Some(expires_at), .. } if *expires_at <= now => "expired",
        _ => "active",
    }
}

/// Whether the data plane knows the key at all: not revoked, and no delegated admin's.
pub fn is_data_key(row: &KeyRow) -> bool {
    row.revoked_at.is_none() && !row.admin
}

/// What a stored key may be used for.
pub fn scopes(row: &KeyRow) -> Result<Scopes, StartError> {
    let globs = |patterns: &Option<Vec<String>>| -> Result<Option<Vec<Glob>>, StartError> {
        let Some(patterns) = patterns else { return Ok(None) };
        let read = patterns.iter().map(|pattern| {
            Glob::new(pattern)
                .map_err(|error| unusable(row, &format!("the pattern {pattern:?} is wrong: {error}")))
        });
        read.collect::<Result<_, _>>().map(Some)
    };
    Ok(Scopes {
        models: globs(&row.models)?,
        providers: globs(&row.providers)?,
        endpoints: globs(&row.endpoints)?,
        allow_passthrough: row.allow_passthrough,
    })
}

fn unusable(row: &KeyRow, what: &str) -> StartError {
    StartError::new(format!("key {:?} in the database: {what}", row.kid))
}

/// A stored key as the data plane has it.
fn engine_key(row: &KeyRow) -> Result<Key, StartError> {
    let kid = Kid::parse(&row.kid).ok_or_else(|| unusable(row, "its kid has the wrong form"))?;
    let owner = NodeId::new(&row.owner);
    Ok(Key {
        chain: Chain::of_key(&owner, &row.kid),
        kid,
        owner,
        scopes: scopes(row)?,
        secret_hash: row.secret_hash,
        expires_at: row.expires_at,
    })
}

/// The ring of all keys in force.
pub fn ring(rows: &[KeyRow]) -> Result<KeyRing, StartError> {
    let keys: Result<Vec<_>, _> = rows.iter().filter(|row| is_data_key(row)).map(engine_key).collect();
    Ok(KeyRing::from_keys(keys?))
}

/// The ring after one key has changed in the database.
pub fn ring_with_change(ring: &KeyRing, kid: &Kid, row: Option<&KeyRow>) -> Result<KeyRing, StartError> {
    match row.filter(|row| is_data_key(row)) {
        Some(row) => Ok(ring.with(engine_key(row)?)),
        None => Ok(ring.without(kid)),
    }
}

/// What to say about an owner at the mint: it is taken as given, but its chain may select less than was meant.
pub fn owner_warning(owner: &NodeId, known: bool) -> Option<String> {
    if !owner.in_charset() {
        return Some(format!(
            "owner {:?} is out of charset (kind: lowercase letters; id: lowercase letters, digits, - and _); no limit of the tree binds it",
            owner.as_str()
        ));
    }
    (!known).then(|| {
        format!(
            "owner {:?} is not in the tenancy tree; only limits at nodes that exist bind its keys",
            owner.as_str()
        )
    })
}

/// Reads `90s`, `15m`, `24h`, `30d`.
pub fn parse_expiry(text: &str) -> Result<SignedDuration, String> {
    let wrong =
        || format!("{text:?} is no expiry; write a number with s, m, h or d, such as 90s, 24h or 30d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let digits = &text[..text.len() - 1];
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let total = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(seconds));
    match total {
        Some(0) => Err("an expiry must be above zero".to_owned()),
        Some(total) if total <= bounds::EXPIRES_MAX_SECS => Ok(SignedDuration::from_secs(total as i64)),
        _ => Err(format!("an expiry is at most {} days", bounds::EXPIRES_MAX_SECS / 86_400)),
    }
}

/// Reads a list of patterns, `a,b`; each must be a `path.Match` pattern.
pub fn parse_patterns(text: &str) -> Result<Vec<String>, String> {
    text.split(',')
        .map(|pattern| {
            let pattern = pattern.trim();
            check_pattern(pattern).map(|()| pattern.to_owned())
        })
        .collect()
}

/// Checks one pattern of a scope.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() {
        return Err("a pattern in the list is empty".to_owned());
    }
    if pattern.len() > engine::bounds::PATTERN_BYTES {
        return Err(format!("a pattern is longer than {} bytes", engine::bounds::PATTERN_BYTES));
    }
    Glob::new(pattern).map(drop).map_err(|error| format!("{pattern:?} is not a pattern: {error}"))
}

/// Checks the text of an owner: not empty, bounded, no control characters; its charset and the tree are only warned about.
pub fn parse_owner(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("the owner is empty".to_owned());
    }
    if text.len() > bounds::NODE_BYTES {
        return Err(format!("the owner is longer than {} bytes", bounds::NODE_BYTES));
    }
    if text.chars().any(char::is_control) {
        return Err("the owner holds a control character".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-08-01T10:00:00.1234567Z".parse().expect("a time")
    }

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path()).expect("a database");
        (folder, store)
    }

    fn request() -> MintRequest {
        MintRequest {
            owner: "org:acme/team:ml".to_owned(),
            models: Some(vec!["gpt-*".to_owned()]),
            expires: Some(Expiry::After(SignedDuration::from_secs(90))),
            ..MintRequest::default()
        }
    }

    #[test]
    fn a_minted_key_has_the_form_and_is_found_by_its_hash() {
        let (_folder, mut store) = store();
        let minted = mint(&mut store, request(), "cli:root", now()).expect("minted");
        let credential = minted.credential.expose();
        let kid = &minted.row.kid;
        let secret = credential.strip_prefix(&format!("tt_{kid}_")).expect("the form");
        assert!(Kid::parse(kid).is_some(), "{kid}");
        assert_eq!(secret.len(), SECRET_LETTERS);
        assert!(secret.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{secret}");
        assert_eq!(store.key(kid).expect("read"), Some(minted.row.clone()));
        let ring = ring(&store.keys().expect("read")).expect("a ring");
        let key = ring.find(kid).expect("in the ring");
        assert_eq!(key.secret_hash, hash_credential(credential));
        assert!(key.scopes.allows_model("gpt-4o") && !key.scopes.allows_model("m1"));
        assert_eq!(key.expires_at.expect("expires").to_string(), "2026-08-01T10:01:30.123Z");
        let audit = format!("{:?}", store.audit_rows().expect("read"));
        assert!(audit.contains(kid) && audit.contains("key.mint") && !audit.contains(secret), "{audit}");
        let other = mint(&mut store, request(), "cli:root", now()).expect("minted");
        assert_ne!(other.credential, minted.credential);
    }

    #[test]
    fn a_key_that_takes_over_is_unused_and_the_trail_tells_of_no_use() {
        let (_folder, mut store) = store();
        let kid = mint(&mut store, request(), "cli:root", now()).expect("minted").row.kid;
        store.note_key_uses([(&Kid::parse(&kid).expect("a kid"), &now())]).expect("noted");
        let row = store.key(&kid).expect("read").expect("there");
        let used = "2026-08-01T10:00:00.123Z";
        assert_eq!(
            (&listed(&row, now())["last_used_at"], &listed(&row, now())["state"]),
            (&json!(used), &json!("active"))
        );
        let (old, new) = rotate(&mut store, row, SignedDuration::ZERO, "cli:root", now()).expect("rotated");
        assert_eq!(
            (old.last_used_at.map(|at| at.to_string()), new.row.last_used_at),
            (Some(used.to_owned()), None)
        );
        assert_eq!(store.key(&new.row.kid).expect("read"), Some(new.row.clone()));
        assert_eq!(listed(&new.row, now())["last_used_at"], Value::Null);
        let audit = format!("{:?}", store.audit_rows().expect("read"));
        assert!(audit.contains("key.rotate") && !audit.contains("last_used_at"), "{audit}");
    }

    #[test]
    fn revoking_takes_a_key_out_of_the_ring_and_is_audited_even_when_refused() {
        let (_folder, mut store) = store();
        let kid = mint(&mut store, request(), "cli:root", now()).expect("minted").row.kid;
        let before = ring(&store.keys().expect("read")).expect("a ring");
        let outcomes: Vec<_> = [kid.as_str(), kid.as_str(), "vk_AAAAAAAAAAAA"]
            .into_iter()
            .map(|kid| revoke(&mut store, kid, "cli:root", now()).expect("done"))
            .collect();
        assert_eq!(outcomes, [Revoked::Now, Revoked::Before, Revoked::Unknown]);
        let row = store.key(&kid).expect("read");
        let after =
            ring_with_change(&before, &Kid::parse(&kid).expect("a kid"), row.as_ref()).expect("a ring");
        assert!(
            before.find(&kid).is_some() && after.find(&kid).is_none() && after.version() > before.version()
        );
        assert!(ring(&store.keys().expect("read")).expect("a ring").is_empty());
        let results: Vec<_> = store.audit_rows().expect("read").into_iter().map(|row| row.result).collect();
        assert_eq!(results, ["done", "done", "done: was revoked before", "refused: no such key"]);
    }

    #[test]
    fn expiries_are_a_number_and_a_unit() {
        for (text, want) in [
            ("90s", Some(90)),
            ("15m", Some(900)),
            ("24h", Some(86_400)),
            ("30d", Some(2_592_000)),
            ("0s", None),
            ("d", None),
            ("", None),
            ("30", None),
            ("-1d", None),
            ("1.5h", None),
            ("1w", None),
            ("99999999999999999999d", None),
            ("36501d", None),
            ("5\u{e4}", None),
        ] {
            assert_eq!(parse_expiry(text).ok().map(|span| span.as_secs()), want, "{text}");
        }
    }

    #[test]
    fn patterns_and_owners_are_checked() {
        assert_eq!(parse_patterns("gpt-*, m1"), Ok(vec!["gpt-*".to_owned(), "m1".to_owned()]));
        for wrong in ["", "a,,b", "[", "a,\\"] {
            assert!(parse_patterns(wrong).is_err(), "{wrong}");
        }
        assert!(parse_owner("org:Acme/../x y").is_ok(), "taken as given");
        assert!(
            parse_owner("").is_err()
                && parse_owner("a\nb").is_err()
                && parse_owner(&"a".repeat(513)).is_err()
        );
        let warned = |owner: &str, known| owner_warning(&NodeId::new(owner), known).is_some();
        assert!(warned("org:Acme", false) && warned("org:acme", false) && !warned("org:acme", true));
    }
}
