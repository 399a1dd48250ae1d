//! What the toolchain's own tools say: formatting, lints, licences and sources.

use std::path::PathBuf;
use std::process::Command;

use super::{check, repository};

/// The release of `cargo deny` that reads this repository's lock file.
const CARGO_DENY: &str = "0.20.2";

/// Runs `command` in the repository; what it printed, when it failed.
fn run(command: &mut Command) -> Vec<String> {
    // What cargo sets for this test is not meant for the tools that it starts.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_")) {
        command.env_remove(name);
    }
    let output = command.current_dir(repository()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if output.status.success() {
        return Vec::new();
    }
    let printed = [output.stdout, output.stderr].concat();
    vec![format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&printed))]
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments);
    command
}

#[test]
fn the_source_is_formatted() {
    check("cargo fmt", run(&mut cargo(&["fmt", "--all", "--check"])));
}

#[test]
fn the_lints_find_nothing() {
    let arguments = ["clippy", "--release", "--locked", "--workspace", "--all-targets", "--quiet"];
    check("cargo clippy", run(cargo(&arguments).args(["--", "-D", "warnings"])));
}

#[test]
fn licences_sources_and_doubles_are_as_allowed() {
    let mut deny = Command::new(cargo_deny());
    deny.args(["--locked", "--config", ".deny.toml", "check", "bans", "licenses", "sources"]);
    check("cargo deny", run(&mut deny));
}

/// The tool, installed under the target directory when it is not there yet: about a minute, once.
///
/// Built without optimisation: it runs for a second. Rejected: the prebuilt releases in other
/// package indexes, which are too old to read the workspace.
fn cargo_deny() -> PathBuf {
    let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cargo-deny-{CARGO_DENY}"));
    let tool = home.join("bin/cargo-deny");
    if !tool.exists() {
        let mut install = cargo(&["install", "cargo-deny", "--locked", "--debug", "--quiet"]);
        install.args(["--version", CARGO_DENY, "--root"]).arg(&home);
        install.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_TARGET_DIR", home.join("build"));
        check("cargo install cargo-deny", run(&mut install));
        let _ = std::fs::remove_dir_all(home.join("build"));
    }
    tool
}
