//! nginx in front of the gateway, as many run it: with what it speaks by itself (HTTP/1.0, a connection a request), kept
//! alive, and passing bodies and events on as they come.

use std::sync::Arc;

use serde_json::{Value, json};

use super::nginx::{self, KEEP_ALIVE};
use super::support::backend::{STREAM_HEAD, Script, Then, chat_answer, delta, streams_until_left};
use super::support::client::Connection;
use super::support::gateway::{CHAT, chat_body, chat_request, stream_body, user_limit};
use super::support::rig::{Figures, Rig, all_types};
use super::support::until;

const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2,\"total_tokens\":6}}\n\n";

/// A whole answer, or a stream whose second event waits until the client is seen to have the first one.
fn model(go_on: Arc<std::sync::Barrier>) -> Script {
    Arc::new(move |exchange| {
        let asked: Value = serde_json::from_slice(&exchange.request.body).unwrap_or_default();
        if asked["stream"] != true {
            exchange.reply(200, &chat_answer(4, 2));
            return Then::Keep;
        }
        exchange.send(STREAM_HEAD.as_bytes());
        exchange.chunk(&delta("one"));
        go_on.wait();
        let there =
            exchange.chunk(&delta("two")) && exchange.chunk(USAGE) && exchange.chunk("data: [DONE]\n\n");
        exchange.send(b"0\r\n\r\n");
        if there { Then::Keep } else { Then::Close }
    })
}

fn check(name: &str, directives: &str) {
    let go_on = Arc::new(std::sync::Barrier::new(2));
    let mut limits = all_types(1_000_000);
    limits.as_array_mut().expect("a list").push(user_limit("three", "quota_requests", 4, "year"));
    let rig = Rig::with(model(go_on.clone()), limits, |_| {});
    let Some(nginx) = nginx::start(rig.gateway.port, directives) else { return skipped() };
    let mut client = Connection::open(nginx.port);
    // Whole answers, on one connection to nginx.
    for _ in 0..2 {
        let answer = client.ask(&chat_request(&rig.key, chat_body()));
        assert_eq!((answer.status, answer.text()), (200, chat_answer(4, 2)), "{name}");
        assert!(answer.header("x-request-id").is_some(), "{name}: {answer:?}");
    }
    // A body in chunks.
    let bearer = rig.key.bearer();
    let body = chat_body();
    let chunked = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: gateway\r\nAuthorization: {bearer}\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        &body[..5],
        body.len() - 5,
        &body[5..],
    );
    let answer = client.ask(chunked.as_bytes());
    assert_eq!(answer.status, 200, "{name}: {}", answer.text());
    assert!(rig.backend.requests().iter().all(|asked| asked.body == body.as_bytes()), "{name}: another body");
    // Events as they come: the first one is here while the backend waits to send the second.
    client.send(&chat_request(&rig.key, stream_body()));
    let seen = client.read_until(b"one").unwrap_or_else(|why| panic!("{name}: no first event: {why}"));
    assert!(!String::from_utf8_lossy(&seen).contains("two"), "{name}: {}", String::from_utf8_lossy(&seen));
    go_on.wait();
    client.read_until(b"[DONE]").unwrap_or_else(|why| panic!("{name}: no end: {why}"));
    // A refusal, with what clients wait by.
    let refused = Connection::open(nginx.port).ask(&chat_request(&rig.key, chat_body()));
    assert_eq!(refused.status, 429, "{name}: {}", refused.text());
    assert_eq!(refused.header("x-tt-refused-by"), Some("three"), "{name}: {refused:?}");
    assert!(refused.header("retry-after").is_some() && refused.header("x-should-retry") == Some("false"));
    let used = Figures { rpm: 4, slots: 0, requests: 4, tokens: 24, millis: 24 };
    rig.comes_to(name, &used);
}

#[test]
fn nginx_in_front_sees_whole_answers_events_as_they_come_and_refusals() {
    check("HTTP/1.0, a connection a request", "proxy_buffering off;");
    check("kept alive", &format!("{KEEP_ALIVE} proxy_buffering off;"));
    check(
        "kept alive, bodies as they come",
        &format!("{KEEP_ALIVE} proxy_buffering off; proxy_request_buffering off;"),
    );
}

#[test]
fn a_client_that_leaves_nginx_leaves_the_gateway_and_the_backend() {
    let rig = Rig::with(streams_until_left(), all_types(1_000_000), |config| {
        config["http"] = json!({ "between_bytes_timeout": "300s" });
    });
    let Some(nginx) = nginx::start(rig.gateway.port, &format!("{KEEP_ALIVE} proxy_buffering off;")) else {
        return;
    };
    let mut client = Connection::open(nginx.port);
    client.send(&chat_request(&rig.key, stream_body()));
    client.read_until(b"begun").expect("the first event");
    drop(client);
    until("the backend is left", || (rig.backend.connections() == 0).then_some(()));
    let figures = rig.at_rest();
    assert_eq!((figures.slots, figures.requests), (0, 1), "{figures:?}");
}

fn skipped() {
    eprintln!("nginx is not installed: nothing is shown");
}
