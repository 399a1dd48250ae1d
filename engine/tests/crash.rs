//! A counter, its journal, and crashes between any two steps (SPEC §4.9, §10 "Crash"): what was spent is never forgotten, no
//! cap admits more than without the crash, and what is counted too much is at most the headroom.
//!
//! The journal writes batches in order, each some steps after it was handed out. A request spends once the batches that
//! it waits for are written. A crash keeps what is written and nothing else.

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::{
    Admit, Answer, Ask, CalendarPeriod, Conjunction, CoreId, CounterMark, Estimate, GateTwoPlan, LimitType,
    MarkNumber, Marks, Monotonic, Now, PicoUsd, Reservation, ReservationId, Settlement, Shard, Span, Step,
    Tokens,
};
use support::{SECOND, Seeded, calendar, limit, now, selected};

const CAPS: [(&str, LimitType); 3] = [
    ("requests", LimitType::QuotaRequests),
    ("tokens", LimitType::QuotaTokens),
    ("money", LimitType::BudgetUsd),
];
/// The largest headroom is this part of the amount.
const MOST: u128 = 64;
/// A counter that is quiet for so long, and looked at every so often, is written down exactly.
const QUIET: u64 = SECOND / 2;

type Figures = [u128; CAPS.len()];

struct Request {
    reservation: Reservation,
    /// What it will have used: at most what it holds.
    cost: u128,
    day: i64,
}

struct World {
    seed: u64,
    seeded: Seeded,
    at: u64,
    amounts: Figures,
    plan: Arc<GateTwoPlan>,
    shard: Shard,
    sequence: u64,
    handed_out: VecDeque<Marks>,
    written: MarkNumber,
    journal: BTreeMap<String, CounterMark>,
    waiting: Vec<Request>,
    spending: Vec<Request>,
    /// By day: what backends were asked for.
    spent: BTreeMap<i64, Figures>,
    /// The highest that each counter stood at since the process began, and on which day.
    peak: (i64, Figures),
    crashes: [u64; 2],
}

impl World {
    fn new(seed: u64) -> World {
        let mut seeded = Seeded::new(seed);
        let amounts: Figures = std::array::from_fn(|_| 10u128.pow(seeded.below(6) as u32) * 3);
        let caps = CAPS.iter().zip(amounts).map(|((id, kind), amount)| {
            let mut cap = limit(id, *kind, amount, calendar(CalendarPeriod::Day));
            cap.admit = Admit::IfFits;
            cap
        });
        let plan = GateTwoPlan::new(&selected(caps.collect::<Vec<_>>()), 1);
        World {
            seed,
            seeded,
            at: 0,
            amounts,
            plan,
            shard: Shard::new(CoreId(0), 1),
            sequence: 0,
            handed_out: VecDeque::new(),
            written: MarkNumber(0),
            journal: BTreeMap::new(),
            waiting: Vec::new(),
            spending: Vec::new(),
            spent: BTreeMap::new(),
            peak: (0, Figures::default()),
            crashes: [0; 2],
        }
    }

    fn now(&self) -> Now {
        now(self.at)
    }

    fn day(&self) -> i64 {
        self.now().wall.as_second().div_euclid(86_400)
    }

    fn step(&mut self) {
        match self.seeded.below(16) {
            0..4 => self.request(),
            4..8 => self.write(),
            8..10 => self.settle(),
            10..12 => self.at += self.seeded.below(3_000_000),
            12 => self.at += *self.seeded.pick(&[SECOND / 50, SECOND / 10, QUIET, QUIET]),
            13 => self.hand_out(Shard::take_urgent_marks),
            14 => {
                let (at, most) = (Monotonic(self.at), self.seeded.between(1, 4) as usize);
                self.hand_out(|shard| shard.take_marks(at, most));
            }
            _ if self.seeded.one_in(3) => self.crash(),
            _ if self.seeded.one_in(12) => self.rest(),
            _ => {}
        }
        self.spend();
        self.shard.invariants();
        let levels = self.levels();
        if self.peak.0 != self.day() {
            self.peak = (self.day(), Figures::default());
        }
        self.peak.1.iter_mut().zip(levels).for_each(|(peak, level)| *peak = level.max(*peak));
    }

    fn request(&mut self) {
        self.sequence += 1;
        let hold = self.seeded.between(0, 40) as u128;
        let estimate = Estimate { tokens: Tokens(hold as u64), money: Some(PicoUsd(hold)) };
        let id = ReservationId::new(CoreId(0), self.sequence);
        let deadline = Monotonic(self.at).plus(Span(900 * SECOND));
        let mut conjunction = Conjunction::new(id, Arc::clone(&self.plan), estimate, deadline);
        let reservation = loop {
            match conjunction.poll() {
                Step::Send(owner, ask) => {
                    let answer = self.apply(ask);
                    conjunction.answered(owner, answer);
                }
                Step::Wait => panic!("everything was answered"),
                Step::Admitted(reservation) => break reservation,
                Step::Refused(_) => return,
            }
        };
        let cost = u128::from(self.seeded.below(hold as u64 + 1));
        let day = self.day();
        self.waiting.push(Request { reservation, cost, day });
    }

    fn apply(&mut self, ask: Ask) -> Answer {
        let now = self.now();
        self.shard.apply(now, ask)
    }

    /// Those that nothing holds back any more are sent to the backend: from then on they may use what they hold.
    fn spend(&mut self) {
        let written = self.written;
        let (go, wait) = std::mem::take(&mut self.waiting).into_iter().partition(|request: &Request| {
            request.reservation.written_after().iter().all(|(_, mark)| *mark <= written)
        });
        self.waiting = wait;
        let go: Vec<Request> = go;
        for request in go {
            let spent = self.spent.entry(request.day).or_default();
            let used = [1, request.cost, request.cost];
            spent.iter_mut().zip(used).for_each(|(sum, used)| *sum += used);
            for (place, (sum, amount)) in spent.iter().zip(self.amounts).enumerate() {
                assert!(*sum <= amount, "seed {}: {} spent {sum} of {amount}", self.seed, CAPS[place].0);
            }
            self.spending.push(request);
        }
    }

    fn settle(&mut self) {
        if self.spending.is_empty() {
            return;
        }
        let chosen = self.seeded.below(self.spending.len() as u64) as usize;
        let Request { reservation, cost, .. } = self.spending.swap_remove(chosen);
        let settlement =
            Settlement { tokens: Tokens(cost as u64), money: Some(PicoUsd(cost)), estimated: false };
        for (_, ask) in reservation.settle(settlement) {
            let _ = self.apply(ask);
        }
    }

    fn hand_out(&mut self, take: impl Fn(&mut Shard) -> Marks) {
        let batch = take(&mut self.shard);
        if !batch.marks.is_empty() {
            self.handed_out.push_back(batch);
        }
    }

    fn write(&mut self) {
        let Some(batch) = self.handed_out.pop_front() else { return };
        assert!(batch.number > self.written, "batches ascend");
        self.written = batch.number;
        for mark in batch.marks {
            self.journal.insert(mark.limit_id.clone(), mark);
        }
    }

    fn figures(&mut self) -> [(u128, u128); CAPS.len()] {
        let plan = self.plan.clone();
        let Answer::Read(readings) = self.apply(Ask::Read { plan }) else { panic!("a read is answered") };
        std::array::from_fn(|place| {
            let reading = readings.iter().find(|(of, _)| usize::from(*of) == place).expect("read").1;
            (reading.observed.0, reading.held.0)
        })
    }

    fn levels(&mut self) -> Figures {
        self.figures().map(|(observed, held)| observed + held)
    }

    fn restart(&mut self) -> Figures {
        self.shard = Shard::new(CoreId(0), 1);
        self.handed_out.clear();
        self.written = MarkNumber(0);
        self.waiting.clear();
        self.spending.clear();
        for mark in self.journal.values() {
            assert!(self.shard.restore(self.now(), mark.clone()));
        }
        self.figures().map(|(observed, held)| {
            assert_eq!(held, 0);
            observed
        })
    }

    fn crash(&mut self) {
        self.crashes[0] += 1;
        let peak = if self.peak.0 == self.day() { self.peak.1 } else { Figures::default() };
        let resumed = self.restart();
        let spent = self.spent.get(&self.day()).copied().unwrap_or_default();
        for place in 0..CAPS.len() {
            let (name, seed) = (CAPS[place].0, self.seed);
            let (resumed, spent) = (resumed[place], spent[place]);
            assert!(
                resumed >= spent,
                "seed {seed}: {name} forgets: {spent} were spent, it resumes at {resumed}"
            );
            let most = peak[place] + self.amounts[place] / MOST;
            assert!(resumed <= most, "seed {seed}: {name} resumes at {resumed}, it never stood above {most}");
        }
        self.peak = (self.day(), resumed);
    }

    /// Everything ends, the cores look after their counters, the journal writes what it has; then a crash costs nothing.
    fn rest(&mut self) {
        while !self.waiting.is_empty() || !self.spending.is_empty() {
            self.hand_out(Shard::take_urgent_marks);
            self.write();
            self.spend();
            self.settle();
        }
        self.at += QUIET;
        let at = Monotonic(self.at);
        // The first may end a round that began before: one more looks at everything.
        for _ in 0..2 {
            self.hand_out(|shard| shard.take_marks(at, usize::MAX));
        }
        while !self.handed_out.is_empty() {
            self.write();
        }
        let before = self.figures().map(|(observed, _)| observed);
        self.crashes[1] += 1;
        assert_eq!(self.restart(), before, "seed {}: a crash at rest", self.seed);
        self.peak = (self.day(), before);
    }
}

#[test]
fn a_crash_forgets_nothing_and_lets_no_cap_be_exceeded() {
    let mut crashes = [0; 2];
    for seed in 0..1_000 {
        let mut world = World::new(seed);
        for _ in 0..600 {
            world.step();
        }
        crashes.iter_mut().zip(world.crashes).for_each(|(sum, more)| *sum += more);
    }
    assert!(crashes.iter().all(|count| *count > 1_000), "crashes, and crashes at rest: {crashes:?}");
}
