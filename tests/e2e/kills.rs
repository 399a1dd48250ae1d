//! `kill -9` at any instant, a thousand times: what backends were asked for is never forgotten, no cap lets more through
//! than without the kill, and what is counted too much is at most the headroom of each counter and what was in flight.
//!
//! Random but replayable in what it draws: `TT_SEED` sets the seed, which a failure prints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::aborts::Random;
use super::support::backend::{Backend, Script, Then, chat_answer};
use super::support::client::Connection;
use super::support::gateway::{DEV1, Gateway, Key, chat_body, chat_request, config, user_limit};
use super::support::rig::observed;
use super::support::until;

/// Gateways, one after another, two at a time; each begins with nothing counted.
const LIVES: u64 = 40;
/// Kills of each.
const KILLS: u64 = 25;
/// Clients of each, that ask as fast as they are answered.
const CLIENTS: u64 = 4;
/// What each request uses: this many input and output tokens, at 0.001 USD each.
const USES: [u64; 2] = [3, 2];
/// The most that a request of `chat_body` holds, in tokens.
const HOLD: u64 = 16;
/// The largest headroom is this part of an amount.
const MOST: u64 = 64;

/// The three caps: how much there is, and what each request uses of it.
struct Cap {
    id: &'static str,
    kind: &'static str,
    amount: u64,
    uses: u64,
    holds: u64,
}

fn caps(random: &mut Random) -> [Cap; 3] {
    let tokens = USES.iter().sum();
    // From those that are used up in one life to those that never are.
    let mut amount = |least: u64| least * 4u64.pow(random.below(6) as u32);
    [
        Cap { id: "requests", kind: "quota_requests", amount: amount(50), uses: 1, holds: 0 },
        Cap { id: "tokens", kind: "quota_tokens", amount: amount(250), uses: tokens, holds: HOLD },
        // In USD; figures are in thousandths.
        Cap { id: "money", kind: "budget_usd", amount: amount(1), uses: tokens, holds: HOLD },
    ]
}

impl Cap {
    fn limit(&self) -> Value {
        let mut limit = user_limit(self.id, self.kind, self.amount, "year");
        if self.holds > 0 {
            limit["admit"] = json!("if_fits");
        }
        limit
    }

    /// In the units of the figures.
    fn units(&self) -> u64 {
        if self.kind == "budget_usd" { self.amount * 1000 } else { self.amount }
    }
}

/// Counts what it is asked, and answers at once.
fn counting(asked: &Arc<AtomicU64>) -> Script {
    let asked = asked.clone();
    Arc::new(move |exchange| {
        asked.fetch_add(1, Ordering::SeqCst);
        exchange.reply(200, &chat_answer(USES[0], USES[1]));
        Then::Keep
    })
}

/// What clients are told.
#[derive(Default)]
struct Told {
    stop: AtomicBool,
    /// A gateway listens. Who connects to a port of this machine that nobody listens on may be given that very port for
    /// its own end, and is then connected with itself.
    up: AtomicBool,
}

/// Asks until told to stop; the gateway comes and goes meanwhile.
fn ask(port: u16, key: &Key, Told { stop, up }: &Told) {
    let bytes = chat_request(key, chat_body());
    while !stop.load(Ordering::Relaxed) {
        if !up.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let Ok(mut connection) = Connection::try_open(port) else { continue };
        while !stop.load(Ordering::Relaxed) {
            match connection.try_ask(&bytes) {
                Ok(answer) if answer.status == 200 => {}
                Ok(answer) => {
                    assert_eq!(answer.status, 429, "{}", answer.text());
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => break,
            }
        }
    }
}

/// One gateway's life of many kills. Returns how often a kill left something open.
fn life(seed: u64) -> u64 {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let caps = caps(&mut random);
    let asked = Arc::new(AtomicU64::new(0));
    let backend = Backend::start(counting(&asked));
    let limits = caps.iter().map(Cap::limit).collect();
    let mut gateway = Gateway::start(&config(backend.port, limits));
    let key = gateway.mint(DEV1, &[]);
    let (told, mut left_open, mut excess) = (Told::default(), 0, [0; 3]);
    let port = gateway.port;
    std::thread::scope(|scope| {
        // Stops the clients also when an assertion below fails.
        let _stopping = Stopping(&told.stop);
        for _ in 0..CLIENTS {
            scope.spawn(|| ask(port, &key, &told));
        }
        for kill in 0..KILLS {
            told.up.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_micros(random.below(40_000)));
            told.up.store(false, Ordering::SeqCst);
            gateway.kill();
            if random.below(8) == 0 {
                // Nobody asks while it starts, so nothing more is left open.
                gateway.spawn();
                std::thread::sleep(Duration::from_micros(random.below(30_000)));
                gateway.kill();
            }
            // What the backend has read of a request that was cut is settled before it is counted below.
            let spent = at_rest(&asked);
            gateway.spawn();
            gateway.ready();
            for (index, shown) in gateway.caps(&key).iter().enumerate() {
                let cap = caps.iter().find(|cap| cap.id == shown["limit_id"]).expect("one of ours");
                let place = format!("seed {seed}, kill {kill}, {} of {}", cap.id, cap.units());
                let now = observed(shown);
                assert!(now >= spent * cap.uses, "{place}: {now} counted, {} spent", spent * cap.uses);
                let spent_now = asked.load(Ordering::SeqCst) * cap.uses;
                let open = now.saturating_sub(spent * cap.uses);
                let most = excess[index]
                    + cap.units() / MOST
                    + CLIENTS * cap.holds.max(1)
                    + (spent_now - spent * cap.uses);
                assert!(open <= most, "{place}: {open} too much, at most {most} expected");
                excess[index] = open;
                left_open +=
                    u64::from(shown.get("uncertain").is_some() || shown.get("uncertain_usd").is_some());
            }
        }
    });
    let spent = at_rest(&asked);
    for cap in &caps {
        assert!(spent * cap.uses <= cap.units(), "seed {seed}: {} lets {spent} requests through", cap.id);
    }
    let verified = gateway.run(&["audit", "verify"]);
    assert!(verified.status.success(), "{verified:?}");
    left_open
}

struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The count once it stands still: the backend has read all that reached it.
fn at_rest(asked: &AtomicU64) -> u64 {
    let mut before = asked.load(Ordering::SeqCst);
    until("the backend has read what was sent", || {
        std::thread::sleep(Duration::from_millis(2));
        let now = asked.load(Ordering::SeqCst);
        let still = now == before;
        before = now;
        still.then_some(now)
    })
}

#[test]
fn a_thousand_kills_forget_nothing_and_let_nothing_more_through() {
    let seed: u64 = std::env::var("TT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_130);
    println!("replay with TT_SEED={seed}");
    let next = AtomicU64::new(0);
    let left_open = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= LIVES {
                        break;
                    }
                    left_open.fetch_add(life(seed.wrapping_add(number)), Ordering::Relaxed);
                }
            });
        }
    });
    let left_open = left_open.into_inner();
    println!("{left_open} counters were left open by {} kills", LIVES * KILLS);
    assert!(left_open > LIVES, "kills that left something open: {left_open}; the clients ask too little");
}
