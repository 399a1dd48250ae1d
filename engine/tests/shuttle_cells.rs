//! The gate-1 cells, and gate 1 as a whole, on three and four threads under a great many schedules, by shuttle.
//!
//! Each schedule runs a small random program: who does what at which time is drawn within the schedule, so one replayed
//! schedule is one history. Half of the schedules are wholly random, half are drawn by PCT, which prefers few switches at
//! the worst moments. loom looks at less, but at all of it, and knows of weak memory; shuttle takes every atomic as
//! sequentially consistent.
//!
//! Run: `RUSTFLAGS="--cfg shuttle" cargo test -p engine --release --test shuttle_cells`, with `SHUTTLE_ITERATIONS` for the
//! schedules of each model and `SHUTTLE_SEED` for others of them. A failure prints the schedule to replay.

#![cfg(shuttle)]

mod support;

use std::sync::Arc;

use engine::cells::{BucketRing, Epoch, Gauge, TokenBucket};
use engine::{
    Algorithm, CellTable, Counted, Enforce, GateOnePlan, GateOneVerdict, Limit, LimitType, Now, Selected,
    Units, Window,
};
use shuttle::rand::{RngCore, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Mutex;
use shuttle::{Config, Runner, thread};
use support::{SECOND, limit, rolling, selected, sliding};

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs `model` under so many schedules (`share` of what is asked for, in percent).
fn check(share: u64, model: impl Fn() + Send + Sync + 'static) {
    let schedules = from_environment("SHUTTLE_ITERATIONS").unwrap_or(100_000) * share / 100;
    let seed = from_environment("SHUTTLE_SEED").unwrap_or(1);
    let half = (schedules / 2) as usize;
    let model = Arc::new(model);
    let again = Arc::clone(&model);
    Runner::new(RandomScheduler::new_from_seed(seed, half), Config::new()).run(move || model());
    Runner::new(PctScheduler::new_from_seed(seed, 3, half), Config::new()).run(move || again());
}

/// A number below `end`, part of the schedule.
fn below(end: u64) -> u64 {
    thread_rng().next_u64() % end
}

/// Runs `work` on that many threads and waits for them.
fn on_threads(threads: u64, work: impl Fn(u64) + Clone + Send + 'static) {
    let spawn = |number| {
        let work = work.clone();
        thread::spawn(move || work(number))
    };
    let running: Vec<_> = (0..threads).map(spawn).collect();
    running.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Times within one window: nothing leaves, so exactly the amount passes of whatever comes.
fn exactly_the_amount_in_one_window<const WORDS: usize>(period: u64, times: u64) {
    const AMOUNT: u64 = 3;
    let ring = Arc::new(BucketRing::<WORDS>::new(period, 0));
    let passed = Arc::new(Mutex::new(0));
    let (shared, count) = (Arc::clone(&ring), Arc::clone(&passed));
    on_threads(3, move |_| {
        for _ in 0..2 {
            if shared.admit(10 + below(times), AMOUNT).is_some() {
                *count.lock().unwrap() += 1;
            }
        }
    });
    assert_eq!(*passed.lock().unwrap(), AMOUNT);
    assert_eq!(ring.level(10 + times - 1).observed, AMOUNT);
}

#[test]
fn exactly_the_amount_passes_in_one_window() {
    check(50, || exactly_the_amount_in_one_window::<3>(2, 3));
    check(50, || exactly_the_amount_in_one_window::<1>(100, 3));
}

/// Admissions under two amounts, refunds and moving time: no run of adjoining epochs over the larger amount, and the
/// figures are those of what was kept.
fn windows_hold<const WORDS: usize>(recorded: bool) {
    let ring = Arc::new(BucketRing::<WORDS>::new(WORDS.max(2) as u64 - 1, 0));
    let kept: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (shared, list) = (Arc::clone(&ring), Arc::clone(&kept));
    on_threads(3, move |_| {
        let mut own: Vec<Epoch> = Vec::new();
        for _ in 0..3 {
            let at = 10 + below(6);
            match below(6) {
                0 if recorded => own.extend(shared.record(at)),
                0 | 1 if !own.is_empty() => shared.refund(own.swap_remove(0)),
                other => own.extend(shared.admit(at, 1 + other % 2)),
            }
        }
        list.lock().unwrap().extend(own.into_iter().map(|epoch| epoch.0));
    });
    let mut kept = kept.lock().unwrap().clone();
    kept.sort_unstable();
    if !recorded {
        for (first, third) in kept.iter().zip(kept.iter().skip(2)) {
            assert!(third - first >= WORDS as u64, "more than two in {first}..={third} of {kept:?}");
        }
    }
    let end = ring.record(10).expect("a record has no bound");
    let within = kept.iter().filter(|epoch| **epoch + WORDS as u64 > end.0).count() as u64;
    assert_eq!(ring.level(10).observed, within + 1, "{kept:?} at {end:?}");
    ring.refund(end);
    assert_eq!(ring.admit(10, within), None, "full");
    assert_eq!(ring.admit(10, within + 1), Some(end), "one more fits");
}

#[test]
fn rolling_windows_hold_under_edits_refunds_and_late_threads() {
    check(100, || windows_hold::<3>(false));
    check(50, || windows_hold::<3>(true));
}

#[test]
fn fixed_windows_hold_under_edits_refunds_and_late_threads() {
    check(100, || windows_hold::<1>(false));
}

/// Within one tick nothing drains: what is kept is at most the amount, and what is given back can be had.
#[test]
fn a_token_bucket_holds_under_refunds() {
    check(100, || {
        let bucket = Arc::new(TokenBucket::new(1 << 24));
        let kept = Arc::new(Mutex::new(0));
        let (shared, count) = (Arc::clone(&bucket), Arc::clone(&kept));
        on_threads(4, move |_| {
            for _ in 0..2 {
                let Some(drip) = shared.admit(70, 2) else { continue };
                if below(2) == 0 {
                    shared.refund(70, drip);
                } else {
                    *count.lock().unwrap() += 1;
                }
            }
        });
        let kept = *kept.lock().unwrap();
        assert!(kept <= 2);
        assert_eq!(bucket.level(70, 2).observed, kept);
        assert_eq!(bucket.admit(70, 2).is_some(), kept < 2);
    });
}

#[test]
fn a_gauge_holds_its_amount_and_ends_at_zero() {
    check(100, || {
        let gauge = Arc::new(Gauge::new());
        let inside = Arc::new(Mutex::new(0u64));
        let shared = Arc::clone(&gauge);
        on_threads(4, move |number| {
            for _ in 0..3 {
                if number == 3 {
                    shared.record();
                    shared.release();
                } else if shared.admit(2) {
                    *inside.lock().unwrap() += 1;
                    assert!(*inside.lock().unwrap() <= 2);
                    *inside.lock().unwrap() -= 1;
                    shared.release();
                }
            }
        });
        assert_eq!(gauge.live(), 0);
        assert!(gauge.admit(1));
    });
}

/// A chain of every kind of cell, as rulesets before and after an edit of the amounts see it.
struct Chains {
    before: Selected,
    after: Selected,
    /// As of `before`: rolling, gauge, fixed, bucket, shadowed rolling.
    amounts: [u64; 2],
}

impl Chains {
    fn new() -> Chains {
        let chain = |amounts: [u64; 2]| {
            let [small, large] = amounts.map(u128::from);
            let rpm =
                |id, amount, algorithm| limit(id, LimitType::Rpm, amount, rolling(60 * SECOND, algorithm));
            let mut shadow: Limit = limit("shadow", LimitType::Rpm, 1, sliding(60 * SECOND));
            shadow.posture.enforce = Enforce::AlertOnly;
            selected([
                rpm("rolling", large, Algorithm::SlidingWindow),
                limit("slots", LimitType::Concurrency, small, Window::Live),
                rpm("fixed", large, Algorithm::FixedWindow),
                rpm("bucket", large, Algorithm::TokenBucket),
                shadow,
            ])
        };
        Chains { before: chain([1, 3]), after: chain([2, 4]), amounts: [2, 4] }
    }
}

fn admit(plan: &Arc<GateOnePlan>, now: Now) -> Option<engine::Admission> {
    match plan.admit(now) {
        GateOneVerdict::Admitted(admission) => Some(admission),
        GateOneVerdict::Refused(refusal) => {
            assert!(!refusal.tripped.is_empty());
            None
        }
    }
}

/// Three threads that compile plans, admit, keep, give back and forget, under two rulesets, and one that sweeps: nothing
/// kept is lost, nothing given back stays, never more inside than the larger amount, no cell forgotten that counts.
#[test]
fn gate_one_holds_while_rulesets_change_and_cells_are_swept() {
    let chains = Arc::new(Chains::new());
    let now = support::now(SECOND);
    check(100, move || {
        let table = Arc::new(CellTable::new(support::epoch_offset()));
        let kept = Arc::new(Mutex::new(0u64));
        let inside = Arc::new(Mutex::new(0u64));
        let (shared, chained, count) = (Arc::clone(&table), Arc::clone(&chains), Arc::clone(&kept));
        on_threads(4, move |number| {
            if number == 3 {
                shared.sweep(now.monotonic);
                assert!(shared.live_slots() <= 4);
                shared.sweep(now.monotonic);
                return;
            }
            for _ in 0..2 {
                let plan = shared.plan(if below(2) == 0 { &chained.before } else { &chained.after });
                let Some(admission) = admit(&plan, now) else { continue };
                *inside.lock().unwrap() += 1;
                assert!(*inside.lock().unwrap() <= chained.amounts[0]);
                *inside.lock().unwrap() -= 1;
                match below(3) {
                    0 => drop(admission),
                    1 => admission.finish(Counted::GivenBack),
                    _ => {
                        admission.finish(Counted::Kept);
                        *count.lock().unwrap() += 1;
                    }
                }
            }
        });
        let kept = *kept.lock().unwrap();
        assert!(kept <= chains.amounts[1], "{kept} kept");
        let plan = table.plan(&chains.after);
        let figures: Vec<_> = plan.read(now).map(|reading| reading.observed).collect();
        assert_eq!(figures, [kept, 0, kept, kept, kept].map(|figure| Units(figure.into())));
        assert_eq!(admit(&plan, now).is_some(), kept < chains.amounts[1], "what is free can be had");
        drop(plan);
        table.sweep(now.monotonic);
        assert_eq!(table.len(), if kept == 0 { 0 } else { 4 }, "only the gauge is at zero");
    });
}

/// Simultaneous requests against one chain: exactly the tightest amount passes, though losers give back on the way.
#[test]
fn exactly_the_tightest_amount_passes_a_chain() {
    let chain = |amounts: [u128; 3]| {
        let rpm = |id, amount, algorithm| limit(id, LimitType::Rpm, amount, rolling(60 * SECOND, algorithm));
        Arc::new(selected([
            rpm("bucket", amounts[0], Algorithm::TokenBucket),
            rpm("fixed", amounts[1], Algorithm::FixedWindow),
            limit("slots", LimitType::Concurrency, amounts[2], Window::Live),
        ]))
    };
    let now = support::now(SECOND);
    for amounts in [[2, 3, 9], [3, 2, 9], [9, 3, 2]] {
        let chain = chain(amounts);
        check(50, move || {
            let plan = CellTable::new(support::epoch_offset()).plan(&chain);
            let passed: Arc<Mutex<Vec<_>>> = Arc::default();
            let (shared, list) = (Arc::clone(&plan), Arc::clone(&passed));
            on_threads(4, move |_| list.lock().unwrap().extend(admit(&shared, now)));
            assert_eq!(passed.lock().unwrap().len(), 2, "{amounts:?}");
            let admissions = std::mem::take(&mut *passed.lock().unwrap());
            admissions.into_iter().for_each(|admission| admission.finish(Counted::Kept));
            let figures: Vec<_> = plan.read(now).map(|reading| reading.observed.0).collect();
            assert_eq!(figures, [2, 2, 0]);
        });
    }
}

/// One request against some of the caps of a [`Race`], by their numbers: when it was called and answered, in steps of a
/// clock that every call and answer advances, and what the refusal named.
#[derive(Clone, Debug)]
struct Call {
    caps: Vec<usize>,
    called: u64,
    answered: u64,
    /// Empty if it was admitted.
    named: Vec<usize>,
    /// When it had given everything back.
    released: u64,
}

/// Three caps, in evaluation order, and requests of chains that share some of them. Requests that lose a race on a
/// later cap hold an earlier one for a moment.
struct Race {
    amounts: [u64; 3],
    calls: Vec<Call>,
}

impl Race {
    /// Three threads with two requests each, or one; the chains are drawn. If `released`, what is admitted is given back
    /// now and then.
    fn run(released: bool) -> Race {
        let amounts = std::array::from_fn(|_| 1 + below(2));
        let [a, b, c] = amounts.map(u128::from);
        let caps = [
            limit("a", LimitType::Concurrency, a, Window::Live),
            limit("b", LimitType::Rpm, b, rolling(60 * SECOND, Algorithm::FixedWindow)),
            limit("c", LimitType::Concurrency, c, Window::Live),
        ];
        let table = Arc::new(CellTable::new(support::epoch_offset()));
        // Of the machine, not of shuttle: it is no step of the program under test.
        let clock = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let list = Arc::clone(&calls);
        on_threads(3, move |_| {
            let tick = || clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut own = Vec::new();
            for _ in 0..1 + below(2) {
                let mask = 1 + below(7);
                let chosen: Vec<usize> = (0..3).filter(|cap| mask >> cap & 1 == 1).collect();
                let plan = table.plan(&selected(chosen.iter().map(|cap| caps[*cap].clone())));
                let called = tick();
                let verdict = plan.admit(support::now(SECOND));
                let answered = tick();
                let mut call = Call { caps: chosen, called, answered, named: Vec::new(), released: u64::MAX };
                match verdict {
                    GateOneVerdict::Admitted(admission) if released && below(2) == 0 => {
                        drop(admission);
                        call.released = tick();
                    }
                    GateOneVerdict::Admitted(admission) => std::mem::forget(admission),
                    GateOneVerdict::Refused(refusal) => {
                        let name =
                            |cap: &engine::Tripped| cap.instance.limit.id.as_str().as_bytes()[0] - b'a';
                        call.named = refusal.tripped.iter().map(|cap| name(cap).into()).collect();
                        assert!(refusal.tripped.iter().all(|cap| cap.observed >= cap.instance.amount));
                    }
                }
                own.push(call);
            }
            list.lock().unwrap().extend(own);
        });
        let calls = calls.lock().unwrap().clone();
        Race { amounts, calls }
    }

    /// Whether the calls left, made one after the other in some order that no answer contradicts, are answered so by
    /// plain numbers.
    fn explained(&self, left: &mut Vec<&Call>, used: [u64; 3]) -> bool {
        let Some(first_answer) = left.iter().map(|call| call.answered).min() else { return true };
        (0..left.len()).any(|next| {
            let call = left.swap_remove(next);
            let full = |cap: &usize| used[*cap] >= self.amounts[*cap];
            let mut then = used;
            let fits = if call.named.is_empty() {
                call.caps.iter().for_each(|cap| then[*cap] += 1);
                !call.caps.iter().any(full)
            } else {
                call.named.iter().all(full)
            };
            let explained = fits && call.called <= first_answer && self.explained(left, then);
            left.push(call);
            let last = left.len() - 1;
            left.swap(next, last);
            explained
        })
    }

    /// The naive oracle of a refusal: at some moment of the call as many as the amount were inside that were admitted,
    /// each from its call until it had given back.
    fn was_full(&self, cap: usize, refused: &Call) -> bool {
        let inside = |call: &&Call, at: u64| {
            call.named.is_empty() && call.caps.contains(&cap) && call.called <= at && at <= call.released
        };
        (refused.called..=refused.answered)
            .any(|at| self.calls.iter().filter(|call| inside(call, at)).count() as u64 >= self.amounts[cap])
    }
}

/// What is admitted stays: then the verdicts are those of one request after the other.
#[test]
fn verdicts_of_gate_one_are_those_of_one_request_after_the_other() {
    check(100, || {
        let race = Race::run(false);
        let mut left: Vec<&Call> = race.calls.iter().collect();
        assert!(race.explained(&mut left, [0; 3]), "{:?}: {:#?}", race.amounts, race.calls);
    });
}

#[test]
fn a_refusal_names_only_caps_that_were_full_of_admitted_requests() {
    check(100, || {
        let race = Race::run(true);
        for refused in &race.calls {
            for cap in &refused.named {
                assert!(race.was_full(*cap, refused), "{cap} of {:?}: {:#?}", race.amounts, race.calls);
            }
        }
    });
}
