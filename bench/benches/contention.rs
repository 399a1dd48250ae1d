//! What exactness costs when cores meet: one admission, against the usual ways to count, on 1 to 16 threads, and on one
//! hot counter, a thousand of zipf's frequencies, and a million alike.
//!
//! Run: `cargo bench -p bench --bench contention`. A figure is the time of one operation as a thread sees it. With more
//! threads than cores a figure holds the waiting for a core too.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use bench::{DIMS, chain, eight_caps};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use dashmap::DashMap;
use engine::cells::{Gauge, RollingWindow};
use engine::{
    Ask, CellTable, CoreId, Counted, Estimate, Gate, GateOneVerdict, GateTwoPlan, Monotonic, Now, PicoUsd,
    ReservationId, Settlement, Shard, Span, Tokens,
};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
const PERIOD: u64 = 60_000_000_000;
/// Nanoseconds that pass between two operations of a thread.
const STEP: u64 = 10_000;
/// Keys that a thread asks for in turn; drawn beforehand, so that drawing is not measured.
const DRAWN: usize = 1 << 16;

/// One way to count. The amounts are never reached: what is measured is an admission.
trait Counting: Sync {
    fn admit(&self, thread: usize, key: usize, now: u64) -> bool;
}

/// The cells as they are: found once, kept in the plan.
struct Cells(Vec<RollingWindow>);

impl Counting for Cells {
    fn admit(&self, _: usize, key: usize, now: u64) -> bool {
        self.0[key].admit(now, u64::MAX).is_some()
    }
}

/// The lower bound: neighbours on one cache line, no window, no limit.
struct Bare(Vec<AtomicU64>);

impl Counting for Bare {
    fn admit(&self, _: usize, key: usize, _: u64) -> bool {
        self.0[key].fetch_add(1, Ordering::AcqRel) < u64::MAX
    }
}

/// A fixed window in a map behind one lock.
struct Locked(Mutex<HashMap<usize, (u64, u64), ahash::RandomState>>);

impl Counting for Locked {
    fn admit(&self, _: usize, key: usize, now: u64) -> bool {
        let mut map = self.0.lock().expect("no thread panics");
        fixed_window(map.entry(key).or_default(), now)
    }
}

/// The same in a sharded concurrent map.
struct Sharded(DashMap<usize, (u64, u64), ahash::RandomState>);

impl Counting for Sharded {
    fn admit(&self, _: usize, key: usize, now: u64) -> bool {
        fixed_window(&mut self.0.entry(key).or_default(), now)
    }
}

fn fixed_window(counter: &mut (u64, u64), now: u64) -> bool {
    let window = now / PERIOD;
    if counter.0 != window {
        *counter = (window, 0);
    }
    counter.1 += 1;
    counter.1 < u64::MAX
}

/// One padded counter a thread; an admission adds to its own and sums all. Not exact: two threads may both see room
/// for one.
struct Stripes(Vec<Vec<Padded>>);

#[repr(align(128))]
struct Padded(AtomicU64);

impl Counting for Stripes {
    fn admit(&self, thread: usize, key: usize, _: u64) -> bool {
        let stripes = &self.0[key];
        stripes[thread].0.fetch_add(1, Ordering::AcqRel);
        stripes.iter().map(|stripe| stripe.0.load(Ordering::Acquire)).sum::<u64>() < u64::MAX
    }
}

/// The `governor` crate, keyed: GCRA in a concurrent map, with its own clock.
struct Governor(DefaultKeyedRateLimiter<usize>);

impl Counting for Governor {
    fn admit(&self, _: usize, key: usize, _: u64) -> bool {
        self.0.check_key(&key).is_ok()
    }
}

/// Runs `threads` threads of `iterations` operations each and returns the mean time that a thread took for all of its.
fn race(threads: usize, iterations: u64, work: impl Fn(usize, u64) + Sync) -> Duration {
    let barrier = Barrier::new(threads);
    let total = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    let began = Instant::now();
                    for turn in 0..iterations {
                        work(thread, turn);
                    }
                    began.elapsed()
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("no thread panics")).sum::<Duration>()
    });
    total / threads as u32
}

/// A thread's keys: `count` of them, the k-th as frequent as 1/k when `zipf`, else all alike.
fn draw(thread: usize, count: usize, zipf: bool) -> Vec<usize> {
    let mut state = 0x9E37_79B9_7F4A_7C15 ^ (thread as u64 + 1);
    let mut unit = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    };
    // The inverse of the continuous law with density 1/x on [1, count].
    let key = |unit: f64| match zipf {
        true => (count as f64).powf(unit) as usize - 1,
        false => (unit * count as f64) as usize,
    };
    (0..DRAWN).map(|_| key(unit()).min(count - 1)).collect()
}

fn counting(name: &str, keys: usize, threads: usize) -> Box<dyn Counting> {
    match name {
        "sealed ring" => Box::new(Cells((0..keys).map(|_| RollingWindow::new(PERIOD, 0)).collect())),
        "bare fetch_add" => Box::new(Bare((0..keys).map(|_| AtomicU64::new(0)).collect())),
        "mutexed map" => Box::new(Locked(Mutex::default())),
        "dashmap entry" => Box::new(Sharded(DashMap::default())),
        "summed stripes" => {
            let stripes = || (0..threads).map(|_| Padded(AtomicU64::new(0))).collect();
            Box::new(Stripes((0..keys).map(|_| stripes()).collect()))
        }
        _ => {
            let quota = Quota::per_second(std::num::NonZeroU32::MAX);
            Box::new(Governor(RateLimiter::keyed(quota)))
        }
    }
}

fn admissions(criterion: &mut Criterion) {
    let ways =
        ["sealed ring", "bare fetch_add", "mutexed map", "dashmap entry", "summed stripes", "governor"];
    for (workload, keys, zipf) in
        [("one hot", 1, false), ("zipf over 10^3", 1_000, true), ("uniform over 10^6", 1_000_000, false)]
    {
        let mut group = criterion.benchmark_group(format!("admit, {workload}"));
        for way in ways {
            for threads in THREADS {
                // 16 padded stripes for each of a million keys would be 2 GiB; four show the trend.
                if way == "summed stripes" && keys > 1_000 && threads > 4 {
                    continue;
                }
                let drawn: Vec<Vec<usize>> = (0..threads).map(|thread| draw(thread, keys, zipf)).collect();
                let counting = counting(way, keys, threads);
                group.bench_function(BenchmarkId::new(way, threads), |bencher| {
                    bencher.iter_custom(|iterations| {
                        race(threads, iterations, |thread, turn| {
                            let key = drawn[thread][turn as usize % DRAWN];
                            black_box(counting.admit(thread, key, turn * STEP));
                        })
                    });
                });
            }
        }
        group.finish();
    }
}

fn gauges(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gauge, acquire and release, one hot");
    for threads in THREADS {
        let gauge = Gauge::new();
        group.bench_function(BenchmarkId::from_parameter(threads), |bencher| {
            bencher.iter_custom(|iterations| {
                race(threads, iterations, |_, _| {
                    if black_box(&gauge).admit(1 << 30) {
                        gauge.release();
                    }
                })
            });
        });
    }
    group.finish();
}

/// Gate 1 as a whole: two rates and a gauge of one chain, each core with its own plan over the same cells.
fn gate_one(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gate 1, three caps, one hot chain");
    let (rules, chain) = (eight_caps(), chain());
    let wall = "2026-08-15T12:00:00Z".parse().expect("a time stamp");
    for threads in THREADS {
        let table = CellTable::new(Span::ZERO);
        let plans: Vec<_> =
            (0..threads).map(|_| Arc::clone(&table.plan(&rules.resolve(&chain, Gate::One, &DIMS)))).collect();
        group.bench_function(BenchmarkId::from_parameter(threads), |bencher| {
            bencher.iter_custom(|iterations| {
                race(threads, iterations, |thread, turn| {
                    let now = Now { monotonic: Monotonic(turn * STEP), wall };
                    if let GateOneVerdict::Admitted(admission) = plans[thread].admit(now) {
                        admission.finish(Counted::Kept);
                    }
                })
            });
        });
    }
    group.finish();
}

/// Gate 2 as a whole: five caps of one chain held and settled, by a shard that only its own thread touches, and by one
/// shard behind a lock that all threads share.
fn gate_two(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reserve and settle, five caps, one hot chain");
    let selected = eight_caps().resolve(&chain(), Gate::Two, &DIMS);
    let shard = || Mutex::new(Shard::new(CoreId(0), 1));
    for threads in THREADS {
        let owned: Vec<_> = (0..threads).map(|_| shard()).collect();
        let shared = shard();
        // Every core compiles its own.
        let plans: Vec<_> = (0..threads).map(|_| GateTwoPlan::new(&selected, 1)).collect();
        for (way, shards) in
            [("a shard each", &owned[..]), ("one mutexed shard", std::slice::from_ref(&shared))]
        {
            group.bench_function(BenchmarkId::new(way, threads), |bencher| {
                bencher.iter_custom(|iterations| {
                    race(threads, iterations, |thread, turn| {
                        let id = ReservationId::new(CoreId(thread as u16), turn);
                        let shard = &shards[thread % shards.len()];
                        reserve_and_settle(shard, &plans[thread], id, turn * STEP);
                    })
                });
            });
        }
    }
    group.finish();
}

fn reserve_and_settle(shard: &Mutex<Shard>, plan: &Arc<GateTwoPlan>, id: ReservationId, monotonic: u64) {
    let wall = jiff::Timestamp::UNIX_EPOCH;
    let now = Now { monotonic: Monotonic(monotonic), wall };
    let estimate = Estimate { tokens: Tokens(300), money: Some(PicoUsd(300)) };
    let deadline = now.monotonic.plus(Span::from_secs(3600));
    let plan = Arc::clone(plan);
    let ask = Ask::Reserve { id, plan, estimate, deadline, final_round: false };
    let _ = black_box(shard.lock().expect("no thread panics").apply(now, ask));
    let settlement = Settlement { tokens: Tokens(42), money: Some(PicoUsd(42)), estimated: false };
    let _ = shard.lock().expect("no thread panics").apply(now, Ask::Settle { id, settlement });
}

fn short() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(10)
}

criterion_group! { name = benches; config = short(); targets = admissions, gauges, gate_one, gate_two }
criterion_main!(benches);
