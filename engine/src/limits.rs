//! What a limit is: where it attaches, what it counts, over which window, and what happens when it is over.
//!
//! A [`Limit`] is the definition as the config gives it; resolution turns it into instances at nodes. Amount and
//! posture live here and never in a counter, so that editing them keeps the usage counted so far.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::calendar::CalendarPeriod;
use crate::glob::Glob;
use crate::money::PicoUsd;
use crate::tenancy::{Level, NodeId};
use crate::time::Span;
use crate::units::Units;

/// The id of a limit. Cheap to clone; ordered as its text.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct LimitId(Arc<str>);

impl LimitId {
    /// The id spelt so.
    #[must_use]
    pub fn new(text: &str) -> LimitId {
        LimitId(text.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LimitId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for LimitId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", &*self.0)
    }
}

/// The six limit types (SPEC section 3).
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum LimitType {
    /// Requests in a rolling period.
    Rpm,
    /// Requests in flight at once.
    Concurrency,
    /// Tokens in a rolling period.
    Tpm,
    /// Requests in a calendar period.
    QuotaRequests,
    /// Tokens in a calendar period.
    QuotaTokens,
    /// Money in a calendar period.
    BudgetUsd,
}

/// Whether a limit counts things or money.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Class {
    /// Requests, slots, tokens.
    Count,
    /// Money.
    Spend,
}

/// When a limit is evaluated.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Gate {
    /// Before the body is read: the dims `model` and `provider` are empty strings.
    One,
    /// After the body is read.
    Two,
}

impl LimitType {
    /// All types, as the table of SPEC section 3 lists them.
    pub const ALL: [LimitType; 6] = [
        LimitType::Rpm,
        LimitType::Concurrency,
        LimitType::Tpm,
        LimitType::QuotaRequests,
        LimitType::QuotaTokens,
        LimitType::BudgetUsd,
    ];

    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            LimitType::Rpm => "rpm",
            LimitType::Concurrency => "concurrency",
            LimitType::Tpm => "tpm",
            LimitType::QuotaRequests => "quota_requests",
            LimitType::QuotaTokens => "quota_tokens",
            LimitType::BudgetUsd => "budget_usd",
        }
    }

    /// The type of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<LimitType> {
        Self::ALL.into_iter().find(|kind| kind.name() == text)
    }

    /// Count or spend.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            LimitType::BudgetUsd => Class::Spend,
            _ => Class::Count,
        }
    }

    /// The unit as listings name it.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            LimitType::Rpm | LimitType::QuotaRequests => "requests",
            LimitType::Concurrency => "concurrent-requests",
            LimitType::Tpm | LimitType::QuotaTokens => "tokens",
            LimitType::BudgetUsd => "usd",
        }
    }

    /// The gate that evaluates it.
    #[must_use]
    pub const fn gate(self) -> Gate {
        match self {
            LimitType::Rpm | LimitType::Concurrency => Gate::One,
            _ => Gate::Two,
        }
    }

    /// Whether an override may change its amount: budgets and quotas only.
    #[must_use]
    pub const fn overridable(self) -> bool {
        matches!(self, LimitType::QuotaRequests | LimitType::QuotaTokens | LimitType::BudgetUsd)
    }

    /// A figure of this type as people read it: a whole count, or plain decimal USD.
    #[must_use]
    pub fn figure(self, units: Units) -> Figure {
        Figure { class: self.class(), units }
    }
}

impl fmt::Display for LimitType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Class {
    /// `count` or `spend`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::Count => "count",
            Class::Spend => "spend",
        }
    }
}

/// Displays [`Units`] as a count or as USD; made by [`LimitType::figure`].
#[derive(Copy, Clone, Debug)]
pub struct Figure {
    class: Class,
    units: Units,
}

impl fmt::Display for Figure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            Class::Count => self.units.0.fmt(out),
            Class::Spend => PicoUsd(self.units.0).fmt(out),
        }
    }
}

/// How a rolling period is counted.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub enum Algorithm {
    /// Never more than the amount in any interval as long as the period.
    #[default]
    SlidingWindow,
    /// Never more than the amount in each aligned window.
    FixedWindow,
    /// A bucket of the amount's capacity that refills over the period.
    TokenBucket,
}

impl Algorithm {
    /// All algorithms, the default first.
    pub const ALL: [Algorithm; 3] =
        [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::TokenBucket];

    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::SlidingWindow => "sliding_window",
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::TokenBucket => "token_bucket",
        }
    }

    /// The algorithm of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Algorithm> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == text)
    }
}

/// A time zone with the name it was asked for by.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Zone {
    /// Its name, such as `Europe/Berlin`.
    pub name: Arc<str>,
    /// Its rules.
    pub zone: jiff::tz::TimeZone,
}

impl Zone {
    /// Coordinated universal time.
    #[must_use]
    pub fn utc() -> Zone {
        Zone { name: "UTC".into(), zone: jiff::tz::TimeZone::UTC }
    }

    /// The zone of that name in the time zone database; `None` when it has none.
    #[must_use]
    pub fn named(name: &str) -> Option<Zone> {
        let zone = jiff::tz::TimeZone::get(name).ok()?;
        Some(Zone { name: name.into(), zone })
    }
}

/// The stretch of time that a limit counts over.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Window {
    /// rpm, tpm: a period that moves with the monotonic clock.
    Rolling {
        /// Its length, above zero.
        period: Span,
        /// How it is counted.
        algorithm: Algorithm,
    },
    /// Budgets and quotas: a civil period.
    Calendar {
        /// Its length.
        period: CalendarPeriod,
        /// Whose civil dates.
        zone: Zone,
    },
    /// Concurrency: what is in flight now.
    Live,
}

impl Window {
    /// As listings show it: `1m0s`, `month`, and nothing for a live gauge.
    #[must_use]
    pub fn period_text(&self) -> Cow<'static, str> {
        match self {
            Window::Rolling { period, .. } => period.go_string().to_string().into(),
            Window::Calendar { period, .. } => period.name().into(),
            Window::Live => "".into(),
        }
    }
}

/// When a spend or token limit admits.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug)]
pub enum Admit {
    /// While `observed + held < amount`.
    #[default]
    WhileUnder,
    /// When `observed + held + estimate <= amount`.
    IfFits,
}

impl Admit {
    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Admit::WhileUnder => "while_under",
            Admit::IfFits => "if_fits",
        }
    }

    /// The rule of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Admit> {
        [Admit::WhileUnder, Admit::IfFits].into_iter().find(|admit| admit.name() == text)
    }
}

/// Whether a limit is evaluated and counted.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug)]
pub enum Mode {
    /// Neither evaluated nor counted.
    Off,
    /// Counted; a would-be refusal is only told.
    Shadow,
    /// In force.
    #[default]
    On,
}

/// What a limit that is over does.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug)]
pub enum Enforce {
    /// Refuses with 429.
    #[default]
    Hard,
    /// Admits, with an alert.
    AlertOnly,
}

/// What happens when a limit cannot be evaluated.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug)]
pub enum Fail {
    /// Admits.
    #[default]
    Open,
    /// Refuses.
    Closed,
}

impl Mode {
    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Shadow => "shadow",
            Mode::On => "on",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Mode> {
        [Mode::Off, Mode::Shadow, Mode::On].into_iter().find(|mode| mode.name() == text)
    }
}

impl Enforce {
    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Enforce::Hard => "hard",
            Enforce::AlertOnly => "alert_only",
        }
    }

    /// The rule of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Enforce> {
        [Enforce::Hard, Enforce::AlertOnly].into_iter().find(|enforce| enforce.name() == text)
    }
}

impl Fail {
    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Fail::Open => "open",
            Fail::Closed => "closed",
        }
    }

    /// The rule of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Fail> {
        [Fail::Open, Fail::Closed].into_iter().find(|fail| fail.name() == text)
    }
}

/// How strictly a limit is applied. The default is `on / hard / open`.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug)]
pub struct Posture {
    /// Evaluated and counted, or not.
    pub mode: Mode,
    /// Refuse or alert.
    pub enforce: Enforce,
    /// What to do when it cannot be evaluated.
    pub fail: Fail,
}

impl Posture {
    /// The one word of listings: `off`, `shadow`, `alert_only`, `hard`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self.mode {
            Mode::Off | Mode::Shadow => self.mode.name(),
            Mode::On => self.enforce.name(),
        }
    }
}

/// The closed vocabulary of dims, in the order of every table of three.
pub const DIM_NAMES: [&str; 3] = ["model", "provider", "endpoint"];

/// What one request is, as far as a limit may ask.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct Dims<'a> {
    /// The model that the client asked for.
    pub model: &'a str,
    /// The id of the route's provider.
    pub provider: &'a str,
    /// The normalised path.
    pub endpoint: &'a str,
}

impl<'a> Dims<'a> {
    /// In the order of [`DIM_NAMES`].
    #[must_use]
    pub const fn values(&self) -> [&'a str; 3] {
        [self.model, self.provider, self.endpoint]
    }

    /// What a gate sees of them: before the body is read, only the endpoint.
    #[must_use]
    pub const fn seen_at(&self, gate: Gate) -> Dims<'a> {
        match gate {
            Gate::One => Dims { model: "", provider: "", endpoint: self.endpoint },
            Gate::Two => *self,
        }
    }
}

/// Which requests a limit is about; an absent dim is not asked.
#[derive(Clone, Eq, PartialEq, Default, Debug)]
pub struct Match {
    /// On the model asked for.
    pub model: Option<Glob>,
    /// On the route's provider id.
    pub provider: Option<Glob>,
    /// On the normalised path.
    pub endpoint: Option<Glob>,
}

impl Match {
    /// In the order of [`DIM_NAMES`].
    #[must_use]
    pub fn patterns(&self) -> [Option<&Glob>; 3] {
        [self.model.as_ref(), self.provider.as_ref(), self.endpoint.as_ref()]
    }

    /// Whether a request satisfies all of it.
    #[must_use]
    pub fn fits(&self, dims: &Dims<'_>) -> bool {
        self.first_unfit(dims).is_none()
    }

    /// The first dim that does not fit: its name, the pattern, the request's value.
    #[must_use]
    pub fn first_unfit<'d>(&self, dims: &Dims<'d>) -> Option<(&'static str, &Glob, &'d str)> {
        let asked = DIM_NAMES.into_iter().zip(self.patterns()).zip(dims.values());
        asked.into_iter().find_map(|((name, pattern), value)| {
            let pattern = pattern?;
            (!pattern.matches(value)).then_some((name, pattern, value))
        })
    }
}

/// Where a limit attaches.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Attach {
    /// Pinned: one instance, at that node.
    Node(NodeId),
    /// A template: one instance for each tree node at that level.
    Level(Level),
}

/// Whether single nodes may be given another amount.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct OverridePolicy {
    /// Whether at all.
    pub allow: bool,
    /// The largest amount; absent or zero: no ceiling.
    pub ceiling: Option<Units>,
}

impl OverridePolicy {
    /// The ceiling that applies, if one does.
    #[must_use]
    pub fn effective_ceiling(&self) -> Option<Units> {
        self.ceiling.filter(|ceiling| *ceiling > Units::ZERO)
    }

    /// Whether any positive amount is accepted: one of the traps that `validate` warns of.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.allow && self.effective_ceiling().is_none()
    }
}

/// One limit as defined.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Limit {
    /// Its id, unique in a ruleset.
    pub id: LimitId,
    /// Where it attaches.
    pub attach: Attach,
    /// What it counts.
    pub kind: LimitType,
    /// How much it admits, above zero.
    pub amount: Units,
    /// Over which stretch of time.
    pub window: Window,
    /// When it admits.
    pub admit: Admit,
    /// How strictly.
    pub posture: Posture,
    /// Which requests it is about.
    pub matches: Match,
    /// Whether nodes may be given other amounts.
    pub overrides: OverridePolicy,
    /// Suspended through the management API: neither evaluated nor counted.
    pub suspended: bool,
}

impl Limit {
    /// Why this limit can never select anything, if it cannot (the page's "Shapes that resolve to nothing").
    #[must_use]
    pub fn inert_reason(&self, key_nodes: bool) -> Option<&'static str> {
        match self.attach {
            Attach::Level(Level::Global) => {
                return Some(
                    "attach level global selects nothing: no tree node is at that level; attach at node __global",
                );
            }
            Attach::Level(Level::Key) if !key_nodes => {
                return Some(
                    "attach level key selects nothing: keys are not tree nodes; attach at level user, pin it at the \
                     key holder's node, or set governance.key_nodes",
                );
            }
            _ => {}
        }
        let never = |pattern: &Option<Glob>| pattern.as_ref().is_some_and(|pattern| !pattern.matches(""));
        if self.kind.gate() != Gate::One {
            None
        } else if never(&self.matches.model) {
            Some("match.model never fits: rpm and concurrency are evaluated before the body names a model")
        } else if never(&self.matches.provider) {
            Some("match.provider never fits: rpm and concurrency are evaluated before the provider is known")
        } else {
            None
        }
    }

    /// Whether it takes part in decisions: neither off nor suspended.
    #[must_use]
    pub fn is_evaluated(&self) -> bool {
        self.posture.mode != Mode::Off && !self.suspended
    }

    /// Whether an override may be given: the type takes them and the definition allows them.
    #[must_use]
    pub fn override_allowed(&self) -> bool {
        self.kind.overridable() && self.overrides.allow
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
