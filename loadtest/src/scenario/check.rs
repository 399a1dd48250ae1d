//! Whether the gateway's counters are what its clients saw.
//!
//! A counter is a limit at a node. What it must show is what it showed before, and the sum over all keys that list it: the requests
//! that were admitted, the tokens that answers reported, their price. Requests whose clients did not see their end widen the figure by
//! what each can have cost. At rest nothing is held and no slot is taken.
//!
//! Some counters only have an upper bound: a window that may have ended meanwhile, or one that drains evenly, shows less.

use std::collections::BTreeMap;
use std::time::Duration;

use super::views::{Cap, Key, Used, View};
use crate::run::ledger::{KeySeen, Ledger};

/// What is known about the target beside its answers.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Pico-dollars of a token read and of one written.
    pub prices: Option<(u128, u128)>,
    /// Limits whose window slides: what it counted leaves it no sooner than a period later.
    pub sliding: Vec<String>,
    /// The most tokens that one request can be charged.
    pub most_tokens: u64,
    /// From before the first request to now.
    pub elapsed: Duration,
}

/// A figure that is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The first key that the counter counts for, and how many others.
    pub key: String,
    /// Which counter.
    pub cap: String,
    /// What the gateway shows.
    pub counted: String,
    /// What clients saw.
    pub seen: String,
}

/// What a comparison came to.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Counters that were compared.
    pub counters: usize,
    /// Of these, those that only have an upper bound, by the reason.
    pub bounded: BTreeMap<&'static str, usize>,
    /// Counters that could not be compared, by the reason.
    pub left_out: BTreeMap<&'static str, usize>,
    /// What differs.
    pub differences: Vec<Difference>,
}

/// From a lowest to a highest figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Range {
    low: u128,
    high: u128,
}

impl Range {
    fn add(&mut self, other: Range) {
        self.low += other.low;
        self.high += other.high;
    }

    fn text(&self) -> String {
        match self.low == self.high {
            true => self.low.to_string(),
            false => format!("{} to {}", self.low, self.high),
        }
    }
}

/// One counter, and what it must show.
struct Counter<'a> {
    cap: &'a Cap,
    kid: &'a str,
    other_keys: usize,
    seen: Range,
    /// Why `seen` is not known.
    unknown: Option<&'static str>,
}

/// Compares two views of `keys`, before and after the requests in `ledger`.
pub fn compare(keys: &[Key], before: &View, after: &View, ledger: &Ledger, known: &Known) -> Verdict {
    let mut verdict = Verdict::default();
    let mut counters: BTreeMap<(&str, &str), Counter<'_>> = BTreeMap::new();
    for ((key, caps), seen) in keys.iter().zip(&after.caps).zip(&ledger.keys) {
        for cap in caps.iter().filter(|cap| cap.counts) {
            let (range, unknown) = cost(cap, seen, known);
            let counter = counters.entry((&cap.limit, &cap.node)).or_insert_with(|| Counter {
                cap,
                kid: &key.kid,
                other_keys: 0,
                seen: Range::default(),
                unknown: None,
            });
            counter.other_keys += usize::from(counter.kid != key.kid);
            counter.seen.add(range);
            counter.unknown = counter.unknown.or(unknown);
        }
    }
    let first: BTreeMap<(&str, &str), &Cap> =
        before.caps.iter().flatten().map(|cap| ((cap.limit.as_str(), cap.node.as_str()), cap)).collect();
    for (place, counter) in &counters {
        judge(counter, first.get(place).copied(), known, &mut verdict);
    }
    if let (Some(first), Some(usage)) = (&before.usage, &after.usage) {
        for (key, seen) in keys.iter().zip(&ledger.keys) {
            let of = |view: &BTreeMap<String, Used>| view.get(&key.kid).copied().unwrap_or_default();
            judge_usage(key, seen, of(first), of(usage), known, &mut verdict);
        }
    }
    verdict
}

/// What the requests of one key must have cost on a cap.
fn cost(cap: &Cap, seen: &KeySeen, known: &Known) -> (Range, Option<&'static str>) {
    let unreported = (seen.unreported > 0).then_some("answers that report no tokens");
    match cap.kind.as_str() {
        "rpm" | "quota_requests" => (requests(seen), None),
        "tpm" | "quota_tokens" => (tokens(seen, known), unreported),
        "budget_usd" => match known.prices {
            Some((input, output)) => {
                let low = u128::from(seen.input_tokens) * input + u128::from(seen.output_tokens) * output;
                let most = u128::from(seen.uncertain) * u128::from(known.most_tokens) * input.max(output);
                (Range { low, high: low + most }, unreported)
            }
            None => (Range::default(), Some("prices that are not known here")),
        },
        "concurrency" => (Range::default(), None),
        _ => (Range::default(), Some("types that are not known here")),
    }
}

fn requests(seen: &KeySeen) -> Range {
    Range { low: seen.admitted.into(), high: (seen.admitted + seen.uncertain).into() }
}

fn tokens(seen: &KeySeen, known: &Known) -> Range {
    let low = u128::from(seen.input_tokens + seen.output_tokens);
    Range { low, high: low + u128::from(seen.uncertain) * u128::from(known.most_tokens) }
}

/// Why a window may show less than was counted.
fn may_show_less(cap: &Cap, first: Option<&Cap>, known: &Known) -> Option<&'static str> {
    let over = "a window that ended during the run";
    match cap.kind.as_str() {
        "rpm" | "tpm" => {
            let slides = known.sliding.contains(&cap.limit);
            match go_duration(&cap.period) {
                Some(period) if slides && known.elapsed < period => None,
                Some(period) if slides && known.elapsed >= period => Some(over),
                _ => Some("a rate that may not slide"),
            }
        }
        "concurrency" => None,
        _ => first.is_some_and(|first| first.resets_at != cap.resets_at).then_some(over),
    }
}

fn judge(counter: &Counter<'_>, first: Option<&Cap>, known: &Known, verdict: &mut Verdict) {
    let cap = counter.cap;
    let mut differs = |what: &str, counted: u128, seen: String| {
        let others = match counter.other_keys {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        verdict.differences.push(Difference {
            key: format!("{}{others}", counter.kid),
            cap: format!("{} at {} ({}{what})", cap.limit, cap.node, cap.kind),
            counted: counted.to_string(),
            seen,
        });
    };
    if cap.held > 0 {
        differs(", held", cap.held, "0".into());
    }
    if let Some(why) = counter.unknown {
        *verdict.left_out.entry(why).or_default() += 1;
        return;
    }
    let before = if cap.kind == "concurrency" { 0 } else { first.map_or(0, |first| first.observed) };
    let mut range = counter.seen;
    range.add(Range { low: before, high: before });
    let less = may_show_less(cap, first, known);
    if less.is_some() {
        range.low = 0;
    }
    if !(range.low..=range.high).contains(&cap.observed) {
        differs("", cap.observed, range.text());
    }
    verdict.counters += 1;
    if let Some(why) = less {
        *verdict.bounded.entry(why).or_default() += 1;
    }
}

fn judge_usage(key: &Key, seen: &KeySeen, first: Used, used: Used, known: &Known, verdict: &mut Verdict) {
    let mut judge = |what: &str, counted: u64, before: u64, mut range: Range| {
        range.add(Range { low: before.into(), high: before.into() });
        verdict.counters += 1;
        if !(range.low..=range.high).contains(&counted.into()) {
            verdict.differences.push(Difference {
                key: key.kid.clone(),
                cap: format!("usage ({what})"),
                counted: counted.to_string(),
                seen: range.text(),
            });
        }
    };
    judge("requests", used.requests, first.requests, requests(seen));
    match seen.unreported {
        0 => judge("tokens", used.tokens, first.tokens, tokens(seen, known)),
        _ => *verdict.left_out.entry("answers that report no tokens").or_default() += 1,
    }
}

/// A duration as Go prints it: `1m0s`, `24h0m0s`.
fn go_duration(text: &str) -> Option<Duration> {
    let (mut whole, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let unit_end =
            rest[number_end..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |end| number_end + end);
        let number: f64 = rest[..number_end].parse().ok()?;
        whole += match &rest[number_end..unit_end] {
            "h" => number * 3600.0,
            "m" => number * 60.0,
            "s" => number,
            "ms" => number / 1000.0,
            _ => return None,
        };
        rest = &rest[unit_end..];
    }
    Duration::try_from_secs_f64(whole).ok().filter(|whole| !whole.is_zero())
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
