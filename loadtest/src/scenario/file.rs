//! A scenario as its TOML file says it: what is sent, by whom, to which backend, governed by what.
//!
//! Every field is checked where it is read, so that an error names its line. docs/loadtest.md describes each; a test keeps the two
//! together.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values;
use crate::backend::{Failure, Latency};

/// One scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// What it is for, in a sentence.
    pub about: String,
    /// What is sent.
    pub load: Spanned<Load>,
    /// By whom.
    #[serde(default)]
    pub keys: Option<Spanned<Keys>>,
    /// To which backend.
    #[serde(default)]
    pub backend: BackendPart,
    /// What governs it.
    #[serde(default)]
    pub governance: Governance,
    /// What is looked for, when the pattern is `ramp`.
    pub ramp: Option<Ramp>,
}

/// How requests follow each other.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum LoadPattern {
    /// At fixed times.
    Open,
    /// Each connection's next when its last is answered.
    Closed,
    /// Open, at one rate after the other.
    Ramp,
}

/// What is sent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// How requests follow each other.
    pub pattern: LoadPattern,
    /// Requests a second.
    #[serde(default, deserialize_with = "values::some_positive")]
    pub rate: Option<f64>,
    /// Connections.
    #[serde(default = "values::of::<usize, 32>", deserialize_with = "values::connections")]
    pub connections: usize,
    /// Requests of one connection.
    pub requests_per_connection: Option<NonZeroU64>,
    /// Measured time; of each step, when the pattern is `ramp`.
    #[serde(default = "values::seconds::<10>", deserialize_with = "values::some_time")]
    pub duration: Duration,
    /// Time before it that is not measured.
    #[serde(default = "values::seconds::<1>", deserialize_with = "values::time")]
    pub warm_up: Duration,
    /// Longest time for one answer.
    #[serde(default = "values::seconds::<30>", deserialize_with = "values::some_time")]
    pub timeout: Duration,
    /// Time after the end in which answers may complete.
    #[serde(default = "values::seconds::<2>", deserialize_with = "values::time")]
    pub grace: Duration,
    /// The model asked for.
    pub model: Option<String>,
    /// The prompt.
    pub prompt: Option<String>,
    /// Bytes of the prompt, which is then made up.
    pub prompt_bytes: Option<usize>,
    /// The most tokens that the answer may have.
    pub max_tokens: Option<u64>,
    /// Whether the answer is to be a stream of events.
    pub stream: Option<bool>,
    /// The whole body.
    pub body: Option<String>,
}

/// How keys are drawn.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum DrawName {
    /// The next one.
    #[default]
    InTurn,
    /// The first.
    One,
    /// The first most often, by rank.
    Zipf,
    /// The first with a share of its own.
    Hot,
}

/// Who sends.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// How many keys, dealt to the users in turn.
    pub count: usize,
    /// Which one a request takes.
    #[serde(default)]
    pub draw: DrawName,
    /// Of `zipf`.
    #[serde(default, deserialize_with = "values::some_not_negative")]
    pub exponent: Option<f64>,
    /// Of `hot`.
    #[serde(default, deserialize_with = "values::some_fraction")]
    pub hot_share: Option<f64>,
}

/// What the backend does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackendPart {
    /// Threads.
    pub threads: usize,
    /// Tokens of an answer.
    pub tokens: u64,
    /// Bytes of text of an answer, at least.
    #[serde(deserialize_with = "values::answer_bytes")]
    pub answer_bytes: usize,
    /// Pause before an answer.
    #[serde(deserialize_with = "values::parsed")]
    pub latency: Latency,
    /// Time to the first token.
    #[serde(deserialize_with = "values::time")]
    pub first_token: Duration,
    /// Tokens a second.
    #[serde(deserialize_with = "values::not_negative")]
    pub tokens_per_second: f64,
    /// Share of requests that fail.
    #[serde(deserialize_with = "values::fraction")]
    pub failure_rate: f64,
    /// How they fail.
    #[serde(deserialize_with = "values::parsed")]
    pub failure: Failure,
}

impl Default for BackendPart {
    fn default() -> BackendPart {
        BackendPart {
            threads: 1,
            tokens: 16,
            answer_bytes: 0,
            latency: Latency::None,
            first_token: Duration::ZERO,
            tokens_per_second: 0.0,
            failure_rate: 0.0,
            failure: Failure::Status(500),
        }
    }
}

/// What governs the requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Governance {
    /// Whether anything does.
    pub enabled: bool,
    /// Whether minted keys are nodes of the tree, so that `level = "key"` works.
    pub key_nodes: bool,
    /// Orgs, called `o0`, `o1` and so on.
    pub orgs: usize,
    /// Teams of each, called `t0`, `t1` and so on.
    pub teams_an_org: usize,
    /// Users of each team, called `u0`, `u1` and so on.
    pub users_a_team: usize,
    /// USD per million tokens read.
    #[serde(deserialize_with = "values::not_negative")]
    pub input_price: f64,
    /// USD per million tokens written.
    #[serde(deserialize_with = "values::not_negative")]
    pub output_price: f64,
    /// The limits, as the gateway's config has them.
    pub limits: Vec<Spanned<Limit>>,
}

impl Default for Governance {
    fn default() -> Governance {
        Governance {
            enabled: true,
            key_nodes: false,
            orgs: 1,
            teams_an_org: 1,
            users_a_team: 1,
            input_price: 0.15,
            output_price: 0.6,
            limits: Vec::new(),
        }
    }
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum LimitType {
    /// Requests in a rolling window.
    Rpm,
    /// Requests in flight.
    Concurrency,
    /// Tokens in a rolling window.
    Tpm,
    /// Requests in a calendar window.
    QuotaRequests,
    /// Tokens in a calendar window.
    QuotaTokens,
    /// Money in a calendar window.
    BudgetUsd,
}

impl LimitType {
    /// Its name in configs and answers.
    pub fn name(self) -> &'static str {
        match self {
            LimitType::Rpm => "rpm",
            LimitType::Concurrency => "concurrency",
            LimitType::Tpm => "tpm",
            LimitType::QuotaRequests => "quota_requests",
            LimitType::QuotaTokens => "quota_tokens",
            LimitType::BudgetUsd => "budget_usd",
        }
    }
}

/// Where a limit is attached: one of the two.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// Every node of this level: `org`, `team`, `user`, `key`.
    pub level: Option<String>,
    /// This node.
    pub node: Option<String>,
}

/// How a rate counts.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// In any stretch of time as long as the period.
    #[default]
    SlidingWindow,
    /// In each stretch of time between two multiples of the period.
    FixedWindow,
    /// A bucket that fills evenly.
    TokenBucket,
}

impl Algorithm {
    /// Its name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::SlidingWindow => "sliding_window",
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::TokenBucket => "token_bucket",
        }
    }
}

/// When a limit of tokens or money admits.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Admit {
    /// While what is used and held is under the amount.
    WhileUnder,
    /// While what is used, held and expected fits into the amount.
    IfFits,
}

/// One limit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Its id.
    pub id: String,
    /// Where it is attached.
    pub attach: Attach,
    /// What it counts.
    #[serde(rename = "type")]
    pub kind: LimitType,
    /// The most, for every type but `budget_usd`.
    pub amount: Option<NonZeroU64>,
    /// The most, for `budget_usd`.
    #[serde(default, deserialize_with = "values::some_positive")]
    pub amount_usd: Option<f64>,
    /// The window: a Go duration for rates, a calendar period for the others.
    pub period: Option<String>,
    /// Of rates.
    pub algorithm: Option<Algorithm>,
    /// Of tokens and money.
    pub admit: Option<Admit>,
}

/// What a ramp looks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ramp {
    /// For each of these p99 in milliseconds, the highest rate that keeps it.
    pub goals_ms: Vec<f64>,
    /// The first rate tried.
    #[serde(deserialize_with = "values::positive")]
    pub from: f64,
    /// The highest rate tried.
    #[serde(deserialize_with = "values::positive")]
    pub to: f64,
    /// How near the rate found is to one that does not keep the goal: 0.05 is within 5 %.
    #[serde(deserialize_with = "values::positive")]
    pub precision: f64,
    /// Steps to measure at most.
    pub steps: usize,
}

impl Default for Ramp {
    fn default() -> Ramp {
        Ramp { goals_ms: vec![0.5, 1.0, 5.0, 10.0], from: 500.0, to: 100_000.0, precision: 0.05, steps: 80 }
    }
}
