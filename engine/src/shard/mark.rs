//! What is written down of a calendar counter, so that it survives a restart (SPEC §4.9).

use jiff::Timestamp;

use crate::calendar::{CalendarPeriod, WindowIndex};
use crate::counter_identity::{CoreId, Identity};
use crate::units::Units;

use super::counter::Counter;

/// One calendar counter at one moment: its identity in plain strings, its window, its figures. Holds are part of the high
/// water alone: after a restart nobody is in flight, but what was in flight may have been spent.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct CounterMark {
    /// The limit.
    pub limit_id: String,
    /// The node.
    pub node: String,
    /// Value of the model dim, if the limit constrains it.
    pub model: Option<String>,
    /// Value of the provider dim, if the limit constrains it.
    pub provider: Option<String>,
    /// Value of the endpoint dim, if the limit constrains it.
    pub endpoint: Option<String>,
    /// The period, as listings show it.
    pub period: String,
    /// The algorithm's name.
    pub algorithm: String,
    /// The window that `observed` was counted in.
    pub window: WindowIndex,
    /// Requests, tokens or pico-USD.
    pub observed: Units,
    /// What the counter may come to before the next mark is written; what it resumes at after a crash.
    pub high_water: Units,
    /// Part of `observed` that an earlier crash left open: it may not have been spent.
    pub uncertain: Units,
    /// Part of it was estimated.
    pub estimated: bool,
    /// Part of what was used had no price.
    pub unpriced: bool,
}

impl CounterMark {
    /// The identity that it was written under; `None` if this program knows no such algorithm.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        let dims = [&self.model, &self.provider, &self.endpoint].map(|value| value.as_deref());
        Identity::from_parts(&self.limit_id, &self.node, dims, &self.period, &self.algorithm)
    }

    /// The core, of that many, that owns the counter.
    #[must_use]
    pub fn owner(&self, cores: usize) -> Option<CoreId> {
        self.identity().map(|identity| identity.owner(cores))
    }

    /// The figure that a counter read back begins with.
    pub(super) fn resumes_at(&self) -> u128 {
        self.high_water.0.max(self.observed.0)
    }

    /// Whether its window has passed, in every time zone.
    #[must_use]
    pub fn is_over(&self, at: Timestamp) -> bool {
        CalendarPeriod::parse(&self.period).is_none_or(|period| period.over_everywhere(self.window) <= at)
    }

    /// What a crash leaves open: set aside to be spent, and not known to have been. Zero after an orderly stop.
    #[must_use]
    pub fn set_aside(&self) -> Units {
        Units(self.resumes_at() - self.observed.0)
    }

    pub(super) fn is_calendar(&self) -> bool {
        self.algorithm.starts_with("calendar_")
    }

    /// `None` for a counter that no restart needs.
    pub(super) fn of(counter: &Counter) -> Option<CounterMark> {
        let figures = counter.calendar()?;
        let identity = &counter.identity;
        let [model, provider, endpoint] = identity.dims().map(|value| value.map(str::to_owned));
        Some(CounterMark {
            limit_id: identity.limit_id().as_str().to_owned(),
            node: identity.node().as_str().to_owned(),
            model,
            provider,
            endpoint,
            period: identity.period_text().to_owned(),
            algorithm: identity.algorithm().to_owned(),
            window: figures.window(),
            observed: Units(figures.observed),
            high_water: Units(figures.high_water.level().max(figures.level())),
            uncertain: Units(figures.uncertain),
            estimated: figures.estimated,
            unpriced: figures.unpriced,
        })
    }
}
