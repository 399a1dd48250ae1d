//! What a request asks for, read from its JSON body.

use serde_json::Value;

use crate::bounds;

/// The calls that generate something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/responses`
    Responses,
}

/// One request, understood.
///
/// Invariant: `choices` is 1 to `bounds::MAX_CHOICES`, `output_tokens` at most `bounds::MAX_TOKENS`.
#[derive(Clone, Debug)]
pub struct Ask {
    pub call: Call,
    pub model: String,
    pub stream: bool,
    /// A stream ends with a usage event.
    pub include_usage: bool,
    pub choices: u64,
    pub prompt_tokens: u64,
    /// Tokens of one choice.
    pub output_tokens: u64,
    /// The request's own cap cut the answer short.
    pub cut: bool,
    /// Embeddings: how many inputs, and how many numbers each.
    pub inputs: usize,
    pub dimensions: u64,
    pub base64: bool,
}

/// Why a body is refused: the member at fault, and a sentence.
#[derive(Debug, PartialEq, Eq)]
pub struct BadAsk {
    pub member: Option<&'static str>,
    pub message: String,
}

fn bad(member: &'static str, message: &str) -> BadAsk {
    BadAsk { member: Some(member), message: message.into() }
}

impl Ask {
    /// Reads a body; `default_tokens` is what an answer has when no cap is lower.
    pub fn read(call: Call, body: &[u8], default_tokens: u64) -> Result<Ask, BadAsk> {
        let body: Value = serde_json::from_slice(body).map_err(|error| BadAsk {
            member: None,
            message: format!("the body is not valid JSON: {error}"),
        })?;
        let Value::Object(body) = body else {
            return Err(BadAsk { member: None, message: "the body is not a JSON object".into() });
        };
        let get = |name: &str| body.get(name).filter(|value| !value.is_null());
        let model = match get("model") {
            Some(Value::String(model)) if !model.is_empty() => model.clone(),
            _ => return Err(bad("model", "you must provide a model parameter")),
        };
        let stream = match get("stream") {
            None => false,
            Some(Value::Bool(stream)) => *stream,
            Some(_) => return Err(bad("stream", "stream must be true or false")),
        };
        let include_usage = get("stream_options")
            .and_then(|options| options.get("include_usage"))
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let choices = match get("n") {
            None => 1,
            Some(n) => n
                .as_u64()
                .filter(|n| (1..=bounds::MAX_CHOICES).contains(n))
                .ok_or_else(|| bad("n", "n must be a whole number from 1 to 128"))?,
        };
        let mut output_tokens = default_tokens.min(bounds::MAX_TOKENS);
        let mut cut = false;
        for name in ["max_completion_tokens", "max_output_tokens", "max_tokens"] {
            let Some(cap) = get(name) else { continue };
            let cap = cap.as_u64().ok_or_else(|| bad(name, "the cap must be a whole number, 0 or more"))?;
            if cap < output_tokens {
                output_tokens = cap;
                cut = true;
            }
        }
        let prompt_member = match call {
            Call::Chat => "messages",
            Call::Completions => "prompt",
            Call::Embeddings | Call::Responses => "input",
        };
        let Some(prompt) = get(prompt_member) else {
            return Err(bad(prompt_member, "the prompt is missing"));
        };
        if call == Call::Chat && !prompt.is_array() {
            return Err(bad("messages", "messages must be a list"));
        }
        let bytes: u64 =
            ["messages", "prompt", "input", "system"].into_iter().filter_map(get).map(prompt_bytes).sum();
        Ok(Ask {
            call,
            model,
            stream: stream && call != Call::Embeddings,
            include_usage,
            choices: if call == Call::Responses { 1 } else { choices },
            prompt_tokens: bytes.div_ceil(4),
            output_tokens,
            cut,
            inputs: count_inputs(prompt)?,
            dimensions: match get("dimensions") {
                None => 64,
                Some(value) => value
                    .as_u64()
                    .filter(|n| (1..=bounds::MAX_DIMENSIONS).contains(n))
                    .ok_or_else(|| bad("dimensions", "dimensions must be from 1 to 4096"))?,
            },
            base64: get("encoding_format").and_then(Value::as_str) == Some("base64"),
        })
    }

    /// Tokens of the whole answer, every choice together.
    pub fn all_output_tokens(&self) -> u64 {
        match self.call {
            Call::Embeddings => 0,
            _ => self.output_tokens * self.choices,
        }
    }

    /// Why the answer ends.
    pub fn finish_reason(&self) -> &'static str {
        if self.cut { "length" } else { "stop" }
    }
}

/// Bytes of text in a prompt: strings, and the text parts of messages. A token id counts as four bytes. Media and tool schemas
/// count nothing.
fn prompt_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Number(_) => 4,
        Value::Array(items) => items.iter().map(prompt_bytes).sum(),
        Value::Object(object) => ["content", "text"]
            .into_iter()
            .filter_map(|name| object.get(name))
            .filter(|inner| !inner.is_number())
            .map(prompt_bytes)
            .sum(),
        _ => 0,
    }
}

fn count_inputs(prompt: &Value) -> Result<usize, BadAsk> {
    let inputs = match prompt {
        // A list of numbers is one input of token ids.
        Value::Array(items) if items.first().is_some_and(|first| !first.is_number()) => items.len(),
        _ => 1,
    };
    if inputs > bounds::MAX_INPUTS {
        return Err(bad("input", "there may be at most 2048 inputs"));
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_counted_by_their_text() {
        fn check(call: Call, body: &str, prompt: u64, output: u64) {
            let ask = Ask::read(call, body.as_bytes(), 32).expect(body);
            assert_eq!((ask.prompt_tokens, ask.output_tokens), (prompt, output), "{body}");
        }
        let one = r#"{"model":"m","messages":[{"role":"user","content":"12345"}]}"#;
        check(Call::Chat, one, 2, 32);
        let parts = r#"{"model":"m","max_tokens":5,"messages":[{"role":"system","content":"1234"},
            {"role":"user","content":[{"type":"text","text":"1234"},{"type":"image_url","image_url":{"url":"data:x"}}]}]}"#;
        check(Call::Chat, parts, 2, 5);
        check(Call::Completions, r#"{"model":"m","prompt":["ab","cd"],"max_tokens":99}"#, 1, 32);
        check(Call::Completions, r#"{"model":"m","prompt":[1,2,3],"max_tokens":null}"#, 3, 32);
        let smaller = r#"{"model":"m","input":"x","max_output_tokens":7,"max_tokens":3}"#;
        check(Call::Responses, smaller, 1, 3);
    }

    #[test]
    fn a_wrong_body_names_its_member() {
        fn check(body: &str, member: Option<&str>) {
            let refused = Ask::read(Call::Chat, body.as_bytes(), 32).expect_err(body);
            assert_eq!(refused.member, member, "{body}: {}", refused.message);
        }
        check("{", None);
        check("[]", None);
        check(r#"{"messages":[]}"#, Some("model"));
        check(r#"{"model":"m"}"#, Some("messages"));
        check(r#"{"model":"m","messages":"x"}"#, Some("messages"));
        check(r#"{"model":"m","messages":[],"n":0}"#, Some("n"));
        check(r#"{"model":"m","messages":[],"max_tokens":-1}"#, Some("max_tokens"));
        check(r#"{"model":"m","messages":[],"stream":1}"#, Some("stream"));
    }
}
