//! A world's two clocks: the monotonic one only goes forward, the wall clock is sometimes set.

use engine::{Monotonic, Now, Span, Window, Zone, window_at};
use jiff::Timestamp;

use super::support::{SECOND, Seeded};

/// Zones, each with an instant around which its civil clock does something odd, or a calendar does.
const ODD: [(&str, &str); 13] = [
    ("Europe/London", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("America/Santiago", "2025-09-07T04:00:00Z"),
    ("Asia/Amman", "2021-03-25T22:00:00Z"),
    ("America/Sao_Paulo", "2015-10-18T03:00:00Z"),
    ("America/Havana", "2026-03-08T05:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Asia/Kathmandu", "2026-12-31T18:15:00Z"),
    ("UTC", "2028-02-29T00:00:00Z"),
    ("UTC", "2028-03-01T00:00:00Z"),
    ("UTC", "2027-01-04T00:00:00Z"),
];

pub struct Clocks {
    monotonic: u64,
    /// Wall clock at zero of the monotonic one, as long as nobody sets it.
    base: i128,
    /// How far it was set since.
    set: i128,
    pub zones: Vec<Zone>,
}

impl Clocks {
    /// Clocks that start a little before an odd instant of one of their zones.
    pub fn new(seeded: &mut Seeded) -> Clocks {
        let named = |name: &str| Zone::named(name).expect("the zone data is built in");
        let (zone, odd) = *seeded.pick(&ODD);
        let zones = vec![named(zone), Zone::utc(), named(seeded.pick::<(&str, &str)>(&ODD).0)];
        let odd: Timestamp = odd.parse().unwrap();
        let most = *seeded.pick(&[SECOND, 7_200 * SECOND, 3 * 86_400 * SECOND]);
        let before = seeded.below(most);
        let monotonic = seeded.below(100 * SECOND);
        let base = odd.as_nanosecond() - i128::from(before) - i128::from(monotonic);
        Clocks { monotonic, base, set: 0, zones }
    }

    pub fn now(&self) -> Now {
        let wall = self.base + i128::from(self.monotonic) + self.set;
        Now { monotonic: Monotonic(self.monotonic), wall: Timestamp::from_nanosecond(wall).unwrap() }
    }

    pub fn epoch_offset(&self) -> Span {
        Span(self.base as u64)
    }

    pub fn pass(&mut self, nanoseconds: u64) {
        self.monotonic += nanoseconds;
    }

    pub fn pass_some(&mut self, seeded: &mut Seeded) {
        self.pass(*seeded.pick(&[
            1,
            17,
            SECOND / 60,
            SECOND / 2,
            SECOND,
            SECOND,
            2 * SECOND,
            30 * SECOND,
            61 * SECOND,
            1_800 * SECOND,
            3_600 * SECOND,
            86_400 * SECOND,
        ]));
    }

    /// Sets the wall clock; tells how far.
    pub fn set_wall(&mut self, seeded: &mut Seeded) -> i128 {
        let seconds = *seeded.pick(&[-86_400, -7_200, -3_600, -30, -1, 1, 30, 3_600, 7_200, 86_400]);
        self.set += i128::from(seconds) * i128::from(SECOND);
        seconds.into()
    }

    /// Nanoseconds to just at, before or after the next border of a window; `None` if it has none or it is far.
    pub fn to_border(&self, window: &Window, seeded: &mut Seeded) -> Option<u64> {
        let left = match window {
            Window::Live => return None,
            Window::Rolling { period, .. } => {
                let length = if seeded.one_in(2) { period.0 } else { period.0.div_ceil(60) };
                let offset = if seeded.one_in(2) { self.base as u64 } else { 0 };
                length - (self.monotonic + offset) % length
            }
            Window::Calendar { period, zone } => {
                let now = self.now().wall;
                let end = window_at(*period, &zone.zone, now).resets_at;
                u64::try_from(end.as_nanosecond() - now.as_nanosecond()).unwrap()
            }
        };
        (left < 40 * 86_400 * SECOND).then(|| left + *seeded.pick(&[0, 0, 1]) - u64::from(seeded.one_in(4)))
    }
}
