//! A world comes to rest: everything arrives, everything ends, and nothing is held by anybody.

use std::collections::HashMap;

use engine::{Admit, Estimate, Gate, Identity, Instance, LimitType, Window};

use super::coverage::Kind;
use super::exchange::State;
use super::ledger::Ledger;
use super::oracle::refuses;
use super::world::World;

impl World {
    pub fn come_to_rest(&mut self) {
        for core in &mut self.cores {
            core.stopped = false;
        }
        loop {
            self.deliver_everything();
            let open = |state: &State| !matches!(state, State::Over);
            let Some(id) = self.exchanges.iter().position(|exchange| open(&exchange.state)) else { break };
            if matches!(self.exchanges[id].state, State::Admitted(_)) {
                self.finish(id);
            } else {
                assert!(self.any_lost, "exchange {id} has no verdict though all is delivered");
                self.cover.note(Kind::AnswerNeverCame);
                self.cancel(id);
            }
            self.compare();
        }
        assert!(self.mesh.is_empty());
        let held: usize = self.cores.iter().map(|core| core.shard.live_reservations()).sum();
        let strays = self.exchanges.iter().any(|exchange| exchange.strays);
        // A lost core may also have had a void or a settlement in its outbox.
        let strays = strays || self.any_lost;
        assert!(held == 0 || strays, "only what was lost sight of waits for its deadline");
        self.clocks.pass(self.hold_for);
        (0..self.cores.len()).for_each(|core| self.expire(core));
        self.compare();
        let now = self.clocks.now();
        for core in &self.cores {
            core.shard.invariants();
            assert_eq!(core.shard.live_reservations(), 0, "nothing is reserved at rest");
        }
        for (cap, reading) in self.rules.watch_one.instances().zip(self.rules.watch_one.read(now)) {
            assert!(
                cap.limit.kind != LimitType::Concurrency || reading.observed.0 == 0,
                "a slot is left over"
            );
        }
        for cap in self.rules.watch_two.instances() {
            assert_eq!(self.oracle.ask(cap, now, Estimate::default()).held, 0, "nothing is held at rest");
        }
        (0..self.cores.len()).for_each(|core| self.write_down(core));
        self.check_conservation();
    }

    fn deliver_everything(&mut self) {
        let ready = |world: &World| world.exchanges.iter().position(|exchange| exchange.ready);
        while !self.mesh.is_empty()
            || ready(self).is_some()
            || self.cores.iter().any(|core| core.collection.is_some())
        {
            for core in 0..self.cores.len() {
                if self.cores[core].collection.is_none() {
                    self.collect_all(core);
                } else {
                    self.finish_collection(core);
                }
            }
            if let Some(id) = ready(self) {
                self.progress(id, 100);
            }
            self.compare();
        }
    }

    /// Of limits that were never edited, whatever order things came in: no window holds more than the amount.
    fn check_conservation(&self) {
        if self.any_lost {
            return;
        }
        let ledgers: &HashMap<(Gate, Identity), Ledger> = &self.oracle.ledgers;
        let instances = self.rules.watch_one.instances().chain(self.rules.watch_two.instances());
        for cap in instances.filter(|cap| refuses(cap)) {
            let edited = self.rules.edited.iter().any(|id| *id == *cap.limit.id.as_str());
            let key = (cap.limit.kind.gate(), cap.identity.clone());
            let Some(ledger) = ledgers.get(&key).filter(|_| !edited) else { continue };
            let counts_requests = matches!(cap.limit.kind, LimitType::Rpm | LimitType::QuotaRequests);
            // Money and tokens are bounded only when the estimate bounds the usage and must fit, and is known.
            let bounded =
                self.honest && cap.limit.admit == Admit::IfFits && cap.limit.kind != LimitType::BudgetUsd;
            if counts_requests || bounded {
                check_windows(cap, ledger);
            }
        }
    }
}

fn check_windows(cap: &Instance, ledger: &Ledger) {
    for line in &ledger.lines {
        let inside = |other: u64, window: i64| match &cap.limit.window {
            Window::Live => false,
            Window::Calendar { .. } => window == line.window,
            // Any interval as long as the period: it holds the amount of a sliding window, twice that of the others.
            Window::Rolling { period, .. } => (line.at..line.at + period.0).contains(&other),
        };
        let most = match &cap.limit.window {
            Window::Rolling { algorithm: engine::Algorithm::SlidingWindow, .. } | Window::Calendar { .. } => {
                cap.amount.0
            }
            _ => 2 * cap.amount.0,
        };
        let sum: u128 = ledger
            .lines
            .iter()
            .filter(|other| inside(other.at, other.window))
            .map(|other| other.observed + other.held)
            .sum();
        assert!(sum <= most, "{}: {sum} in one window of {}", cap.limit.id, cap.amount.0);
    }
}
