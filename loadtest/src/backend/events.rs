//! Event streams: the events of one answer, each in a chunk of its own.

use std::io::Write;

use serde_json::{Value, json};

use super::answer;
use super::ask::{Ask, Call};
use super::text;
use crate::http::{chunked, stamps};

/// Writes the events of one answer into `out`, in this order: `opening`, each token, `closing`.
pub struct Events<'a> {
    ask: &'a Ask,
    serial: u64,
    created: u64,
    chunked: bool,
    /// Each event of a completion says when it was written.
    stamped: bool,
    /// Of the Responses API: the number of the next event.
    sequence: u64,
    /// The start of a chunk object, the same for each, up to the choices.
    prefix: String,
    scratch: Vec<u8>,
    /// What was written and not yet sent.
    pub out: Vec<u8>,
}

impl<'a> Events<'a> {
    /// The events of the answer to `ask`; `chunked` wraps each in a chunk, else they are written bare. `stamped`: those of
    /// completions have a [`stamps::MEMBER`].
    pub fn new(ask: &'a Ask, serial: u64, chunked: bool, stamped: bool) -> Events<'a> {
        let created = answer::unix_seconds();
        let (id, object) = match ask.call {
            Call::Chat => ("chatcmpl", "chat.completion.chunk"),
            _ => ("cmpl", "text_completion"),
        };
        let model = Value::from(ask.model.as_str());
        Events {
            ask,
            serial,
            created,
            chunked,
            stamped,
            sequence: 0,
            prefix: format!(
                r#"{{"id":"{id}-{serial:016x}","object":"{object}","created":{created},"model":{model},"#
            ),
            scratch: Vec::with_capacity(512),
            out: Vec::with_capacity(1024),
        }
    }

    /// What comes before the first token.
    pub fn opening(&mut self) {
        match self.ask.call {
            Call::Chat => {
                for index in 0..self.ask.choices {
                    self.choice(format_args!(
                        r#"{{"index":{index},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}"#
                    ));
                }
            }
            Call::Responses => {
                let object = answer::response_object(self.ask, self.serial, self.created, None);
                self.named("response.created", json!({"response": object.clone()}));
                self.named("response.in_progress", json!({"response": object}));
                let item = answer::message_item(self.serial, "in_progress", None);
                self.named("response.output_item.added", json!({"output_index": 0, "item": item}));
                let part = json!({"type": "output_text", "text": "", "annotations": []});
                self.named("response.content_part.added", self.at_part(json!({"part": part})));
            }
            Call::Completions | Call::Embeddings => {}
        }
    }

    /// Token `token` (from 0) of every choice.
    pub fn token(&mut self, token: u64) {
        // No word holds a byte that JSON escapes, but for the line end.
        let word = match text::word(token) {
            "\n" => "\\n",
            word => word,
        };
        for index in 0..self.ask.choices {
            match self.ask.call {
                Call::Chat => self.choice(format_args!(
                    r#"{{"index":{index},"delta":{{"content":"{word}"}},"logprobs":null,"finish_reason":null}}"#
                )),
                Call::Responses => self.named(
                    "response.output_text.delta",
                    self.at_part(json!({"delta": text::word(token), "logprobs": []})),
                ),
                Call::Completions | Call::Embeddings => self.choice(format_args!(
                    r#"{{"index":{index},"text":"{word}","logprobs":null,"finish_reason":null}}"#
                )),
            }
        }
    }

    /// What comes behind the last token, the end of the body included.
    pub fn closing(&mut self) {
        match self.ask.call {
            Call::Responses => self.response_closing(),
            _ => {
                let reason = self.ask.finish_reason();
                let nothing = if self.ask.call == Call::Chat { r#""delta":{}"# } else { r#""text":"""# };
                for index in 0..self.ask.choices {
                    self.choice(format_args!(
                        r#"{{"index":{index},{nothing},"logprobs":null,"finish_reason":"{reason}"}}"#
                    ));
                }
                if self.ask.include_usage {
                    let usage = answer::usage(self.ask);
                    self.scratch.clear();
                    self.print(format_args!(
                        "data: {}\"choices\":[],\"usage\":{usage}}}\n\n",
                        self.prefix.clone()
                    ));
                    self.end_event();
                }
                self.scratch.clear();
                self.scratch.extend_from_slice(b"data: [DONE]\n\n");
                self.end_event();
            }
        }
        if self.chunked {
            self.out.extend_from_slice(chunked::LAST_CHUNK);
        }
    }

    fn response_closing(&mut self) {
        let whole = text::text(self.ask.output_tokens);
        let status = if self.ask.cut { "incomplete" } else { "completed" };
        self.named("response.output_text.done", self.at_part(json!({"text": whole, "logprobs": []})));
        let part = json!({"type": "output_text", "text": whole, "annotations": []});
        self.named("response.content_part.done", self.at_part(json!({"part": part})));
        let item = answer::message_item(self.serial, status, Some(&whole));
        self.named("response.output_item.done", json!({"output_index": 0, "item": item}));
        let object = answer::response_object(self.ask, self.serial, self.created, Some(&whole));
        let name = if self.ask.cut { "response.incomplete" } else { "response.completed" };
        self.named(name, json!({"response": object}));
    }

    /// Adds where in the output a part is to the event about it.
    fn at_part(&self, mut event: Value) -> Value {
        event["item_id"] = Value::from(format!("msg_{:016x}", self.serial));
        event["output_index"] = Value::from(0);
        event["content_index"] = Value::from(0);
        event
    }

    /// One event with one choice, in the form of chat and text completions.
    fn choice(&mut self, choice: std::fmt::Arguments<'_>) {
        self.scratch.clear();
        self.scratch.extend_from_slice(b"data: ");
        self.scratch.extend_from_slice(self.prefix.as_bytes());
        self.print(format_args!("\"choices\":[{choice}]"));
        if self.ask.include_usage {
            self.scratch.extend_from_slice(b",\"usage\":null");
        }
        if self.stamped {
            self.print(format_args!(",{}{}", stamps::MEMBER, stamps::now()));
        }
        self.scratch.extend_from_slice(b"}\n\n");
        self.end_event();
    }

    /// One event of the Responses API: its name is in the event line and in `type`.
    fn named(&mut self, name: &str, mut event: Value) {
        event["type"] = Value::from(name);
        event["sequence_number"] = Value::from(self.sequence);
        self.sequence += 1;
        self.scratch.clear();
        self.print(format_args!("event: {name}\ndata: {event}\n\n"));
        self.end_event();
    }

    fn print(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing into a vector cannot fail.
        let _ = self.scratch.write_fmt(text);
    }

    fn end_event(&mut self) {
        if self.chunked {
            chunked::write_chunk(&mut self.out, &self.scratch);
        } else {
            self.out.extend_from_slice(&self.scratch);
        }
    }
}
