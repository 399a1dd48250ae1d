//! What cores do beside requests, and what befalls them: expiry, the journal, sweeping, being stopped, being lost.

use std::collections::BTreeMap;

use engine::{CoreId, CounterMark, Identity};

use super::coverage::Kind;
use super::ledger::Noted;
use super::world::World;

fn noted(mark: &CounterMark) -> Noted {
    let (window, observed) = (mark.window.0, mark.observed.0);
    Noted { window, observed, estimated: mark.estimated, unpriced: mark.unpriced }
}

impl World {
    pub fn upkeep(&mut self) {
        let core = self.seeded.below(self.cores.len() as u64) as usize;
        if self.cores[core].stopped || self.cores[core].collection.is_some() {
            return;
        }
        match self.seeded.below(5) {
            0 | 1 => self.expire(core),
            2 | 3 => self.write_down(core),
            _ => self.sweep(core),
        }
    }

    pub fn expire(&mut self, core: usize) {
        let now = self.clocks.now();
        self.cores[core].shard.expire(now);
        self.cores[core].shard.invariants();
        let ended = self.oracle.expire(CoreId(core as u16), now);
        self.cover.note_if(ended > 0, Kind::HoldExpired);
        self.trace
            .event(&[10, core as u64, ended as u64], || format!("core {core}: {ended} holds are overdue"));
    }

    /// The journal takes what has changed: afterwards it knows every calendar counter as it stands.
    pub fn write_down(&mut self, core: usize) {
        let at = self.clocks.now().monotonic;
        let most = self.seeded.between(1, 4) as usize;
        let shard = &mut self.cores[core].shard;
        let mut marks = shard.take_marks(at, most).marks;
        while shard.has_unlooked() {
            marks.extend(shard.take_marks(at, most).marks);
        }
        let book = self.oracle.noted(CoreId(core as u16));
        self.trace.event(&[11, core as u64, marks.len() as u64], || {
            format!("core {core} writes {} counters down", marks.len())
        });
        self.cover.note_if(!marks.is_empty(), Kind::Journaled);
        for mark in marks {
            let identity = mark.identity().expect("a known algorithm");
            assert_eq!(Some(&noted(&mark)), book.get(&identity), "{identity:?} as written down");
            self.noted.insert(identity.clone(), noted(&mark));
            self.journal.insert(identity, mark);
        }
        for (identity, now) in book {
            let empty = now.observed == 0 && !now.estimated && !now.unpriced;
            let written = self.noted.get(&identity).copied();
            // A window that nothing was counted in yet need not be written down.
            let fresh = empty && written.is_none_or(|written| written.window < now.window);
            assert!(fresh || written == Some(now), "{identity:?}: {now:?} is written as {written:?}");
        }
    }

    /// Counters that say nothing are forgotten, which changes no figure, whatever zone their limit is given next.
    pub fn sweep(&mut self, core: usize) {
        let now = self.clocks.now();
        if self.seeded.one_in(3) {
            // Only cells that no plan knows are forgotten: those of exchanges in flight stay.
            self.rules.forget_plans(&self.table);
            let gone = self.table.sweep(now.monotonic);
            self.rules.arm(&self.table, self.cores.len());
            self.cover.note_if(gone > 0, Kind::CellsSwept);
        }
        let caps = self.rules.watch_two.instances();
        let shard = &mut self.cores[core].shard;
        let known: Vec<_> = caps.filter(|cap| shard.knows(&cap.identity)).cloned().collect();
        assert_eq!(known.len(), shard.counters());
        let gone = shard.sweep(now);
        shard.invariants();
        known.iter().filter(|cap| !shard.knows(&cap.identity)).for_each(|cap| self.oracle.forget(cap, now));
        self.cover.note_if(gone > 0, Kind::CountersSwept);
        self.trace.event(&[12, core as u64, gone as u64], || format!("core {core} forgets {gone} counters"));
    }

    pub fn stop_or_start(&mut self) {
        let core = self.seeded.below(self.cores.len() as u64) as usize;
        let stopped = &mut self.cores[core].stopped;
        *stopped = !*stopped && self.seeded.one_in(2);
        let stopped = *stopped;
        self.cover.note_if(stopped, Kind::CoreStopped);
        self.trace
            .event(&[13, core as u64, u64::from(stopped)], || format!("core {core} stopped: {stopped}"));
    }

    /// A core is lost with all that it had in memory, and starts again from the journal (SPEC §4.9): its exchanges, its
    /// outboxes, what it had put aside, its holds and its rates are gone. Holds of its exchanges elsewhere wait for
    /// their deadline; what lies in the rings is still there.
    pub fn lose_core(&mut self) {
        let core = self.seeded.below(self.cores.len() as u64) as usize;
        let cores = self.cores.len();
        let aside = self.cores[core].collection.take().map_or(0, |collection| collection.pending());
        let parcels = aside + self.mesh.lose_outboxes(core);
        let holds = self.cores[core].shard.live_reservations();
        self.any_lost = true;
        self.cover.note(Kind::CoreLost);
        self.cover.note_if(holds > 0, Kind::CoreLostWithHolds);
        self.cover.note_if(parcels > 0, Kind::CoreLostWithParcels);
        self.trace.event(&[14, core as u64, parcels as u64, holds as u64], || {
            format!("core {core} is lost with {parcels} parcels and {holds} reservations")
        });
        for id in 0..self.exchanges.len() {
            if self.exchanges[id].home == core {
                self.lose_exchange(id);
            }
        }
        self.cores[core] = self.new_core(core, cores);
        let now = self.clocks.now();
        let marks: BTreeMap<String, (&Identity, &CounterMark)> =
            self.journal.iter().map(|(identity, mark)| (format!("{identity:?}"), (identity, mark))).collect();
        for (identity, mark) in marks.into_values() {
            let own = identity.owner(cores) == CoreId(core as u16);
            // Sometimes twice: taking a counter up again changes nothing.
            for _ in 0..self.seeded.between(1, 2) {
                assert_eq!(self.cores[core].shard.restore(now, mark.clone()), own);
            }
            self.cover.note_if(own, Kind::MarkRestored);
        }
        self.cores[core].shard.invariants();
        for (identity, mark) in &self.journal {
            if identity.owner(cores) == CoreId(core as u16) {
                // What was promised to the journal may have been spent.
                let observed = mark.high_water.0.max(mark.observed.0);
                self.cover.note_if(observed > mark.observed.0, Kind::HighWaterResumed);
                self.noted.insert(identity.clone(), Noted { observed, ..noted(mark) });
            }
        }
        self.oracle.lose(CoreId(core as u16), now, &self.noted);
    }
}
