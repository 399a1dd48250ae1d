//! Every interleaving of two threads on the gate-1 cells, by loom. A ring of three words stands for the one of 61: the
//! code is the same, the number is a parameter.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p engine --release --test loom_cells`

#![cfg(loom)]

use engine::cells::{BucketRing, Gauge, TokenBucket};
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

/// Buckets of one nanosecond: two of the past, and the current one.
type Ring = BucketRing<3>;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
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
