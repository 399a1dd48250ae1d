//! Every interleaving of two or three threads on the gate-1 cells, by loom, with up to three preemptions. A ring of three
//! words stands for the one of 61: the code is the same, the number is a parameter.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p engine --release --test loom_cells`

#![cfg(loom)]

mod support;

use engine::cells::{BucketRing, FixedWindow, Gauge, TokenBucket};
use engine::{CellTable, Counted, GateOnePlan, GateOneVerdict, LimitType, Window};
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

/// Buckets of one nanosecond: two of the past, and the current one.
type Ring = BucketRing<3>;

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_within(3, model);
}

fn check_within(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Runs `other` on a thread beside `own`.
fn beside<Own, Other: 'static>(
    own: impl FnOnce() -> Own,
    other: impl FnOnce() -> Other + 'static,
) -> (Own, Other) {
    let other = thread::spawn(other);
    let own = own();
    (own, other.join().unwrap())
}

/// Admits at two times at once over a ring that holds `before`; gives which of them passed.
fn two_at_once(ring: &Arc<Ring>, amount: u64, times: [u64; 2]) -> [Option<u64>; 2] {
    let other = {
        let ring = Arc::clone(ring);
        thread::spawn(move || ring.admit(times[1], amount).map(|epoch| epoch.0))
    };
    let own = ring.admit(times[0], amount).map(|epoch| epoch.0);
    [own, other.join().unwrap()]
}

#[test]
fn in_one_bucket_exactly_the_amount_passes() {
    check(|| {
        let ring = Arc::new(Ring::new(2, 0));
        let passed = two_at_once(&ring, 1, [10, 10]);
        assert_eq!(passed.iter().flatten().count(), 1);
        assert_eq!(ring.level(10).observed, 1);
    });
}

#[test]
fn across_the_edge_of_a_bucket_never_more_than_the_amount() {
    check(|| {
        let ring = Arc::new(Ring::new(2, 0));
        assert!(ring.admit(10, 2).is_some());
        let passed = two_at_once(&ring, 2, [10, 11]);
        assert_eq!(passed.iter().flatten().count(), 1, "one of two was left");
        assert_eq!(ring.level(11).observed, 2);
    });
}

#[test]
fn a_thread_a_whole_ring_late_is_counted_where_time_is_now() {
    check(|| {
        let ring = Arc::new(Ring::new(2, 0));
        let passed = two_at_once(&ring, 1, [10, 13]);
        let [early, late] = passed;
        assert!(
            late.is_some() || early == Some(16),
            "only one that came in the same bucket refuses the later"
        );
        let counted = passed.iter().flatten().filter(|epoch| **epoch + 2 >= 16).count() as u64;
        assert_eq!(ring.level(13).observed, counted);
        assert!(counted <= 1);
    });
}

#[test]
fn a_refund_beside_an_admission_is_neither_lost_nor_doubled() {
    check(|| {
        let ring = Arc::new(Ring::new(2, 0));
        let first = ring.admit(10, 1).unwrap();
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.admit(11, 1).is_some())
        };
        ring.refund(first);
        let passed = other.join().unwrap();
        assert_eq!(ring.level(11).observed, u64::from(passed));
        assert_eq!(ring.admit(11, 1).is_some(), !passed, "what was given back can be had");
    });
}

#[test]
fn a_record_beside_an_admission_counts_both() {
    check(|| {
        let ring = Arc::new(Ring::new(2, 0));
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.record(11).is_some())
        };
        let passed = ring.admit(10, 1).is_some();
        assert!(other.join().unwrap());
        assert_eq!(ring.level(11).observed, 1 + u64::from(passed));
    });
}

#[test]
fn a_gauge_has_one_holder_of_one_slot_and_ends_at_zero() {
    check(|| {
        let gauge = Arc::new(Gauge::new());
        let other = {
            let gauge = Arc::clone(&gauge);
            thread::spawn(move || gauge.admit(1))
        };
        let own = gauge.admit(1);
        let other = other.join().unwrap();
        assert!(own != other, "exactly one passes");
        gauge.release();
        assert_eq!(gauge.live(), 0);
    });
    check(|| {
        let gauge = Arc::new(Gauge::new());
        let other = {
            let gauge = Arc::clone(&gauge);
            thread::spawn(move || gauge.admit(1).then(|| gauge.release()).is_some())
        };
        let own = gauge.admit(1).then(|| gauge.release()).is_some();
        assert!(other.join().unwrap() || own);
        assert_eq!(gauge.live(), 0);
    });
}

#[test]
fn a_token_bucket_of_one_admits_one() {
    check(|| {
        let bucket = Arc::new(TokenBucket::new(1 << 20));
        let other = {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || bucket.admit(70, 1).is_some())
        };
        let own = bucket.admit(1, 1).is_some();
        assert!(own != other.join().unwrap());
    });
}

/// A ring of two words: three threads in three would be an hour.
#[test]
fn of_three_threads_across_an_edge_exactly_the_amount_passes() {
    check_within(2, || {
        let ring = Arc::new(BucketRing::<2>::new(1, 0));
        let others: Vec<_> = [10, 11]
            .map(|at| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.admit(at, 2).is_some())
            })
            .into();
        let own = ring.admit(11, 2).is_some();
        let passed = others.into_iter().map(|other| u64::from(other.join().unwrap())).sum::<u64>();
        assert_eq!(passed + u64::from(own), 2, "all three are in one window");
        assert_eq!(ring.level(11).observed, 2);
    });
}

#[test]
fn a_refund_never_reaches_the_bucket_that_took_its_place() {
    check(|| {
        let ring = Arc::new(Ring::new(2, 0));
        let first = ring.admit(10, 1).unwrap();
        let newer = Arc::clone(&ring);
        let ((), passed) = beside(|| ring.refund(first), move || newer.admit(13, 1).is_some());
        assert!(passed, "the first has left the window, given back or not");
        assert_eq!(ring.level(13).observed, 1);
    });
}

#[test]
fn an_edit_beside_an_admission_holds_for_the_one_who_brings_it() {
    check(|| {
        let ring = Arc::new(Ring::new(2, 0));
        let edited = Arc::clone(&ring);
        let (one, two) = beside(|| ring.admit(10, 1).is_some(), move || edited.admit(11, 2).is_some());
        assert!(two, "two fit, and at most one other came");
        assert_eq!(ring.level(11).observed, 1 + u64::from(one));
    });
}

#[test]
fn a_look_beside_an_admission_sees_it_or_not_and_never_refuses_wrongly() {
    check(|| {
        let ring = Arc::new(Ring::new(2, 0));
        assert!(ring.admit(10, 2).is_some());
        let other = Arc::clone(&ring);
        let (over, passed) = beside(|| ring.over(11, 2), move || other.admit(11, 2).is_some());
        assert!(passed);
        assert!(over.is_none_or(|over| over.observed == 2));
        assert_eq!(ring.over(11, 2).map(|over| over.observed), Some(2));
    });
}

#[test]
fn a_fixed_window_is_exact_on_both_sides_of_its_end() {
    check(|| {
        let window = Arc::new(FixedWindow::new(1, 0));
        let newer = Arc::clone(&window);
        let (early, late) = beside(|| window.admit(10, 1), move || newer.admit(11, 1));
        match (early, late) {
            (Some(early), Some(late)) => assert!(early < late, "one in each window"),
            (one, other) => {
                let passed = one.or(other).expect("an empty window admits");
                assert_eq!(passed.0, 12, "only one in the very window refuses");
            }
        }
        assert_eq!(window.level(11).observed, 1);
    });
    check(|| {
        let window = Arc::new(FixedWindow::new(1, 0));
        let first = window.admit(10, 1).unwrap();
        let newer = Arc::clone(&window);
        let ((), passed) = beside(|| window.refund(first), move || newer.admit(11, 1).is_some());
        assert!(passed);
        assert_eq!(window.level(11).observed, 1, "the refund stayed in its own window");
    });
}

#[test]
fn a_gauge_never_refuses_while_a_slot_is_free() {
    check(|| {
        let gauge = Arc::new(Gauge::new());
        assert!(gauge.admit(1));
        let other = Arc::clone(&gauge);
        let (own, other) = beside(
            || {
                gauge.release();
                gauge.admit(1)
            },
            move || other.admit(1),
        );
        assert!(own != other, "the slot that came free is one's or the other's");
        assert_eq!(gauge.live(), 1);
    });
    check(|| {
        let gauge = Arc::new(Gauge::new());
        let other = Arc::clone(&gauge);
        let (own, ()) = beside(|| gauge.admit(1), move || other.record());
        assert_eq!(gauge.live(), 1 + u64::from(own), "what only observes is counted whatever the figure");
    });
}

#[test]
fn a_refund_into_a_token_bucket_takes_one_and_no_one_elses() {
    check(|| {
        let bucket = Arc::new(TokenBucket::new(1 << 20));
        let first = bucket.admit(1, 1).unwrap();
        let other = Arc::clone(&bucket);
        let ((), passed) = beside(|| bucket.refund(1, first), move || other.admit(1, 1).is_some());
        assert_eq!(bucket.level(1, 1).observed, u64::from(passed));
        assert_eq!(bucket.admit(1, 1).is_some(), !passed);
    });
}

/// Two threads against two gauges in one plan: the loser of a race gives back what it took.
#[test]
fn a_conjunction_of_two_gauges_lets_exactly_one_in_and_ends_at_zero() {
    for amounts in [[1, 1], [2, 1], [1, 2]] {
        check_within(2, move || {
            let slots = |id, amount| support::limit(id, LimitType::Concurrency, amount, Window::Live);
            let chain = support::selected([slots("a", amounts[0]), slots("b", amounts[1])]);
            let plan = CellTable::new(support::epoch_offset()).plan(&chain);
            let admit = |plan: &std::sync::Arc<GateOnePlan>| match plan.admit(support::now(0)) {
                GateOneVerdict::Admitted(admission) => Some(admission),
                GateOneVerdict::Refused(refusal) => {
                    assert!(!refusal.tripped.is_empty());
                    None
                }
            };
            let other = std::sync::Arc::clone(&plan);
            let (own, other) = beside(|| admit(&plan), move || admit(&other));
            assert!(own.is_some() != other.is_some(), "{amounts:?}");
            own.into_iter().chain(other).for_each(|admission| admission.finish(Counted::Kept));
            assert!(plan.read(support::now(0)).all(|reading| reading.observed.0 == 0));
        });
    }
}

/// One takes `a` and then `b`, others `b` alone and `a` alone, one slot each. Who loses `b` held `a` for a moment; who
/// finds `a` full then must not be refused by it. The outcomes are those of one after the other, in any order.
#[test]
fn a_slot_that_is_given_back_by_a_loser_refuses_no_one() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let caps = [&["a", "b"][..], &["b"], &["a"]];
    let legal = orders.map(|order| {
        let (mut full, mut passed) = (Vec::new(), [false; 3]);
        for turn in order {
            if caps[turn].iter().all(|cap| !full.contains(cap)) {
                full.extend(caps[turn]);
                passed[turn] = true;
            }
        }
        passed
    });
    check(move || {
        let table = CellTable::new(support::epoch_offset());
        let [both, others @ ..] = caps.map(|caps| {
            let slots = |id: &&str| support::limit(id, LimitType::Concurrency, 1, Window::Live);
            table.plan(&support::selected(caps.iter().map(slots)))
        });
        let admit = |plan: &std::sync::Arc<GateOnePlan>| match plan.admit(support::now(0)) {
            GateOneVerdict::Admitted(admission) => {
                std::mem::forget(admission);
                true
            }
            GateOneVerdict::Refused(_) => false,
        };
        let others: Vec<_> = others.into_iter().map(|plan| thread::spawn(move || admit(&plan))).collect();
        let own = admit(&both);
        let others: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
        let passed = [own, others[0], others[1]];
        assert!(legal.contains(&passed), "{passed:?}");
    });
}
