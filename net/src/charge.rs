//! What one exchange owes, from gate 1 to its end.
//!
//! A charge holds the permits of gate 1 and the reservation of gate 2 and ends exactly once: by
//! [`Charge::end`], or, when the exchange is denied, panics or is dropped on the way, by what had been reached then. It is
//! large and filled step by step where it lies, so that nothing of it is moved. The
//! order is the same each time: the reservation is settled or voided first, the slots are released after it, so
//! that whoever gets the slot sees the settled counters.

use std::rc::Rc;

use engine::Expected;
use engine::Lesson;
use engine::Now;
use engine::Tokens;
use engine::Usage;
use engine::UsageSum;
use engine::cells::{Admission, Counted};
use engine::gates::{Reservation, Settlement};

use crate::core::Core;
use crate::json::BYTES_PER_TOKEN;
use crate::tally::Account;
use crate::usage::Seen;

/// How an exchange ended, as far as it matters to the counters (SPEC §4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The gateway could not deliver: nothing is consumed.
    Undelivered,
    /// The backend reported usage.
    Reported(Usage),
    /// The backend answered with an error and no usage: the request counts, tokens and money do not.
    BackendError,
    /// No report: the prompt's estimate and what was relayed.
    Unreported(Seen),
    /// The backend reported usage, but the answer was cut before its last report: what was relayed beyond that is added.
    Behind(Usage, Seen),
}

/// An exchange's permits, reservation, and what they will be settled by.
#[must_use]
pub struct Charge {
    core: Rc<Core>,
    admission: Option<Admission>,
    held: Option<Held>,
    sent: bool,
    /// Whether somebody asks for what was used.
    traced: bool,
    used: Option<Box<UsageSum>>,
}

/// What gate 2 admitted.
pub struct Held {
    /// What the counters hold.
    pub reservation: Reservation,
    /// What the request by itself was estimated at.
    pub estimated: Expected,
    /// What its report will teach, if its route learns.
    pub lesson: Option<Lesson>,
    /// Whose usage it is, and what it costs.
    pub account: Account,
}

impl Charge {
    /// A charge on nothing yet. `traced`: [`Charge::used`] will be asked for.
    pub fn begin(core: Rc<Core>, traced: bool) -> Charge {
        Charge { core, admission: None, held: None, sent: false, traced, used: None }
    }

    /// Gate 1 has admitted.
    pub fn admitted(&mut self, admission: Admission) {
        self.admission = Some(admission);
    }

    /// Gate 2 has admitted too.
    pub fn hold(&mut self, held: Held) {
        if let Some(admission) = &self.admission {
            self.core.meter.admitted_by(admission.plan(), held.reservation.plan());
        }
        self.core.meter.reservation_begins();
        self.held = Some(held);
    }

    /// The backend may have begun to work: from here on, being dropped no longer means that nothing was consumed.
    pub fn sent(&mut self) {
        self.sent = true;
    }

    /// The permits of gate 1.
    pub fn admission(&self) -> Option<&Admission> {
        self.admission.as_ref()
    }

    /// The reservation of gate 2.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.held.as_ref().map(|held| &held.reservation)
    }

    /// What a traced exchange used, once the charge has ended with a delivery.
    pub fn used(&self) -> Option<UsageSum> {
        self.used.as_deref().copied()
    }

    /// Ends the charge. A second time it does nothing. Nothing may have been waited for since `now`.
    pub fn end(&mut self, ending: Ending, now: Now) {
        let Some(Held { reservation, estimated, lesson, account }) = self.held.take() else { return };
        self.core.meter.reservation_ends();
        let (mut usage, is_estimate) = match ending {
            Ending::Undelivered => {
                self.core.tell(reservation.void(), now);
                return self.release(Counted::GivenBack);
            }
            Ending::Reported(usage) => {
                if let Some(lesson) = &lesson {
                    self.core.estimator.borrow_mut().learn(lesson, &usage);
                }
                (usage, false)
            }
            Ending::BackendError => (Usage::default(), false),
            Ending::Unreported(seen) => (told(Usage::default(), estimated, seen), true),
            Ending::Behind(usage, seen) => (told(usage, estimated, seen), true),
        };
        let money = match ending {
            Ending::BackendError => Some(Default::default()),
            _ => {
                usage.characters = estimated.characters;
                account.resolved.price.as_ref().map(|price| price.cost(&usage))
            }
        };
        let settlement = Settlement { tokens: usage.tokens(), money, estimated: is_estimate };
        self.core.tell(reservation.settle(settlement), now);
        let used = UsageSum::of(&usage, is_estimate, money);
        self.core.add_usage(&account, &used);
        if self.traced {
            self.used = Some(Box::new(used));
        }
        self.release(Counted::Kept);
    }

    fn release(&mut self, counted: Counted) {
        if let Some(admission) = self.admission.take() {
            admission.finish(counted);
        }
    }
}

/// What was reported, raised to what can be told without a report.
fn told(reported: Usage, estimated: Expected, seen: Seen) -> Usage {
    let input = if reported.input == Tokens::ZERO { estimated.input } else { reported.input };
    Usage {
        input,
        output: reported.output.max(Tokens(seen.text_bytes.div_ceil(BYTES_PER_TOKEN))),
        images: reported.images.max(seen.images),
        ..reported
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let ending = if self.sent { Ending::Unreported(Seen::default()) } else { Ending::Undelivered };
        if self.held.is_some() {
            self.end(ending, self.core.now());
        }
    }
}
