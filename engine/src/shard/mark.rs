//! What is written down of a calendar counter, so that it survives a restart (SPEC §4.9).

use crate::calendar::WindowIndex;
use crate::counter_identity::{CoreId, Identity};
use crate::units::Units;

use super::counter::Counter;

/// One calendar counter at one moment: its identity in plain strings, its window, its figures. Holds are not written:
/// after a restart nobody is in flight.
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
            estimated: figures.estimated,
            unpriced: figures.unpriced,
        })
    }
}
