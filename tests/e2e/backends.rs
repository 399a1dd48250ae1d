//! Backends that are down, die at some stage or talk nonsense: what the client gets, and what each
//! ending costs (SPEC 4.7 and 10).

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::support::backend::{
    STREAM_HEAD, Script, Then, answers, chat_answer, delta, exactly, streams_until_left,
};
use super::support::gateway::{chat_body, chat_request, free_port, stream_body};
use super::support::rig::{Figures, Rig, all_types};

/// What the client must see.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Seen {
    /// An error of the gateway's own, with this status.
    Error(u16),
    /// The backend's answer begun, and visibly not complete.
    CutShort,
    /// The same, or an error with status 502 when nothing of the answer had been relayed yet.
    Broken,
    /// The backend's answer, complete.
    Whole,
}

/// What the exchange must cost.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Cost {
    /// Nothing was delivered: nothing is consumed.
    Nothing,
    /// A request, and this many tokens.
    Request { tokens: u64 },
}

/// Tokens of the prompt of [`chat_body`]: "say something" is 13 bytes, 4 a token, rounded up.
const PROMPT: u64 = 4;

struct Case {
    name: &'static str,
    script: Script,
    streams: bool,
    seen: Seen,
    cost: Cost,
}

fn check(rig: &Rig, case: Case) {
    let Case { name, script, streams, seen, cost } = case;
    let before = rig.at_rest();
    rig.backend.answer_with(script);
    let mut client = rig.gateway.connect();
    let body = if streams { stream_body() } else { chat_body() };
    client.send(&chat_request(&rig.key, body));
    let answer = client.try_read();
    match (seen, &answer) {
        (Seen::Error(status), Ok(answer)) => {
            assert_eq!(answer.status, status, "{name}: {}", answer.text());
            assert_ne!(answer.error_text("message"), "", "{name}: no message: {}", answer.text());
            assert!(!answer.text().contains("sk-backend"), "{name}: shows the backend's credential");
        }
        (Seen::CutShort, Ok(answer)) => {
            assert!(!answer.complete, "{name}: looks complete: {answer:?}");
        }
        (Seen::Broken, Ok(answer)) if answer.status == 502 => {
            assert_ne!(answer.error_text("message"), "", "{name}: no message: {}", answer.text());
        }
        (Seen::Broken, Ok(answer)) => {
            assert!(!answer.complete, "{name}: looks complete: {answer:?}");
        }
        (Seen::CutShort | Seen::Broken, Err(_)) => {}
        (Seen::Whole, Ok(answer)) => {
            assert!(answer.complete && answer.status == 200, "{name}: {answer:?}");
        }
        _ => panic!("{name}: wanted {seen:?}, got {answer:?}"),
    }
    let mut wanted = before;
    if let Cost::Request { tokens } = cost {
        wanted.rpm += 1;
        wanted.requests += 1;
        wanted.tokens += tokens;
        wanted.millis += tokens;
    }
    rig.comes_to(name, &wanted);
}

fn check_all(cases: Vec<Case>) {
    let rig = Rig::with(answers(1, 1), all_types(1_000_000), |config| {
        config["http"] = json!({ "first_byte_timeout": "1s", "between_bytes_timeout": "1s" });
    });
    for case in cases {
        let name = case.name;
        check(&rig, case);
        rig.backend.answer_with(answers(1, 1));
        let next = rig.gateway.chat(&rig.key, chat_body());
        assert_eq!(next.status, 200, "the request after {name}: {}", next.text());
    }
}

/// Bytes, and then the connection ends as told; the client asked for one JSON answer.
fn json(name: &'static str, bytes: &str, then: Then, seen: Seen, cost: Cost) -> Case {
    Case { name, script: exactly(bytes, then), streams: false, seen, cost }
}

/// The same for a client that asked for a stream.
fn streamed(name: &'static str, bytes: &str, then: Then, seen: Seen, cost: Cost) -> Case {
    Case { name, script: exactly(bytes, then), streams: true, seen, cost }
}

#[test]
fn what_was_not_delivered_costs_nothing() {
    let silent: Script = Arc::new(|exchange| {
        exchange.wait_for_close(Duration::from_secs(5));
        Then::Close
    });
    check_all(vec![
        json("closes without an answer", "", Then::Close, Seen::Error(502), Cost::Nothing),
        json("resets without an answer", "", Then::Reset, Seen::Error(502), Cost::Nothing),
        Case {
            name: "never answers",
            script: silent,
            streams: false,
            seen: Seen::Error(504),
            cost: Cost::Nothing,
        },
    ]);
}

#[test]
fn a_backend_that_is_down_costs_nothing() {
    let dead = free_port();
    let rig = Rig::with(answers(1, 1), all_types(1000), |config| {
        config["providers"][0]["base_urls"] = json!([format!("http://127.0.0.1:{dead}")]);
    });
    for round in 0..3 {
        let answer = rig.gateway.chat(&rig.key, chat_body());
        assert!(matches!(answer.status, 502 | 503), "round {round}: {}", answer.text());
        assert_ne!(answer.error_text("message"), "", "{}", answer.text());
    }
    rig.comes_to("a dead backend", &Figures::default());
}

#[test]
fn heads_that_make_no_sense_are_a_bad_gateway() {
    let error = Seen::Error(502);
    // Nothing came that could be called an answer: it was not delivered.
    let cost = Cost::Nothing;
    let whole = chat_answer(1, 1);
    let length = whole.len();
    let huge = format!("HTTP/1.1 200 OK\r\nX-Huge: {}\r\n\r\n", "h".repeat(4 << 20));
    let two = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nContent-Length: 2\r\n\r\n{whole}");
    let both =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{whole}");
    check_all(vec![
        json("dies inside its head", "HTTP/1.1 200 OK\r\nContent-", Then::Close, error, cost),
        json("resets inside its head", "HTTP/1.1 200 OK\r\nContent-", Then::Reset, error, cost),
        json("speaks no HTTP", "220 mail ready\r\n\r\n", Then::Close, error, cost),
        json("sends a status that is none", "HTTP/1.1 abc OK\r\n\r\n", Then::Close, error, cost),
        json("sends two lengths", &two, Then::Close, error, cost),
        json("sends a length and chunks", &both, Then::Close, error, cost),
        json("sends a head without end", &huge, Then::Close, error, cost),
        json(
            "switches protocols",
            "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            Then::Close,
            error,
            cost,
        ),
    ]);
}

#[test]
fn bodies_that_break_are_seen_to_be_broken() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let short = format!("{head}Content-Length: 500\r\n\r\n{{\"id\":\"r\",");
    let text = "x".repeat(50_000);
    let long = format!("{head}Content-Length: 100000\r\n\r\n{{\"id\":\"{text}");
    let chunk = format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n");
    let event = delta("hello");
    let begun = format!("{STREAM_HEAD}{:x}\r\n{event}\r\n", event.len());
    // The text of a delta is what was relayed to read: five bytes are two tokens.
    let relayed = Cost::Request { tokens: PROMPT + 2 };
    let mut cases = Vec::new();
    for then in [Then::Close, Then::Reset] {
        let tokens = PROMPT + 10_u64.div_ceil(4);
        cases.push(json("breaks inside its body", &short, then, Seen::Broken, Cost::Request { tokens }));
        let tokens = PROMPT + 50_007_u64.div_ceil(4);
        cases.push(json("breaks inside a long body", &long, then, Seen::CutShort, Cost::Request { tokens }));
        cases.push(streamed("breaks inside its stream", &begun, then, Seen::CutShort, relayed));
    }
    let chunk_cost = Cost::Request { tokens: PROMPT };
    cases.push(json("sends a chunk size that is none", &chunk, Then::Close, Seen::Broken, chunk_cost));
    let stalls: Script = Arc::new(move |exchange| {
        exchange.send(begun.as_bytes());
        exchange.wait_for_close(Duration::from_secs(5));
        Then::Close
    });
    cases.push(Case {
        name: "falls silent inside its stream",
        script: stalls,
        streams: true,
        seen: Seen::CutShort,
        cost: relayed,
    });
    check_all(cases);
}

/// A client of either version sees whether an answer is whole that has neither length nor chunks, or had chunks.
#[test]
fn a_body_that_ends_with_its_connection_is_whole_only_if_nothing_broke() {
    let rig = Rig::with(answers(1, 1), all_types(1_000_000), |config| {
        config["http"] = json!({ "first_byte_timeout": "1s", "between_bytes_timeout": "1s" });
    });
    let check = |name: &str, script: Script, whole: bool, tokens: u64| {
        for version in ["HTTP/1.0", "HTTP/1.1"] {
            let mut wanted = rig.at_rest();
            rig.backend.answer_with(script.clone());
            let asked = String::from_utf8(chat_request(&rig.key, stream_body())).expect("text");
            let mut client = rig.gateway.connect();
            client.send(asked.replacen("HTTP/1.1", version, 1).as_bytes());
            let name = format!("{name}, {version}");
            if version == "HTTP/1.1" {
                let answer = client.read();
                assert_eq!((answer.status, answer.complete), (200, whole), "{name}: {answer:?}");
            } else {
                let (mut wire, mut read) = (client.wire().clone(), Vec::new());
                let ended = wire.read_to_end(&mut read).map(|_| ()).map_err(|error| error.kind());
                let ends = if whole { Ok(()) } else { Err(ErrorKind::ConnectionReset) };
                assert_eq!(ended, ends, "{name}: {}", String::from_utf8_lossy(&read));
                assert!(read.starts_with(b"HTTP/1.1 200 "), "{name}");
            }
            wanted.rpm += 1;
            wanted.requests += 1;
            wanted.tokens += tokens;
            wanted.millis += tokens;
            rig.comes_to(&name, &wanted);
        }
    };
    let type_of = "Content-Type: application/json\r\n";
    let whole = chat_answer(30, 12);
    let half = &whole[..whole.len() / 2];
    let estimated = PROMPT + (half.len() as u64).div_ceil(4);
    for head in [
        format!("HTTP/1.0 200 OK\r\n{type_of}\r\n"),
        format!("HTTP/1.1 200 OK\r\n{type_of}\r\n"),
        format!("HTTP/1.1 200 OK\r\n{type_of}Connection: close\r\n\r\n"),
    ] {
        let all = format!("{head}{whole}");
        let part = format!("{head}{half}");
        check("closed behind everything", exactly(all.clone(), Then::Close), true, 42);
        check("reset behind everything", exactly(all, Then::Reset), false, 42);
        check(
            "closed in the middle, which nobody can tell",
            exactly(part.clone(), Then::Close),
            true,
            estimated,
        );
        check("reset in the middle", exactly(part.clone(), Then::Reset), false, estimated);
        let silent: Script = Arc::new(move |exchange| {
            exchange.send(part.as_bytes());
            exchange.wait_for_close(Duration::from_secs(5));
            Then::Close
        });
        check("falls silent", silent, false, estimated);
    }
    let event = delta("hello");
    let begun = format!("{STREAM_HEAD}{:x}\r\n{event}\r\n", event.len());
    check("chunks", exactly(format!("{begun}0\r\n\r\n"), Then::Keep), true, PROMPT + 2);
    check("chunks without the last", exactly(begun.clone(), Then::Close), false, PROMPT + 2);
    check("chunks that are reset", exactly(begun, Then::Reset), false, PROMPT + 2);
}

#[test]
fn a_gateway_that_is_killed_ends_no_body() {
    let mut rig = Rig::wide(streams_until_left());
    let asked = String::from_utf8(chat_request(&rig.key, stream_body())).expect("text");
    let mut client = rig.gateway.connect();
    client.send(asked.replacen("HTTP/1.1", "HTTP/1.0", 1).as_bytes());
    client.read_until(b"begun").expect("the first event");
    rig.gateway.kill();
    let ended = client.wire().clone().read_to_end(&mut Vec::new());
    assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
}

#[test]
fn a_surplus_of_bytes_is_nobodys_answer() {
    let whole = chat_answer(1, 1);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
    let twice = format!("{head}{}\r\n\r\n{whole}{head}7\r\n\r\n\"stray\"", whole.len());
    check_all(vec![json(
        "sends a second answer that nobody asked for",
        &twice,
        Then::Keep,
        Seen::Whole,
        Cost::Request { tokens: 2 },
    )]);
}

#[test]
fn a_usage_reported_before_the_break_is_what_counts() {
    let report = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":12}}\n\n";
    let begun = format!("{STREAM_HEAD}{:x}\r\n{report}\r\n", report.len());
    let cost = Cost::Request { tokens: 42 };
    check_all(vec![streamed("breaks after its report", &begun, Then::Reset, Seen::CutShort, cost)]);
}
