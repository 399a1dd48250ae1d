//! The black-box conformance suite, run against the built command.
//!
//! The suite is Python with nothing but its standard library and knows the program only by its
//! command line, its config and its sockets. `waiting.txt` names the cases that wait for a later
//! issue. The list can only shrink by honest work: every unlisted case must pass, every listed one
//! must still fail, and a name that is no case is an error.

#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{TOKENTRIAGE, repository};

/// Cases that run at the same time: they mostly wait, so more than there are cores.
const JOBS: &str = "4";
/// Seconds a case; above the suite's own bound, which stretches every wait inside it too.
const SECONDS: &str = "15";

/// One line of the waiting list.
struct Waiting {
    issue: u32,
    why: String,
}

#[test]
fn every_case_passes_unless_it_waits() {
    let waiting = waiting_list(&folder().join("waiting.txt"));
    let results = run_suite();
    let mut faults = Vec::new();
    for (case, failure) in &results {
        match (failure, waiting.get(case)) {
            (Some(reason), None) => faults.push(format!("{case} fails: {reason}")),
            (None, Some(entry)) => faults.push(format!(
                "{case} passes: take it off waiting.txt (it waited for issue {}: {})",
                entry.issue, entry.why
            )),
            _ => {}
        }
    }
    let known: BTreeSet<&String> = results.keys().collect();
    for case in waiting.keys().filter(|case| !known.contains(case)) {
        faults.push(format!("{case} is on waiting.txt and is no case of the suite"));
    }
    println!("{} cases, {} of them waiting", results.len(), waiting.len());
    assert!(!results.is_empty(), "the suite ran no case");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn the_copy_is_the_shared_suite() {
    let shared = repository().join("../shared/conformance");
    if !shared.is_dir() {
        println!("no shared suite beside this checkout: nothing to compare with");
        return;
    }
    let copy = suite();
    let names: BTreeSet<PathBuf> = files(&shared).into_iter().chain(files(&copy)).collect();
    let differs =
        |name: &&PathBuf| std::fs::read(shared.join(name)).ok() != std::fs::read(copy.join(name)).ok();
    let different: Vec<&PathBuf> = names.iter().filter(differs).collect();
    assert!(
        different.is_empty(),
        "the shared suite has changed: copy these files to tests/conformance/suite and make them \
         pass: {different:?}"
    );
}

fn folder() -> PathBuf {
    repository().join("tests/conformance")
}

fn suite() -> PathBuf {
    folder().join("suite")
}

/// Runs every case once, with no second try; each case's id and, when it failed, the reason.
fn run_suite() -> BTreeMap<String, Option<String>> {
    let report = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = Command::new("python3");
    command.arg(suite().join("harness.py")).args(["--bin", TOKENTRIAGE]);
    command.args(["--jobs", JOBS, "--timeout", SECONDS, "--junit"]).arg(report.path());
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output();
    let output = output.expect("the system has python3");
    let text = std::fs::read_to_string(report.path()).expect("the report is readable");
    let results = read_report(&text);
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!results.is_empty(), "the suite wrote no report: {printed}{errors}");
    results
}

/// Reads the suite's report, which has one `testcase` element a line.
fn read_report(report: &str) -> BTreeMap<String, Option<String>> {
    let lines = report.lines().filter(|line| line.contains("<testcase "));
    lines
        .map(|line| {
            let name = attribute(line, "name=").expect("a case has a name");
            (name, attribute(line, "message="))
        })
        .collect()
}

/// The value of an XML attribute, in either kind of quotes.
fn attribute(line: &str, name: &str) -> Option<String> {
    let begin = line.find(&format!(" {name}"))? + name.len() + 1;
    let quote = line[begin..].chars().next()?;
    let value = &line[begin + 1..];
    let value = &value[..value.find(quote)?];
    let plain = value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    Some(plain.replace("&#10;", " ").replace("&amp;", "&"))
}

/// Reads lines of `case-id  issue N  why`; empty lines and `#` comments are skipped.
fn waiting_list(path: &Path) -> BTreeMap<String, Waiting> {
    let text = std::fs::read_to_string(path).expect("the waiting list is readable");
    let mut list = BTreeMap::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (case, entry) = waiting_line(line)
            .unwrap_or_else(|| panic!("waiting.txt: not of the form `case-id  issue N  why`: {line:?}"));
        assert!(list.insert(case.clone(), entry).is_none(), "waiting.txt names {case} twice");
    }
    list
}

fn waiting_line(line: &str) -> Option<(String, Waiting)> {
    let (case, rest) = line.split_once("  ")?;
    let (issue, why) = rest.trim_start().strip_prefix("issue ")?.split_once("  ")?;
    let why = why.trim().to_owned();
    let entry = Waiting { issue: issue.trim().parse().ok()?, why };
    (!entry.why.is_empty()).then(|| (case.to_owned(), entry))
}

/// Every Python file under `top`, relative to it.
fn files(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![top.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() && !path.ends_with("__pycache__") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "py") {
                found.push(path.strip_prefix(top).expect("found under it").to_path_buf());
            }
        }
    }
    found
}
