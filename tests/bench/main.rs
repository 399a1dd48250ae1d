//! The scripts under `bench` that start real processes: their own tests, which are Python's.
//!
//! They take seconds and measure nothing. What needs a peer that is not installed is skipped, and says how to get it.

use std::path::Path;
use std::process::Command;

#[test]
fn the_scripts_that_measure_pass_their_own_tests() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("python3");
    command.args(["-m", "unittest", "discover", "--verbose", "--start-directory", "bench/tests"]);
    // A checkout stays as it was.
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(repository);
    let output = command.output().expect("the system has python3");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", output.status);
    // Discovery that finds nothing is no success.
    let ran = said.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(ran >= 20, "only {ran} tests ran:\n{said}");
}
