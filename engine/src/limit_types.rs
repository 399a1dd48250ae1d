//! The six limit types and what follows from a type alone: class, unit, gate, whether overrides apply (SPEC section 3).

use std::fmt;

use crate::money::PicoUsd;
use crate::units::Units;

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

impl Figure {
    /// The figure, where it is a whole count of at most 64 bits.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        match self.class {
            Class::Count => u64::try_from(self.units.0).ok(),
            Class::Spend => None,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            Class::Count => self.units.0.fmt(out),
            Class::Spend => PicoUsd(self.units.0).fmt(out),
        }
    }
}
