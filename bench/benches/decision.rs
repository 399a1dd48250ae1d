//! What a decision costs: a chain of four levels with eight caps (`rpm`, `concurrency`, `tpm`, quotas, budgets), its
//! counters known and its own core the owner of all of them.
//!
//! Run: `cargo bench -p bench --bench decision`. Figures that are published are taken on an idle machine.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bench::{DIMS, chain, eight_caps};
use criterion::{Criterion, criterion_group, criterion_main};
use engine::cells::{Gauge, RollingWindow, TokenBucket};
use engine::{
    CellTable, Conjunction, CoreId, Counted, Estimate, Gate, GateOnePlan, GateOneVerdict, GateTwoPlan,
    Monotonic, Now, PicoUsd, Reservation, ReservationId, Settlement, Shard, Span, Step, Tokens,
};

/// One core with everything warm.
struct Core {
    gate_one: Arc<GateOnePlan>,
    gate_two: Arc<GateTwoPlan>,
    shard: Shard,
    sequence: u64,
    wall: jiff::Timestamp,
}

impl Core {
    fn new() -> Core {
        let (ruleset, chain) = (eight_caps(), chain());
        let gate_one = CellTable::new(Span::ZERO).plan(&ruleset.resolve(&chain, Gate::One, &DIMS));
        let gate_two = GateTwoPlan::new(&ruleset.resolve(&chain, Gate::Two, &DIMS), 1);
        assert_eq!(gate_one.instances().len() + gate_two.instances().len(), 8);
        let wall = "2026-08-15T12:00:00Z".parse().expect("a time stamp");
        Core { gate_one, gate_two, shard: Shard::new(CoreId(0), 1), sequence: 0, wall }
    }

    /// Ten microseconds later than last time.
    fn now(&mut self) -> Now {
        self.sequence += 1;
        Now { monotonic: Monotonic(self.sequence * 10_000), wall: self.wall }
    }

    fn reserve(&mut self, now: Now) -> Reservation {
        let id = ReservationId::new(CoreId(0), self.sequence);
        let estimate = Estimate { tokens: Tokens(300), money: Some(PicoUsd(45_000_000)) };
        let deadline = now.monotonic.plus(Span::from_secs(900));
        let mut conjunction = Conjunction::new(id, Arc::clone(&self.gate_two), estimate, deadline);
        loop {
            match conjunction.poll() {
                Step::Send(owner, ask) => conjunction.answered(owner, self.shard.apply(now, ask)),
                Step::Admitted(reservation) => return reservation,
                Step::Wait | Step::Refused(_) => unreachable!("the amounts are never reached"),
            }
        }
    }

    fn settle(&mut self, now: Now, reservation: Reservation) {
        let settlement = Settlement { tokens: Tokens(15), money: Some(PicoUsd(2_250_000)), estimated: false };
        for (_, ask) in reservation.settle(settlement) {
            self.shard.apply(now, ask);
        }
    }
}

fn decision(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision");
    let (rules, chain) = (eight_caps(), chain());
    group.bench_function("resolve, cold", |bencher| {
        bencher.iter(|| {
            let one = rules.resolve(black_box(&chain), Gate::One, &DIMS);
            (one, rules.resolve(black_box(&chain), Gate::Two, &DIMS))
        });
    });
    let mut core = Core::new();
    group.bench_function("gate 1, admit and finish", |bencher| {
        bencher.iter(|| {
            let now = core.now();
            match core.gate_one.admit(now) {
                GateOneVerdict::Admitted(admission) => admission.finish(Counted::Kept),
                GateOneVerdict::Refused(_) => unreachable!("the amounts are never reached"),
            }
        });
    });
    let mut core = Core::new();
    group.bench_function("gate 2, reserve and settle", |bencher| {
        bencher.iter(|| {
            let now = core.now();
            let reservation = core.reserve(now);
            core.settle(now, reservation);
        });
    });
    let mut core = Core::new();
    group.bench_function("whole, both gates and the settlement", |bencher| {
        bencher.iter(|| {
            let now = core.now();
            let GateOneVerdict::Admitted(admission) = core.gate_one.admit(now) else {
                unreachable!("the amounts are never reached")
            };
            let reservation = core.reserve(now);
            core.settle(now, reservation);
            admission.finish(Counted::Kept);
        });
    });
    group.finish();
}

fn cells(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cells, one thread");
    let bare = AtomicU64::new(0);
    group.bench_function("bare fetch_add", |bencher| {
        bencher.iter(|| black_box(&bare).fetch_add(1, Ordering::AcqRel));
    });
    let ring = RollingWindow::new(60_000_000_000, 0);
    let mut now = 0;
    group.bench_function("rolling window, admit", |bencher| {
        bencher.iter(|| {
            now += 10_000;
            black_box(&ring).admit(now, u64::MAX)
        });
    });
    let full = RollingWindow::new(60_000_000_000, 0);
    assert!(full.admit(0, 1).is_some());
    group.bench_function("rolling window, refuse", |bencher| {
        bencher.iter(|| black_box(&full).admit(1, 1));
    });
    let bucket = TokenBucket::new(60_000_000_000);
    let mut now = 0;
    group.bench_function("token bucket, admit", |bencher| {
        bencher.iter(|| {
            now += 10_000_000;
            black_box(&bucket).admit(now, 1 << 20)
        });
    });
    let gauge = Gauge::new();
    group.bench_function("gauge, take and release", |bencher| {
        bencher.iter(|| {
            let taken = black_box(&gauge).admit(8);
            gauge.release();
            taken
        });
    });
    group.finish();
}

fn short() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(800))
        .sample_size(30)
}

criterion_group! { name = benches; config = short(); targets = decision, cells }
criterion_main!(benches);
