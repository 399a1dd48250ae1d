//! The rolling window at scale, 1.2 x 10^8 requests, against a sliding log of time stamps (SPEC §4.2).
//!
//! Three things are checked at every request, and one over a whole run:
//!
//! - **Never over**: what is admitted finds fewer than the amount in the trailing period, whatever the arrivals, edits of
//!   the amount and refunds.
//! - **Never wrongly refused**: what is refused finds the amount within 61 buckets, so that capacity is back at most
//!   `period / 60` late.
//! - **Between two logs**, while the amount stays: never ahead of the exact log, never behind an exact log over 61 buckets.
//! - **Throughput**, for the arrivals that a limit is made for (floods, Poisson at the amount and at three times it, bursts): the
//!   ring has admitted its last request at most 1.7 % later than the exact log had admitted as many. Measured as time
//!   for the same number, because a count up to a fixed end depends on whether that end falls before or after a volley.
//!
//! What does *not* hold: 1.7 % for every arrival. One that comes just as its predecessor leaves the exact log is refused
//! here, up to a bucket long; if the next chance is a period away, that period is lost. [`periodic_arrivals_may_lose_half`]
//! has the figures: at the worst half of the exact log's throughput, and nothing at all if such a client waits for as
//! long as the refusal says.

mod support;

use std::collections::VecDeque;

use engine::cells::{Epoch, RollingWindow};
use support::{SECOND, Seeded};

const PERIODS: [u64; 4] = [SECOND, 7 * SECOND, 60 * SECOND, 3_600 * SECOND];
const BUCKETS: u64 = 60;

/// How requests come. Rates are relative to the amount a period.
#[derive(Copy, Clone, Debug)]
enum Arrivals {
    /// Without an end: twenty times what fits, and at least twenty a bucket.
    Flood,
    /// A silence of one to three periods, then a flood of one to four, evenly over those lengths.
    SilenceThenFlood,
    /// Three times what fits, at random.
    Poisson,
    /// What just about fits, at random.
    PoissonAtTheAmount,
    /// Volleys of up to twice the amount, with up to two periods of silence between.
    Bursts,
    /// At the nanosecond before, at and after the ends of buckets and periods.
    Edges,
}

/// A stream of arrival times, in nanoseconds.
struct Stream {
    arrivals: Arrivals,
    period: u64,
    seeded: Seeded,
    at: u64,
    /// Of the flood or volley under way: when it ends, or how many are left.
    left: u64,
    floods: u128,
}

impl Stream {
    fn new(arrivals: Arrivals, period: u64, seed: u64) -> Stream {
        let mut seeded = Seeded::new(seed);
        let at = seeded.below(3 * period);
        Stream { arrivals, period, seeded, at, left: 0, floods: 0 }
    }

    fn next(&mut self, amount: u64) -> u64 {
        let Stream { period, seeded, .. } = self;
        let (period, even) = (*period, *period as f64 / amount as f64);
        let flood = (even as u64 / 20).clamp(1, period / (BUCKETS * 20));
        let flood = seeded.between(flood / 2, flood + flood / 2);
        self.at += match self.arrivals {
            Arrivals::Flood => flood,
            Arrivals::SilenceThenFlood => match self.left.checked_sub(flood.max(1)) {
                Some(left) => {
                    self.left = left;
                    flood
                }
                None => {
                    // Steps of the golden ratio: a few hundred floods lie as evenly as any number of them.
                    self.floods += 1;
                    let part = self.floods * 6_180_339_887 % 10_000_000_000;
                    self.left = period + (3 * u128::from(period) * part / 10_000_000_000) as u64;
                    period + seeded.below(2 * period)
                }
            },
            Arrivals::Poisson => seeded.exponential(even / 3.0) as u64,
            Arrivals::PoissonAtTheAmount => seeded.exponential(even) as u64,
            Arrivals::Bursts => match self.left.checked_sub(1) {
                Some(left) => {
                    self.left = left;
                    seeded.below(3)
                }
                None => {
                    self.left = seeded.between(1, 2 * amount);
                    seeded.below(2 * period)
                }
            },
            Arrivals::Edges => {
                let bucket = period.div_ceil(BUCKETS);
                let step = *seeded.pick(&[0, 0, 0, 0, 0, 0, 1, bucket, 59 * bucket, period, 61 * bucket]);
                let edge = if seeded.one_in(2) { (self.at / bucket) * bucket } else { self.at };
                (edge + step + seeded.below(3)).saturating_sub(self.at + 1)
            }
        };
        self.at
    }
}

/// The times of what was admitted, as far as the longest of the spans asked about reaches back. Each entry enters and
/// leaves once.
struct Log {
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    spans: [Span; 2],
}

#[derive(Copy, Clone)]
struct Entry {
    at: u64,
    live: bool,
}

/// What of the log lies within a length of time: from entry `from` on.
struct Span {
    length: u64,
    from: u64,
    live: u64,
}

impl Log {
    /// Asked about `short` and `long`.
    fn new(short: u64, long: u64) -> Log {
        let spans = [short, long].map(|length| Span { length, from: 0, live: 0 });
        Log { entries: VecDeque::new(), first: 0, spans }
    }

    /// How many live entries lie within each span that ends now.
    fn within(&mut self, now: u64) -> [u64; 2] {
        for span in &mut self.spans {
            while let Some(entry) = self.entries.get((span.from - self.first) as usize)
                && entry.at + span.length <= now
            {
                span.from += 1;
                span.live -= u64::from(entry.live);
            }
        }
        while self.first < self.spans[1].from.min(self.spans[0].from) {
            self.entries.pop_front();
            self.first += 1;
        }
        [self.spans[0].live, self.spans[1].live]
    }

    /// Enters one admission and returns its number.
    fn push(&mut self, now: u64) -> u64 {
        self.entries.push_back(Entry { at: now, live: true });
        self.spans.iter_mut().for_each(|span| span.live += 1);
        self.first + self.entries.len() as u64 - 1
    }

    /// Takes one back; nothing if it has left the log.
    fn refund(&mut self, number: u64) {
        let Some(index) = number.checked_sub(self.first) else { return };
        self.entries[index as usize].live = false;
        self.spans.iter_mut().filter(|span| span.from <= number).for_each(|span| span.live -= 1);
    }
}

/// An exact log that admits by itself.
struct Greedy {
    log: Log,
    admitted: u64,
}

impl Greedy {
    fn over(period: u64) -> Greedy {
        Greedy { log: Log::new(period, period), admitted: 0 }
    }

    fn admit(&mut self, now: u64, amount: u64) -> bool {
        let fits = self.log.within(now)[0] < amount;
        if fits {
            self.log.push(now);
            self.admitted += 1;
        }
        fits
    }
}

/// The ring under test, with the log of what it admitted.
struct Ours {
    ring: RollingWindow,
    log: Log,
}

impl Ours {
    fn over(period: u64) -> Ours {
        let late = (BUCKETS + 1) * period.div_ceil(BUCKETS);
        Ours { ring: RollingWindow::new(period, 0), log: Log::new(period, late) }
    }

    /// Admits, and checks that neither verdict is wrong.
    fn admit(&mut self, now: u64, amount: u64, about: impl Fn() -> String) -> Option<(Epoch, u64)> {
        let [exact, late] = self.log.within(now);
        match self.ring.admit(now, amount) {
            Some(epoch) => {
                assert!(exact < amount, "{}: one over {amount} at {now}", about());
                Some((epoch, self.log.push(now)))
            }
            None => {
                assert!(late >= amount, "{}: refused with {late} of {amount} at {now}", about());
                None
            }
        }
    }
}

/// One amount throughout: against both logs. Returns the requests made, and by how many parts of ten thousand the ring
/// needed longer than the exact log for as many.
fn constant(arrivals: Arrivals, period: u64, amount: u64, requests: u64) -> (u64, u64) {
    let mut stream = Stream::new(arrivals, period, amount ^ period);
    let mut ours = Ours::over(period);
    let (mut exact, mut slow) =
        (Greedy::over(period), Greedy::over((BUCKETS + 1) * period.div_ceil(BUCKETS)));
    // Times at which the exact log admitted what the ring has not yet.
    let mut ahead: VecDeque<u64> = VecDeque::new();
    let (mut admitted, mut start, mut ends) = (0, None, (0, 0));
    for _ in 0..requests {
        let now = stream.next(amount);
        if exact.admit(now, amount) {
            ahead.push_back(now);
        }
        slow.admit(now, amount);
        if ours.admit(now, amount, || format!("{arrivals:?} {period} ns")).is_some() {
            admitted += 1;
            let then = ahead.pop_front().expect("the ring is never ahead of the exact log");
            ends = (then - *start.get_or_insert(then), now - start.unwrap_or(now));
        }
        assert!(
            slow.admitted <= admitted && admitted <= exact.admitted,
            "{arrivals:?} {period} ns, {amount}: {admitted} at {now} not between {} and {}",
            slow.admitted,
            exact.admitted
        );
    }
    let (exact_time, own_time) = (u128::from(ends.0), u128::from(ends.1));
    let later = (own_time - exact_time) * 10_000 / exact_time.max(1);
    (requests, later as u64)
}

/// Amounts that change up and down at random, and admissions taken back, soon or late, in between.
fn edited(arrivals: Arrivals, period: u64, requests: u64) -> u64 {
    let mut stream = Stream::new(arrivals, period, period);
    let mut seeded = Seeded::new(period + 1);
    let mut ours = Ours::over(period);
    let mut amount = 10;
    // Some of what was admitted, to be taken back.
    let mut taken: VecDeque<(Epoch, u64)> = VecDeque::new();
    for _ in 0..requests {
        if seeded.one_in(2 + amount / 2) {
            // Evenly over the decades, with a step from one end to the other now and then.
            amount = 10u64.pow(seeded.below(7) as u32) * seeded.between(1, 9);
            amount = amount.min(1_000_000);
        }
        let now = stream.next(amount);
        if let Some(admission) = ours.admit(now, amount, || format!("{arrivals:?} {period} ns, edited"))
            && seeded.one_in(8)
        {
            taken.push_back(admission);
        }
        if !taken.is_empty() && (taken.len() > 1_000 || seeded.one_in(40)) {
            let at = seeded.below(taken.len() as u64) as usize;
            let (epoch, number) = taken.swap_remove_back(at).expect("it is one of them");
            ours.ring.refund(epoch);
            ours.log.refund(number);
        }
    }
    requests
}

const ARRIVALS: [Arrivals; 6] = [
    Arrivals::Flood,
    Arrivals::SilenceThenFlood,
    Arrivals::Poisson,
    Arrivals::PoissonAtTheAmount,
    Arrivals::Bursts,
    Arrivals::Edges,
];

/// Hundreds of periods of each small amount, a few of the largest.
#[test]
fn no_trailing_window_is_over_and_the_throughput_is_within_a_bucket() {
    let mut made = 0;
    for arrivals in ARRIVALS {
        for (amount, requests) in [
            (1, 500_000),
            (2, 500_000),
            (7, 500_000),
            (60, 500_000),
            (1_000, 1_000_000),
            (10_000, 2_000_000),
            (1_000_000, 5_000_000),
        ] {
            for period in if amount <= 60 { &PERIODS[..] } else { &PERIODS[2..3] } {
                let (requests, later) = constant(arrivals, *period, amount, requests);
                made += requests;
                let promised = !matches!(arrivals, Arrivals::Edges);
                println!("{arrivals:?} {amount} a {period} ns: {}.{:02} % later", later / 100, later % 100);
                assert!(!promised || later <= 170, "{arrivals:?} {amount} a {period} ns: {later} of 10^4");
            }
        }
    }
    assert!(made >= 10_000_000, "{made} requests");
}

#[test]
fn edits_and_refunds_never_let_one_too_many_in() {
    let mut made = 0;
    for arrivals in ARRIVALS {
        for period in PERIODS {
            made += edited(arrivals, period, 1_000_000);
        }
    }
    assert!(made >= 10_000_000, "{made} requests");
}

/// Arrivals in step with the period, where the bucket that an admission waits longer is worth more than 1.7 %.
#[test]
fn periodic_arrivals_may_lose_half() {
    const PERIOD: u64 = 60 * SECOND;
    // Amount, requests that come at once, nanoseconds to the next; of 1,000 periods: percent that the ring admits.
    for (amount, volley, gap, percent) in [
        // Just as the predecessor leaves the exact log: every other one is refused.
        (1, 1, PERIOD, 50),
        (50, 50, PERIOD, 50),
        (50, 100, PERIOD, 50),
        // A bucket later, or four times as often: all, or all but a bucket of each period and what is left of a gap.
        (1, 1, PERIOD + PERIOD / 60, 100),
        (1, 1, PERIOD / 4, 80),
        // Evenly spread at exactly the amount.
        (60, 1, PERIOD / 60, 98),
        (6_000, 1, PERIOD / 6_000, 98),
    ] {
        for phase in [0, 1, SECOND / 2] {
            let mut ours = Ours::over(PERIOD);
            let mut exact = Greedy::over(PERIOD);
            let (mut admitted, mut at) = (0u64, phase);
            while at < 1_000 * PERIOD {
                for _ in 0..volley {
                    exact.admit(at, amount);
                    admitted += u64::from(ours.admit(at, amount, || "periodic".to_owned()).is_some());
                }
                at += gap;
            }
            assert_eq!(
                admitted * 100 / exact.admitted,
                percent,
                "{admitted} of {} for {volley} each {gap} ns against {amount}, from {phase}",
                exact.admitted
            );
        }
    }
    // A client that waits for as long as it is told loses the bucket and nothing else.
    let mut ours = Ours::over(PERIOD);
    let (mut admitted, mut at) = (0u64, 0);
    while at < 1_000 * PERIOD {
        match ours.admit(at, 1, || "waiting".to_owned()) {
            Some(_) => {
                admitted += 1;
                at += PERIOD;
            }
            None => at += ours.ring.over(at, 1).and_then(|over| over.wait).expect("every window ends"),
        }
    }
    assert_eq!(admitted, 1_000 * 60 / 61 + 1);
}
