//! Tokens by kind, from the bytes of a backend's answer to what is shown and paid.

use std::io::Write;

use serde_json::{Value, json};

use super::support::backend::{Then, answers, exactly};
use super::support::client::request;
use super::support::gateway::{CHAT, user_limit};
use super::support::rig::Rig;
use super::support::until;

/// One answer, and what it must come to.
struct Row {
    name: &'static str,
    path: &'static str,
    body: Value,
    head: &'static str,
    answer: Vec<u8>,
    usd: &'static str,
    figures: Value,
}

fn zstd(plain: &str) -> Vec<u8> {
    zstd::encode_all(plain.as_bytes(), 3).expect("in memory")
}

fn brotli(plain: &str) -> Vec<u8> {
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
    encoder.write_all(plain.as_bytes()).expect("in memory");
    encoder.into_inner()
}

fn rows() -> Vec<Row> {
    let messages = json!({ "messages": [{ "role": "user", "content": "four" }], "max_tokens": 9 });
    let chat = "{\"choices\":[{\"message\":{\"content\":\"hi\"}}],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":100,\
                \"prompt_tokens_details\":{\"cached_tokens\":400,\"audio_tokens\":50},\
                \"completion_tokens_details\":{\"reasoning_tokens\":60}}}";
    let figures = json!({
        "input_tokens": 1000, "cached_input_tokens": 400, "audio_input_tokens": 50, "output_tokens": 100,
        "reasoning_tokens": 60, "estimated_requests": 0,
    });
    let json = "Content-Type: application/json\r\n";
    let row = |name, head, answer| Row {
        name,
        path: CHAT,
        body: messages.clone(),
        head,
        answer,
        // 550 at 1, 400 at 0.1, 50 at 40; 40 at 4, 60 at 5: in millionths.
        usd: "0.00305",
        figures: figures.clone(),
    };
    vec![
        row("plain", json, chat.into()),
        row("brotli", "Content-Type: application/json\r\nContent-Encoding: br\r\n", brotli(chat)),
        row("zstd", "Content-Type: application/json\r\nContent-Encoding: zstd\r\n", zstd(chat)),
        Row {
            name: "twice",
            head: "Content-Type: application/json\r\nContent-Encoding: br\r\nContent-Encoding: zstd\r\n",
            // Eight bytes that nobody reads are two tokens; the prompt is one.
            answer: b"8 bytes.".to_vec(),
            usd: "0.000009",
            figures: json!({ "input_tokens": 1, "output_tokens": 2, "estimated_requests": 1 }),
            ..row("", "", Vec::new())
        },
        Row {
            name: "anthropic",
            path: "/v1/messages",
            answer: "{\"content\":[],\"usage\":{\"input_tokens\":100,\"cache_read_input_tokens\":1000,\
                     \"cache_creation_input_tokens\":300,\"cache_creation\":{\"ephemeral_5m_input_tokens\":200,\
                     \"ephemeral_1h_input_tokens\":100},\"output_tokens\":10}}"
                .into(),
            // 100 at 1, 1000 at 0.1, 200 at 1.25, 100 at 2; 10 at 4.
            usd: "0.00069",
            figures: json!({
                "input_tokens": 1400, "cached_input_tokens": 1000, "cache_write_tokens": 300, "output_tokens": 10,
            }),
            ..row("", json, Vec::new())
        },
        Row {
            name: "cut",
            path: "/v1/messages",
            head: "Content-Type: text/event-stream\r\n",
            // The stream breaks behind 40 bytes of text: ten tokens, where its start has counted one.
            answer: format!(
                "data: {{\"message\":{{\"usage\":{{\"input_tokens\":25,\"output_tokens\":1}}}}}}\n\n\
                 data: {{\"delta\":{{\"text\":\"{}\"}}}}\n\n",
                "x".repeat(40)
            )
            .into(),
            usd: "0.000065",
            figures: json!({ "input_tokens": 25, "output_tokens": 10, "estimated_requests": 1 }),
            ..row("", "", Vec::new())
        },
        Row {
            name: "failed",
            head: "Content-Type: text/event-stream\r\n",
            answer: b"data: {\"error\":{\"message\":\"overloaded\"}}\n\n".to_vec(),
            usd: "0",
            figures: json!({ "requests": 1, "input_tokens": 0, "output_tokens": 0 }),
            ..row("", "", Vec::new())
        },
        Row {
            name: "long",
            answer: b"{\"usage\":{\"prompt_tokens\":2001,\"completion_tokens\":10}}".to_vec(),
            // Beyond two thousand tokens all of it costs the double.
            usd: "0.004082",
            figures: json!({ "input_tokens": 2001, "output_tokens": 10 }),
            ..row("", json, Vec::new())
        },
        Row {
            name: "images",
            path: "/v1/images/generations",
            body: json!({ "prompt": "four", "n": 2 }),
            answer: b"{\"data\":[{\"b64_json\":\"AAAA\"},{\"b64_json\":\"AAAA\"}]}".to_vec(),
            usd: "0.080001",
            figures: json!({ "input_tokens": 1, "output_tokens": 0, "images": 2 }),
            ..row("", json, Vec::new())
        },
        Row {
            name: "speech",
            path: "/v1/audio/speech",
            body: json!({ "input": "h\u{e9}llo" }),
            head: "Content-Type: audio/mpeg\r\n",
            answer: vec![0xff; 3000],
            // Two tokens of prompt, and five characters.
            usd: "0.000077",
            figures: json!({ "input_tokens": 2, "output_tokens": 0 }),
        },
    ]
}

#[test]
fn each_kind_of_usage_is_read_shown_and_paid() {
    let limits = json!([user_limit("money", "budget_usd", 1_000, "year")]);
    let price = json!({
        "input": 1, "cached_input": 0.1, "cache_write": 1.25, "cache_write_1h": 2, "audio_input": 40, "output": 4,
        "reasoning": 5, "per_image": 0.04, "per_character": 0.000_015,
        "above": [{ "tokens": 2000, "input": 2, "output": 8 }],
    });
    let rows = rows();
    let rig = Rig::with(answers(0, 0), limits, |document| {
        let models: serde_json::Map<String, Value> =
            rows.iter().map(|row| (row.name.to_owned(), price.clone())).collect();
        document["prices"]["models"] = models.into();
        document["routes"] = json!([{ "model": "*", "provider": "local" }]);
    });
    for row in &rows {
        let length = row.answer.len() + usize::from(row.name == "cut");
        let head = format!("HTTP/1.1 200 OK\r\n{}Content-Length: {length}\r\n\r\n", row.head);
        let then = if row.name == "cut" { Then::Close } else { Then::Keep };
        rig.backend.answer_with(exactly([head.as_bytes(), &row.answer].concat(), then));
        let mut body = row.body.clone();
        body["model"] = json!(row.name);
        let bearer = rig.key.bearer();
        let bytes = request("POST", row.path, &[("Authorization", &bearer)], body.to_string().as_bytes());
        let mut client = rig.gateway.connect();
        if row.name == "cut" {
            // It breaks before anything was passed on: the client is told, and what the backend did is paid.
            assert_eq!(client.ask(&bytes).status, 502, "{}", row.name);
        } else {
            let answer = client.ask(&bytes);
            assert_eq!(answer.status, 200, "{}: {}", row.name, answer.text());
            assert_eq!(answer.body, row.answer, "{}: relayed as it came", row.name);
        }
    }
    let found = until("everything is written", || {
        let run = rig.gateway.run(&["usage", "--json", "--by", "model"]);
        let found: Value = serde_json::from_slice(&run.stdout).ok()?;
        (found["totals"]["requests"].as_u64() == Some(rows.len() as u64)).then_some(found)
    });
    for row in &rows {
        let shown = found["usage"].as_array().expect("rows").iter().find(|shown| shown["model"] == row.name);
        let shown = shown.unwrap_or_else(|| panic!("{}: not in {found}", row.name));
        assert_eq!(shown["usd"].to_string(), row.usd, "{}: {shown}", row.name);
        for (member, wanted) in row.figures.as_object().expect("figures") {
            assert_eq!(&shown[member], wanted, "{}: {member} of {shown}", row.name);
        }
    }
}
