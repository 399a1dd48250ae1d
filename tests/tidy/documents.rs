//! Rules about the documents and about what no kept file may say.

use std::collections::BTreeSet;
use std::path::Path;

use super::{CRATES, check, files, repository, rust_files, source_folders, text};

/// How much of the README is its first screen.
const FIRST_SCREEN: usize = 40;

#[test]
fn the_first_screen_has_both_commands() {
    let readme = text("README.md");
    let screen: Vec<&str> = readme.lines().take(FIRST_SCREEN).collect();
    let commands = ["cargo run --release -- demo", "cargo test --release --workspace"];
    let absent = commands.iter().filter(|command| !screen.iter().any(|line| line.trim() == **command));
    check("the first screen", absent.map(|command| format!("no line `{command}`")).collect());
}

/// The rooms of the program: each folder and each file directly in a crate's `src`.
fn rooms() -> BTreeSet<String> {
    let folders = source_folders();
    let mut rooms = BTreeSet::new();
    for folder in &folders {
        for path in rust_files(&[folder.as_str()]) {
            let inside = path.strip_prefix(folder).expect("found under it");
            let first = inside.iter().next().expect("a name").to_string_lossy().into_owned();
            let room = first.trim_end_matches(".rs");
            if !matches!(room, "lib" | "main" | "tests") && !room.ends_with("_tests") {
                rooms.insert(format!("{folder}/{room}"));
            }
        }
    }
    rooms
}

/// What stands between single backticks in a document.
fn quoted(document: &str) -> Vec<&str> {
    document.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_map_names_every_room_and_no_other() {
    let document = text("ARCHITECTURE.md");
    let named: BTreeSet<&str> =
        quoted(&document).into_iter().map(|name| name.trim_end_matches('/')).collect();
    let rooms = rooms();
    let crates = CRATES.iter().filter(|name| !name.is_empty());
    let absent = rooms.iter().map(String::as_str).chain(crates.copied());
    let absent = absent.filter(|name| !named.contains(name));
    let mut faults: Vec<String> = absent.map(|name| format!("`{name}` is not named")).collect();
    for name in named.iter().filter(|name| name.contains("src/") && !name.contains(' ')) {
        let exists = [name.to_string(), format!("{name}.rs")];
        if !exists.iter().any(|path| repository().join(path).exists()) {
            faults.push(format!("`{name}` is named and does not exist"));
        }
    }
    check("the map in ARCHITECTURE.md", faults);
}

#[test]
fn the_guide_to_the_tests_names_every_target() {
    let document = text("docs/testing.md");
    let mut faults = Vec::new();
    for path in files().iter().filter(|path| path.ends_with("main.rs") && path.starts_with("tests")) {
        let target = path.parent().unwrap_or(Path::new("")).display().to_string();
        if !quoted(&document).contains(&target.as_str()) {
            faults.push(format!("`{target}` is not named"));
        }
    }
    check("the guide in docs/testing.md", faults);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut faults = Vec::new();
    for path in files().iter().filter(|path| path.extension().is_some_and(|kind| kind == "md")) {
        for target in text(path).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            let outside = file.is_empty() || file.contains("://");
            let folder = repository().join(path.parent().unwrap_or(Path::new("")));
            if !outside && !folder.join(file).exists() {
                faults.push(format!("{}: {target} does not exist", path.display()));
            }
        }
    }
    check("links between documents", faults);
}

#[test]
fn no_file_knows_the_machine_that_it_was_written_on() {
    // Spelt in parts, so that this file is no fault of its own.
    let words = [
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("crates", ".io"),
        concat!("pypi", ".org"),
        concat!("registry.", "npmjs"),
        concat!("deb.", "debian"),
    ];
    let mut faults = Vec::new();
    for path in files() {
        let Ok(text) = std::fs::read_to_string(repository().join(&path)) else { continue };
        if path.ends_with("Cargo.lock") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(**word)) {
                faults.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    check("no machine and no host of packages", faults);
}
