//! What exchanges used, rolled up on their core until it is handed to the control plane. The request path writes
//! nothing else.
//!
//! A row is found by the address of the resolved request it belongs to, so no string is hashed or copied for an
//! exchange; the names are copied once a row and period. Bounded by what differs within one upkeep period.

use std::collections::{HashMap, hash_map};
use std::rc::Rc;

use engine::{Kid, UsageKey, UsageRow, UsageSum};
use jiff::Timestamp;

use crate::plans::Resolved;

/// Seconds of the smallest period that usage is shown by.
const HOUR: i64 = 3600;

/// Who used something, and when.
#[derive(Clone)]
pub struct Account {
    /// The resolved request.
    pub resolved: Rc<Resolved>,
    /// The key, if there is one.
    pub kid: Option<Kid>,
    /// When gate 2 admitted it.
    pub admitted_at: Timestamp,
}

/// The address of a resolved request, the key, the hour.
type Place = (usize, Option<Kid>, i64);

/// What one row is made of.
type Used = (Rc<Resolved>, UsageSum);

/// The rows of one core since the last report.
#[derive(Default)]
pub struct Tally {
    rows: HashMap<Place, Used, ahash::RandomState>,
    /// Those that are being taken.
    leaving: hash_map::IntoIter<Place, Used>,
}

impl Tally {
    /// Adds what one exchange used.
    pub fn add(&mut self, account: &Account, sum: &UsageSum) {
        let hour = account.admitted_at.as_second().div_euclid(HOUR) * HOUR;
        let place = Rc::as_ptr(&account.resolved) as usize;
        // The row holds what its address names, so no other request can come to have it.
        let row = self
            .rows
            .entry((place, account.kid, hour))
            .or_insert_with(|| (account.resolved.clone(), UsageSum::default()));
        row.1.add(sum);
    }

    /// Takes at most so many rows, and tells whether others of the round that was begun are left.
    pub fn take(&mut self, most: usize) -> (Vec<UsageRow>, bool) {
        if self.leaving.len() == 0 {
            self.leaving = std::mem::take(&mut self.rows).into_iter();
        }
        let rows = self.leaving.by_ref().take(most);
        let rows = rows.map(|((_, kid, hour), (resolved, sum))| UsageRow {
            key: UsageKey {
                hour,
                kid,
                node: resolved.node.clone(),
                model: resolved.model.clone(),
                served: resolved.served.clone(),
                provider: resolved.provider.clone(),
                endpoint: resolved.endpoint,
            },
            sum,
        });
        (rows.collect(), self.leaving.len() > 0)
    }
}
