//! Real clients against the running gateway: the official SDKs for Python and Node, LangChain, curl, wrk, and a tester of
//! APIs by their description.
//!
//! What a client makes of an answer is the client's code, so it is asked: which exception, which
//! members, how many tries. The backend behind the gateway says how many requests really came.

#[path = "../support/mod.rs"]
mod support;

mod curl;
mod description;
mod script;
mod sdk;
mod sdks;
mod wrk;

use std::sync::Arc;

use serde_json::Value;

use support::backend::{STREAM_HEAD, Script, Then, chat_answer, delta};

/// Prompt tokens that the backend reports.
const INPUT: u64 = 7;
/// Completion tokens that the backend reports.
const OUTPUT: u64 = 5;

/// A model backend: chat as JSON or as a stream, with usage in the stream only when asked for it.
fn model() -> Script {
    Arc::new(|exchange| {
        let asked: Value = serde_json::from_slice(&exchange.request.body).unwrap_or_default();
        if exchange.request.head.contains(" /v1/embeddings ") {
            exchange.reply(
                200,
                r#"{"object":"list","model":"m1","data":[{"object":"embedding","index":0,
                "embedding":[0.5,0.25]}],"usage":{"prompt_tokens":7,"total_tokens":7}}"#,
            );
            return Then::Keep;
        }
        if asked["stream"] != true {
            exchange.reply(200, &chat_answer(INPUT, OUTPUT));
            return Then::Keep;
        }
        exchange.send(STREAM_HEAD.as_bytes());
        exchange.chunk(&delta("hel"));
        exchange.chunk(&delta("lo"));
        if asked["stream_options"]["include_usage"] == true {
            exchange.chunk(&format!(
                "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{INPUT},\
                 \"completion_tokens\":{OUTPUT},\"total_tokens\":{}}}}}\n\n",
                INPUT + OUTPUT
            ));
        }
        exchange.chunk("data: [DONE]\n\n");
        exchange.send(b"0\r\n\r\n");
        Then::Keep
    })
}
