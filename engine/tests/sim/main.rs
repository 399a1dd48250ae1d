//! Seeded worlds: shards on up to sixteen cores with slow, stopped and lost cores, full rings, set clocks, reloads and
//! overrides in mid-flight, and exchanges cancelled at every step, against the book of `support/oracle.rs` (SPEC §4).
//!
//! One seed is one world and always the same one. After every event every figure of every counter, and every verdict
//! with its list of caps and their waits, is compared; at rest nothing is held and no slot is taken. Message order is
//! the world's own, so the book follows the order in which the owners applied the asks.
//!
//! A failing seed is named, and replayed at once with its last events. To replay it again:
//! `SIM_SEED=n cargo test -p engine --release --test sim -- --nocapture`. `SIM_SEEDS=100000` runs that many.

mod bounded;
#[path = "../support/bucket.rs"]
mod bucket;
#[path = "../support/civil.rs"]
mod civil;
mod clocks;
mod coverage;
mod exchange;
#[path = "../support/ledger.rs"]
mod ledger;
mod mesh;
#[path = "../support/oracle.rs"]
mod oracle;
#[path = "../support/owner.rs"]
mod owner;
mod rest;
mod rules;
#[path = "../support/mod.rs"]
mod support;
mod trace;
mod upkeep;
mod world;

use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use coverage::{Coverage, Kind};
use world::World;

/// Worlds of one run, unless `SIM_SEEDS` says otherwise.
const SEEDS: u64 = 10_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn worlds_agree_with_the_book_after_every_event() {
    if let Some(seed) = number("SIM_SEED") {
        World::new(seed, true).run().0.print();
        return;
    }
    let seeds = number("SIM_SEEDS").unwrap_or(SEEDS);
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let all = Mutex::new(Coverage::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let mut cover = Coverage::new();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || failed.load(Ordering::Relaxed) < u64::MAX {
                        break;
                    }
                    let ran = catch_unwind(|| {
                        let (cover, hash) = World::new(seed, false).run();
                        let again = seed.is_multiple_of(16);
                        assert!(!again || World::new(seed, false).run().1 == hash, "two traces of one seed");
                        cover
                    });
                    match ran {
                        Ok(ran) => cover.add(&ran),
                        Err(_) => drop(failed.fetch_min(seed, Ordering::Relaxed)),
                    }
                }
                all.lock().unwrap().add(&cover);
            });
        }
    });
    let failed = failed.into_inner();
    if failed < u64::MAX {
        eprintln!("seed {failed} failed; to replay it:");
        eprintln!("  SIM_SEED={failed} cargo test -p engine --release --test sim -- --nocapture");
        World::new(failed, true).run();
        panic!("seed {failed} failed only once: its world is not the same each time");
    }
    let all = all.into_inner().unwrap();
    all.print();
    let rare: Vec<&Kind> = Kind::ALL.iter().filter(|kind| all.of(**kind) < seeds / 1_000).collect();
    assert!(rare.is_empty(), "the worlds hardly ever come to {rare:?}");
}
