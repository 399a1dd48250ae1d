//! Gate 1 case by case, and on real threads: what a refusal lists and gives back, what postures do. SPEC §3 to §5.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use engine::{
    Algorithm, CellTable, Counted, Enforce, GateOnePlan, GateOneVerdict, Limit, LimitType, Mode, Monotonic,
    Refusal, Span, Units, Wait, Window,
};
use support::{SECOND, epoch_offset, limit, now, rolling, selected, sliding};

fn rpm(id: &str, amount: u128) -> Limit {
    limit(id, LimitType::Rpm, amount, sliding(60 * SECOND))
}

fn slots(id: &str, amount: u128) -> Limit {
    limit(id, LimitType::Concurrency, amount, Window::Live)
}

fn gate_one(limits: impl IntoIterator<Item = Limit>) -> Arc<GateOnePlan> {
    CellTable::new(epoch_offset()).plan(&selected(limits))
}

fn named(refusal: &Refusal) -> Vec<(&str, u128, Wait)> {
    let caps = refusal.tripped.iter();
    caps.map(|cap| (cap.instance.limit.id.as_str(), cap.observed.0, cap.wait)).collect()
}

fn observed(plan: &GateOnePlan, at: u64) -> Vec<u128> {
    plan.read(now(at)).map(|reading| reading.observed.0).collect()
}

fn refused(verdict: GateOneVerdict) -> Refusal {
    match verdict {
        GateOneVerdict::Refused(refusal) => refusal,
        GateOneVerdict::Admitted(_) => panic!("admitted"),
    }
}

fn admitted(verdict: GateOneVerdict) -> engine::Admission {
    match verdict {
        GateOneVerdict::Admitted(admission) => admission,
        GateOneVerdict::Refused(refusal) => panic!("{refusal}"),
    }
}

#[test]
fn a_gate_one_refusal_lists_every_cap_over_and_consumes_nothing() {
    let plan = gate_one([rpm("deep", 9), rpm("mid", 1), slots("slots", 1), rpm("wide", 9), rpm("last", 1)]);
    let first = admitted(plan.admit(now(0)));
    let refusal = refused(plan.admit(now(SECOND)));
    let bucket_leaves = Wait::For(Span(60 * SECOND));
    assert_eq!(
        named(&refusal),
        [("mid", 1, bucket_leaves), ("slots", 1, Wait::SOON), ("last", 1, bucket_leaves)],
        "evaluation order, with what is over at this gate"
    );
    assert_eq!(refusal.refused_by().instance.limit.id.as_str(), "mid");
    assert!(refusal.retryable(), "60 s are the horizon");
    assert_eq!(observed(&plan, SECOND), [1, 1, 1, 1, 1]);
    first.finish(Counted::Kept);
    assert_eq!(observed(&plan, SECOND), [1, 1, 0, 1, 1], "the slot is free, the rates stay");
    assert_eq!(named(&refused(plan.admit(now(SECOND)))).len(), 2);
    admitted(plan.admit(now(61 * SECOND))).finish(Counted::GivenBack);
    assert_eq!(observed(&plan, 61 * SECOND), [0; 5], "given back, and the first has left the window");
}

#[test]
fn a_dropped_admission_gives_everything_back_even_in_a_panic() {
    let plan = gate_one([
        rpm("r", 2),
        slots("s", 2),
        limit("f", LimitType::Rpm, 2, rolling(SECOND, Algorithm::FixedWindow)),
        limit("t", LimitType::Rpm, 2, rolling(SECOND, Algorithm::TokenBucket)),
    ]);
    let panicked = std::panic::catch_unwind(|| {
        let _held = admitted(plan.admit(now(0)));
        assert_eq!(observed(&plan, 0), [1; 4]);
        std::panic::resume_unwind(Box::new("the exchange panics"));
    });
    assert!(panicked.is_err());
    assert_eq!(observed(&plan, 0), [0; 4]);
}

#[test]
fn postures_of_gate_one() {
    let posture = |limit: Limit, mode, enforce| {
        let mut limit = limit;
        (limit.posture.mode, limit.posture.enforce) = (mode, enforce);
        limit
    };
    let mut suspended = rpm("suspended", 1);
    suspended.suspended = true;
    let plan = gate_one([
        posture(rpm("off", 1), Mode::Off, Enforce::Hard),
        posture(rpm("shadow", 1), Mode::Shadow, Enforce::Hard),
        posture(rpm("alert", 1), Mode::On, Enforce::AlertOnly),
        posture(slots("alert_slots", 1), Mode::On, Enforce::AlertOnly),
        suspended,
        rpm("hard", 3),
    ]);
    let one = admitted(plan.admit(now(0)));
    assert_eq!(one.alerts().count(), 0);
    let two = admitted(plan.admit(now(0)));
    assert_eq!(two.alerts().map(|id| id.as_str()).collect::<Vec<_>>(), ["alert", "alert_slots"]);
    assert_eq!(two.shadowed().map(|id| id.as_str()).collect::<Vec<_>>(), ["shadow"]);
    assert_eq!(observed(&plan, 0), [0, 2, 2, 2, 0, 2]);
    let left = two.requests_left(now(0)).unwrap();
    assert_eq!((left.limit, left.remaining, left.reset), (Units(3), Units(1), Span(61 * SECOND)));
    admitted(plan.admit(now(0))).finish(Counted::Kept);
    assert_eq!(named(&refused(plan.admit(now(0)))).len(), 1, "only the hard one refuses");
    one.finish(Counted::Kept);
    two.finish(Counted::Kept);
    assert_eq!(observed(&plan, 0), [0, 3, 3, 0, 0, 3]);
}

#[test]
fn an_edited_amount_keeps_the_usage_and_no_slot_is_lost() {
    let table = CellTable::new(epoch_offset());
    let plan = |amount| table.plan(&selected([rpm("r", amount), slots("s", amount)]));
    let (two, three) = (plan(2), plan(3));
    assert_eq!(table.len(), 2);
    let held = [admitted(two.admit(now(0))), admitted(two.admit(now(0)))];
    refused(two.admit(now(0))).refused_by();
    let third = admitted(three.admit(now(0)));
    assert_eq!(named(&refused(three.admit(now(0)))).len(), 2);
    held.into_iter().for_each(|admission| admission.finish(Counted::Kept));
    third.finish(Counted::Kept);
    assert_eq!(observed(&two, 0), [3, 0]);
    assert_eq!(table.sweep(Monotonic(0)), 0, "plans still know them");
    drop((two, three));
    assert_eq!(table.sweep(Monotonic(0)), 1, "the gauge is at zero, the rate is not");
    assert_eq!(table.sweep(Monotonic(100 * SECOND)), 1);
}

/// 2 to 16 threads against a chain of caps: what passes is exactly the tightest amount, and nothing is lost or left.
#[test]
fn exactly_n_of_m_pass_a_chain_of_caps_on_any_number_of_threads() {
    for threads in [2, 4, 16] {
        for (amounts, each) in [([50, 7, 20], 40u64), ([3, 5, 4], 20), ([64, 64, 64], 40)] {
            let tightest = *amounts.iter().min().unwrap();
            let limits =
                [rpm("a", amounts[0]), slots("s", 1_000), rpm("b", amounts[1]), rpm("c", amounts[2])];
            let plan = gate_one(limits);
            let (passed, barrier) = (AtomicU64::new(0), Barrier::new(threads));
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        barrier.wait();
                        for _ in 0..each {
                            match plan.admit(now(5)) {
                                GateOneVerdict::Admitted(admission) => {
                                    passed.fetch_add(1, Ordering::Relaxed);
                                    admission.finish(Counted::Kept);
                                }
                                GateOneVerdict::Refused(refusal) => assert!(!refusal.tripped.is_empty()),
                            }
                        }
                    });
                }
            });
            assert_eq!(u128::from(passed.into_inner()), tightest, "{threads} threads, {amounts:?}");
            assert_eq!(observed(&plan, 5), [tightest, 0, tightest, tightest]);
        }
    }
}

/// Threads that finish, give back and drop at random, never more than the slots inside; all zero at the end.
#[test]
fn slots_and_refunds_are_exact_under_threads() {
    let plan = gate_one([slots("s", 3), rpm("r", 1_000_000)]);
    let (inside, kept) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..8u64 {
            let (plan, inside, kept) = (&plan, &inside, &kept);
            scope.spawn(move || {
                for turn in 0..5_000u64 {
                    if let GateOneVerdict::Admitted(admission) = plan.admit(now(thread)) {
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        match (thread + turn) % 3 {
                            0 => drop(admission),
                            1 => admission.finish(Counted::GivenBack),
                            _ => {
                                admission.finish(Counted::Kept);
                                kept.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
        }
    });
    assert_eq!(observed(&plan, 9), [0, u128::from(kept.into_inner())]);
}
