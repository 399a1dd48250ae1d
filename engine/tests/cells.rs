//! The gate-1 cells against naive oracles: an exact log of time stamps, plain lists of what each bucket holds, a meter in
//! exact integers; and on real threads. SPEC §4.2, §4.3.

mod support;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use engine::cells::{Epoch, FixedWindow, Gauge, RollingWindow, TokenBucket};
use support::{SECOND, Seeded};

const PERIOD: u64 = 60 * SECOND;
const BUCKET: u64 = PERIOD / 60;

#[derive(Copy, Clone, Debug)]
enum Arrivals {
    /// Far more than fits, at every moment.
    Flood,
    /// Three times what fits, at random.
    Poisson,
    /// Silence, then a volley, again and again.
    Bursts,
    /// At the edges of buckets and periods.
    Edges,
}

impl Arrivals {
    fn next(self, seeded: &mut Seeded, at: u64, amount: u64) -> u64 {
        let mean = PERIOD as f64 / amount as f64;
        match self {
            Arrivals::Flood => at + 1 + (mean / 2.0).min(BUCKET as f64 / 100.0) as u64,
            Arrivals::Poisson => at + seeded.exponential(mean / 3.0) as u64,
            Arrivals::Bursts if seeded.one_in(amount * 2) => at + seeded.below(2 * PERIOD),
            Arrivals::Bursts => at + seeded.below(3),
            Arrivals::Edges => {
                let step = *seeded.pick(&[0, 0, 0, 1, BUCKET, PERIOD, PERIOD + BUCKET, 3 * PERIOD]);
                let near = seeded.below(3);
                let edge = (at / BUCKET) * BUCKET + step;
                at.max((edge + near).saturating_sub(1))
            }
        }
    }
}

/// Admits by the exact log; the times of all it admitted within a period are kept.
#[derive(Default)]
struct ExactLog(VecDeque<u64>);

impl ExactLog {
    fn within_period(&mut self, now: u64) -> u64 {
        while self.0.front().is_some_and(|at| at + PERIOD <= now) {
            self.0.pop_front();
        }
        self.0.len() as u64
    }

    fn admit(&mut self, now: u64, amount: u64) -> bool {
        let fits = self.within_period(now) < amount;
        if fits {
            self.0.push_back(now);
        }
        fits
    }
}

/// Never more than the amount in any trailing period, and at most 2 % fewer than the exact log, but for one volley that the
/// end of the test may cut off.
#[test]
fn rolling_window_admits_what_an_exact_log_does() {
    for arrivals in [Arrivals::Flood, Arrivals::Poisson, Arrivals::Bursts, Arrivals::Edges] {
        for amount in [1, 2, 7, 60, 1_000, 10_000] {
            let mut seeded = Seeded::new(amount);
            let ring = RollingWindow::new(PERIOD, 0);
            let (mut ours, mut exact) = (ExactLog::default(), ExactLog::default());
            let (mut admitted, mut could) = (0u64, 0u64);
            let mut at = seeded.below(PERIOD);
            let end = at + PERIOD * (20_000 / amount).clamp(40, 200);
            for _ in 0..1_500_000 {
                at = arrivals.next(&mut seeded, at, amount);
                if at >= end {
                    break;
                }
                could += u64::from(exact.admit(at, amount));
                let before = ours.within_period(at);
                if ring.admit(at, amount).is_some() {
                    assert!(before < amount, "{arrivals:?} {amount}: one too many at {at}");
                    ours.0.push_back(at);
                    admitted += 1;
                }
            }
            if !matches!(arrivals, Arrivals::Edges) {
                assert!(
                    (admitted + amount) * 100 >= could * 98,
                    "{arrivals:?} {amount}: {admitted} of {could} that an exact log admits"
                );
            }
        }
    }
}

/// A refusal is right: only while `amount` were admitted within a period and one bucket. Its wait is the truth.
#[test]
fn rolling_window_refusals_are_right_and_their_waits_true() {
    for seed in 0..300 {
        let mut seeded = Seeded::new(seed);
        let period = *seeded.pick(&[PERIOD, SECOND, 61, 60 * 7, 1_000_003]);
        let bucket = period.div_ceil(60);
        let ring = RollingWindow::new(period, 0);
        let mut log: Vec<u64> = Vec::new();
        let mut at = seeded.below(period * 3);
        let mut amount = seeded.between(1, 12);
        for _ in 0..400 {
            at += *seeded.pick(&[0, 0, 0, 1, bucket / 3, bucket, period / 3, period]);
            if seeded.one_in(30) {
                amount = seeded.between(1, 12);
            }
            let over = ring.over(at, amount);
            let within = |span: u64| log.iter().filter(|then| **then + span > at).count() as u64;
            let (exact, late) = (within(period), within(61 * bucket));
            match ring.admit(at, amount) {
                Some(_) => {
                    assert!(exact < amount, "seed {seed}: one too many at {at}");
                    assert_eq!(over, None, "seed {seed}: what is over does not admit");
                    log.push(at);
                }
                None => {
                    assert!(late >= amount, "seed {seed}: refused with {late} of {amount} at {at}");
                    let over = over.expect("what does not admit is over");
                    let wait = over.wait.expect("every window ends");
                    assert!(ring.over(at + wait, amount).is_none(), "seed {seed}: the wait is too short");
                    assert!(wait == 1 || ring.over(at + wait - 1, amount).is_some(), "seed {seed}: too long");
                }
            }
        }
        let level = ring.level(at);
        assert_eq!(ring.level(at + level.empty_in).observed, 0);
        assert!(level.observed == 0 || ring.level(at + level.empty_in - 1).observed > 0);
    }
}

#[derive(Copy, Clone, Debug)]
enum Operation {
    Admit(u64),
    Record,
    Refund(usize),
    Pass(u64),
}

/// The same figures as a plain list of (bucket, given back?) has, with refunds of old and new admissions in between.
fn rings_agree_with_lists<const WORDS: usize>(
    make: impl Fn(u64) -> engine::cells::BucketRing<WORDS>,
    bucket: u64,
    offset: u64,
) {
    for seed in 0..400 {
        let mut seeded = Seeded::new(seed);
        let ring = make(bucket);
        let mut list: Vec<(u64, Option<Epoch>)> = Vec::new();
        let mut at = seeded.below(bucket * 200);
        for step in 0..600 {
            let operation = match seeded.below(10) {
                0..5 => Operation::Admit(seeded.between(1, 9)),
                5 => Operation::Record,
                6..8 if !list.is_empty() => Operation::Refund(seeded.below(list.len() as u64) as usize),
                _ => Operation::Pass(*seeded.pick(&[
                    1,
                    bucket - 1,
                    bucket,
                    5 * bucket,
                    61 * bucket,
                    200 * bucket,
                ])),
            };
            let current = |at: u64| (at + offset) / bucket;
            let counted = |list: &[(u64, Option<Epoch>)], at: u64| {
                let live =
                    list.iter().filter(|(of, epoch)| epoch.is_some() && of + WORDS as u64 > current(at));
                live.count() as u64
            };
            match operation {
                Operation::Admit(amount) => {
                    let fits = counted(&list, at) < amount;
                    let epoch = ring.admit(at, amount);
                    assert_eq!(epoch.is_some(), fits, "seed {seed} step {step}: {operation:?}");
                    list.extend(epoch.map(|epoch| (current(at), Some(epoch))));
                }
                Operation::Record => list.push((current(at), Some(ring.record(at).unwrap()))),
                Operation::Refund(index) => {
                    if let Some(epoch) = list[index].1.take() {
                        ring.refund(epoch);
                    }
                }
                Operation::Pass(span) => at += span,
            }
            assert_eq!(ring.level(at).observed, counted(&list, at), "seed {seed} step {step}: {operation:?}");
            assert_eq!(ring.level_at_a_glance(at), ring.level(at), "seed {seed} step {step}: {operation:?}");
        }
    }
}

#[test]
fn rolling_window_agrees_with_a_list() {
    rings_agree_with_lists(|bucket| RollingWindow::new(bucket * 60, 0), 1_000, 0);
}

#[test]
fn fixed_window_agrees_with_a_list() {
    rings_agree_with_lists(|bucket| FixedWindow::new(bucket, 0), 1_000, 0);
    rings_agree_with_lists(|bucket| FixedWindow::new(bucket, 123_456_789), 1_000, 123_456_789);
}

#[test]
fn fixed_window_waits_for_its_aligned_end() {
    let ring = FixedWindow::new(SECOND, 300_000_000);
    assert!(ring.admit(0, 1).is_some());
    let over = ring.over(10, 1).unwrap();
    assert_eq!(over.wait, Some(700_000_000 - 10));
    assert!(ring.admit(699_999_999, 1).is_none());
    assert!(ring.admit(700_000_000, 1).is_some());
    assert!(ring.over(700_000_000, 0).unwrap().wait.is_none(), "nothing ever fits under nothing");
}

/// The same as a meter in exact integers, but for one tick of its clock (1/16384 of the period). An edit of the amount
/// keeps the usage; a refund takes out what one request put in, as far as it has not drained.
#[test]
fn token_bucket_agrees_with_an_exact_meter() {
    for seed in 0..300 {
        let mut seeded = Seeded::new(seed);
        let period = *seeded.pick(&[PERIOD, SECOND, 16_384 * 7, 999_999_937]);
        let tick = period.div_ceil(16_384);
        let bucket = TokenBucket::new(period);
        let mut amount = seeded.between(1, 20);
        // In request-nanoseconds: drains by the amount each nanosecond. An edit holds from the last admission on.
        let (mut level, mut then) = (0u128, 0u64);
        let scale = u128::from(tick * 16_384);
        let mut at = 0;
        for step in 0..500 {
            at += *seeded.pick(&[
                0,
                0,
                0,
                1,
                tick / 2,
                tick,
                period / 20,
                period / 3,
                2 * period,
                4_096 * period + tick,
            ]);
            if seeded.one_in(25) {
                amount = seeded.between(1, 20);
            }
            let left = level.saturating_sub(u128::from(at - then) * u128::from(amount));
            let cap = scale * u128::from(amount);
            let slack = u128::from(tick) * 20;
            let over = bucket.over(at, amount);
            if bucket.admit(at, amount).is_some() {
                assert!(over.is_none());
                (level, then) = (left + scale, at);
                assert!(level <= cap + slack, "seed {seed} step {step}: admitted too early");
            } else {
                assert!(left + scale + slack > cap, "seed {seed} step {step}: refused too long");
                let wait = over.unwrap().wait.unwrap();
                assert!(bucket.over(at + wait, amount).is_none(), "seed {seed} step {step}: wait too short");
                assert!(wait == 1 || bucket.over(at + wait - 1, amount).is_some());
            }
        }
        let shown = bucket.level(at, amount);
        assert_eq!(bucket.level(at + shown.empty_in, amount).observed, 0);
    }
}

#[test]
fn token_bucket_edits_keep_the_usage_and_refunds_take_no_one_elses() {
    let bucket = TokenBucket::new(10 * SECOND);
    assert!(bucket.admit(0, 1).is_some());
    assert!(bucket.admit(0, 1).is_none());
    for _ in 0..9 {
        assert!(bucket.admit(0, 10).is_some(), "one of ten is used");
    }
    assert!(bucket.admit(0, 10).is_none());
    // All ten drain, one a period. One comes, is drained, another comes: giving the first back must not free the second.
    let first = bucket.admit(130 * SECOND, 1).unwrap();
    assert!(bucket.admit(150 * SECOND, 1).is_some());
    bucket.refund(150 * SECOND, first);
    assert!(bucket.admit(150 * SECOND, 1).is_none());
    let other = TokenBucket::new(10 * SECOND);
    let drip = other.admit(0, 1).unwrap();
    other.refund(0, drip);
    assert!(other.admit(0, 1).is_some(), "what was just taken is wholly given back");
}

/// Ticks of a token bucket in a period, and its units in a request.
const TICKS: u64 = 16_384;

/// A token bucket as the list of what came: its level is found by going through all of it again.
#[derive(Default)]
struct Meter(Vec<(u64, Came)>);

#[derive(Copy, Clone, PartialEq, Eq)]
enum Came {
    Admitted,
    Recorded,
    GivenBack,
}

impl Meter {
    fn level(&self, at: u64, amount: u64) -> u64 {
        let (mut level, mut then) = (0, 0);
        for (tick, came) in &self.0 {
            level = u64::saturating_sub(level, (tick - then) * amount);
            then = *tick;
            level = match came {
                Came::Admitted => level + TICKS,
                // Twice the amount is the end, but what is there already stays.
                Came::Recorded => level.max((level + TICKS).min(2 * amount * TICKS)),
                // As if it had never come.
                Came::GivenBack => level,
            };
        }
        level.saturating_sub((at - then) * amount)
    }
}

/// One that enforces and one that observes, mixed: the figures are those of the list at every tick.
#[test]
fn token_bucket_counts_what_it_only_observes_up_to_twice_the_amount() {
    let mut bounded = 0;
    for seed in 0..400 {
        let mut seeded = Seeded::new(seed);
        let amount = *seeded.pick(&[1, 2, 3, 7, 100, 5_000]);
        let bucket = TokenBucket::new(TICKS);
        let (mut meter, mut at) = (Meter::default(), 0);
        for step in 0..400 {
            let about = || format!("seed {seed} step {step}: {amount} at {at}");
            let level = meter.level(at, amount);
            match seeded.below(8) {
                0..4 => {
                    assert!(bucket.record(at, amount).is_some(), "{}", about());
                    meter.0.push((at, Came::Recorded));
                    bounded += u64::from(level + TICKS > 2 * amount * TICKS);
                }
                4 | 5 => {
                    let fits = level + TICKS <= amount * TICKS;
                    assert_eq!(bucket.admit(at, amount).is_some(), fits, "{}", about());
                    meter.0.extend(fits.then_some((at, Came::Admitted)));
                }
                _ => at += *seeded.pick(&[1, 7, TICKS / amount, TICKS / 9, TICKS, 3 * TICKS]),
            }
            let level = meter.level(at, amount);
            assert!(level <= 2 * amount * TICKS);
            let observed = bucket.level(at, amount).observed;
            assert_eq!(observed, level.div_ceil(TICKS), "seed {seed} step {step}: {amount} at {at}");
        }
    }
    assert!(bounded > 1_000, "{bounded} records were at the bound");
}

/// However long it was only observed, once enforced it refuses for a period and what one request takes to drain.
#[test]
fn token_bucket_that_was_overloaded_while_it_observed_refuses_for_one_period() {
    for (amount, requests, periods) in
        [(1, 1_000, 1), (1, 3, 50), (10, 11, 1), (10, 11, 1_000), (10, 10_000, 3), (600, 6_000, 40)]
    {
        let bucket = TokenBucket::new(TICKS * 1_000);
        let period = TICKS * 1_000;
        for number in 0..requests * periods {
            assert!(bucket.record(number * period / requests, amount).is_some());
        }
        let (end, about) = (periods * period, format!("{requests} a period against {amount}, for {periods}"));
        let observed = bucket.level(end, amount).observed;
        assert!(observed <= 2 * amount, "{about}: {observed} observed");
        let wait = bucket.over(end, amount).map_or(0, |over| over.wait.expect("it drains"));
        let longest = period + period.div_ceil(amount) + 1_000;
        assert!(wait <= longest, "{about}: {wait} ns of {longest}");
        assert!(bucket.admit(end + wait, amount).is_some(), "{about}");
    }
}

/// Two come, one is given back, the other drains, two more come: giving the other back then frees nothing.
#[test]
fn token_bucket_knows_that_what_is_given_back_lets_the_others_drain_sooner() {
    let bucket = TokenBucket::new(TICKS);
    let [first, second] = [0, 0].map(|at| bucket.admit(at, 2).expect("two fit"));
    bucket.refund(0, first);
    assert!(
        bucket.admit(TICKS / 2, 2).is_some() && bucket.admit(TICKS / 2, 2).is_some(),
        "it is empty again"
    );
    bucket.refund(TICKS / 2, second);
    assert!(bucket.admit(TICKS / 2, 2).is_none(), "three at once against two");
}

/// Give-backs of any age, in any order: never below the list without those given back, so never one too many; and equal
/// to it if nothing has drained between the coming and the giving back.
#[test]
fn token_bucket_gives_back_no_more_than_is_left() {
    for at_once in [true, false] {
        for seed in 0..1_000 {
            let mut seeded = Seeded::new(seed);
            let amount = *seeded.pick(&[1, 2, 3, 7]);
            let bucket = TokenBucket::new(TICKS);
            let (mut meter, mut at, mut held) = (Meter::default(), 0, Vec::new());
            for step in 0..200 {
                match seeded.below(8) {
                    0..4 => {
                        if let Some(drip) = bucket.admit(at, amount) {
                            let level = meter.level(at, amount);
                            assert!(level + TICKS <= amount * TICKS, "seed {seed} step {step}: one too many");
                            held.push((meter.0.len(), drip));
                            meter.0.push((at, Came::Admitted));
                        }
                    }
                    4 | 5 if !held.is_empty() => {
                        let (index, drip) = held.swap_remove(seeded.below(held.len() as u64) as usize);
                        bucket.refund(at, drip);
                        meter.0[index].1 = Came::GivenBack;
                    }
                    4 | 5 => {}
                    _ => {
                        at += *seeded.pick(&[1, TICKS / amount - 1, TICKS / amount, TICKS / 9, TICKS]);
                        if at_once {
                            held.clear();
                        }
                    }
                }
                let (observed, least) =
                    (bucket.level(at, amount).observed, meter.level(at, amount).div_ceil(TICKS));
                let right = if at_once { observed == least } else { observed >= least };
                assert!(right, "seed {seed} step {step}: {observed} observed, {least} by the list");
            }
        }
    }
}

/// What a bounded record did not put in is not taken out for it.
#[test]
fn token_bucket_gives_back_only_what_a_record_put_in() {
    let bucket = TokenBucket::new(TICKS);
    let drips: Vec<_> = (0..9).map(|_| bucket.record(0, 3).expect("no bound refuses")).collect();
    let mut figures = Vec::new();
    for drip in drips.into_iter().rev() {
        bucket.refund(0, drip);
        figures.push(bucket.level(0, 3).observed);
    }
    assert_eq!(figures, [6, 6, 6, 5, 4, 3, 2, 1, 0]);
}

/// A thread whose reading of the clock is old counts at the newest anyone has seen: what drained since does not drain twice.
#[test]
fn token_bucket_counts_a_late_thread_where_time_is_now() {
    const HALF: u64 = 8_192_000;
    let bucket = TokenBucket::new(2 * HALF);
    assert!(bucket.admit(0, 2).is_some());
    assert!(bucket.admit(HALF, 2).is_some(), "the first has drained");
    assert!(bucket.admit(0, 2).is_some(), "late");
    assert!(bucket.admit(HALF, 2).is_none(), "with the first, the late one and this, three would be in it");
}

/// Exactly `amount` of many simultaneous attempts, on any number of threads.
#[test]
fn exactly_the_amount_of_simultaneous_attempts_pass() {
    for threads in [2, 3, 4, 8, 16] {
        for amount in [1u64, 3, 50, 700] {
            let rolling = RollingWindow::new(PERIOD, 0);
            let fixed = FixedWindow::new(PERIOD, 5);
            let bucket = TokenBucket::new(PERIOD);
            let gauge = Gauge::new();
            let passed: [AtomicU64; 4] = Default::default();
            let barrier = Barrier::new(threads);
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        barrier.wait();
                        for _ in 0..amount.div_ceil(threads as u64) + 40 {
                            let took = [
                                rolling.admit(7, amount).is_some(),
                                fixed.admit(7, amount).is_some(),
                                bucket.admit(7, amount).is_some(),
                                gauge.admit(amount),
                            ];
                            for (count, took) in passed.iter().zip(took) {
                                count.fetch_add(u64::from(took), Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
            let passed = passed.map(AtomicU64::into_inner);
            assert_eq!(passed, [amount; 4], "{threads} threads: rolling, fixed, bucket, gauge");
            assert_eq!((rolling.level(7).observed, gauge.live()), (amount, amount));
        }
    }
}

/// Threads whose clocks disagree by up to a few buckets, time rushing on, refunds in between: in no 61 adjoining
/// buckets are there more than the amount, and at the end the figures are those of the lists.
#[test]
fn rolling_window_holds_while_time_moves_under_the_threads() {
    for threads in [2usize, 4, 8] {
        const AMOUNT: u64 = 40;
        let period = 6_000;
        let ring = RollingWindow::new(period, 0);
        let clock = AtomicU64::new(0);
        let kept: Mutex<Vec<u64>> = Mutex::default();
        thread::scope(|scope| {
            for thread in 0..threads {
                let (ring, clock, kept) = (&ring, &clock, &kept);
                scope.spawn(move || {
                    let mut seeded = Seeded::new(thread as u64);
                    let mut own = Vec::new();
                    for _ in 0..30_000 {
                        let late = seeded.below(250);
                        let now = clock.fetch_add(seeded.below(5), Ordering::Relaxed).saturating_sub(late);
                        if let Some(epoch) = ring.admit(now, AMOUNT) {
                            if seeded.one_in(3) {
                                ring.refund(epoch);
                            } else {
                                own.push(epoch.0);
                            }
                        }
                    }
                    kept.lock().unwrap().extend(own);
                });
            }
        });
        let mut kept = kept.into_inner().unwrap();
        kept.sort_unstable();
        for (first, last) in kept.iter().zip(&kept[AMOUNT as usize..]) {
            assert!(last - first > 60, "{threads} threads: more than {AMOUNT} in buckets {first}..={last}");
        }
        let end = clock.into_inner();
        let newest = (end / 100 + 61).max(kept.last().copied().unwrap_or(0));
        let counted = kept.iter().filter(|epoch| **epoch + 60 >= newest).count() as u64;
        assert_eq!(ring.level(end).observed, counted, "{threads} threads");
    }
}

/// Slots taken and released by many threads: never above the amount, zero at the end.
#[test]
fn gauge_is_exact_while_threads_come_and_go() {
    let gauge = Gauge::new();
    let inside = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    if gauge.admit(3) {
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        gauge.release();
                    }
                }
            });
        }
    });
    assert_eq!(gauge.live(), 0);
}
