//! The thread that writes what the cores report: counters as they stand, usage as it adds up. One transaction for all
//! that has come, and kind; counters first, because requests may wait for them, and the cores are told as soon as they
//! are written. What they measure goes to the board of metrics. When keys were used last is written once a second.
//!
//! Nothing here waits for a sync: that is done beside it, once a second, by [`sync`]. A killed process loses nothing that
//! was committed; a failed sync is told to the cores like a failed write.
//!
//! What cannot be written (a full disk) is kept, merged by identity, and tried again, so that memory is bounded by the
//! number of counters, of usage rows and of keys, not by how long the trouble lasts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use engine::{CoreId, CounterMark, JournalNews, Kid, MarkNumber, Report, UsageKey, UsageSum};
use jiff::Timestamp;

use crate::bounds;
use crate::metrics::Board;
use crate::start::StartError;
use crate::store::Store;

/// What is reported and not written yet.
#[derive(Default)]
struct Unwritten {
    counters: HashMap<CounterIdentity, CounterMark>,
    usage: HashMap<UsageKey, UsageSum>,
    key_uses: HashMap<Kid, Timestamp>,
    /// When `key_uses` was last tried to be written.
    key_uses_tried: Option<Instant>,
    /// The newest batch of each core that is in `counters`.
    batches: HashMap<CoreId, MarkNumber>,
}

/// How the cores are told.
pub type Tell = dyn Fn(&JournalNews) + Send + Sync;

/// How the database fares, as the writer and the syncer see it together.
#[derive(Default)]
pub struct Health {
    /// Something was committed since the last sync.
    unsynced: AtomicBool,
    sync_failed: AtomicBool,
}

type CounterIdentity = (String, String, [Option<String>; 3], String, String);

impl Unwritten {
    fn add(&mut self, report: Report, board: &Board) {
        match report {
            Report::Metrics(metrics) => {
                for (kid, at) in &metrics.key_uses {
                    let newest = self.key_uses.entry(*kid).or_insert(*at);
                    *newest = (*newest).max(*at);
                }
                board.add(&metrics);
            }
            Report::Marks(core, batch) => {
                self.batches.insert(core, batch.number);
                batch.marks.into_iter().for_each(|mark| self.add_counter(mark));
            }
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
    fn write(&mut self, store: &mut Store, board: &Board, health: &Health, tell: &Tell) {
        let mut failed = false;
        if !self.counters.is_empty() {
            match store.write_counters(self.counters.values()) {
                Ok(()) => {
                    self.counters.clear();
                    health.unsynced.store(true, Ordering::Release);
                    tell(&JournalNews::Written(self.batches.drain().collect()));
                    if health.sync_failed.load(Ordering::Acquire) {
                        tell(&JournalNews::Failing);
                    }
                }
                Err(error) => {
                    failed = true;
                    tell(&JournalNews::Failing);
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

    /// Writes when keys were used, if the last try was long enough ago; `now` in any case. What fails is tried again then,
    /// and is no reason to hold up anything else.
    fn write_key_uses(&mut self, store: &mut Store, now: bool) {
        let period = Duration::from_millis(bounds::KEY_USES_MS);
        let due = now || self.key_uses_tried.is_none_or(|tried| tried.elapsed() >= period);
        if self.key_uses.is_empty() || !due {
            return;
        }
        self.key_uses_tried = Some(Instant::now());
        match store.note_key_uses(&self.key_uses) {
            Ok(()) => self.key_uses.clear(),
            Err(error) => tracing::error!(%error, keys = self.key_uses.len(), "the use of keys is not noted"),
        }
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
    health: &Health,
    tell: &Tell,
) -> Result<(), StartError> {
    store.never_checkpoint()?;
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
        unwritten.write(&mut store, board, health, tell);
        unwritten.write_key_uses(&mut store, ended);
        if ended {
            return finish(&store, &unwritten);
        }
        if !unwritten.is_empty() {
            std::thread::sleep(Duration::from_millis(bounds::MARKS_RETRY_MS));
        }
    }
}

/// Syncs the database every so often while something is written, until `stop` is dropped.
pub fn sync(store: &Store, stop: &Receiver<()>, health: &Health, tell: &Tell) {
    let period = Duration::from_millis(bounds::SYNC_PERIOD_MS);
    while stop.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
        sync_once(store, health, tell);
    }
}

fn sync_once(store: &Store, health: &Health, tell: &dyn Fn(&JournalNews)) {
    if !health.unsynced.swap(false, Ordering::AcqRel) {
        return;
    }
    match store.sync() {
        Ok(()) => {
            if health.sync_failed.swap(false, Ordering::AcqRel) {
                tracing::info!("the database can be synced again");
                tell(&JournalNews::Written(Vec::new()));
            }
        }
        Err(error) => {
            health.unsynced.store(true, Ordering::Release);
            health.sync_failed.store(true, Ordering::Release);
            tracing::error!(%error, "counters may be lost in a power cut");
            tell(&JournalNews::Failing);
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

#[cfg(test)]
mod tests;
