//! The rules of the house, each a test, so that one that is broken stops the test command.
//!
//! A rule reads the repository as text or asks cargo. What it finds is a list of faults, each with
//! its place; [`check`] shows all of them at once.

mod crates;
mod documents;
mod rust_text;
mod sources;
mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's crates by folder; the command's own is the top folder itself.
const CRATES: [&str; 7] = ["", "engine", "net", "control", "loadtest", "bench", "fuzz"];

/// Fails with every fault, when there is one.
fn check(rule: &str, faults: Vec<String>) {
    assert!(faults.is_empty(), "{rule}: {} faults\n  {}", faults.len(), faults.join("\n  "));
}

/// The top folder of the repository.
fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file, named from the top folder.
fn text(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file that is kept or about to be, named from the top folder.
fn files() -> Vec<PathBuf> {
    let mut command = Command::new("git");
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = command.current_dir(repository()).output().expect("the system has git");
    assert!(output.status.success(), "git ls-files: {output:?}");
    let names = String::from_utf8(output.stdout).expect("names in UTF-8");
    let names = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    let mut names: Vec<PathBuf> = names.filter(|name| repository().join(name).is_file()).collect();
    names.sort();
    names.dedup();
    names
}

/// Every Rust file under one of `folders`, named from the top folder.
fn rust_files(folders: &[&str]) -> Vec<PathBuf> {
    let within = |path: &PathBuf| folders.iter().any(|folder| path.starts_with(folder));
    let rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    files().into_iter().filter(|path| rust(path) && within(path)).collect()
}

/// `folder/src` of every crate.
fn source_folders() -> Vec<String> {
    CRATES.iter().map(|name| if name.is_empty() { "src".into() } else { format!("{name}/src") }).collect()
}
