//! What slow and idle clients, and many large bodies, may cost: time-outs that fire, slots that come back, memory that is
//! stated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::backend::{STREAM_HEAD, Script, Then, answers};
use super::support::client::{Connection, request};
use super::support::gateway::{CHAT, Key, chat_body, chat_request, stream_body};
use super::support::rig::{Figures, Rig, all_types};
use super::support::{until, until_within};

/// Longer than any of the time-outs of [`impatient`], on a machine that is busy.
const AT_MOST: Duration = Duration::from_secs(20);

/// A gateway that waits a second for everything.
fn impatient(script: Script) -> Rig {
    Rig::with(script, all_types(1_000_000_000), |config: &mut Value| {
        config["http"] = json!({
            "header_timeout": "1s", "idle_timeout": "1s", "between_bytes_timeout": "1s", "max_body": "8MiB",
        });
    })
}

/// Sends `bytes` one by one until the gateway has had enough; how long that took.
fn dribble(client: &mut Connection, bytes: &[u8]) -> Duration {
    let began = Instant::now();
    client.wait_no_longer_than(Duration::from_millis(50));
    for byte in bytes.iter().cycle() {
        client.send(&[*byte]);
        if !matches!(client.try_read(), Err(why) if why.starts_with("silent")) {
            break;
        }
        assert!(began.elapsed() < AT_MOST, "still taken after {AT_MOST:?}");
    }
    began.elapsed()
}

fn head_of(key: &Key, body_bytes: usize) -> Vec<u8> {
    let whole = request("POST", CHAT, &[("Authorization", &key.bearer())], &vec![b' '; body_bytes]);
    whole[..whole.len() - body_bytes].to_vec()
}

#[test]
fn a_head_that_comes_byte_by_byte_is_given_up_and_nobody_waits_for_it() {
    let rig = impatient(answers(1, 1));
    let port = rig.gateway.port;
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..32)
            .map(|_| scope.spawn(move || dribble(&mut Connection::open(port), b"X-Slow: 1\r\nX-Slow: 2\r\n")))
            .collect();
        for _ in 0..20 {
            assert_eq!(rig.gateway.chat(&rig.key, chat_body()).status, 200);
        }
        for client in slow {
            let took = client.join().expect("no panic");
            assert!(took >= Duration::from_millis(900), "given up after {took:?}");
        }
    });
    rig.comes_to("slow heads", &Figures { rpm: 20, slots: 0, requests: 20, tokens: 40, millis: 40 });
}

#[test]
fn a_body_that_stops_and_a_client_that_does_not_read_give_their_slots_back() {
    // Far more than the sockets between hold.
    let endless: Script = Arc::new(|exchange| {
        exchange.send(STREAM_HEAD.as_bytes());
        let event = format!("data: {}\n\n", "x".repeat(60_000));
        let began = Instant::now();
        while exchange.chunk(&event) {
            assert!(began.elapsed() < AT_MOST, "the gateway reads on for a client that does not");
        }
        Then::Close
    });
    let rig = impatient(endless);
    let mut stopped = rig.gateway.connect();
    stopped.send(&head_of(&rig.key, 100));
    stopped.send(b"{\"model\":");
    let mut deaf = rig.gateway.connect();
    deaf.send(&chat_request(&rig.key, stream_body()));
    let slots = |figures: &Figures| figures.slots;
    let caps = || super::support::rig::figures(&rig.gateway.caps(&rig.key));
    until("both hold a slot", || (slots(&caps()) == 2).then_some(()));
    until_within(AT_MOST, "both slots are free", || (slots(&caps()) == 0).then_some(()));
    assert!(stopped.is_closed_by_peer(), "the one that stopped is hung up on");
    until("the backend is left", || (rig.backend.connections() == 0).then_some(()));
    let _ = rig.at_rest();
}

#[test]
fn idle_connections_are_closed_and_cost_little_until_then() {
    const IDLE: usize = 2_000;
    /// KiB of one: its task, its read that waits, its buffers.
    const EACH: u64 = 32;
    let rig = Rig::wide(answers(1, 1));
    let ask = chat_request(&rig.key, chat_body());
    for _ in 0..200 {
        assert_eq!(rig.gateway.connect().ask(&ask).status, 200);
    }
    let before = rig.gateway.resident();
    let mut idle: Vec<_> = (0..IDLE).map(|_| rig.gateway.connect()).collect();
    for client in &mut idle {
        assert_eq!(client.ask(&ask).status, 200);
    }
    let each = rig.gateway.resident().saturating_sub(before) / IDLE as u64;
    println!("{each} KiB an idle connection");
    assert!(each <= EACH, "{each} KiB each");
    drop(idle);

    let rig = impatient(answers(1, 1));
    let mut clients: Vec<_> = (0..50).map(|_| rig.gateway.connect()).collect();
    for client in &mut clients[..25] {
        assert_eq!(client.ask(&chat_request(&rig.key, chat_body())).status, 200);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        client.wait_no_longer_than(AT_MOST);
        assert!(client.is_closed_by_peer(), "connection {number} stays open");
    }
}

#[test]
fn many_large_bodies_at_once_are_held_once_each() {
    const BODIES: usize = 20;
    const BYTES: usize = 8 << 20;
    let rig = impatient(answers(1, 1));
    let text = "x".repeat(BYTES - 200);
    let body =
        format!(r#"{{"model":"m1","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let bytes = chat_request(&rig.key, &body);
    let before = rig.gateway.resident_at_most();
    std::thread::scope(|scope| {
        for _ in 0..BODIES {
            scope.spawn(|| {
                let mut client = rig.gateway.connect();
                client.wait_no_longer_than(4 * AT_MOST);
                assert_eq!(client.ask(&bytes).status, 200);
            });
        }
    });
    let most = rig.gateway.resident_at_most() - before;
    // All of them, as large as they say, and what one growth of each on two cores copies.
    let stated = (BODIES * BYTES * 3 / 2) as u64 / 1024;
    println!("{most} KiB for {BODIES} bodies of {} KiB, {stated} at most", BYTES / 1024);
    assert!(most <= stated, "{most} KiB, more than {stated}");
    let _ = rig.at_rest();
}
