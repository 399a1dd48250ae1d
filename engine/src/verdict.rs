//! What the gates say: readings, refusals, and how long to wait (SPEC §5, §6).
//!
//! A refusal is a verdict, not an error. It names every cap that was over at its gate, in evaluation order, so that the
//! caller can write the whole answer without asking again.

use std::fmt;

use jiff::Timestamp;

use crate::limits::{Enforce, Limit, Mode};
use crate::resolve::Instance;
use crate::time::Span;
use crate::units::Units;

/// The figures of one counter at one moment.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Reading {
    /// Requests, tokens, slots or pico-USD that count in the current window.
    pub observed: Units,
    /// What requests in flight hold of the same.
    pub held: Units,
    /// Part of `observed` was estimated, because a backend reported no usage.
    pub estimated: bool,
    /// Part of what was used had no price and is not in `observed`.
    pub unpriced: bool,
    /// Part of `observed` that a crash left open: it was set aside to be spent, and may not have been.
    pub uncertain: Units,
    /// End of the current window; only calendar counters have one.
    pub resets_at: Option<Timestamp>,
}

/// How long until a cap admits again if nothing else comes.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub enum Wait {
    /// So long.
    For(Span),
    /// However long: the request does not fit, or has no price.
    Never,
}

impl Wait {
    /// What is said where the end is not known but near: a slot or a hold comes back when another request ends (SPEC §5).
    pub const SOON: Wait = Wait::For(Span(1_000_000_000));
}

/// Why a cap refused.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Cause {
    /// What was used reaches the amount.
    Over,
    /// Only what others hold stands in the way; without it the request would pass.
    HeldOnly,
    /// The model has no price, and the limit fails closed (SPEC §4.8).
    Unpriced,
    /// The cap could not be evaluated, and the limit fails closed: its shard has no room for another counter,
    /// or what it counts cannot be written down.
    Unavailable,
}

/// One cap that was over.
#[derive(Clone, Debug)]
pub struct Tripped {
    /// The cap: limit, node, amount.
    pub instance: Instance,
    /// Its figure at that moment.
    pub observed: Units,
    /// What requests in flight held of it.
    pub held: Units,
    /// End of its window; only for calendar counters.
    pub resets_at: Option<Timestamp>,
    /// When it would admit this request.
    pub wait: Wait,
    /// Why it refused.
    pub cause: Cause,
}

/// A request that one gate refused. Never empty.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Every cap over at that gate, in evaluation order; the first is the one that refused.
    pub tripped: Vec<Tripped>,
}

impl Refusal {
    /// The longest retry that a client is told to make (`x-should-retry`, SPEC §5).
    pub const RETRY_HORIZON: Span = Span(60_000_000_000);

    /// The cap that `X-Tt-Refused-By` names.
    ///
    /// # Panics
    /// If the refusal names no cap, which no gate makes.
    pub fn refused_by(&self) -> &Tripped {
        &self.tripped[0]
    }

    /// Until every tripped cap admits again; at least a nanosecond.
    pub fn wait(&self) -> Wait {
        let longest = self.tripped.iter().map(|cap| cap.wait).max();
        longest.unwrap_or(Wait::For(Span(1))).max(Wait::For(Span(1)))
    }

    /// Whether a client should try again by itself: the wait is at most 60 s.
    pub fn retryable(&self) -> bool {
        self.wait() <= Wait::For(Self::RETRY_HORIZON)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tripped.first() {
            Some(first) => write!(f, "refused by {} at {}", first.instance.limit.id, first.instance.node),
            None => f.write_str("refused"),
        }
    }
}

/// The room left under a rate cap, for the `x-ratelimit-*` headers of a success.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct RateLeft {
    /// The cap's amount.
    pub limit: Units,
    /// What is left of it, this request counted.
    pub remaining: Units,
    /// Until the cap would be wholly free again if nothing else came.
    pub reset: Span,
}

impl RateLeft {
    /// The one with less left; the earlier on a tie.
    pub(crate) fn tighter(one: Option<RateLeft>, other: Option<RateLeft>) -> Option<RateLeft> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if other.remaining < one.remaining { other } else { one }),
            (one, other) => one.or(other),
        }
    }
}

/// What a limit's posture and suspension let it do (SPEC §3, posture).
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Stance {
    /// Neither evaluated nor counted: off, or suspended.
    Skipped,
    /// Counted, never refuses: shadow.
    Shadow,
    /// Counted, never refuses, named in the answer when it would have: alert only.
    Alert,
    /// Counted, and refuses.
    Hard,
}

impl Stance {
    pub(crate) fn of(limit: &Limit) -> Stance {
        match (limit.suspended, limit.posture.mode, limit.posture.enforce) {
            (true, ..) | (_, Mode::Off, _) => Stance::Skipped,
            (_, Mode::Shadow, _) => Stance::Shadow,
            (_, Mode::On, Enforce::AlertOnly) => Stance::Alert,
            (_, Mode::On, Enforce::Hard) => Stance::Hard,
        }
    }
}
