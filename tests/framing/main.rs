//! The same bytes through the gateway and through nginx, to one kind of recording backend: what of each reading goes on.
//!
//! A request that two programs can frame in two ways is how one client's bytes become another's request. So each row of
//! [`rows`] says what must happen, with its clause; what nginx makes of the same bytes stands beside it, and where the two
//! differ the row says why. [docs/http.md](../../docs/http.md) is that table: the test compares it with what it sees, line
//! by line (`TOKENTRIAGE_WRITE_DOCS=1` writes it anew). Where both let a request pass, the backends must have seen the same.
//!
//! [`front`] has nginx as a client of the gateway.
//!
//! Without nginx, or with another version than the document's, its column is not compared.

#[path = "../support/mod.rs"]
mod support;

mod front;
mod nginx;
mod rows;

use std::time::Duration;

use rows::Row;
use serde_json::json;
use support::backend::{Backend, answers};
use support::client::Connection;
use support::gateway::{Gateway, config};
use support::repository;

/// What counts as silence before a first answer, and after one: the peers are on this machine.
const SILENCE: [Duration; 2] = [Duration::from_millis(1500), Duration::from_millis(300)];

const BEGIN: &str = "<!-- framing: begin -->";
const END: &str = "<!-- framing: end -->";

/// What became of one row's bytes.
#[derive(Debug, PartialEq)]
struct Seen {
    statuses: Vec<u16>,
    closed: bool,
    /// Start line and body of each request that reached the backend.
    passed: Vec<(String, Vec<u8>)>,
}

impl Seen {
    /// In a cell of the table.
    fn cell(&self) -> String {
        let statuses: Vec<String> = self.statuses.iter().map(u16::to_string).collect();
        let ending = if self.closed { ", closes" } else { "" };
        match (self.passed.len(), statuses.is_empty()) {
            (0, true) if self.closed => "closes".to_owned(),
            (0, true) => "waits".to_owned(),
            (0, false) => format!("{}{ending}", statuses.join(", ")),
            (1, _) => format!("passes{ending}"),
            (count, _) => format!("passes {count}{ending}"),
        }
    }
}

/// Sends the bytes to whoever listens on `port`, and sees what comes of it.
fn send(port: u16, backend: &Backend, bytes: &[u8]) -> Seen {
    let before = backend.count();
    let mut client = Connection::open(port);
    client.send(bytes);
    client.wait_no_longer_than(SILENCE[0]);
    let mut statuses = Vec::new();
    let closed = loop {
        match client.try_read() {
            Ok(answer) => {
                statuses.push(answer.status);
                client.wait_no_longer_than(SILENCE[1]);
            }
            Err(why) => break !why.starts_with("silent"),
        }
    };
    let passed = backend.requests().split_off(before);
    let start = |head: &str| head.lines().next().unwrap_or_default().to_owned();
    Seen { statuses, closed, passed: passed.into_iter().map(|one| (start(&one.head), one.body)).collect() }
}

fn gateway(backend: &Backend) -> Gateway {
    let mut document = config(backend.port, json!([]));
    document["http"] = json!({ "max_head": "8KiB", "max_body": "64KiB" });
    Gateway::start(&document)
}

fn line(row: &Row, ours: &Seen, nginx: &str) -> String {
    format!("| {} | {} | {} | {nginx} | {} |", row.what, row.clause, ours.cell(), row.why)
}

#[test]
fn ambiguous_framing_is_read_in_one_way_or_not_at_all() {
    let backend = Backend::start(answers(1, 1));
    let gateway = gateway(&backend);
    let other = Backend::start(answers(1, 1));
    let nginx = nginx::start(other.port, nginx::KEEP_ALIVE);
    let path = repository().join("docs/http.md");
    let document = std::fs::read_to_string(&path).expect("docs/http.md");
    let (before, rest) = document.split_once(BEGIN).expect("the table's begin");
    let (table, after) = rest.split_once(END).expect("the table's end");
    let version = nginx.as_ref().map(|nginx| nginx.version.clone());
    let same_nginx = version.as_ref().is_some_and(|version| table.contains(&format!("| {version} |")));
    let known: Vec<&str> = table.lines().collect();
    let cell_of = |what: &str| {
        let row = known.iter().find(|line| line.starts_with(&format!("| {what} |")))?;
        row.split(" | ").nth(3).map(str::to_owned)
    };
    let write = std::env::var_os("TOKENTRIAGE_WRITE_DOCS").is_some();
    let title = version.clone().filter(|_| write || same_nginx);
    let title = title.unwrap_or_else(|| {
        let shown = known.iter().find(|line| line.starts_with("| the bytes"));
        shown.and_then(|line| line.split(" | ").nth(3)).unwrap_or("nginx").to_owned()
    });
    let mut lines = vec![
        format!("| the bytes | clause | here | {title} | why they differ |"),
        "|---|---|---|---|---|".to_owned(),
    ];
    let mut faults = Vec::new();
    for row in rows::rows() {
        let (ours, theirs) = std::thread::scope(|scope| {
            let theirs = nginx.as_ref().map(|nginx| scope.spawn(|| send(nginx.port, &other, &row.bytes)));
            (send(gateway.port, &backend, &row.bytes), theirs.map(|theirs| theirs.join().expect("no panic")))
        });
        if ours.passed.len() != row.passes {
            faults.push(format!(
                "{}: {} requests pass, not {}: {ours:?}",
                row.what,
                ours.passed.len(),
                row.passes
            ));
        }
        if row.passes == 0 && !ours.statuses.is_empty() && !ours.closed {
            faults.push(format!("{}: the connection stays open: {ours:?}", row.what));
        }
        if let Some(theirs) = &theirs
            && !ours.passed.is_empty()
            && !theirs.passed.is_empty()
            && ours.passed != theirs.passed
            && !row.read_otherwise
        {
            faults.push(format!("{}: the backends saw {:?} and {:?}", row.what, ours.passed, theirs.passed));
        }
        let nginx = match theirs {
            Some(theirs) if write || same_nginx => theirs.cell(),
            _ => cell_of(row.what).unwrap_or_default(),
        };
        if (nginx != ours.cell()) == row.why.is_empty() {
            faults.push(format!(
                "{}: {} here, {nginx} there; the row says why: {:?}",
                row.what,
                ours.cell(),
                row.why
            ));
        }
        lines.push(line(&row, &ours, &nginx));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let seen = format!("\n{}\n", lines.join("\n"));
    if write {
        std::fs::write(&path, format!("{before}{BEGIN}{seen}{END}{after}")).expect("docs/http.md is written");
    } else {
        for (seen, known) in seen.lines().zip(table.lines()) {
            assert_eq!(
                seen, known,
                "docs/http.md does not say what happens (TOKENTRIAGE_WRITE_DOCS=1 writes it)"
            );
        }
        assert_eq!(seen.lines().count(), table.lines().count(), "rows of docs/http.md");
    }
}
