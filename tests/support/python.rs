//! Python virtual environments under the target directory, made by the test that needs one.
//!
//! An environment is named by its requirements file: as long as the pinned lines are the same it
//! is used again, and when they change it is made anew. Rejected: the machine's own site-packages,
//! which another program may change between two runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use super::kept;

/// One environment is made at a time, whichever test asks first.
static MAKING: Mutex<()> = Mutex::new(());

/// The interpreter of an environment that has exactly the packages of `requirements`.
///
/// # Panics
/// With the output of the failing command when the environment cannot be made.
pub fn environment(name: &str, requirements: &Path) -> PathBuf {
    let _alone = MAKING.lock().unwrap_or_else(|broken| broken.into_inner());
    let home = kept(&format!("python-{name}"));
    let python = home.join("bin/python");
    let stamp = home.join("requirements.done");
    let wanted = std::fs::read_to_string(requirements).expect("the requirements file is readable");
    if std::fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) && python.exists() {
        return python;
    }
    let _ = std::fs::remove_dir_all(&home);
    succeed(
        "a virtual environment (the system needs python3 with its venv module)",
        Command::new("python3").args(["-m", "venv"]).arg(&home),
    );
    succeed(
        "the pinned packages (the system needs to reach a package index, or a full pip cache)",
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--retries", "5", "--only-binary", ":all:", "--no-deps", "-r"])
            .arg(requirements),
    );
    std::fs::write(&stamp, wanted).expect("the environment's folder is writable");
    python
}

/// Runs `command` to its end; panics with what it printed when it fails.
pub(super) fn succeed(what: &str, command: &mut Command) {
    let output =
        command.output().unwrap_or_else(|error| panic!("could not make {what}: {command:?}: {error}"));
    assert!(
        output.status.success(),
        "could not make {what}: {command:?} ended with {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}
