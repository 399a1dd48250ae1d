//! What was spent: the roll-up of `usage`, grouped, filtered, and paged through (SPEC §1, §8).
//!
//! The stored rows are scanned in one read and added up here rather than by SQL: the money of a row is two integers, whose
//! sums would end at 63 bits, and a calendar day is a matter of its zone. Memory is bounded by the page, not by the number
//! of groups: groups come in ascending order of their columns, so only the least ones behind the cursor are kept.
//!
//! **Days.** Usage is kept by the hour of admission, in UTC. An hour belongs to the calendar day in which it begins. In a zone
//! whose offset is not whole hours the hour around midnight therefore counts on the earlier day as a whole;
//! [`Spent::hours_cross_midnight`] says that this may have happened.
//!
//! **Nodes.** A row is at the node that owns its key; keyless traffic is at `__global`. With `subtree`, what is grouped by node
//! counts at that node and at each of its ancestors up to `__global`, or up to the node asked for: a row then
//! says what was spent at a node and everywhere below it. The totals count everything once, whatever the rows do.
//!
//! Invariants: sums are exact (`u128` pico-dollars); with no `subtree`, the rows of all pages add up to the totals.

mod body;
mod query;

use std::collections::BTreeMap;

use engine::{NodeId, UsageSum};
use jiff::Timestamp;

pub use body::{UsageBody, total_tokens};
pub use query::{Asked, Column, Query, Wrong};

use crate::store::{Store, StoreError, UsageRecord};

/// The values of the columns that a query groups by, in its order.
pub type Group = Vec<String>;

/// What a query found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Spent {
    /// One page of groups, ascending.
    pub rows: Vec<(Group, UsageSum)>,
    /// Everything that the filters let pass, on whatever page, each exchange once.
    pub totals: UsageSum,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
    /// Days were asked for, and some hour may lie on two of them.
    pub hours_cross_midnight: bool,
}

/// Runs a query. Reads every stored row between its two times.
pub fn spent(store: &Store, query: &Query) -> Result<Spent, StoreError> {
    let mut scan = Scan::new(query);
    store.each_usage(query.hours.clone(), |row| scan.take(row))?;
    Ok(scan.finish())
}

/// The same where there may be no database yet, which is no usage.
pub fn spent_in(store: Option<&Store>, query: &Query) -> Result<Spent, StoreError> {
    store.map_or_else(|| Ok(Scan::new(query).finish()), |store| spent(store, query))
}

/// A scan under way.
struct Scan<'q> {
    query: &'q Query,
    /// The least groups behind the cursor: a page, and one more that says whether there is a next one.
    groups: BTreeMap<Group, UsageSum>,
    totals: UsageSum,
    /// The group of the row at hand; its allocations are used again.
    group: Group,
    /// The row's hour as a day or an hour of a group.
    hour: Option<i64>,
    day_text: String,
    hour_text: String,
    hours_cross_midnight: bool,
}

impl<'q> Scan<'q> {
    fn new(query: &'q Query) -> Scan<'q> {
        Scan {
            query,
            groups: BTreeMap::new(),
            totals: UsageSum::default(),
            group: vec![String::new(); query.by.len()],
            hour: None,
            day_text: String::new(),
            hour_text: String::new(),
            hours_cross_midnight: false,
        }
    }

    fn take(&mut self, row: &UsageRecord<'_>) {
        let node = NodeId::new(row.node);
        if !self.query.lets_pass(row, &node) {
            return;
        }
        self.totals.add(&row.sum);
        self.tell_time(row.hour);
        for (column, text) in self.query.by.iter().zip(&mut self.group) {
            text.clear();
            text.push_str(match column {
                Column::Node => row.node,
                Column::Key => row.kid,
                Column::Model => row.model,
                Column::Served => row.served,
                Column::Provider => row.provider,
                Column::Endpoint => row.endpoint,
                Column::Hour => &self.hour_text,
                Column::Day => &self.day_text,
            });
        }
        self.add(&row.sum);
        if self.query.subtree
            && let Some(place) = self.query.by.iter().position(|column| *column == Column::Node)
        {
            let mut above = node.parent();
            while let Some(node) = above.filter(|node| self.query.shows(node)) {
                self.group[place].clear();
                self.group[place].push_str(node.as_str());
                self.add(&row.sum);
                above = node.parent();
            }
        }
    }

    /// Rows come by ascending hour, so this does something once an hour.
    fn tell_time(&mut self, hour: i64) {
        if self.hour == Some(hour) {
            return;
        }
        self.hour = Some(hour);
        let at = Timestamp::from_second(hour).unwrap_or(Timestamp::MAX);
        self.hour_text = at.to_string();
        if self.query.by.contains(&Column::Day) {
            let zone = &self.query.zone.zone;
            self.hours_cross_midnight |= zone.to_offset(at).seconds() % 3600 != 0;
            self.day_text = zone.to_datetime(at).date().to_string();
        }
    }

    /// Adds to the group at hand, if it is one of this page.
    fn add(&mut self, sum: &UsageSum) {
        if let Some(known) = self.groups.get_mut(&self.group) {
            return known.add(sum);
        }
        if self.query.after.as_ref().is_some_and(|after| self.group <= *after) {
            return;
        }
        if self.groups.len() > self.query.limit {
            // What is dropped is greater than all that are kept, and these only become less: it never comes back.
            match self.groups.last_entry() {
                Some(last) if *last.key() > self.group => drop(last.remove()),
                _ => return,
            }
        }
        self.groups.insert(self.group.clone(), *sum);
    }

    fn finish(mut self) -> Spent {
        let more = self.groups.len() > self.query.limit;
        if more {
            self.groups.pop_last();
        }
        let last = self.groups.last_key_value().filter(|_| more);
        let next = last.map(|(group, _)| self.query.cursor(group));
        Spent {
            next,
            rows: self.groups.into_iter().collect(),
            totals: self.totals,
            hours_cross_midnight: self.hours_cross_midnight,
        }
    }
}

#[cfg(test)]
mod tests;
