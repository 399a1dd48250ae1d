//! The official `openai` SDK for Python: a chat, streams, and what it does with a refusal.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::script::{Script, compare};
use super::support::backend::{STREAM_HEAD, Then, delta};
use super::support::gateway::user_limit;
use super::support::rig::{Figures, Rig, all_types};
use super::support::until;
use super::{INPUT, OUTPUT, model};

/// One run of a scenario and what must come of it.
struct Scenario {
    name: &'static str,
    /// The limits of the user; none means one of each type, each wide.
    limits: Option<Value>,
    /// The facts that the script prints.
    facts: Value,
    /// Requests that reached the backend.
    delivered: usize,
}

fn run(rig: &Rig, scenario: &str, credential: &str) -> Value {
    Script::Python("sdk.py").run(rig, scenario, credential)
}

fn check(scenario: Scenario) -> Rig {
    let limits = scenario.limits.unwrap_or_else(|| all_types(1_000_000));
    let rig = Rig::with(model(), limits, |_| {});
    let facts = run(&rig, scenario.name, &rig.key.credential);
    compare(scenario.name, &facts, &scenario.facts);
    assert_eq!(rig.backend.count(), scenario.delivered, "{}: requests delivered", scenario.name);
    rig
}

/// What one answered request counts on the caps of a rig.
fn one_answered() -> Figures {
    let tokens = INPUT + OUTPUT;
    Figures { rpm: 1, slots: 0, requests: 1, tokens, millis: tokens }
}

#[test]
fn a_chat_is_answered_and_counted() {
    let rig = check(Scenario {
        name: "chat",
        limits: None,
        facts: json!({ "text": "hello", "usage": [INPUT, OUTPUT] }),
        delivered: 1,
    });
    rig.comes_to("after a chat", &one_answered());
    let request = &rig.backend.requests()[0];
    assert!(!request.head.contains(&rig.key.credential), "the key reached the backend");
}

#[test]
fn a_stream_that_asked_for_no_usage_shows_none_and_is_counted() {
    let rig = check(Scenario {
        name: "stream",
        limits: None,
        facts: json!({ "text": "hello", "without_choices": 0, "usage": [] }),
        delivered: 1,
    });
    rig.comes_to("after a stream", &one_answered());
    let asked: Value = serde_json::from_slice(&rig.backend.requests()[0].body).expect("JSON");
    assert_eq!(asked["stream_options"]["include_usage"], true, "usage was asked of the backend");
}

#[test]
fn a_stream_that_asked_for_usage_shows_it_once() {
    let rig = check(Scenario {
        name: "stream_with_usage",
        limits: None,
        facts: json!({ "text": "hello", "without_choices": 1, "usage": [[INPUT, OUTPUT]] }),
        delivered: 1,
    });
    rig.comes_to("after a stream with usage", &one_answered());
}

#[test]
fn a_stream_that_is_left_is_cancelled_at_the_backend() {
    let rig = Rig::wide(Arc::new(|exchange| {
        exchange.send(STREAM_HEAD.as_bytes());
        exchange.chunk(&delta("hel"));
        exchange.wait_for_close(Duration::from_secs(10));
        Then::Close
    }));
    assert_eq!(run(&rig, "stream_left", &rig.key.credential), json!({ "first": "hel" }));
    until("the backend's connection is closed", || (rig.backend.connections() == 0).then_some(()));
    let figures = rig.at_rest();
    assert_eq!((figures.rpm, figures.slots, figures.requests), (1, 0, 1), "{figures:?}");
    assert!(figures.tokens > 0, "what was relayed is charged: {figures:?}");
}

#[test]
fn embeddings_are_answered_and_counted() {
    let rig = check(Scenario {
        name: "embeddings",
        limits: None,
        facts: json!({ "vector": [0.5, 0.25], "prompt_tokens": 7 }),
        delivered: 1,
    });
    let wanted = Figures { rpm: 1, slots: 0, requests: 1, tokens: 7, millis: 7 };
    rig.comes_to("after embeddings", &wanted);
}

#[test]
fn models_are_listed_and_count_nothing() {
    let rig = check(Scenario { name: "models", limits: None, facts: json!({ "ids": ["m*"] }), delivered: 0 });
    rig.comes_to("after a list", &Figures::default());
}

#[test]
fn a_refusal_is_caught_with_its_members() {
    check(Scenario {
        name: "refused",
        limits: Some(json!([user_limit("user_rpm", "rpm", 1, "30s")])),
        facts: json!({
            "attempts": 1,
            "refused_by": "user_rpm", "header_refused_by": "user_rpm",
            "node": "org:acme/team:ml/user:dev1",
            "header_refused_node": "org:acme/team:ml/user:dev1",
            "limit_type": "rpm", "tripped": ["user_rpm"],
            "code": "rate_limit_exceeded", "type": "rate_limit_exceeded",
            "retryable": true, "should_retry": "true",
            "retry_after_is_whole": true, "request_id_is_the_header": true,
            "message_names_the_limit": true,
        }),
        delivered: 1,
    });
}

#[test]
fn a_budget_that_is_spent_is_not_tried_again() {
    check(Scenario {
        name: "refused_with_retries",
        limits: Some(json!([{
            "id": "user_money", "attach": { "level": "user" }, "type": "budget_usd",
            "amount_usd": 0.001, "period": "year",
        }])),
        facts: json!({
            "attempts": 1, "refused_by": "user_money", "limit_type": "budget_usd",
            "code": "insufficient_quota", "type": "insufficient_quota",
            "retryable": false, "should_retry": "false",
        }),
        delivered: 1,
    });
}

#[test]
fn a_wait_of_more_than_a_minute_is_not_tried_again() {
    check(Scenario {
        name: "refused_with_retries",
        limits: Some(json!([user_limit("slow", "rpm", 1, "100s")])),
        facts: json!({ "attempts": 1, "refused_by": "slow", "should_retry": "false" }),
        delivered: 1,
    });
}

#[test]
fn a_short_wait_is_waited_for_and_the_second_try_passes() {
    check(Scenario {
        name: "refused_with_retries",
        limits: Some(json!([user_limit("fast", "rpm", 1, "2s")])),
        facts: json!({ "attempts": 2, "refused_by": null }),
        delivered: 2,
    });
}

#[test]
fn other_refusals_are_the_errors_that_the_sdk_knows() {
    let rig = Rig::wide(model());
    let unknown = "tt_vk_AAAAAAAAAAAA_00000000000000000000000000000000";
    for (scenario, credential, code) in [
        ("bad_key", unknown, "invalid_api_key"),
        ("unknown_model", rig.key.credential.as_str(), "model_not_found"),
    ] {
        let wanted = json!({ "attempts": 1, "code": code });
        assert_eq!(run(&rig, scenario, credential), wanted, "{scenario}");
    }
    assert_eq!(rig.backend.count(), 0, "requests delivered");
    rig.comes_to("after other refusals", &Figures::default());
}
