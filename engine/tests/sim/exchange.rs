//! One request's life in a world: gate 1, its conjunction step by step, its end or its cancellation at any step.

use std::sync::Arc;

use engine::{
    Admission, Answer, Ask, Cause, Conjunction, CoreId, Counted, Estimate, GateOnePlan, GateOneVerdict,
    GateTwoPlan, Instance, LimitType, PicoUsd, Refusal, Reservation, ReservationId, Settlement, Span, Step,
    Tokens, Wait,
};

use super::coverage::Kind;
use super::mesh::Parcel;
use super::oracle::{Opinion, alerts, refuses, skipped};
use super::owner::{Expected, deciders};
use super::support::SECOND;
use super::world::World;

pub struct Exchange {
    pub home: usize,
    gate_one: Arc<GateOnePlan>,
    gate_two: Arc<GateTwoPlan>,
    estimate: Estimate,
    admission: Option<Admission>,
    pub state: State,
    /// Answers that have come and were not looked at yet.
    pub inbox: Vec<(CoreId, Answer)>,
    /// It has something to do: asks to send, or answers to look at.
    pub ready: bool,
    /// What this round's answers must add up to.
    pub expected: Expected,
    second_round: bool,
    asks: usize,
    waiting: usize,
    /// Its hold may stay behind until the deadline.
    pub strays: bool,
    /// It was cancelled and its owners were told.
    pub told: bool,
}

pub enum State {
    Asking(Box<Conjunction>),
    /// The same, while it is being asked what to do.
    Polled,
    Admitted(Reservation),
    Over,
}

fn refused_by(kind: LimitType) -> Kind {
    match kind {
        LimitType::Rpm => Kind::RefusedByRpm,
        LimitType::Concurrency => Kind::RefusedByConcurrency,
        LimitType::Tpm => Kind::RefusedByTpm,
        LimitType::QuotaRequests => Kind::RefusedByQuotaRequests,
        LimitType::QuotaTokens => Kind::RefusedByQuotaTokens,
        LimitType::BudgetUsd => Kind::RefusedByBudget,
    }
}

impl World {
    /// A request comes to a core: gate 1.
    pub fn begin(&mut self, home: usize) {
        let now = self.clocks.now();
        let shape = self.rules.random_shape(&mut self.seeded);
        let (gate_one, gate_two) = self.rules.plans(shape, &self.table, self.cores.len());
        let id = self.exchanges.len();
        let caps: Vec<&Instance> = gate_one.instances().filter(|cap| !skipped(cap)).collect();
        let opinions: Vec<(&Instance, Opinion)> =
            caps.iter().map(|cap| (*cap, self.oracle.ask(cap, now, Estimate::default()))).collect();
        let admission = match gate_one.admit(now) {
            GateOneVerdict::Admitted(admission) => Some(admission),
            GateOneVerdict::Refused(refusal) => {
                self.check_gate_one_refusal(&opinions, &refusal);
                None
            }
        };
        if let Some(admission) = &admission {
            self.check_gate_one_admission(&opinions, admission, id);
        }
        self.trace.event(&[1, home as u64, u64::from(admission.is_some())], || {
            let passed = if admission.is_some() { "passes gate 1" } else { "is refused at gate 1" };
            format!("exchange {id} {shape:?} on core {home} {passed}")
        });
        let estimate = self.random_estimate();
        let deadline = now.monotonic.plus(Span(self.hold_for));
        let number = ReservationId::new(CoreId(home as u16), id as u64);
        let conjunction = Conjunction::new(number, Arc::clone(&gate_two), estimate, deadline);
        let passed = admission.is_some();
        self.exchanges.push(Exchange {
            home,
            gate_one,
            gate_two,
            estimate,
            admission,
            state: if passed { State::Asking(Box::new(conjunction)) } else { State::Over },
            inbox: Vec::new(),
            ready: passed,
            expected: Expected::default(),
            second_round: false,
            asks: 0,
            waiting: 0,
            strays: false,
            told: false,
        });
    }

    fn random_estimate(&mut self) -> Estimate {
        let seeded = &mut self.seeded;
        let figure = if seeded.one_in(40) { u64::MAX } else { seeded.below(30) };
        let money = (!seeded.one_in(6)).then(|| PicoUsd(seeded.below(30).into()));
        Estimate { tokens: Tokens(figure), money }
    }

    fn check_gate_one_refusal(&mut self, opinions: &[(&Instance, Opinion)], refusal: &Refusal) {
        let now = self.clocks.now();
        let over: Vec<_> =
            opinions.iter().filter(|(cap, says)| refuses(cap) && says.cause.is_some()).collect();
        let named: Vec<_> = refusal.tripped.iter().map(|cap| &cap.instance).collect();
        assert_eq!(named, over.iter().map(|(cap, _)| *cap).collect::<Vec<_>>(), "gate 1 tripped");
        for (tripped, (cap, says)) in refusal.tripped.iter().zip(&over) {
            assert_eq!((tripped.observed.0, tripped.held.0), (says.observed, 0), "{}", cap.limit.id);
            self.oracle.check_wait(cap, now, says, tripped.wait);
            self.cover.note(refused_by(cap.limit.kind));
        }
        assert!(!named.is_empty());
        self.cover.note(Kind::GateOneRefused);
        self.cover.note_if(named.len() > 1, Kind::GateOneRefusedBySeveral);
    }

    fn check_gate_one_admission(
        &mut self,
        opinions: &[(&Instance, Opinion)],
        admission: &Admission,
        id: usize,
    ) {
        let now = self.clocks.now();
        let over = opinions.iter().find(|(cap, says)| refuses(cap) && says.cause.is_some());
        assert!(over.is_none(), "gate 1 admitted over {over:?}");
        let noted = |which: fn(&Instance) -> bool| {
            let noted = opinions.iter().filter(move |(cap, says)| which(cap) && says.cause.is_some());
            noted.map(|(cap, _)| &cap.limit.id).collect::<Vec<_>>()
        };
        assert_eq!(admission.alerts().collect::<Vec<_>>(), noted(alerts), "gate 1 alerts");
        let shadows = |cap: &Instance| !refuses(cap) && !alerts(cap);
        assert_eq!(admission.shadowed().collect::<Vec<_>>(), noted(shadows), "gate 1 shadows");
        self.cover.note(Kind::GateOneAdmitted);
        self.cover.note_if(!noted(alerts).is_empty(), Kind::GateOneAlerted);
        opinions.iter().for_each(|(cap, _)| self.oracle.count(cap, now, id as u64));
        let rates = opinions.iter().filter(|(cap, _)| refuses(cap) && cap.limit.kind == LimitType::Rpm);
        let left = rates
            .map(|(cap, _)| cap.amount.0 - self.oracle.ask(cap, now, Estimate::default()).observed)
            .min();
        assert_eq!(admission.requests_left(now).map(|left| left.remaining.0), left, "requests left");
    }

    /// Hands a conjunction its answers and does what it says, for some steps.
    pub fn progress(&mut self, id: usize, steps: usize) {
        let exchange = &mut self.exchanges[id];
        let State::Asking(mut conjunction) = std::mem::replace(&mut exchange.state, State::Polled) else {
            unreachable!("only a conjunction progresses")
        };
        for (from, answer) in std::mem::take(&mut exchange.inbox) {
            exchange.waiting -= 1;
            conjunction.answered(from, answer);
        }
        let home = exchange.home;
        for _ in 0..steps {
            match conjunction.poll() {
                Step::Send(owner, ask) => {
                    self.check_step(id, &ask);
                    let wanted = !matches!(ask, Ask::Void { .. });
                    if usize::from(owner.0) != home {
                        self.post(home, usize::from(owner.0), Parcel::Ask { exchange: id, ask });
                        continue;
                    }
                    self.collect_all(home);
                    let answer = self.apply(home, id, ask);
                    if wanted {
                        self.exchanges[id].waiting -= 1;
                        conjunction.answered(owner, answer);
                    }
                }
                Step::Wait => {
                    let exchange = &mut self.exchanges[id];
                    assert!(exchange.waiting > 0, "waits for nobody");
                    exchange.ready = !exchange.inbox.is_empty();
                    exchange.state = State::Asking(conjunction);
                    return;
                }
                Step::Admitted(reservation) => return self.admitted(id, reservation),
                Step::Refused(refusal) => return self.refused(id, &refusal),
            }
        }
        self.exchanges[id].state = State::Asking(conjunction);
    }

    fn check_step(&mut self, id: usize, ask: &Ask) {
        let exchange = &mut self.exchanges[id];
        if let Ask::Reserve { final_round, .. } = ask {
            if *final_round && !exchange.second_round {
                assert!(!exchange.expected.firm, "tries again though more than holds refused");
                exchange.second_round = true;
                exchange.expected = Expected::default();
            }
            assert_eq!(*final_round, exchange.second_round);
            assert!(!final_round || exchange.waiting == 0, "the second round goes one by one");
        }
        exchange.waiting += usize::from(!matches!(ask, Ask::Void { .. }));
        exchange.asks += 1;
    }

    fn admitted(&mut self, id: usize, reservation: Reservation) {
        let exchange = &mut self.exchanges[id];
        let expected = &exchange.expected;
        assert!(expected.tripped.is_empty(), "admitted over {:?}", expected.tripped);
        let alerted: Vec<String> = reservation.alerts().map(ToString::to_string).collect();
        assert_eq!(alerted, Expected::ids(&expected.alerts), "alerts");
        let shadowed: Vec<String> = reservation.shadowed().map(ToString::to_string).collect();
        assert_eq!(shadowed, Expected::ids(&expected.shadowed), "shadows");
        let left = reservation.tokens_left().map(|left| left.remaining.0);
        assert_eq!(left, expected.tokens_left, "tokens left");
        let deciders = deciders(&exchange.gate_two, self.cores.len()).len();
        assert_eq!(expected.asked, deciders, "every owner reserved once");
        self.cover.note(Kind::Admitted);
        self.cover.note_if(exchange.second_round, Kind::AdmittedInSecondRound);
        self.cover.note_if(!alerted.is_empty(), Kind::Alerted);
        self.cover.note_if(!shadowed.is_empty(), Kind::Shadowed);
        self.cover.note_if(deciders == 0, Kind::NothingToAsk);
        (exchange.state, exchange.ready) = (State::Admitted(reservation), false);
        self.trace.event(&[2, id as u64], || format!("exchange {id} is admitted"));
    }

    fn refused(&mut self, id: usize, refusal: &Refusal) {
        let exchange = &mut self.exchanges[id];
        let expected = &mut exchange.expected;
        expected.tripped.sort_by_key(|(place, ..)| *place);
        let named: Vec<_> =
            refusal.tripped.iter().map(|cap| (cap.instance.limit.id.to_string(), cap.cause)).collect();
        let wanted: Vec<_> = expected.tripped.iter().map(|(_, id, cause)| (id.clone(), *cause)).collect();
        assert_eq!(named, wanted, "gate 2 tripped");
        assert!(!named.is_empty() && (exchange.second_round || expected.firm));
        let deciders = deciders(&exchange.gate_two, self.cores.len()).len();
        assert_eq!(expected.asked, deciders, "every owner says what is over there");
        let cores = self.cores.len();
        let mut owners: Vec<CoreId> =
            refusal.tripped.iter().map(|cap| cap.instance.identity.owner(cores)).collect();
        owners.sort_unstable();
        owners.dedup();
        let (second, several) = (exchange.second_round, owners.len() > 1);
        self.cover.note(if second { Kind::RefusedInSecondRound } else { Kind::RefusedInFirstRound });
        self.cover.note_if(several, Kind::RefusedBySeveralOwners);
        self.cover.note_if(several && second, Kind::RefusedBySeveralOwnersInSecondRound);
        for cap in &refusal.tripped {
            self.cover.note(refused_by(cap.instance.limit.kind));
            self.cover.note_if(cap.wait == Wait::Never && cap.cause == Cause::Over, Kind::NeverFits);
            match cap.cause {
                Cause::Over => self.cover.note(Kind::Over),
                Cause::HeldOnly => self.cover.note(Kind::HeldOnly),
                Cause::Unpriced => self.cover.note(Kind::Unpriced),
                Cause::Unavailable => panic!("a shard of a small world is never full"),
            }
        }
        (exchange.state, exchange.ready) = (State::Over, false);
        self.trace.event(&[3, id as u64], || format!("exchange {id} is refused: {named:?}"));
        self.leave_gate_one(id, false);
    }

    /// Releases what gate 1 gave, if it is not released yet.
    pub fn leave_gate_one(&mut self, id: usize, kept: bool) {
        let exchange = &mut self.exchanges[id];
        let Some(admission) = exchange.admission.take() else { return };
        match kept {
            true => admission.finish(Counted::Kept),
            false if self.seeded.one_in(2) => admission.finish(Counted::GivenBack),
            false => drop(admission),
        }
        for cap in exchange.gate_one.instances().filter(|cap| !skipped(cap)) {
            self.oracle.leave(cap, id as u64, kept);
        }
    }

    /// An exchange is given up before its verdict, as a panic or a client gone would do it.
    pub fn cancel(&mut self, id: usize) {
        let how = self.seeded.below(4);
        let exchange = &mut self.exchanges[id];
        let State::Asking(conjunction) = std::mem::replace(&mut exchange.state, State::Over) else {
            unreachable!("only a conjunction is cancelled")
        };
        let (home, plan) = (exchange.home, Arc::clone(&exchange.gate_two));
        let step = match (exchange.asks, exchange.ready) {
            (0, _) => Kind::CancelledBeforeAsking,
            (_, true) => Kind::CancelledBetweenAsks,
            (_, false) => Kind::CancelledWaiting,
        };
        self.cover.note(step);
        exchange.ready = false;
        // An answer that has come and was never looked at says nothing any more.
        exchange.inbox.clear();
        self.trace.event(&[4, id as u64, how], || format!("exchange {id} is cancelled, way {how}: {step:?}"));
        self.leave_gate_one(id, false);
        let number = ReservationId::new(CoreId(home as u16), id as u64);
        self.exchanges[id].told = how > 0;
        match how {
            0 => {
                self.cover.note(Kind::DroppedWaiting);
                self.exchanges[id].strays = true;
            }
            1 => self.tell(home, id, plan.owners().map(|owner| (owner, Ask::Void { id: number })).collect()),
            _ => self.tell(home, id, conjunction.abandon().collect()),
        }
    }

    /// An admitted exchange ends: delivered, not delivered, or lost sight of.
    pub fn finish(&mut self, id: usize) {
        let how = self.seeded.below(8);
        let settlement = self.random_settlement(id);
        let exchange = &mut self.exchanges[id];
        let State::Admitted(reservation) = std::mem::replace(&mut exchange.state, State::Over) else {
            unreachable!("only what was admitted ends")
        };
        let (home, release_first) = (exchange.home, how.is_multiple_of(2));
        self.trace.event(&[5, id as u64, how], || format!("exchange {id} ends, way {how}: {settlement:?}"));
        let kept = how > 1;
        if release_first {
            self.leave_gate_one(id, kept);
        }
        match how {
            0 => {
                self.cover.note(Kind::DroppedAdmitted);
                self.exchanges[id].strays = true;
                drop(reservation);
            }
            1 => {
                self.cover.note(Kind::Voided);
                self.tell(home, id, reservation.void().collect());
            }
            _ => {
                let estimate = self.exchanges[id].estimate;
                self.cover.note(Kind::Settled);
                self.cover.note_if(settlement.tokens > estimate.tokens, Kind::SettledAboveHold);
                self.cover.note_if(settlement.tokens == Tokens(0), Kind::SettledAtZero);
                self.cover.note_if(settlement.estimated, Kind::SettledEstimated);
                self.cover.note_if(settlement.money.is_none(), Kind::SettledUnpriced);
                self.tell(home, id, reservation.settle(settlement).collect());
            }
        }
        self.leave_gate_one(id, kept);
    }

    fn random_settlement(&mut self, id: usize) -> Settlement {
        let estimate = self.exchanges[id].estimate;
        let seeded = &mut self.seeded;
        let bound = |most: u64| if self.honest { most } else { 60 };
        let tokens = match seeded.below(20) {
            0 => 0,
            1 if !self.honest => u64::MAX,
            _ => seeded.below(bound(estimate.tokens.0).saturating_add(1)),
        };
        let money = |money: PicoUsd| PicoUsd(seeded.below(bound(money.0 as u64) + 1).into());
        Settlement {
            tokens: Tokens(tokens),
            money: estimate.money.map(money),
            estimated: self.seeded.one_in(5),
        }
    }

    /// An exchange's core is lost: nobody settles or voids anything; gate 1 is let go by the unwinding.
    pub fn lose_exchange(&mut self, id: usize) {
        let exchange = &mut self.exchanges[id];
        if !matches!(std::mem::replace(&mut exchange.state, State::Over), State::Over) {
            exchange.strays = true;
        }
        exchange.ready = false;
        exchange.inbox.clear();
        self.leave_gate_one(id, false);
    }

    /// How long holds of this world last: sometimes shorter than exchanges do.
    pub fn random_hold(seeded: &mut super::support::Seeded) -> u64 {
        *seeded.pick(&[500 * SECOND, 500 * SECOND, 20 * SECOND, 2 * SECOND, 7_200 * SECOND])
    }
}
