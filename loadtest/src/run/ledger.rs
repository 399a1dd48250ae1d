//! What clients saw, key by key, the warm-up included: what a server's own counters can be held against.
//!
//! A request is in it once. What it must have cost follows from what its client saw; where the client did not see the end of it,
//! the cost lies between nothing and the most that it can be, and the request is counted as uncertain.

use std::collections::BTreeMap;

use super::tally::Failed;
use super::usage::Usage;
use crate::http::head::Refuser;

/// What clients saw of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySeen {
    /// Answers that a backend gave: each is one request on the caps.
    pub admitted: u64,
    /// Answers that say that a cap refused: nothing on any cap.
    pub refused: u64,
    /// Tokens read, as the answers report.
    pub input_tokens: u64,
    /// Tokens written, as the answers report.
    pub output_tokens: u64,
    /// Admitted answers that report no tokens although they succeeded.
    pub unreported: u64,
    /// Requests that may have cost nothing, or as much as one request can.
    pub uncertain: u64,
}

impl KeySeen {
    /// Adds all of another.
    pub fn add(&mut self, other: &KeySeen) {
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.unreported += other.unreported;
        self.uncertain += other.uncertain;
    }
}

/// Statuses that a gateway gives of its own accord too, so that alone they do not say whether a backend was asked.
const AMBIGUOUS: [u16; 15] = [400, 401, 403, 404, 405, 408, 413, 415, 417, 431, 501, 502, 503, 504, 505];

/// What became of all requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// By the place of the key; one place when there are none.
    pub keys: Vec<KeySeen>,
    /// Refusals, by the limit that they name.
    pub refused_by: BTreeMap<Refuser, u64>,
    /// Why requests are uncertain: `unfinished`, `timed_out`, `status 502`.
    pub uncertain: BTreeMap<String, u64>,
    /// The most tokens that one answer reported.
    pub largest: u64,
}

impl Ledger {
    /// For so many keys.
    pub fn new(keys: usize) -> Ledger {
        Ledger { keys: vec![KeySeen::default(); keys.max(1)], ..Ledger::default() }
    }

    /// Adds a whole answer. `backend_fails_with` is the status that the backend itself is known to fail with.
    pub fn answered(
        &mut self,
        key: usize,
        status: u16,
        refused_by: Option<Refuser>,
        usage: Option<Usage>,
        backend_fails_with: Option<u16>,
    ) {
        let seen = &mut self.keys[key];
        if let Some(limit) = refused_by {
            seen.refused += 1;
            *self.refused_by.entry(limit).or_default() += 1;
            return;
        }
        if AMBIGUOUS.contains(&status) {
            // A status that both may give says nothing, unless the gateway's own ones mean a fault that is not there.
            let is_the_backends = backend_fails_with == Some(status) && !matches!(status, 408 | 502..=504);
            if !is_the_backends {
                seen.uncertain += 1;
                *self.uncertain.entry(format!("status {status}")).or_default() += 1;
                return;
            }
        }
        seen.admitted += 1;
        match usage {
            Some(usage) => {
                seen.input_tokens += usage.input;
                seen.output_tokens += usage.output;
                self.largest = self.largest.max(usage.input + usage.output);
            }
            None if status < 400 => seen.unreported += 1,
            None => {}
        }
    }

    /// Adds a request without a whole answer.
    pub fn failed(&mut self, key: usize, how: Failed) {
        // What was never sent costs nothing.
        if how != Failed::Connect {
            self.keys[key].uncertain += 1;
            *self.uncertain.entry(how.name().to_owned()).or_default() += 1;
        }
    }

    /// Adds all of another thread, or of another run with the same keys.
    pub fn merge(&mut self, other: &Ledger) {
        if self.keys.len() < other.keys.len() {
            self.keys.resize(other.keys.len(), KeySeen::default());
        }
        for (mine, theirs) in self.keys.iter_mut().zip(&other.keys) {
            mine.add(theirs);
        }
        for (limit, count) in &other.refused_by {
            *self.refused_by.entry(*limit).or_default() += count;
        }
        for (why, count) in &other.uncertain {
            *self.uncertain.entry(why.clone()).or_default() += count;
        }
        self.largest = self.largest.max(other.largest);
    }

    /// The sum over all keys.
    pub fn total(&self) -> KeySeen {
        let mut total = KeySeen::default();
        self.keys.iter().for_each(|seen| total.add(seen));
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_costs_follows_from_what_its_client_saw() {
        fn check(status: u16, refused: bool, usage: Option<u64>, fails_with: Option<u16>, wanted: KeySeen) {
            let mut ledger = Ledger::new(2);
            let limit = refused.then(|| Refuser::new(b"daily"));
            let usage = usage.map(|tokens| Usage { input: tokens, output: 1 });
            ledger.answered(1, status, limit, usage, fails_with);
            assert_eq!(
                ledger.keys,
                [KeySeen::default(), wanted],
                "{status} {refused} {usage:?} {fails_with:?}"
            );
            assert_eq!(ledger.uncertain.values().sum::<u64>(), wanted.uncertain);
        }
        let nothing = KeySeen::default();
        let admitted = KeySeen { admitted: 1, ..nothing };
        let uncertain = KeySeen { uncertain: 1, ..nothing };
        check(200, false, Some(4), None, KeySeen { input_tokens: 4, output_tokens: 1, ..admitted });
        check(200, false, None, None, KeySeen { unreported: 1, ..admitted });
        check(429, true, None, None, KeySeen { refused: 1, ..nothing });
        check(429, false, None, None, admitted);
        check(500, false, None, None, admitted);
        check(500, false, None, Some(500), admitted);
        check(404, false, None, None, uncertain);
        check(404, false, None, Some(404), admitted);
        check(502, false, None, None, uncertain);
        check(502, false, None, Some(502), uncertain);
    }

    #[test]
    fn what_was_not_seen_to_its_end_is_uncertain_and_named() {
        let (mut one, mut other) = (Ledger::new(2), Ledger::new(2));
        for (how, _) in Failed::ALL {
            one.failed(0, how);
        }
        other.failed(1, Failed::TimedOut);
        other.answered(1, 429, Some(Refuser::new(b"daily")), None, None);
        one.merge(&other);
        assert_eq!([one.keys[0].uncertain, one.keys[1].uncertain], [Failed::ALL.len() as u64 - 1, 1]);
        assert!(!one.uncertain.contains_key("connect"), "what was not sent costs nothing");
        assert_eq!((one.uncertain["timed_out"], one.uncertain["unfinished"]), (2, 1));
        assert_eq!(one.refused_by[&Refuser::new(b"daily")], 1);
        assert_eq!(one.total().refused, 1);
    }
}
