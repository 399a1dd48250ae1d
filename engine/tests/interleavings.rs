//! Starts the model checkers, so that the one test command runs them too. Each builds the engine once more on its own
//! atomics, under a flag and therefore in a target directory of its own (about a minute, the first time).
//!
//! - loom: `loom_cells` and `loom_bed`, all interleavings with few preemptions.
//! - shuttle: `shuttle_cells`, 10^5 schedules of each model; `SHUTTLE_ITERATIONS=1000000` for a night.

#![cfg(not(any(loom, shuttle)))]

use std::path::Path;
use std::process::Command;

/// Runs the test files under `--cfg <checker>`; fails with what they printed.
fn check(checker: &str, test_files: &[&str]) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name(checker);
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--release", "--locked", "--package", "engine", "--no-fail-fast"]);
    command.args(test_files.iter().flat_map(|file| ["--test", file]));
    // What cargo sets for this test is not meant for the one it starts.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_")) {
        command.env_remove(name);
    }
    command
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", format!("--cfg {checker}"))
        .env("CARGO_TARGET_DIR", target)
        // Quickly built, and with the assertions that only a debug build has otherwise.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let output = command.output().expect("cargo runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let passed = printed.lines().filter(|line| line.starts_with("test ") && line.ends_with("... ok")).count();
    assert!(
        output.status.success(),
        "{checker}: {}\n{printed}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(passed > test_files.len(), "{checker} ran {passed} models:\n{printed}");
}

#[test]
fn loom_finds_nothing() {
    check("loom", &["loom_cells", "loom_bed"]);
}

#[test]
fn shuttle_finds_nothing() {
    check("shuttle", &["shuttle_cells"]);
}
