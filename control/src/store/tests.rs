//! The database in a folder of its own.

use engine::{CounterMark, Units, WindowIndex};
use serde_json::json;

use super::*;

fn open(folder: &tempfile::TempDir) -> Store {
    Store::open(&folder.path().join("deep/data")).expect("a database")
}

fn at(text: &str) -> jiff::Timestamp {
    text.parse().expect("a time")
}

fn entry<'a>(action: &'a str, target: &'a str) -> AuditEntry<'a> {
    AuditEntry {
        at: at("2026-08-01T10:00:00.123Z"),
        actor: "cli:root",
        action,
        target,
        node: None,
        before: None,
        after: Some(json!({ "owner": "org:acme" })),
        result: "done",
    }
}

fn key(kid: &str) -> KeyRow {
    KeyRow {
        kid: kid.to_owned(),
        owner: "org:acme".to_owned(),
        name: Some("laptop \"x\"".to_owned()),
        models: Some(vec!["gpt-*".to_owned(), "m1".to_owned()]),
        providers: None,
        endpoints: Some(Vec::new()),
        allow_passthrough: true,
        admin: false,
        secret_hash: [7; 32],
        created_at: at("2026-08-01T10:00:00.123Z"),
        expires_at: Some(at("2027-08-01T10:00:00Z")),
        revoked_at: None,
    }
}

fn mark(limit_id: &str, model: Option<&str>, window: i64, observed: u128) -> CounterMark {
    CounterMark {
        limit_id: limit_id.to_owned(),
        node: "org:acme/team:ml".to_owned(),
        model: model.map(str::to_owned),
        provider: None,
        endpoint: None,
        period: "day".to_owned(),
        algorithm: "calendar_usd".to_owned(),
        window: WindowIndex(window),
        observed: Units(observed),
        estimated: true,
        unpriced: false,
    }
}

#[test]
fn keys_and_their_revocation_survive_reopening() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(&folder);
    store.insert_key(&key("vk_AAAAAAAAAAAA"), &entry("key.mint", "vk_AAAAAAAAAAAA")).expect("stored");
    assert!(store.insert_key(&key("vk_AAAAAAAAAAAA"), &entry("key.mint", "twice")).is_err());
    drop(store);
    let mut store = open(&folder);
    assert_eq!(store.key("vk_AAAAAAAAAAAA").expect("read"), Some(key("vk_AAAAAAAAAAAA")));
    assert_eq!(store.key("vk_BBBBBBBBBBBB").expect("read"), None);
    for day in ["2026-09-01T00:00:00Z", "2026-09-02T00:00:00Z"] {
        store
            .revoke_key("vk_AAAAAAAAAAAA", at(day), &entry("key.revoke", "vk_AAAAAAAAAAAA"))
            .expect("revoked");
    }
    let row = store.keys().expect("read").remove(0);
    assert_eq!(row.revoked_at, Some(at("2026-09-01T00:00:00Z")), "the first revocation stays");
}

#[test]
fn the_audit_trail_is_only_added_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(&folder);
    store.audit(&entry("key.mint", "a")).expect("added");
    store
        .audit(&AuditEntry { result: "refused: no such key", after: None, ..entry("key.revoke", "b") })
        .expect("added");
    for statement in ["UPDATE audit SET actor = 'x'", "DELETE FROM audit"] {
        assert!(store.connection.execute(statement, []).is_err(), "{statement}");
    }
    let rows = store.audit_rows().expect("read");
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(rows[0].at, "2026-08-01T10:00:00.123Z");
    assert_eq!(rows[0].after, Some(json!({ "owner": "org:acme" })));
    assert_eq!((rows[1].target.as_str(), rows[1].result.as_str()), ("b", "refused: no such key"));
}

#[test]
fn a_counter_keeps_its_newest_window_and_every_digit() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(&folder);
    let huge = u128::MAX - 1;
    let history = [
        mark("b", None, 5, 10),
        mark("b", Some("gpt-4o"), 5, huge),
        mark("b", Some(""), 5, 3),
        mark("b", None, 6, 2),
        mark("b", None, 5, 99),
        mark("a", None, -1, 1),
    ];
    store.write_counters(&history[..3]).expect("written");
    store.write_counters(&history[3..]).expect("written");
    drop(store);
    let got = open(&folder).counters().expect("read");
    let want = [
        mark("a", None, -1, 1),
        mark("b", Some(""), 5, 3),
        mark("b", Some("gpt-4o"), 5, huge),
        mark("b", None, 6, 2),
    ];
    assert_eq!(got, want);
}

#[test]
fn a_newer_or_broken_database_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    open(&folder).connection.pragma_update(None, "user_version", 99).expect("set");
    let error = Store::open(&folder.path().join("deep/data")).err().expect("refused").to_string();
    assert!(error.contains("version 99"), "{error}");
    assert!(Store::open_existing(&folder.path().join("deep/data")).is_err());
    std::fs::write(folder.path().join(FILE), "this is no database, whatever its name says").expect("written");
    let error = Store::open(folder.path()).err().expect("refused").to_string();
    assert!(error.contains(FILE) && error.contains("not a database"), "{error}");
    let file = folder.path().join("a-file");
    std::fs::write(&file, "x").expect("written");
    assert!(Store::open(&file.join("data")).is_err());
}

#[test]
fn reading_makes_no_database() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(Store::open_existing(folder.path()).expect("none").is_none());
    assert_eq!(std::fs::read_dir(folder.path()).expect("read").count(), 0);
    open(&folder);
    let store = Store::open_existing(&folder.path().join("deep/data")).expect("opened").expect("there");
    assert_eq!(store.runtime_plane().expect("read"), RuntimePlane::default());
}

#[test]
fn only_the_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    open(&folder);
    let mode = |path: &str| {
        let metadata = std::fs::metadata(folder.path().join(path)).expect("there");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!((mode("deep/data"), mode("deep/data/governance.db")), (0o700, 0o600));
}
