//! What the counters' tests share: a seeded generator, and short ways to write limits and instances.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use engine::{
    Admit, Algorithm, Attach, CalendarPeriod, Dims, Identity, Instance, Limit, LimitId, LimitType, Match,
    Monotonic, NodeId, Now, OverridePolicy, Posture, Selected, Span, Units, Window, Zone,
};

/// SplitMix64: the same numbers from the same seed, everywhere.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Seeded {
        Seeded(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is above zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }

    /// Exponentially distributed with that mean: the gaps of a Poisson stream.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        -mean * (1.0 - uniform).ln()
    }
}

pub const SECOND: u64 = 1_000_000_000;

/// Both clocks, `nanoseconds` after a start at 2026-03-28T23:59:30Z.
pub fn now(nanoseconds: u64) -> Now {
    let start: jiff::Timestamp = "2026-03-28T23:59:30Z".parse().unwrap();
    let wall = start.as_nanosecond() + i128::from(nanoseconds);
    Now { monotonic: Monotonic(nanoseconds), wall: jiff::Timestamp::from_nanosecond(wall).unwrap() }
}

/// The wall clock at zero of the monotonic one, as [`now`] has it.
pub fn epoch_offset() -> Span {
    Span(now(0).wall.as_nanosecond() as u64)
}

pub fn rolling(period: u64, algorithm: Algorithm) -> Window {
    Window::Rolling { period: Span(period), algorithm }
}

pub fn sliding(period: u64) -> Window {
    rolling(period, Algorithm::SlidingWindow)
}

pub fn calendar(period: CalendarPeriod) -> Window {
    Window::Calendar { period, zone: Zone::utc() }
}

/// An enforced `while_under` limit.
pub fn limit(id: &str, kind: LimitType, amount: u128, window: Window) -> Limit {
    Limit {
        id: LimitId::new(id),
        attach: Attach::Node(NodeId::global()),
        kind,
        amount: Units(amount),
        window,
        admit: Admit::WhileUnder,
        posture: Posture::default(),
        matches: Match::default(),
        overrides: OverridePolicy::default(),
        suspended: false,
    }
}

pub fn instance(limit: Limit, node: &str) -> Instance {
    let node = NodeId::new(node);
    let identity = Identity::new(&limit, &node, &Dims { model: "m", provider: "p", endpoint: "/e" });
    Instance { amount: limit.amount, identity, node, limit: Arc::new(limit) }
}

/// The limits as one chain's instances, all at one node, in the order given.
pub fn selected(limits: impl IntoIterator<Item = Limit>) -> Selected {
    Selected(limits.into_iter().map(|limit| instance(limit, "__global")).collect())
}
