//! One gateway process: a folder of its own, two free ports, its command line and its listeners.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{Connection, Response, request};
use super::{TOKENTRIAGE, until, until_within};

/// The path of a chat completion.
pub const CHAT: &str = "/v1/chat/completions";
/// The user that tests act as.
pub const DEV1: &str = "org:acme/team:ml/user:dev1";
/// The credential that the gateway presents to the backend; it must never show anywhere else.
pub const BACKEND_CREDENTIAL: &str = "sk-backend-0123456789";

/// A config for a backend on `port` with these limits; `m1` costs 0.001 USD a token.
pub fn config(port: u16, limits: Value) -> Value {
    json!({
        "workers": 2,
        "providers": [{
            "id": "local", "api": "openai", "api_key_env": "TT_TEST_BACKEND_KEY",
            "base_urls": [format!("http://127.0.0.1:{port}")],
        }],
        "routes": [{ "model": "m*", "provider": "local" }],
        "prices": { "models": { "m1": { "input": 1000, "output": 1000 } } },
        "governance": {
            "enabled": true,
            "tenants": [{ "org": "acme", "teams": ["ml"], "users": { "ml": ["dev1", "dev2"] } }],
            "limits": limits,
        },
    })
}

/// A limit for every user.
pub fn user_limit(id: &str, kind: &str, amount: u64, period: &str) -> Value {
    let mut limit = json!({ "id": id, "attach": { "level": "user" }, "type": kind });
    let amount_name = if kind == "budget_usd" { "amount_usd" } else { "amount" };
    limit[amount_name] = json!(amount);
    if !period.is_empty() {
        limit["period"] = json!(period);
    }
    limit
}

/// A minted key.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its public name.
    pub kid: String,
    /// The whole credential, as presented.
    pub credential: String,
}

impl Key {
    /// The value of an Authorization header.
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.credential)
    }
}

/// A gateway process, ended when dropped.
pub struct Gateway {
    /// The data plane's port.
    pub port: u16,
    /// The management listener's port.
    pub admin_port: u16,
    home: TempDir,
    /// Variables of the process beside those of every gateway.
    environment: Vec<(&'static str, &'static str)>,
    child: Option<Child>,
    /// Whom clients of the data plane believe; without it they speak plain HTTP.
    trust: Option<Arc<ClientConfig>>,
}

impl Gateway {
    /// Writes `config`, with ports and folder put in, and starts the gateway on it.
    pub fn start(config: &Value) -> Gateway {
        let mut gateway = Gateway::prepare(config);
        gateway.launch();
        gateway
    }

    /// A gateway with its files in place that is not started.
    pub fn prepare(config: &Value) -> Gateway {
        let home = tempfile::tempdir().expect("a temporary folder");
        let (port, admin_port) = (free_port(), free_port());
        let gateway = Gateway { port, admin_port, home, environment: Vec::new(), child: None, trust: None };
        let mut whole = config.clone();
        whole["listen"] = json!(format!("127.0.0.1:{}", gateway.port));
        whole["admin"] = json!({ "listen": format!("127.0.0.1:{admin_port}"),
                                 "token_env": "TT_ADMIN_TOKEN" });
        if let Some(tls) = config["admin"].get("tls") {
            whole["admin"]["tls"] = tls.clone();
        }
        whole["data_dir"] = json!(gateway.home.path().join("data"));
        std::fs::write(gateway.config_path(), whole.to_string()).expect("a writable folder");
        gateway
    }

    /// Gives the process this variable when it is started.
    pub fn set(&mut self, name: &'static str, value: &'static str) {
        self.environment.push((name, value));
    }

    /// Lets clients of the data plane speak TLS and believe in this.
    pub fn trust(&mut self, trust: Arc<ClientConfig>) {
        self.trust = Some(trust);
    }

    /// Starts the process and waits until it is ready.
    pub fn launch(&mut self) {
        self.spawn();
        self.ready();
    }

    /// Starts the process under a tool that is given its command line, and waits until it is ready.
    pub fn launch_under(&mut self, tool: &str, arguments: &[&str]) {
        let serve = self.command(&["serve"]);
        let mut command = Command::new(tool);
        command.args(arguments).arg(serve.get_program()).args(serve.get_args());
        command.current_dir(self.home.path());
        command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
        self.start_child(command);
        self.ready();
    }

    /// Starts the process, and waits for nothing.
    pub fn spawn(&mut self) {
        self.start_child(self.command(&["serve"]));
    }

    fn start_child(&mut self, mut command: Command) {
        let log = File::options().create(true).append(true).open(self.log_path());
        let log = log.expect("a writable folder");
        let out = log.try_clone().expect("a second handle");
        command.envs(self.environment.iter().copied());
        command.stdin(Stdio::null()).stdout(out).stderr(log);
        self.child = Some(command.spawn().expect("the command starts"));
    }

    /// Waits until a process that was started is ready.
    pub fn ready(&mut self) {
        // Longer than a start waits for the address of a process that was killed.
        until_within(Duration::from_secs(20), "the gateway is ready", || {
            let child = self.child.as_mut().expect("just started");
            let over = child.try_wait().expect("a child of ours");
            assert!(over.is_none(), "the gateway ended with {over:?}: {}", self.log());
            // The socket of a process that was killed may still be there for a moment.
            let mut connection = self.try_connect().ok()?;
            let answer = connection.try_ask(&request("GET", "/tt/v1/readyz", &[], b""));
            answer.is_ok_and(|answer| answer.status == 200).then_some(())
        });
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running gateway").id()
    }

    /// How many descriptors the process has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("a live process").count()
    }

    /// Memory of the process that is resident, in KiB.
    pub fn resident(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most that ever was, in KiB.
    pub fn resident_at_most(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, figure: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a live process");
        let line = status.lines().find_map(|line| line.strip_prefix(figure)).expect("a line of it");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Sends a signal by its name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.arg(format!("-{name}")).arg(self.pid().to_string());
        assert!(kill.status().expect("the system has kill").success(), "{kill:?}");
    }

    /// Waits until a process that was started is ready, or has ended of itself.
    pub fn ended_or_ready(&mut self) -> Option<ExitStatus> {
        let port = self.port;
        until("the gateway is ready or has ended", || {
            let child = self.child.as_mut().expect("just started");
            if let Some(status) = child.try_wait().expect("a child of ours") {
                self.child = None;
                return Some(Some(status));
            }
            let answer = Connection::try_open(port).ok()?.try_ask(&request("GET", "/tt/v1/readyz", &[], b""));
            answer.is_ok_and(|answer| answer.status == 200).then_some(None)
        })
    }

    /// Ends the process in the middle of whatever it does.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("a running gateway");
        child.kill().expect("a child of ours");
        child.wait().expect("a child of ours");
        self.check_log();
    }

    /// The database of the gateway's folder.
    pub fn database(&self) -> PathBuf {
        self.home.path().join("data/governance.db")
    }

    /// Waits for the end of a process that was told to end.
    pub fn wait(&mut self, bound: Duration) -> ExitStatus {
        let mut child = self.child.take().expect("a running gateway");
        let status = until_within(bound, "the gateway ends", || child.try_wait().expect("a child of ours"));
        self.check_log();
        status
    }

    /// Ends the process with SIGTERM; it must go in ten seconds, with success.
    pub fn stop(&mut self) {
        self.signal("TERM");
        let status = self.wait(Duration::from_secs(10));
        assert!(status.success(), "the gateway ended with {status}: {}", self.log());
    }

    /// Runs a verb of the command line on this gateway's config.
    pub fn run(&self, verb: &[&str]) -> Output {
        self.command(verb).output().expect("the command starts")
    }

    /// Mints a key for `owner`.
    pub fn mint(&self, owner: &str, flags: &[&str]) -> Key {
        let output = self.run(&[&["keys", "mint", "--owner", owner, "--json"], flags].concat());
        assert!(output.status.success(), "keys mint: {output:?}");
        let minted: Value = serde_json::from_slice(&output.stdout).expect("JSON on stdout");
        let text = |name: &str| minted[name].as_str().expect("a string").to_owned();
        Key { kid: text("kid"), credential: text("key") }
    }

    /// A connection to the data plane.
    pub fn connect(&self) -> Connection {
        self.try_connect().unwrap_or_else(|error| panic!("the gateway does not accept: {error}"))
    }

    fn try_connect(&self) -> std::io::Result<Connection> {
        match &self.trust {
            None => Connection::try_open(self.port),
            Some(trust) => Connection::try_open_tls(self.port, trust.clone()),
        }
    }

    /// A GET on a connection of its own.
    pub fn get(&self, path: &str, key: Option<&Key>) -> Response {
        let bearer = key.map(Key::bearer);
        let headers: Vec<_> = bearer.iter().map(|value| ("Authorization", value.as_str())).collect();
        self.connect().ask(&request("GET", path, &headers, b""))
    }

    /// A GET on the management listener, with its root token.
    pub fn get_admin(&self, path: &str) -> Response {
        self.ask_admin("GET", path, "")
    }

    /// A request with a JSON body, or none, on the management listener, with its root token.
    pub fn ask_admin(&self, method: &str, path: &str, body: &str) -> Response {
        let headers =
            [("Authorization", "Bearer root-token-for-tests"), ("Content-Type", "application/json")];
        Connection::open(self.admin_port).ask(&request(method, path, &headers, body.as_bytes()))
    }

    /// A chat request on a connection of its own.
    pub fn chat(&self, key: &Key, body: &str) -> Response {
        self.connect().ask(&chat_request(key, body))
    }

    /// `GET /tt/v1/me` as a list of caps.
    pub fn caps(&self, key: &Key) -> Vec<Value> {
        let answer = self.get("/tt/v1/me", Some(key));
        assert_eq!(answer.status, 200, "/tt/v1/me: {}", answer.text());
        answer.json()["limits"].as_array().expect("a list of caps").clone()
    }

    /// What was written to the log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Asserts what no log may hold.
    fn check_log(&self) {
        let log = self.log();
        assert!(!log.contains("panicked at"), "the gateway panicked: {log}");
        assert!(!log.contains(BACKEND_CREDENTIAL), "a credential is in the log");
    }

    fn command(&self, verb: &[&str]) -> Command {
        let mut command = Command::new(TOKENTRIAGE);
        command.args(verb).arg("--config").arg(self.config_path());
        command.current_dir(self.home.path()).env_clear();
        command.env("TT_ADMIN_TOKEN", "root-token-for-tests");
        command.env("TT_TEST_BACKEND_KEY", BACKEND_CREDENTIAL);
        command
    }

    fn config_path(&self) -> PathBuf {
        self.home.path().join("gateway.yaml")
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join("gateway.log")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            if !std::thread::panicking() {
                self.check_log();
            }
        }
        if std::thread::panicking() {
            eprintln!("--- the gateway's log ---\n{}", self.log());
        }
    }
}

/// The bytes of a chat request.
pub fn chat_request(key: &Key, body: &str) -> Vec<u8> {
    request("POST", CHAT, &[("Authorization", &key.bearer())], body.as_bytes())
}

/// A chat body for model `m1`.
pub fn chat_body() -> &'static str {
    r#"{"model":"m1","max_tokens":8,"messages":[{"role":"user","content":"say something"}]}"#
}

/// A chat body for model `m1` that asks for a stream.
pub fn stream_body() -> &'static str {
    r#"{"model":"m1","max_tokens":8,"stream":true,"messages":[{"role":"user","content":"say something"}]}"#
}

/// A port that nobody listens on now, and that nobody is given for a connection of his own: it is below those that the
/// system hands out (32,768 and up), of which thousands are in use for a moment while tests run side by side.
pub fn free_port() -> u16 {
    const FROM: u32 = 10_000;
    const PORTS: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    (0..PORTS)
        .map(|_| {
            FROM + (std::process::id().wrapping_mul(101).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)))
                % PORTS
        })
        .filter_map(|port| u16::try_from(port).ok())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// Waits until `reached` is true of `key`'s caps, and returns them.
pub fn caps_when(gateway: &Gateway, key: &Key, what: &str, reached: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let caps = gateway.caps(key);
        if reached(&caps) {
            return caps;
        }
        assert!(Instant::now() < end, "not reached: {what}; the caps are {caps:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
