//! What one exchange owes, from gate 2 to its end.
//!
//! A charge holds the permits of gate 1 and the reservation of gate 2 and ends exactly once: by
//! [`Charge::end`], or, when the exchange panics or is dropped on the way, by what had been reached then. The
//! order is the same each time: the reservation is settled or voided first, the slots are released after it, so
//! that whoever gets the slot sees the settled counters.

use std::rc::Rc;

use engine::Expected;
use engine::Lesson;
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
    reservation: Option<Reservation>,
    expected: Expected,
    lesson: Option<Lesson>,
    account: Account,
    sent: bool,
    used: Option<UsageSum>,
}

impl Charge {
    /// A charge on what both gates admitted. `expected` is what the request by itself was estimated at, and what its report
    /// will teach, if its route learns; `account` whose usage it is, and what it costs.
    pub fn new(
        core: Rc<Core>,
        admission: Admission,
        reservation: Reservation,
        (expected, lesson): (Expected, Option<Lesson>),
        account: Account,
    ) -> Charge {
        core.meter.reservation_begins();
        core.meter.admitted_by(admission.plan(), reservation.plan());
        Charge {
            core,
            admission: Some(admission),
            reservation: Some(reservation),
            expected,
            lesson,
            account,
            sent: false,
            used: None,
        }
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
        self.reservation.as_ref()
    }

    /// What the exchange used, once the charge has ended with a delivery.
    pub fn used(&self) -> Option<UsageSum> {
        self.used
    }

    /// Ends the charge. A second time it does nothing.
    pub fn end(&mut self, ending: Ending) {
        let (Some(admission), Some(reservation)) = (self.admission.take(), self.reservation.take()) else {
            return;
        };
        self.core.meter.reservation_ends();
        let (mut usage, estimated) = match ending {
            Ending::Undelivered => {
                self.core.tell(reservation.void());
                admission.finish(Counted::GivenBack);
                return;
            }
            Ending::Reported(usage) => {
                if let Some(lesson) = &self.lesson {
                    self.core.estimator.borrow_mut().learn(lesson, &usage);
                }
                (usage, false)
            }
            Ending::BackendError => (Usage::default(), false),
            Ending::Unreported(seen) => (self.estimated(Usage::default(), seen), true),
            Ending::Behind(usage, seen) => (self.estimated(usage, seen), true),
        };
        let money = match ending {
            Ending::BackendError => Some(Default::default()),
            _ => {
                usage.characters = self.expected.characters;
                self.account.resolved.price.as_ref().map(|price| price.cost(&usage))
            }
        };
        let settlement = Settlement { tokens: usage.tokens(), money, estimated };
        self.core.tell(reservation.settle(settlement));
        let used = UsageSum::of(&usage, estimated, money);
        self.core.add_usage(&self.account, &used);
        self.used = Some(used);
        admission.finish(Counted::Kept);
    }

    /// What was reported, raised to what can be told without a report.
    fn estimated(&self, reported: Usage, seen: Seen) -> Usage {
        let input = if reported.input == Tokens::ZERO { self.expected.input } else { reported.input };
        Usage {
            input,
            output: reported.output.max(Tokens(seen.text_bytes.div_ceil(BYTES_PER_TOKEN))),
            images: reported.images.max(seen.images),
            ..reported
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let ending = if self.sent { Ending::Unreported(Seen::default()) } else { Ending::Undelivered };
        self.end(ending);
    }
}
