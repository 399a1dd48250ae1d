//! The constant answer: heads are parsed, bodies skipped unread, and every whole request that has arrived is answered in one write.

use std::rc::Rc;

use super::FixedAnswer;
use super::add;
use super::answer::{self, Persistence};
use super::connection::Shared;
use crate::bounds;
use crate::http::chunked;
use crate::http::head::{Framing, Parsed, parse_request};
use crate::rt::Connection;

/// The answer with its head, for a connection that stays and for one that closes.
#[derive(Clone)]
pub struct Fixed {
    kept: Rc<Vec<u8>>,
    closing: Rc<Vec<u8>>,
}

impl Fixed {
    pub fn new(answer: &FixedAnswer) -> Fixed {
        let render = |keep_alive| {
            let mut bytes = Vec::with_capacity(answer.body.len() + 128);
            let persistence = Persistence { is_1_1: true, keep_alive };
            answer::head(&mut bytes, 200, &answer.content_type, Some(answer.body.len()), persistence);
            bytes.extend_from_slice(&answer.body);
            Rc::new(bytes)
        };
        Fixed { kept: render(true), closing: render(false) }
    }
}

/// What the bytes read so far hold.
enum Found {
    /// A whole request of so many bytes, and whether another may follow.
    Request { bytes: usize, keep_alive: bool },
    /// Less than one.
    Partial,
    /// Nothing that can be answered.
    Nonsense,
}

fn find(buffer: &[u8], max_body: usize) -> Found {
    let (head, consumed) = match parse_request(buffer) {
        Parsed::Partial => return Found::Partial,
        Parsed::Bad(_) | Parsed::TooLarge => return Found::Nonsense,
        Parsed::Complete(head, consumed) => (head, consumed),
    };
    let keep_alive = head.keep_alive && head.is_1_1;
    match head.framing {
        Framing::None | Framing::UntilClose => Found::Request { bytes: consumed, keep_alive },
        Framing::Length(length) if length > max_body as u64 => Found::Nonsense,
        Framing::Length(length) => {
            let bytes = consumed + length as usize;
            if buffer.len() < bytes { Found::Partial } else { Found::Request { bytes, keep_alive } }
        }
        Framing::Chunked if buffer.len() > consumed + max_body => Found::Nonsense,
        Framing::Chunked => match chunked::Decoder::new().feed(&buffer[consumed..], |_| ()) {
            Ok(chunked::Fed::Done(body)) => Found::Request { bytes: consumed + body, keep_alive },
            Ok(chunked::Fed::More) => Found::Partial,
            Err(_) => Found::Nonsense,
        },
    }
}

/// Serves one connection to its end.
pub async fn serve(mut connection: Connection, fixed: Fixed, shared: Rc<Shared>) {
    let counters = &shared.counters;
    add(&counters.connections, 1);
    let mut buffer = Vec::with_capacity(bounds::READ_SIZE);
    let mut many = Vec::new();
    loop {
        match connection.read_more(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let (mut used, mut answered, mut closing) = (0, 0u64, false);
        while !closing && used < buffer.len() {
            match find(&buffer[used..], shared.options.max_body) {
                Found::Partial => break,
                Found::Nonsense => {
                    add(&counters.refused, 1);
                    return;
                }
                Found::Request { bytes, keep_alive } => {
                    used += bytes;
                    answered += 1;
                    closing = !keep_alive;
                }
            }
        }
        if answered == 0 {
            continue;
        }
        if used == buffer.len() {
            buffer.clear();
        } else {
            buffer.drain(..used);
        }
        add(&counters.requests, answered);
        let written = if answered == 1 {
            // The common case copies nothing.
            let one = if closing { &fixed.closing } else { &fixed.kept };
            connection.write_all(one.clone()).await.0
        } else {
            many.clear();
            for index in 1..=answered {
                let last = closing && index == answered;
                many.extend_from_slice(if last { &fixed.closing } else { &fixed.kept });
            }
            let (result, bytes) = connection.write_all(std::mem::take(&mut many)).await;
            many = bytes;
            result
        };
        if written.is_err() {
            add(&counters.cancelled, answered);
            return;
        }
        add(&counters.completed, answered);
        if closing {
            return;
        }
    }
}
