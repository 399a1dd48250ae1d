//! Rules about Rust source.

use std::path::Path;

use super::rust_text::{code_of, has_word};
use super::{check, rust_files, source_folders, text};

/// No source file is longer; 400 is what to aim at.
const LINES: usize = 600;
/// The same for a file of nothing but tests, which is mostly tables.
const TEST_LINES: usize = 800;

fn is_tests(path: &Path) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    name == "tests" || name.ends_with("_tests")
}

/// The only files that may hold `unsafe`: where the system is called, and a test's counting allocator.
const UNSAFE_MODULES: [&str; 4] =
    ["net/src/rt/sys.rs", "loadtest/src/rt/alarm.rs", "loadtest/src/rt/net.rs", "engine/tests/allocation.rs"];

/// Every line of code in `folders` that `faulty` gives a reason against.
fn lines(folders: &[&str], faulty: impl Fn(&Path, &str) -> Option<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for path in rust_files(folders) {
        for (number, line) in code_of(&text(&path)).lines().enumerate() {
            if let Some(reason) = faulty(&path, line) {
                faults.push(format!("{}:{}: {reason}", path.display(), number + 1));
            }
        }
    }
    faults
}

/// Where Rust may stand at all: each crate's sources, tests and benchmarks.
fn all_sources() -> Vec<String> {
    let kinds = ["src", "tests", "benches", "examples"];
    let folder =
        |name: &&str, kind| if name.is_empty() { String::from(kind) } else { format!("{name}/{kind}") };
    super::CRATES.iter().flat_map(|name| kinds.map(|kind| folder(name, kind))).collect()
}

fn borrowed(folders: &[String]) -> Vec<&str> {
    folders.iter().map(String::as_str).collect()
}

#[test]
fn the_runtime_is_named_only_behind_its_edge() {
    let edges = ["net/src/rt", "loadtest/src/rt"];
    let inside = |path: &Path| {
        edges.iter().any(|edge| path.starts_with(edge) || path == Path::new(&format!("{edge}.rs")))
    };
    let faults = lines(&borrowed(&all_sources()), |path, line| {
        let named = has_word(line, "monoio") && !inside(path);
        named.then(|| "names monoio outside net/src/rt and loadtest/src/rt".into())
    });
    check("the runtime behind its edge", faults);
}

#[test]
fn the_engine_reaches_for_nothing_outside() {
    let outside = [
        "std::net",
        "std::fs",
        "std::thread",
        "std::process",
        "std::env",
        "std::io",
        "Instant::now",
        "SystemTime::now",
        "Timestamp::now",
        "Zoned::now",
    ];
    let faults = lines(&["engine/src"], |_, line| {
        let found = outside.iter().find(|name| line.contains(**name))?;
        Some(format!("reaches for {found}"))
    });
    check("a pure engine", faults);
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let faults = lines(&borrowed(&all_sources()), |path, line| {
        let allowed = UNSAFE_MODULES.iter().any(|module| path == Path::new(module));
        (has_word(line, "unsafe") && !allowed).then(|| "unsafe code outside the allowed modules".into())
    });
    check("unsafe code", faults);
    let unused: Vec<String> = UNSAFE_MODULES
        .iter()
        .filter(|module| !code_of(&text(module)).lines().any(|line| has_word(line, "unsafe")))
        .map(|module| format!("{module} is allowed unsafe code and has none"))
        .collect();
    check("the list of modules with unsafe code", unused);
}

#[test]
fn unsafe_says_just_above_why_it_is_sound() {
    let mut faults = Vec::new();
    for path in rust_files(&borrowed(&all_sources())) {
        let source = text(&path);
        let code = code_of(&source);
        let source: Vec<&str> = source.lines().collect();
        for (number, _) in code.lines().enumerate().filter(|(_, line)| has_word(line, "unsafe")) {
            // A statement may begin some lines above its unsafe block.
            let near = &source[number.saturating_sub(6)..=number];
            if !near.iter().any(|line| line.contains("SAFETY") || line.contains("# Safety")) {
                faults.push(format!("{}:{}: unsafe with no SAFETY above", path.display(), number + 1));
            }
        }
    }
    check("a reason above each unsafe", faults);
}

#[test]
fn the_pure_crates_forbid_unsafe_code() {
    let faults = ["engine", "control"]
        .iter()
        .filter(|name| !text(format!("{name}/src/lib.rs")).contains("#![forbid(unsafe_code)]"));
    check("unsafe forbidden", faults.map(|name| format!("{name}/src/lib.rs does not forbid it")).collect());
}

#[test]
fn nothing_is_left_for_later() {
    let marks = ["todo!", "unimplemented!", "#[ignore"];
    let mut faults = lines(&borrowed(&all_sources()), |path, line| {
        // The mutants are for the night: each compiles the engine anew.
        if path.starts_with("tests/mutations") && line.contains("#[ignore = ") {
            return None;
        }
        let found = marks.iter().find(|mark| line.contains(**mark))?;
        Some(format!("has {found}"))
    });
    for path in rust_files(&borrowed(&all_sources())) {
        for (number, line) in text(&path).lines().enumerate() {
            // Spelt in two so that this file is no fault of its own.
            if has_word(line, concat!("FIX", "ME")) || has_word(line, concat!("TO", "DO")) {
                faults.push(format!("{}:{}: a note to do it later", path.display(), number + 1));
            }
        }
    }
    check("nothing left for later", faults);
}

#[test]
fn no_file_is_too_long() {
    let long = rust_files(&borrowed(&source_folders())).into_iter().filter_map(|path| {
        let lines = text(&path).lines().count();
        let allowed = if is_tests(&path) { TEST_LINES } else { LINES };
        (lines > allowed).then(|| format!("{} has {lines} lines, {allowed} are allowed", path.display()))
    });
    check("the length of files", long.collect());
}

#[test]
fn every_module_says_what_it_is() {
    let silent = rust_files(&borrowed(&source_folders())).into_iter();
    let silent = silent.filter(|path| !is_tests(path) && !text(path).starts_with("//!"));
    check("module documents", silent.map(|path| format!("{} begins with no //!", path.display())).collect());
}
