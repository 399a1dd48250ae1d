//! Clients that leave at any stage: no slot, no hold and no descriptor stays behind.
//!
//! Random but replayable: `TT_SEED` sets the seed, which a failure prints.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::support::backend::{STREAM_HEAD, Script, Then, chat_answer, delta};
use super::support::gateway::{chat_body, chat_request, stream_body};
use super::support::rig::Rig;
use super::support::until;

/// Clients at the same time.
const CLIENTS: u64 = 8;
/// Exchanges of each client in one storm.
const EXCHANGES: u64 = 120;
/// Descriptors that may differ between two times of rest: idle connections to the backend.
const SLACK: usize = 2 * CLIENTS as usize;

/// A small generator (xorshift64*): one seed, one run.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// What a storm did, counted by the clients.
#[derive(Default)]
struct Tally {
    /// Whole requests sent.
    sent: AtomicU64,
    /// Whole answers read.
    answered: AtomicU64,
}

/// A backend of many moods: at once or later, whole or in events, now and then broken.
fn moody(seed: u64) -> Script {
    let next = AtomicU64::new(seed);
    Arc::new(move |exchange| {
        let mut random = Random(next.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed) | 1);
        random.below(2);
        std::thread::sleep(Duration::from_millis(random.below(15)));
        let streams = String::from_utf8_lossy(&exchange.request.body).contains("\"stream\":true");
        match random.below(20) {
            0 => return Then::Reset,
            1 => return Then::Close,
            _ if !streams => {
                exchange.reply(200, &chat_answer(3, 2));
            }
            _ => {
                exchange.send(STREAM_HEAD.as_bytes());
                for _ in 0..random.below(8) {
                    if !exchange.chunk(&delta("word ")) {
                        return Then::Close;
                    }
                    std::thread::sleep(Duration::from_millis(random.below(4)));
                }
                exchange.chunk("data: [DONE]\n\n");
                exchange.send(b"0\r\n\r\n");
            }
        }
        Then::Keep
    })
}

/// One client's exchanges, each left at a stage drawn by chance.
fn client(rig: &Rig, seed: u64, tally: &Tally) {
    let mut random = Random(seed | 1);
    for _ in 0..EXCHANGES {
        let streams = random.below(2) == 0;
        let bytes = chat_request(&rig.key, if streams { stream_body() } else { chat_body() });
        let mut connection = rig.gateway.connect();
        let stage = random.below(8);
        let end_of_head = bytes.len() - chat_body().len();
        let sent = match stage {
            0 => random.below(end_of_head as u64) as usize,
            1 => end_of_head + random.below(8) as usize,
            _ => bytes.len(),
        };
        connection.send(&bytes[..sent]);
        if sent == bytes.len() {
            tally.sent.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(random.below(12)));
        match stage {
            0..=2 => {}
            3 => connection.half_close(),
            4 | 5 => {
                let head = connection.read_head();
                if stage == 5 && streams && head.is_ok_and(|head| head.status == 200) {
                    drop(connection.read_until(b"data: "));
                }
            }
            _ => {
                if connection.try_read().is_ok_and(|answer| answer.complete && answer.status == 200) {
                    tally.answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if random.below(2) == 0 {
            connection.reset();
        }
    }
}

fn storm(rig: &Rig, seed: u64) -> Tally {
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let tally = &tally;
            scope.spawn(move || client(rig, seed ^ (number + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93), tally));
        }
    });
    tally
}

#[test]
fn clients_that_leave_leave_nothing_behind() {
    let seed = std::env::var("TT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_260_901);
    println!("replay with TT_SEED={seed}");
    let rig = Rig::wide(moody(seed));
    let (mut descriptors, mut counted) = (0, 0);
    for round in 0..2_u64 {
        let tally = storm(&rig, seed.wrapping_add(round));
        let figures = rig.at_rest();
        let (sent, answered) = (tally.sent.into_inner(), tally.answered.into_inner());
        let requests = figures.requests - counted;
        assert!(answered <= requests && requests <= sent, "{answered} <= {requests} <= {sent}");
        assert!(answered > 0 && sent > answered, "the storm was one: {answered} of {sent}");
        assert_eq!(figures.rpm, figures.requests, "the two counts of requests");
        assert_eq!(figures.slots, 0, "slots in use");
        counted = figures.requests;
        if round == 0 {
            until("the backend's connections are at rest", || {
                (rig.backend.connections() <= SLACK).then_some(())
            });
            descriptors = rig.gateway.descriptors();
        }
    }
    until(&format!("about {descriptors} descriptors again"), || {
        (rig.gateway.descriptors() <= descriptors + SLACK).then_some(())
    });
}
