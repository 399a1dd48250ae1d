//! What the whole-system tests share: the repository's folders, Python and Node with their packages, and
//! subprocesses that are always ended.
//!
//! Every target includes this module by path and uses a part of it, hence `dead_code`.
#![allow(dead_code)]

pub mod backend;
pub mod client;
pub mod gateway;
pub mod node;
pub mod python;
pub mod rig;
pub mod wire;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The command under test, built by cargo in the profile of the test run.
pub const TOKENTRIAGE: &str = env!("CARGO_BIN_EXE_tokentriage");

/// The top folder of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder under the target directory that outlives one run: tools and environments are kept here.
pub fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Asks `ready` until it gives a value; panics with `what` when it has not within ten seconds.
pub fn until<T>(what: &str, ready: impl FnMut() -> Option<T>) -> T {
    until_within(Duration::from_secs(10), what, ready)
}

/// [`until`] with a bound of its own.
pub fn until_within<T>(bound: Duration, what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + bound;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < end, "not within {bound:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
