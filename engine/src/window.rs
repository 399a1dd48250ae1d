//! The stretch of time that a limit counts over: a rolling period, a calendar period in a zone, or now.

use std::borrow::Cow;
use std::sync::Arc;

use crate::calendar::CalendarPeriod;
use crate::time::Span;

/// How a rolling period is counted.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub enum Algorithm {
    /// Never more than the amount in any interval as long as the period.
    #[default]
    SlidingWindow,
    /// Never more than the amount in each aligned window.
    FixedWindow,
    /// A bucket of the amount's capacity that refills over the period.
    TokenBucket,
}

impl Algorithm {
    /// All algorithms, the default first.
    pub const ALL: [Algorithm; 3] =
        [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::TokenBucket];

    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::SlidingWindow => "sliding_window",
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::TokenBucket => "token_bucket",
        }
    }

    /// The algorithm of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Algorithm> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == text)
    }
}

/// A time zone with the name it was asked for by.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Zone {
    /// Its name, such as `Europe/Berlin`.
    pub name: Arc<str>,
    /// Its rules.
    pub zone: jiff::tz::TimeZone,
}

impl Zone {
    /// Coordinated universal time.
    #[must_use]
    pub fn utc() -> Zone {
        Zone { name: "UTC".into(), zone: jiff::tz::TimeZone::UTC }
    }

    /// The zone of that name in the system's time zone data, else in the built-in; `None` when neither has it. For
    /// whoever reads a config; no decision looks a zone up.
    #[must_use]
    pub fn named(name: &str) -> Option<Zone> {
        let zone = jiff::tz::TimeZone::get(name).ok()?;
        Some(Zone { name: name.into(), zone })
    }
}

/// The stretch of time that a limit counts over.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Window {
    /// rpm, tpm: a period that moves with the monotonic clock.
    Rolling {
        /// Its length, above zero.
        period: Span,
        /// How it is counted.
        algorithm: Algorithm,
    },
    /// Budgets and quotas: a civil period.
    Calendar {
        /// Its length.
        period: CalendarPeriod,
        /// Whose civil dates.
        zone: Zone,
    },
    /// Concurrency: what is in flight now.
    Live,
}

impl Window {
    /// As listings show it: `1m0s`, `month`, and nothing for a live gauge.
    #[must_use]
    pub fn period_text(&self) -> Cow<'static, str> {
        match self {
            Window::Rolling { period, .. } => period.go_string().to_string().into(),
            Window::Calendar { period, .. } => period.name().into(),
            Window::Live => "".into(),
        }
    }
}
