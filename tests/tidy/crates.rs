//! Rules about crates: who may depend on what, and why an outside crate is one.

use std::process::Command;

use super::{CRATES, check, repository, text};

/// What must never be in the engine's own tree: runtimes, sockets, formats, storage.
const NOT_IN_ENGINE: [&str; 6] = ["monoio", "tokio", "serde", "serde_json", "socket2", "rusqlite"];

/// Names of the crates that `package` is built from, itself among them.
fn tree(package: &str) -> Vec<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--locked", "-p", package, "-e", "normal", "--prefix", "none", "-f", "{p}"]);
    let output = command.current_dir(repository()).output().expect("cargo runs");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    printed.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn dependencies_point_one_way() {
    let mut faults = Vec::new();
    for (package, absent) in [
        ("engine", [NOT_IN_ENGINE.as_slice(), &["net", "control", "loadtest", "io-uring"]].concat()),
        ("net", vec!["control", "rusqlite", "tokio", "axum", "loadtest"]),
        ("control", vec!["net", "monoio", "io-uring", "loadtest"]),
        ("loadtest", vec!["engine", "net", "control", "tokio", "rusqlite"]),
    ] {
        let tree = tree(package);
        assert!(tree.iter().any(|name| name == package), "{package} is not in its own tree");
        let found = absent.iter().filter(|name| tree.iter().any(|crate_| crate_ == **name));
        faults.extend(found.map(|name| format!("{package} is built from {name}")));
    }
    check("the direction of dependencies", faults);
}

/// The lines of one table of a manifest.
fn table<'a>(manifest: &'a str, header: &str) -> Vec<&'a str> {
    let from_header = manifest.lines().skip_while(|line| *line != header).skip(1);
    from_header.take_while(|line| !line.starts_with('[')).collect()
}

#[test]
fn every_outside_crate_says_why_it_is_one() {
    let manifest = text("Cargo.toml");
    let mut explained = false;
    let mut faults = Vec::new();
    for line in table(&manifest, "[workspace.dependencies]") {
        match line.trim() {
            "" => explained = false,
            line if line.starts_with('#') => explained = true,
            line if line.contains("path = ") => {}
            line if !explained => faults.push(format!("no reason above `{line}`")),
            _ => {}
        }
    }
    check("reasons for outside crates", faults);
}

#[test]
fn versions_are_named_once() {
    let mut faults = Vec::new();
    for name in CRATES {
        let path = if name.is_empty() { "Cargo.toml".into() } else { format!("{name}/Cargo.toml") };
        let manifest = text(&path);
        for header in ["[dependencies]", "[dev-dependencies]", "[build-dependencies]"] {
            let lines = table(&manifest, header).into_iter().map(str::trim);
            let own = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
            let own = own.filter(|line| !line.contains("workspace = true"));
            faults.extend(own.map(|line| format!("{path}: `{line}` is not the workspace's")));
        }
        if !name.is_empty() && !table(&manifest, "[lints]").contains(&"workspace = true") {
            faults.push(format!("{path}: the workspace's lints are not taken"));
        }
    }
    check("versions named once", faults);
}
