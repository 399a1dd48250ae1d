//! One world: cores with their shards, rings between them, exchanges, two clocks, rules that change; and what happens
//! next, by one seeded generator. After every event every figure of every counter is compared with the book's.

use std::collections::HashMap;

use engine::{Answer, Ask, CellTable, CoreId, CounterMark, Identity, ReservationId, Shard};

use super::clocks::Clocks;
use super::coverage::{Coverage, Kind};
use super::exchange::{Exchange, State};
use super::ledger::Noted;
use super::mesh::{Collection, Mesh, Parcel, Progress};
use super::oracle::Oracle;
use super::owner;
use super::rules::Rules;
use super::support::Seeded;
use super::trace::Trace;

/// Exchanges of one world: what bounds its size.
const EXCHANGES: usize = 60;

pub struct Core {
    pub shard: Shard,
    /// A collection under way: the core does nothing else until it is finished.
    pub collection: Option<Collection>,
    pub stopped: bool,
}

pub struct World {
    pub seeded: Seeded,
    pub cover: Coverage,
    pub trace: Trace,
    pub clocks: Clocks,
    pub rules: Rules,
    pub mesh: Mesh,
    pub cores: Vec<Core>,
    pub table: CellTable,
    pub oracle: Oracle,
    /// What was written down of calendar counters, by the program and by the book.
    pub journal: HashMap<Identity, CounterMark>,
    pub noted: HashMap<Identity, Noted>,
    pub exchanges: Vec<Exchange>,
    pub hold_for: u64,
    /// Nothing uses more than was estimated.
    pub honest: bool,
    /// Rules are edited.
    pub edits: bool,
    /// Cores are lost.
    pub losses: bool,
    pub any_lost: bool,
    /// How much of the time is in cores that take their turns: the rest makes new work.
    haste: u64,
}

impl World {
    pub fn new(seed: u64, replayed: bool) -> World {
        let mut seeded = Seeded::new(seed);
        let seeded = &mut seeded;
        let cores = *seeded.pick(&[1, 2, 2, 3, 4, 4, 6, 8, 12, 16]);
        let clocks = Clocks::new(seeded);
        let offset = clocks.epoch_offset();
        let table = CellTable::new(offset);
        let rules = Rules::new(seeded, &clocks.zones, &table, cores);
        let bound = *seeded.pick(&[1, 1, 2, 4]);
        let mut world = World {
            cover: Coverage::new(),
            trace: Trace::new(replayed),
            mesh: Mesh::new(cores, bound),
            cores: Vec::new(),
            oracle: Oracle::new(offset.0, cores),
            journal: HashMap::new(),
            noted: HashMap::new(),
            exchanges: Vec::new(),
            hold_for: World::random_hold(seeded),
            honest: seeded.one_in(3),
            edits: !seeded.one_in(3),
            losses: seeded.one_in(3),
            any_lost: false,
            haste: seeded.between(1, 4),
            clocks,
            table,
            rules,
            seeded: seeded.clone(),
        };
        world.cores = (0..cores).map(|core| world.new_core(core, cores)).collect();
        world
    }

    pub fn new_core(&self, core: usize, cores: usize) -> Core {
        let shard = Shard::new(CoreId(core as u16), cores).with_epoch_offset(self.clocks.epoch_offset());
        Core { shard, collection: None, stopped: false }
    }

    /// Runs to the end; what the world came to.
    pub fn run(mut self) -> (Coverage, u64) {
        for _ in 0..self.seeded.between(100, 500) {
            self.event();
            self.compare();
        }
        self.come_to_rest();
        (self.cover.clone(), self.trace.hash())
    }

    fn event(&mut self) {
        match self.seeded.below(36) {
            0 | 1 => self.pass_time(),
            2 if self.edits => {
                self.rules.reload(&mut self.seeded, &mut self.cover);
                self.rules.arm(&self.table, self.cores.len());
                let limits = self.rules.limits.len() as u64;
                self.trace.event(&[6, limits], || format!("the rules are reloaded: {limits} limits"));
            }
            3 => self.upkeep(),
            4 if self.losses && self.seeded.one_in(2) => self.lose_core(),
            5 => self.stop_or_start(),
            _ => self.turn(),
        }
    }

    /// Some core goes on with what it does, or does something new.
    fn turn(&mut self) {
        let core = self.seeded.below(self.cores.len() as u64) as usize;
        if self.cores[core].stopped {
            return;
        }
        if self.cores[core].collection.is_some() {
            self.collect_step(core);
            return;
        }
        let what = self.seeded.below(8 + self.haste);
        let of = |world: &World, wanted: fn(&Exchange) -> bool| {
            let own = world.exchanges.iter().enumerate();
            let own = own.filter(|(_, exchange)| exchange.home == core && wanted(exchange));
            own.map(|(id, _)| id).collect::<Vec<_>>()
        };
        match what {
            0 | 1 if self.exchanges.len() < EXCHANGES => self.begin(core),
            0..5 => {
                let ready = of(self, |exchange| exchange.ready);
                if ready.is_empty() {
                    return self.start_collection(core);
                }
                let (id, steps) = (*self.seeded.pick(&ready), *self.seeded.pick(&[1, 2, 100]));
                self.progress(id, steps);
            }
            5 => {
                let asking = of(self, |exchange| matches!(exchange.state, State::Asking(_)));
                if !asking.is_empty() && self.seeded.one_in(3) {
                    let id = *self.seeded.pick(&asking);
                    self.cancel(id);
                }
            }
            6 => {
                let admitted = of(self, |exchange| matches!(exchange.state, State::Admitted(_)));
                if !admitted.is_empty() {
                    let id = *self.seeded.pick(&admitted);
                    self.finish(id);
                }
            }
            7 if self.seeded.one_in(4) => self.ask_figures(core),
            _ => self.start_collection(core),
        }
    }

    fn pass_time(&mut self) {
        if self.seeded.one_in(5) {
            let seconds = self.clocks.set_wall(&mut self.seeded);
            self.cover.note(if seconds < 0 { Kind::WallBack } else { Kind::WallForward });
            self.trace.event(&[7, seconds as u64], || format!("the wall clock is set by {seconds} s"));
        } else if self.seeded.one_in(3) && !self.rules.limits.is_empty() {
            let window = self.seeded.pick(&self.rules.limits).window.clone();
            if let Some(left) = self.clocks.to_border(&window, &mut self.seeded) {
                self.clocks.pass(left);
                self.cover.note(Kind::ExactBoundary);
            }
        } else {
            self.clocks.pass_some(&mut self.seeded);
        }
        let now = self.clocks.now();
        self.trace.event(&[8, now.monotonic.0], || format!("it is {} ({})", now.wall, now.monotonic.0));
        for cap in self.rules.watch_two.instances() {
            let (rolled, left, kept) = self.oracle.left_behind(cap, now);
            self.cover.note_if(rolled, Kind::WindowRolledOverHold);
            self.cover.note_if(left, Kind::BucketLeftHold);
            self.cover.note_if(kept, Kind::WindowKeptThoughWallBack);
        }
    }

    // ---- messages --------------------------------------------------------------------------------------

    pub fn post(&mut self, from: usize, to: usize, parcel: Parcel) {
        let sent = self.mesh.send(from, to, parcel);
        self.cover.note_if(!sent, Kind::RingFull);
    }

    /// Tells owners what became of a reservation; nobody waits for it.
    pub fn tell(&mut self, home: usize, exchange: usize, asks: Vec<(CoreId, Ask)>) {
        for (owner, ask) in asks {
            let owner = usize::from(owner.0);
            if owner == home {
                let _ = self.apply(home, exchange, ask);
            } else {
                self.post(home, owner, Parcel::Ask { exchange, ask });
            }
        }
    }

    /// `GET /tt/v1/me`: the figures of one request's counters, asked of their owners.
    fn ask_figures(&mut self, core: usize) {
        if self.exchanges.is_empty() {
            return;
        }
        let shape = self.rules.random_shape(&mut self.seeded);
        let (_, plan) = self.rules.plans(shape, &self.table, self.cores.len());
        let exchange = self.exchanges.len() - 1;
        self.cover.note(Kind::FiguresAsked);
        for owner in plan.owners() {
            let ask = Ask::Read { plan: plan.clone() };
            if usize::from(owner.0) == core {
                self.collect_all(core);
                let _ = self.apply(core, exchange, ask);
            } else {
                self.post(core, usize::from(owner.0), Parcel::Ask { exchange, ask });
            }
        }
    }

    /// An ask is applied at its owner, and by the book.
    pub fn apply(&mut self, owner: usize, id: usize, ask: Ask) -> Answer {
        let now = self.clocks.now();
        let at = (CoreId(owner as u16), self.cores.len());
        let exchange = &mut self.exchanges[id];
        match &ask {
            Ask::Reserve { .. } => self.cover.note_if(exchange.told, Kind::VoidOvertookReserve),
            Ask::Settle { id, .. } => {
                let known = self.oracle.is_live(*id, at.0);
                self.cover.note_if(!known, Kind::SettledTooLate);
            }
            _ => {}
        }
        let name = match &ask {
            Ask::Reserve { .. } => "a reserve",
            Ask::Check { .. } => "a check",
            Ask::Settle { .. } => "a settlement",
            Ask::Void { .. } => "a void",
            Ask::Read { .. } => "a reading",
        };
        let shard = &mut self.cores[owner].shard;
        let answer = owner::apply(shard, &mut self.oracle, at, now, ask, &mut exchange.expected);
        let word = match &answer {
            Answer::Reserved(_) => 1,
            Answer::Refused(partial) => 2 + partial.tripped.len() as u64,
            Answer::Read(_) | Answer::Done => 0,
        };
        self.trace.event(&[9, owner as u64, id as u64, word], || {
            let said = ["nothing", "yes"].get(word as usize).unwrap_or(&"no");
            format!("core {owner} applies {name} of exchange {id} and says {said}")
        });
        answer
    }

    fn start_collection(&mut self, core: usize) {
        self.mesh.flush(core);
        self.cores[core].collection = Some(Collection::new());
        self.collect_step(core);
    }

    /// A core takes one parcel; `false` when there is none left and the collection is over.
    fn collect_step(&mut self, core: usize) -> bool {
        let collection = self.cores[core].collection.as_mut().expect("under way");
        let stamped = match collection.advance(&mut self.mesh, core) {
            Progress::Took(stamped) => stamped,
            Progress::PutAside => {
                self.cover.note(Kind::AskPutAside);
                return true;
            }
            Progress::Finished => {
                self.cores[core].collection = None;
                return false;
            }
        };
        match stamped.parcel {
            Parcel::Ask { exchange, ask } => {
                let wanted = !matches!(ask, Ask::Settle { .. } | Ask::Void { .. });
                if wanted {
                    self.mesh.assert_released_before(core, stamped.stamp);
                }
                let answer = self.apply(core, exchange, ask);
                if wanted {
                    self.post(core, stamped.from, Parcel::Answer { exchange, answer });
                }
            }
            Parcel::Answer { answer: Answer::Read(_), .. } => {}
            Parcel::Answer { exchange: id, answer } => {
                let exchange = &mut self.exchanges[id];
                if matches!(exchange.state, State::Asking(_) | State::Polled) {
                    exchange.inbox.push((CoreId(stamped.from as u16), answer));
                    exchange.ready = true;
                } else if let Answer::Reserved(_) = answer {
                    // Nobody waits any more: what was held is let go.
                    self.cover.note(Kind::LateVoid);
                    let ask = Ask::Void { id: ReservationId::new(CoreId(exchange.home as u16), id as u64) };
                    self.post(core, stamped.from, Parcel::Ask { exchange: id, ask });
                }
            }
        }
        true
    }

    /// A core takes everything that has arrived.
    pub fn collect_all(&mut self, core: usize) {
        self.start_collection(core);
        self.finish_collection(core);
    }

    pub fn finish_collection(&mut self, core: usize) {
        while self.cores[core].collection.is_some() {
            self.compare();
            self.collect_step(core);
        }
    }

    // ---- the book --------------------------------------------------------------------------------------

    /// Every figure of every counter there ever was, as read and as summed.
    pub fn compare(&mut self) {
        let now = self.clocks.now();
        for (cap, reading) in self.rules.watch_one.instances().zip(self.rules.watch_one.read(now)) {
            let says = self.oracle.ask(cap, now, engine::Estimate::default());
            assert_eq!(reading.observed.0, says.observed, "gate 1 {} at {}", cap.limit.id, cap.node);
            self.trace.number(reading.observed.0 as u64);
        }
        let plan = &self.rules.watch_two;
        let mut seen = 0;
        for owner in plan.owners() {
            let shard = &mut self.cores[usize::from(owner.0)].shard;
            let known = shard.counters();
            let answer = shard.apply(now, Ask::Read { plan: plan.clone() });
            assert_eq!(shard.counters(), known, "reading makes no counter");
            let Answer::Read(readings) = answer else { panic!("{answer:?}") };
            owner::check_readings(&self.oracle, plan, now, &readings);
            seen += readings.len();
            for (_, reading) in readings {
                self.trace.number(reading.observed.0 as u64 ^ ((reading.held.0 as u64) << 32));
            }
        }
        assert_eq!(seen, plan.instances().len(), "a reading for each counter");
    }
}
