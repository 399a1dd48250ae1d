//! The gateway as a child process: its config written from the scenario, its keys minted through its management API.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::Scenario;
use super::children::Process;
use super::client::Client;
use super::file::{Governance, Limit};
use super::views::{Key, Management};
use crate::bounds;

/// Which gateway, and what it runs on.
#[derive(Clone, Debug)]
pub struct Binary {
    /// The command.
    pub path: PathBuf,
    /// Its worker cores; `None` takes all that it may use.
    pub workers: Option<usize>,
    /// The cores that it may use; empty for all.
    pub cores: Vec<usize>,
}

/// A running gateway, ended when dropped.
pub struct Gateway {
    process: Process,
    /// Where clients connect.
    pub address: SocketAddr,
    /// Its management API.
    pub management: Management,
    /// What its `--version` says.
    pub version: Option<String>,
}

impl Gateway {
    /// Starts it in front of `backend` and waits until it is ready.
    ///
    /// # Errors
    /// In words: it cannot be started, refuses the config, or is not ready in time; with the end of its log.
    pub fn start(binary: &Binary, scenario: &Scenario, backend: SocketAddr) -> Result<Gateway, String> {
        // The child runs in its own folder, where a path that is relative to this one would lead nowhere.
        let path = std::path::absolute(&binary.path)
            .map_err(|error| format!("{}: {error}", binary.path.display()))?;
        let version = version(&path)?;
        let home = tempfile::Builder::new().prefix("loadtest-").tempdir();
        let home = home.map_err(|error| format!("a temporary folder cannot be made: {error}"))?;
        let (address, admin) = (free_address()?, free_address()?);
        let config = home.path().join("gateway.yaml");
        let document = document(scenario, binary, backend, address, admin, home.path());
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        // JSON is YAML.
        write(&config, &document.to_string())?;
        let log_path = home.path().join("gateway.log");
        let log = File::create(&log_path).map_err(|error| format!("{}: {error}", log_path.display()))?;
        let second = log.try_clone().map_err(|error| error.to_string())?;
        let token = token()?;
        let mut command = Command::new(&path);
        command.arg("serve").arg("--config").arg(&config).current_dir(home.path());
        command.env("TT_ADMIN_TOKEN", &token);
        command.stdin(Stdio::null()).stdout(second).stderr(log);
        let process = Process::start(command, home, &binary.cores)?;
        let management = Management::new(admin, &admin.to_string(), token);
        let gateway = Gateway { process, address, management, version };
        gateway.wait_until_ready()?;
        Ok(gateway)
    }

    fn wait_until_ready(&self) -> Result<(), String> {
        let end = Instant::now() + bounds::GATEWAY_PATIENCE;
        loop {
            if let Some(status) = self.process.ended() {
                return Err(format!("the gateway ended at once with {status}:\n{}", self.log_end()));
            }
            let mut client = Client::new(self.address, &self.address.to_string());
            if client.ask("GET", "/tt/v1/readyz", &[], "").is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if Instant::now() >= end {
                let patience = bounds::GATEWAY_PATIENCE.as_secs();
                return Err(format!("the gateway is not ready after {patience} s:\n{}", self.log_end()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Mints the scenario's keys, dealt to its users in turn.
    ///
    /// # Errors
    /// In words: the management API refuses.
    pub fn mint(&mut self, scenario: &Scenario, mut progress: impl FnMut(usize)) -> Result<Vec<Key>, String> {
        let users = users(&scenario.governance);
        let mint = |number: usize| {
            progress(number);
            self.management.mint(&users[number % users.len()])
        };
        (0..scenario.keys.count).map(mint).collect()
    }

    /// Whether it runs; else what its log says at the end.
    ///
    /// # Errors
    /// In words: it has ended, or one of its threads has panicked.
    pub fn is_well(&self) -> Result<(), String> {
        if let Some(status) = self.process.ended() {
            return Err(format!("the gateway ended during the run with {status}:\n{}", self.log_end()));
        }
        match self.log().contains("panicked at") {
            true => Err(format!("the gateway panicked during the run:\n{}", self.log_end())),
            false => Ok(()),
        }
    }

    /// Ends it as an operator does. It looks at itself then: whatever is still held with no exchange under way was forgotten.
    ///
    /// # Errors
    /// In words, with the end of its log: it does not end in time, ends with an error, or says that something leaked.
    pub fn end(&self) -> Result<(), String> {
        let patience = bounds::GATEWAY_PATIENCE;
        let wrong = match self.process.end(patience) {
            None => format!("the gateway was told to end and has not after {} s", patience.as_secs()),
            Some(status) if !status.success() => {
                format!("the gateway was told to end and ended with {status}")
            }
            Some(_) if self.log().contains("leaked:") => {
                "the gateway held something when all was over".into()
            }
            Some(_) => return Ok(()),
        };
        Err(format!("{wrong}:\n{}", self.log_end()))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.process.home.join("gateway.log")).unwrap_or_default()
    }

    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

/// An address that nobody listens on now.
fn free_address() -> Result<SocketAddr, String> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|probe| probe.local_addr());
    probe.map_err(|error| format!("no free port on 127.0.0.1: {error}"))
}

/// A secret that nobody guesses.
fn token() -> Result<String, String> {
    let mut bytes = [0; 24];
    let read =
        File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    read.map_err(|error| format!("/dev/urandom: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn version(path: &Path) -> Result<Option<String>, String> {
    let output = Command::new(path).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        format!("{}: {error}; --gateway takes the path of the gateway's binary", path.display())
    })?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok((output.status.success() && !text.is_empty()).then_some(text))
}

/// The ids of all users, in order.
fn users(tree: &Governance) -> Vec<String> {
    let mut users = Vec::new();
    for org in 0..tree.orgs {
        for team in 0..tree.teams_an_org {
            users.extend((0..tree.users_a_team).map(|user| format!("org:o{org}/team:t{team}/user:u{user}")));
        }
    }
    users
}

/// The gateway's config.
fn document(
    scenario: &Scenario,
    binary: &Binary,
    backend: SocketAddr,
    address: SocketAddr,
    admin: SocketAddr,
    home: &Path,
) -> Value {
    let tree = &scenario.governance;
    let teams: Vec<String> = (0..tree.teams_an_org).map(|team| format!("t{team}")).collect();
    let names: Vec<String> = (0..tree.users_a_team).map(|user| format!("u{user}")).collect();
    let users: Map<String, Value> = teams.iter().map(|team| (team.clone(), json!(names))).collect();
    let tenants: Vec<Value> = (0..tree.orgs)
        .map(|org| json!({ "org": format!("o{org}"), "teams": teams, "users": users }))
        .collect();
    let limits: Vec<Value> = tree.limits.iter().map(|limit| limit_of(limit.get_ref())).collect();
    let mut governance =
        json!({ "enabled": tree.enabled, "timezone": "UTC", "tenants": tenants, "limits": limits });
    if tree.key_nodes {
        governance["key_nodes"] = json!(true);
    }
    let models: Map<String, Value> =
        [(scenario.model.clone(), json!({ "input": tree.input_price, "output": tree.output_price }))]
            .into_iter()
            .collect();
    json!({
        "listen": address,
        "admin": { "listen": admin, "token_env": "TT_ADMIN_TOKEN" },
        "workers": binary.workers.map_or(json!("auto"), |workers| json!(workers)),
        "data_dir": home.join("data"),
        "require_key": "on",
        "providers": [{ "id": "local", "api": "openai", "base_urls": [format!("http://{backend}")] }],
        "routes": [{ "model": scenario.model, "provider": "local" }],
        "prices": { "models": models },
        "governance": governance,
    })
}

/// A limit as the gateway's config has it.
fn limit_of(limit: &Limit) -> Value {
    let mut value = json!({ "id": limit.id, "type": limit.kind.name() });
    let mut set = |name: &str, given: Option<Value>| {
        if let Some(given) = given {
            value[name] = given;
        }
    };
    let (level, node) = (limit.attach.level.as_ref(), limit.attach.node.as_ref());
    set("attach", level.map(|level| json!({ "level": level })).or(node.map(|node| json!({ "node": node }))));
    set("amount", limit.amount.map(|amount| json!(amount)));
    set("amount_usd", limit.amount_usd.map(|amount| json!(amount)));
    set("period", limit.period.as_ref().map(|period| json!(period)));
    set("algorithm", limit.algorithm.map(|algorithm| json!(algorithm.name())));
    let admit = |admit| match admit {
        super::file::Admit::WhileUnder => json!("while_under"),
        super::file::Admit::IfFits => json!("if_fits"),
    };
    set("admit", limit.admit.map(admit));
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_has_what_the_scenario_says() {
        let scenario = Scenario::find("held_budget").expect("a built-in scenario");
        let binary = Binary { path: "x".into(), workers: None, cores: Vec::new() };
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let config = document(&scenario, &binary, at, at, at, Path::new("/tmp/x"));
        let limit = &config["governance"]["limits"][0];
        assert_eq!(
            limit,
            &json!({ "id": "team_budget", "type": "budget_usd", "attach": { "level": "team" }, "amount_usd": 1.5,
                     "period": "month", "admit": "if_fits" })
        );
        assert_eq!(config["governance"]["tenants"].as_array().map(Vec::len), Some(1));
        assert_eq!(config["governance"]["tenants"][0]["users"]["t0"].as_array().map(Vec::len), Some(8));
        assert_eq!(users(&scenario.governance)[7], "org:o0/team:t0/user:u7");
        assert_eq!(config["workers"], "auto");
    }

    #[test]
    fn every_scenario_has_users_for_its_keys() {
        for (name, _) in super::super::BUILT_IN {
            let scenario = Scenario::find(name).expect(name);
            let users = users(&scenario.governance);
            assert!(users.len() <= scenario.keys.count, "{name}: {} users", users.len());
        }
    }
}
