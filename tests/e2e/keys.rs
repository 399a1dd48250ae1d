//! What is known of keys: when each was used last.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::support::backend::{Backend, answers};
use super::support::client::request;
use super::support::gateway::{CHAT, DEV1, Gateway, Key, chat_body, config, user_limit};
use super::support::until;

/// The last use of a key as `keys list` tells it.
fn last_use(gateway: &Gateway, key: &Key) -> Value {
    let listed = gateway.run(&["keys", "list", "--json"]);
    assert!(listed.status.success(), "{listed:?}");
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let rows = listed["keys"].as_array().expect("a list");
    rows.iter().find(|row| row["kid"] == key.kid).expect("the key is listed")["last_used_at"].clone()
}

/// Milliseconds since 1970.
fn now() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis()
}

#[test]
fn the_last_use_of_a_key_is_known_also_of_one_that_is_always_refused() {
    let backend = Backend::start(answers(1, 1));
    let mut gateway =
        Gateway::start(&config(backend.port, json!([user_limit("none", "quota_requests", 1, "year")])));
    let dev2 = "org:acme/team:ml/user:dev2";
    let (admitted, refused, unused) =
        (gateway.mint(DEV1, &[]), gateway.mint(DEV1, &[]), gateway.mint(dev2, &[]));
    let before = now();
    for (key, status) in [(&admitted, 200), (&refused, 429)] {
        assert_eq!(gateway.chat(key, chat_body()).status, status);
    }
    // Whoever knows a kid alone has not used the key.
    let forged = format!("Bearer tt_{}_{}", unused.kid, "0".repeat(43));
    let answer =
        gateway.connect().ask(&request("POST", CHAT, &[("Authorization", &forged)], chat_body().as_bytes()));
    assert_eq!(answer.status, 401);
    let after = now();
    for key in [&admitted, &refused] {
        let at = until("the use is noted", || Some(last_use(&gateway, key)).filter(|at| !at.is_null()));
        let at: jiff::Timestamp = at.as_str().and_then(|at| at.parse().ok()).expect("a time");
        let at = at.as_millisecond() as u128;
        assert!((before..=after).contains(&at), "{before} <= {at} <= {after}");
    }
    assert_eq!(last_use(&gateway, &unused), Value::Null);

    // By the management API, and as text.
    let by_api = gateway.get_admin(&format!("/tt/v1/admin/keys/{}", refused.kid)).json();
    assert_eq!(by_api["last_used_at"], last_use(&gateway, &refused), "the API says the same");
    let page = gateway.get_admin("/tt/v1/admin/keys").json();
    let of = |key: &Key| {
        page["keys"].as_array().and_then(|rows| rows.iter().find(|row| row["kid"] == key.kid)).cloned()
    };
    assert_eq!(of(&refused), Some(by_api));
    assert_eq!(of(&unused).expect("listed")["last_used_at"], Value::Null);
    let text = String::from_utf8(gateway.run(&["keys", "list"]).stdout).expect("text");
    let line = |key: &Key| text.lines().find(|line| line.starts_with(&key.kid)).expect("a line");
    assert!(text.lines().next().is_some_and(|head| head.ends_with("LAST USED")), "{text}");
    assert!(line(&unused).ends_with("never") && line(&admitted).ends_with('Z'), "{text}");

    // The last use before the end of the process is not lost.
    let before = now();
    assert_eq!(gateway.get("/tt/v1/me", Some(&unused)).status, 200);
    gateway.stop();
    let at: jiff::Timestamp =
        last_use(&gateway, &unused).as_str().and_then(|at| at.parse().ok()).expect("a time");
    assert!(at.as_millisecond() as u128 >= before, "{at}");
}
