//! Instructions a request, counted by valgrind on the core's own thread: a figure that no busy machine moves.
//!
//! [bench/instructions.json](../../bench/instructions.json) keeps what was reached. More by a twentieth fails the test, and
//! so does less: a gain that is not written down is lost again unseen. `TOKENTRIAGE_WRITE_DOCS=1` writes the new figures.
//! Only a build with optimisation is compared, and only where valgrind is and the processor has what that one had on which the
//! figures were counted: the C library copies and compares by what it finds.

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;

use loadtest::backend::{Backend, BackendOptions, FixedAnswer, Mode};
use loadtest::run::{self, RunOptions, Target};
use serde_json::{Map, Value, json};
use support::gateway::{CHAT, DEV1, Gateway, config, user_limit};
use support::{repository, until};

/// Requests before the count begins: connections, plans and buffers are made by then.
const WARM: u64 = 300;
/// Requests that are counted.
const COUNTED: u64 = 1_500;
/// Connections that send them, one after the other each.
const CONNECTIONS: usize = 8;
/// How far a figure may be from what is written down, in percent: how many completions come at once is chance.
const TOLERANCE: u64 = 5;
const BODY: &str = r#"{"model":"m1","messages":[{"role":"user","content":"Say hello to the world, please, in one short sentence."}],"max_tokens":64,"temperature":0.2}"#;

/// Of the processor's features those that the C library and the crates choose their ways by, as far as valgrind shows them.
const FEATURES: [&str; 6] = ["sse4_2", "avx2", "bmi2", "movbe", "erms", "rtm"];

/// Those of [`FEATURES`] that this processor has.
fn processor() -> String {
    let known = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = known.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    let has = |feature: &&str| flags.split_whitespace().any(|flag| flag == *feature);
    FEATURES.into_iter().filter(has).collect::<Vec<_>>().join(" ")
}

/// A kind of request.
struct Kind {
    name: &'static str,
    /// The caps that it meets; none turns governance off.
    limits: Value,
    status: u16,
}

fn kinds() -> [Kind; 3] {
    const MANY: u64 = 1_000_000_000;
    let at = |place: Value, mut limit: Value| {
        limit["attach"] = place;
        limit
    };
    let level = |level: &str| json!({ "level": level });
    // As in bench/harness/gateway.py: 3 rpm, 2 concurrency, tpm, a token quota and a budget, on four levels.
    let eight = json!([
        user_limit("user_rpm", "rpm", MANY, "1m"),
        at(level("team"), user_limit("team_rpm", "rpm", MANY, "1m")),
        at(level("org"), user_limit("org_rpm", "rpm", MANY, "1m")),
        user_limit("user_slots", "concurrency", 100_000, ""),
        at(json!({ "node": "__global" }), user_limit("all_slots", "concurrency", 1_000_000, "")),
        at(level("team"), user_limit("team_tpm", "tpm", MANY, "1m")),
        at(level("org"), user_limit("org_tokens", "quota_tokens", 1000 * MANY, "month")),
        at(level("team"), user_limit("team_budget", "budget_usd", MANY, "day")),
    ]);
    let spent = json!([user_limit("spent", "rpm", 1, "24h")]);
    [
        Kind { name: "plain", limits: Value::Null, status: 200 },
        Kind { name: "governed_by_eight_caps", limits: eight, status: 200 },
        Kind { name: "refused_by_gate_one", limits: spent, status: 429 },
    ]
}

/// Counts one kind.
fn count(kind: &Kind) -> u64 {
    let answer = Mode::Fixed(FixedAnswer::default());
    let backend = Backend::start(BackendOptions { mode: answer, ..BackendOptions::default() });
    let backend = backend.expect("a backend");
    let governed = !kind.limits.is_null();
    let mut document = config(backend.addr().port(), kind.limits.clone());
    document["workers"] = json!(1);
    // Looks for work that has not come are no request's.
    document["spin"] = json!("0");
    document["require_key"] = json!(if governed { "on" } else { "off" });
    if !governed {
        document["governance"] = json!({ "enabled": false });
    }
    let mut gateway = Gateway::prepare(&document);
    let key = governed.then(|| gateway.mint(DEV1, &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let out = format!("--callgrind-out-file={}", folder.path().join("counted").display());
    let tool = ["--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes", &out];
    gateway.launch_under("valgrind", &tool);

    let mut options =
        RunOptions::to(Target::parse(&format!("http://127.0.0.1:{}{CHAT}", gateway.port)).expect("a target"));
    options.method = "POST".into();
    options.body = BODY.into();
    options.credentials = key.iter().map(|key| key.credential.clone()).collect();
    (options.connections, options.duration) = (CONNECTIONS, None);
    options.warm_up = std::time::Duration::ZERO;
    let send = |requests: u64| {
        let options = RunOptions { requests: Some(requests), ..options.clone() };
        let report = run::run(&options, |_| {}).expect("a run");
        let statuses: Vec<u16> = report.tally.statuses.iter().map(|(status, _)| *status).collect();
        assert!(statuses.contains(&kind.status), "{}: {}", kind.name, report.table());
        assert_eq!(report.tally.all_failures(), 0, "{}: {}", kind.name, report.table());
        report
    };
    let control = |what: &[&str]| {
        let done = Command::new("callgrind_control").args(what).arg(gateway.pid().to_string()).output();
        let done = done.expect("callgrind_control comes with valgrind");
        assert!(done.status.success(), "{what:?}: {}", String::from_utf8_lossy(&done.stdout));
    };
    send(WARM);
    control(&["-i", "on"]);
    let report = send(COUNTED);
    control(&["-i", "off"]);
    control(&["-d"]);
    assert_eq!(report.tally.statuses.len(), 1, "{}: {}", kind.name, report.table());
    until("the counts are written", || core_total(folder.path())) / COUNTED
}

/// The instructions of the busiest thread, which is the core. `None` while nothing is written.
fn core_total(folder: &Path) -> Option<u64> {
    let files = std::fs::read_dir(folder).expect("a folder").flatten();
    let totals = files.filter_map(|file| {
        let text = std::fs::read_to_string(file.path()).ok()?;
        let total = text.lines().rev().find_map(|line| line.strip_prefix("totals: "))?;
        total.split(' ').next()?.parse().ok()
    });
    totals.max()
}

#[test]
fn no_request_costs_more_instructions_than_it_did() {
    if cfg!(debug_assertions) {
        println!("not compared: this build is not optimised; run `cargo test --release --test instructions`");
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("not counted: valgrind is not here");
        return;
    }
    let path = repository().join("bench/instructions.json");
    let kept: Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap_or_else(|_| b"{}".to_vec())).expect("JSON");
    let counted: Vec<(&str, u64)> = kinds().iter().map(|kind| (kind.name, count(kind))).collect();
    println!("instructions a request: {counted:?}; written down: {kept}");
    if std::env::var_os("TOKENTRIAGE_WRITE_DOCS").is_some() {
        let mut figures: Map<String, Value> =
            counted.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
        figures.insert("processor".to_owned(), processor().into());
        let text = serde_json::to_string_pretty(&figures).expect("JSON") + "\n";
        std::fs::write(&path, text).expect("a writable repository");
        return;
    }
    if kept["processor"] != processor() {
        println!(
            "not compared: the figures are those of a processor with {}, not {}",
            kept["processor"],
            processor()
        );
        return;
    }
    for (name, count) in counted {
        let known = kept[name].as_u64().unwrap_or_else(|| panic!("{name} is not in {}", path.display()));
        let (least, most) = (known * (100 - TOLERANCE) / 100, known * (100 + TOLERANCE) / 100);
        assert!(
            (least..=most).contains(&count),
            "{name}: {count} instructions a request, {known} are written down. If that is meant, write the new figures: \
             TOKENTRIAGE_WRITE_DOCS=1 cargo test --release --test instructions"
        );
    }
}
