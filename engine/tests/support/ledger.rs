//! One counter of the book: a plain list of what was ever counted in it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::Cell;

use engine::{LimitType, Now, PicoUsd, Settlement, Tokens, bounds};

use super::bucket::{Bucket, Grain, Share};

/// One thing counted: a request at gate 1, or what a reservation holds or used at gate 2.
#[derive(Clone, Debug)]
pub struct Line {
    pub id: u64,
    /// Monotonic nanoseconds of the admission.
    pub at: u64,
    /// Calendar window of the admission.
    pub window: i64,
    pub observed: u128,
    pub held: u128,
    pub live: bool,
    /// Of a reservation, monotonic nanoseconds.
    pub deadline: Option<u64>,
    pub share: Share,
}

/// A calendar counter's figures, as they are written down.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Noted {
    pub window: i64,
    pub observed: u128,
    pub estimated: bool,
    pub unpriced: bool,
}

#[derive(Debug)]
pub struct Ledger {
    pub kind: LimitType,
    pub lines: Vec<Line>,
    /// Newest calendar window ever entered.
    pub newest: i64,
    pub estimated_in: Option<i64>,
    pub unpriced_in: Option<i64>,
    pub bucket: Cell<Bucket>,
    pub grain: Option<Grain>,
}

pub fn money(price: Option<PicoUsd>) -> u128 {
    price.map_or(0, |price| price.0.min(bounds::PICO_USD_A_REQUEST))
}

pub fn tokens(tokens: Tokens) -> u128 {
    tokens.0.min(bounds::TOKENS_A_REQUEST).into()
}

impl Ledger {
    pub fn new(kind: LimitType, grain: Option<Grain>) -> Ledger {
        Ledger {
            kind,
            lines: Vec::new(),
            newest: i64::MIN,
            estimated_in: None,
            unpriced_in: None,
            bucket: Cell::default(),
            grain,
        }
    }

    pub fn held(&self) -> u128 {
        self.lines.iter().map(|line| line.held).sum()
    }

    /// Ends the live reservations that `which` picks: settled, or voided.
    pub fn end(&mut self, now: Now, settlement: Option<Settlement>, which: impl Fn(&Line) -> bool) {
        while let Some(at) = self.lines.iter().position(|line| line.live && which(line)) {
            let (kind, line) = (self.kind, &mut self.lines[at]);
            let held = std::mem::take(&mut line.held);
            line.live = false;
            let used = match (settlement, kind) {
                (Some(_), LimitType::QuotaRequests) => continue,
                (Some(settlement), LimitType::BudgetUsd) => money(settlement.money),
                (Some(settlement), _) => tokens(settlement.tokens),
                (None, _) => 0,
            };
            line.observed = used;
            let (window, share) = (line.window, line.share);
            if let Some(grain) = self.grain {
                let mut bucket = self.bucket.get().later(grain, now.monotonic.0);
                match used.checked_sub(held) {
                    Some(more) => drop(bucket.put(grain, more, None)),
                    None => {
                        let back = bucket.give_back(grain, share, held - used);
                        self.lines[at + 1..].iter_mut().for_each(|later| later.share.before += back);
                    }
                }
                self.bucket.set(bucket);
            }
            if let Some(settlement) = settlement {
                if settlement.estimated {
                    self.estimated_in = self.estimated_in.max(Some(window));
                }
                if kind == LimitType::BudgetUsd && settlement.money.is_none() {
                    self.unpriced_in = self.unpriced_in.max(Some(window));
                }
            }
        }
    }

    /// Its figures in the newest window entered.
    pub fn noted(&self) -> Noted {
        let counted = self.lines.iter().filter(|line| line.window == self.newest);
        Noted {
            window: self.newest,
            observed: counted.map(|line| line.observed).sum(),
            estimated: self.estimated_in == Some(self.newest),
            unpriced: self.unpriced_in == Some(self.newest),
        }
    }
}
