//! Exact counts with many at once, on two cores.

use std::sync::{Arc, Barrier};

use serde_json::{Value, json};

use super::support::backend::answers;
use super::support::gateway::{chat_body, chat_request, user_limit};
use super::support::rig::Rig;

/// `at_once` requests, sent together; exactly `passing` of them pass and the rest name `by`.
fn check(limits: Value, at_once: usize, passing: usize, by: &str) -> Rig {
    let rig = Rig::with(answers(1, 1), limits, |config| config["workers"] = json!(2));
    let together = Arc::new(Barrier::new(at_once));
    let statuses: Vec<(u16, String)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..at_once)
            .map(|_| {
                let (together, rig) = (together.clone(), &rig);
                scope.spawn(move || {
                    let mut connection = rig.gateway.connect();
                    together.wait();
                    let answer = connection.ask(&chat_request(&rig.key, chat_body()));
                    (answer.status, answer.error_text("refused_by"))
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client thread")).collect()
    });
    let passed = statuses.iter().filter(|(status, _)| *status == 200).count();
    let refused = statuses.iter().filter(|(status, name)| *status == 429 && name == by).count();
    assert_eq!((passed, refused), (passing, at_once - passing), "{statuses:?}");
    assert_eq!(rig.backend.count(), passing, "requests delivered");
    rig
}

#[test]
fn twenty_at_once_against_three_a_minute() {
    for round in 0..5 {
        println!("round {round}");
        let rig = check(json!([user_limit("three", "rpm", 3, "1m")]), 20, 3, "three");
        assert_eq!(rig.at_rest().rpm, 3);
    }
}

#[test]
fn sixty_at_once_against_seven_a_year() {
    let rig = check(json!([user_limit("seven", "quota_requests", 7, "year")]), 60, 7, "seven");
    assert_eq!(rig.at_rest().requests, 7);
}

#[test]
fn a_refusal_at_the_second_gate_gives_back_what_the_first_took() {
    let limits = json!([
        user_limit("rate", "rpm", 1000, "1h"),
        user_limit("slots", "concurrency", 1000, ""),
        user_limit("four", "quota_requests", 4, "year"),
    ]);
    let figures = check(limits, 40, 4, "four").at_rest();
    assert_eq!((figures.rpm, figures.slots, figures.requests), (4, 0, 4), "{figures:?}");
}
