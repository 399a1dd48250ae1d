//! Scripts that drive an SDK: each runs one scenario against a gateway and prints what it saw as JSON.

use std::process::Command;

use serde_json::Value;

use super::support::rig::Rig;
use super::support::{kept, node, python, repository};

/// A script in `tests/clients`, by what its SDK runs on.
#[derive(Clone, Copy, Debug)]
pub enum Script {
    Python(&'static str),
    Node(&'static str),
}

impl Script {
    /// Runs one scenario with this credential and nothing else of this process's environment; the facts that it saw.
    pub fn run(self, rig: &Rig, scenario: &str, credential: &str) -> Value {
        let folder = repository().join("tests/clients");
        let mut command = match self {
            Script::Python(file) => {
                let mut command =
                    Command::new(python::environment("clients", &folder.join("requirements.txt")));
                command.arg(folder.join(file));
                command
            }
            Script::Node(file) => {
                let folder = folder.join("node");
                let packages = node::packages("clients", &folder);
                let mut command = Command::new("node");
                command.arg(folder.join(file)).env_clear().env("NODE_PATH", packages);
                command
            }
        };
        if matches!(self, Script::Python(_)) {
            command.env_clear().env("PYTHONDONTWRITEBYTECODE", "1");
        }
        // What a person has set up (other base URLs, proxies, tracing, credentials in files) is not theirs to find.
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", kept("no-one"));
        command.env("TT_URL", format!("http://127.0.0.1:{}", rig.gateway.port)).env("TT_KEY", credential);
        let output = command.arg(scenario).output().expect("the interpreter starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{self:?}, {scenario}: {errors}");
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{self:?}, {scenario}: {error}: {errors}"))
    }
}

/// Asserts that each of the facts `wanted` stands among `facts`.
pub fn compare(what: &str, facts: &Value, wanted: &Value) {
    for (name, wanted) in wanted.as_object().expect("facts by name") {
        assert_eq!(&facts[name], wanted, "{what}: {name} in {facts:#}");
    }
}
