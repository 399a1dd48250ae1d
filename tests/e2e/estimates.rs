//! Routes that learn: what is held follows what the backend reported, and `if_fits` lets no more pass than fits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::support::backend::{Script, Then, chat_answer};
use super::support::gateway::{DEV1, Key, chat_request, user_limit};
use super::support::rig::{Rig, held, observed};
use super::support::until;

/// What a prompt of 400 bytes is in this backend's tokens; the gateway takes it for 100.
const READ: u64 = 300;
/// What an answer is; requests with a cap allow just as much.
const WRITTEN: u64 = 50;
/// Requests that teach.
const TAUGHT: u64 = 60;

/// What the backend does: it answers while this is 0, and waits while it is 1; at 2 it reports nothing.
type Mode = Arc<AtomicUsize>;

fn counting(mode: Mode) -> Script {
    Arc::new(move |exchange| {
        while mode.load(Ordering::SeqCst) == 1 {
            std::thread::sleep(Duration::from_millis(2));
        }
        exchange.reply(
            200,
            &match mode.load(Ordering::SeqCst) {
                2 => json!({ "choices": [{ "index": 0, "message": { "content": "12345678" } }] }).to_string(),
                _ => chat_answer(READ, WRITTEN),
            },
        );
        Then::Keep
    })
}

fn body(capped: bool) -> String {
    let mut body = json!({ "model": "m1", "messages": [{ "role": "user", "content": "one ".repeat(100) }] });
    if capped {
        body["max_tokens"] = json!(WRITTEN);
    }
    body.to_string()
}

/// A gateway of one core whose route has this `estimate`, after [`TAUGHT`] requests with an output cap and as many without.
/// Its limit has room for `room` more tokens.
fn taught(estimate: Option<&str>, room: u64) -> (Rig, Mode) {
    let mode = Mode::default();
    let mut limit = user_limit("fits", "quota_tokens", 2 * TAUGHT * (READ + WRITTEN) + room, "year");
    limit["admit"] = json!("if_fits");
    let rig = Rig::with(counting(mode.clone()), json!([limit]), |config| {
        config["workers"] = json!(1);
        config["routes"][0]["output_hold"] = json!(20);
        if let Some(estimate) = estimate {
            config["routes"][0]["estimate"] = json!(estimate);
        }
    });
    let mut connection = rig.gateway.connect();
    for capped in [true, false].repeat(TAUGHT as usize) {
        assert_eq!(connection.ask(&chat_request(&rig.key, &body(capped))).status, 200);
    }
    (rig, mode)
}

/// What `/tt/v1/me` shows as held for one request of `key`.
fn holds(rig: &Rig, mode: &Mode, key: &Key, body: &str) -> u64 {
    mode.store(1, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| rig.gateway.chat(key, body).status);
        let shown =
            until("something is held", || Some(held(&rig.gateway.caps(key)[0])).filter(|&tokens| tokens > 0));
        mode.store(0, Ordering::SeqCst);
        assert_eq!(client.join().expect("a client thread"), 200);
        shown
    })
}

#[test]
fn what_is_held_is_what_was_learnt_where_the_route_says_so() {
    for (estimate, capped, open) in
        [(None, 150, 120), (Some("request"), 150, 120), (Some("learned"), 350, 350)]
    {
        let (rig, mode) = taught(estimate, 100_000);
        let check = |what: &str, key: &dyn Fn() -> Key, capped: u64, open: u64| {
            for (with_cap, wanted) in [(true, capped), (false, open)] {
                let shown = holds(&rig, &mode, &key(), &body(with_cap));
                assert_eq!(shown, wanted, "{estimate:?}, {what}, capped: {with_cap}");
            }
        };
        check("after many", &|| rig.key.clone(), capped, open);
        assert_eq!(rig.gateway.ask_admin("POST", "/tt/v1/admin/reload", "").status, 200);
        check("after a reload", &|| rig.key.clone(), capped, open);
        check("a new key", &|| rig.gateway.mint(DEV1, &[]), 150, 120);
    }
}

#[test]
fn an_answer_without_a_report_costs_what_it_always_did_and_teaches_nothing() {
    let (rig, mode) = taught(Some("learned"), 100_000);
    let before = rig.at_rest().tokens;
    mode.store(2, Ordering::SeqCst);
    let mut connection = rig.gateway.connect();
    for _ in 0..TAUGHT {
        assert_eq!(connection.ask(&chat_request(&rig.key, &body(true))).status, 200);
    }
    assert_eq!(rig.at_rest().tokens - before, TAUGHT * (100 + 2), "four bytes are a token");
    assert_eq!(holds(&rig, &mode, &rig.key, &body(true)), READ + WRITTEN);
}

/// Sixteen requests at once find room for 2,000 tokens and use 350 each; so many of them pass.
fn check(estimate: Option<&str>, passing: usize) {
    const AT_ONCE: usize = 16;
    let (rig, mode) = taught(estimate, 2000);
    rig.backend.forget_requests();
    mode.store(1, Ordering::SeqCst);
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                if rig.gateway.chat(&rig.key, &body(true)).status == 429 {
                    refused.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let decided = || rig.backend.count() + refused.load(Ordering::SeqCst);
        until("each is decided", || (decided() == AT_ONCE).then_some(()));
        mode.store(0, Ordering::SeqCst);
    });
    assert_eq!(rig.backend.count(), passing, "{estimate:?}");
    let used = observed(&rig.gateway.caps(&rig.key)[0]) - 2 * TAUGHT * 350;
    assert_eq!(used, passing as u64 * 350, "{estimate:?}");
    assert_eq!(used > 2000, estimate != Some("learned"), "{estimate:?}: {used} of 2000");
}

#[test]
fn if_fits_lets_pass_what_fits_the_estimate_or_with_it_what_really_fits() {
    check(None, 13);
    check(Some("request"), 13);
    check(Some("learned"), 5);
}
