//! An admitted request waits here until its marks are written, where it must (SPEC §4.9, §10 "Crash").

use std::future::poll_fn;
use std::task::{Poll, Waker};

use engine::CoreId;
use engine::JournalNews;
use engine::Report;
use engine::gates::Reservation;
use engine::shard::{MarkNumber, Marks};
use engine::verdict::{Cause, Reading, Refusal, Tripped};
use tracing::error;

use super::{Core, GateTwoVerdict};
use crate::bounds::JOURNAL_PATIENCE;
use crate::rt;

impl Core {
    /// An admitted request spends only what is written down already; if that cannot be, `fail` decides (SPEC §3, §4.9).
    pub(super) async fn covered(&self, reservation: Reservation) -> GateTwoVerdict {
        let batches = reservation.written_after();
        if self.shared.journal.has(batches) || self.is_written(batches).await {
            return GateTwoVerdict::Admitted(reservation);
        }
        let closed: Vec<_> =
            reservation.closed_without_journal().map(|(place, cap)| (place, cap.clone())).collect();
        if closed.is_empty() {
            return GateTwoVerdict::Admitted(reservation);
        }
        let plan = reservation.plan().clone();
        self.tell(reservation.void(), self.now());
        let readings = self.read(&plan).await;
        let tripped = closed.into_iter().map(|(place, instance)| {
            let Reading { observed, held, resets_at, .. } = readings[place];
            Tripped {
                instance,
                observed,
                held,
                resets_at,
                wait: engine::Wait::SOON,
                cause: Cause::Unavailable,
            }
        });
        GateTwoVerdict::Refused(Refusal { tripped: tripped.collect() })
    }

    /// Waits until these batches are written; `false` if the journal fails, or takes too long.
    async fn is_written(&self, batches: &[(CoreId, MarkNumber)]) -> bool {
        let journal = &self.shared.journal;
        let waiting = poll_fn(|context| {
            self.for_journal.borrow_mut().push(context.waker().clone());
            journal.await_news(self.id);
            if journal.has(batches) {
                return Poll::Ready(true);
            }
            if journal.is_failing() { Poll::Ready(false) } else { Poll::Pending }
        });
        match rt::within(JOURNAL_PATIENCE, waiting).await {
            Ok(written) => written,
            Err(_) => {
                error!("the journal is not written in time: limits that fail closed refuse, others admit");
                journal.take(&JournalNews::Failing);
                journal.has(batches)
            }
        }
    }

    /// Wakes those who wait for news of the journal.
    pub(super) fn hear_journal(&self) {
        let waiting = std::mem::take(&mut *self.for_journal.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Hands out the marks that requests wait for, or soon will.
    pub(super) fn hand_out_urgent(&self) {
        if self.shard.borrow().has_urgent_marks() {
            let batch = self.shard.borrow_mut().take_urgent_marks();
            self.hand_out(batch);
        }
    }

    pub(super) fn hand_out(&self, batch: Marks) {
        if !batch.marks.is_empty() {
            // The control plane ends after the cores do; once it is gone there is nobody left to tell.
            let _ = self.reports.send(Report::Marks(self.id, batch));
        }
    }
}
