//! The identity that a counter is kept under, and the core that owns it.
//!
//! Identity = limit id, node, the values of the dims that the limit constrains, period, algorithm (the page's "What a
//! counter is kept under"). Amount, posture, zone and the match patterns are not part of it: editing them keeps the
//! usage. A fixed hash of it, the same in every run and on every machine, names the owning core; the process' own
//! randomised hasher was rejected, because owners must not depend on a start.
//!
//! For calendar limits the algorithm's name says what is summed (`calendar_tokens`), so that an id that changes from a
//! token quota to a budget begins a fresh counter instead of reading tokens as money.
//!
//! Invariant: equal parts, equal hash; no two different part lists are fed to the hash as the same bytes.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::limits::{Algorithm, Dims, Limit, LimitId, LimitType, Window};
use crate::tenancy::NodeId;

/// The number of a core, from 0.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub struct CoreId(pub u16);

/// What one counter is kept under. Cheap to clone.
#[derive(Clone)]
pub struct Identity(Arc<Parts>);

struct Parts {
    hash: u64,
    limit_id: LimitId,
    node: NodeId,
    dims: [Option<Box<str>>; 3],
    period: Cow<'static, str>,
    algorithm: &'static str,
}

/// Every name that [`algorithm_name`] gives.
const ALGORITHM_NAMES: [&str; 7] = [
    "sliding_window",
    "fixed_window",
    "token_bucket",
    "live",
    "calendar_requests",
    "calendar_tokens",
    "calendar_usd",
];

fn algorithm_name(limit: &Limit) -> &'static str {
    match (&limit.window, limit.kind) {
        (Window::Rolling { algorithm: Algorithm::SlidingWindow, .. }, _) => "sliding_window",
        (Window::Rolling { algorithm: Algorithm::FixedWindow, .. }, _) => "fixed_window",
        (Window::Rolling { algorithm: Algorithm::TokenBucket, .. }, _) => "token_bucket",
        (Window::Live, _) => "live",
        (Window::Calendar { .. }, LimitType::BudgetUsd) => "calendar_usd",
        (Window::Calendar { .. }, LimitType::QuotaTokens | LimitType::Tpm) => "calendar_tokens",
        (Window::Calendar { .. }, _) => "calendar_requests",
    }
}

impl Identity {
    /// The identity of a limit's counter at a node, for a request with these dims.
    ///
    /// `dims` are what the limit's gate sees ([`Dims::seen_at`]): of a gate-1 limit with `match: { model: "*" }` all
    /// models share one counter.
    #[must_use]
    pub fn new(limit: &Limit, node: &NodeId, dims: &Dims<'_>) -> Identity {
        let patterns = limit.matches.patterns();
        let values = dims.values();
        let constrained = std::array::from_fn(|dim| patterns[dim].map(|_| values[dim]));
        Self::of(
            limit.id.clone(),
            node.clone(),
            constrained,
            limit.window.period_text(),
            algorithm_name(limit),
        )
    }

    /// The identity of stored parts, as [`Identity::limit_id`] and its siblings gave them; `None` when the algorithm is
    /// none that this program knows.
    #[must_use]
    pub fn from_parts(
        limit_id: &str,
        node: &str,
        dims: [Option<&str>; 3],
        period_text: &str,
        algorithm: &str,
    ) -> Option<Identity> {
        let algorithm = ALGORITHM_NAMES.into_iter().find(|name| *name == algorithm)?;
        let period = Cow::Owned(period_text.to_owned());
        Some(Self::of(LimitId::new(limit_id), NodeId::new(node), dims, period, algorithm))
    }

    fn of(
        limit_id: LimitId,
        node: NodeId,
        dims: [Option<&str>; 3],
        period: Cow<'static, str>,
        algorithm: &'static str,
    ) -> Identity {
        let mut hash = StableHash::new();
        hash.part(Some(limit_id.as_str()));
        hash.part(Some(node.as_str()));
        dims.iter().for_each(|value| hash.part(*value));
        hash.part(Some(&period));
        hash.part(Some(algorithm));
        let dims = dims.map(|value| value.map(Box::from));
        Identity(Arc::new(Parts { hash: hash.finish(), limit_id, node, dims, period, algorithm }))
    }

    /// A hash of all parts, the same in every run and on every machine.
    #[must_use]
    pub fn hash64(&self) -> u64 {
        self.0.hash
    }

    /// The core, of that many, that owns the counter.
    #[must_use]
    pub fn owner(&self, cores: usize) -> CoreId {
        let cores = cores.clamp(1, crate::bounds::CORES);
        // The high bits of hash x cores: an even share without a division.
        let core = (u128::from(self.0.hash) * cores as u128) >> 64;
        CoreId(core as u16)
    }

    /// The limit.
    #[must_use]
    pub fn limit_id(&self) -> &LimitId {
        &self.0.limit_id
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &NodeId {
        &self.0.node
    }

    /// The values of the constrained dims, in the order model, provider, endpoint; `None` where the limit asks nothing.
    #[must_use]
    pub fn dims(&self) -> [Option<&str>; 3] {
        std::array::from_fn(|dim| self.0.dims[dim].as_deref())
    }

    /// The period as listings show it.
    #[must_use]
    pub fn period_text(&self) -> &str {
        &self.0.period
    }

    /// The name of the algorithm.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        self.0.algorithm
    }

    fn parts(&self) -> impl Eq + fmt::Debug + '_ {
        (self.limit_id(), self.node(), &self.0.dims, self.period_text(), self.algorithm())
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.hash == other.0.hash && self.parts() == other.parts())
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().fmt(out)
    }
}

/// FNV-1a over length-prefixed parts, then a mixing step, because FNV leaves its high bits weak and those choose the
/// owner.
struct StableHash(u64);

impl StableHash {
    fn new() -> StableHash {
        StableHash(0xcbf2_9ce4_8422_2325)
    }

    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }

    fn part(&mut self, part: Option<&str>) {
        let Some(text) = part else { return self.byte(0) };
        self.byte(1);
        (text.len() as u64).to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
        text.bytes().for_each(|byte| self.byte(byte));
    }

    fn finish(self) -> u64 {
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
#[path = "counter_identity_tests.rs"]
mod tests;
