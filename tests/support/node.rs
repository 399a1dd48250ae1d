//! Node's packages under the target directory, installed by the test that needs them.
//!
//! They are named by their lock file: as long as it is the same they are used again, and when it changes they are
//! installed anew. No package's own script runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use super::kept;
use super::python::succeed;

/// They are installed once, whichever test asks first.
static MAKING: Mutex<()> = Mutex::new(());

/// The `node_modules` with exactly the packages of the `package-lock.json` in `folder`.
///
/// # Panics
/// With the output of the failing command when they cannot be installed.
pub fn packages(name: &str, folder: &Path) -> PathBuf {
    let _alone = MAKING.lock().unwrap_or_else(|broken| broken.into_inner());
    let home = kept(&format!("node-{name}"));
    let stamp = home.join("packages.done");
    let wanted = std::fs::read_to_string(folder.join("package-lock.json")).expect("a readable lock file");
    let modules = home.join("node_modules");
    if std::fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) && modules.exists() {
        return modules;
    }
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(&home).expect("the target directory is writable");
    for file in ["package.json", "package-lock.json"] {
        std::fs::copy(folder.join(file), home.join(file)).expect("a copy of the package files");
    }
    succeed(
        "the pinned packages (the system needs node and npm, and to reach a package index or a full npm cache)",
        Command::new("npm")
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"])
            .current_dir(&home),
    );
    std::fs::write(&stamp, wanted).expect("the folder is writable");
    modules
}
