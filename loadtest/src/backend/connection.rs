//! One connection of the model backend: requests in, answers out, and an eye on a client that leaves.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answer::{self, Persistence};
use super::ask::{Ask, Call};
use super::events::Events;
use super::{BackendOptions, Counters, Failure, Latency, add};
use crate::bounds;
use crate::http::chunked;
use crate::http::head::{Framing, Parsed, RequestHead, parse_request};
use crate::random::Random;
use crate::rt::{self, Connection, Either};

/// What the connections of one thread share.
pub struct Shared {
    pub options: BackendOptions,
    pub counters: Arc<Counters>,
    random: Cell<Random>,
    serial: Cell<u64>,
}

impl Shared {
    pub fn new(options: BackendOptions, counters: Arc<Counters>, seed: u64) -> Shared {
        Shared { options, counters, random: Cell::new(Random::new(seed)), serial: Cell::new(seed << 40) }
    }

    fn draw(&self) -> f64 {
        let mut random = self.random.get();
        let drawn = random.fraction();
        self.random.set(random);
        drawn
    }

    fn latency(&self) -> Duration {
        match self.options.latency {
            Latency::None => Duration::ZERO,
            Latency::Fixed(pause) => pause,
            Latency::Uniform(low, high) => low + high.saturating_sub(low).mul_f64(self.draw()),
        }
    }

    fn next_serial(&self) -> u64 {
        self.serial.set(self.serial.get().wrapping_add(1));
        self.serial.get()
    }
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Call(Call),
    Models,
    WrongMethod,
    Unknown,
}

fn target(head: &RequestHead<'_>) -> Target {
    let call = match head.path {
        "/v1/chat/completions" => Target::Call(Call::Chat),
        "/v1/completions" => Target::Call(Call::Completions),
        "/v1/embeddings" => Target::Call(Call::Embeddings),
        "/v1/responses" => Target::Call(Call::Responses),
        "/v1/models" => Target::Models,
        _ => return Target::Unknown,
    };
    match (call, head.method) {
        (Target::Models, "GET") | (Target::Call(_), "POST") => call,
        _ => Target::WrongMethod,
    }
}

/// A request that has arrived whole.
struct Received {
    target: Target,
    persistence: Persistence,
    body: Vec<u8>,
}

/// Why no request came, or no answer went out.
enum Ending {
    /// The client is gone, between requests or in the midst of one.
    Gone,
    /// The request cannot be read: answer this, then close.
    Refused { status: u16, message: &'static str },
}

/// Serves one connection to its end.
pub async fn serve(connection: Connection, shared: Rc<Shared>) {
    add(&shared.counters.connections, 1);
    let mut session = Session { connection, shared, buffer: Vec::with_capacity(bounds::READ_SIZE) };
    loop {
        let received = match session.receive().await {
            Ok(received) => received,
            Err(Ending::Gone) => return,
            Err(Ending::Refused { status, message }) => {
                session.refuse_and_close(status, message).await;
                return;
            }
        };
        add(&session.shared.counters.requests, 1);
        let keep_alive = received.persistence.keep_alive;
        if session.answer(received).await.is_err() {
            add(&session.shared.counters.cancelled, 1);
            return;
        }
        if !keep_alive {
            return;
        }
    }
}

/// Invariant: `buffer` holds what has been read and not yet consumed, in order.
struct Session {
    connection: Connection,
    shared: Rc<Shared>,
    buffer: Vec<u8>,
}

/// The client is gone.
struct Gone;

impl From<Gone> for Ending {
    fn from(_: Gone) -> Ending {
        Ending::Gone
    }
}

impl Session {
    async fn read(&mut self) -> Result<(), Gone> {
        match self.connection.read_more(&mut self.buffer).await {
            Ok(0) | Err(_) => Err(Gone),
            Ok(_) => Ok(()),
        }
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, Gone> {
        let (result, bytes) = self.connection.write_all(bytes).await;
        result.map(|()| bytes).map_err(|_| Gone)
    }

    async fn receive(&mut self) -> Result<Received, Ending> {
        loop {
            match parse_request(&self.buffer) {
                Parsed::Partial => {}
                Parsed::Bad(message) => return Err(Ending::Refused { status: 400, message }),
                Parsed::TooLarge => {
                    let message = "the request head is too large";
                    return Err(Ending::Refused { status: 431, message });
                }
                Parsed::Complete(head, consumed) => {
                    let target = target(&head);
                    let persistence = Persistence { is_1_1: head.is_1_1, keep_alive: head.keep_alive };
                    let (framing, expects) = (head.framing, head.expects_continue && head.is_1_1);
                    self.buffer.drain(..consumed);
                    let body = self.body(framing, expects).await?;
                    return Ok(Received { target, persistence, body });
                }
            }
            self.read().await?;
        }
    }

    async fn body(&mut self, framing: Framing, expects: bool) -> Result<Vec<u8>, Ending> {
        const TOO_LARGE: Ending = Ending::Refused { status: 413, message: "the request body is too large" };
        let max = self.shared.options.max_body;
        if matches!(framing, Framing::Length(length) if length > max as u64) {
            return Err(TOO_LARGE);
        }
        if expects && self.buffer.is_empty() && framing != Framing::None {
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()).await?;
        }
        match framing {
            Framing::None | Framing::UntilClose => Ok(Vec::new()),
            Framing::Length(length) => {
                let length = length as usize;
                while self.buffer.len() < length {
                    self.read().await?;
                }
                let rest = self.buffer.split_off(length);
                Ok(std::mem::replace(&mut self.buffer, rest))
            }
            Framing::Chunked => {
                let (mut decoder, mut body) = (chunked::Decoder::new(), Vec::new());
                loop {
                    let fed = decoder.feed(&self.buffer, |data| body.extend_from_slice(data));
                    match fed {
                        Err(chunked::BadChunk(message)) => {
                            return Err(Ending::Refused { status: 400, message });
                        }
                        Ok(_) if body.len() > max => return Err(TOO_LARGE),
                        Ok(chunked::Fed::Done(used)) => {
                            self.buffer.drain(..used);
                            return Ok(body);
                        }
                        Ok(chunked::Fed::More) => self.buffer.clear(),
                    }
                    self.read().await?;
                }
            }
        }
    }

    /// Waits until `deadline`, or until the client goes. What it sends meanwhile is kept, within a bound.
    async fn pause_until(&mut self, deadline: Instant) -> Result<(), Gone> {
        while Instant::now() < deadline {
            if self.buffer.len() >= bounds::MAX_PIPELINED {
                rt::sleep_until(deadline).await;
                continue;
            }
            // Dropping a wait for readiness loses nothing, dropping a read would.
            match rt::either(rt::sleep_until(deadline), self.connection.readable()).await {
                Either::First(()) => {}
                Either::Second(Ok(())) => self.read().await?,
                Either::Second(Err(_)) => return Err(Gone),
            }
        }
        Ok(())
    }

    async fn answer(&mut self, received: Received) -> Result<(), Gone> {
        let persistence = received.persistence;
        let call = match received.target {
            Target::Call(call) => call,
            Target::Models => {
                let body = answer::models(&self.shared.options.models);
                return self.whole(200, body, persistence).await;
            }
            Target::WrongMethod | Target::Unknown => {
                let (status, message) = match received.target {
                    Target::Unknown => (404, "there is nothing at this path"),
                    _ => (405, "this path does not take this method"),
                };
                let body = answer::error("invalid_request_error", message, None, None);
                return self.whole(status, body, persistence).await;
            }
        };
        let options = &self.shared.options;
        let ask = match Ask::read(call, &received.body, options.completion_tokens) {
            Ok(ask) => ask,
            Err(bad) => return self.whole(400, answer::bad_ask(&bad), persistence).await,
        };
        drop(received.body);
        let (failures, pace) = (options.failures, options.pace);
        let latency = self.shared.latency();
        if !latency.is_zero() {
            self.pause_until(Instant::now() + latency).await?;
        }
        if failures.rate > 0.0 && self.shared.draw() < failures.rate {
            return self.fail(failures.how, persistence).await;
        }
        if ask.stream {
            return self.stream(&ask, persistence).await;
        }
        let last = ask.output_tokens.saturating_sub(1);
        let generation = if call == Call::Embeddings { pace.first_token } else { pace.due(last) };
        if !generation.is_zero() {
            self.pause_until(Instant::now() + generation).await?;
        }
        let body = answer::body(&ask, self.shared.next_serial(), self.shared.options.answer_bytes);
        add(&self.shared.counters.tokens, ask.all_output_tokens());
        self.whole(200, body, persistence).await
    }

    async fn whole(&mut self, status: u16, body: Vec<u8>, persistence: Persistence) -> Result<(), Gone> {
        let mut bytes = Vec::with_capacity(body.len() + 160);
        answer::head(&mut bytes, status, "application/json", Some(body.len()), persistence);
        bytes.extend_from_slice(&body);
        self.send(bytes).await?;
        match status {
            200 => add(&self.shared.counters.completed, 1),
            _ => add(&self.shared.counters.refused, 1),
        }
        Ok(())
    }

    async fn fail(&mut self, how: Failure, persistence: Persistence) -> Result<(), Gone> {
        add(&self.shared.counters.failed, 1);
        let Failure::Status(status) = how else {
            return Err(Gone);
        };
        let message = "this backend was told to fail some requests, and this is one";
        let body = answer::error("server_error", message, None, None);
        let mut bytes = Vec::with_capacity(body.len() + 160);
        answer::head(&mut bytes, status, "application/json", Some(body.len()), persistence);
        bytes.extend_from_slice(&body);
        self.send(bytes).await.map(drop)
    }

    async fn stream(&mut self, ask: &Ask, persistence: Persistence) -> Result<(), Gone> {
        let persistence =
            Persistence { keep_alive: persistence.keep_alive && persistence.is_1_1, ..persistence };
        let pace = self.shared.options.pace;
        let started = Instant::now();
        if !pace.first_token.is_zero() {
            self.pause_until(started + pace.first_token).await?;
        }
        let mut events = Events::new(
            ask,
            self.shared.next_serial(),
            persistence.is_1_1,
            self.shared.options.stamps_events,
        );
        answer::head(&mut events.out, 200, "text/event-stream", None, persistence);
        events.opening();
        for token in 0..ask.output_tokens {
            if pace.tokens_per_second > 0.0 {
                let due = started + pace.due(token);
                if due > Instant::now() {
                    self.flush(&mut events).await?;
                    self.pause_until(due).await?;
                }
            }
            events.token(token);
            add(&self.shared.counters.tokens, ask.choices);
            if events.out.len() >= bounds::WRITE_SIZE {
                self.flush(&mut events).await?;
            }
        }
        events.closing();
        self.flush(&mut events).await?;
        add(&self.shared.counters.completed, 1);
        Ok(())
    }

    async fn flush(&mut self, events: &mut Events<'_>) -> Result<(), Gone> {
        if events.out.is_empty() {
            return Ok(());
        }
        events.out = self.send(std::mem::take(&mut events.out)).await?;
        events.out.clear();
        Ok(())
    }

    /// Answers an unreadable request, and reads on for a moment: closing at once would reset the connection before the client has
    /// seen the answer.
    async fn refuse_and_close(&mut self, status: u16, message: &str) {
        add(&self.shared.counters.refused, 1);
        let body = answer::error("invalid_request_error", message, None, None);
        let mut bytes = Vec::with_capacity(body.len() + 160);
        let persistence = Persistence { is_1_1: true, keep_alive: false };
        answer::head(&mut bytes, status, "application/json", Some(body.len()), persistence);
        bytes.extend_from_slice(&body);
        if self.send(bytes).await.is_err() {
            return;
        }
        let deadline = Instant::now() + bounds::REFUSAL_LINGER;
        loop {
            self.buffer.clear();
            match rt::before(deadline, self.read()).await {
                Some(Ok(())) => {}
                Some(Err(Gone)) | None => return,
            }
        }
    }
}
