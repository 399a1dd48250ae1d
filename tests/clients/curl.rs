//! curl: a chat, the caller's own caps, a refusal, and a file in a form, as a person at a shell sees them.

use std::process::Command;
use std::sync::Arc;

use serde_json::json;

use super::model;
use super::support::backend::{Script, Then};
use super::support::client::find;
use super::support::gateway::{CHAT, chat_body, user_limit};
use super::support::rig::{Figures, Rig, all_types};

/// What curl printed: head lines in lower case and the body, both as text.
struct Seen {
    status: String,
    head: String,
    body: String,
}

fn curl(rig: &Rig, path: &str, more: &[&str]) -> Seen {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--include", "--noproxy", "*", "--max-time", "20"]);
    command.args(["-H", &format!("Authorization: {}", rig.key.bearer())]).args(more);
    command.arg(format!("http://127.0.0.1:{}{path}", rig.gateway.port));
    let output = command.output().expect("the system has curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl: {errors} {text}");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.lines().next().and_then(|line| line.split(' ').nth(1)).expect("a status");
    Seen { status: status.to_owned(), head: head.to_lowercase(), body: body.to_owned() }
}

#[test]
fn a_chat_its_caps_and_a_refusal() {
    let limits = json!([user_limit("user_rpm", "rpm", 1, "30s")]);
    let rig = Rig::with(model(), limits, |_| {});
    let post = ["-H", "Content-Type: application/json", "-d", chat_body()];

    let chat = curl(&rig, CHAT, &post);
    assert_eq!(chat.status, "200", "{}", chat.body);
    assert!(chat.body.contains("\"content\":\"hello\""), "{}", chat.body);
    for header in ["x-request-id: ", "x-ratelimit-limit-requests: 1", "x-ratelimit-remaining-requests: 0"] {
        assert!(chat.head.contains(header), "{header} in {}", chat.head);
    }

    let me = curl(&rig, "/tt/v1/me", &[]);
    assert_eq!(me.status, "200", "{}", me.body);
    for part in
        [&rig.key.kid, "\"limit_id\":\"user_rpm\"", "\"observed\":1", "\"remaining\":0", "\"__global\""]
    {
        assert!(me.body.contains(part), "{part} in {}", me.body);
    }

    let refusal = curl(&rig, CHAT, &post);
    assert_eq!(refusal.status, "429", "{}", refusal.body);
    assert!(refusal.body.contains("\"refused_by\":\"user_rpm\""), "{}", refusal.body);
    for header in ["x-tt-refused-by: user_rpm", "retry-after: ", "x-should-retry: true"] {
        assert!(refusal.head.contains(header), "{header} in {}", refusal.head);
    }
    assert_eq!(rig.backend.count(), 1, "requests delivered");
}

#[test]
fn a_stream_comes_through_whole() {
    let rig = Rig::wide(model());
    let body = r#"{"model":"m1","stream":true,"messages":[{"role":"user","content":"say"}]}"#;
    let seen = curl(&rig, CHAT, &["--no-buffer", "-d", body]);
    assert_eq!(seen.status, "200", "{}", seen.body);
    assert!(seen.head.contains("content-type: text/event-stream"), "{}", seen.head);
    assert_eq!(seen.body.matches("data: ").count(), 3, "two deltas and the end: {}", seen.body);
    assert!(seen.body.ends_with("data: [DONE]\n\n"), "{}", seen.body);
}

/// A recording as curl sends files: the form goes on as it came but for the model, and what is reported is counted.
#[test]
fn a_form_with_a_file_is_governed_and_goes_on() {
    let script: Script = Arc::new(|exchange| {
        exchange.reply(
            200,
            r#"{"text":"hello","usage":{"type":"tokens","input_tokens":40,"output_tokens":2,"total_tokens":42,
            "input_token_details":{"audio_tokens":30,"text_tokens":10}}}"#,
        );
        Then::Keep
    });
    let rig = Rig::with(script, all_types(1_000_000), |document| {
        document["routes"] = json!([{ "model": "scribe", "provider": "local", "served_model": "m1" }]);
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let recording: Vec<u8> = (0..400_000u32).map(|number| (number.wrapping_mul(number) >> 7) as u8).collect();
    let path = folder.path().join("said.wav");
    std::fs::write(&path, &recording).expect("a writable folder");
    let file = format!("file=@{};type=audio/wav", path.display());
    let form = ["--form", &file, "--form", "prompt=say hello", "--form", "response_format=json"];

    let seen = curl(&rig, "/v1/audio/transcriptions", &[&form[..], &["--form", "model=scribe"]].concat());
    assert_eq!(seen.status, "200", "{}", seen.body);
    assert!(seen.body.contains("\"text\":\"hello\""), "{}", seen.body);
    let asked = &rig.backend.requests()[0];
    assert!(asked.head.starts_with("POST /v1/audio/transcriptions "), "{}", asked.head);
    assert!(
        asked.header("content-type").is_some_and(|kind| kind.starts_with("multipart/form-data; boundary="))
    );
    assert!(find(&asked.body, b"name=\"model\"\r\n\r\nm1\r\n").is_some(), "the served model");
    assert!(find(&asked.body, &recording).is_some(), "the file as it was");
    let used = Figures { rpm: 1, slots: 0, requests: 1, tokens: 42, millis: 42 };
    rig.comes_to("a transcription", &used);

    for (name, status, more) in [
        ("no model", "400", vec![]),
        ("an unknown model", "404", vec!["--form", "model=other"]),
        ("two models", "400", vec!["--form", "model=scribe", "--form", "model=other"]),
    ] {
        let seen = curl(&rig, "/v1/audio/transcriptions", &[&form[..], &more].concat());
        assert_eq!(seen.status, status, "{name}: {}", seen.body);
    }
    let form_for_chat = curl(&rig, CHAT, &[&form[..], &["--form", "model=scribe"]].concat());
    assert_eq!(form_for_chat.status, "400", "{}", form_for_chat.body);
    rig.comes_to("forms that are refused", &used);
}
