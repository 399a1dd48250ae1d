//! The backend against raw sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::*;
use crate::http::chunked;

/// A running backend and one connection to it.
struct Wire {
    backend: Backend,
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    fn to(options: BackendOptions) -> Wire {
        let backend = Backend::start(options).expect("a backend on a free port");
        let stream = TcpStream::connect(backend.addr()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out");
        Wire { backend, stream, read: Vec::new() }
    }

    fn send(&mut self, bytes: &str) {
        self.stream.write_all(bytes.as_bytes()).expect("sent");
    }

    /// Reads until `text` has come; returns what came up to and with it.
    fn up_to(&mut self, text: &str) -> String {
        let mut piece = [0; 4096];
        loop {
            if let Some(at) = memchr::memmem::find(&self.read, text.as_bytes()) {
                let rest = self.read.split_off(at + text.len());
                let taken = std::mem::replace(&mut self.read, rest);
                return String::from_utf8(taken).expect("text");
            }
            let count = self.stream.read(&mut piece).expect("more bytes");
            let so_far = String::from_utf8_lossy(&self.read);
            assert!(count > 0, "the connection ended before {text:?}; it had {so_far:?}");
            self.read.extend_from_slice(&piece[..count]);
        }
    }

    fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut piece = [0; 4096];
        while self.read.len() < length {
            let count = self.stream.read(&mut piece).expect("more bytes");
            assert!(count > 0, "the connection ended early");
            self.read.extend_from_slice(&piece[..count]);
        }
        let rest = self.read.split_off(length);
        std::mem::replace(&mut self.read, rest)
    }

    /// One answer with a length: its status and body.
    fn answer(&mut self) -> (u16, Value) {
        let head = self.up_to("\r\n\r\n");
        let status = head[9..12].parse().expect("a status");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let body = self.exactly(length.parse().expect("a number"));
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// The data of every event of a chunked stream.
    fn events(&mut self) -> Vec<String> {
        let head = self.up_to("\r\n\r\n");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let raw = self.up_to("\r\n0\r\n\r\n");
        let mut chunks = Vec::new();
        let fed = chunked::Decoder::new().feed(raw.as_bytes(), |data| {
            let event = String::from_utf8(data.to_vec()).expect("text");
            assert!(event.ends_with("\n\n"), "a chunk is no whole event: {event:?}");
            chunks.push(event);
        });
        assert_eq!(fed, Ok(chunked::Fed::Done(raw.len())));
        chunks
            .iter()
            .map(|event| {
                let at = event.find("data: ").expect("data");
                event[at + 6..].trim_end().to_owned()
            })
            .collect()
    }

    /// Waits until the counters say so.
    fn until(&self, what: &str, done: impl Fn(BackendStats) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !done(self.backend.stats()) {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.backend.stats());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn chat(more: &str) -> String {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"12345"}}]{more}}}"#);
    post("/v1/chat/completions", &body)
}

#[test]
fn each_call_answers_with_its_usage() {
    fn check(path: &str, body: &str, object: &str, usage: [(&str, u64); 3]) {
        let mut wire = Wire::to(BackendOptions::default());
        wire.send(&post(path, body));
        let (status, answer) = wire.answer();
        assert_eq!((status, answer["object"].as_str()), (200, Some(object)), "{answer}");
        for (name, count) in usage {
            assert_eq!(answer["usage"][name], count, "{path} {name}: {answer}");
        }
    }
    let messages = r#"{"model":"m","messages":[{"role":"user","content":"12345"}],"max_tokens":3,"n":2}"#;
    let of = |prompt, output| {
        [("prompt_tokens", prompt), ("completion_tokens", output), ("total_tokens", prompt + output)]
    };
    check("/v1/chat/completions", messages, "chat.completion", of(2, 6));
    let prompt = r#"{"model":"m","prompt":"1234"}"#;
    check("/v1/completions", prompt, "text_completion", of(1, 32));
    let input = r#"{"model":"m","input":["1234","5"]}"#;
    let usage = [("prompt_tokens", 2), ("total_tokens", 2), ("prompt_tokens", 2)];
    check("/v1/embeddings", input, "list", usage);
    let input = r#"{"model":"m","input":"12345678","max_output_tokens":5}"#;
    let usage = [("input_tokens", 2), ("output_tokens", 5), ("total_tokens", 7)];
    check("/v1/responses", input, "response", usage);
}

#[test]
fn a_stream_reports_usage_only_when_asked() {
    fn check(more: &str, reported: bool) {
        let mut wire = Wire::to(BackendOptions::default());
        wire.send(&chat(&format!(r#","stream":true,"max_tokens":4{more}"#)));
        let events = wire.events();
        assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
        let parsed: Vec<Value> = events[..events.len() - 1]
            .iter()
            .map(|event| serde_json::from_str(event).expect("JSON"))
            .collect();
        let text: String =
            parsed.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, "The river rises slowly");
        let last = parsed.last().expect("events");
        // Role, four tokens, the finish; and the usage.
        assert_eq!(parsed.len(), if reported { 7 } else { 6 }, "{events:?}");
        if reported {
            assert_eq!(last["choices"], serde_json::json!([]));
            assert_eq!(last["usage"]["prompt_tokens"], 2);
            assert_eq!(last["usage"]["completion_tokens"], 4);
            assert_eq!(parsed[0].get("usage"), Some(&Value::Null));
        } else {
            assert_eq!(last["choices"][0]["finish_reason"], "length");
            assert!(parsed.iter().all(|event| event.get("usage").is_none()));
        }
    }
    check("", false);
    check(r#","stream_options":{"include_usage":false}"#, false);
    check(r#","stream_options":{"include_usage":true}"#, true);
}

#[test]
fn a_responses_stream_ends_with_its_usage() {
    let mut wire = Wire::to(BackendOptions::default());
    let body = r#"{"model":"m","input":"1234","stream":true,"max_output_tokens":2}"#;
    wire.send(&post("/v1/responses", body));
    let events: Vec<Value> =
        wire.events().iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(names.first(), Some(&"response.created"));
    assert_eq!(names.last(), Some(&"response.incomplete"));
    let deltas = names.iter().filter(|name| **name == "response.output_text.delta");
    assert_eq!(deltas.count(), 2);
    let usage = &events[events.len() - 1]["response"]["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&1.into(), &2.into()));
}

#[test]
fn requests_one_after_another_and_all_at_once_are_answered_in_order() {
    let mut wire = Wire::to(BackendOptions::default());
    wire.send(&chat(r#","max_tokens":1"#));
    assert_eq!(wire.answer().1["usage"]["completion_tokens"], 1);
    let many: String = (2..6).map(|cap| chat(&format!(r#","max_tokens":{cap}"#))).collect();
    wire.send(&many);
    for cap in 2..6 {
        assert_eq!(wire.answer().1["usage"]["completion_tokens"], cap);
    }
    wire.until("counted", |stats| stats.connections == 1 && stats.completed == 5);
}

#[test]
fn a_request_in_single_bytes_and_in_chunks_is_read() {
    let mut wire = Wire::to(BackendOptions::default());
    for byte in chat("").as_bytes() {
        wire.stream.write_all(&[*byte]).expect("sent");
    }
    assert_eq!(wire.answer().0, 200);
    wire.send("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    wire.up_to("HTTP/1.1 100 Continue\r\n\r\n");
    wire.send("f\r\n{\"model\":\"m\",\"p\r\n");
    wire.send("10\r\nrompt\":\"1234567\"\r\n1\r\n}\r\n0\r\n\r\n");
    let (status, answer) = wire.answer();
    assert_eq!((status, &answer["usage"]["prompt_tokens"]), (200, &2.into()), "{answer}");
}

#[test]
fn wrong_requests_are_refused_in_json() {
    fn check(request: &str, status: u16, stays: bool) {
        let options = BackendOptions { max_body: 1000, ..BackendOptions::default() };
        let mut wire = Wire::to(options);
        wire.send(request);
        let (answered, body) = wire.answer();
        assert_eq!(answered, status, "{request:?}: {body}");
        assert!(body["error"]["message"].is_string(), "{body}");
        if stays {
            wire.send("GET /v1/models HTTP/1.1\r\n\r\n");
            assert_eq!(wire.answer().0, 200, "after {request:?}");
        } else {
            assert_eq!(wire.stream.read(&mut [0; 8]).expect("an end"), 0);
        }
    }
    check(&post("/v1/chat/completions", "{"), 400, true);
    check(&post("/v1/chat/completions", r#"{"model":"m"}"#), 400, true);
    check(&post("/v1/other", "{}"), 404, true);
    check("GET /v1/chat/completions HTTP/1.1\r\n\r\n", 405, true);
    check("nonsense\r\n\r\n", 400, false);
    check("POST /v1/completions HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413, false);
    let large = format!("GET / HTTP/1.1\r\nx: {}\r\n", "y".repeat(bounds::MAX_HEAD));
    check(&large, 431, false);
}

#[test]
fn tokens_come_at_their_pace_and_stop_when_the_client_leaves() {
    let pace = Pace { first_token: Duration::from_millis(30), tokens_per_second: 100.0 };
    let options = BackendOptions { pace, completion_tokens: 10_000, ..BackendOptions::default() };
    let mut wire = Wire::to(options);
    let asked = Instant::now();
    wire.send(&chat(r#","stream":true"#));
    wire.up_to("river");
    let took = asked.elapsed();
    // The second token is due after 30 + 10 ms.
    assert!(took >= Duration::from_millis(40), "{took:?}");
    wire.stream.shutdown(Shutdown::Both).expect("left");
    wire.until("cancelled", |stats| stats.cancelled == 1);
    let tokens = wire.backend.stats().tokens;
    assert!(tokens < 1000, "{tokens} tokens for a client that left");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(wire.backend.stats().tokens, tokens);
}

#[test]
fn a_client_that_leaves_before_the_answer_is_noticed() {
    let options =
        BackendOptions { latency: Latency::Fixed(Duration::from_secs(60)), ..BackendOptions::default() };
    let mut wire = Wire::to(options);
    wire.send(&chat(""));
    wire.until("asked", |stats| stats.requests == 1);
    wire.stream.shutdown(Shutdown::Write).expect("half-closed");
    wire.until("cancelled", |stats| stats.cancelled == 1 && stats.completed == 0);
}

#[test]
fn failures_come_at_their_rate() {
    let failures = Failures { rate: 0.25, how: Failure::Status(503) };
    let options = BackendOptions { failures, ..BackendOptions::default() };
    let mut wire = Wire::to(options);
    let mut failed = 0;
    for _ in 0..400 {
        wire.send(&chat(r#","max_tokens":1"#));
        match wire.answer().0 {
            503 => failed += 1,
            status => assert_eq!(status, 200),
        }
    }
    assert!((60..140).contains(&failed), "{failed} of 400 failed");
    wire.until("counted", |stats| stats.failed == failed);
    let failures = Failures { rate: 1.0, how: Failure::Close };
    let mut wire = Wire::to(BackendOptions { failures, ..BackendOptions::default() });
    wire.send(&chat(""));
    assert_eq!(wire.stream.read(&mut [0; 8]).expect("an end"), 0);
}

#[test]
fn latency_is_drawn_from_its_range() {
    let (low, high) = (Duration::from_millis(5), Duration::from_millis(15));
    let latency = Latency::Uniform(low, high);
    let mut wire = Wire::to(BackendOptions { latency, ..BackendOptions::default() });
    for _ in 0..10 {
        let asked = Instant::now();
        wire.send(&chat(""));
        wire.answer();
        assert!(asked.elapsed() >= low);
    }
}

#[test]
fn the_fixed_answer_is_the_same_for_every_request() {
    let answer = FixedAnswer::default();
    let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let mode = Mode::Fixed(answer);
    let mut wire = Wire::to(BackendOptions { mode, ..BackendOptions::default() });
    wire.send(&chat(""));
    assert_eq!(wire.answer(), (200, body.clone()));
    let many: String = (0..50).map(|_| post("/any", "x")).collect();
    let (first, second) = many.split_at(many.len() / 2);
    wire.send(first);
    std::thread::sleep(Duration::from_millis(20));
    wire.send(second);
    for _ in 0..50 {
        assert_eq!(wire.answer(), (200, body.clone()));
    }
    wire.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!(wire.answer().0, 200);
    assert_eq!(wire.stream.read(&mut [0; 8]).expect("an end"), 0);
}

#[test]
fn a_stop_ends_connections_and_frees_the_port() {
    fn check(threads: usize) {
        let mut wire = Wire::to(BackendOptions { threads, ..BackendOptions::default() });
        wire.send("GET /v1/models HTTP/1.1\r\n\r\n");
        assert_eq!(wire.answer().0, 200);
        let address = wire.backend.addr();
        let taken = Backend::start(BackendOptions { listen: address, threads, ..BackendOptions::default() });
        assert!(taken.is_err(), "the port was given out twice");
        wire.backend.stop();
        assert_eq!(wire.stream.read(&mut [0; 8]).expect("an end"), 0);
        assert!(TcpStream::connect(address).is_err(), "it still listens");
    }
    check(1);
    check(2);
}
