//! What the gateway says that it counted: `GET /tt/v1/me` of each key, and `GET /tt/v1/admin/usage`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::client::Client;

/// A key of the data plane.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its public id; empty until `/tt/v1/me` has said it.
    pub kid: String,
    /// The whole credential.
    pub credential: String,
}

/// A cap as `/tt/v1/me` lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// The limit's id.
    pub limit: String,
    /// The node that it is counted at.
    pub node: String,
    /// Its type, such as `rpm`.
    pub kind: String,
    /// Its window: a Go duration, a calendar period, or nothing.
    pub period: String,
    /// When its calendar window ends.
    pub resets_at: Option<String>,
    /// What it has counted: requests, tokens, or pico-dollars.
    pub observed: u128,
    /// What it holds for requests in flight, in the same unit.
    pub held: u128,
    /// Whether it counts at all: neither suspended nor off.
    pub counts: bool,
}

/// Requests and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Exchanges that were delivered.
    pub requests: u64,
    /// Tokens read and written.
    pub tokens: u64,
}

/// What is counted at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The caps of each key, in the order of the keys.
    pub caps: Vec<Vec<Cap>>,
    /// What was spent, by kid; `None` when it was not asked for.
    pub usage: Option<BTreeMap<String, Used>>,
}

/// The listener of the data plane, as a key's holder sees it.
pub struct DataPlane {
    client: Client,
}

impl DataPlane {
    /// At this address; `host` is what the `Host` field says.
    pub fn new(address: SocketAddr, host: &str) -> DataPlane {
        DataPlane { client: Client::new(address, host) }
    }

    /// The kid and the caps of a key.
    ///
    /// # Errors
    /// In words: nobody answers, or not as a gateway does.
    pub fn me(&mut self, credential: &str) -> Result<(String, Vec<Cap>), String> {
        let headers = [("Authorization".to_owned(), format!("Bearer {credential}"))];
        let answer = self.client.ask("GET", "/tt/v1/me", &headers, "")?;
        if answer.status != 200 {
            return Err(format!("GET /tt/v1/me is answered with {}: {}", answer.status, answer.excerpt()));
        }
        let me = answer.json()?;
        let kid = me["kid"].as_str().ok_or("/tt/v1/me names no kid")?;
        let caps = me["limits"].as_array().ok_or("/tt/v1/me has no limits")?;
        Ok((kid.to_owned(), caps.iter().map(cap).collect::<Result<_, _>>()?))
    }
}

/// Reads a cap.
fn cap(value: &Value) -> Result<Cap, String> {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let is_money = value["class"] == "spend";
    let figure = |name: &str| {
        let read = match is_money {
            true => value[format!("{name}_usd")]["usd"].as_number().and_then(|usd| pico(&usd.to_string())),
            false => value[name].as_u64().map(u128::from),
        };
        read.ok_or_else(|| format!("/tt/v1/me: {name} is no figure in {value}"))
    };
    Ok(Cap {
        limit: text("limit_id"),
        node: text("node"),
        kind: text("type"),
        period: text("period"),
        resets_at: value["resets_at"].as_str().map(str::to_owned),
        observed: figure("observed")?,
        held: figure("held")?,
        counts: value["suspended"] != true && value["posture"]["mode"] != "off",
    })
}

/// Pico-dollars of an amount of USD as JSON writes it: `0.0000126`, `12`, `6e-7`. `None` when it has finer digits, or is none.
pub fn pico(usd: &str) -> Option<u128> {
    let (digits, exponent) = match usd.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (usd, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let number: u128 = format!("{whole}{part}").parse().ok()?;
    let shift = 12 + exponent - i32::try_from(part.len()).ok()?;
    let power = 10u128.checked_pow(shift.unsigned_abs())?;
    match shift {
        0.. => number.checked_mul(power),
        _ => number.is_multiple_of(power).then_some(number / power),
    }
}

/// The management API, as the holder of its token sees it.
pub struct Management {
    client: Client,
    headers: Vec<(String, String)>,
}

impl Management {
    /// At this address; `host` is what the `Host` field says.
    pub fn new(address: SocketAddr, host: &str, token: String) -> Management {
        let headers = vec![("Authorization".to_owned(), format!("Bearer {token}"))];
        Management { client: Client::new(address, host), headers }
    }

    fn ask(&mut self, method: &str, path: &str, body: &str, wanted: u16) -> Result<Value, String> {
        let answer = self.client.ask(method, path, &self.headers, body)?;
        if answer.status != wanted {
            return Err(format!("{method} {path} is answered with {}: {}", answer.status, answer.excerpt()));
        }
        answer.json()
    }

    /// Mints a key for this node.
    ///
    /// # Errors
    /// In words: the API refuses, or is not there.
    pub fn mint(&mut self, owner: &str) -> Result<Key, String> {
        let minted = self.ask("POST", "/tt/v1/admin/keys", &json!({ "owner": owner }).to_string(), 201)?;
        let text = |name: &str| {
            minted[name].as_str().map(str::to_owned).ok_or(format!("a minted key has no {name}"))
        };
        Ok(Key { kid: text("kid")?, credential: text("key")? })
    }

    /// What was spent, by kid.
    ///
    /// # Errors
    /// In words: the API refuses, or is not there.
    pub fn usage(&mut self) -> Result<BTreeMap<String, Used>, String> {
        let mut usage = BTreeMap::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/tt/v1/admin/usage?by=key&limit=1000{cursor}");
            let page = self.ask("GET", &path, "", 200)?;
            for row in page["usage"].as_array().ok_or("the usage has no rows")? {
                let figure = |name: &str| row[name].as_u64().ok_or(format!("{name} is no count in {row}"));
                let used = Used { requests: figure("requests")?, tokens: figure("total_tokens")? };
                usage.insert(row["kid"].as_str().unwrap_or_default().to_owned(), used);
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(usage),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_read_to_the_last_digit() {
        fn check(usd: &str, wanted: Option<u128>) {
            assert_eq!(pico(usd), wanted, "{usd}");
        }
        check("0", Some(0));
        check("12", Some(12_000_000_000_000));
        check("0.0000126", Some(12_600_000));
        check("1.000000000001", Some(1_000_000_000_001));
        check("6e-7", Some(600_000));
        check("1.5E3", Some(1_500_000_000_000_000));
        check("0.0000000000005", None);
        check("-1", None);
        check("x", None);
    }

    #[test]
    fn a_cap_is_read_as_me_shows_it() {
        let count = json!({ "limit_id": "r", "type": "rpm", "class": "count", "node": "org:a", "period": "1h0m0s",
            "suspended": false, "posture": { "mode": "on" }, "amount": 5, "observed": 3, "remaining": 2, "held": 0 });
        let read = cap(&count).expect("a cap");
        assert_eq!((read.observed, read.held, read.counts), (3, 0, true));
        let money = json!({ "limit_id": "b", "type": "budget_usd", "class": "spend", "node": "org:a", "period": "day",
            "resets_at": "2026-12-01T00:00:00Z", "suspended": true, "posture": { "mode": "on" },
            "observed_usd": { "usd": 0.5 }, "held_usd": { "usd": 0.25 } });
        let read = cap(&money).expect("a cap");
        assert_eq!((read.observed, read.held, read.counts), (500_000_000_000, 250_000_000_000, false));
        assert!(cap(&json!({ "limit_id": "x", "class": "count" })).is_err());
    }
}
