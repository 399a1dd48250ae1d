//! The load generator's scenarios against the built gateway: short runs of each, with every counter compared, and runs whose
//! comparison must fail. Nothing depends on how long anything takes.

#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use loadtest::backend::{Backend, BackendOptions, Latency};
use loadtest::run::Target;
use loadtest::scenario::{BUILT_IN, Changes, Existing, Outcome, Own, Scenario, Settings, Where, run};
use serde_json::json;

use support::TOKENTRIAGE;
use support::gateway::{DEV1, Gateway, Key, chat_body, config};
use support::rig::all_types;

/// A built-in scenario, shortened to less than a second, in front of the gateway under test.
fn short(name: &str) -> Settings {
    let mut scenario = Scenario::find(name).expect(name);
    let is_ramp = scenario.ramp.is_some();
    let changes = Changes {
        duration: Some(Duration::from_millis(if is_ramp { 100 } else { 500 })),
        warm_up: Some(Duration::from_millis(100)),
        keys: Some(scenario.keys.count.min(200)),
        steps: is_ramp.then_some(6),
        ..Changes::default()
    };
    scenario.change(&changes).expect(name);
    Settings {
        scenario,
        target: Where::Own(Own { path: TOKENTRIAGE.into(), workers: Some(2), cores: Vec::new() }),
        threads: 1,
        cores: Vec::new(),
        backend_cores: Vec::new(),
        ceiling: Duration::from_millis(50),
        seed: 7,
    }
}

fn outcome(settings: &Settings) -> Outcome {
    run(settings, &mut |_| ()).unwrap_or_else(|error| panic!("{}: {error}", settings.scenario.name))
}

/// Runs it; every counter must be what clients saw.
fn passes(settings: &Settings) -> Outcome {
    let outcome = outcome(settings);
    assert!(outcome.passed(), "{}", outcome.table());
    assert!(outcome.report.tally.answers() > 0, "{}", outcome.table());
    outcome
}

/// What a scenario is made for must be seen in its run.
fn check(file: &str) {
    let settings = short(file);
    let name = settings.scenario.name.as_str();
    let outcome = passes(&settings);
    let table = outcome.table();
    let seen = outcome.report.ledger.total();
    assert!(outcome.counters().is_some_and(|counters| counters > 2), "{table}");
    assert_eq!(seen.unreported, 0, "{table}");
    match name {
        "deny_storm" => assert!(seen.refused > seen.admitted && seen.admitted == 200, "{table}"),
        "held_budget" => assert!(table.contains("refused by team_budget"), "{table}"),
        "refused" | "overspent" => assert!(seen.refused > seen.admitted && seen.admitted > 0, "{table}"),
        "stream" | "streams" => assert!(outcome.report.tally.streams > 0, "{table}"),
        "churn" => {
            let tally = &outcome.report.tally;
            assert!(tally.connects >= seen.admitted + seen.uncertain, "{table}");
        }
        "ramp" => {
            assert_eq!(outcome.json()["ramp"]["goals"].as_array().map(Vec::len), Some(4), "{table}");
            assert_eq!(outcome.json()["ramp"]["steps"].as_array().map(Vec::len), Some(6), "{table}");
        }
        _ => assert_eq!(seen.refused, 0, "{table}"),
    }
    let scenario = format!("scenario    {name}: ");
    for part in [scenario.as_str(), "kernel ", "commit ", "counters are what clients saw"] {
        assert!(table.contains(part), "{part} in {table}");
    }
    let json = outcome.json();
    assert_eq!(json["check"]["passed"], true, "{json}");
    assert_eq!(json["scenario"]["name"], name);
    assert!(
        json["driven"]["version"].as_str().is_some_and(|version| version.starts_with("tokentriage")),
        "{json}"
    );
    // Unknown where the machine gave the backend no moment.
    assert!(json["backend"]["ceiling_per_s"].as_f64().is_none_or(|rate| rate > 0.0), "{json}");
}

#[test]
fn every_scenario_runs_and_every_count_is_what_clients_saw() {
    check_all(&BUILT_IN.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>());
}

/// Some at a time, each of these beside the others.
fn check_all(files: &[String]) {
    std::thread::scope(|scope| {
        for files in files.chunks(4) {
            scope.spawn(|| files.iter().for_each(|file| check(file)));
        }
    });
}

/// What the command that is shipped is optimised by (`ship/build`) must be what it is taken for.
#[test]
fn every_scenario_of_the_training_runs_and_every_count_is_what_clients_saw() {
    let folder = std::fs::read_dir(support::repository().join("ship/training")).expect("the folder");
    let files = folder.map(|file| file.expect("readable").path().display().to_string()).collect::<Vec<_>>();
    assert!(files.len() >= 7, "{files:?}");
    check_all(&files);
}

#[test]
fn without_governance_the_usage_is_still_compared() {
    let mut settings = short("deny_storm");
    settings.scenario.governance.enabled = false;
    let outcome = passes(&settings);
    assert_eq!(outcome.report.ledger.total().refused, 0, "{}", outcome.table());
    // Requests and tokens of each of the four keys.
    assert_eq!(outcome.counters(), Some(8), "{}", outcome.table());
}

#[test]
fn clients_that_give_up_widen_the_figures_by_as_many() {
    let mut settings = short("steady");
    settings.scenario.backend.latency = Latency::Uniform(Duration::ZERO, Duration::from_millis(400));
    settings.scenario.load.timeout = Duration::from_millis(200);
    settings.scenario.load.rate = Some(100.0);
    let outcome = passes(&settings);
    let table = outcome.table();
    assert!(outcome.report.ledger.total().uncertain > 0, "{table}");
    assert!(table.contains("timed_out"), "{table}");
}

#[test]
fn a_config_that_the_gateway_refuses_is_shown_in_its_own_words() {
    let text = "about = \"x\"\n[load]\npattern = \"closed\"\n[governance]\nlimits = [{ id = \"never\", attach = { level = \"user\" }, \
                type = \"rpm\", amount = 1, period = \"fortnight\" }]\n";
    let scenario = Scenario::read("wrong", "wrong.toml", text).expect("the gateway knows periods, not this");
    let error = run(&Settings { scenario, ..short("steady") }, &mut |_| ()).expect_err("no such period");
    assert!(error.contains("the gateway ended at once") && error.contains("fortnight"), "{error}");
}

/// `steady`, shortened, in front of what `tests/load/NAME` makes of the gateway under test.
fn with_stand_in(name: &str) -> (tempfile::TempDir, Settings) {
    let folder = tempfile::tempdir().expect("a folder");
    let link = |name: &str, to: &Path| {
        let path = folder.path().join(name);
        std::os::unix::fs::symlink(to, &path).expect("a writable folder");
        path
    };
    link("gateway", Path::new(TOKENTRIAGE));
    let path = link(name, &support::repository().join("tests/load").join(name));
    let mut settings = short("steady");
    settings.target = Where::Own(Own { path, workers: Some(1), cores: Vec::new() });
    (folder, settings)
}

#[test]
fn a_gateway_that_is_killed_is_the_reason_that_is_given() {
    let (_folder, mut settings) = with_stand_in("killed_soon");
    // It is killed before this is over.
    settings.scenario.load.duration = Duration::from_millis(1500);
    settings.scenario.load.grace = Duration::ZERO;
    let error = run(&settings, &mut |_| ()).expect_err("it was killed");
    assert!(error.contains("the gateway ended"), "{error}");
}

#[test]
fn a_gateway_that_ends_with_something_held_has_failed() {
    let (_folder, settings) = with_stand_in("leaks");
    let error = run(&settings, &mut |_| ()).expect_err("it leaked");
    assert!(error.contains("held something") && error.contains("holds=1"), "{error}");
}

/// A backend and a gateway that are already there, as for anybody.
struct There {
    _backend: Backend,
    gateway: Gateway,
    key: Key,
}

impl There {
    fn start() -> There {
        let backend = Backend::start(BackendOptions::default()).expect("a backend on a free port");
        let gateway = Gateway::start(&config(backend.addr().port(), all_types(1_000_000_000)));
        let key = gateway.mint(DEV1, &[]);
        There { _backend: backend, gateway, key }
    }

    /// Half a second of load for its key.
    fn settings(&self) -> Settings {
        let text = "about = \"x\"\n[load]\npattern = \"open\"\nrate = 200\nduration = \"500ms\"\nwarm_up = \"100ms\"\nmodel = \"m1\"\n";
        let url = |port: u16| Target::parse(&format!("http://127.0.0.1:{port}")).expect("a URL");
        Settings {
            scenario: Scenario::read("there", "there.toml", text).expect("a scenario"),
            target: Where::Existing(Box::new(Existing {
                target: url(self.gateway.port),
                credentials: vec![self.key.credential.clone()],
                headers: Vec::new(),
                management: Some((url(self.gateway.admin_port), "root-token-for-tests".into())),
            })),
            ..short("steady")
        }
    }
}

#[test]
fn what_is_there_is_driven_and_checked_from_where_its_counters_stand() {
    let there = There::start();
    let before = there.gateway.chat(&there.key, chat_body());
    assert_eq!(before.status, 200, "{}", before.text());
    for _ in 0..2 {
        let outcome = passes(&there.settings());
        // Six caps but the one of money, whose prices are not known to a client, and two figures of usage.
        assert_eq!(outcome.counters(), Some(7), "{}", outcome.table());
        assert_eq!(outcome.json()["check"]["left_out"], json!({ "prices that are not known here": 1 }));
    }
}

#[test]
fn a_request_of_somebody_else_is_a_difference() {
    let there = There::start();
    let settings = there.settings();
    let mut intruded = false;
    let outcome = run(&settings, &mut |_| {
        if !std::mem::replace(&mut intruded, true) {
            assert_eq!(there.gateway.chat(&there.key, chat_body()).status, 200);
        }
    });
    let outcome = outcome.expect("it ran");
    assert!(intruded && !outcome.passed(), "{}", outcome.table());
    let seen = outcome.report.ledger.total().admitted;
    let quota =
        outcome.differences().iter().find(|one| one.cap.contains("quota_requests")).expect("the quota");
    assert_eq!((quota.counted.clone(), quota.seen.clone()), ((seen + 1).to_string(), seen.to_string()));
    assert_eq!(quota.key, there.key.kid);
    let usage = outcome.differences().iter().find(|one| one.cap == "usage (requests)").expect("the usage");
    assert_eq!(usage.counted, (seen + 1).to_string());
    assert!(outcome.table().contains("FAILED"), "{}", outcome.table());
    assert_eq!(outcome.json()["check"]["passed"], false);
}

#[test]
fn a_server_that_is_no_gateway_is_driven_and_said_to_be_unchecked() {
    let backend = Backend::start(BackendOptions::default()).expect("a backend on a free port");
    let existing = |credentials: Vec<String>| {
        let address: SocketAddr = backend.addr();
        Where::Existing(Box::new(Existing {
            target: Target::parse(&format!("http://{address}")).expect("a URL"),
            credentials,
            headers: Vec::new(),
            management: None,
        }))
    };
    for credentials in [Vec::new(), vec!["sk-of-somebody".to_owned()]] {
        let outcome = passes(&Settings { target: existing(credentials), ..short("churn") });
        assert_eq!(outcome.counters(), None);
        assert!(outcome.table().contains("nothing was checked"), "{}", outcome.table());
    }
}
