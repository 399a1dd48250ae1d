//! How long a core looks for work before it sleeps, decided from how long it waited lately. Without input or output: `now`
//! is an argument, in nanoseconds from any point.
//!
//! Looking pays while work comes within the longest look allowed, and while the core has time to spare. So the length
//! doubles with each wait that was that short, up to the longest, and falls to an eighth with each that was longer: four
//! short waits in a row reach the longest from nothing, one long wait among short ones leaves an eighth, two leave nothing
//! worth the name. Where short and long waits take turns (a request, then a model that thinks for a second) it never
//! leaves the shortest. Whether a wait was looked or slept through makes no difference to it.
//!
//! A core that works more than it waits does not look at all: what it gains by sleeping is that more comes at once, which is
//! less work for each. Neither does one whose processor others want as well: each look would be theirs. That shows when the
//! core has had to leave it; from then on there is no look for [`PAUSE`].
//!
//! Invariant: the length is nothing, or between a sixteenth of the longest and the longest.

use std::time::Duration;

/// The shortest look is this part of the longest.
const SHORTEST: u64 = 16;
/// A wait longer than the longest look leaves this part of the length.
const SHRINK: u64 = 8;
/// Nanoseconds without a look after others wanted the processor.
const PAUSE: u64 = 2_000_000;
/// Each stretch of work, and each wait, counts for this part of its average.
const SMOOTHING: u64 = 8;

/// See the module's page.
#[derive(Debug)]
pub(super) struct Window {
    longest: u64,
    length: u64,
    /// The average stretch of work, and the average wait, each stretch counted for `longest` at most: one of seconds
    /// says no more about the next than one of a millisecond.
    work: u64,
    wait: u64,
    /// When the stretch under way began.
    since: u64,
    /// Until when no look is taken, whatever the waits.
    shut_until: u64,
}

impl Window {
    /// Nothing is known at `now`: no look is taken until waits have been short.
    pub(super) fn new(longest: Duration, now: u64) -> Window {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Window { longest, length: 0, work: 0, wait: 0, since: now, shut_until: 0 }
    }

    /// The core has nothing to do. How long it is to look for work, in nanoseconds; 0: not at all.
    pub(super) fn rest(&mut self, now: u64) -> u64 {
        let stretch = self.stretch(now);
        self.work = smoothed(self.work, stretch.min(self.longest));
        if self.work > self.wait { 0 } else { self.length }
    }

    /// Others have had the core's processor since the last rest.
    pub(super) fn displaced(&mut self, now: u64) {
        self.length = 0;
        self.shut_until = now.saturating_add(PAUSE);
    }

    /// Work has come.
    pub(super) fn came(&mut self, now: u64) {
        let stretch = self.stretch(now);
        self.wait = smoothed(self.wait, stretch.min(self.longest));
        self.length = if now < self.shut_until {
            0
        } else if stretch <= self.longest {
            self.length.saturating_mul(2).clamp(self.shortest(), self.longest)
        } else {
            Some(self.length / SHRINK).filter(|left| *left >= self.shortest()).unwrap_or(0)
        };
    }

    fn shortest(&self) -> u64 {
        self.longest / SHORTEST
    }

    fn stretch(&mut self, now: u64) -> u64 {
        let stretch = now.saturating_sub(self.since);
        self.since = now;
        stretch
    }
}

fn smoothed(average: u64, stretch: u64) -> u64 {
    average - average / SMOOTHING + stretch / SMOOTHING
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: u64 = 100_000;
    const MILLISECOND: u64 = 1_000_000;

    fn window() -> Window {
        Window::new(Duration::from_nanos(LONGEST), 0)
    }

    /// What a pattern of work and waits, in nanoseconds and repeated, comes to after a thousand rounds: nanoseconds looked,
    /// waits that were looked through to their end, and all nanoseconds.
    fn run(pattern: &[(u64, u64)]) -> (u64, usize, u64) {
        let (mut window, mut now, mut looked, mut met) = (window(), 0, 0, 0);
        for (work, wait) in pattern.iter().cycle().take(1_000 * pattern.len()) {
            now += work;
            let length = window.rest(now);
            looked += length.min(*wait);
            met += usize::from(length >= *wait);
            now += wait;
            window.came(now);
        }
        (looked, met, now)
    }

    #[test]
    fn looking_is_kept_to_where_it_pays() {
        // Name, pattern, the least share of waits to be met in per cent, the most time to be looked in per mille.
        type Case<'a> = (&'a str, &'a [(u64, u64)], usize, u64);
        let cases: [Case<'_>; 8] = [
            (
                "one client in a closed loop, a backend that answers at once",
                &[(12_000, 30_000), (8_000, 40_000)],
                99,
                800,
            ),
            (
                "the same, a hiccup every tenth wait",
                &[(10_000, 40_000); 10].map_last((10_000, 5 * MILLISECOND)),
                60,
                100,
            ),
            ("a backend that takes 20 ms", &[(12_000, 20 * MILLISECOND), (8_000, 60_000)], 0, 1),
            ("a backend that takes 1 ms", &[(12_000, MILLISECOND), (8_000, 60_000)], 0, 10),
            ("a stream of 100 tokens a second", &[(8_000, 10 * MILLISECOND)], 0, 0),
            ("nothing but a timer", &[(5_000, 50 * MILLISECOND)], 0, 0),
            ("a busy core", &[(200_000, 10_000)], 0, 1),
            ("a core that is never done", &[(200_000, 0)], 0, 0),
        ];
        for (name, pattern, least_met, most_looked) in cases {
            let (looked, met, all) = run(pattern);
            let waits = 1_000 * pattern.len();
            assert!(met * 100 >= least_met * waits || least_met == 0, "{name}: {met} of {waits} waits met");
            assert!(looked * 1_000 <= most_looked * all, "{name}: looked {looked} of {all} ns");
        }
    }

    trait MapLast {
        fn map_last(self, last: (u64, u64)) -> Self;
    }

    impl<const N: usize> MapLast for [(u64, u64); N] {
        fn map_last(mut self, last: (u64, u64)) -> Self {
            self[N - 1] = last;
            self
        }
    }

    /// The same said otherwise: the length as a count of doublings, the averages as floats over the whole past.
    #[derive(Default)]
    struct Oracle {
        /// How often the shortest look was doubled; none is no look.
        doublings: Option<u32>,
        work: Vec<u64>,
        waits: Vec<u64>,
        /// When it was displaced last.
        displaced: Option<u64>,
    }

    impl Oracle {
        fn average(stretches: &[u64]) -> f64 {
            let weigh = |(age, stretch): (usize, &u64)| {
                (*stretch).min(LONGEST) as f64 / 8.0 * (7.0f64 / 8.0).powi(age as i32)
            };
            stretches.iter().rev().enumerate().map(weigh).sum()
        }

        /// The length, and by how much the core waits more than it works.
        fn rest(&self) -> (u64, f64) {
            let length = self.doublings.map_or(0, |count| (LONGEST / 16) << count);
            (length, Oracle::average(&self.waits) - Oracle::average(&self.work))
        }

        fn came(&mut self, now: u64, wait: u64) {
            let shut = self.displaced.is_some_and(|at| now - at < 2 * MILLISECOND);
            self.doublings = match self.doublings {
                _ if shut => None,
                None if wait <= LONGEST => Some(0),
                Some(count) if wait <= LONGEST => Some((count + 1).min(4)),
                Some(count) => count.checked_sub(3),
                None => None,
            };
            self.waits.push(wait);
        }
    }

    #[test]
    fn it_decides_as_the_naive_one_does() {
        let mut random = crate::seeded::seeded();
        let (mut window, mut oracle, mut now) = (window(), Oracle::default(), 0);
        let (mut lengths, mut busy) = ([0; 6], 0);
        let mut stretch = 1;
        for step in 0..10_000 {
            if step % 50 == 0 {
                stretch = [1_000, 20_000, 100_000, 150_000, 400_000][random(5) as usize];
            }
            let work = random(150_000);
            now += work;
            oracle.work.push(work);
            let (length, spare) = oracle.rest();
            let said = window.rest(now);
            // The averages of whole numbers lose a few of them in rounding.
            if spare > 100.0 {
                assert_eq!(said, length, "step {step}");
            } else if spare < -100.0 {
                assert_eq!(said, 0, "step {step}: busier than not, by {spare}");
                busy += 1;
            }
            lengths[if said == 0 { 5 } else { (said / (LONGEST / 16)).ilog2() as usize }] += 1;
            if random(200) == 0 {
                window.displaced(now);
                (oracle.displaced, oracle.doublings) = (Some(now), None);
            }
            let wait = random(stretch);
            now += wait;
            oracle.came(now, wait);
            window.came(now);
        }
        assert!(lengths.iter().all(|seen| *seen > 20) && busy > 500, "{lengths:?}, {busy}");
    }

    #[test]
    fn neither_a_clock_at_its_end_nor_one_that_goes_back_matters() {
        for longest in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(1), Duration::MAX] {
            let mut window = Window::new(longest, u64::MAX / 2);
            for now in [0, u64::MAX, 5, u64::MAX - 1, u64::MAX, 0] {
                assert!(u128::from(window.rest(now)) <= longest.as_nanos());
                window.came(now);
            }
        }
    }
}
