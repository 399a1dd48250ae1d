//! What a core does beside requests: overdue holds, marks of what has changed, reports.
//!
//! All of it grows with the counters, keys and tenants that were used, and every request on the core waits while it runs. So
//! it is done in turns of [`LOOKED_AT_A_TURN`], with requests between them.

use std::rc::Rc;

use engine::{CoreId, Gauges, Report};

use super::Core;
use crate::bounds::{BETWEEN_TURNS, LOOKED_AT_A_TURN, ROUNDS_A_SWEEP, UPKEEP_PERIOD};
use crate::rt;

impl Core {
    /// Lets overdue holds go and reports to the control plane, for as long as the core lives.
    pub async fn upkeep(self: Rc<Core>) {
        for round in 1u64.. {
            rt::sleep(UPKEEP_PERIOD).await;
            self.collect();
            // A core without requests lets go of what is not in force any more.
            let _ = (self.armed(), self.keys.borrow_mut().load());
            if self.id == CoreId(0) {
                self.shared.clock.follow();
            }
            while self.turn(LOOKED_AT_A_TURN) {
                rt::sleep(BETWEEN_TURNS).await;
                self.collect();
            }
            self.report_metrics();
            if round.is_multiple_of(ROUNDS_A_SWEEP) {
                self.pool.prune();
                if self.id == CoreId(0) {
                    self.sweep_cells().await;
                }
            }
        }
    }

    /// The cells of gate 1 are every core's; all of them are looked at, which is no work for a core.
    async fn sweep_cells(&self) {
        let (cells, now) = (self.shared.cells.clone(), self.now().monotonic);
        let sweep = move || {
            cells.sweep(now);
            cells.live_slots()
        };
        let live_slots = rt::offload(&self.shared.offload, sweep).await;
        self.live_slots.set(Some(live_slots));
    }

    /// One turn of a round; whether there is more to do in it.
    fn turn(&self, most: usize) -> bool {
        let (batch, more) = {
            let mut shard = self.shard.borrow_mut();
            let now = self.now();
            let more = shard.expire(now);
            (shard.take_marks(now.monotonic, most), more | shard.has_unlooked())
        };
        self.hand_out(batch);
        let (used, more_used) = self.tally.borrow_mut().take(most);
        if !used.is_empty() {
            let _ = self.reports.send(Report::Usage(used));
        }
        let more_plans = self.meter.unfold_plans(most);
        more | more_used | more_plans
    }

    /// The last word of a core: its counters exactly as they stand, and what was used.
    pub fn report_last(&self) {
        let batch = self.shard.borrow_mut().take_last_marks();
        self.hand_out(batch);
        // What was begun before, then what has come since.
        for _ in 0..2 {
            while self.turn(usize::MAX) {}
        }
        self.report_metrics();
    }

    fn report_metrics(&self) {
        if let Some(metrics) = self.meter.take(self.id, self.gauges()) {
            let _ = self.reports.send(Report::Metrics(metrics));
        }
    }

    fn gauges(&self) -> Gauges {
        let shard = self.shard.borrow();
        Gauges {
            connections: self.connections.get() as u64,
            holds: shard.live_reservations() as u64,
            counters: shard.counters() as u64,
            mesh_backlog: self.post.depth() as u64,
            live_slots: self.live_slots.get(),
            // The meter counts what is under way.
            ..Gauges::default()
        }
    }
}
