//! Which address of a provider a request goes to: names, addresses that fail and come back, and how many requests at a
//! time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::support::backend::{Backend, STREAM_HEAD, Script, Then, answers, delta};
use super::support::gateway::{Gateway, chat_body, chat_request, config, free_port, stream_body};
use super::support::rig::{Figures, Rig, all_types};
use super::support::{until, until_within};

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Requests, all answered.
fn ask(rig: &Rig, what: &str, requests: usize) {
    for number in 0..requests {
        let answer = rig.gateway.chat(&rig.key, chat_body());
        assert_eq!(answer.status, 200, "{what}, request {number}: {}", answer.text());
    }
}

/// How often the log tells of a backend that is set aside.
fn set_aside(rig: &Rig) -> usize {
    rig.gateway.log().lines().filter(|line| line.contains("aside=")).count()
}

#[test]
fn an_address_that_refuses_is_passed_over_and_taken_back() {
    let port = free_port();
    let rig = Rig::before(Backend::start(answers(1, 1)), all_types(1_000_000), |document| {
        let own = document["providers"][0]["base_urls"][0].clone();
        document["providers"][0]["base_urls"] = json!([url(port), own]);
    });
    ask(&rig, "one of two is down", 100);
    let told = set_aside(&rig);
    assert!((1..10).contains(&told), "told of {told} times: {}", rig.gateway.log());
    let late = Backend::start_on(port, answers(1, 1));
    until_within(Duration::from_secs(20), "the one that is back has requests again", || {
        ask(&rig, "it is back", 1);
        (late.count() > 3).then_some(())
    });
    assert!(rig.gateway.log().contains("a backend takes connections again"), "{}", rig.gateway.log());
}

#[test]
fn an_address_that_never_answers_is_passed_over_after_some_requests() {
    let broken: Script = Arc::new(|_| Then::Reset);
    let second = Backend::start(broken);
    let rig = Rig::before(Backend::start(answers(1, 1)), all_types(1_000_000), |document| {
        let own = document["providers"][0]["base_urls"][0].clone();
        document["providers"][0]["base_urls"] = json!([own, url(second.port)]);
        document["workers"] = json!(1);
    });
    let mut answered = 0;
    for _ in 0..60 {
        answered += u64::from(rig.gateway.chat(&rig.key, chat_body()).status == 200);
    }
    // Three before it is set aside, and what probed it since.
    assert!((3..12).contains(&second.count()), "{} of 60 went to it", second.count());
    assert_eq!(answered, 60 - second.count() as u64);
    second.answer_with(answers(1, 1));
    let before = second.count();
    until_within(Duration::from_secs(40), "it has requests again", || {
        ask(&rig, "it answers again", 1);
        (second.count() > before + 3).then_some(())
    });
    assert!(rig.gateway.log().contains("a backend answers again"), "{}", rig.gateway.log());
}

#[test]
fn a_provider_with_one_address_is_asked_all_the_same() {
    let port = free_port();
    let rig = Rig::before(Backend::start(answers(1, 1)), all_types(1_000_000), |document| {
        document["providers"][0]["base_urls"] = json!([url(port)]);
    });
    for _ in 0..20 {
        assert_eq!(rig.gateway.chat(&rig.key, chat_body()).status, 502);
    }
    let late = Backend::start_on(port, answers(1, 1));
    ask(&rig, "at once, however long it was away", 5);
    assert_eq!(late.count(), 5);
}

#[test]
fn a_provider_takes_so_many_requests_at_a_time() {
    let held: Script = Arc::new(|exchange| {
        exchange.send(STREAM_HEAD.as_bytes());
        exchange.chunk(&delta("begun"));
        exchange.wait_for_close(Duration::from_secs(8));
        Then::Close
    });
    let rig = Rig::before(Backend::start(held), all_types(1_000_000), |document| {
        document["providers"][0]["max_connections"] = json!(2);
    });
    let streams: Vec<_> = (0..2)
        .map(|_| {
            let mut client = rig.gateway.connect();
            client.send(&chat_request(&rig.key, stream_body()));
            client.read_until(b"begun").expect("the first event");
            client
        })
        .collect();
    let refused = rig.gateway.chat(&rig.key, chat_body());
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.error_text("message").contains("max_connections"), "{}", refused.text());
    assert_eq!(rig.backend.count(), 2);
    rig.backend.answer_with(answers(1, 1));
    drop(streams);
    until("a place is free", || (rig.gateway.chat(&rig.key, chat_body()).status == 200).then_some(()));
    // A client that has read the whole of an answer finds its place free.
    let before = rig.at_rest();
    ask(&rig, "one after the other", 200);
    let wanted = Figures { rpm: before.rpm + 200, ..rig.at_rest() };
    assert_eq!(rig.at_rest(), wanted);
}

#[test]
fn a_name_leads_to_its_addresses() {
    let rig = Rig::before(Backend::start(answers(1, 1)), all_types(1_000_000), |document| {
        let port = document["providers"][0]["base_urls"][0].as_str().unwrap_or_default().to_owned();
        document["providers"][0]["base_urls"] = json!([port.replace("127.0.0.1", "localhost")]);
    });
    ask(&rig, "by its name", 5);
    let host = format!("localhost:{}", rig.backend.port);
    assert_eq!(rig.backend.requests()[0].header("host"), Some(host.as_str()));
}

#[test]
fn a_name_that_is_not_found_ends_the_start_and_says_so() {
    let mut document = config(free_port(), json!([]));
    document["providers"][0]["base_urls"] = json!(["http://no-such-host.invalid:1"]);
    let mut gateway = Gateway::prepare(&document);
    gateway.spawn();
    let ended = gateway.ended_or_ready().expect("it does not start");
    assert_eq!(ended.code(), Some(1));
    let log = gateway.log();
    assert!(log.contains("provider `local`: base URL host \"no-such-host.invalid\""), "{log}");
}
