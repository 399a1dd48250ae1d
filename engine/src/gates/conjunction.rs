//! One request's way through gate 2 over all owners, without input or output (SPEC §4.1).
//!
//! Every owner is asked at once. If all reserve, the request is admitted. If any refuses, the others are voided, and the
//! refusal names the caps of all owners in evaluation order. When nothing but other requests in flight stood in the way,
//! the owners are asked once more, one after the other in ascending order: two requests that refused each other across
//! owners then meet at the first owner they share, and one of them wins. A refusal in that round still lists the later
//! owners' caps: they are asked what stands against, without holding.
//!
//! The caller does what [`Conjunction::poll`] says, hands each answer to [`Conjunction::answered`], and polls again. Asks
//! to one owner must arrive in the order they were given; owners may answer in any order.
//!
//! Invariants: every owner that reserved is settled or voided by what comes out of here, unless the reservation is
//! dropped; then its deadline voids it. No step allocates on the way to an admission, up to eight owners.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Answer, Ask, Estimate, GateTwoPlan, Noted, PartialRefusal, ReservationId, Reserved, Settlement};
use crate::counter_identity::CoreId;
use crate::limits::{Fail, LimitId, Window};
use crate::resolve::Instance;
use crate::shard::MarkNumber;
use crate::time::Monotonic;
use crate::verdict::{RateLeft, Refusal, Stance, Tripped};

type Owners = SmallVec<[CoreId; 8]>;

/// What to do next.
#[must_use]
#[derive(Debug)]
pub enum Step {
    /// Send this ask, then poll again. Asks to one core keep their order.
    Send(CoreId, Ask),
    /// Wait for an answer.
    Wait,
    /// Everything is held.
    Admitted(Reservation),
    /// Nothing is held, once the asks sent so far have arrived.
    Refused(Refusal),
}

/// One conjunction under way; see the module's text. To be dropped only after its verdict, or by
/// [`Conjunction::abandon`].
#[derive(Debug)]
pub struct Conjunction {
    id: ReservationId,
    plan: Arc<GateTwoPlan>,
    estimate: Estimate,
    deadline: Monotonic,
    owners: Owners,
    phase: Phase,
    /// How many of `owners` have been asked in this phase.
    asked: usize,
    waiting: usize,
    /// Owners that hold something for us.
    reserved: Owners,
    yes: Reserved,
    after: After,
    no: Option<PartialRefusal>,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum Phase {
    /// All at once.
    AtOnce,
    /// Giving back what the first round got, before the second.
    Retreat,
    /// One after the other.
    InOrder,
    /// After a refusal in order: asking the rest what stands against.
    TheRest,
    /// Giving back, before the refusal.
    GiveUp,
    /// The verdict is out.
    Over,
}

impl Conjunction {
    /// A conjunction over the plan's owners; nothing is asked yet.
    pub fn new(
        id: ReservationId,
        plan: Arc<GateTwoPlan>,
        estimate: Estimate,
        deadline: Monotonic,
    ) -> Conjunction {
        Conjunction {
            id,
            owners: plan.deciders().collect(),
            plan,
            estimate,
            deadline,
            phase: Phase::AtOnce,
            asked: 0,
            waiting: 0,
            reserved: Owners::new(),
            yes: Reserved::default(),
            after: After::new(),
            no: None,
        }
    }

    /// What to do next.
    pub fn poll(&mut self) -> Step {
        loop {
            match self.phase {
                Phase::AtOnce if self.asked < self.owners.len() => return self.ask_next(false),
                Phase::InOrder
                    if self.waiting == 0 && self.no.is_none() && self.asked < self.owners.len() =>
                {
                    return self.ask_next(true);
                }
                Phase::TheRest if self.asked < self.owners.len() => {
                    let ask = Ask::Check { plan: Arc::clone(&self.plan), estimate: self.estimate };
                    return self.send_next(ask);
                }
                Phase::AtOnce | Phase::InOrder | Phase::TheRest if self.waiting > 0 => return Step::Wait,
                Phase::AtOnce | Phase::InOrder if self.no.is_none() => return self.admit(),
                Phase::AtOnce => {
                    let again = self.no.as_ref().is_some_and(|no| no.in_flight_only);
                    self.phase = if again { Phase::Retreat } else { Phase::GiveUp };
                }
                Phase::InOrder => self.phase = Phase::TheRest,
                Phase::TheRest => self.phase = Phase::GiveUp,
                Phase::Retreat | Phase::GiveUp => {
                    if let Some(owner) = self.reserved.pop() {
                        return Step::Send(owner, Ask::Void { id: self.id });
                    }
                    if self.phase == Phase::GiveUp {
                        return self.refuse();
                    }
                    (self.phase, self.asked) = (Phase::InOrder, 0);
                    (self.yes, self.no) = (Reserved::default(), None);
                    self.after.clear();
                }
                Phase::Over => return Step::Wait,
            }
        }
    }

    /// Takes an owner's answer. An answer that nothing waits for, such as that to a void, is ignored.
    pub fn answered(&mut self, from: CoreId, answer: Answer) {
        if self.waiting == 0 || matches!(answer, Answer::Read(_) | Answer::Done) {
            return;
        }
        self.waiting -= 1;
        match answer {
            Answer::Reserved(reserved) => {
                self.reserved.push(from);
                self.yes.noted.extend(reserved.noted);
                if reserved.after > MarkNumber(0) {
                    self.after.push((from, reserved.after));
                }
                self.yes.tokens_left = RateLeft::tighter(self.yes.tokens_left, reserved.tokens_left);
            }
            Answer::Refused(partial) => match &mut self.no {
                None => self.no = Some(partial),
                Some(no) => {
                    no.tripped.extend(partial.tripped);
                    no.in_flight_only &= partial.in_flight_only;
                }
            },
            Answer::Read(_) | Answer::Done => {}
        }
    }

    /// Gives up before the verdict: the asks that undo whatever was or will be reserved.
    #[must_use]
    pub fn abandon(self) -> Asks {
        let asked = if self.phase == Phase::AtOnce { self.asked } else { self.owners.len() };
        let owners = if self.phase == Phase::Over { Owners::new() } else { self.owners };
        let owners = owners.into_iter().take(asked).collect::<Owners>().into_iter();
        Asks { owners, ask: Ask::Void { id: self.id } }
    }

    fn ask_next(&mut self, final_round: bool) -> Step {
        self.send_next(Ask::Reserve {
            id: self.id,
            plan: Arc::clone(&self.plan),
            estimate: self.estimate,
            deadline: self.deadline,
            final_round,
        })
    }

    fn send_next(&mut self, ask: Ask) -> Step {
        let owner = self.owners[self.asked];
        self.asked += 1;
        self.waiting += 1;
        Step::Send(owner, ask)
    }

    fn admit(&mut self) -> Step {
        self.phase = Phase::Over;
        let Reserved { mut noted, tokens_left, .. } = std::mem::take(&mut self.yes);
        noted.sort_unstable();
        Step::Admitted(Reservation {
            id: self.id,
            plan: Arc::clone(&self.plan),
            owners: std::mem::take(&mut self.reserved),
            noted,
            after: std::mem::take(&mut self.after),
            tokens_left,
        })
    }

    fn refuse(&mut self) -> Step {
        self.phase = Phase::Over;
        let mut tripped: Vec<(u16, Tripped)> = self.no.take().map(|no| no.tripped).unwrap_or_default();
        tripped.sort_by_key(|(place, _)| *place);
        Step::Refused(Refusal { tripped: tripped.into_iter().map(|(_, cap)| cap).collect() })
    }
}

/// What one admitted request holds at its owners. To be settled or voided exactly once, which its ownership ensures;
/// dropped, it is voided by its deadline.
#[must_use]
#[derive(Debug)]
pub struct Reservation {
    id: ReservationId,
    plan: Arc<GateTwoPlan>,
    owners: Owners,
    noted: Noted,
    after: After,
    tokens_left: Option<RateLeft>,
}

/// Batches of marks, each by the core that makes it.
type After = SmallVec<[(CoreId, MarkNumber); 4]>;

impl Reservation {
    /// The reservation's name.
    pub fn id(&self) -> ReservationId {
        self.id
    }

    /// The plan that admitted it.
    pub fn plan(&self) -> &Arc<GateTwoPlan> {
        &self.plan
    }

    /// The batches of marks that are to be written before anything is spent (SPEC §10 "Crash").
    pub fn written_after(&self) -> &[(CoreId, MarkNumber)] {
        &self.after
    }

    /// The caps that refuse while the journal cannot be written: those that it belongs to, are enforced, and fail closed.
    pub fn closed_without_journal(&self) -> impl Iterator<Item = (usize, &Instance)> {
        self.plan.instances().enumerate().filter(|(_, instance)| {
            let limit = &instance.limit;
            let enforced = Stance::of(limit) == Stance::Hard;
            enforced && limit.posture.fail == Fail::Closed && matches!(limit.window, Window::Calendar { .. })
        })
    }

    /// The limits that are `alert_only` and would have refused, in evaluation order (`X-Tt-Alert`).
    pub fn alerts(&self) -> impl Iterator<Item = &LimitId> {
        self.noted(Stance::Alert)
    }

    /// The limits in `shadow` that would have refused, in evaluation order.
    pub fn shadowed(&self) -> impl Iterator<Item = &LimitId> {
        self.noted(Stance::Shadow)
    }

    /// The caps in `shadow` or `alert_only` that would have refused, in evaluation order.
    pub fn overlooked(&self) -> impl Iterator<Item = &Instance> {
        self.noted.iter().map(|place| &self.plan.item(*place).instance)
    }

    /// The room left under the tightest enforced `tpm` cap, this request's hold taken off; `None` if there is none.
    pub fn tokens_left(&self) -> Option<RateLeft> {
        self.tokens_left
    }

    /// Ends the request as delivered: the asks that exchange its holds for what it used.
    #[must_use]
    pub fn settle(self, settlement: Settlement) -> Asks {
        Asks { owners: self.owners.into_iter(), ask: Ask::Settle { id: self.id, settlement } }
    }

    /// Ends the request as never delivered: the asks that give everything back, `quota_requests` too.
    #[must_use]
    pub fn void(self) -> Asks {
        Asks { owners: self.owners.into_iter(), ask: Ask::Void { id: self.id } }
    }

    fn noted(&self, stance: Stance) -> impl Iterator<Item = &LimitId> {
        let items = self.noted.iter().map(|place| self.plan.item(*place));
        items.filter(move |item| item.stance == stance).map(|item| &item.instance.limit.id)
    }
}

/// One ask for each owner of a reservation: to be sent, not answered.
#[derive(Debug)]
pub struct Asks {
    owners: smallvec::IntoIter<[CoreId; 8]>,
    ask: Ask,
}

impl Iterator for Asks {
    type Item = (CoreId, Ask);

    fn next(&mut self) -> Option<(CoreId, Ask)> {
        self.owners.next().map(|owner| (owner, self.ask.clone()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.owners.size_hint()
    }
}
