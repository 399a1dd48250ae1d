//! The database while the gateway runs on it: locked, given back, damaged.

use std::io::{Seek, SeekFrom, Write};
use std::time::Instant;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::support::backend::answers;
use super::support::gateway::{chat_body, user_limit};
use super::support::rig::{Rig, observed};

fn quota(fail: &str) -> Value {
    let mut limit = user_limit("requests", "quota_requests", 5, "year");
    limit["posture"] = json!({ "fail": fail });
    json!([limit])
}

/// While nothing can be written down, the limit's own posture decides, and afterwards nothing is missing.
fn check_locked(fail: &str, status: u16, counted: u64) {
    let rig = Rig::with(answers(3, 2), quota(fail), |_| {});
    assert_eq!(rig.gateway.chat(&rig.key, chat_body()).status, 200);
    let other = Connection::open(rig.gateway.database()).expect("a database");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let asked = Instant::now();
    let answer = rig.gateway.chat(&rig.key, chat_body());
    let waited = asked.elapsed();
    assert_eq!(answer.status, status, "{fail}: {}", answer.text());
    if status == 429 {
        assert_eq!(answer.error_text("refused_by"), "requests");
    }
    let asked = Instant::now();
    assert_eq!(rig.gateway.chat(&rig.key, chat_body()).status, status, "{fail}, again");
    assert!(2 * asked.elapsed() < waited, "{fail}: only the first waits, {waited:?}");
    other.execute_batch("ROLLBACK").expect("given back");
    super::support::until("the journal is written again", || {
        (rig.gateway.chat(&rig.key, chat_body()).status == 200).then_some(())
    });
    let caps = rig.gateway.caps(&rig.key);
    assert!(observed(&caps[0]) >= counted, "{fail}: {caps:?}");
}

#[test]
fn a_locked_database_refuses_where_limits_fail_closed() {
    check_locked("closed", 429, 2);
}

#[test]
fn a_locked_database_admits_where_limits_fail_open() {
    check_locked("open", 200, 4);
}

/// A damaged database is told of at the start; nothing begins at zero in its place.
#[test]
fn a_damaged_database_is_no_fresh_start() {
    let mut rig = Rig::wide(answers(3, 2));
    for _ in 0..3 {
        assert_eq!(rig.gateway.chat(&rig.key, chat_body()).status, 200);
    }
    rig.at_rest();
    rig.gateway.stop();
    let path = rig.gateway.database();
    let whole = std::fs::read(&path).expect("a database");
    let page = 4096;
    for damaged_page in 0..whole.len() / page {
        let mut file = std::fs::File::options().write(true).open(&path).expect("a database");
        file.seek(SeekFrom::Start((damaged_page * page) as u64)).expect("sought");
        file.write_all(&[0x5a; 4096]).expect("damaged");
        drop(file);
        let output = rig.gateway.run(&["keys", "list"]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            assert!(text.contains("governance.db"), "page {damaged_page}: {text}");
        }
        rig.gateway.spawn();
        let ended = rig.gateway.ended_or_ready();
        if ended.is_none() {
            let figures = rig.after_restart();
            assert_eq!((figures.requests, figures.tokens), (3, 15), "page {damaged_page}: forgotten");
            rig.gateway.kill();
        }
        assert!(ended.is_none_or(|status| !status.success()), "page {damaged_page}");
        std::fs::write(&path, &whole).expect("put back");
        for beside in ["-wal", "-shm"] {
            let mut name = path.clone().into_os_string();
            name.push(beside);
            let _ = std::fs::remove_file(name);
        }
    }
}
