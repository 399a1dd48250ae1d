//! Random histories of requests over one to four shards, with messages delayed and reordered, against an oracle that knows
//! only plain lists (`support/oracle.rs`). SPEC §4.
//!
//! After every event the verdict, the list of tripped caps, their waits, and the observed and held figure of every
//! counter are compared; at rest nothing is held and no slot is taken. A failing seed is named; replay it with
//! `HISTORY_SEED=<seed> cargo test -p engine --test histories`.

#[path = "support/bucket.rs"]
mod bucket;
#[path = "support/civil.rs"]
mod civil;
#[path = "support/ledger.rs"]
mod ledger;
#[path = "support/oracle.rs"]
mod oracle;
#[path = "support/owner.rs"]
mod owner;
#[path = "support/seen.rs"]
mod seen;
mod support;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use engine::{
    Admission, Admit, Algorithm, Answer, Ask, CalendarPeriod, CellTable, Conjunction, CoreId, Counted,
    Enforce, Estimate, Fail, GateOnePlan, GateOneVerdict, GateTwoPlan, Instance, Limit, LimitType, Mode, Now,
    PicoUsd, Reading, Refusal, Reservation, ReservationId, Selected, Settlement, Shard, Step, Tokens, Units,
    Window,
};
use oracle::{Opinion, Oracle, alerts, refuses, skipped};
use owner::{Expected, deciders};
use seen::Seen;
use support::{SECOND, Seeded, calendar, epoch_offset, instance, limit, now, rolling};

const EVENTS: u64 = 160;
const CHAINS: usize = 3;

/// A request between its gates and its end.
struct Flight {
    id: ReservationId,
    chain: usize,
    /// The instances in force when it began.
    gate_one: Arc<GateOnePlan>,
    gate_two: Arc<GateTwoPlan>,
    estimate: Estimate,
    admission: Option<Admission>,
    state: State,
    /// What this round's answers must add up to.
    expected: Expected,
    second_round: bool,
    waiting: usize,
}

enum State {
    Asking(Box<Conjunction>),
    Admitted(Reservation),
    Over,
}

struct World {
    seen: Seen,
    seeded: Seeded,
    cores: usize,
    shards: Vec<Shard>,
    table: CellTable,
    oracle: Oracle,
    limits: Vec<(Limit, &'static str)>,
    chains: Vec<(Arc<GateOnePlan>, Arc<GateTwoPlan>)>,
    flights: Vec<Flight>,
    asks: Vec<VecDeque<(usize, Ask)>>,
    answers: Vec<VecDeque<(usize, Answer)>>,
    clock: u64,
    /// How far the wall clock is off the monotonic one.
    step: i64,
    sequence: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut seeded = Seeded::new(seed);
        let cores = seeded.between(1, 4) as usize;
        let mut world = World {
            seen: Seen::default(),
            cores,
            shards: (0..cores)
                .map(|core| Shard::new(CoreId(core as u16), cores).with_epoch_offset(epoch_offset()))
                .collect(),
            table: CellTable::new(epoch_offset()),
            oracle: Oracle::new(epoch_offset().0, cores),
            limits: Vec::new(),
            chains: Vec::new(),
            flights: Vec::new(),
            asks: (0..cores).map(|_| VecDeque::new()).collect(),
            answers: (0..cores).map(|_| VecDeque::new()).collect(),
            clock: seeded.below(100 * SECOND),
            step: 0,
            sequence: 0,
            seeded,
        };
        for index in 0..world.seeded.between(1, 8) {
            let made = world.random_limit(index);
            world.limits.push(made);
        }
        world.arm();
        world
    }

    /// A limit of any kind at one of the nodes; nodes 0 to 2 are the chains' own, the last is everybody's.
    fn random_limit(&mut self, index: u64) -> (Limit, &'static str) {
        let seeded = &mut self.seeded;
        let kind = *seeded.pick(&[
            LimitType::Rpm,
            LimitType::Concurrency,
            LimitType::Tpm,
            LimitType::QuotaRequests,
            LimitType::QuotaTokens,
            LimitType::BudgetUsd,
        ]);
        let window = match kind {
            LimitType::Concurrency => Window::Live,
            LimitType::Rpm | LimitType::Tpm => rolling(
                *seeded.pick(&[SECOND, 60 * SECOND, 61]),
                *seeded.pick(&[Algorithm::SlidingWindow, Algorithm::SlidingWindow, Algorithm::FixedWindow]),
            ),
            _ => calendar(*seeded.pick(&[CalendarPeriod::Hour, CalendarPeriod::Day])),
        };
        let mut made = limit(&format!("l{index}"), kind, 1, window);
        if kind != LimitType::Rpm && kind != LimitType::Concurrency && seeded.one_in(3) {
            made.admit = Admit::IfFits;
        }
        let node = *seeded.pick(&["org:a", "org:b", "org:c", "__global", "__global"]);
        self.edit(&mut made);
        (made, node)
    }

    /// Another amount, and sometimes another posture: neither is part of a counter.
    fn edit(&mut self, limit: &mut Limit) {
        let seeded = &mut self.seeded;
        limit.amount = Units(match limit.kind {
            LimitType::Rpm | LimitType::Concurrency | LimitType::QuotaRequests => seeded.between(1, 6).into(),
            _ => seeded.between(1, 60).into(),
        });
        limit.posture.mode = *seeded.pick(&[Mode::On, Mode::On, Mode::On, Mode::On, Mode::Shadow, Mode::Off]);
        limit.posture.enforce = if seeded.one_in(6) { Enforce::AlertOnly } else { Enforce::Hard };
        limit.posture.fail = *seeded.pick(&[Fail::Open, Fail::Closed]);
        limit.suspended = seeded.one_in(10);
    }

    fn arm(&mut self) {
        self.chains = (0..CHAINS)
            .map(|chain| {
                let own = ["org:a", "org:b", "org:c"][chain];
                let select = |gate_one: bool| {
                    let bound = |node: &str, limit: &Limit| {
                        let first = matches!(limit.kind, LimitType::Rpm | LimitType::Concurrency);
                        (node == own || node == "__global") && first == gate_one
                    };
                    let bound = self.limits.iter().filter(|(limit, node)| bound(node, limit));
                    let mut instances: Vec<Instance> =
                        bound.map(|(limit, node)| instance(limit.clone(), node)).collect();
                    instances.sort_by_key(|instance| instance.node.is_global());
                    Selected(instances)
                };
                (self.table.plan(&select(true)), GateTwoPlan::new(&select(false), self.cores))
            })
            .collect();
    }

    fn now(&self) -> Now {
        let mut now = now(self.clock);
        now.wall =
            jiff::Timestamp::from_nanosecond(now.wall.as_nanosecond() + i128::from(self.step)).unwrap();
        now
    }

    fn event(&mut self) {
        match self.seeded.below(24) {
            0..6 => self.begin(),
            6..13 => self.deliver_ask(),
            13..18 => self.deliver_answer(),
            18..21 => self.end_one(),
            21 => self.pass_time(),
            22 => {
                for index in 0..self.limits.len() {
                    if self.seeded.one_in(3) {
                        let mut limit = self.limits[index].0.clone();
                        self.edit(&mut limit);
                        self.limits[index].0 = limit;
                    }
                }
                self.arm();
            }
            _ => {
                let now = self.now();
                self.expire(now);
            }
        }
    }

    fn expire(&mut self, now: Now) {
        for (core, shard) in self.shards.iter_mut().enumerate() {
            shard.expire(now);
            self.oracle.expire(CoreId(core as u16), now);
        }
    }

    fn pass_time(&mut self) {
        self.clock += *self.seeded.pick(&[
            1,
            17,
            SECOND / 60,
            SECOND / 2,
            SECOND,
            2 * SECOND,
            30 * SECOND,
            60 * SECOND,
            61 * SECOND,
            1_800 * SECOND,
            3_600 * SECOND,
            86_400 * SECOND,
        ]);
        if self.seeded.one_in(6) {
            self.step += *self.seeded.pick(&[-7_200, -30, -1, 1, 30]) * SECOND as i64;
        }
    }

    /// A request comes: gate 1, then its conjunction begins.
    fn begin(&mut self) {
        let now = self.now();
        let chain = self.seeded.below(CHAINS as u64) as usize;
        let (gate_one, gate_two) = self.chains[chain].clone();
        self.sequence += 1;
        let id = ReservationId::new(CoreId(0), self.sequence);
        let opinions: Vec<(&Instance, Opinion)> = gate_one
            .instances()
            .filter(|instance| !skipped(instance))
            .map(|instance| (instance, self.oracle.ask(instance, now, Estimate::default())))
            .collect();
        let over: Vec<_> =
            opinions.iter().filter(|(cap, says)| refuses(cap) && says.cause.is_some()).collect();
        let admission = match gate_one.admit(now) {
            GateOneVerdict::Refused(refusal) => {
                self.seen.refused_at_gate_one += 1;
                let named: Vec<_> = refusal.tripped.iter().map(|cap| &cap.instance.limit.id).collect();
                assert_eq!(
                    named,
                    over.iter().map(|(cap, _)| &cap.limit.id).collect::<Vec<_>>(),
                    "gate 1 tripped"
                );
                for (tripped, (cap, says)) in refusal.tripped.iter().zip(&over) {
                    assert_eq!((tripped.observed.0, tripped.held.0), (says.observed, 0));
                    self.oracle.check_wait(cap, now, says, tripped.wait);
                }
                return;
            }
            GateOneVerdict::Admitted(admission) => admission,
        };
        assert!(over.is_empty(), "gate 1 admitted over {over:?}");
        let alerted = opinions
            .iter()
            .filter(|(cap, says)| alerts(cap) && says.cause.is_some())
            .map(|(cap, _)| &cap.limit.id);
        assert_eq!(admission.alerts().collect::<Vec<_>>(), alerted.collect::<Vec<_>>(), "gate 1 alerts");
        let counted: Vec<Instance> = opinions.iter().map(|(cap, _)| (*cap).clone()).collect();
        counted.iter().for_each(|cap| self.oracle.count(cap, now, id.0));
        let tightest = counted.iter().filter(|cap| refuses(cap) && cap.limit.kind == LimitType::Rpm);
        let tightest = tightest
            .map(|cap| cap.amount.0.saturating_sub(self.oracle.ask(cap, now, Estimate::default()).observed));
        assert_eq!(
            admission.requests_left(now).map(|left| left.remaining.0),
            tightest.min(),
            "requests left"
        );
        let estimate = Estimate {
            tokens: Tokens(self.seeded.below(30)),
            money: (!self.seeded.one_in(6)).then_some(PicoUsd(self.seeded.below(30).into())),
        };
        let deadline = now.monotonic.plus(engine::Span(500 * SECOND));
        let conjunction = Conjunction::new(id, Arc::clone(&gate_two), estimate, deadline);
        self.flights.push(Flight {
            id,
            chain,
            gate_one,
            gate_two,
            estimate,
            admission: Some(admission),
            state: State::Asking(Box::new(conjunction)),
            expected: Expected::default(),
            second_round: false,
            waiting: 0,
        });
        self.poll(self.flights.len() - 1);
    }

    fn poll(&mut self, index: usize) {
        loop {
            let flight = &mut self.flights[index];
            let State::Asking(conjunction) = &mut flight.state else { return };
            match conjunction.poll() {
                Step::Wait => {
                    assert!(flight.waiting > 0, "waits for nobody");
                    return;
                }
                Step::Send(owner, ask) => {
                    if let Ask::Reserve { final_round, .. } = &ask {
                        if *final_round && !flight.second_round {
                            assert!(!flight.expected.firm, "tries again though more than holds refused");
                            flight.second_round = true;
                            flight.expected = Expected::default();
                        }
                        assert_eq!(*final_round, flight.second_round);
                        assert!(!final_round || flight.waiting == 0, "the second round goes one by one");
                    }
                    flight.waiting += usize::from(!matches!(ask, Ask::Void { .. }));
                    self.asks[usize::from(owner.0)].push_back((index, ask));
                }
                Step::Admitted(reservation) => {
                    let expected = &flight.expected;
                    assert!(expected.tripped.is_empty(), "admitted over {:?}", expected.tripped);
                    let alerted = reservation.alerts().map(ToString::to_string).collect::<Vec<_>>();
                    assert_eq!(alerted, Expected::ids(&expected.alerts));
                    self.seen.admitted += 1;
                    self.seen.second_round_admitted += u32::from(flight.second_round);
                    self.seen.alerted += u32::from(!alerted.is_empty());
                    let left = reservation.tokens_left().map(|left| left.remaining.0);
                    assert_eq!(left, expected.tokens_left, "tokens left");
                    flight.state = State::Admitted(reservation);
                    return;
                }
                Step::Refused(refusal) => return self.refused(index, &refusal),
            }
        }
    }

    fn refused(&mut self, index: usize, refusal: &Refusal) {
        let flight = &mut self.flights[index];
        let expected = &mut flight.expected;
        expected.tripped.sort_by_key(|(place, ..)| *place);
        let named: Vec<_> =
            refusal.tripped.iter().map(|cap| (cap.instance.limit.id.to_string(), cap.cause)).collect();
        let wanted: Vec<_> = expected.tripped.iter().map(|(_, id, cause)| (id.clone(), *cause)).collect();
        assert_eq!(named, wanted, "gate 2 tripped");
        assert!(!named.is_empty() && (flight.second_round || expected.firm));
        let deciders = deciders(&flight.gate_two, self.cores).len();
        assert_eq!(expected.asked, deciders, "every owner says what is over there");
        let mut owners: Vec<CoreId> =
            refusal.tripped.iter().map(|cap| cap.instance.identity.owner(self.cores)).collect();
        owners.dedup();
        self.seen.refused_by_several_owners += u32::from(owners.len() > 1);
        self.seen.second_round_refused += u32::from(flight.second_round);
        self.seen.second_round_refused_by_several_owners +=
            u32::from(flight.second_round && owners.len() > 1);
        flight.state = State::Over;
        drop(flight.admission.take());
        self.leave_gate_one(index, false);
    }

    fn leave_gate_one(&mut self, index: usize, kept: bool) {
        let flight = &self.flights[index];
        for instance in flight.gate_one.instances().filter(|instance| !skipped(instance)) {
            self.oracle.leave(instance, flight.id.0, kept);
        }
    }

    /// An ask reaches its owner; the oracle says what the answer must be.
    fn deliver_ask(&mut self) {
        let now = self.now();
        let core = self.seeded.below(self.cores as u64) as usize;
        let Some((index, ask)) = self.asks[core].pop_front() else { return };
        let flight = &mut self.flights[index];
        let told = matches!(ask, Ask::Settle { .. } | Ask::Void { .. });
        let at = (CoreId(core as u16), self.cores);
        let answer =
            owner::apply(&mut self.shards[core], &mut self.oracle, at, now, ask, &mut flight.expected);
        if told {
            return;
        }
        self.answers[core].push_back((index, answer));
    }

    fn deliver_answer(&mut self) {
        let core = self.seeded.below(self.cores as u64) as usize;
        let Some((index, answer)) = self.answers[core].pop_front() else { return };
        let flight = &mut self.flights[index];
        flight.waiting -= 1;
        if let State::Asking(conjunction) = &mut flight.state {
            conjunction.answered(CoreId(core as u16), answer);
            self.poll(index);
        }
    }

    /// One request ends: delivered, not delivered, lost, or given up while it still asks.
    fn end_one(&mut self) {
        let running = |flight: &Flight| !matches!(flight.state, State::Over);
        let live: Vec<usize> =
            (0..self.flights.len()).filter(|index| running(&self.flights[*index])).collect();
        if live.is_empty() {
            return;
        }
        let index = *self.seeded.pick(&live);
        let flight = &mut self.flights[index];
        let admission = flight.admission.take().unwrap();
        let how = self.seeded.below(8);
        let (asks, kept) = match std::mem::replace(&mut flight.state, State::Over) {
            State::Asking(conjunction) if how == 0 => {
                self.seen.abandoned += 1;
                (conjunction.abandon(), false)
            }
            State::Asking(conjunction) => {
                flight.state = State::Asking(conjunction);
                flight.admission = Some(admission);
                return;
            }
            State::Admitted(reservation) if how == 0 => {
                self.seen.lost += 1;
                drop(reservation);
                drop(admission);
                return self.leave_gate_one(index, false);
            }
            State::Admitted(reservation) if how == 1 => (reservation.void(), false),
            State::Admitted(reservation) => {
                let settlement = Settlement {
                    tokens: Tokens(self.seeded.below(60)),
                    money: flight.estimate.money.map(|_| PicoUsd(self.seeded.below(60).into())),
                    estimated: self.seeded.one_in(5),
                };
                (reservation.settle(settlement), true)
            }
            State::Over => unreachable!(),
        };
        admission.finish(if kept { Counted::Kept } else { Counted::GivenBack });
        for (owner, ask) in asks {
            self.asks[usize::from(owner.0)].push_back((index, ask));
        }
        self.leave_gate_one(index, kept);
    }

    /// Every figure of every chain, as read and as summed.
    fn compare(&mut self) {
        let now = self.now();
        for chain in 0..CHAINS {
            let (gate_one, gate_two) = self.chains[chain].clone();
            for (cap, reading) in gate_one.instances().zip(gate_one.read(now)) {
                let says = self.oracle.ask(cap, now, Estimate::default());
                assert_eq!(reading.observed.0, says.observed, "gate 1 {} at {}", cap.limit.id, cap.node);
            }
            let mut readings: Vec<(u16, Reading)> = Vec::new();
            for owner in gate_two.owners() {
                let known = self.shards[usize::from(owner.0)].counters();
                let answer =
                    self.shards[usize::from(owner.0)].apply(now, Ask::Read { plan: Arc::clone(&gate_two) });
                let Answer::Read(part) = answer else { panic!("{answer:?}") };
                assert_eq!(self.shards[usize::from(owner.0)].counters(), known, "reading makes no counter");
                readings.extend(part);
            }
            readings.sort_by_key(|(place, _)| *place);
            assert_eq!(readings.len(), gate_two.instances().len(), "a reading for each instance");
            for (cap, (_, found)) in gate_two.instances().zip(readings) {
                let says = self.oracle.ask(cap, now, Estimate::default());
                let found = (found.observed.0, found.held.0, found.estimated, found.unpriced);
                let wanted = (says.observed, says.held, says.estimated, says.unpriced);
                assert_eq!(found, wanted, "gate 2 {} at {}", cap.limit.id, cap.node);
            }
        }
    }

    /// All messages arrive, all requests end, all deadlines pass: nothing is held, no slot is taken.
    fn come_to_rest(&mut self) {
        loop {
            while self.asks.iter().any(|queue| !queue.is_empty())
                || self.answers.iter().any(|queue| !queue.is_empty())
            {
                self.deliver_ask();
                self.deliver_answer();
            }
            let asking = |flight: &Flight| matches!(flight.state, State::Asking(_));
            assert!(!self.flights.iter().any(asking), "a conjunction has no verdict though all is delivered");
            if self.flights.iter().all(|flight| matches!(flight.state, State::Over)) {
                break;
            }
            self.end_one();
        }
        self.compare();
        let held: usize = self.shards.iter().map(Shard::live_reservations).sum();
        assert!(held == 0 || self.seen.lost > 0, "only a lost reservation waits for its deadline");
        self.clock += 501 * SECOND;
        let now = self.now();
        self.expire(now);
        self.compare();
        for shard in &self.shards {
            shard.invariants();
            assert_eq!(shard.live_reservations(), 0);
        }
        for (gate_one, gate_two) in self.chains.clone() {
            for (cap, reading) in gate_one.instances().zip(gate_one.read(now)) {
                assert!(cap.limit.kind != LimitType::Concurrency || reading.observed == Units::ZERO);
            }
            for cap in gate_two.instances() {
                assert_eq!(self.oracle.ask(cap, now, Estimate::default()).held, 0);
            }
        }
        debug_assert!(self.flights.iter().all(|flight| flight.chain < CHAINS));
    }
}

fn run(seed: u64) -> Seen {
    let mut world = World::new(seed);
    for _ in 0..EVENTS {
        world.event();
        world.compare();
    }
    world.come_to_rest();
    world.seen
}

#[test]
fn histories_agree_with_plain_lists() {
    if let Ok(seed) = std::env::var("HISTORY_SEED") {
        eprintln!("{:?}", run(seed.parse().expect("HISTORY_SEED is a number")));
        return;
    }
    let seeds = std::env::var("HISTORY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2_000);
    let mut all = Seen::default();
    for seed in 0..seeds {
        let seen = catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|panic| {
            eprintln!("seed {seed} failed: HISTORY_SEED={seed} cargo test -p engine --test histories");
            resume_unwind(panic)
        });
        all.add(&seen);
    }
    eprintln!("{all:?}");
    let counts = all.counts();
    assert!(counts.iter().all(|count| *count > 20), "the histories never come to some of {all:?}");
}
