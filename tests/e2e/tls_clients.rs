//! Clients over TLS: certificates that change, clients that leave, and connections that are no TLS.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::HandshakeKind;
use serde_json::json;
use tempfile::TempDir;

use super::support::backend::{
    Backend, STREAM_HEAD, Script, Then, answers, delta, exactly, streams_until_left,
};
use super::support::client::{Connection, request};
use super::support::gateway::{CHAT, DEV1, Gateway, Key, chat_body, chat_request, config, stream_body};
use super::support::rig::all_types;
use super::support::until;
use super::support::wire::{Authority, Identity, Wire};

/// A gateway that speaks TLS on both listeners, in front of a backend that does not.
struct Secure {
    backend: Backend,
    gateway: Gateway,
    key: Key,
    authority: Authority,
    folder: TempDir,
}

fn put(folder: &Path, identity: &Identity) {
    std::fs::write(folder.join("cert.pem"), &identity.certificate).expect("written");
    std::fs::write(folder.join("key.pem"), &identity.key).expect("written");
}

fn secure(script: Script) -> Secure {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    put(folder.path(), &authority.issue(&["127.0.0.1", "localhost"]));
    let backend = Backend::start(script);
    let mut document = config(backend.port, all_types(1_000_000_000));
    let tls = json!({
        "cert_file": folder.path().join("cert.pem"), "key_file": folder.path().join("key.pem"),
    });
    document["tls"] = tls.clone();
    document["admin"] = json!({ "tls": tls });
    document["workers"] = json!(2);
    document["http"] = json!({ "header_timeout": "700ms" });
    let mut gateway = Gateway::prepare(&document);
    gateway.trust(authority.client());
    gateway.launch();
    let key = gateway.mint(DEV1, &[]);
    Secure { backend, gateway, key, authority, folder }
}

impl Secure {
    /// A request on the management listener, over TLS.
    fn ask_admin(&self, method: &str, path: &str, trust: &Authority) -> std::io::Result<(u16, String)> {
        let mut connection = Connection::try_open_tls(self.gateway.admin_port, trust.client())?;
        let answer =
            connection.ask(&request(method, path, &[("Authorization", "Bearer root-token-for-tests")], b""));
        Ok((answer.status, answer.text()))
    }
}

#[test]
fn curl_is_served_over_every_safe_version() {
    let secure = secure(answers(1, 1));
    let root = secure.authority.write(secure.folder.path());
    let url = format!("https://127.0.0.1:{}/v1/chat/completions", secure.gateway.port);
    for version in ["--tlsv1.3", "--tls-max=1.2"] {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "20", "--cacert"]).arg(&root);
        curl.args(version.split('=')).args(["--write-out", "\n%{http_code} %{num_connects}\n"]);
        curl.args(["--header", &format!("Authorization: {}", secure.key.bearer())]);
        curl.args(["--header", "Content-Type: application/json", "--data", chat_body()]).args([&url, &url]);
        let output = curl.output().expect("the system has curl");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{version}: {output:?}");
        let codes: Vec<&str> = printed.lines().filter(|line| line.starts_with("200 ")).collect();
        assert_eq!(codes, ["200 1", "200 0"], "{version}, the second one on the same connection: {printed}");
    }
}

#[test]
fn a_connection_carries_requests_of_every_kind() {
    let secure = secure(answers(1, 1));
    let mut client = secure.gateway.connect();
    for _ in 0..20 {
        assert_eq!(client.ask(&chat_request(&secure.key, chat_body())).status, 200);
    }
    let three = chat_request(&secure.key, chat_body()).repeat(3);
    client.send(&three);
    for number in 0..3 {
        assert_eq!(client.read().status, 200, "pipelined, {number}");
    }
    let body = json!({ "model": "m1", "messages": [{ "role": "user", "content": "A".repeat(3 << 20) }] });
    assert_eq!(client.ask(&chat_request(&secure.key, &body.to_string())).status, 200);
    assert_eq!(secure.backend.requests()[23].body.len(), body.to_string().len());
    assert_eq!(secure.ask_admin("GET", "/tt/v1/admin/limits", &secure.authority).expect("TLS").0, 200);
}

/// Any core resumes what another one began.
#[test]
fn a_client_that_comes_back_resumes_its_session() {
    let secure = secure(answers(1, 1));
    let trust = secure.authority.client();
    let mut kinds = Vec::new();
    for _ in 0..8 {
        let mut client = Connection::try_open_tls(secure.gateway.port, trust.clone()).expect("TLS");
        assert_eq!(client.ask(&chat_request(&secure.key, chat_body())).status, 200);
        kinds.push(client.wire().handshake());
    }
    assert_eq!(kinds[0], Some(HandshakeKind::Full));
    assert_eq!(kinds[1..], [Some(HandshakeKind::Resumed); 7]);
}

#[test]
fn a_client_that_leaves_stops_the_backend() {
    let secure = secure(streams_until_left());
    type Leave = fn(Connection) -> Option<Connection>;
    let leave: [(&str, Leave); 4] = [
        ("closes", |client| {
            drop(client);
            None
        }),
        ("half-closes", |client| {
            client.half_close();
            Some(client)
        }),
        ("resets", |client| {
            client.reset();
            None
        }),
        ("announces its end and stays", |client| {
            client.wire().notify_close();
            Some(client)
        }),
    ];
    for (name, leave) in leave {
        let mut client = secure.gateway.connect();
        client.send(&chat_request(&secure.key, stream_body()));
        client.read_until(b"begun").expect("the first event");
        let left = leave(client);
        until(&format!("{name}: the backend is stopped"), || {
            (secure.backend.connections() == 0).then_some(())
        });
        drop(left);
    }
}

/// What comes ahead of an answer is no reason to stop it: new keys, or the next request.
#[test]
fn a_client_that_says_something_meanwhile_stays() {
    let script: Script = Arc::new(|exchange| {
        std::thread::sleep(Duration::from_millis(300));
        exchange.reply(200, "{}");
        Then::Keep
    });
    let secure = secure(script);
    let mut client = secure.gateway.connect();
    client.send(&chat_request(&secure.key, chat_body()));
    std::thread::sleep(Duration::from_millis(80));
    client.wire().update_keys();
    std::thread::sleep(Duration::from_millis(80));
    client.send(&chat_request(&secure.key, chat_body()));
    assert_eq!([client.read().status, client.read().status], [200, 200]);
}

/// The end of a whole answer is announced, that of a broken one is not: a client can tell.
#[test]
fn only_a_whole_answer_ends_in_order() {
    let event = delta("hello");
    let begun = format!("{STREAM_HEAD}{:x}\r\n{event}\r\n", event.len());
    let whole = format!("{begun}0\r\n\r\n");
    for (name, script, in_order) in
        [("whole", exactly(whole, Then::Keep), true), ("broken off", exactly(begun, Then::Close), false)]
    {
        let secure = secure(script);
        let bearer = secure.key.bearer();
        let bytes = request("POST", CHAT, &[("Authorization", &bearer)], stream_body().as_bytes());
        // A client of HTTP/1.0 knows the end of the body by the end of the connection alone.
        let old = String::from_utf8(bytes).expect("text").replacen("HTTP/1.1", "HTTP/1.0", 1);
        let mut client = secure.gateway.connect();
        client.send(old.as_bytes());
        let (mut wire, mut read) = (client.wire().clone(), Vec::new());
        let ended = wire.read_to_end(&mut read).map_err(|error| error.kind());
        let text = String::from_utf8_lossy(&read);
        assert!(text.contains("hello"), "{name}: {text}");
        match in_order {
            true => assert!(ended.is_ok(), "{name}: {ended:?}"),
            false => assert_eq!(ended, Err(ErrorKind::UnexpectedEof), "{name}"),
        }
    }
}

#[test]
fn what_is_no_tls_is_answered_or_ended() {
    let secure = secure(answers(1, 1));
    let mut plain = Connection::open(secure.gateway.port);
    let answer = plain.ask(&chat_request(&secure.key, chat_body()));
    assert_eq!(answer.status, 400);
    assert!(answer.error_text("message").contains("https://"), "{}", answer.text());
    assert!(plain.is_closed_by_peer());
    let mut noise = Connection::open(secure.gateway.port);
    noise.send(&[0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(noise.is_closed_by_peer());
    for begun in [&b""[..], &[22, 3, 1, 2, 0, 1, 0]] {
        let began = Instant::now();
        let mut slow = Connection::open(secure.gateway.port);
        slow.send(begun);
        assert!(slow.is_closed_by_peer(), "a handshake that does not end: {begun:?}");
        assert!(began.elapsed() >= Duration::from_millis(500), "not before http.header_timeout");
    }
    assert_eq!(secure.backend.count(), 0);
    assert_eq!(secure.gateway.chat(&secure.key, chat_body()).status, 200);
}

/// A new pair is shown to new connections, on both listeners; one that does not fit together leaves the old one.
#[test]
fn certificates_are_changed_while_traffic_flows() {
    let secure = secure(answers(1, 1));
    let mut open = secure.gateway.connect();
    let folder = secure.folder.path();
    let (stranger, first) = (Authority::new(), &secure.authority);
    let next = stranger.issue(&["127.0.0.1"]);
    let each = |trust: &Authority| {
        let tried = Connection::try_open_tls(secure.gateway.port, trust.client());
        let admin = secure.ask_admin("GET", "/tt/v1/admin/limits", trust);
        [tried.is_ok(), admin.is_ok()]
    };
    let reaches = |trust: &Authority| {
        let [tried, admin] = each(trust);
        assert_eq!(tried, admin, "both listeners show the same");
        tried
    };
    let reload = |trust| secure.ask_admin("POST", "/tt/v1/admin/reload", trust).expect("TLS");
    assert!(reaches(first) && !reaches(&stranger));
    std::fs::write(folder.join("key.pem"), &next.key).expect("written");
    let (status, text) = reload(first);
    assert!((400..500).contains(&status), "{status}: {text}");
    assert!(text.contains("is not the key of the certificate in"), "{text}");
    assert!(text.contains("tls.key_file"), "{text}");
    assert!(!text.contains("PRIVATE"), "{text}");
    assert!(reaches(first) && !reaches(&stranger), "the old pair stays");
    // The other half: the watch sees it, as it would a renewal.
    std::fs::write(folder.join("cert.pem"), &next.certificate).expect("written");
    until("both listeners show the new pair", || (each(&stranger) == [true, true]).then_some(()));
    assert!(!reaches(first));
    assert_eq!(open.ask(&chat_request(&secure.key, chat_body())).status, 200, "on the old connection");
    let validated = secure.gateway.run(&["validate"]);
    assert!(validated.status.success(), "{validated:?}");
    std::fs::remove_file(folder.join("cert.pem")).expect("removed");
    let validated = secure.gateway.run(&["validate"]);
    let printed = String::from_utf8_lossy(&validated.stdout).into_owned();
    assert_eq!(validated.status.code(), Some(1), "{printed}");
    for path in ["tls.cert_file", "admin.tls.cert_file"] {
        assert!(printed.contains(&format!("gateway.yaml:1: {path}: ")), "{path}: {printed}");
    }
}

/// The end of the process ends connections in order, also in the middle of a handshake.
#[test]
fn a_stop_waits_for_nobody_who_says_nothing() {
    let mut secure = secure(answers(1, 1));
    let mut idle = secure.gateway.connect();
    assert_eq!(idle.ask(&chat_request(&secure.key, chat_body())).status, 200);
    let begun = Connection::open(secure.gateway.port);
    secure.gateway.stop();
    let mut wire: Wire = idle.wire().clone();
    assert_eq!(wire.read(&mut [0; 16]).expect("an end in order"), 0);
    drop(begun);
}
