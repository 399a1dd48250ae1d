//! `tokentriage demo`: what it prints can be pasted into a shell, and shows what it says.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::support::{TOKENTRIAGE, until_within};

/// The last line that it prints begins so.
const LAST: &str = "Ctrl-C";

/// The running demonstration; killed when a test fails.
struct Demo {
    child: Child,
    printed: Vec<String>,
}

impl Demo {
    fn start() -> Demo {
        let mut command = Command::new(TOKENTRIAGE);
        command.arg("demo").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut printed = Vec::new();
        for line in out.lines() {
            printed.push(line.expect("text"));
            if printed.last().is_some_and(|line| line.starts_with(LAST)) {
                return Demo { child, printed };
            }
        }
        panic!("demo ended with {:?} after {printed:#?}", child.wait());
    }

    /// The rest of the line that begins with `name`.
    fn value(&self, name: &str) -> &str {
        let mut lines = self.printed.iter().filter_map(|line| line.strip_prefix(name));
        lines.next().unwrap_or_else(|| panic!("no line {name:?} in {:#?}", self.printed)).trim()
    }

    /// The lines for a shell, in order.
    fn commands(&self) -> Vec<&str> {
        let lines = self.printed.iter().map(|line| line.trim());
        lines.filter(|line| line.starts_with("curl ") || line.starts_with("for ")).collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shell(line: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("NO_PROXY", "127.0.0.1");
    let output = command.output().expect("the system has a shell");
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Each printed line in turn, and what its output must hold and how often.
fn check(demo: &Demo, wanted: &[&[(&str, usize)]]) {
    let commands = demo.commands();
    assert_eq!(commands.len(), wanted.len(), "lines for a shell: {commands:#?}");
    for (line, parts) in commands.iter().zip(wanted) {
        let output = shell(line);
        for (part, times) in *parts {
            assert_eq!(output.matches(part).count(), *times, "{part:?} in the output of {line}:\n{output}");
        }
    }
}

#[test]
fn what_demo_prints_can_be_pasted_and_shows_what_it_says() {
    let mut demo = Demo::start();
    let tree = demo.printed.join("\n");
    for part in ["__global", "org:acme", "team:ml", "user:dev1", "tt_vk_"] {
        assert!(tree.contains(part), "{part} in {tree}");
    }
    check(
        &demo,
        &[
            &[("\"choices\"", 1), ("\"usage\"", 1), ("\"error\"", 0)],
            &[("data: [DONE]", 1), ("\"error\"", 0)],
            &[("\"limits\":[", 1), ("\"kid\":\"vk_", 1), ("\"__global\"]", 1)],
            &[("\n200\n", 3), ("\n429\n", 1), ("\"refused_by\"", 1)],
        ],
    );
    let config = PathBuf::from(demo.value("config"));
    assert!(config.is_file(), "{} can be read", config.display());
    let kill = Command::new("kill").args(["-INT", &demo.child.id().to_string()]).status();
    assert!(kill.expect("the system has kill").success());
    let status = until_within(Duration::from_secs(10), "demo ends", || {
        demo.child.try_wait().expect("a child of ours")
    });
    assert!(status.success(), "demo ended with {status}");
    assert!(!config.exists(), "{} is still there", config.display());
}
