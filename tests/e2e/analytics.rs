//! What was spent and what was measured, against what the counters show: one run, every view of it.

use serde_json::{Value, json};

use super::support::backend::{Backend, STREAM_HEAD, Then, answers, delta, exactly};
use super::support::gateway::{DEV1, Gateway, chat_body, config, stream_body, user_limit};
use super::support::until;

/// Requests that pass, every other one without a report of its usage.
const PASSING: u64 = 12;
/// Requests that one cap refuses.
const REFUSED: u64 = 3;

fn limits() -> Value {
    let posture = |mut limit: Value, posture: Value| {
        limit["posture"] = posture;
        limit
    };
    json!([
        user_limit("money", "budget_usd", 1000, "year"),
        user_limit("tokens", "quota_tokens", 1_000_000, "year"),
        user_limit("requests", "quota_requests", PASSING, "year"),
        posture(user_limit("shadowed", "quota_requests", 2, "year"), json!({ "mode": "shadow" })),
        posture(user_limit("alerting", "quota_requests", 3, "year"), json!({ "enforce": "alert_only" })),
    ])
}

#[test]
fn usage_metrics_and_events_agree_with_the_counters() {
    let event = delta("hello, this is nobody's report");
    let unreported = format!("{STREAM_HEAD}{:x}\r\n{event}\r\n0\r\n\r\n", event.len());
    let backend = Backend::start(answers(31, 17));
    let mut document = config(backend.port, limits());
    document["prices"]["models"]["m1"] = json!({ "input": 0.15, "output": 0.61 });
    let mut gateway = Gateway::prepare(&document);
    gateway.set("TT_LOG", "info,access=debug");
    gateway.set("TT_LOG_FORMAT", "json");
    gateway.launch();
    let key = gateway.mint(DEV1, &[]);
    for number in 0..PASSING + REFUSED {
        let streams = number % 2 == 1;
        backend.answer_with(if streams { exactly(unreported.clone(), Then::Keep) } else { answers(31, 17) });
        let answer = gateway.chat(&key, if streams { stream_body() } else { chat_body() });
        let wanted = if number < PASSING { 200 } else { 429 };
        assert_eq!(answer.status, wanted, "{number}: {}", answer.text());
    }

    let caps = gateway.caps(&key);
    let cap = |id: &str| caps.iter().find(|cap| cap["limit_id"] == id).expect("the cap");
    let (usd, tokens) = (cap("money")["observed_usd"]["usd"].to_string(), &cap("tokens")["observed"]);
    println!("the counters show {usd} USD and {tokens} tokens");

    // By the command line, from the database.
    let by_key = || {
        let run = gateway.run(&["usage", "--by", "key,model", "--json"]);
        assert!(run.status.success(), "{run:?}");
        serde_json::from_slice::<Value>(&run.stdout).expect("JSON")
    };
    let seen = until("usage is written", || {
        let seen = by_key();
        (seen["totals"]["requests"] == PASSING).then_some(seen)
    });
    let row = &seen["usage"][0];
    assert_eq!((&row["kid"], &row["model"]), (&json!(key.kid), &json!("m1")));
    assert_eq!(row["usd"].to_string(), usd, "to the pico-dollar");
    assert_eq!(&row["total_tokens"], tokens);
    assert_eq!(row["estimated_requests"], PASSING / 2);
    assert_eq!(row["usd"].to_string(), seen["totals"]["usd"].to_string());

    // By the management API.
    let answer = gateway.get_admin("/tt/v1/admin/usage?by=key,model");
    assert_eq!(answer.json(), seen, "the API says the same");

    // By the metrics.
    let figure = |name: &str| -> u64 {
        let text = gateway.get_admin("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
    };
    let pico = usd.parse::<f64>().expect("a number") * 1e12;
    for (name, wanted) in [
        ("requests_admitted_total", PASSING),
        ("limit_admitted_total{limit=\"money\"}", PASSING),
        ("limit_admitted_total{limit=\"shadowed\"}", PASSING),
        ("limit_refused_total{limit=\"requests\"}", REFUSED),
        ("limit_shadow_refused_total{limit=\"shadowed\"}", PASSING - 2),
        ("limit_alerted_total{limit=\"alerting\"}", PASSING - 3),
        ("exchanges_total{status=\"2xx\",ending=\"complete\"}", PASSING),
        ("exchanges_total{status=\"4xx\",ending=\"capped\"}", REFUSED),
        ("cost_pico_usd_total", pico.round() as u64),
        ("gate_two_seconds_count", PASSING + REFUSED),
        ("first_byte_seconds_count{provider=\"local\"}", PASSING),
        ("reservations", 0),
        ("holds", 0),
        ("unwritten_rows{kind=\"usage\"}", 0),
        ("ruleset_version", 1),
    ] {
        let name = format!("tokentriage_{name}");
        until(&format!("{name} is {wanted}"), || (figure(&name) == wanted).then_some(()));
    }

    // By the events.
    let log = gateway.log();
    let events: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect();
    let access: Vec<&Value> = events.iter().filter(|event| event["target"] == "access").collect();
    assert_eq!(access.len() as u64, PASSING + REFUSED);
    let (first, last) = (access[0], access[access.len() - 1]);
    assert_eq!((&first["kid"], &first["node"]), (&json!(key.kid), &json!(DEV1)));
    assert_eq!(
        (&first["model"], &first["status"], &first["ending"]),
        (&json!("m1"), &json!(200), &json!("complete"))
    );
    assert_eq!((&first["input_tokens"], &first["output_tokens"]), (&json!(31), &json!(17)));
    assert_eq!(first["caps"], "alerting,money,requests,shadowed,tokens");
    assert_eq!((&last["status"], &last["refused_by"]), (&json!(429), &json!("requests")));
    let told = |limit: &str| events.iter().filter(|event| event["limit"] == limit).count();
    assert_eq!((told("alerting"), told("shadowed")), (1, 1), "once, however often");
    assert!(!log.contains(key.credential.rsplit('_').next().expect("a secret")), "a secret is in the log");
}
