//! How the process ends, what it remembers, and keys that change while it runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::support::backend::{STREAM_HEAD, Then, answers, delta};
use super::support::gateway::{DEV1, chat_body, chat_request, stream_body};
use super::support::rig::{Figures, Rig};
use super::support::until;

#[test]
fn a_running_stream_ends_whole_after_the_signal_to_stop() {
    let mut rig = Rig::wide(Arc::new(|exchange| {
        exchange.send(STREAM_HEAD.as_bytes());
        for _ in 0..10 {
            exchange.chunk(&delta("word "));
            std::thread::sleep(Duration::from_millis(100));
        }
        exchange.chunk("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":10}}\n\n");
        exchange.chunk("data: [DONE]\n\n");
        exchange.send(b"0\r\n\r\n");
        Then::Keep
    }));
    let mut client = rig.gateway.connect();
    client.send(&chat_request(&rig.key, stream_body()));
    client.read_head().expect("the stream begins");
    client.read_until(b"word ").expect("the first event");
    rig.gateway.signal("TERM");
    std::thread::sleep(Duration::from_millis(200));
    let (rest, complete) = client.read_rest_of_chunks();
    assert!(complete, "the stream was cut: {}", String::from_utf8_lossy(&rest));
    assert!(rest.ends_with(b"data: [DONE]\n\n"), "{}", String::from_utf8_lossy(&rest));
    let status = rig.gateway.wait(Duration::from_secs(10));
    assert!(status.success(), "{status}: {}", rig.gateway.log());
    rig.gateway.launch();
    let figures = rig.after_restart();
    assert_eq!((figures.requests, figures.tokens, figures.millis), (1, 14, 14), "{figures:?}");
}

#[test]
fn idle_connections_do_not_hold_up_the_end() {
    let mut rig = Rig::wide(answers(1, 1));
    let mut idle: Vec<_> = (0..10).map(|_| rig.gateway.connect()).collect();
    assert_eq!(idle[0].ask(&chat_request(&rig.key, chat_body())).status, 200);
    let began = Instant::now();
    rig.gateway.stop();
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    assert!(idle[0].is_closed_by_peer(), "an idle connection is closed");
}

#[test]
fn budgets_and_quotas_survive_a_restart_and_rates_start_empty() {
    let mut rig = Rig::wide(answers(30, 12));
    for _ in 0..5 {
        assert_eq!(rig.gateway.chat(&rig.key, chat_body()).status, 200);
    }
    rig.comes_to("before", &Figures { rpm: 5, slots: 0, requests: 5, tokens: 210, millis: 210 });
    for round in 0..2 {
        rig.gateway.stop();
        rig.gateway.launch();
        let figures = rig.after_restart();
        assert_eq!(
            (figures.rpm, figures.requests, figures.tokens, figures.millis),
            (0, 5, 210, 210),
            "after restart {round}"
        );
    }
}

#[test]
fn a_key_works_as_soon_as_it_is_minted_and_not_once_it_is_revoked() {
    let rig = Rig::wide(answers(1, 1));
    for round in 0..5 {
        let key = rig.gateway.mint(DEV1, &["--name", "short-lived"]);
        let mut open = rig.gateway.connect();
        assert_eq!(open.ask(&chat_request(&key, chat_body())).status, 200, "round {round}: minted");
        let output = rig.gateway.run(&["keys", "revoke", &key.kid]);
        assert!(output.status.success(), "keys revoke: {output:?}");
        let answer = open.ask(&chat_request(&key, chat_body()));
        assert_eq!(answer.status, 401, "round {round}: revoked, on the open connection");
        assert_eq!(answer.code(), "invalid_api_key", "{}", answer.text());
        assert_eq!(rig.gateway.get("/tt/v1/me", Some(&key)).status, 401, "round {round}: revoked");
    }
    assert_eq!(rig.gateway.chat(&rig.key, chat_body()).status, 200, "another key goes on");
    until("six requests delivered", || (rig.backend.count() == 6).then_some(()));
}
