//! The thread that writes what the cores report: counters as they stand, usage as it adds up. One transaction for all
//! that has come, and kind; counters first, because requests may wait for them, and the cores are told as soon as they
//! are written. What they measure goes to the board of metrics.
//!
//! Nobody waits for usage, nor for when keys were used last, and there can be thousands of rows of them a second. They are
//! written a few at a time ([`leisure`]), so that counters never wait long behind them, and a core that shares its
//! processor with this thread does not either.
//!
//! Nothing here waits for a sync: that is done beside it, once a second, by [`sync`]. A killed process loses nothing that
//! was committed; a failed sync is told to the cores like a failed write.
//!
//! What cannot be written (a full disk) is kept, merged by identity, and tried again, so that memory is bounded by the
//! number of counters, of usage rows and of keys, not by how long the trouble lasts.

mod leisure;
mod names;

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
use leisure::Leisure;
use names::Names;

/// What is reported and not written yet.
#[derive(Default)]
struct Unwritten {
    counters: HashMap<CounterIdentity, CounterMark>,
    usage: Leisure<UsageKey, UsageSum>,
    names: Names,
    key_uses: Leisure<Kid, Timestamp>,
    /// When some of these were last tried to be written.
    tried: Option<Instant>,
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
                    let newest = self.key_uses.of(*kid);
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
                    self.usage.of(self.names.bounded(row.key)).add(&row.sum);
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

    /// Writes the counters; `false` if it cannot.
    fn write_counters(&mut self, store: &mut Store, health: &Health, tell: &Tell) -> bool {
        if self.counters.is_empty() {
            return true;
        }
        match store.write_counters(self.counters.values()) {
            Ok(()) => {
                self.counters.clear();
                health.unsynced.store(true, Ordering::Release);
                tell(&JournalNews::Written(self.batches.drain().collect()));
                if health.sync_failed.load(Ordering::Acquire) {
                    tell(&JournalNews::Failing);
                }
                true
            }
            Err(error) => {
                tell(&JournalNews::Failing);
                tracing::error!(%error, counters = self.counters.len(), "counters are not written");
                false
            }
        }
    }

    /// Writes some of what nobody waits for, if the last try was long enough ago, or all of it; `false` if it cannot.
    fn write_leisurely(&mut self, store: &mut Store, all: bool) -> bool {
        let pause = Duration::from_millis(bounds::LEISURE_MS);
        let due = all || self.tried.is_none_or(|tried| tried.elapsed() >= pause);
        if !due || !self.has_leisurely() {
            return true;
        }
        self.tried = Some(Instant::now());
        let usage = self.usage.write(all, |rows| store.add_usage(rows.iter().map(|(key, sum)| (key, sum))));
        if let Err(error) = &usage {
            tracing::error!(%error, rows = self.usage.len(), "usage is not written");
        }
        let keys =
            self.key_uses.write(all, |rows| store.note_key_uses(rows.iter().map(|(kid, at)| (kid, at))));
        if let Err(error) = &keys {
            tracing::error!(%error, keys = self.key_uses.len(), "the use of keys is not noted");
        }
        usage.is_ok() && keys.is_ok()
    }

    fn has_leisurely(&self) -> bool {
        self.usage.len() > 0 || self.key_uses.len() > 0
    }

    fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.usage.len() == 0
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
        let wait = if unwritten.has_leisurely() { bounds::LEISURE_MS } else { bounds::MARKS_POLL_MS };
        let ended = match reports.recv_timeout(Duration::from_millis(wait)) {
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
        let done =
            unwritten.write_counters(&mut store, health, tell) & unwritten.write_leisurely(&mut store, ended);
        board.written(unwritten.counters.len(), unwritten.usage.len(), !done);
        if ended {
            return finish(&store, &unwritten);
        }
        if !done {
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
