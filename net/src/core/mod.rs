//! One core: its shard, its end of the mesh, its plans, and what was published to it last.
//!
//! All of it belongs to one thread. Other cores reach it through parcels alone, but for the gate-1 cells, which
//! are shared and lock-free.

mod covered;
mod upkeep;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::task::{Poll, Waker};
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};
use engine::CoreId;
use engine::Estimator;
use engine::KeyRing;
use engine::cells::CellTable;
use engine::gates::{Answer, Ask, Conjunction, Estimate, GateTwoPlan, Reservation, ReservationId, Step};
use engine::shard::{CounterMark, Shard};
use engine::verdict::{Reading, Refusal};
use engine::{Now, Report, Span, UsageSum};

use crate::bounds::{EXCHANGE_BOUND, HOLD_MARGIN};
use crate::clock::Clock;
use crate::journal::Journal;
use crate::mesh::{Mesh, Parcel, Post, Ticket};
use crate::meter::Meter;
use crate::plans::Armed;
use crate::rt::{self, Offload};
use crate::snapshot::Snapshot;
use crate::tally::{Account, Tally};
use crate::upstream::Pool;
use crate::visit::Questions;
use tracing::error;

/// What all cores of a process share.
pub struct Shared {
    /// The last snapshot published.
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    /// The last key ring published.
    pub keys: Arc<ArcSwap<KeyRing>>,
    /// The gate-1 cells.
    pub cells: Arc<CellTable>,
    /// The rings between cores.
    pub mesh: Arc<Mesh>,
    /// How far the marks of all cores are written.
    pub journal: Journal,
    /// The threads beside the cores.
    pub offload: Offload,
    /// What is asked from outside the cores.
    pub questions: Questions,
    /// The process' clocks.
    pub clock: Clock,
    /// The wall clock at the monotonic clock's zero: what aligns fixed windows to the epoch.
    pub epoch_offset: Span,
    /// Set once, when the process begins to stop.
    pub draining: AtomicBool,
    /// Cores that may still ask others something.
    pub at_work: AtomicUsize,
    /// Whether some core ended its drain with exchanges under way.
    pub cut: AtomicBool,
}

/// How gate 2 ends.
#[must_use]
pub enum GateTwoVerdict {
    /// Everything is held.
    Admitted(Reservation),
    /// Nothing is.
    Refused(Refusal),
}

/// One core. Shared by the tasks of its thread.
pub struct Core {
    /// Which one.
    pub id: CoreId,
    /// What it shares with the others.
    pub shared: Arc<Shared>,
    /// Idle connections to backends.
    pub pool: Pool,
    /// What it measures.
    pub meter: Meter,
    /// What it has learnt from the exchanges that it settled, for routes that learn.
    pub estimator: RefCell<Estimator>,
    cores: usize,
    shard: RefCell<Shard>,
    post: Post,
    waiting: RefCell<HashMap<Ticket, Waiting, ahash::RandomState>>,
    sequence: Cell<u64>,
    snapshots: RefCell<Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>>,
    keys: RefCell<Cache<Arc<ArcSwap<KeyRing>>, Arc<KeyRing>>>,
    armed: RefCell<Rc<Armed>>,
    /// Who waits for news of the journal.
    for_journal: RefCell<Vec<Waker>>,
    /// By descriptor: whether that connection waits between two requests.
    idle: RefCell<Vec<bool>>,
    connections: Cell<usize>,
    tally: RefCell<Tally>,
    /// Slots taken, as they were counted last; only on the first core.
    live_slots: Cell<Option<u64>>,
    reports: Sender<Report>,
}

/// Answers that have come for a ticket, and who waits for more.
#[derive(Default)]
struct Waiting {
    answers: Vec<(CoreId, Answer)>,
    waker: Option<Waker>,
}

impl Core {
    /// Core `id` of `cores`, with the calendar counters that it owns restored.
    pub fn new(
        id: CoreId,
        cores: usize,
        shared: Arc<Shared>,
        restored: Vec<CounterMark>,
        reports: Sender<Report>,
    ) -> Rc<Core> {
        let mut shard = Shard::new(id, cores).with_epoch_offset(shared.epoch_offset);
        let now = shared.clock.now();
        for mark in restored {
            shard.restore(now, mark);
        }
        let armed = Armed::new(shared.snapshot.load_full(), shared.cells.clone(), cores);
        Rc::new(Core {
            id,
            cores,
            pool: Pool::default(),
            meter: Meter::default(),
            estimator: RefCell::default(),
            shard: RefCell::new(shard),
            post: Post::new(shared.mesh.clone(), id),
            waiting: RefCell::default(),
            sequence: Cell::new(0),
            snapshots: RefCell::new(Cache::new(shared.snapshot.clone())),
            keys: RefCell::new(Cache::new(shared.keys.clone())),
            armed: RefCell::new(Rc::new(armed)),
            for_journal: RefCell::default(),
            idle: RefCell::default(),
            connections: Cell::new(0),
            tally: RefCell::default(),
            live_slots: Cell::new(None),
            reports,
            shared,
        })
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        self.shared.clock.now()
    }

    /// The snapshot in force, with this core's plans for it.
    pub fn armed(&self) -> Rc<Armed> {
        let mut snapshots = self.snapshots.borrow_mut();
        let published = snapshots.load();
        let mut armed = self.armed.borrow_mut();
        if !Arc::ptr_eq(published, &armed.snapshot) {
            *armed = Rc::new(Armed::new(published.clone(), self.shared.cells.clone(), self.cores));
        }
        armed.clone()
    }

    /// Looks something up in the key ring in force.
    pub fn with_keys<T>(&self, look: impl FnOnce(&KeyRing) -> T) -> T {
        look(self.keys.borrow_mut().load())
    }

    /// A number that no other exchange of this process has.
    pub fn next_number(&self) -> u64 {
        let number = self.sequence.get() + 1;
        self.sequence.set(number);
        u64::from(self.id.0) << 48 | number
    }

    // ---- gate 2 ----------------------------------------------------------------------------------------

    /// Asks every owner of the plan's counters to hold the estimate, all or nothing.
    pub async fn reserve(&self, plan: &Arc<GateTwoPlan>, estimate: Estimate, mut now: Now) -> GateTwoVerdict {
        let number = self.next_number();
        let deadline = now.monotonic.plus(span(EXCHANGE_BOUND + HOLD_MARGIN));
        let mut conjunction = Conjunction::new(ReservationId(number), plan.clone(), estimate, deadline);
        let wait = Wait { core: self, ticket: Ticket(number), plan };
        loop {
            match conjunction.poll() {
                Step::Send(owner, ask) => {
                    if let Some(answer) = self.ask(owner, wait.ticket, ask, now) {
                        conjunction.answered(owner, answer);
                    }
                }
                Step::Wait => {
                    for (owner, answer) in self.answers(wait.ticket).await {
                        conjunction.answered(owner, answer);
                    }
                    now = self.now();
                }
                Step::Admitted(reservation) => {
                    let verdict = self.covered(reservation).await;
                    wait.over();
                    return verdict;
                }
                Step::Refused(refusal) => {
                    wait.over();
                    return GateTwoVerdict::Refused(refusal);
                }
            }
        }
    }

    // ---- counters --------------------------------------------------------------------------------------

    /// What each counter of the plan shows, in evaluation order. Counts nothing.
    pub async fn read(&self, plan: &Arc<GateTwoPlan>) -> Vec<Reading> {
        let mut readings = vec![Reading::default(); plan.instances().len()];
        for answer in self.ask_all(plan, || Ask::Read { plan: plan.clone() }).await {
            if let Answer::Read(seen) = answer {
                for (index, reading) in seen {
                    readings[usize::from(index)] = reading;
                }
            }
        }
        readings
    }

    /// Asks every owner of the plan's counters the same, and waits for all answers.
    pub async fn ask_all(&self, plan: &Arc<GateTwoPlan>, ask: impl Fn() -> Ask) -> Vec<Answer> {
        let wait = Wait { core: self, ticket: Ticket(self.next_number()), plan };
        let (mut answers, mut missing) = (Vec::new(), 0);
        for owner in plan.owners() {
            match self.ask(owner, wait.ticket, ask(), self.now()) {
                Some(answer) => answers.push(answer),
                None => missing += 1,
            }
        }
        while missing > 0 {
            let more = self.answers(wait.ticket).await;
            missing -= more.len().min(missing);
            answers.extend(more.into_iter().map(|(_, answer)| answer));
        }
        wait.over();
        answers
    }

    /// Tells owners what became of a reservation. Nothing may have been waited for since `now`.
    pub fn tell(&self, asks: impl IntoIterator<Item = (CoreId, Ask)>, now: Now) {
        for (owner, ask) in asks {
            if owner == self.id {
                let _ = self.shard.borrow_mut().apply(now, ask);
                self.hand_out_urgent();
            } else {
                self.post.send(owner, Parcel::Ask { ticket: None, ask });
            }
        }
    }

    /// One ask: answered at once when this core is the owner. Nothing may have been waited for since `now`.
    fn ask(&self, owner: CoreId, ticket: Ticket, ask: Ask, now: Now) -> Option<Answer> {
        let answered = !matches!(ask, Ask::Settle { .. } | Ask::Void { .. });
        if owner == self.id {
            // What has been taken in was judged later than `now`, and a shard's time never goes back.
            let now = if self.collect() { self.now() } else { now };
            let answer = self.shard.borrow_mut().apply(now, ask);
            self.hand_out_urgent();
            return answered.then_some(answer);
        }
        if answered {
            self.waiting.borrow_mut().entry(ticket).or_default();
        }
        self.post.send(owner, Parcel::Ask { ticket: answered.then_some(ticket), ask });
        None
    }

    async fn answers(&self, ticket: Ticket) -> Vec<(CoreId, Answer)> {
        poll_fn(|context| {
            let mut waiting = self.waiting.borrow_mut();
            let entry = waiting.entry(ticket).or_default();
            if entry.answers.is_empty() {
                entry.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(std::mem::take(&mut entry.answers))
        })
        .await
    }

    // ---- mesh ------------------------------------------------------------------------------------------

    /// Takes in what other cores have sent: their asks are judged, their answers reach who waits. Called at every
    /// request boundary and before every ask of this core's own. Tells whether anything had come.
    pub fn collect(&self) -> bool {
        let some = self.post.collect(|from, parcel| match parcel {
            Parcel::Ask { ticket, ask } => {
                let answer = self.shard.borrow_mut().apply(self.now(), ask);
                if let Some(ticket) = ticket {
                    self.post.send(from, Parcel::Answer { ticket, answer });
                }
            }
            Parcel::Answer { ticket, answer } => {
                if let Some(entry) = self.waiting.borrow_mut().get_mut(&ticket) {
                    entry.answers.push((from, answer));
                    if let Some(waker) = entry.waker.take() {
                        waker.wake();
                    }
                } else if let Answer::Reserved(_) = answer {
                    // The exchange that asked has panicked meanwhile; what it would have held is let go.
                    let ask = Ask::Void { id: ReservationId(ticket.0) };
                    self.post.send(from, Parcel::Ask { ticket: None, ask });
                }
            }
        });
        if some {
            rt::arrived();
        }
        self.hand_out_urgent();
        some
    }

    /// Sleeps until another core has sent something, or the process begins to stop.
    pub async fn arrival(&self) {
        self.post.arrival().await;
        self.hear_journal();
    }

    /// Waits for `span` or an arrival, whichever is first, and takes in what has come.
    pub async fn tick(&self, span: Duration) {
        let _ = rt::first_of(self.arrival(), rt::sleep(span)).await;
        self.collect();
    }

    /// This core has nothing left to ask; it answers the others until none of them has either. `cut`: its drain
    /// ended with exchanges still under way.
    pub async fn leave(&self, cut: bool) {
        const TICK: Duration = Duration::from_millis(1);
        while self.post.backlog() > 0 {
            self.tick(TICK).await;
        }
        self.shared.cut.fetch_or(cut, Ordering::SeqCst);
        self.shared.at_work.fetch_sub(1, Ordering::SeqCst);
        while self.shared.at_work.load(Ordering::SeqCst) > 0 {
            self.tick(TICK).await;
        }
        self.collect();
        if !self.shared.cut.load(Ordering::SeqCst) {
            self.check_at_rest();
        }
    }

    /// With no exchange left anywhere, nothing may be held. Says so if something is: it would be a permit or a hold
    /// that some ending forgot.
    fn check_at_rest(&self) {
        let (holds, slots) = (self.shard.borrow().live_reservations(), self.shared.cells.live_slots());
        if holds > 0 || slots > 0 {
            error!(core = self.id.0, holds, slots, "leaked: held with no exchange under way");
        }
    }

    /// Adds what one exchange used to this core's roll-up.
    pub fn add_usage(&self, account: &Account, sum: &UsageSum) {
        self.meter.used(sum);
        self.tally.borrow_mut().add(account, sum);
    }

    // ---- connections -----------------------------------------------------------------------------------

    /// Whether the process is stopping: no further request is begun on a connection.
    pub fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Relaxed)
    }

    /// Connections open on this core.
    pub fn connections(&self) -> usize {
        self.connections.get()
    }

    /// Counts one connection until the return value is dropped.
    pub fn occupy(self: &Rc<Core>) -> Occupancy {
        self.connections.set(self.connections.get() + 1);
        Occupancy(self.clone())
    }

    /// Notes that a connection waits between two requests, so that a stopping process can end it.
    pub fn mark_idle(&self, descriptor: RawFd) -> Idle<'_> {
        let place = descriptor as usize;
        let mut idle = self.idle.borrow_mut();
        if idle.len() <= place {
            idle.resize(place + 1, false);
        }
        idle[place] = true;
        Idle { core: self, place }
    }

    /// Ends the connections that wait between two requests; what has already arrived on them is still served.
    pub fn close_idle(&self) {
        for (descriptor, idle) in self.idle.borrow_mut().iter_mut().enumerate() {
            if std::mem::take(idle) {
                rt::shutdown_read(descriptor as RawFd);
            }
        }
    }
}

fn span(duration: Duration) -> Span {
    Span(duration.as_nanos() as u64)
}

/// See [`Core::occupy`].
pub struct Occupancy(Rc<Core>);

impl Drop for Occupancy {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
    }
}

/// See [`Core::mark_idle`].
pub struct Idle<'a> {
    core: &'a Core,
    place: usize,
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.core.idle.borrow_mut()[self.place] = false;
    }
}

/// A conjunction under way. Dropped before its verdict (the exchange panicked) it voids what owners may hold.
struct Wait<'a> {
    core: &'a Core,
    ticket: Ticket,
    plan: &'a Arc<GateTwoPlan>,
}

impl Wait<'_> {
    fn over(self) {
        self.forget();
        std::mem::forget(self);
    }

    /// Nobody waits for answers any more. Where this core owned all counters, nobody ever did.
    fn forget(&self) {
        let mut waiting = self.core.waiting.borrow_mut();
        if !waiting.is_empty() {
            waiting.remove(&self.ticket);
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.forget();
        let id = ReservationId(self.ticket.0);
        let voids = self.plan.owners().map(|owner| (owner, Ask::Void { id }));
        self.core.tell(voids, self.core.now());
    }
}
