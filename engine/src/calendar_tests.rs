//! Calendar windows at the days that zones bend, and against an oracle on every kind of jump.

use super::*;
use jiff::SignedDuration;

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn instant_of(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The day window of a civil date begins and ends at these instants, and no earlier or later.
fn check_day(zone_name: &str, date: &str, begins: &str, ends: &str) {
    let zone = zone(zone_name);
    let date: Date = date.parse().unwrap();
    let (begins, ends) = (instant_of(begins), instant_of(ends));
    let tick = SignedDuration::from_nanos(1);
    let index = WindowIndex(days_since_1970(date));
    for inside in [begins, ends - tick, begins + (ends.duration_since(begins) / 2)] {
        let wanted = CalendarWindow { index, resets_at: ends };
        assert_eq!(window_at(CalendarPeriod::Day, &zone, inside), wanted, "{zone_name} {date} at {inside}");
    }
    let before = window_at(CalendarPeriod::Day, &zone, begins - tick);
    assert_eq!(before.resets_at, begins, "{zone_name}: what comes before {date}");
    assert!(before.index < index && window_at(CalendarPeriod::Day, &zone, ends).index > index);
}

#[test]
fn days_last_as_long_as_the_zone_has_them() {
    // 23 hours, beginning at 01:00.
    check_day("America/Santiago", "2025-09-07", "2025-09-07T04:00:00Z", "2025-09-08T03:00:00Z");
    check_day("Asia/Amman", "2021-03-26", "2021-03-25T22:00:00Z", "2021-03-26T21:00:00Z");
    check_day("America/Sao_Paulo", "2015-10-18", "2015-10-18T03:00:00Z", "2015-10-19T02:00:00Z");
    check_day("America/Havana", "2026-03-08", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z");
    // 23 hours, with a hole in the night.
    check_day("Europe/London", "2026-03-29", "2026-03-29T00:00:00Z", "2026-03-29T23:00:00Z");
    // 25 hours.
    check_day("America/New_York", "2026-11-01", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z");
    // 24.5 hours.
    check_day("Australia/Lord_Howe", "2026-04-05", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z");
    // The day before a date that never was, and the one after.
    check_day("Pacific/Apia", "2011-12-29", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z");
    check_day("Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z");
    // Clocks set back over midnight, at 00:01 to 23:01: the new date goes on, it does not end and come again.
    check_day("America/St_Johns", "2006-10-28", "2006-10-28T02:30:00Z", "2006-10-29T02:30:00Z");
    check_day("America/St_Johns", "2006-10-29", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z");
    // A jump from 23:30 to 00:30: the date begins at the jump.
    check_day("America/Toronto", "1919-03-31", "1919-03-31T04:30:00Z", "1919-04-01T04:00:00Z");
    check_day("UTC", "2024-02-29", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z");
    check_day("UTC", "1969-12-31", "1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z");
}

#[test]
fn weeks_months_and_years_end_at_the_civil_boundary() {
    use CalendarPeriod::{Month, Week, Year};
    let check = |period, zone_name: &str, at: &str, index: i64, resets_at: &str| {
        let wanted = CalendarWindow { index: WindowIndex(index), resets_at: instant_of(resets_at) };
        assert_eq!(window_at(period, &zone(zone_name), instant_of(at)), wanted, "{period} {zone_name} {at}");
    };
    check(Month, "UTC", "2026-01-31T23:59:59.999999999Z", 672, "2026-02-01T00:00:00Z");
    check(Month, "UTC", "2026-02-01T00:00:00Z", 673, "2026-03-01T00:00:00Z");
    check(Month, "UTC", "2024-02-29T12:00:00Z", 649, "2024-03-01T00:00:00Z");
    check(Month, "UTC", "2026-04-30T12:00:00Z", 675, "2026-05-01T00:00:00Z");
    check(Month, "UTC", "2026-12-31T12:00:00Z", 683, "2027-01-01T00:00:00Z");
    check(Month, "UTC", "1969-12-15T00:00:00Z", -1, "1970-01-01T00:00:00Z");
    check(Month, "Asia/Tokyo", "2026-08-31T15:00:00Z", 680, "2026-09-30T15:00:00Z");
    check(Year, "Asia/Kolkata", "2026-12-31T18:29:59Z", 2026, "2026-12-31T18:30:00Z");
    check(Year, "Asia/Kolkata", "2026-12-31T18:30:00Z", 2027, "2027-12-31T18:30:00Z");
    check(Year, "UTC", "2024-02-29T00:00:00Z", 2024, "2025-01-01T00:00:00Z");
    // ISO week 53 of 2026 runs over the turn of the year.
    check(Week, "UTC", "2026-12-28T00:00:00Z", 2974, "2027-01-04T00:00:00Z");
    check(Week, "UTC", "2027-01-03T23:59:59Z", 2974, "2027-01-04T00:00:00Z");
    check(Week, "UTC", "2027-01-04T00:00:00Z", 2975, "2027-01-11T00:00:00Z");
    check(Week, "UTC", "1970-01-01T00:00:00Z", 0, "1970-01-05T00:00:00Z");
    check(Week, "UTC", "1969-12-28T23:59:59Z", -1, "1969-12-29T00:00:00Z");
    // A week with 23-hour and 25-hour days in it ends at local midnight all the same.
    check(Week, "America/New_York", "2026-11-01T05:30:00Z", 2965, "2026-11-02T05:00:00Z");
}

#[test]
fn hours_are_civil_hours() {
    let check = |zone_name: &str, at: &str, civil: &str, resets_at: &str| {
        let civil: DateTime = civil.parse().unwrap();
        let index = WindowIndex(CalendarPeriod::Hour.index_of(civil));
        let wanted = CalendarWindow { index, resets_at: instant_of(resets_at) };
        assert_eq!(
            window_at(CalendarPeriod::Hour, &zone(zone_name), instant_of(at)),
            wanted,
            "{zone_name} {at}"
        );
    };
    check("UTC", "2026-05-01T10:59:59.9Z", "2026-05-01T10:00", "2026-05-01T11:00:00Z");
    check("UTC", "2026-05-01T23:10:00Z", "2026-05-01T23:00", "2026-05-02T00:00:00Z");
    // Zones at half and three quarter hours turn over at their own full hour.
    check("Asia/Kolkata", "2026-05-01T10:29:59Z", "2026-05-01T15:00", "2026-05-01T10:30:00Z");
    check("Asia/Kolkata", "2026-05-01T10:30:00Z", "2026-05-01T16:00", "2026-05-01T11:30:00Z");
    check("Asia/Kathmandu", "2026-05-01T10:20:00Z", "2026-05-01T16:00", "2026-05-01T11:15:00Z");
    // A repeated hour is one window of two hours: setting clocks back admits nothing twice.
    for at in ["2026-11-01T05:00:00Z", "2026-11-01T05:59:59Z", "2026-11-01T06:00:00Z", "2026-11-01T06:59:59Z"]
    {
        check("America/New_York", at, "2026-11-01T01:00", "2026-11-01T07:00:00Z");
    }
    // Half an hour repeated.
    check("Australia/Lord_Howe", "2026-04-04T15:15:00Z", "2026-04-05T01:00", "2026-04-04T15:30:00Z");
    // A skipped hour is no window.
    check("America/New_York", "2026-03-08T06:59:59Z", "2026-03-08T01:00", "2026-03-08T07:00:00Z");
    check("America/New_York", "2026-03-08T07:00:00Z", "2026-03-08T03:00", "2026-03-08T08:00:00Z");
}

#[test]
fn the_ends_of_the_calendar_do_not_panic() {
    for period in CalendarPeriod::ALL {
        for name in ["UTC", "Pacific/Apia", "America/St_Johns"] {
            for at in [Timestamp::MIN, Timestamp::MAX, Timestamp::MAX - SignedDuration::from_hours(30)] {
                assert!(window_at(period, &zone(name), at).resets_at >= at, "{period} {name} {at}");
            }
        }
        assert_eq!(CalendarPeriod::parse(period.name()), Some(period));
    }
    assert_eq!(CalendarPeriod::parse("fortnight"), None);
}

/// The index by its definition: the furthest window that the civil clock has shown by `at`. Between two jumps the
/// civil clock only goes forward, so its furthest readings are now and just before each jump.
fn furthest_index_shown(period: CalendarPeriod, zone: &TimeZone, at: Timestamp) -> i64 {
    let tick = SignedDuration::from_nanos(1);
    let since = at - SignedDuration::from_hours(24 * 8);
    let jumps = zone.following(since).map(|jump| jump.timestamp()).take_while(|jump| *jump <= at);
    let readings = jumps.map(|jump| jump - tick).chain([at]);
    readings.map(|at| period.index_of(zone.to_datetime(at))).max().unwrap()
}

#[test]
fn windows_agree_with_the_civil_clock_around_every_jump() {
    let from = instant_of("1900-01-01T00:00:00Z");
    let until = instant_of("2045-01-01T00:00:00Z");
    let tick = SignedDuration::from_nanos(1);
    let offsets: Vec<SignedDuration> =
        [-2880, -1500, -90, -60, -30, 0, 1, 29, 30, 59, 60, 90, 1439, 1440, 1500]
            .into_iter()
            .map(SignedDuration::from_mins)
            .chain([-tick, tick])
            .collect();
    let mut checked = 0;
    for (number, name) in jiff::tz::db().available().enumerate() {
        let zone = zone(name.as_str());
        // Every zone's last jump, and every seventh zone's whole history: enough, and soon over.
        let jumps = zone.following(from).map(|jump| jump.timestamp()).take_while(|jump| *jump < until);
        for jump in jumps.enumerate().filter(|(at, _)| (at + number) % 7 == 0).map(|(_, jump)| jump) {
            for offset in &offsets {
                let at = jump + *offset;
                for period in CalendarPeriod::ALL {
                    let window = window_at(period, &zone, at);
                    let tell = format!("{name} {period} {at}");
                    assert_eq!(window.index.0, furthest_index_shown(period, &zone, at), "{tell}");
                    assert!(window.resets_at > at, "{tell}");
                    let last = window_at(period, &zone, window.resets_at - tick);
                    assert_eq!(last, window, "{tell}: one window until it resets");
                    assert!(window_at(period, &zone, window.resets_at).index > window.index, "{tell}");
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 10_000, "only {checked} instants were checked");
}
