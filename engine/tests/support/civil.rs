//! Calendar windows from their definition alone (SPEC §4.10), by search: the index at an instant is the greatest that the
//! zone's civil clock has shown so far, and a window ends at the first instant with a greater one.

#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{CalendarPeriod, Zone};
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, Unit};

/// A window's number, and the first instant after it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct CivilWindow {
    pub index: i64,
    pub end: Timestamp,
}

/// By end, in nanoseconds: the earliest instant known to lie in the window, and its index.
type Known = BTreeMap<i128, (i128, i64)>;

thread_local! {
    static KNOWN: RefCell<Vec<(CalendarPeriod, Arc<str>, Known)>> = const { RefCell::new(Vec::new()) };
}

/// The window at an instant, or the later one of index `at_least`.
pub fn window(period: CalendarPeriod, zone: &Zone, at: Timestamp, at_least: i64) -> CivilWindow {
    let mut window = window_of(period, zone, at);
    while window.index < at_least {
        let next = window_of(period, zone, window.end);
        if next.index > at_least {
            // The zone skips the window asked for: it ends where the next begins.
            return CivilWindow { index: at_least, end: window.end };
        }
        window = next;
    }
    window
}

fn window_of(period: CalendarPeriod, zone: &Zone, at: Timestamp) -> CivilWindow {
    KNOWN.with_borrow_mut(|all| {
        let place = all.iter().position(|(of, name, _)| *of == period && *name == zone.name);
        let place = place.unwrap_or_else(|| {
            all.push((period, Arc::clone(&zone.name), Known::new()));
            all.len() - 1
        });
        let known = &mut all[place].2;
        let instant = at.as_nanosecond();
        let next = known.range_mut(instant + 1..).next();
        if let Some((end, (from, index))) = next {
            if instant < *from && index_at(period, zone, at) == *index {
                *from = instant;
            }
            if *from <= instant {
                return CivilWindow { index: *index, end: Timestamp::from_nanosecond(*end).unwrap() };
            }
        }
        let index = index_at(period, zone, at);
        let end = first_beyond(period, zone, at, index);
        known.insert(end.as_nanosecond(), (instant, index));
        CivilWindow { index, end }
    })
}

fn index_at(period: CalendarPeriod, zone: &Zone, at: Timestamp) -> i64 {
    let shown = |at: Timestamp| index_of(period, zone.zone.to_datetime(at));
    let nanosecond = SignedDuration::from_nanos(1);
    let horizon = at - SignedDuration::from_hours(48);
    let steps = zone.zone.preceding(at).map(|step| step.timestamp()).take_while(|step| *step > horizon);
    let before_steps = steps.map(|step| shown(step - nanosecond)).max();
    shown(at).max(shown(at - nanosecond)).max(before_steps.unwrap_or(i64::MIN))
}

fn index_of(period: CalendarPeriod, civil: DateTime) -> i64 {
    let epoch = jiff::civil::date(1970, 1, 1);
    let days = i64::from(epoch.until((Unit::Day, civil.date())).unwrap().get_days());
    match period {
        CalendarPeriod::Hour => days * 24 + i64::from(civil.hour()),
        CalendarPeriod::Day => days,
        CalendarPeriod::Week => {
            let monday = days - i64::from(civil.date().weekday().to_monday_zero_offset());
            (monday + 3) / 7
        }
        CalendarPeriod::Month => i64::from(civil.year()) * 12 + i64::from(civil.month()) - (1970 * 12 + 1),
        CalendarPeriod::Year => civil.year().into(),
    }
}

fn first_beyond(period: CalendarPeriod, zone: &Zone, at: Timestamp, index: i64) -> Timestamp {
    let stride = match period {
        CalendarPeriod::Hour => 1,
        CalendarPeriod::Day => 24,
        CalendarPeriod::Week => 24 * 7,
        CalendarPeriod::Month => 24 * 31,
        CalendarPeriod::Year => 24 * 366,
    };
    let instant = |nanoseconds| Timestamp::from_nanosecond(nanoseconds).unwrap();
    let (mut inside, mut beyond) = (at.as_nanosecond(), at.as_nanosecond());
    while index_at(period, zone, instant(beyond)) <= index {
        inside = beyond;
        beyond += i128::from(stride) * 3_600_000_000_000;
    }
    while beyond - inside > 1 {
        let middle = inside + (beyond - inside) / 2;
        if index_at(period, zone, instant(middle)) <= index {
            inside = middle;
        } else {
            beyond = middle;
        }
    }
    instant(beyond)
}
