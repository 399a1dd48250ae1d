//! A backend, a gateway in front of it with one cap of each type, and a key: what most tests need.

use std::fmt;

use serde_json::{Value, json};

use super::backend::{Backend, Script};
use super::gateway::{DEV1, Gateway, Key, caps_when, config, user_limit};

/// What the six caps of a [`Rig`] have counted for its user.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Figures {
    /// Requests in the rolling window.
    pub rpm: u64,
    /// Slots in use.
    pub slots: u64,
    /// Requests in the calendar window.
    pub requests: u64,
    /// Tokens in the calendar window; the rolling window of tokens must agree.
    pub tokens: u64,
    /// Money in the calendar window, in thousandths of a USD: at the rig's price, one a token.
    pub millis: u64,
}

impl fmt::Debug for Figures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { rpm, slots, requests, tokens, millis } = self;
        write!(out, "rpm {rpm}, slots {slots}, requests {requests}, tokens {tokens}, money {millis}/1000")
    }
}

/// A running pair of backend and gateway.
pub struct Rig {
    /// The backend behind the gateway.
    pub backend: Backend,
    /// The gateway under test.
    pub gateway: Gateway,
    /// A key of user dev1.
    pub key: Key,
}

impl Rig {
    /// Every cap wide, so that only counting is seen.
    pub fn wide(script: Script) -> Rig {
        Rig::with(script, all_types(1_000_000), |_| {})
    }

    /// These limits, and a last change to the config.
    pub fn with(script: Script, limits: Value, change: impl FnOnce(&mut Value)) -> Rig {
        Rig::before(Backend::start(script), limits, change)
    }

    /// The same in front of a backend that runs.
    pub fn before(backend: Backend, limits: Value, change: impl FnOnce(&mut Value)) -> Rig {
        let mut document = config(backend.port, limits);
        change(&mut document);
        let gateway = Gateway::start(&document);
        let key = gateway.mint(DEV1, &[]);
        Rig { backend, gateway, key }
    }

    /// Waits until nothing is held and no slot is taken, and returns what was counted.
    pub fn at_rest(&self) -> Figures {
        let caps = caps_when(&self.gateway, &self.key, "nothing is held", |caps| {
            caps.iter().all(|cap| held(cap) == 0 && !(is(cap, "concurrency") && observed(cap) > 0))
        });
        figures(&caps)
    }

    /// What the caps show after a restart: calendar windows as they were, the others empty.
    pub fn after_restart(&self) -> Figures {
        let mut caps = self.gateway.caps(&self.key);
        let rolling = caps.iter().filter(|cap| is(cap, "tpm")).map(observed).sum::<u64>();
        assert_eq!(rolling, 0, "the rolling window of tokens starts empty");
        caps.retain(|cap| !is(cap, "tpm"));
        figures(&caps)
    }

    /// Asserts that the figures become `wanted` once everything is settled.
    pub fn comes_to(&self, what: &str, wanted: &Figures) {
        let caps = caps_when(&self.gateway, &self.key, &format!("{what}: {wanted:?}"), |caps| {
            caps.iter().all(|cap| held(cap) == 0) && figures(caps) == *wanted
        });
        assert_eq!(figures(&caps), *wanted, "{what}");
    }
}

/// One limit of each type for every user, each of `amount`.
pub fn all_types(amount: u64) -> Value {
    json!([
        user_limit("rpm", "rpm", amount, "1h"),
        user_limit("slots", "concurrency", amount, ""),
        user_limit("tpm", "tpm", amount, "1h"),
        user_limit("requests", "quota_requests", amount, "year"),
        user_limit("tokens", "quota_tokens", amount, "year"),
        user_limit("money", "budget_usd", amount, "year"),
    ])
}

/// Reads the figures of the caps made by [`all_types`]; a cap that is missing counts nothing.
pub fn figures(caps: &[Value]) -> Figures {
    let of = |kind: &str| caps.iter().find(|cap| is(cap, kind)).map_or(0, observed);
    let figures = Figures {
        rpm: of("rpm"),
        slots: of("concurrency"),
        requests: of("quota_requests"),
        tokens: of("quota_tokens"),
        millis: of("budget_usd"),
    };
    let tpm = caps.iter().find(|cap| is(cap, "tpm")).map_or(figures.tokens, observed);
    assert_eq!(tpm, figures.tokens, "the rolling and the calendar window differ: {caps:#?}");
    figures
}

fn is(cap: &Value, kind: &str) -> bool {
    cap["type"] == kind
}

/// What a cap has counted; money in thousandths of a USD.
pub fn observed(cap: &Value) -> u64 {
    figure(cap, "observed")
}

/// What a cap holds for requests in flight; money in thousandths of a USD.
pub fn held(cap: &Value) -> u64 {
    figure(cap, "held")
}

fn figure(cap: &Value, name: &str) -> u64 {
    let money = &cap[format!("{name}_usd")]["usd"];
    if money.is_number() {
        let usd = money.as_f64().expect("a number of USD");
        return (usd * 1000.0).round() as u64;
    }
    cap[name].as_u64().unwrap_or_else(|| panic!("{name} is not a count in {cap}"))
}
