//! What crosses between the cores and the control plane, beside snapshots: reports going out, probes going in.
//!
//! Plain data. The data plane fills it, the control plane stores and shows it; neither needs the other for that.

use std::sync::Arc;

use crate::counter_identity::CoreId;
use crate::gates::Estimate;
use crate::identity::Kid;
use crate::limits::Gate;
use crate::metrics::Metrics;
use crate::money::PicoUsd;
use crate::resolve::Instance;
use crate::routing::ProviderId;
use crate::shard::{MarkNumber, Marks};
use crate::tenancy::{Chain, NodeId};
use crate::units::Tokens;
use crate::usage::Usage;
use crate::verdict::{Reading, Refusal};

/// One message of a core.
#[derive(Debug)]
pub enum Report {
    /// A batch of a core's marks. Requests may wait until it is written.
    Marks(CoreId, Marks),
    /// What exchanges used since the last report, rolled up.
    Usage(Vec<UsageRow>),
    /// What the core measured since its last report. Boxed: it is large beside the others, and rare.
    Metrics(Box<Metrics>),
}

/// How the writing of marks goes: the control plane's word to the cores.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum JournalNews {
    /// Each core's marks are written up to that batch.
    Written(Vec<(CoreId, MarkNumber)>),
    /// Marks cannot be written.
    Failing,
}

/// What identifies one row of a roll-up. A row of the same identity may be reported again: they add up.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub struct UsageKey {
    /// The first second of the hour of admission, since 1970, UTC.
    pub hour: i64,
    /// The key; `None` for keyless traffic.
    pub kid: Option<Kid>,
    /// The key's owner; `__global` for keyless traffic.
    pub node: NodeId,
    /// The model asked for.
    pub model: Arc<str>,
    /// The model served, which has the price.
    pub served: Arc<str>,
    /// Who served it.
    pub provider: ProviderId,
    /// The normalised path.
    pub endpoint: &'static str,
}

/// What exchanges of one identity used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct UsageSum {
    /// Exchanges that were delivered.
    pub requests: u64,
    /// Of these, those whose usage was estimated.
    pub estimated: u64,
    /// Of these, those whose model had no price.
    pub unpriced: u64,
    /// Tokens read, of all kinds.
    pub input: Tokens,
    /// Of these, tokens read from the provider's cache.
    pub cached_input: Tokens,
    /// Of these, tokens written to the provider's cache.
    pub cache_write: Tokens,
    /// Of these, tokens of audio.
    pub audio_input: Tokens,
    /// Of these, tokens of images.
    pub image_input: Tokens,
    /// Tokens written, of all kinds.
    pub output: Tokens,
    /// Of these, tokens of reasoning.
    pub reasoning: Tokens,
    /// Of these, tokens of audio.
    pub audio_output: Tokens,
    /// Of these, tokens of images.
    pub image_output: Tokens,
    /// Images made.
    pub images: u64,
    /// What they cost.
    pub cost: PicoUsd,
}

impl UsageSum {
    /// What one delivered exchange used; `cost` is `None` when its model has no price.
    #[must_use]
    pub fn of(usage: &Usage, estimated: bool, cost: Option<PicoUsd>) -> UsageSum {
        UsageSum {
            requests: 1,
            estimated: estimated.into(),
            unpriced: cost.is_none().into(),
            input: usage.input,
            cached_input: usage.cached_input,
            cache_write: usage.cache_write,
            audio_input: usage.audio_input,
            image_input: usage.image_input,
            output: usage.output,
            reasoning: usage.reasoning,
            audio_output: usage.audio_output,
            image_output: usage.image_output,
            images: usage.images,
            cost: cost.unwrap_or_default(),
        }
    }

    /// Adds another sum, saturating.
    pub fn add(&mut self, other: &UsageSum) {
        self.requests = self.requests.saturating_add(other.requests);
        self.estimated = self.estimated.saturating_add(other.estimated);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
        self.input = self.input.saturating_add(other.input);
        self.cached_input = self.cached_input.saturating_add(other.cached_input);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.audio_input = self.audio_input.saturating_add(other.audio_input);
        self.image_input = self.image_input.saturating_add(other.image_input);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.audio_output = self.audio_output.saturating_add(other.audio_output);
        self.image_output = self.image_output.saturating_add(other.image_output);
        self.images = self.images.saturating_add(other.images);
        self.cost = self.cost.saturating_add(other.cost);
    }
}

/// One row of a roll-up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UsageRow {
    /// What it is of.
    pub key: UsageKey,
    /// What was used.
    pub sum: UsageSum,
}

/// A dry run: what one request would meet.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Whose request.
    pub chain: Chain,
    /// The model asked for.
    pub model: String,
    /// The provider it would be routed to.
    pub provider: String,
    /// The normalised path.
    pub endpoint: String,
    /// What gate 2 would hold.
    pub estimate: Estimate,
}

/// What a dry run finds. Nothing was counted.
#[derive(Debug)]
pub struct ProbeAnswer {
    /// Each instance that the chain selects with its figures, gate 1 first, in evaluation order; those off or suspended
    /// too.
    pub caps: Vec<(Instance, Reading)>,
    /// The gate that would refuse, and why; `None` when both would admit.
    pub refusal: Option<(Gate, Refusal)>,
}
