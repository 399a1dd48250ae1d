//! One load thread: its connections, and the hand-out of requests among them.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cpu;
use super::draw::{Draw, Picker};
use super::exchange::Exchange;
use super::ledger::Ledger;
use super::schedule::Schedule;
use super::tally::{Failed, Tally};
use super::usage::Tail;
use super::{Live, Start, Watch, bump};
use crate::bounds;
use crate::rt::{self, Alarm, Connection, Tasks};

/// What one thread is to do.
pub struct Plan {
    pub address: SocketAddr,
    /// The requests, one for each key.
    pub requests: Arc<Vec<Vec<u8>>>,
    /// Which of them is next.
    pub picker: Picker,
    /// Whether what became of each is kept.
    pub watch: Option<Watch>,
    pub is_head: bool,
    /// Requests that a connection carries before it is closed.
    pub requests_per_connection: u64,
    pub connections: usize,
    /// The open loop's due times; `None` is a closed loop.
    pub schedule: Option<Schedule>,
    pub core: Option<usize>,
    pub warm_up: Duration,
    pub duration: Option<Duration>,
    /// Measured requests of this thread.
    pub quota: Option<u64>,
    pub timeout: Duration,
    pub grace: Duration,
}

/// What one thread has seen.
pub struct Seen {
    pub tally: Tally,
    /// Empty unless it is watched.
    pub ledger: Ledger,
    /// Processor time of the thread; `None` where the system does not say.
    pub cpu: Option<Duration>,
    /// From the end of the warm-up to the planned end, or to the last answer when the quota ended the run.
    pub measured: Duration,
}

impl Plan {
    /// Runs this thread's share to its end.
    pub fn run(self, start: &Start, live: Arc<Live>) -> io::Result<Seen> {
        if let Some(core) = self.core
            && let Err(error) = rt::pin_to_core(core)
        {
            // The others must not wait at the barrier for ever.
            start.wait();
            return Err(error);
        }
        let connections = self.connections;
        rt::block_on(async move {
            let (tasks, drivers) = (Tasks::new(), Tasks::new());
            let alarm = match Alarm::start(&drivers) {
                Ok(alarm) => alarm,
                Err(error) => {
                    start.wait();
                    return Err(error);
                }
            };
            let ready = connect_all(self.address, connections, self.timeout).await;
            let opened = ready.iter().filter(|connection| connection.is_some()).count();
            let at = start.wait();
            let worker = Rc::new(Worker::new(self, at, alarm.clone(), live));
            worker.tally.borrow_mut().connects = opened as u64;
            for connection in ready {
                let worker = worker.clone();
                tasks.start(async move { worker.drive(connection).await });
            }
            while tasks.live() > 0 {
                rt::sleep(Duration::from_millis(5)).await;
            }
            alarm.close();
            drivers.ended(bounds::STOP_GRACE).await;
            if tasks.panics() > 0 {
                return Err(io::Error::other("a connection's task panicked"));
            }
            let mut seen = worker.seen();
            seen.cpu = cpu::of_this_thread();
            Ok(seen)
        })?
    }
}

/// Opens the connections before the clock starts. One that fails is tried again by its own first request, which then counts.
async fn connect_all(address: SocketAddr, count: usize, timeout: Duration) -> Vec<Option<Connection>> {
    let tasks = Tasks::new();
    let opened: Rc<RefCell<Vec<Option<Connection>>>> = Rc::default();
    let deadline = Instant::now() + timeout.min(Duration::from_secs(3));
    for _ in 0..count {
        let opened = opened.clone();
        tasks.start(async move {
            let connection = rt::before(deadline, rt::connect(address)).await;
            opened.borrow_mut().push(connection.and_then(Result::ok));
        });
    }
    while tasks.live() > 0 {
        rt::sleep(Duration::from_millis(1)).await;
    }
    let mut opened = opened.take();
    opened.resize_with(count, || None);
    opened
}

/// One request handed out.
#[derive(Debug, PartialEq, Eq)]
struct Ticket {
    intended: Instant,
    measured: bool,
}

/// Invariant: requests are handed out in the order of their due times; each due time is handed out once or counted in `not_sent`.
struct Worker {
    plan: Plan,
    requests: Vec<Rc<Vec<u8>>>,
    picker: RefCell<Picker>,
    ledger: RefCell<Ledger>,
    alarm: Alarm,
    live: Arc<Live>,
    start: Instant,
    measure_from: Instant,
    end: Option<Instant>,
    next: Cell<u64>,
    quota: Cell<u64>,
    last_answer: Cell<Option<Instant>>,
    ended_by_quota: Cell<bool>,
    tally: RefCell<Tally>,
}

/// One connection, how many requests it has carried, and what was read of the answer under way.
#[derive(Default)]
struct Line {
    connection: Option<Connection>,
    carried: u64,
    buffer: Vec<u8>,
    tail: Tail,
}

impl Worker {
    fn new(mut plan: Plan, start: Instant, alarm: Alarm, live: Arc<Live>) -> Worker {
        let measure_from = start + plan.warm_up;
        Worker {
            requests: plan.requests.iter().map(|request| Rc::new(request.clone())).collect(),
            picker: RefCell::new(std::mem::replace(&mut plan.picker, Picker::new(Draw::One, 1, 0, 0))),
            ledger: RefCell::new(Ledger::new(if plan.watch.is_some() { plan.requests.len() } else { 0 })),
            alarm,
            live,
            start,
            measure_from,
            end: plan.duration.map(|duration| measure_from + duration),
            next: Cell::new(0),
            quota: Cell::new(plan.quota.unwrap_or(u64::MAX)),
            last_answer: Cell::new(None),
            ended_by_quota: Cell::new(false),
            tally: RefCell::default(),
            plan,
        }
    }

    fn seen(&self) -> Seen {
        let until = match self.end {
            Some(end) if !self.ended_by_quota.get() => end,
            _ => self.last_answer.get().unwrap_or(self.measure_from),
        };
        Seen {
            tally: self.tally.take(),
            ledger: self.ledger.take(),
            cpu: None,
            measured: until.saturating_duration_since(self.measure_from),
        }
    }

    /// The next request to send, or `None` when the run is over.
    fn take(&self, now: Instant) -> Option<Ticket> {
        let over = |at: Instant| self.end.is_some_and(|end| at >= end);
        let intended = match &self.plan.schedule {
            None => now.max(self.start),
            Some(schedule) => {
                let index = self.next.get();
                let due = self.start.checked_add(schedule.due(index))?;
                if over(due) {
                    return None;
                }
                if over(now) {
                    self.give_up_the_rest(schedule);
                    return None;
                }
                due
            }
        };
        if over(intended) {
            return None;
        }
        let measured = intended >= self.measure_from;
        if measured {
            if self.quota.get() == 0 {
                self.ended_by_quota.set(true);
                return None;
            }
            self.quota.set(self.quota.get() - 1);
        }
        self.next.set(self.next.get() + 1);
        Some(Ticket { intended, measured })
    }

    /// Counts what was due before the end and can no longer be sent.
    fn give_up_the_rest(&self, schedule: &Schedule) {
        let Some(end) = self.end else { return };
        let all = schedule.due_before(end.saturating_duration_since(self.start));
        let warm = schedule.due_before(self.measure_from.saturating_duration_since(self.start));
        let lost = all.saturating_sub(self.next.get().max(warm));
        self.tally.borrow_mut().not_sent += lost.min(self.quota.get());
        self.next.set(all.max(self.next.get()));
    }

    async fn drive(&self, connection: Option<Connection>) {
        let buffer = Vec::with_capacity(bounds::READ_SIZE);
        let mut line = Line { connection, buffer, ..Line::default() };
        let mut now = Instant::now();
        if now < self.start {
            self.alarm.until(self.start).await;
            now = Instant::now();
        }
        while let Some(ticket) = self.take(now) {
            let mut sent = ticket.intended;
            if self.plan.schedule.is_some() {
                self.alarm.until(ticket.intended).await;
                sent = Instant::now();
                if ticket.measured {
                    let delay = sent.saturating_duration_since(ticket.intended);
                    self.tally.borrow_mut().send_delay.record(delay);
                }
            }
            let mut deadline = sent + self.plan.timeout;
            let mut late = Failed::TimedOut;
            if let Some(end) = self.end.map(|end| end + self.plan.grace)
                && end < deadline
            {
                (deadline, late) = (end, Failed::Unfinished);
            }
            let key = self.picker.borrow_mut().pick();
            let exchange = self.exchange(&ticket, key, &mut line);
            let outcome = rt::before(deadline, exchange).await.unwrap_or(Err(late));
            now = match outcome {
                Ok(at) => at,
                Err(how) => {
                    // What is under way on it is lost: it must not carry another request.
                    line.connection = None;
                    line.buffer.clear();
                    self.failed(how, key, &ticket);
                    if how == Failed::Connect && self.plan.schedule.is_none() {
                        rt::sleep(bounds::CONNECT_BACK_OFF).await;
                    }
                    Instant::now()
                }
            };
        }
    }

    fn failed(&self, how: Failed, key: usize, ticket: &Ticket) {
        bump(&self.live.failures);
        if ticket.measured {
            self.tally.borrow_mut().failed(how);
        }
        if self.plan.watch.is_some() {
            self.ledger.borrow_mut().failed(key, how);
        }
    }

    async fn exchange(&self, ticket: &Ticket, key: usize, line: &mut Line) -> Result<Instant, Failed> {
        let Line { connection, carried, buffer, tail } = line;
        let open = match connection {
            Some(open) => open,
            None => {
                let opened = rt::connect(self.plan.address).await;
                self.tally.borrow_mut().connects += 1;
                *carried = 0;
                connection.insert(opened.map_err(|_| Failed::Connect)?)
            }
        };
        let exchange = Exchange {
            request: &self.requests[key],
            is_head: self.plan.is_head,
            intended: ticket.intended,
            at: ticket.intended.saturating_duration_since(self.measure_from),
            measured: ticket.measured,
            watched: self.plan.watch.is_some(),
        };
        let with_tally = |work: &mut dyn FnMut(&mut Tally)| work(&mut self.tally.borrow_mut());
        let answered = exchange.run(open, buffer, tail, with_tally).await?;
        bump(&self.live.answers);
        if answered.status >= 400 {
            bump(&self.live.error_statuses);
        }
        if let Some(watch) = self.plan.watch {
            self.ledger.borrow_mut().answered(
                key,
                answered.status,
                answered.refused_by,
                answered.usage,
                watch.backend_fails_with,
            );
        }
        if ticket.measured {
            self.last_answer.set(Some(answered.at));
        }
        *carried += 1;
        if !answered.keep_alive || *carried >= self.plan.requests_per_connection {
            *connection = None;
        }
        Ok(answered.at)
    }
}
