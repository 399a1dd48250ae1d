//! What the benchmarks share: the chain of four levels with eight caps that every figure of a whole decision is about.

use engine::{
    Admit, Algorithm, Attach, CalendarPeriod, Chain, Dims, Level, Limit, LimitId, LimitType, Match, NodeId,
    OverridePolicy, Posture, Ruleset, Span, Tree, Units, Window, Zone,
};

/// What the requests ask for.
pub const DIMS: Dims<'_> = Dims { model: "gpt-4o", provider: "local", endpoint: "/v1/chat/completions" };

/// The key leaf, a user, its team, its org, and `__global`.
pub fn chain() -> Chain {
    Chain::of_key(&NodeId::new("org:acme/team:ml/user:dev1"), "vk_FEKZdMs2UQRi")
}

/// Eight caps of all six types on that chain, with amounts that are never reached.
///
/// # Panics
/// If the limits do not compile, which they do.
pub fn eight_caps() -> Ruleset {
    let nodes = ["org:acme", "org:acme/team:ml", "org:acme/team:ml/user:dev1"];
    let limits = vec![
        limit("user_rpm", Attach::Level(Level::User), LimitType::Rpm),
        limit("user_slots", Attach::Level(Level::User), LimitType::Concurrency),
        limit("all_rpm", Attach::Node(NodeId::global()), LimitType::Rpm),
        limit("user_tpm", Attach::Level(Level::User), LimitType::Tpm),
        limit("team_budget", Attach::Level(Level::Team), LimitType::BudgetUsd),
        limit("team_requests", Attach::Level(Level::Team), LimitType::QuotaRequests),
        limit("org_budget", Attach::Level(Level::Org), LimitType::BudgetUsd),
        limit("org_tokens", Attach::Level(Level::Org), LimitType::QuotaTokens),
    ];
    let tree = Tree::new(nodes.map(NodeId::new));
    let (ruleset, _) = Ruleset::compile(1, tree, limits, Vec::new(), false).expect("the limits compile");
    ruleset
}

fn limit(id: &str, attach: Attach, kind: LimitType) -> Limit {
    let window = match kind {
        LimitType::Concurrency => Window::Live,
        LimitType::Rpm | LimitType::Tpm => {
            Window::Rolling { period: Span::from_secs(60), algorithm: Algorithm::SlidingWindow }
        }
        _ => Window::Calendar { period: CalendarPeriod::Month, zone: Zone::utc() },
    };
    Limit {
        id: LimitId::new(id),
        attach,
        kind,
        amount: Units(1 << 62),
        window,
        admit: Admit::WhileUnder,
        posture: Posture::default(),
        matches: Match::default(),
        overrides: OverridePolicy::default(),
        suspended: false,
    }
}
