//! A model backend that runs inside this process: it speaks the OpenAI HTTP API, reports usage, and paces its tokens.
//!
//! It is a real server as far as a client can tell: keep-alive, pipelining, JSON and event streams, errors as JSON, and it stops
//! generating when its client is gone. What it says is a small loop of sentences. In `Mode::Fixed` it answers one constant
//! body as fast as it can, so that it is never what a benchmark measures.
//!
//! Tokens: a prompt has as many as its text has bytes, divided by four and rounded up; an answer has one a word.
//!
//! Pacing uses a timer wheel with steps of 1 ms: one token may be up to 2 ms late, but each is due at a time fixed when the answer
//! began, so the rate holds.

mod answer;
mod ask;
mod connection;
mod events;
mod fixed;
mod text;
mod values;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{bounds, rt};

/// What a backend is to do.
#[derive(Clone, Debug)]
pub struct BackendOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Threads, each with its own listener on the same port.
    pub threads: usize,
    /// Cores to pin the threads to, in turn; empty pins nothing.
    pub cores: Vec<usize>,
    /// What a request is answered with.
    pub mode: Mode,
    /// Model names that `GET /v1/models` lists. A request may name any other.
    pub models: Vec<String>,
    /// Tokens of an answer, when the request does not ask for fewer.
    pub completion_tokens: u64,
    /// Bytes of text that an answer has at least; the tokens that it reports stay the same. Not for streams.
    pub answer_bytes: usize,
    /// How fast tokens come.
    pub pace: Pace,
    /// Whether the events of completions say when they were written, so that a client on this machine can tell how long
    /// each was on its way.
    pub stamps_events: bool,
    /// Pause before anything is answered.
    pub latency: Latency,
    /// Requests that are to fail.
    pub failures: Failures,
    /// Bytes a request body may have; more is a 413.
    pub max_body: usize,
    /// Seed of what is drawn: latencies and failures.
    pub seed: u64,
}

impl Default for BackendOptions {
    fn default() -> Self {
        BackendOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            threads: 1,
            cores: Vec::new(),
            mode: Mode::Model,
            models: vec!["gpt-4o".into(), "gpt-4o-mini".into(), "text-embedding-3-small".into()],
            completion_tokens: 32,
            answer_bytes: 0,
            pace: Pace::default(),
            stamps_events: false,
            latency: Latency::None,
            failures: Failures::default(),
            max_body: bounds::MAX_BODY,
            seed: 1,
        }
    }
}

/// What a request is answered with.
#[derive(Clone, Debug, Default)]
pub enum Mode {
    /// What a model server would answer.
    #[default]
    Model,
    /// The same bytes for every request of any path, without a look at its body.
    Fixed(FixedAnswer),
}

/// The constant answer of `Mode::Fixed`, with status 200.
#[derive(Clone, Debug)]
pub struct FixedAnswer {
    /// Its `Content-Type`.
    pub content_type: String,
    /// Its body.
    pub body: Vec<u8>,
}

impl Default for FixedAnswer {
    /// A chat completion with usage: 12 prompt tokens, 8 completion tokens.
    fn default() -> Self {
        FixedAnswer { content_type: "application/json".into(), body: answer::FIXED_COMPLETION.into() }
    }
}

/// How fast tokens come. Zero is at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Time from the request's last byte (and the latency) to the first token.
    pub first_token: Duration,
    /// Tokens a second from then on; 0 sends all at once.
    pub tokens_per_second: f64,
}

impl Pace {
    /// When token `index` (from 0) is due, counted from the start of the generation.
    pub fn due(&self, index: u64) -> Duration {
        if self.tokens_per_second <= 0.0 {
            return self.first_token;
        }
        let after = index as f64 / self.tokens_per_second;
        self.first_token + Duration::try_from_secs_f64(after).unwrap_or(Duration::MAX / 4)
    }
}

/// A pause before an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Latency {
    /// None.
    #[default]
    None,
    /// Always the same.
    Fixed(Duration),
    /// Drawn evenly from a range, both ends included.
    Uniform(Duration, Duration),
}

/// Requests that are to fail, drawn independently.
#[derive(Clone, Copy, Debug)]
pub struct Failures {
    /// The share of requests, 0 to 1.
    pub rate: f64,
    /// How.
    pub how: Failure,
}

impl Default for Failures {
    fn default() -> Self {
        Failures { rate: 0.0, how: Failure::Status(500) }
    }
}

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// With this status and a JSON error.
    Status(u16),
    /// The connection is closed without an answer.
    Close,
}

/// What a backend has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendStats {
    /// Connections accepted.
    pub connections: u64,
    /// Requests whose head and body arrived whole.
    pub requests: u64,
    /// Answers with status 200 written to their end.
    pub completed: u64,
    /// Requests answered with an error because they were wrong.
    pub refused: u64,
    /// Requests failed on purpose (`BackendOptions::failures`).
    pub failed: u64,
    /// Answers given up because the client was gone.
    pub cancelled: u64,
    /// Tokens generated (of streams: those really written).
    pub tokens: u64,
}

/// The counters of one thread, read by others.
#[derive(Default)]
struct Counters {
    connections: AtomicU64,
    requests: AtomicU64,
    completed: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    tokens: AtomicU64,
}

/// Adds to a counter that one thread alone writes.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// A running backend. Dropping it asks its threads to end; `stop` also waits for them.
pub struct Backend {
    address: SocketAddr,
    counters: Vec<Arc<Counters>>,
    stops: Vec<rt::StopRequest>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Backend {
    /// Binds, starts the threads, and returns when all of them serve.
    ///
    /// # Errors
    /// The address is taken or not ours, a core does not exist, or the system is out of descriptors or threads.
    pub fn start(options: BackendOptions) -> io::Result<Backend> {
        let threads = options.threads.max(1);
        let mut listen = options.listen;
        if threads > 1 && listen.port() != 0 {
            // A shared port would let a second backend join in silence: see first that nobody has it.
            drop(rt::Listener::bind(listen, false)?);
        }
        let mut listeners = Vec::with_capacity(threads);
        for _ in 0..threads {
            let listener = rt::Listener::bind(listen, threads > 1)?;
            listen = listener.address()?;
            listeners.push(listener);
        }
        let mut backend =
            Backend { address: listen, counters: Vec::new(), stops: Vec::new(), threads: Vec::new() };
        let (ready, started) = std::sync::mpsc::channel();
        for (index, listener) in listeners.into_iter().enumerate() {
            let counters = Arc::new(Counters::default());
            let (stop, signal) = rt::stop_signal()?;
            let work = Thread {
                core: options.cores.get(index % options.cores.len().max(1)).copied(),
                options: options.clone(),
                counters: counters.clone(),
                seed: options.seed.wrapping_add(index as u64),
            };
            let ready = ready.clone();
            backend.threads.push(
                std::thread::Builder::new()
                    .name(format!("backend-{index}"))
                    .spawn(move || work.run(listener, signal, ready))?,
            );
            backend.counters.push(counters);
            backend.stops.push(stop);
        }
        drop(ready);
        for _ in 0..threads {
            // A thread that ends without a word has failed: its own error comes from the join.
            if started.recv().is_err() {
                return Err(backend
                    .end()
                    .err()
                    .unwrap_or_else(|| io::Error::other("a backend thread ended before it served")));
            }
        }
        Ok(backend)
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// What it has done so far, all threads together.
    pub fn stats(&self) -> BackendStats {
        let sum = |of: fn(&Counters) -> &AtomicU64| {
            self.counters.iter().map(|counters| of(counters).load(Ordering::Relaxed)).sum()
        };
        BackendStats {
            connections: sum(|counters| &counters.connections),
            requests: sum(|counters| &counters.requests),
            completed: sum(|counters| &counters.completed),
            refused: sum(|counters| &counters.refused),
            failed: sum(|counters| &counters.failed),
            cancelled: sum(|counters| &counters.cancelled),
            tokens: sum(|counters| &counters.tokens),
        }
    }

    /// Stops listening, ends every connection, and waits for the threads (a few seconds at most).
    pub fn stop(self) {
        // What a thread could report now changes nothing for the caller.
        let _ = self.end();
    }

    /// Waits until the threads end, which without a `stop` is for ever. For a program that is nothing but the backend.
    ///
    /// # Errors
    /// A thread ended by a failure.
    pub fn wait(mut self) -> io::Result<()> {
        join(std::mem::take(&mut self.threads))
    }

    fn end(mut self) -> io::Result<()> {
        self.stops.clear();
        join(std::mem::take(&mut self.threads))
    }
}

/// What this backend would make of a chat body.
pub(crate) struct Expected {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of one choice.
    pub output: u64,
    /// Choices.
    pub choices: u64,
}

/// Reads a chat body as a backend would; its answers have `tokens` tokens when the body asks for no fewer.
///
/// # Errors
/// In words: the backend would refuse it.
pub(crate) fn expected(body: &[u8], tokens: u64) -> Result<Expected, String> {
    let ask = ask::Ask::read(ask::Call::Chat, body, tokens)
        .map_err(|bad| format!("the backend would refuse the body: {}", bad.message))?;
    Ok(Expected { input: ask.prompt_tokens, output: ask.output_tokens, choices: ask.choices })
}

fn join(threads: Vec<JoinHandle<io::Result<()>>>) -> io::Result<()> {
    let mut result = Ok(());
    for thread in threads {
        let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a backend thread panicked")));
        result = result.and(ended);
    }
    result
}

/// One thread before it runs.
struct Thread {
    core: Option<usize>,
    options: BackendOptions,
    counters: Arc<Counters>,
    seed: u64,
}

impl Thread {
    fn run(
        self,
        listener: rt::Listener,
        stop: rt::StopSignal,
        ready: std::sync::mpsc::Sender<()>,
    ) -> io::Result<()> {
        if let Some(core) = self.core {
            rt::pin_to_core(core)?;
        }
        let fixed = match &self.options.mode {
            Mode::Model => None,
            Mode::Fixed(answer) => Some(fixed::Fixed::new(answer)),
        };
        let shared = Rc::new(connection::Shared::new(self.options, self.counters, self.seed));
        rt::block_on(async move {
            // The starter waits for this word; if it gave up, there is nobody to tell.
            let _ = ready.send(());
            drop(ready);
            match fixed {
                Some(fixed) => {
                    let serve = move |connection| fixed::serve(connection, fixed.clone(), shared.clone());
                    listener.serve(stop, serve).await
                }
                None => {
                    let serve = move |connection| connection::serve(connection, shared.clone());
                    listener.serve(stop, serve).await
                }
            }
        })?
    }
}

#[cfg(test)]
mod tests;
