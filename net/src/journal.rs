//! What the cores know of the journal: how far each core's marks are written, and whether it can be written at all.
//!
//! A request that takes a calendar counter above its high water waits here until the batch that raises it is written
//! (SPEC §10 "Crash"); nothing on a core waits for the disk, and a request that is covered looks at one number. When the
//! journal cannot be written, or not in time, each limit's `fail` posture decides, and it does so at once for everybody
//! after, until a write succeeds again.
//!
//! Invariant: a number never goes back. The writer stores it before it rings; who waits registers before it looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use engine::{CoreId, JournalNews, MarkNumber};

use crate::mesh::Mesh;

/// Shared by all cores and the control plane.
#[derive(Debug)]
pub struct Journal {
    /// By core.
    written: Box<[CachePadded<AtomicU64>]>,
    failing: AtomicBool,
    /// By core: somebody there waits.
    awaited: Box<[CachePadded<AtomicBool>]>,
    mesh: Arc<Mesh>,
}

impl Journal {
    /// Of `cores` cores, which `mesh` connects.
    pub fn new(cores: usize, mesh: Arc<Mesh>) -> Journal {
        Journal {
            written: (0..cores).map(|_| CachePadded::default()).collect(),
            failing: AtomicBool::new(false),
            awaited: (0..cores).map(|_| CachePadded::default()).collect(),
            mesh,
        }
    }

    /// Takes the news in and rings for the cores that wait for them.
    pub fn take(&self, news: &JournalNews) {
        match news {
            JournalNews::Written(batches) => {
                for (core, number) in batches {
                    self.written[usize::from(core.0)].fetch_max(number.0, Ordering::SeqCst);
                }
                self.failing.store(false, Ordering::SeqCst);
            }
            JournalNews::Failing => self.failing.store(true, Ordering::SeqCst),
        }
        for (core, awaited) in self.awaited.iter().enumerate() {
            if awaited.swap(false, Ordering::SeqCst) {
                self.mesh.ring(CoreId(core as u16));
            }
        }
    }

    /// Whether all of these batches are written.
    pub fn has(&self, batches: &[(CoreId, MarkNumber)]) -> bool {
        batches
            .iter()
            .all(|(core, number)| self.written[usize::from(core.0)].load(Ordering::SeqCst) >= number.0)
    }

    /// Whether the last that was heard is that marks cannot be written.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::SeqCst)
    }

    /// Somebody on `core` waits for news. To be called before looking, or the news may pass unheard.
    pub fn await_news(&self, core: CoreId) {
        self.awaited[usize::from(core.0)].store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_known_by_core_and_never_go_back() {
        let journal = Journal::new(2, Mesh::new(2));
        let written = |core, number| JournalNews::Written(vec![(CoreId(core), MarkNumber(number))]);
        let batch = |core, number| (CoreId(core), MarkNumber(number));
        assert!(journal.has(&[]), "who spends nothing waits for nothing");
        assert!(!journal.has(&[batch(0, 1)]));
        journal.take(&written(0, 3));
        journal.take(&written(0, 2));
        assert!(journal.has(&[batch(0, 1)]) && journal.has(&[batch(0, 3)]));
        assert!(!journal.has(&[batch(0, 4)]) && !journal.has(&[batch(0, 3), batch(1, 1)]));
        journal.take(&written(1, 1));
        assert!(journal.has(&[batch(0, 3), batch(1, 1)]));
    }

    #[test]
    fn failing_lasts_until_something_is_written() {
        let journal = Journal::new(1, Mesh::new(1));
        assert!(!journal.is_failing());
        journal.take(&JournalNews::Failing);
        assert!(journal.is_failing());
        journal.take(&JournalNews::Written(Vec::new()));
        assert!(!journal.is_failing());
    }
}
