//! TLS on both sides of the gateway over connections that deliver their bytes in pieces of any size: no record comes whole,
//! and everything comes through.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::aborts::Random;
use super::support::backend::{Backend, STREAM_HEAD, Script, Then};
use super::support::client::Connection;
use super::support::gateway::{DEV1, Gateway, chat_request, config};
use super::support::rig::{Figures, Rig, all_types};
use super::support::wire::Authority;

/// The largest piece, in turn: single bytes, less than a record's head, odd, and across records.
const PIECES: [u64; 4] = [1, 4, 700, 40_000];

/// Between two pieces now and then, so that they are read one by one.
const PAUSE: Duration = Duration::from_micros(100);

/// Copies until the end, in pieces of at most `most` bytes.
fn copy(mut from: TcpStream, mut to: TcpStream, most: u64, seed: u64) {
    let (mut random, mut block) = (Random(seed | 1), vec![0; 64 << 10]);
    while let Ok(count) = from.read(&mut block)
        && count > 0
    {
        let mut rest = &block[..count];
        while !rest.is_empty() {
            let piece = (1 + random.below(most) as usize).min(rest.len());
            if to.write_all(&rest[..piece]).is_err() {
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
            rest = &rest[piece..];
            if random.below(4) == 0 {
                std::thread::sleep(PAUSE);
            }
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// A port behind which connections lead to `port`, piece by piece in both directions. Its threads end with the process.
fn in_pieces(port: u16, most: u64) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let own = listener.local_addr().expect("a bound socket").port();
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", port))) else {
                continue;
            };
            for end in [&client, &server] {
                end.set_nodelay(true).expect("a socket option");
            }
            let clone = |end: &TcpStream| end.try_clone().expect("a second handle");
            let ends = [(clone(&client), clone(&server)), (server, client)];
            for (side, (from, to)) in ends.into_iter().enumerate() {
                let seed = (number as u64 * 2 + side as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                std::thread::spawn(move || copy(from, to, most, seed));
            }
        }
    });
    own
}

/// Answers with as much text as the prompt has, whole or event by event.
fn echo() -> Script {
    Arc::new(|exchange| {
        let asked: Value = serde_json::from_slice(&exchange.request.body).expect("JSON");
        let text = asked["messages"][0]["content"].as_str().expect("a text").to_owned();
        let usage = json!({ "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5 });
        if asked["stream"] != true {
            let choice = json!({ "index": 0, "message": { "role": "assistant", "content": text } });
            exchange.reply(200, &json!({ "choices": [choice], "usage": usage }).to_string());
            return Then::Keep;
        }
        exchange.send(STREAM_HEAD.as_bytes());
        for part in text.as_bytes().chunks(5_000) {
            let part = String::from_utf8_lossy(part);
            exchange.chunk(&format!(
                "data: {}\n\n",
                json!({ "choices": [{ "index": 0, "delta": { "content": part } }] })
            ));
        }
        exchange.chunk(&format!("data: {}\n\ndata: [DONE]\n\n", json!({ "choices": [], "usage": usage })));
        exchange.send(b"0\r\n\r\n");
        Then::Keep
    })
}

/// The text of an answer, whole or in events.
fn text_of(body: &str, streams: bool) -> String {
    if !streams {
        let answer: Value = serde_json::from_str(body).expect("JSON");
        return answer["choices"][0]["message"]["content"].as_str().expect("a text").to_owned();
    }
    let events = body.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let parts = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
    parts.filter_map(|part| part["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

fn check(most: u64) {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let identity = authority.issue(&["127.0.0.1"]);
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    std::fs::write(&cert, &identity.certificate).expect("written");
    std::fs::write(&key, &identity.key).expect("written");
    let backend = Backend::start_tls(echo(), identity.server());
    let mut document = config(backend.port, all_types(1_000_000_000));
    let behind = in_pieces(backend.port, most);
    document["providers"][0]["base_urls"] = json!([format!("https://127.0.0.1:{behind}")]);
    document["providers"][0]["tls"] = json!({ "ca_file": authority.write(folder.path()) });
    document["tls"] = json!({ "cert_file": cert, "key_file": key });
    document["http"] = json!({ "connect_timeout": "20s", "header_timeout": "20s" });
    let mut gateway = Gateway::prepare(&document);
    gateway.trust(authority.client());
    gateway.launch();
    let key = gateway.mint(DEV1, &[]);
    let front = in_pieces(gateway.port, most);
    let rig = Rig { backend, gateway, key };
    // Large ones would take their time byte by byte.
    let sizes: &[usize] = if most < 100 { &[1, 2_000] } else { &[1, 16_384, 100_000] };
    let mut asked = 0;
    for _ in 0..2 {
        let mut client = Connection::try_open_tls(front, authority.client()).expect("a handshake");
        for (size, streams) in sizes.iter().flat_map(|size| [(*size, false), (*size, true)]) {
            let text = "abcdefghij".repeat(size.div_ceil(10));
            let body = json!({ "model": "m1", "stream": streams, "max_tokens": 1,
                               "messages": [{ "role": "user", "content": text }] });
            let answer = client.ask(&chat_request(&rig.key, &body.to_string()));
            assert!(answer.status == 200 && answer.complete, "{most}, {size}: {}", answer.text());
            assert_eq!(
                text_of(&answer.text(), streams),
                text,
                "pieces of {most}, {size} bytes, streams: {streams}"
            );
            asked += 1;
        }
    }
    let wanted = Figures { rpm: asked, slots: 0, requests: asked, tokens: 5 * asked, millis: 5 * asked };
    rig.comes_to(&format!("pieces of {most}"), &wanted);
}

#[test]
fn tls_in_pieces_of_any_size_is_the_same_on_both_sides() {
    std::thread::scope(|scope| {
        let checks: Vec<_> = PIECES.map(|most| scope.spawn(move || check(most))).into_iter().collect();
        for check in checks {
            check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}
