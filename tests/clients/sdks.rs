//! LangChain and the official SDKs for Node and of Anthropic, each as installed and with its own retries: what it makes
//! of an answer, a stream and each kind of refusal, and that the caps counted what it reports.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::script::{Script, compare};
use super::support::backend::{Exchange, STREAM_HEAD, Script as Answers, Then, delta};
use super::support::gateway::{BACKEND_CREDENTIAL, user_limit};
use super::support::rig::{Figures, Rig, all_types};
use super::support::until;
use super::{INPUT, OUTPUT, model};

/// What a client speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Api {
    OpenAi,
    Anthropic,
}

/// A client under test: its script and what it speaks.
#[derive(Clone, Copy)]
struct Client(Script, Api);

const LANGCHAIN: Client = Client(Script::Python("langchain_chat.py"), Api::OpenAi);
const OPENAI_FOR_NODE: Client = Client(Script::Node("chat.js"), Api::OpenAi);
const ANTHROPIC: Client = Client(Script::Python("messages.py"), Api::Anthropic);
const ANTHROPIC_FOR_NODE: Client = Client(Script::Node("messages.js"), Api::Anthropic);

/// Tokens that Anthropic's backend reports beside its input: written to its cache, and read from it.
const CACHE: [u64; 2] = [11, 13];

fn usage(output: u64) -> String {
    let [written, read] = CACHE;
    format!(
        r#"{{"input_tokens":{INPUT},"cache_creation_input_tokens":{written},"cache_read_input_tokens":{read},"output_tokens":{output}}}"#
    )
}

/// An Anthropic message with this content.
fn message(content: &str, stop: &str, output: u64) -> String {
    let usage = usage(output);
    format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m1","content":[{content}],"stop_reason":{stop},"stop_sequence":null,"usage":{usage}}}"#
    )
}

fn event(exchange: &mut Exchange, kind: &str, rest: &str) {
    let comma = if rest.is_empty() { "" } else { "," };
    exchange.chunk(&format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{comma}{rest}}}\n\n"));
}

/// The first event of Anthropic's stream: its usage has all of the input and a beginning of the output.
fn message_starts(exchange: &mut Exchange) {
    exchange.send(STREAM_HEAD.as_bytes());
    event(exchange, "message_start", &format!("\"message\":{}", message("", "null", 1)));
}

/// A backend with Anthropic's API; the totals of a stream come again with its `message_delta`.
fn messages() -> Answers {
    Arc::new(|exchange| {
        let asked: Value = serde_json::from_slice(&exchange.request.body).unwrap_or_default();
        if asked["stream"] != true {
            let whole = message(r#"{"type":"text","text":"hello"}"#, "\"end_turn\"", OUTPUT);
            exchange.reply(200, &whole);
            return Then::Keep;
        }
        message_starts(exchange);
        event(exchange, "content_block_start", r#""index":0,"content_block":{"type":"text","text":""}"#);
        for text in ["hel", "lo"] {
            let piece = format!(r#""index":0,"delta":{{"type":"text_delta","text":"{text}"}}"#);
            event(exchange, "content_block_delta", &piece);
        }
        event(exchange, "content_block_stop", r#""index":0"#);
        let totals = usage(OUTPUT);
        let end = format!(r#""delta":{{"stop_reason":"end_turn","stop_sequence":null}},"usage":{totals}"#);
        event(exchange, "message_delta", &end);
        event(exchange, "message_stop", "");
        exchange.send(b"0\r\n\r\n");
        Then::Keep
    })
}

impl Client {
    /// A gateway with these limits before a backend that answers, and whose streams begin and stay open if told so.
    fn rig(self, limits: Value, open_streams: bool) -> Rig {
        let Client(_, api) = self;
        let answers = if api == Api::Anthropic { messages() } else { model() };
        let script: Answers = Arc::new(move |exchange| {
            let asked: Value = serde_json::from_slice(&exchange.request.body).unwrap_or_default();
            if !(open_streams && asked["stream"] == true) {
                return answers(exchange);
            }
            if api == Api::Anthropic {
                message_starts(exchange);
            } else {
                exchange.send(STREAM_HEAD.as_bytes());
                exchange.chunk(&delta("hel"));
            }
            exchange.wait_for_close(Duration::from_secs(20));
            Then::Close
        });
        Rig::with(script, limits, |config| {
            if api == Api::Anthropic {
                config["providers"][0]["api"] = json!("anthropic");
            }
        })
    }
}

/// An answer and a stream are what the backend said, and all that the SDK reports is counted, once.
fn check_answers(client: Client) {
    let Client(script, api) = client;
    let rig = client.rig(all_types(1_000_000), false);
    let (answer, stream, tokens) = match api {
        Api::OpenAi => (
            json!({ "text": "hello", "usage": [INPUT, OUTPUT] }),
            json!({ "text": "hello", "usage": [] }),
            INPUT + OUTPUT,
        ),
        Api::Anthropic => {
            let [written, read] = CACHE;
            let used = json!([INPUT, written, read, OUTPUT]);
            let events = json!([
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop",
            ]);
            (
                json!({ "text": "hello", "usage": used, "requests_left": "999999" }),
                json!({ "text": "hello", "usage": used, "events": events }),
                INPUT + written + read + OUTPUT,
            )
        }
    };
    let facts = script.run(&rig, "answer", &rig.key.credential);
    assert_eq!(facts, answer, "{script:?}: an answer");
    let mut wanted = Figures { rpm: 1, slots: 0, requests: 1, tokens, millis: tokens };
    rig.comes_to("after an answer", &wanted);
    let facts = script.run(&rig, "stream", &rig.key.credential);
    assert_eq!(facts, stream, "{script:?}: a stream");
    wanted = Figures { rpm: 2, requests: 2, tokens: 2 * tokens, millis: 2 * tokens, ..wanted };
    rig.comes_to("after a stream", &wanted);

    let delivered = rig.backend.requests();
    assert_eq!(delivered.len(), 2, "{script:?}: requests delivered");
    for request in &delivered {
        assert!(!request.head.contains(&rig.key.credential), "{script:?}: the key reached the backend");
        if api == Api::Anthropic {
            assert_eq!(request.header("x-api-key"), Some(BACKEND_CREDENTIAL), "{}", request.head);
            assert!(request.header("anthropic-version").is_some(), "{}", request.head);
        }
    }
    let asked: Value = serde_json::from_slice(&delivered[1].body).expect("JSON");
    let asks_for_usage = asked["stream_options"]["include_usage"] == true;
    assert_eq!(asks_for_usage, api == Api::OpenAi, "{script:?}: usage was asked of the backend: {asked}");
}

/// One limit that refuses, and what a client makes of it: the requests that it sends, and the error that is left.
struct Case {
    limit: Value,
    scenario: &'static str,
    attempts: u64,
    /// `code` of the error, and `x-should-retry`; none: the last try passed.
    error: Option<(&'static str, &'static str)>,
    /// Requests that reached the backend.
    delivered: usize,
}

fn cases() -> [Case; 5] {
    let once = |limit, code| Case {
        limit,
        scenario: "refused",
        attempts: 1,
        error: Some((code, "false")),
        delivered: 1,
    };
    let mut budget = user_limit("money", "budget_usd", 0, "year");
    budget["amount_usd"] = json!(0.001);
    let held = user_limit("slots", "concurrency", 1, "");
    let short = user_limit("short", "rpm", 1, "2s");
    [
        once(budget, "insufficient_quota"),
        once(user_limit("tokens", "quota_tokens", 1, "year"), "insufficient_quota"),
        once(user_limit("long", "rpm", 1, "100s"), "rate_limit_exceeded"),
        Case { limit: short, scenario: "refused", attempts: 2, error: None, delivered: 2 },
        // The first one stays in flight, so each of the SDK's three tries is refused.
        Case {
            limit: held,
            scenario: "held",
            attempts: 3,
            error: Some(("rate_limit_exceeded", "true")),
            delivered: 1,
        },
    ]
}

/// What every error is for the client, with this status, class, type (OpenAI's and Anthropic's word) and code.
fn error(api: Api, status: u16, class: &str, kind: [&str; 2], code: &str) -> Value {
    let mut facts = json!({
        "status": status, "error": class, "code": code, "request_id_is_the_header": true,
        "type": if api == Api::OpenAi { kind[0] } else { kind[1] },
    });
    if api == Api::Anthropic {
        facts["kind"] = json!("error");
    }
    facts
}

/// Each refusal is the error that the SDK has for it, and is tried again as often as the gateway said.
fn check_refusals(client: Client) {
    let Client(script, api) = client;
    for case in cases() {
        let id = case.limit["id"].as_str().expect("an id").to_owned();
        let what = format!("{script:?}, {id}");
        let rig = client.rig(json!([case.limit]), case.scenario == "held");
        let facts = script.run(&rig, case.scenario, &rig.key.credential);
        let mut wanted = json!({ "error": null });
        if let Some((code, again)) = case.error {
            wanted = error(api, 429, "RateLimitError", [code, "rate_limit_error"], code);
            wanted["refused_by"] = json!(id);
            wanted["should_retry"] = json!(again);
        }
        wanted["attempts"] = json!(case.attempts);
        compare(&what, &facts, &wanted);
        assert_eq!(rig.backend.count(), case.delivered, "{what}: requests delivered");
        if case.scenario == "held" {
            until("the stream is cancelled", || (rig.backend.connections() == 0).then_some(()));
            rig.at_rest();
        }
    }

    let rig = client.rig(all_types(1_000_000), false);
    let unknown = "tt_vk_AAAAAAAAAAAA_00000000000000000000000000000000";
    let kind = ["invalid_request_error", "authentication_error"];
    let mut wanted = error(api, 401, "AuthenticationError", kind, "invalid_api_key");
    wanted["attempts"] = json!(1);
    compare(&format!("{script:?}, 401"), &script.run(&rig, "caught", unknown), &wanted);
    assert_eq!(rig.backend.count(), 0, "{script:?}: requests delivered");
    rig.comes_to("after a key that is unknown", &Figures::default());
}

#[test]
fn langchain_is_answered_and_counted() {
    check_answers(LANGCHAIN);
}

#[test]
fn openai_for_node_is_answered_and_counted() {
    check_answers(OPENAI_FOR_NODE);
}

#[test]
fn anthropic_is_answered_and_counted() {
    check_answers(ANTHROPIC);
}

#[test]
fn anthropic_for_node_is_answered_and_counted() {
    check_answers(ANTHROPIC_FOR_NODE);
}

#[test]
fn langchain_knows_a_refusal() {
    check_refusals(LANGCHAIN);
}

#[test]
fn openai_for_node_knows_a_refusal() {
    check_refusals(OPENAI_FOR_NODE);
}

#[test]
fn anthropic_knows_a_refusal() {
    check_refusals(ANTHROPIC);
}

#[test]
fn anthropic_for_node_knows_a_refusal() {
    check_refusals(ANTHROPIC_FOR_NODE);
}
