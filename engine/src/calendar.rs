//! Calendar windows by civil date, in any time zone.
//!
//! A window starts at the first instant at which the zone's civil clock has reached the window's first civil moment,
//! and lasts until the next window starts. So a day lasts 23, 24, 24.5 or 25 hours as the zone has it, a civil date that
//! a zone skips has no window, and when clocks are set back over a boundary, the later window simply goes on: the
//! index never goes back while time goes forward. An hour that a zone repeats is one window of two hours, named once,
//! so that setting clocks back admits nothing twice. Fixed 86,400-second days were rejected: they drift off the dates
//! that people read on an invoice.
//!
//! Invariants: `resets_at > at`; the index at `resets_at` is greater than the index at `at`; every instant between
//! has the same index.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// The length of a calendar window.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum CalendarPeriod {
    /// A civil hour.
    Hour,
    /// A civil date.
    Day,
    /// An ISO week, from Monday.
    Week,
    /// A civil month.
    Month,
    /// A civil year.
    Year,
}

impl CalendarPeriod {
    /// All periods, shortest first.
    pub const ALL: [CalendarPeriod; 5] = [
        CalendarPeriod::Hour,
        CalendarPeriod::Day,
        CalendarPeriod::Week,
        CalendarPeriod::Month,
        CalendarPeriod::Year,
    ];

    /// The word in the config: `hour`, `day`, `week`, `month`, `year`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CalendarPeriod::Hour => "hour",
            CalendarPeriod::Day => "day",
            CalendarPeriod::Week => "week",
            CalendarPeriod::Month => "month",
            CalendarPeriod::Year => "year",
        }
    }

    /// The period of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<CalendarPeriod> {
        Self::ALL.into_iter().find(|period| period.name() == text)
    }

    /// The number of the window that holds a civil moment.
    fn index_of(self, civil: DateTime) -> i64 {
        let date = civil.date();
        match self {
            CalendarPeriod::Hour => days_since_1970(date) * 24 + i64::from(civil.hour()),
            CalendarPeriod::Day => days_since_1970(date),
            // 1970-01-01 was a Thursday; its week began three days before.
            CalendarPeriod::Week => (days_since_1970(date) + 3).div_euclid(7),
            CalendarPeriod::Month => (i64::from(date.year()) - 1970) * 12 + i64::from(date.month()) - 1,
            CalendarPeriod::Year => i64::from(date.year()),
        }
    }

    /// The first civil moment of a window; `None` beyond the calendar's end.
    fn civil_start(self, index: i64) -> Option<DateTime> {
        let midnight = |date: Date| date.to_datetime(Time::midnight());
        match self {
            CalendarPeriod::Hour => {
                let date = date_from_days(index.div_euclid(24))?;
                Some(date.at(i8::try_from(index.rem_euclid(24)).ok()?, 0, 0, 0))
            }
            CalendarPeriod::Day => date_from_days(index).map(midnight),
            CalendarPeriod::Week => date_from_days(index.saturating_mul(7).saturating_sub(3)).map(midnight),
            CalendarPeriod::Month => {
                let year = i16::try_from(index.div_euclid(12) + 1970).ok()?;
                Date::new(year, i8::try_from(index.rem_euclid(12) + 1).ok()?, 1).ok().map(midnight)
            }
            CalendarPeriod::Year => Date::new(i16::try_from(index).ok()?, 1, 1).ok().map(midnight),
        }
    }

    /// An instant by which that window is over in every zone: none is a day and two hours behind UTC.
    pub(crate) fn over_everywhere(self, window: WindowIndex) -> Timestamp {
        let end = window.0.checked_add(1).and_then(|next| self.civil_start(next));
        let end = end.map_or(Timestamp::MAX, |civil| instant(Offset::UTC, civil));
        end.checked_add(jiff::SignedDuration::from_hours(26)).unwrap_or(Timestamp::MAX)
    }
}

impl fmt::Display for CalendarPeriod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The number of a window among those of its period: days, weeks or hours since 1970, months since January 1970, or the
/// year. Comparable only within one period and zone.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub struct WindowIndex(pub i64);

/// One calendar window, seen from an instant in it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct CalendarWindow {
    /// Its number.
    pub index: WindowIndex,
    /// The first instant of the next window.
    pub resets_at: Timestamp,
}

/// The window that holds `at`.
///
/// Beyond the year 9999 there is no next window: `resets_at` is then the last timestamp there is.
#[must_use]
pub fn window_at(period: CalendarPeriod, zone: &TimeZone, at: Timestamp) -> CalendarWindow {
    let mut index = period.index_of(zone.to_datetime(at));
    loop {
        let resets_at = start_of(period, zone, index + 1);
        if resets_at > at || resets_at == Timestamp::MAX {
            return CalendarWindow { index: WindowIndex(index), resets_at };
        }
        // The civil clock was set back over a boundary; the later window has begun already, and goes on.
        index += 1;
    }
}

/// The first instant at which the civil clock has reached the start of that window.
fn start_of(period: CalendarPeriod, zone: &TimeZone, index: i64) -> Timestamp {
    let Some(civil) = period.civil_start(index) else { return Timestamp::MAX };
    match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => instant(offset, civil),
        AmbiguousOffset::Fold { before, .. } => instant(before, civil),
        AmbiguousOffset::Gap { before, .. } => {
            // The civil clock jumps over `civil`: the jump itself is the first instant beyond it. Read with the
            // offset from before the jump, `civil` lies at or after the jump and before any other.
            let beyond = instant(before, civil);
            let just_after = beyond.checked_add(jiff::SignedDuration::from_nanos(1)).unwrap_or(beyond);
            zone.preceding(just_after).next().map_or(beyond, |jump| jump.timestamp())
        }
    }
}

fn instant(offset: Offset, civil: DateTime) -> Timestamp {
    offset.to_timestamp(civil).unwrap_or(if civil.year() > 0 { Timestamp::MAX } else { Timestamp::MIN })
}

fn days_since_1970(date: Date) -> i64 {
    (date - EPOCH).get_days().into()
}

fn date_from_days(days: i64) -> Option<Date> {
    let span = jiff::Span::new().try_days(days).ok()?;
    EPOCH.checked_add(span).ok()
}

const EPOCH: Date = jiff::civil::date(1970, 1, 1);

#[cfg(test)]
#[path = "calendar_tests.rs"]
mod tests;
