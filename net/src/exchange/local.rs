//! The pages that the gateway serves itself on the data plane (SPEC §6). They count nowhere and are never refused.

use engine::verdict::Reading;
use engine::{Dims, Key};

use super::{Denied, Exchange};
use crate::answer::{write_document, write_me, write_models};
use crate::connection::Next;
use crate::endpoint::{Endpoint, classify};

impl Exchange<'_> {
    /// `/tt/v1/healthz` and `/tt/v1/readyz`: without a key, whatever `require_key` says.
    pub(super) async fn health(&mut self) -> Option<Next> {
        let (status, document) = match self.client.head.path() {
            "/tt/v1/healthz" => (200, r#"{"status":"ok"}"#),
            "/tt/v1/readyz" if self.core.is_draining() => (503, r#"{"status":"draining"}"#),
            "/tt/v1/readyz" => (200, r#"{"status":"ready"}"#),
            _ => return None,
        };
        if let Err(denied) = self.read_only() {
            return Some(self.deny(denied).await);
        }
        let keep = self.keeps_own();
        self.write_answer(keep, |out, to| write_document(out, to, status, document));
        Some(self.answered(keep).await)
    }

    /// `/tt/v1/me` and `/v1/models`.
    pub(super) async fn own_pages(&mut self, key: Option<&Key>) -> Result<Option<Next>, Denied> {
        match self.client.head.path() {
            "/tt/v1/me" => {
                self.read_only()?;
                self.me(key.ok_or(Denied::KeyMissing)?).await
            }
            "/v1/models" => {
                self.read_only()?;
                let armed = self.armed.clone();
                let keep = self.keeps_own();
                let scopes = key.map(|key| &key.scopes);
                self.write_answer(keep, |out, to| write_models(out, to, &armed.snapshot.routes, scopes));
            }
            _ => return Ok(None),
        }
        let keep = self.keeps_own();
        Ok(Some(self.answered(keep).await))
    }

    /// The caps are those of a request with no model: what a `match` on the model selects shows once the query names
    /// one (`?model=...&provider=...&endpoint=...`).
    async fn me(&mut self, key: &Key) {
        let query = self.client.head.query().map(<[u8]>::to_vec).unwrap_or_default();
        let asked = |name| query_value(&query, name).unwrap_or_default();
        let (model, provider) = (asked("model"), asked("provider"));
        // Only what is served has counters, so only that may be asked for.
        let endpoint = classify(&asked("endpoint")).map_or("", Endpoint::path);
        let dims = Dims { model: &model, provider: &provider, endpoint };
        let armed = self.armed.clone();
        let gate_one = armed.gate_one(&key.chain, endpoint);
        let gate_two = armed.shown(&key.chain, &dims);
        let held = self.core.read(&gate_two).await;
        let now = self.core.now();
        let keep = self.keeps_own();
        let rates: Vec<Reading> = gate_one.read(now).collect();
        let caps = gate_one.instances().zip(rates).chain(gate_two.instances().zip(held));
        self.write_answer(keep, |out, to| write_me(out, to, key, caps, now.wall));
    }

    fn keeps_own(&self) -> bool {
        self.keeps_alive() && (!self.body_unread || self.client.can_skip_body())
    }

    fn read_only(&self) -> Result<(), Denied> {
        match self.client.head.method() {
            b"GET" | b"HEAD" => Ok(()),
            _ => Err(Denied::MethodNotAllowed("GET, HEAD")),
        }
    }
}

/// A parameter of a query string, percent-decoded; `None` when it is absent or no UTF-8.
fn query_value(query: &[u8], name: &str) -> Option<String> {
    let pair = query.split(|byte| *byte == b'&').find_map(|pair| {
        let (key, value) = pair.split_at_checked(name.len())?;
        (key == name.as_bytes()).then(|| value.strip_prefix(b"=")).flatten()
    })?;
    let mut value = Vec::with_capacity(pair.len());
    let mut rest = pair;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                value.push(hexadecimal(*high)? << 4 | hexadecimal(*low)?);
                rest = after;
            }
            (b'+', _) => value.push(b' '),
            _ => value.push(*first),
        }
    }
    String::from_utf8(value).ok()
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::query_value;

    #[test]
    fn query_values_are_decoded() {
        let table = [
            ("model=gpt-4o", "model", Some("gpt-4o")),
            ("a=1&model=a%2Fb&c=2", "model", Some("a/b")),
            ("model=", "model", Some("")),
            ("model=x+y", "model", Some("x y")),
            ("models=x", "model", None),
            ("xmodel=x", "model", None),
            ("", "model", None),
            ("model=%zz", "model", None),
            ("model=%f0", "model", None),
            ("model=%4", "model", Some("%4")),
        ];
        for (query, name, wanted) in table {
            assert_eq!(query_value(query.as_bytes(), name).as_deref(), wanted, "{query}");
        }
    }
}
