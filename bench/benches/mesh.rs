//! What it costs to ask another core: five caps held by their owner, the answer back through the rings, and the
//! settlement, which nobody waits for; while the owner sleeps and while it is busy.
//!
//! Run: `cargo bench -p bench --bench mesh`. The asker runs on this thread; the owner is a second thread that serves its
//! end of the mesh as a core does, either sleeping when there is nothing to do, or never.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::{DIMS, chain, eight_caps};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use engine::{
    Ask, CoreId, Estimate, Gate, GateTwoPlan, Monotonic, Now, PicoUsd, ReservationId, Settlement, Shard,
    Tokens,
};
use net::mesh::{Mesh, Parcel, Post, Ticket};

const ASKER: CoreId = CoreId(0);
const OWNER: CoreId = CoreId(1);

/// Answers asks until told to stop; `sleeps` when nothing has come.
fn serve(mesh: Arc<Mesh>, stop: Arc<AtomicBool>, sleeps: bool) {
    let post = Post::new(mesh, OWNER);
    let mut shard = Shard::new(OWNER, 2);
    let wall = "2026-08-15T12:00:00Z".parse().expect("a time stamp");
    let answer = |shard: &mut Shard, post: &Post| {
        post.collect(|from, parcel| {
            if let Parcel::Ask { ticket: Some(ticket), ask } = parcel {
                let now = Now { monotonic: Monotonic(1), wall };
                let answer = shard.apply(now, ask);
                post.send(from, Parcel::Answer { ticket, answer });
            }
        });
    };
    if !sleeps {
        while !stop.load(Ordering::Relaxed) {
            answer(&mut shard, &post);
        }
        return;
    }
    let ended = net::rt::run_core(None, async move {
        while !stop.load(Ordering::Relaxed) {
            post.arrival().await;
            answer(&mut shard, &post);
        }
    });
    ended.expect("a runtime");
}

/// Sends `count` asks at once and waits for all answers, over and over.
fn round_trips(count: usize, sleeps: bool, iterations: u64) -> Duration {
    let mesh = Mesh::new(2);
    let stop = Arc::new(AtomicBool::new(false));
    let owner = {
        let (mesh, stop) = (mesh.clone(), stop.clone());
        std::thread::spawn(move || serve(mesh, stop, sleeps))
    };
    let plan = GateTwoPlan::new(&eight_caps().resolve(&chain(), Gate::Two, &DIMS), 2);
    let post = Post::new(mesh.clone(), ASKER);
    let estimate = Estimate { tokens: Tokens(300), money: Some(PicoUsd(300)) };
    let settlement = Settlement { tokens: Tokens(42), money: Some(PicoUsd(42)), estimated: false };
    let began = Instant::now();
    for turn in 0..iterations {
        for index in 0..count {
            let ticket = Some(Ticket(turn * count as u64 + index as u64));
            let id = ReservationId::new(ASKER, turn * count as u64 + index as u64);
            let (plan, deadline) = (plan.clone(), Monotonic(u64::MAX));
            let ask = Ask::Reserve { id, plan, estimate, deadline, final_round: false };
            post.send(OWNER, Parcel::Ask { ticket, ask });
        }
        let mut missing = count;
        while missing > 0 {
            post.collect(|_, parcel| {
                black_box(parcel);
                missing -= 1;
            });
        }
        for index in 0..count {
            let id = ReservationId::new(ASKER, turn * count as u64 + index as u64);
            post.send(OWNER, Parcel::Ask { ticket: None, ask: Ask::Settle { id, settlement } });
        }
    }
    let took = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    mesh.ring(OWNER);
    owner.join().expect("the owner does not panic");
    took
}

fn trips(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mesh, reserve, answer, settle");
    for (owner, sleeps) in [("owner asleep", true), ("owner busy", false)] {
        for at_once in [1, 16, 256] {
            group.bench_function(BenchmarkId::new(owner, at_once), |bencher| {
                bencher.iter_custom(|iterations| round_trips(at_once, sleeps, iterations));
            });
        }
    }
    group.finish();
}

fn short() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(10)
}

criterion_group! { name = benches; config = short(); targets = trips }
criterion_main!(benches);
