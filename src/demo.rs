//! `demo`: a model backend and the gateway in front of it, on the example's tenancy, ready to be tried.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use control::config::{Config, Credentials};
use control::keys::{self, MintRequest};
use control::start::{StartError, prepare};
use control::store::Store;
use engine::{Level, NodeId, Ruleset};
use jiff::Timestamp;
use loadtest::backend::{Backend, BackendOptions, Pace};

use crate::arguments::DemoArguments;
use crate::log;
use crate::serve::{Running, signals, wait};

/// What the demonstration runs on.
const EXAMPLE: &str = include_str!("../examples/acme.yaml");
/// The example's own addresses, which the demonstration replaces.
const EXAMPLE_LISTEN: &str = "listen: 127.0.0.1:8790";
const EXAMPLE_BACKEND: &str = "http://127.0.0.1:8000";
/// Who holds the key that is printed.
const OWNER: &str = "org:acme/team:ml/user:dev1";

/// Runs the demonstration until it is told to stop.
pub fn run(_arguments: DemoArguments) -> Result<ExitCode, StartError> {
    log::start_quietly();
    let mut signals = signals()?;
    let home =
        tempfile::tempdir().map_err(|error| StartError::new(format!("no temporary folder: {error}")))?;
    let backend = Backend::start(BackendOptions {
        models: ["gpt-4o", "gpt-4o-mini", "trial-small"].map(String::from).into(),
        pace: Pace { first_token: Duration::from_millis(150), tokens_per_second: 25.0 },
        ..BackendOptions::default()
    })
    .map_err(|error| StartError::new(format!("the demo's model backend cannot start: {error}")))?;
    let path = home.path().join("acme.yaml");
    let text = EXAMPLE
        .replace(EXAMPLE_LISTEN, &format!("listen: {}", free_address()))
        .replace(EXAMPLE_BACKEND, &format!("http://{}", backend.addr()));
    std::fs::write(&path, text)
        .map_err(|error| StartError::new(format!("{}: cannot be written: {error}", path.display())))?;
    let key = mint(&path)?;
    let prepared = prepare(&path)?;
    let ruleset = prepared.in_force.ruleset.clone();
    let running = Running::start(prepared)?;
    print!("{}", introduction(&path, running.address(), backend.addr(), &ruleset, &key));
    wait(&mut signals, &running);
    running.stop()?;
    backend.stop();
    Ok(ExitCode::SUCCESS)
}

/// The example's address when nobody uses it, else any.
fn free_address() -> SocketAddr {
    let usual = SocketAddr::from(([127, 0, 0, 1], 8790));
    match TcpListener::bind(usual) {
        Ok(_) => usual,
        Err(_) => SocketAddr::from(([127, 0, 0, 1], 0)),
    }
}

fn mint(path: &Path) -> Result<String, StartError> {
    let config = Config::load(path, Credentials::Needed)
        .map_err(|rejected| StartError::config(path, &rejected))?
        .config;
    let mut store = Store::open(&config.data_dir)?;
    let request =
        MintRequest { owner: OWNER.to_owned(), name: Some("demo".to_owned()), ..MintRequest::default() };
    let minted = keys::mint(&mut store, request, "demo", Timestamp::now())?;
    Ok(minted.credential.expose().to_owned())
}

fn introduction(
    config: &Path,
    gateway: SocketAddr,
    backend: SocketAddr,
    ruleset: &Ruleset,
    key: &str,
) -> String {
    let url = format!("http://{gateway}");
    let chat = |model: &str, more: &str| {
        format!(
            "{url}/v1/chat/completions -H \"Authorization: Bearer {key}\" -H 'Content-Type: application/json' \
             -d '{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]{more}}}'"
        )
    };
    format!(
        "gateway   {url}\nbackend   http://{backend}, a stand-in that writes 25 tokens a second\n\
         config    {config}\n\nThe tree, and the caps on it:\n\n{tree}\nA key of {OWNER}:\n\n  {key}\n\n\
         Paste these into another terminal.\n\n\
         # an answer\ncurl -s {answer}\n\n\
         # a stream, event by event\ncurl -sN {stream}\n\n\
         # every cap that binds this key, with what is left of it\n\
         curl -s {url}/tt/v1/me -H \"Authorization: Bearer {key}\"\n\n\
         # three trial requests a day: the fourth is a 429 that names its cap\n\
         for i in 1 2 3 4; do curl -s -w '\\n%{{http_code}}\\n' {trial}; done\n\n\
         Ctrl-C stops it; what it counted is dropped with its temporary folder.\n",
        config = config.display(),
        tree = tree(ruleset),
        answer = chat("gpt-4o", ""),
        stream = chat("gpt-4o", ",\"stream\":true"),
        trial = chat("trial-small", ",\"max_tokens\":4"),
    )
}

/// The tree, a node a line with its caps behind it.
fn tree(ruleset: &Ruleset) -> String {
    let levels = [Level::Org, Level::Team, Level::User];
    let mut nodes: Vec<NodeId> =
        levels.iter().flat_map(|level| ruleset.tree().nodes_at(*level)).cloned().collect();
    nodes.sort();
    nodes.insert(0, NodeId::global());
    let instances = ruleset.all_instances();
    let mut out = String::new();
    for node in &nodes {
        let last = node.as_str().rsplit('/').next().unwrap_or_default();
        let place = format!("{}{last}", "  ".repeat(usize::from(node.depth())));
        let caps: Vec<String> = instances
            .iter()
            .filter(|instance| instance.node == *node)
            .map(|instance| {
                let limit = &instance.limit;
                let period = limit.window.period_text();
                let per = if period.is_empty() { String::new() } else { format!("/{period}") };
                format!("{} {} {}{per}", limit.id, limit.kind.figure(instance.amount), limit.kind.unit())
            })
            .collect();
        for (index, cap) in caps.iter().enumerate() {
            let place = if index == 0 { place.as_str() } else { "" };
            out.push_str(&format!("  {place:<20} {cap}\n"));
        }
        if caps.is_empty() {
            out.push_str(&format!("  {place}\n"));
        }
    }
    out
}
