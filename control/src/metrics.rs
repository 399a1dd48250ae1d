//! What all cores have measured since the start, and how the control plane fares: one board, shown as text in the format
//! that Prometheus reads.
//!
//! The cores hand over plain counts several times a second; they are added up here, on the writer's thread. Series are
//! bounded: by limit and by provider there are as many as configs ever had, and [`bounds::METRIC_NAMES`] at the most, beyond
//! which all share one name. Nothing is shown by key, node or model: what they used is in the database, and
//! `tokentriage usage` shows it exactly. A figure is up to half a second late.
//!
//! Here too people are told of caps that were over and let requests pass. Every core tells, so what one has told already is
//! left out, until the cap's window ends.

mod text;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use engine::{Exchanges, Gauges, Histogram, LimitEvents, Metrics, Mode, Notice, UsageSum};
use jiff::Timestamp;

use crate::bounds;

pub use text::CONTENT_TYPE;

/// Where everything beyond the bound of names is counted.
const OTHERS: &str = "(others)";

/// What is counted, since the start of the process.
#[derive(Clone, Debug, Default)]
struct Figures {
    /// By core.
    gauges: BTreeMap<u16, Gauges>,
    admitted: u64,
    limits: BTreeMap<String, LimitEvents>,
    exchanges: Exchanges,
    used: UsageSum,
    gate_one: Histogram,
    gate_two: Histogram,
    first_byte: BTreeMap<String, Histogram>,
    writes: Writes,
    reloads: Reloads,
}

/// How the writer fares.
#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    unwritten_counters: usize,
    unwritten_usage: usize,
    /// Since when something waits that was tried to be written.
    failing_since: Option<Instant>,
    failed: u64,
}

/// Reloads since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Reloads {
    done: u64,
    refused: u64,
    last_was_refused: bool,
}

/// What is in force while the figures are shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct InForce {
    /// The ruleset's version.
    pub version: u64,
    /// Its limits.
    pub limits: usize,
    /// Its nodes.
    pub nodes: usize,
    /// Keys that work.
    pub keys: usize,
}

/// The board. Shared by the writer, who counts, and the management listener, who shows.
#[derive(Debug, Default)]
pub struct Board {
    figures: Mutex<Figures>,
    /// By a cap's hash: until when it has been told of.
    told: Mutex<HashMap<u64, Timestamp>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entry of a name; the one of all others when there are too many names.
fn named<'m, T: Default>(map: &'m mut BTreeMap<String, T>, name: &str) -> &'m mut T {
    let full = map.len() >= bounds::METRIC_NAMES && !map.contains_key(name);
    map.entry(if full { OTHERS } else { name }.to_owned()).or_default()
}

impl Board {
    /// Adds what a core has measured, and tells what it has to tell.
    pub fn add(&self, metrics: &Metrics) {
        for notice in &metrics.notices {
            if self.is_news(notice) {
                tell(notice);
            }
        }
        let mut figures = locked(&self.figures);
        figures.admitted = figures.admitted.saturating_add(metrics.admitted);
        for (limit, events) in &metrics.limits {
            named(&mut figures.limits, limit.as_str()).add(events);
        }
        figures.exchanges.add(&metrics.exchanges);
        figures.used.add(&metrics.used);
        figures.gate_one.add(&metrics.gate_one);
        figures.gate_two.add(&metrics.gate_two);
        for (provider, histogram) in &metrics.first_byte {
            named(&mut figures.first_byte, provider.as_str()).add(histogram);
        }
        let stood = figures.gauges.entry(metrics.core.0).or_default();
        *stood = Gauges { live_slots: metrics.gauges.live_slots.or(stood.live_slots), ..metrics.gauges };
    }

    /// How much waits to be written after a try; `failed` when the try wrote less than all.
    pub fn written(&self, counters: usize, usage: usize, failed: bool) {
        let writes = &mut locked(&self.figures).writes;
        let since = failed.then(|| writes.failing_since.unwrap_or_else(Instant::now));
        *writes = Writes {
            unwritten_counters: counters,
            unwritten_usage: usage,
            failing_since: since,
            failed: writes.failed + u64::from(failed),
        };
    }

    /// A reload was done or refused.
    pub fn reloaded(&self, done: bool) {
        let reloads = &mut locked(&self.figures).reloads;
        let figure = if done { &mut reloads.done } else { &mut reloads.refused };
        *figure += 1;
        reloads.last_was_refused = !done;
    }

    /// Everything, as text.
    pub fn text(&self, in_force: InForce) -> String {
        let figures = locked(&self.figures).clone();
        text::write(figures, in_force)
    }

    fn is_news(&self, notice: &Notice) -> bool {
        let mut told = locked(&self.told);
        let cap = notice.instance.identity.hash64() ^ u64::from(is_shadow(notice));
        if told.get(&cap).is_some_and(|until| notice.at < *until) {
            return false;
        }
        if told.len() >= bounds::METRIC_NAMES {
            told.retain(|_, until| notice.at < *until);
        }
        if told.len() >= bounds::METRIC_NAMES {
            // At worst something is told twice.
            told.clear();
        }
        told.insert(cap, notice.until);
        true
    }
}

fn is_shadow(notice: &Notice) -> bool {
    notice.instance.limit.posture.mode == Mode::Shadow
}

fn tell(notice: &Notice) {
    let limit = &notice.instance.limit;
    let (limit_id, node, kind) = (limit.id.as_str(), notice.instance.node.as_str(), limit.kind.name());
    let amount = limit.kind.figure(notice.instance.amount);
    if is_shadow(notice) {
        tracing::info!(
            limit = limit_id, node, kind, %amount, at = %notice.at,
            "a limit in shadow would have refused; not told again for a minute"
        );
    } else {
        tracing::warn!(
            limit = limit_id, node, kind, %amount, at = %notice.at, until = %notice.until,
            "a limit for alerts only is over; not told again before its window ends"
        );
    }
}

#[cfg(test)]
mod tests;
