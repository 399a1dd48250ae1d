//! What a core measures between two reports: plain counts, handed over and begun anew.
//!
//! The sets that counts are kept by are bounded by construction: limits and providers come from the config, statuses and
//! outcomes from tables here. Nothing is counted by key, node or model; when keys were used last is told beside the counts.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::counter_identity::CoreId;
use crate::identity::Kid;
use crate::limits::LimitId;
use crate::report::UsageSum;
use crate::resolve::Instance;
use crate::routing::ProviderId;
use crate::time::Span;

/// How an exchange ended, as the client saw it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Outcome {
    /// The backend's whole answer was relayed.
    Complete,
    /// The client left before it was.
    ClientGone,
    /// The backend broke off inside its answer.
    BackendBroke,
    /// A cap refused.
    Capped,
    /// Refused for another reason: malformed, no valid key, out of scope, no such model.
    Refused,
    /// No backend answered.
    Undelivered,
}

impl Outcome {
    /// All outcomes, each at the place of its number.
    pub const ALL: [Outcome; 6] = [
        Outcome::Complete,
        Outcome::ClientGone,
        Outcome::BackendBroke,
        Outcome::Capped,
        Outcome::Refused,
        Outcome::Undelivered,
    ];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Complete => "complete",
            Outcome::ClientGone => "client_gone",
            Outcome::BackendBroke => "backend_broke",
            Outcome::Capped => "capped",
            Outcome::Refused => "refused",
            Outcome::Undelivered => "undelivered",
        }
    }
}

/// Classes of statuses, by their first digit; the first one is for exchanges that were sent no status.
pub const STATUS_CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The place of a status in [`STATUS_CLASSES`]; 0 for none.
pub fn status_class(status: u16) -> usize {
    match usize::from(status / 100) {
        class if class < STATUS_CLASSES.len() => class,
        _ => 0,
    }
}

/// Exchanges by status class and outcome.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Exchanges([[u64; Outcome::ALL.len()]; STATUS_CLASSES.len()]);

impl Exchanges {
    /// Counts one.
    pub fn count(&mut self, status: u16, outcome: Outcome) {
        self.0[status_class(status)][outcome as usize] += 1;
    }

    /// Adds others.
    pub fn add(&mut self, other: &Exchanges) {
        for (mine, theirs) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// Those that were counted at all: class, outcome, how many.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Outcome, u64)> {
        let rows = STATUS_CLASSES.into_iter().zip(&self.0);
        let cells = rows.flat_map(|(class, row)| {
            Outcome::ALL.into_iter().zip(row).map(move |(outcome, count)| (class, outcome, *count))
        });
        cells.filter(|(_, _, count)| *count > 0)
    }
}

/// Buckets of a [`Histogram`].
const BUCKETS: usize = 30;
/// The first bucket holds what is shorter than two to this power, in nanoseconds: a microsecond.
const FIRST_POWER: u32 = 10;

/// Durations, counted by the power of two that they stay below: from a microsecond to nine minutes. The bucket is the
/// number of a duration's binary digits, so nothing is searched.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    /// All durations added, in nanoseconds.
    sum: u128,
}

impl Histogram {
    /// Counts one duration.
    pub fn observe(&mut self, span: Span) {
        let digits = u64::BITS - span.0.leading_zeros();
        let place = (digits.saturating_sub(FIRST_POWER) as usize).min(BUCKETS - 1);
        self.buckets[place] += 1;
        self.sum += u128::from(span.0);
    }

    /// Adds others.
    pub fn add(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Each bucket's upper bound in nanoseconds, `None` for the last one that has none, and what it holds beyond the
    /// bucket before.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.buckets.iter().enumerate().map(|(place, count)| {
            let bound = (place + 1 < BUCKETS).then(|| 1u64 << (FIRST_POWER + place as u32));
            (bound, *count)
        })
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All durations added, in nanoseconds.
    pub fn sum_nanoseconds(&self) -> u128 {
        self.sum
    }
}

/// What one limit did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LimitEvents {
    /// Admitted requests that met it: it was evaluated and did not refuse, or only observes.
    pub admitted: u64,
    /// Requests it refused, as the first of those that were over.
    pub refused: u64,
    /// Admitted requests that it would have refused, were it not in shadow.
    pub shadow_refused: u64,
    /// Admitted requests that it would have refused, were it not for alerts only.
    pub alerted: u64,
}

impl LimitEvents {
    /// Adds others.
    pub fn add(&mut self, other: &LimitEvents) {
        self.admitted = self.admitted.saturating_add(other.admitted);
        self.refused = self.refused.saturating_add(other.refused);
        self.shadow_refused = self.shadow_refused.saturating_add(other.shadow_refused);
        self.alerted = self.alerted.saturating_add(other.alerted);
    }
}

/// A cap that was over and let a request pass, which is told once a while: once a window for alerts.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The cap.
    pub instance: Instance,
    /// When.
    pub at: Timestamp,
    /// Until when it need not be told again.
    pub until: Timestamp,
}

/// How a core stands at the time of a report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Gauges {
    /// Connections of clients.
    pub connections: u64,
    /// Admitted requests that are not settled yet.
    pub reservations: u64,
    /// Reservations that hold something on counters of this core.
    pub holds: u64,
    /// Calendar and token counters that this core owns.
    pub counters: u64,
    /// Parcels to other cores that do not fit into their rings.
    pub mesh_backlog: u64,
    /// Slots taken of all `concurrency` limits, of all cores together; only the first core tells, now and then.
    pub live_slots: Option<u64>,
}

/// What one core counted since its last report, and how it stands.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// The core.
    pub core: CoreId,
    /// Requests that both gates admitted.
    pub admitted: u64,
    /// What limits did; those that did something.
    pub limits: Vec<(LimitId, LimitEvents)>,
    /// Exchanges that ended.
    pub exchanges: Exchanges,
    /// What they used.
    pub used: UsageSum,
    /// From the head read to the verdict of gate 1.
    pub gate_one: Histogram,
    /// From the ask to the verdict of gate 2.
    pub gate_two: Histogram,
    /// From the request sent to the backend's head received, by provider.
    pub first_byte: Vec<(ProviderId, Histogram)>,
    /// What is to be told to people.
    pub notices: Vec<Notice>,
    /// Keys that requests came with, each once, and when the last of them came.
    pub key_uses: HashMap<Kid, Timestamp, ahash::RandomState>,
    /// How it stands.
    pub gauges: Gauges,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_bucket_that_it_stays_below() {
        let bounds: Vec<Option<u64>> = Histogram::default().buckets().map(|(bound, _)| bound).collect();
        assert_eq!((bounds[0], bounds[28], bounds[29]), (Some(1 << 10), Some(1 << 38), None));
        for span in [0, 1, 1023, 1024, 1025, 1_000_000, (1 << 38) - 1, 1 << 38, u64::MAX] {
            let mut histogram = Histogram::default();
            histogram.observe(Span(span));
            let place = histogram.buckets().position(|(_, count)| count == 1).expect("it is counted");
            let wanted = bounds.iter().position(|bound| bound.is_none_or(|bound| span < bound));
            assert_eq!(Some(place), wanted, "{span}");
            assert_eq!((histogram.count(), histogram.sum_nanoseconds()), (1, span.into()));
        }
    }

    #[test]
    fn histograms_and_exchanges_add_up() {
        let (mut all, mut one) = (Histogram::default(), Histogram::default());
        for span in [5, 5_000, 5_000_000] {
            one.observe(Span(span));
        }
        all.add(&one);
        all.add(&one);
        assert_eq!((all.count(), all.sum_nanoseconds()), (6, 10_010_010));

        let mut exchanges = Exchanges::default();
        for (status, outcome) in [
            (200, Outcome::Complete),
            (204, Outcome::Complete),
            (429, Outcome::Capped),
            (0, Outcome::ClientGone),
            (999, Outcome::ClientGone),
        ] {
            exchanges.count(status, outcome);
        }
        let mut twice = exchanges;
        twice.add(&exchanges);
        let seen: Vec<_> = twice.iter().collect();
        assert_eq!(
            seen,
            [("none", Outcome::ClientGone, 4), ("2xx", Outcome::Complete, 4), ("4xx", Outcome::Capped, 2)]
        );
        for (place, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, place, "{}", outcome.name());
        }
    }
}
