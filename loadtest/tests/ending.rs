//! What `scenario` has started ends with it, however it ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Waits until `ready` gives a value.
fn until<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < end, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn scenario(gateway: &Path, temporary: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadtest"));
    command.args(["scenario", "steady", "--gateway"]).arg(gateway);
    command.env("TMPDIR", temporary).env("NEVER_READY", temporary.join("pid"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the command starts")
}

fn assert_nothing_is_left(temporary: &Path) {
    let names = std::fs::read_dir(temporary).expect("the folder");
    let left: Vec<PathBuf> = names.map(|entry| entry.expect("an entry").path()).collect();
    assert!(left.iter().all(|path| path.ends_with("pid")), "left behind: {left:?}");
}

#[test]
fn a_signal_ends_the_gateway_too() {
    for signal in ["INT", "TERM"] {
        let temporary = tempfile::tempdir().expect("a folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/never_ready");
        let mut command = scenario(&script, temporary.path());
        let pid = until("the gateway has started", || {
            let text = std::fs::read_to_string(temporary.path().join("pid")).ok()?;
            text.strip_suffix('\n').map(str::to_owned)
        });
        let child = PathBuf::from(format!("/proc/{pid}"));
        assert!(child.exists());
        let mut kill = Command::new("kill");
        kill.arg(format!("-{signal}")).arg(command.id().to_string());
        assert!(kill.status().expect("the system has kill").success());
        let status = until("the command ends", || command.try_wait().expect("a child of ours"));
        assert_eq!(status.code(), Some(130), "SIG{signal}");
        assert!(!child.exists(), "SIG{signal} left the gateway running");
        assert_nothing_is_left(temporary.path());
    }
}

#[test]
fn a_gateway_that_ends_at_once_is_an_error_with_its_log() {
    let temporary = tempfile::tempdir().expect("a folder");
    let command = scenario(Path::new("/bin/echo"), temporary.path());
    let Output { status, stderr, .. } = command.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the gateway ended at once") && said.contains("serve --config"), "{said}");
    assert_nothing_is_left(temporary.path());
}

#[test]
fn a_gateway_that_is_not_there_is_an_error_that_says_what_to_give() {
    let temporary = tempfile::tempdir().expect("a folder");
    let command = scenario(Path::new("/no/such/gateway"), temporary.path());
    let Output { status, stderr, .. } = command.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("/no/such/gateway: ") && said.contains("--gateway takes the path"), "{said}");
    assert_nothing_is_left(temporary.path());
}
