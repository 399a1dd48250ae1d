//! Backends over TLS: whom the gateway believes, what a session's own records do to a pooled connection, and how an
//! answer is seen to be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::HandshakeKind;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::backend::{
    Backend, Exchange, STREAM_HEAD, Script, Then, answers, chat_answer, delta, exactly, streams_until_left,
};
use super::support::gateway::{chat_body, chat_request, stream_body};
use super::support::rig::{Figures, Rig, all_types};
use super::support::until;
use super::support::wire::Authority;

/// A gateway in front of a backend with a certificate for this machine.
struct Secure {
    rig: Rig,
    authority: Authority,
    folder: TempDir,
}

fn believes(document: &mut Value, host: &str, port: u16, ca_file: Option<&str>) {
    document["providers"][0]["base_urls"] = json!([format!("https://{host}:{port}")]);
    if let Some(file) = ca_file {
        document["providers"][0]["tls"] = json!({ "ca_file": file });
    }
}

fn secure(script: Script) -> Secure {
    secure_in(script, rustls::ALL_VERSIONS, &json!({}))
}

fn secure_in(script: Script, versions: &[&'static rustls::SupportedProtocolVersion], http: &Value) -> Secure {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let identity = authority.issue(&["127.0.0.1", "localhost"]);
    let backend = Backend::start_tls(script, identity.server_with(versions));
    let (file, port) = (authority.write(folder.path()), backend.port);
    let rig = Rig::before(backend, all_types(1_000_000_000), |document| {
        believes(document, "127.0.0.1", port, file.to_str());
        document["workers"] = json!(1);
        document["http"] = http.clone();
    });
    Secure { rig, authority, folder }
}

fn ask(rig: &Rig, what: &str, requests: usize) {
    for number in 0..requests {
        let answer = rig.gateway.chat(&rig.key, chat_body());
        assert_eq!(answer.status, 200, "{what}, request {number}: {}", answer.text());
        assert!(answer.complete, "{what}, request {number}");
    }
}

#[test]
fn requests_share_a_connection_in_both_versions() {
    for (name, version) in [("TLS 1.2", &rustls::version::TLS12), ("TLS 1.3", &rustls::version::TLS13)] {
        let secure = secure_in(answers(3, 2), &[version], &json!({}));
        ask(&secure.rig, name, 20);
        assert_eq!(secure.rig.backend.handshakes(), [HandshakeKind::Full], "{name}");
        let request = &secure.rig.backend.requests()[0];
        let host = format!("127.0.0.1:{}", secure.rig.backend.port);
        assert_eq!(request.header("host"), Some(host.as_str()), "{name}");
        assert_eq!(request.header("authorization"), Some("Bearer sk-backend-0123456789"), "{name}");
        let wanted = Figures { rpm: 20, slots: 0, requests: 20, tokens: 100, millis: 100 };
        secure.rig.comes_to(name, &wanted);
    }
}

#[test]
fn a_new_connection_resumes_the_session() {
    let body = chat_answer(1, 1);
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let closing = exactly(head + &body, Then::Close);
    for (name, version) in [("TLS 1.2", &rustls::version::TLS12), ("TLS 1.3", &rustls::version::TLS13)] {
        let secure = secure_in(closing.clone(), &[version], &json!({}));
        ask(&secure.rig, name, 4);
        let made = secure.rig.backend.handshakes();
        assert_eq!(made[0], HandshakeKind::Full, "{name}");
        assert_eq!(made[1..], [HandshakeKind::Resumed; 3], "{name}");
    }
}

/// New keys and other records of the session make the socket readable between two requests. They are no reason to close
/// the connection; bytes of an answer that nobody asked for are.
#[test]
fn what_comes_between_two_requests_is_told_apart() {
    let happened = Arc::new(AtomicUsize::new(0));
    let late = |then: fn(&mut Exchange)| -> Script {
        let happened = happened.clone();
        Arc::new(move |exchange| {
            exchange.reply(200, &chat_answer(1, 1));
            // By then the gateway has read the answer.
            std::thread::sleep(Duration::from_millis(100));
            then(exchange);
            happened.fetch_add(1, Ordering::SeqCst);
            Then::Keep
        })
    };
    let new_keys = late(|exchange| exchange.stream.update_keys());
    let stray = late(|exchange| _ = exchange.reply(200, "{}"));
    let end = late(|exchange| exchange.stream.notify_close());
    for (name, script, connections) in
        [("new keys", new_keys, 1), ("a stray answer", stray, 6), ("the end of the session", end, 6)]
    {
        let secure = secure_in(script, &[&rustls::version::TLS13], &json!({}));
        for _ in 0..6 {
            let before = happened.load(Ordering::SeqCst);
            ask(&secure.rig, name, 1);
            until(name, || (happened.load(Ordering::SeqCst) > before).then_some(()));
        }
        assert_eq!(secure.rig.backend.handshakes().len(), connections, "{name}");
    }
}

#[test]
fn whom_the_gateway_does_not_believe_gets_no_request() {
    let (known, unknown) = (Authority::new(), Authority::new());
    let here = ["127.0.0.1"];
    let cases = [
        ("expired", known.issue_until(&here, 2020), "127.0.0.1", true, "its certificate has expired"),
        ("another name", known.issue(&["example.com"]), "127.0.0.1", true, "is for another name"),
        ("a name for an address", known.issue(&here), "localhost", true, "is for another name"),
        ("unknown issuer", unknown.issue(&here), "127.0.0.1", true, "an issuer that is not trusted"),
        ("no ca_file", known.issue(&here), "127.0.0.1", false, "an issuer that is not trusted"),
    ];
    for (name, identity, host, own_roots, reason) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let file = known.write(folder.path());
        let backend = Backend::start_tls(answers(1, 1), identity.server());
        let port = backend.port;
        let rig = Rig::before(backend, all_types(1000), |document| {
            believes(document, host, port, file.to_str().filter(|_| own_roots));
        });
        let answer = rig.gateway.chat(&rig.key, chat_body());
        assert_eq!(answer.status, 502, "{name}: {}", answer.text());
        assert!(answer.error_text("message").contains(reason), "{name}: {}", answer.text());
        assert!(rig.gateway.log().contains(reason), "{name}: {}", rig.gateway.log());
        assert_eq!(rig.backend.count(), 0, "{name}");
        rig.comes_to(name, &Figures::default());
    }
}

#[test]
fn a_backend_that_speaks_no_tls_is_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Authority::new().write(folder.path());
    let backend = Backend::start(exactly("HTTP/1.1 400 Bad Request\r\n\r\n", Then::Close));
    // A backend of plain HTTP waits for the end of a head: this one need not.
    let port = backend.port;
    let rig = Rig::before(backend, all_types(1000), |document| {
        believes(document, "127.0.0.1", port, file.to_str());
        document["http"] = json!({ "connect_timeout": "500ms" });
    });
    let answer = rig.gateway.chat(&rig.key, chat_body());
    assert!(matches!(answer.status, 502 | 504), "{}", answer.text());
    assert_ne!(answer.error_text("message"), "");
    rig.comes_to("no TLS", &Figures::default());
}

/// A body that ends with its connection is whole only when that end was announced.
#[test]
fn a_cut_connection_is_no_end_of_a_body() {
    let answer = chat_answer(2, 3);
    let bytes = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{answer}");
    let secure = secure(exactly(bytes.clone(), Then::Close));
    let whole = secure.rig.gateway.chat(&secure.rig.key, chat_body());
    assert_eq!((whole.status, whole.complete, whole.text()), (200, true, answer.clone()));
    for then in [Then::Cut, Then::Reset] {
        secure.rig.backend.answer_with(exactly(bytes.clone(), then));
        let mut client = secure.rig.gateway.connect();
        client.send(&chat_request(&secure.rig.key, chat_body()));
        let seen = client.try_read();
        assert!(seen.as_ref().is_ok_and(|answer| !answer.complete), "{then:?}: {seen:?}");
    }
    // Of a body that says how long it is, nothing can be missing. The connection is not kept: a request that meets the end of
    // one is not sent again, and the end may be on its way for a while.
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", answer.len());
    secure.rig.backend.answer_with(exactly(head + &answer, Then::Cut));
    ask(&secure.rig, "a body of known length", 3);
}

#[test]
fn a_stream_comes_event_by_event() {
    let script: Script = Arc::new(|exchange| {
        exchange.send(STREAM_HEAD.as_bytes());
        for word in ["one ", "two ", "three "] {
            exchange.chunk(&delta(word));
            std::thread::sleep(Duration::from_millis(150));
        }
        exchange.chunk("data: [DONE]\n\n");
        exchange.send(b"0\r\n\r\n");
        Then::Keep
    });
    let secure = secure(script);
    let mut client = secure.rig.gateway.connect();
    client.send(&chat_request(&secure.rig.key, stream_body()));
    let head = client.read_head().expect("a head");
    assert_eq!(head.status, 200);
    client.read_until(b"one ").expect("the first event");
    let ends_ahead = client.read_until(b"two ").expect("the second event");
    assert!(!String::from_utf8_lossy(&ends_ahead).contains("three"));
    client.read_until(b"[DONE]").expect("the end");
}

#[test]
fn large_bodies_pass_both_ways() {
    let text = "A".repeat(3 << 20);
    let echo: Script = Arc::new(|exchange| {
        let length = exchange.request.body.len();
        let answer = json!({ "length": length, "text": "B".repeat(2 << 20) }).to_string();
        exchange.reply(200, &answer);
        Then::Keep
    });
    let secure = secure(echo);
    let body = json!({ "model": "m1", "messages": [{ "role": "user", "content": text }] }).to_string();
    for _ in 0..3 {
        let answer = secure.rig.gateway.chat(&secure.rig.key, &body);
        assert_eq!((answer.status, answer.complete), (200, true));
        assert_eq!(answer.json()["length"], body.len());
        assert_eq!(answer.json()["text"].as_str().map(str::len), Some(2 << 20));
    }
    assert_eq!(secure.rig.backend.handshakes().len(), 1);
}

#[test]
fn a_client_that_leaves_stops_the_backend() {
    let secure = secure(streams_until_left());
    let mut client = secure.rig.gateway.connect();
    client.send(&chat_request(&secure.rig.key, stream_body()));
    client.read_until(b"begun").expect("the first event");
    assert_eq!(secure.rig.backend.connections(), 1);
    drop(client);
    until("the backend's connection is closed", || (secure.rig.backend.connections() == 0).then_some(()));
    secure.rig.at_rest();
}

/// A handshake that never ends is bounded as a connect is.
#[test]
fn a_silent_handshake_is_given_up() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let folder = tempfile::tempdir().expect("a folder");
    let file = Authority::new().write(folder.path());
    let rig = Rig::before(Backend::start(answers(1, 1)), all_types(1000), |document| {
        believes(document, "127.0.0.1", port, file.to_str());
        document["http"] = json!({ "connect_timeout": "300ms" });
    });
    let answer = rig.gateway.chat(&rig.key, chat_body());
    assert_eq!(answer.status, 504, "{}", answer.text());
    rig.comes_to("a silent handshake", &Figures::default());
    drop(listener);
}

/// The roots are read again with the config, and one that is no certificate leaves all as it was.
#[test]
fn other_roots_are_taken_without_a_restart() {
    let secure = secure(answers(1, 1));
    ask(&secure.rig, "before", 1);
    let stranger = Authority::new();
    let file = secure.folder.path().join("authority.pem");
    let reload = || secure.rig.gateway.ask_admin("POST", "/tt/v1/admin/reload", "");
    std::fs::write(&file, "no certificate").expect("written");
    let refused = reload();
    assert!((400..500).contains(&refused.status), "{}", refused.text());
    assert!(refused.text().contains("authority.pem: holds no certificate"), "{}", refused.text());
    ask(&secure.rig, "after a refused reload", 1);
    std::fs::write(&file, &stranger.pem).expect("written");
    assert_eq!(reload().status, 200);
    let answer = secure.rig.gateway.chat(&secure.rig.key, chat_body());
    assert_eq!(answer.status, 502, "{}", answer.text());
    secure.rig.backend.secure_with(stranger.issue(&["127.0.0.1"]).server());
    ask(&secure.rig, "with the other root", 1);
    std::fs::write(&file, format!("{}{}", secure.authority.pem, stranger.pem)).expect("written");
    // The watch on the file would do it too, a little later.
    assert_eq!(reload().status, 200);
    ask(&secure.rig, "with both", 1);
}
