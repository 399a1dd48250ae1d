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
        last_used_at: None,
    }
}

/// A mark with nothing left open.
pub(crate) fn mark(limit_id: &str, model: Option<&str>, window: i64, observed: u128) -> CounterMark {
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
        high_water: Units(observed),
        uncertain: Units(0),
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

/// The trail of three rows, damaged by statements with the guards taken off, and what is found.
fn check_damage(statements: &str, broken: Option<(i64, &str)>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(&folder);
    for target in ["a", "b", "c"] {
        store.audit(&entry("key.mint", target)).expect("added");
    }
    let whole = store.verify_audit(None).expect("read");
    let Verified::Whole { rows: 3, head } = &whole else { panic!("{whole:?}") };
    store
        .connection
        .execute_batch(&format!("DROP TRIGGER audit_no_update; DROP TRIGGER audit_no_delete; {statements}"))
        .expect("damaged");
    match (store.verify_audit(Some(head)).expect("read"), broken) {
        (Verified::Whole { .. }, None) => {}
        (Verified::Broken { seq, reason }, Some((wanted, part))) => {
            assert!(seq == wanted && reason.contains(part), "{statements}: row {seq}: {reason}");
        }
        (got, wanted) => panic!("{statements}: wanted {wanted:?}, got {got:?}"),
    }
}

#[test]
fn what_is_done_to_the_trail_shows() {
    check_damage("", None);
    for column in ["at", "actor", "action", "target", "result"] {
        check_damage(&format!("UPDATE audit SET {column} = 'x' WHERE seq = 2"), Some((2, "what it says")));
    }
    for column in ["node", "before", "after"] {
        check_damage(&format!("UPDATE audit SET {column} = '1' WHERE seq = 2"), Some((2, "what it says")));
    }
    check_damage("UPDATE audit SET after = NULL WHERE seq = 1", Some((1, "what it says")));
    check_damage("UPDATE audit SET hash = prev WHERE seq = 1", Some((1, "what it says")));
    check_damage("UPDATE audit SET prev = hash WHERE seq = 3", Some((3, "another hash")));
    check_damage("DELETE FROM audit WHERE seq = 2", Some((3, "row 2 is missing")));
    check_damage("DELETE FROM audit WHERE seq = 3", Some((2, "rows up to 3")));
    check_damage("DELETE FROM audit", Some((0, "rows up to 3")));
    let forged = "DELETE FROM audit WHERE seq = 3; UPDATE sqlite_sequence SET seq = 2";
    check_damage(forged, Some((2, "was noted")));
    let swapped = "UPDATE audit SET seq = 9 WHERE seq = 1; UPDATE audit SET seq = 1 WHERE seq = 2; \
                   UPDATE audit SET seq = 2 WHERE seq = 9";
    check_damage(swapped, Some((1, "another hash")));
}

#[test]
fn rows_of_the_first_schema_are_chained_when_it_is_brought_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(FILE);
    let old = Connection::open(&path).expect("opened");
    old.execute_batch(schema::FIRST).expect("made");
    old.execute_batch(
        "PRAGMA user_version = 1;
         INSERT INTO audit (at, actor, action, target, after, result) VALUES
             ('2026-08-01T10:00:00.000Z', 'cli:root', 'key.mint', 'vk_A', '{\"owner\":\"org:acme\"}', 'done'),
             ('2026-08-01T10:00:01.000Z', 'cli:root', 'key.revoke', 'vk_B', NULL, 'refused: no such key');",
    )
    .expect("filled");
    drop(old);
    let store = Store::open_existing(folder.path()).expect("opened").expect("there");
    let whole = store.verify_audit(None).expect("read");
    assert!(matches!(whole, Verified::Whole { rows: 2, .. }), "{whole:?}");
    let nodes: Vec<_> = store.audit_rows().expect("read").into_iter().map(|row| row.node).collect();
    assert_eq!(nodes, [Some("org:acme".to_owned()), None]);
    drop(store);
    let mut store = Store::open(folder.path()).expect("opened");
    store.audit(&entry("key.mint", "c")).expect("added");
    assert!(matches!(store.verify_audit(None).expect("read"), Verified::Whole { rows: 3, .. }));
    assert!(store.connection.execute("UPDATE audit SET actor = 'x'", []).is_err(), "the guard is back");
}

#[test]
fn a_part_of_the_tree_is_the_node_and_what_lies_below_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(&folder);
    let nodes =
        ["org:a", "org:a/team:x", "org:ab", "org:a-b/team:x", "org:a/../org:b", "org:a/team:X", "__global"];
    for node in nodes {
        store.audit(&AuditEntry { node: Some(node), ..entry("node.create", node) }).expect("added");
    }
    let own = engine::NodeId::new("org:a");
    for (asked, bound, wanted) in [
        (None, None, &nodes[..]),
        (Some("org:a"), None, &["org:a", "org:a/team:x", "org:a/../org:b", "org:a/team:X"]),
        (Some("org:a"), Some(&own), &["org:a", "org:a/team:x"]),
        (None, Some(&own), &["org:a", "org:a/team:x"]),
        (Some("org:a/team:x"), Some(&own), &["org:a/team:x"]),
        (Some("__global"), None, &nodes),
    ] {
        let filter = AuditFilter { under: Under::new(asked, bound), ..AuditFilter::default() };
        let mut got: Vec<_> =
            store.audit_page(&filter, 100).expect("read").into_iter().map(|row| row.target).collect();
        got.reverse();
        assert_eq!(got, wanted, "{asked:?} {bound:?}");
    }
}
