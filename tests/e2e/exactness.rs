//! What was spent, told twice: by the roll-up of usage and by the counters. They are kept apart, on ways of their own, and
//! must agree to the pico-dollar, whatever was asked and however it ended.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::support::backend::{Backend, STREAM_HEAD, Script, Then, chat_answer, delta};
use super::support::client::request;
use super::support::gateway::{CHAT, DEV1, Gateway, Key, config, user_limit};
use super::support::until;

const TEAM: &str = "org:acme/team:ml";
const DEV2: &str = "org:acme/team:ml/user:dev2";
/// Threads that ask at once, on both workers.
const THREADS: usize = 4;
/// What each of them asks for, of every kind, with every key.
const ROUNDS: usize = 3;

/// How a request ends, by the `user` that it names.
const ENDINGS: [&str; 6] = ["whole", "stream", "unreported", "left", "failed", "cut"];
/// The models: two with prices of many digits, one that is served as the second, one without a price.
const MODELS: [&str; 4] = ["m1", "m2", "alias", "m-free"];

fn script() -> Script {
    Arc::new(|exchange| {
        let asked: Value = serde_json::from_slice(&exchange.request.body).unwrap_or_default();
        let ending = asked["user"].as_str().unwrap_or_default().to_owned();
        match ending.as_str() {
            "whole" => {
                exchange.reply(200, &chat_answer(31, 17));
                return Then::Keep;
            }
            "failed" => {
                exchange.reply(500, r#"{"error":{"message":"no"}}"#);
                return Then::Keep;
            }
            _ => {}
        }
        exchange.send(STREAM_HEAD.as_bytes());
        exchange.chunk(&delta("seven letters, or some more"));
        match ending.as_str() {
            "left" => {
                exchange.wait_for_close(Duration::from_secs(10));
                return Then::Close;
            }
            "cut" => {
                // A reset takes with it what the gateway has not read.
                std::thread::sleep(Duration::from_millis(30));
                return Then::Reset;
            }
            "stream" => {
                let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":29,\"completion_tokens\":13,\
                             \"prompt_tokens_details\":{\"cached_tokens\":11}}}\n\n";
                exchange.chunk(usage);
            }
            _ => {}
        }
        exchange.chunk("data: [DONE]\n\n");
        exchange.send(b"0\r\n\r\n");
        Then::Keep
    })
}

/// One request to its end, whatever that is.
fn ask(gateway: &Gateway, key: &Key, model: &str, ending: &str) {
    let streams = ending != "whole" && ending != "failed";
    let body = json!({
        "model": model, "stream": streams, "user": ending, "max_tokens": 9,
        "messages": [{ "role": "user", "content": "say something of this kind" }],
    });
    let bytes = request("POST", CHAT, &[("Authorization", &key.bearer())], body.to_string().as_bytes());
    let mut client = gateway.connect();
    client.send(&bytes);
    let head = client.read_head().expect("an answer");
    match ending {
        "left" => {
            client.read_until(b"letters").expect("the first event");
            client.reset();
        }
        "failed" => assert_eq!(head.status, 500),
        _ => {
            assert_eq!(head.status, 200, "{model} {ending}");
            let (_, complete) = client.read_body(&head);
            assert_eq!(complete, ending != "cut", "{model} {ending}");
        }
    }
}

/// Pico-dollars of an exact decimal.
fn pico(usd: &Value) -> u128 {
    let text = usd.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    assert!(part.len() <= 12, "finer than a pico-dollar: {text}");
    format!("{whole}{part:0<12}").parse().unwrap_or_else(|_| panic!("no decimal: {text}"))
}

/// Requests, tokens and pico-dollars.
type Spent = [u128; 3];

fn spent(row: &Value) -> Spent {
    let count = |name: &str| row[name].as_u64().expect("a count").into();
    [count("requests"), count("total_tokens"), pico(&row["usd"])]
}

fn sum<'r>(rows: impl IntoIterator<Item = &'r Value>) -> Spent {
    rows.into_iter().map(spent).fold([0; 3], |sum, row| std::array::from_fn(|place| sum[place] + row[place]))
}

/// What the caps of that name show: requests, tokens, money; with what they hold, which is to be nothing.
fn counted(caps: &[Value], name: &str) -> Option<Spent> {
    let cap = |kind: &str| {
        let id = format!("{name}_{kind}");
        caps.iter().find(|cap| cap["limit_id"] == id).unwrap_or_else(|| panic!("no {id} in {caps:#?}"))
    };
    let count = |kind: &str| cap(kind)["observed"].as_u64().expect("a count").into();
    let money = cap("money");
    let at_rest = cap("tokens")["held"] == 0 && pico(&money["held_usd"]["usd"]) == 0;
    at_rest.then(|| [count("requests"), count("tokens"), pico(&money["observed_usd"]["usd"])])
}

/// Limits of all that is counted, of each user, of the team, and of the team by one model.
fn limits() -> Value {
    let mut limits = Vec::new();
    for (name, change) in [
        ("user", json!({})),
        ("team", json!({ "attach": { "node": TEAM } })),
        ("m2", json!({ "attach": { "node": TEAM }, "match": { "model": "m2" } })),
    ] {
        for (kind, limit_type) in
            [("requests", "quota_requests"), ("tokens", "quota_tokens"), ("money", "budget_usd")]
        {
            let mut limit = user_limit(&format!("{name}_{kind}"), limit_type, 1_000_000, "year");
            for (member, value) in change.as_object().expect("members") {
                limit[member] = value.clone();
            }
            limits.push(limit);
        }
    }
    Value::from(limits)
}

#[test]
fn usage_and_counters_agree_to_the_pico_dollar_however_requests_end() {
    let backend = Backend::start(script());
    let mut document = config(backend.port, limits());
    document["routes"] = json!([
        { "model": "alias", "provider": "local", "served_model": "m2" },
        { "model": "m*", "provider": "local" },
    ]);
    document["prices"]["models"] = json!({
        "m1": { "input": 0.150_001, "output": 0.610_007, "cached_input": 0.075_003 },
        "m2": { "input": 2.999_999, "output": 11.000_001 },
    });
    let gateway = Gateway::start(&document);
    let keys =
        [(DEV1, gateway.mint(DEV1, &[])), (DEV1, gateway.mint(DEV1, &[])), (DEV2, gateway.mint(DEV2, &[]))];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (gateway, keys) = (&gateway, &keys);
            scope.spawn(move || {
                for round in 0..ROUNDS * keys.len() * MODELS.len() * ENDINGS.len() {
                    // Another order in each thread, so that all kinds meet.
                    let kind = round + thread * 7;
                    let (_, key) = &keys[kind % keys.len()];
                    let model = MODELS[kind / keys.len() % MODELS.len()];
                    ask(gateway, key, model, ENDINGS[kind / keys.len() / MODELS.len() % ENDINGS.len()]);
                }
            });
        }
    });

    let usage = |by: &str, more: &[&str]| -> Value {
        let run = gateway.run(&[&["usage", "--json", "--by", by], more].concat());
        assert!(run.status.success(), "{run:?}");
        serde_json::from_slice(&run.stdout).expect("JSON")
    };
    let of_model = |model: &'static str| {
        let caps = gateway.get(&format!("/tt/v1/me?model={model}&provider=local"), Some(&keys[0].1)).json();
        caps["limits"].as_array().expect("caps").clone()
    };
    // Every ending but a failed one counts tokens; each request was delivered and counts.
    let asked = (THREADS * ROUNDS * keys.len() * MODELS.len() * ENDINGS.len()) as u128;
    let team = until("everything is settled and written", || {
        let team = counted(&of_model("m2"), "team").filter(|team| team[0] == asked)?;
        (spent(&usage("node", &[])["totals"]) == team).then_some(team)
    });
    println!("{} requests, {} tokens, {} pico-dollars", team[0], team[1], team[2]);
    assert!(team[2] % 1_000_000 != 0, "the prices leave digits down to the pico-dollar: {}", team[2]);

    // By node: the user's caps, whichever of its keys was used.
    let by_node = usage("node", &[]);
    for (node, key) in [(DEV1, &keys[0].1), (DEV2, &keys[2].1)] {
        let rows = by_node["usage"].as_array().expect("rows").iter().filter(|row| row["node"] == node);
        assert_eq!(Some(sum(rows)), counted(&gateway.caps(key), "user"), "{node}");
    }
    // By model: the caps that match one, at the team. What is served as another model was asked for by its own name.
    let of_m2 = usage("model", &["--model", "m2", "--node", TEAM]);
    assert_eq!(Some(spent(&of_m2["totals"])), counted(&of_model("m2"), "m2"));
    let free = usage("model", &["--model", "m-free"]);
    assert_eq!(
        (pico(&free["totals"]["usd"]), free["totals"]["unpriced_requests"].as_u64()),
        (0, {
            // An answer that failed costs nothing, with a price or without.
            let priced_at_nothing = asked / 4 / 6;
            Some((asked / 4 - priced_at_nothing) as u64)
        })
    );
    // However it is cut, it is the same sum, and the management API says the same.
    for by in ["key", "model", "served", "hour", "day", "provider,endpoint", "node,key,model,hour"] {
        let found = usage(by, &[]);
        assert_eq!(sum(found["usage"].as_array().expect("rows")), team, "by {by}");
        assert_eq!(spent(&found["totals"]), team, "by {by}");
        assert_eq!(gateway.get_admin(&format!("/tt/v1/admin/usage?by={by}")).json(), found, "by {by}");
    }
    let by_key = usage("key", &[]);
    for (_, key) in &keys {
        let row = by_key["usage"].as_array().and_then(|rows| rows.iter().find(|row| row["kid"] == key.kid));
        assert_eq!(row.map(|row| spent(row)[0]), Some(asked / keys.len() as u128), "{}", key.kid);
    }
    let alias = usage("model,served", &["--model", "alias"]);
    assert_eq!(alias["usage"][0]["served"], "m2");
}
