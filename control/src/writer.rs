//! The thread that writes what the cores report: counters as they stand, usage as it adds up. One transaction a batch
//! and kind. What they measure goes to the board of metrics.
//!
//! What cannot be written (a full disk) is kept, merged by identity, and tried again, so that memory is bounded by the
//! number of counters and of usage rows, not by how long the trouble lasts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use engine::{CounterMark, Report, UsageKey, UsageSum};

use crate::bounds;
use crate::metrics::Board;
use crate::start::StartError;
use crate::store::Store;

/// What is reported and not written yet.
#[derive(Default)]
struct Unwritten {
    counters: HashMap<CounterIdentity, CounterMark>,
    usage: HashMap<UsageKey, UsageSum>,
}

type CounterIdentity = (String, String, [Option<String>; 3], String, String);

impl Unwritten {
    fn add(&mut self, report: Report, board: &Board) {
        match report {
            Report::Metrics(metrics) => board.add(&metrics),
            Report::Counters(marks) => marks.into_iter().for_each(|mark| self.add_counter(mark)),
            Report::Usage(rows) => {
                for row in rows {
                    self.usage.entry(row.key).or_default().add(&row.sum);
                }
            }
        }
    }

    fn add_counter(&mut self, mark: CounterMark) {
        let CounterMark { limit_id, node, model, provider, endpoint, period, algorithm, .. } = mark.clone();
        let identity = (limit_id, node, [model, provider, endpoint], period, algorithm);
        let newest = self.counters.entry(identity).or_insert_with(|| mark.clone());
        if mark.window >= newest.window {
            *newest = mark;
        }
    }

    /// Writes what it can and keeps the rest.
    fn write(&mut self, store: &mut Store, board: &Board) {
        let mut failed = false;
        if !self.counters.is_empty() {
            match store.write_counters(self.counters.values()) {
                Ok(()) => self.counters.clear(),
                Err(error) => {
                    failed = true;
                    tracing::error!(%error, counters = self.counters.len(), "counters are not written");
                }
            }
        }
        if !self.usage.is_empty() {
            match store.add_usage(&self.usage) {
                Ok(()) => self.usage.clear(),
                Err(error) => {
                    failed = true;
                    tracing::error!(%error, rows = self.usage.len(), "usage is not written");
                }
            }
        }
        board.written(self.counters.len(), self.usage.len(), failed);
    }

    fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.usage.is_empty()
    }
}

/// Writes until told to stop or all senders are gone, then writes what is left.
///
/// # Errors
/// What is left cannot be written.
pub fn run(
    mut store: Store,
    reports: &Receiver<Report>,
    stop: &AtomicBool,
    board: &Board,
) -> Result<(), StartError> {
    let mut unwritten = Unwritten::default();
    loop {
        let stopping = stop.load(Ordering::Acquire);
        let ended = match reports.recv_timeout(Duration::from_millis(bounds::MARKS_POLL_MS)) {
            Ok(report) => {
                unwritten.add(report, board);
                false
            }
            Err(RecvTimeoutError::Timeout) => stopping,
            Err(RecvTimeoutError::Disconnected) => true,
        };
        while let Ok(report) = reports.try_recv() {
            unwritten.add(report, board);
        }
        unwritten.write(&mut store, board);
        if ended {
            return finish(&store, &unwritten);
        }
        if !unwritten.is_empty() {
            std::thread::sleep(Duration::from_millis(bounds::MARKS_RETRY_MS));
        }
    }
}

fn finish(store: &Store, unwritten: &Unwritten) -> Result<(), StartError> {
    if !unwritten.is_empty() {
        return Err(StartError::new(format!(
            "{} counters and {} rows of usage could not be written; what they last counted is lost",
            unwritten.counters.len(),
            unwritten.usage.len(),
        )));
    }
    Ok(store.checkpoint()?)
}
