//! Whole answers: their JSON bodies and their heads.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::ask::{Ask, BadAsk, Call};
use super::text;

/// The body of `FixedAnswer::default()`: the size of a short real answer (about 330 bytes).
pub const FIXED_COMPLETION: &str = concat!(
    r#"{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1767225600,"model":"gpt-4o-mini","#,
    r#""choices":[{"index":0,"message":{"role":"assistant","content":"The river rises slowly in the morning."},"#,
    r#""logprobs":null,"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":12,"completion_tokens":8,"total_tokens":20}}"#,
);

/// Seconds since the Unix epoch.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// The JSON body that answers `ask`; `serial` makes its id. Its text has at least `bytes` bytes.
pub fn body(ask: &Ask, serial: u64, bytes: usize) -> Vec<u8> {
    let created = unix_seconds();
    let text = || text::text_of(ask.output_tokens, bytes);
    let answer = match ask.call {
        Call::Chat => json!({
            "id": format!("chatcmpl-{serial:016x}"), "object": "chat.completion", "created": created, "model": ask.model,
            "choices": (0..ask.choices).map(|index| json!({
                "index": index,
                "message": {"role": "assistant", "content": text(), "refusal": null},
                "logprobs": null, "finish_reason": ask.finish_reason(),
            })).collect::<Vec<_>>(),
            "usage": usage(ask), "system_fingerprint": null,
        }),
        Call::Completions => json!({
            "id": format!("cmpl-{serial:016x}"), "object": "text_completion", "created": created, "model": ask.model,
            "choices": (0..ask.choices).map(|index| json!({
                "index": index, "text": text(), "logprobs": null, "finish_reason": ask.finish_reason(),
            })).collect::<Vec<_>>(),
            "usage": usage(ask),
        }),
        Call::Embeddings => json!({
            "object": "list", "model": ask.model,
            "data": (0..ask.inputs).map(|index| json!({
                "object": "embedding", "index": index, "embedding": embedding(index, ask),
            })).collect::<Vec<_>>(),
            "usage": {"prompt_tokens": ask.prompt_tokens, "total_tokens": ask.prompt_tokens},
        }),
        Call::Responses => response_object(ask, serial, created, Some(&text())),
    };
    answer.to_string().into_bytes()
}

/// The usage of chat and text completions.
pub fn usage(ask: &Ask) -> Value {
    let output = ask.all_output_tokens();
    json!({
        "prompt_tokens": ask.prompt_tokens, "completion_tokens": output, "total_tokens": ask.prompt_tokens + output,
    })
}

/// The `response` object of the Responses API, finished with `text`, or under way without.
pub fn response_object(ask: &Ask, serial: u64, created: u64, text: Option<&str>) -> Value {
    let output = ask.all_output_tokens();
    let (status, items, usage) = match text {
        None => ("in_progress", json!([]), Value::Null),
        Some(text) => (
            if ask.cut { "incomplete" } else { "completed" },
            json!([message_item(serial, if ask.cut { "incomplete" } else { "completed" }, Some(text))]),
            json!({
                "input_tokens": ask.prompt_tokens, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": ask.prompt_tokens + output,
            }),
        ),
    };
    let incomplete = match text {
        Some(_) if ask.cut => json!({"reason": "max_output_tokens"}),
        _ => Value::Null,
    };
    json!({
        "id": format!("resp_{serial:016x}"), "object": "response", "created_at": created, "status": status,
        "error": null, "incomplete_details": incomplete, "instructions": null, "metadata": {}, "model": ask.model,
        "output": items, "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "usage": usage,
    })
}

/// The one message of a Responses answer; without `text` it has no content yet.
pub fn message_item(serial: u64, status: &str, text: Option<&str>) -> Value {
    let content = match text {
        None => json!([]),
        Some(text) => json!([{"type": "output_text", "text": text, "annotations": []}]),
    };
    json!({"id": format!("msg_{serial:016x}"), "type": "message", "status": status, "role": "assistant", "content": content})
}

/// A unit-sized made-up vector, the same for the same input number.
fn embedding(index: usize, ask: &Ask) -> Value {
    let mut random = crate::random::Random::new(index as u64 + 1);
    let scale = 1.0 / (ask.dimensions as f32).sqrt();
    let numbers = (0..ask.dimensions).map(|_| if random.next() & 1 == 0 { scale } else { -scale });
    if ask.base64 {
        let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
        return Value::String(base64(&bytes));
    }
    numbers.map(|number| json!(number)).collect()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            if place <= group.len() {
                let digit = (bits >> (18 - 6 * place)) & 63;
                out.push(char::from(DIGITS[digit as usize]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

/// The body of `GET /v1/models`.
pub fn models(names: &[String]) -> Vec<u8> {
    let data: Vec<Value> = names
        .iter()
        .map(|name| json!({"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "loadtest"}))
        .collect();
    json!({"object": "list", "data": data}).to_string().into_bytes()
}

/// A JSON error body in OpenAI's form.
pub fn error(kind: &str, message: &str, member: Option<&str>, code: Option<&str>) -> Vec<u8> {
    json!({"error": {"message": message, "type": kind, "param": member, "code": code}})
        .to_string()
        .into_bytes()
}

/// The error body for a request that could not be read.
pub fn bad_ask(bad: &BadAsk) -> Vec<u8> {
    error("invalid_request_error", &bad.message, bad.member, None)
}

/// What the head of an answer says about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// The client speaks HTTP/1.1.
    pub is_1_1: bool,
    /// Another request may follow.
    pub keep_alive: bool,
}

/// Appends the head of an answer. Without a length the body is chunked (1.1) or ends with the connection (1.0).
pub fn head(
    out: &mut Vec<u8>,
    status: u16,
    content_type: &str,
    length: Option<usize>,
    persistence: Persistence,
) {
    let head = format!("HTTP/1.1 {status} {}\r\ncontent-type: {content_type}\r\n", reason(status));
    out.extend_from_slice(head.as_bytes());
    match length {
        Some(length) => out.extend_from_slice(format!("content-length: {length}\r\n").as_bytes()),
        None if persistence.is_1_1 => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        None => {}
    }
    match persistence {
        Persistence { keep_alive: false, .. } => out.extend_from_slice(b"connection: close\r\n"),
        Persistence { is_1_1: false, .. } => out.extend_from_slice(b"connection: keep-alive\r\n"),
        _ => {}
    }
    out.extend_from_slice(b"\r\n");
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_pads_as_rfc_4648_says() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(super::base64(bytes.as_bytes()), text);
        }
    }
}
