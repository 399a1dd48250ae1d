//! The load generator.
//!
//! *Closed loop*: each connection sends its next request when it has read the answer to the last. It finds what a server can do at
//! most; its latencies are those of a server that is never asked too fast.
//!
//! *Open loop*: requests are due at times fixed before the run. A request that must wait for a free connection waits on the clock:
//! its latency counts from the time it was due. So a server that stalls for a second shows a second, not one slow request
//! (no coordinated omission). Requests that were due and never sent are counted, and the report says so.
//!
//! Rejected: drawing latencies only from answers with status 200 (a refusal is an answer too: the report splits by status);
//! retrying on a connection that died (the server may have acted on the request: a lost request is a failure, and is shown).

pub(crate) mod cpu;
pub mod draw;
mod exchange;
pub mod ledger;
pub(crate) mod machine;
pub mod report;
pub mod schedule;
pub mod seconds;
pub mod tally;
pub mod url;
mod usage;
mod worker;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

pub use draw::Draw;
pub use ledger::Ledger;
pub use report::Report;
pub use url::Target;

use draw::Picker;
use schedule::Schedule;
use tally::Tally;
use worker::Plan;

/// What load to send where.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where.
    pub target: Target,
    /// The request method.
    pub method: String,
    /// Header fields beside those the generator sets (`Host` may be replaced; `Content-Length` may not).
    pub headers: Vec<(String, String)>,
    /// Bearer tokens, of which each request takes one; empty sends none.
    pub credentials: Vec<String>,
    /// Which one.
    pub draw: Draw,
    /// Seed of what is drawn.
    pub seed: u64,
    /// Whether what became of the requests of each credential is kept, the warm-up's too.
    pub watch: Option<Watch>,
    /// The request body.
    pub body: Vec<u8>,
    /// How requests follow each other.
    pub pattern: Pattern,
    /// Connections, over all threads. At least one a thread is used.
    pub connections: usize,
    /// Requests after which a connection is closed and another one opened; `None` keeps it.
    pub requests_per_connection: Option<u64>,
    /// Threads, each with its own runtime.
    pub threads: usize,
    /// Cores to pin the threads to, in turn; empty pins nothing.
    pub cores: Vec<usize>,
    /// Time at the start in which nothing is measured.
    pub warm_up: Duration,
    /// Measured time; `None` ends by `requests` alone.
    pub duration: Option<Duration>,
    /// Measured requests after which the run ends; `None` ends by `duration` alone.
    pub requests: Option<u64>,
    /// Longest time one answer may take, from its sending.
    pub timeout: Duration,
    /// Time after the end in which answers under way may still complete.
    pub grace: Duration,
}

impl RunOptions {
    /// Thirty-two connections in a closed loop for ten seconds.
    pub fn to(target: Target) -> RunOptions {
        RunOptions {
            target,
            method: "GET".into(),
            headers: Vec::new(),
            credentials: Vec::new(),
            draw: Draw::InTurn,
            seed: 1,
            watch: None,
            body: Vec::new(),
            pattern: Pattern::Closed,
            connections: 32,
            requests_per_connection: None,
            threads: 1,
            cores: Vec::new(),
            warm_up: Duration::from_secs(1),
            duration: Some(Duration::from_secs(10)),
            requests: None,
            timeout: Duration::from_secs(30),
            grace: Duration::from_secs(2),
        }
    }
}

/// What is known of the server, so that what became of a request can be told from its answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// The status that the backend fails with, when it is told to.
    pub backend_fails_with: Option<u16>,
}

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// The next when the last is answered.
    Closed,
    /// So many a second, evenly, whatever the server does.
    Open {
        /// Requests a second, over all connections.
        rate: f64,
    },
}

/// What a run has come to so far; for a progress line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Since the start, the warm-up included.
    pub elapsed: Duration,
    /// Answers of any status, the warm-up's included.
    pub answers: u64,
    /// Answers with a status of 400 or more.
    pub error_statuses: u64,
    /// Requests without an answer.
    pub failures: u64,
}

/// The counters of one thread, read by the one that shows progress.
#[derive(Default)]
struct Live {
    answers: AtomicU64,
    error_statuses: AtomicU64,
    failures: AtomicU64,
}

/// Adds one to a counter that one thread alone writes.
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// What the threads agree on before the first request.
struct Start {
    barrier: Barrier,
    at: OnceLock<Instant>,
}

impl Start {
    /// Waits until every thread has connected; then all start at the same instant, a moment ahead.
    fn wait(&self) -> Instant {
        self.barrier.wait();
        *self.at.get_or_init(|| Instant::now() + Duration::from_millis(2))
    }
}

/// Runs the load to its end. `progress` is called about four times a second.
///
/// # Errors
/// The options make no sense together, a core does not exist, or the system is out of threads or descriptors. A server that cannot
/// be reached is no error here: its requests are counted as failed.
pub fn run(options: &RunOptions, mut progress: impl FnMut(Progress)) -> io::Result<Report> {
    let wrong = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text);
    if options.duration.is_none() && options.requests.is_none() {
        return Err(wrong("a run needs a duration or a number of requests to end"));
    }
    if let Pattern::Open { rate } = options.pattern
        && !(rate.is_finite() && rate > 0.0)
    {
        return Err(wrong("the rate must be above zero"));
    }
    let requests = Arc::new(exchange::all_requests(options).map_err(|text| wrong(&text))?);
    let threads = options.threads.max(1);
    let connections = options.connections.max(threads);
    let start = Arc::new(Start { barrier: Barrier::new(threads), at: OnceLock::new() });
    let began = Instant::now();
    let cpu_before = cpu::of_this_process();
    let mut live = Vec::new();
    let mut running = Vec::new();
    for thread in 0..threads {
        let counters = Arc::new(Live::default());
        let plan = Plan {
            address: options.target.address,
            requests: requests.clone(),
            picker: Picker::new(
                options.draw,
                requests.len(),
                options.seed.wrapping_add(thread as u64),
                share(requests.len() as u64, threads, 0) as usize * thread,
            ),
            watch: options.watch,
            is_head: options.method == "HEAD",
            requests_per_connection: match exchange::asks_to_close(&options.headers) {
                true => 1,
                false => options.requests_per_connection.unwrap_or(u64::MAX),
            },
            connections: share(connections as u64, threads, thread) as usize,
            schedule: match options.pattern {
                Pattern::Closed => None,
                Pattern::Open { rate } => Some(Schedule::new(rate, threads, thread)),
            },
            core: options.cores.get(thread % options.cores.len().max(1)).copied(),
            warm_up: options.warm_up,
            duration: options.duration,
            quota: options.requests.map(|requests| share(requests, threads, thread)),
            timeout: options.timeout,
            grace: options.grace,
        };
        let (start, shared) = (start.clone(), counters.clone());
        let builder = std::thread::Builder::new().name(format!("load-{thread}"));
        // A thread that cannot be made leaves the others at the barrier: the process is about to end anyway.
        running.push(builder.spawn(move || plan.run(&start, shared))?);
        live.push(counters);
    }
    while running.iter().any(|thread| !thread.is_finished()) {
        std::thread::sleep(Duration::from_millis(50));
        let sum = |of: fn(&Live) -> &AtomicU64| -> u64 {
            live.iter().map(|live| of(live).load(Ordering::Relaxed)).sum()
        };
        progress(Progress {
            elapsed: began.elapsed(),
            answers: sum(|live| &live.answers),
            error_statuses: sum(|live| &live.error_statuses),
            failures: sum(|live| &live.failures),
        });
    }
    let (mut tally, mut ledger) = (Tally::default(), Ledger::default());
    let mut measured = Duration::ZERO;
    let mut cpu = Some(Duration::ZERO);
    for thread in running {
        let seen = thread.join().map_err(|_| io::Error::other("a load thread panicked"))??;
        tally.merge(&seen.tally);
        ledger.merge(&seen.ledger);
        cpu = cpu.zip(seen.cpu).map(|(sum, more)| sum + more);
        measured = measured.max(seen.measured);
    }
    Ok(Report {
        options: options.clone(),
        connections,
        tally,
        ledger,
        measured,
        generator_cpu: cpu.unwrap_or_else(|| cpu::of_this_process().saturating_sub(cpu_before)),
        whole_run: began.elapsed(),
    })
}

/// The part of `whole` that falls to `thread` when `threads` share it evenly.
fn share(whole: u64, threads: usize, thread: usize) -> u64 {
    let (threads, thread) = (threads as u64, thread as u64);
    whole / threads + u64::from(thread < whole % threads)
}

#[cfg(test)]
mod tests;
