//! The plane as a whole, on a folder of its own: its socket, its listener, its counters.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use engine::{CoreId, CounterMark, KeyRing, MarkNumber, Marks, Report, Ruleset};
use jiff::Timestamp;

use super::*;
use crate::keys::{self, MintRequest};
use crate::socket::{Announced, announce_keys};
use crate::start::{Prepared, prepare};
use crate::store;

struct House {
    folder: tempfile::TempDir,
    admin: SocketAddr,
    rings: Arc<Mutex<Vec<Arc<KeyRing>>>>,
    rulesets: Arc<Mutex<Vec<Arc<Ruleset>>>>,
    marks: Option<Sender<Report>>,
    plane: Option<Plane>,
}

/// A data plane that takes everything and says nothing.
fn deaf() -> Publish {
    Publish {
        keys: Box::new(|_| ()),
        ruleset: Box::new(|_| ()),
        config: Box::new(|_| Ok(Box::new(|_| ()))),
        names: Box::new(|| {}),
        journal: Arc::new(|_| ()),
        probe: Box::new(|_| None),
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// A folder name that makes the socket's path longer than a socket address can be.
const DEEP: &str = "a-folder-name-of-fifty-characters-to-fill-the-path/another-folder-name-of-fifty-chars-to-fill-the-path/data";

impl House {
    fn start(data_dir: &str, more: &str) -> House {
        let folder = tempfile::tempdir().expect("a folder");
        let admin = free_address();
        // The token of the tests is a variable that every process has.
        let text = format!("data_dir: {data_dir}\nadmin: {{ listen: \"{admin}\", token_env: PATH }}\n{more}");
        std::fs::write(folder.path().join("gateway.yaml"), text).expect("written");
        let mut house = House {
            folder,
            admin,
            rings: Arc::default(),
            rulesets: Arc::default(),
            marks: None,
            plane: None,
        };
        house.begin();
        house
    }

    fn prepare(&self) -> Result<Prepared, StartError> {
        prepare(&self.folder.path().join("gateway.yaml"))
    }

    fn begin(&mut self) -> Vec<CounterMark> {
        let Prepared { in_force, counters, store, lock, .. } = self.prepare().expect("prepared");
        let (sender, receiver) = channel();
        let (rings, rulesets) = (Arc::clone(&self.rings), Arc::clone(&self.rulesets));
        let publish = Publish {
            keys: Box::new(move |ring| rings.lock().expect("a lock").push(ring)),
            ruleset: Box::new(move |ruleset| rulesets.lock().expect("a lock").push(ruleset)),
            ..deaf()
        };
        let setup = Setup { in_force, store, lock, recovered: Vec::new(), actor: "test".to_owned() };
        self.plane = Some(Plane::start(setup, publish, receiver).expect("started"));
        self.marks = Some(sender);
        counters
    }

    fn stop(&mut self) {
        self.marks = None;
        self.plane.take().expect("running").stop().expect("stopped");
    }

    fn data_dir(&self) -> std::path::PathBuf {
        let text = std::fs::read_to_string(self.folder.path().join("gateway.yaml")).expect("read");
        let line = text.lines().next().and_then(|line| line.strip_prefix("data_dir: ")).expect("a data_dir");
        self.folder.path().join(line)
    }

    fn mint(&self) -> String {
        let mut store = Store::open(&self.data_dir()).expect("opened");
        let request = MintRequest { owner: "org:acme".to_owned(), ..MintRequest::default() };
        keys::mint(&mut store, request, "test", Timestamp::now()).expect("minted").row.kid
    }

    fn ask_admin(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).expect("connected");
        write!(stream, "{head}\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        answer
    }
}

fn mark(limit_id: &str, window: i64, observed: u128) -> CounterMark {
    CounterMark {
        algorithm: "calendar_requests".to_owned(),
        ..store::tests::mark(limit_id, None, window, observed)
    }
}

#[test]
fn a_minted_and_a_revoked_key_are_published_before_the_answer() {
    for data_dir in ["data", DEEP] {
        let mut house = House::start(data_dir, "");
        let kid = house.mint();
        assert_eq!(announce_keys(&house.data_dir(), &[&kid]), Announced::Published, "{data_dir}");
        let known = |house: &House| {
            house.rings.lock().expect("a lock").last().is_some_and(|r| r.find(&kid).is_some())
        };
        assert!(known(&house));
        let mut store = Store::open(&house.data_dir()).expect("opened");
        keys::revoke(&mut store, &kid, "test", Timestamp::now()).expect("revoked");
        assert_eq!(announce_keys(&house.data_dir(), &[&kid]), Announced::Published);
        assert!(!known(&house));
        assert!(matches!(announce_keys(&house.data_dir(), &["nonsense"]), Announced::Failed(_)));
        assert!(house.rulesets.lock().expect("a lock").is_empty(), "only key_nodes re-arms");
        house.stop();
        assert_eq!(announce_keys(&house.data_dir(), &[&kid]), Announced::NoServer);
    }
}

#[test]
fn a_key_minted_while_the_server_starts_is_not_missed() {
    let mut house = House::start("data", "");
    house.stop();
    let early = house.mint();
    let Prepared { in_force, store, lock, .. } = house.prepare().expect("prepared");
    let late = house.mint();
    let (sender, receiver) = channel();
    let (rings, published) = channel();
    let publish = Publish { keys: Box::new(move |ring| rings.send(ring).expect("sent")), ..deaf() };
    assert!(in_force.keys.find(&early).is_some() && in_force.keys.find(&late).is_none());
    let setup = Setup { in_force, store, lock, recovered: Vec::new(), actor: "test".to_owned() };
    let plane = Plane::start(setup, publish, receiver).expect("started");
    let ring = published.recv_timeout(Duration::from_secs(10)).expect("published");
    assert!(ring.find(&early).is_some() && ring.find(&late).is_some());
    drop(sender);
    plane.stop().expect("stopped");
}

#[test]
fn with_key_nodes_a_minted_key_is_a_node_before_it_is_known() {
    let governance = "governance: { enabled: true, key_nodes: true, tenants: [ { org: acme } ], limits: [ \
                      { id: k, attach: { level: key }, type: quota_requests, amount: 1, period: year } ] }\n";
    let mut house = House::start("data", governance);
    let kid = house.mint();
    assert_eq!(announce_keys(&house.data_dir(), &[&kid]), Announced::Published);
    let ruleset = house.rulesets.lock().expect("a lock").last().cloned().expect("re-armed");
    assert_eq!(ruleset.version(), 2);
    let nodes: Vec<_> = ruleset.all_instances().iter().map(|instance| instance.node.to_string()).collect();
    assert_eq!(nodes, [format!("org:acme/key:{kid}")]);
    house.stop();
}

#[test]
fn counters_survive_a_stop_and_the_newest_window_wins() {
    let mut house = House::start("data", "");
    let send = |house: &House, marks| {
        let batch = Report::Marks(CoreId(0), Marks { number: MarkNumber(1), marks });
        house.marks.as_ref().expect("a sender").send(batch).expect("sent")
    };
    send(&house, vec![mark("a", 7, 1), mark("b", 7, 5)]);
    send(&house, vec![mark("a", 8, 2), mark("a", 7, 9)]);
    house.stop();
    assert!(!house.data_dir().join(crate::socket::SOCKET_FILE).exists());
    assert_eq!(house.begin(), [mark("a", 8, 2), mark("b", 7, 5)]);
    // A stop that keeps the senders: what was sent before it is written all the same.
    send(&house, vec![mark("b", 7, 6)]);
    let sender = house.marks.take();
    house.plane.take().expect("running").stop().expect("stopped");
    drop(sender);
    assert_eq!(house.begin(), [mark("a", 8, 2), mark("b", 7, 6)]);
    house.stop();
}

#[test]
fn a_second_server_on_one_folder_is_refused() {
    let mut house = House::start("data", "");
    let error = house.prepare().err().expect("refused").to_string();
    assert!(error.contains("another server is running"), "{error}");
    house.stop();
    assert!(house.prepare().is_ok());
}

#[test]
fn an_address_in_use_is_an_error_of_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gateway.yaml");
    let text = format!("admin: {{ listen: \"{}\", token_env: PATH }}\n", taken.local_addr().expect("bound"));
    std::fs::write(&path, text).expect("written");
    let Prepared { in_force, store, lock, .. } = prepare(&path).expect("prepared");
    let (setup, publish) =
        (Setup { in_force, store, lock, recovered: Vec::new(), actor: "test".to_owned() }, deaf());
    let error = Plane::start(setup, publish, channel().1).err().expect("refused").to_string();
    assert!(error.starts_with("admin.listen: cannot listen on"), "{error}");
}

#[test]
fn the_management_listener_wants_its_token() {
    let mut house = House::start("data", "");
    let token = std::env::var("PATH").expect("every process has one");
    for (head, status, part) in [
        ("GET /tt/v1/admin/limits HTTP/1.1".to_owned(), 401, "unauthorized"),
        ("GET /tt/v1/admin/nothing HTTP/1.1".to_owned(), 401, "unauthorized"),
        ("GET /tt/v1/admin/limits HTTP/1.1\r\nAuthorization: Bearer nope".to_owned(), 401, "unauthorized"),
        (format!("GET /tt/v1/admin/limits HTTP/1.1\r\nAuthorization: Basic {token}"), 401, "unauthorized"),
        (format!("GET /tt/v1/admin/limits HTTP/1.1\r\nauthorization: bEARER {token}"), 200, "\"limits\":[]"),
        (format!("GET /tt/v1/admin/nothing HTTP/1.1\r\nAuthorization: Bearer {token}"), 404, "not_found"),
        (
            format!("PUT /tt/v1/admin/limits HTTP/1.1\r\nAuthorization: Bearer {token}"),
            405,
            "method_not_allowed",
        ),
        (format!("GET /elsewhere HTTP/1.1\r\nAuthorization: Bearer {token}"), 404, "not_found"),
    ] {
        let answer = house.ask_admin(&head);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(part),
            "{head}: {answer}"
        );
        assert!(answer.to_lowercase().contains("content-type: application/json"), "{answer}");
    }
    house.stop();
}

/// What a config with this `idle_timeout`, in seconds, reads as. The timeout marks which content is in force.
fn marked(seconds: u32) -> String {
    format!("data_dir: data\nhttp: {{ idle_timeout: {seconds}s }}\n")
}

#[test]
fn a_changed_config_is_taken_up_however_it_was_changed() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    // As a ConfigMap is mounted: two links lead to the file, and the second one is swapped.
    std::fs::create_dir(at("..1")).expect("made");
    std::fs::write(at("..1/gateway.yaml"), marked(1)).expect("written");
    symlink("..1", at("..data")).expect("linked");
    symlink("..data/gateway.yaml", at("gateway.yaml")).expect("linked");
    let Prepared { in_force, store, lock, .. } = prepare(&at("gateway.yaml")).expect("prepared");
    let (published, configs) = channel();
    let publish = Publish {
        config: Box::new(move |config| {
            let (published, seconds) = (published.clone(), config.http.idle_timeout.as_secs());
            Ok(Box::new(move |_| published.send(seconds).expect("sent")))
        }),
        ..deaf()
    };
    let setup = Setup { in_force, store, lock, recovered: Vec::new(), actor: "test".to_owned() };
    let plane = Plane::start(setup, publish, channel().1).expect("started");
    let pause = |milliseconds| std::thread::sleep(Duration::from_millis(milliseconds));
    // The first look is at the start; what changes before it is found by the poll, which is slower.
    pause(300);
    let wait = |want: Option<u64>, what: &str| {
        let patience = Duration::from_millis(if want.is_some() { 10_000 } else { 1_000 });
        assert_eq!(configs.recv_timeout(patience).ok(), want, "{what}");
    };
    std::fs::create_dir(at("..2")).expect("made");
    std::fs::write(at("..2/gateway.yaml"), marked(2)).expect("written");
    symlink("..2", at("..data_tmp")).expect("linked");
    std::fs::rename(at("..data_tmp"), at("..data")).expect("swapped");
    wait(Some(2), "the link is swapped");
    std::fs::remove_dir_all(at("..1")).expect("removed");
    std::fs::write(at("..2/gateway.yaml"), marked(3)).expect("written");
    wait(Some(3), "the file behind the links is written");
    std::fs::write(at("plain.new"), marked(4)).expect("written");
    std::fs::rename(at("plain.new"), at("gateway.yaml")).expect("renamed");
    wait(Some(4), "a file is renamed over the link");
    std::fs::write(at("gateway.yaml"), marked(4)).expect("written");
    std::fs::write(at("beside.log"), "x").expect("written");
    wait(None, "the same content, and a file beside it");
    std::fs::remove_file(at("gateway.yaml")).expect("removed");
    pause(400);
    std::fs::write(at("gateway.yaml"), marked(5)).expect("written");
    wait(Some(5), "removed and made again");
    let whole = marked(6);
    let mut file = std::fs::File::create(at("gateway.yaml")).expect("truncated");
    pause(50);
    file.write_all(&whole.as_bytes()[..whole.len() / 2]).expect("half of it");
    file.sync_all().expect("synced");
    pause(50);
    file.write_all(&whole.as_bytes()[whole.len() / 2..]).expect("the rest");
    drop(file);
    wait(Some(6), "written in parts");
    std::fs::write(at("gateway.yaml"), "http: { idle_timeout: soon }").expect("written");
    wait(None, "a wrong one changes nothing");
    std::fs::write(at("gateway.yaml"), marked(7)).expect("written");
    wait(Some(7), "a right one comes in again");
    plane.reload_by_signal();
    wait(Some(7), "a signal reloads the same content");
    plane.stop().expect("stopped");
}
