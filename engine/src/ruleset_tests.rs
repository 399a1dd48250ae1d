//! Compilation, overrides one by one, resolution and explanation on the page's own example.

use super::*;
use crate::calendar::CalendarPeriod;
use crate::glob::Glob;
use crate::limits::{Admit, Algorithm, Dims, Match, OverridePolicy, Posture, Zone};
use crate::tenancy::{Chain, Level};

const ML: &str = "org:acme/team:ml";
const SEARCH: &str = "org:acme/team:search";
const DEV1: &str = "org:acme/team:ml/user:dev1";
const DEV2: &str = "org:acme/team:ml/user:dev2";

fn acme() -> Tree {
    Tree::new(["org:acme", ML, SEARCH, DEV1, DEV2].map(NodeId::new))
}

fn limit(id: &str, attach: &str, kind: LimitType) -> Limit {
    let attach = match Level::parse(attach) {
        Some(level) => Attach::Level(level),
        None => Attach::Node(NodeId::new(attach)),
    };
    let window = match kind {
        LimitType::Rpm | LimitType::Tpm => {
            Window::Rolling { period: Span::from_secs(60), algorithm: Algorithm::default() }
        }
        LimitType::Concurrency => Window::Live,
        _ => Window::Calendar { period: CalendarPeriod::Day, zone: Zone::utc() },
    };
    Limit {
        id: LimitId::new(id),
        attach,
        kind,
        amount: Units(100),
        window,
        admit: Admit::default(),
        posture: Posture::default(),
        matches: Match::default(),
        overrides: OverridePolicy::default(),
        suspended: false,
    }
}

fn for_model(mut limit: Limit, pattern: &str) -> Limit {
    limit.matches.model = Some(Glob::new(pattern).unwrap());
    limit
}

fn allowing(mut limit: Limit, ceiling: Option<u128>) -> Limit {
    limit.overrides = OverridePolicy { allow: true, ceiling: ceiling.map(Units) };
    limit
}

fn over(id: &str, node: &str, amount: u128) -> Override {
    Override { limit_id: LimitId::new(id), node: NodeId::new(node), amount: Units(amount) }
}

fn compiled(limits: Vec<Limit>) -> Ruleset {
    Ruleset::compile(1, acme(), limits, Vec::new(), false).unwrap().0
}

fn pairs(instances: &[crate::Instance]) -> Vec<(&str, &str)> {
    instances.iter().map(|one| (one.limit.id.as_str(), one.node.as_str())).collect()
}

fn page_limits() -> Vec<Limit> {
    vec![
        limit("acme_month", "org", LimitType::BudgetUsd),
        limit("ml_daily", ML, LimitType::BudgetUsd),
        limit("user_rpm", "user", LimitType::Rpm),
        limit("global_rpm", "__global", LimitType::Rpm),
    ]
}

#[test]
fn the_page_s_limits_in_evaluation_order() {
    let wanted = [
        ("user_rpm", DEV1),
        ("user_rpm", DEV2),
        ("ml_daily", ML),
        ("acme_month", "org:acme"),
        ("global_rpm", "__global"),
    ];
    let mut limits = page_limits();
    for _ in 0..limits.len() {
        limits.rotate_left(1);
        assert_eq!(pairs(&compiled(limits.clone()).all_instances()), wanted);
    }
}

#[test]
fn each_gate_resolves_its_own_limits_along_the_chain() {
    let ruleset = compiled(page_limits());
    let check = |chain: Chain, gate, wanted: &[(&str, &str)]| {
        let selected = ruleset.resolve(&chain, gate, &Dims::default());
        assert_eq!(pairs(selected.instances()), wanted);
    };
    let key = |owner| Chain::of_key(&NodeId::new(owner), "vk_FEKZdMs2UQRi");
    check(key(DEV1), Gate::One, &[("user_rpm", DEV1), ("global_rpm", "__global")]);
    check(key(DEV1), Gate::Two, &[("ml_daily", ML), ("acme_month", "org:acme")]);
    check(key(SEARCH), Gate::Two, &[("acme_month", "org:acme")]);
    check(Chain::anonymous(), Gate::One, &[("global_rpm", "__global")]);
    check(Chain::anonymous(), Gate::Two, &[]);
    // A mistyped user still answers for the team and the org that it is spelt under.
    check(key("org:acme/team:ml/user:dve1"), Gate::One, &[("global_rpm", "__global")]);
    check(key("org:acme/team:ml/user:dve1"), Gate::Two, &[("ml_daily", ML), ("acme_month", "org:acme")]);
    check(key("org:Acme/team:ml"), Gate::Two, &[]);
}

#[test]
fn a_pinned_limit_and_a_template_at_one_node_go_by_id() {
    let limits = ["zz", "b", "9", "10"].map(|id| limit(id, ML, LimitType::QuotaTokens));
    let templates = ["a", "c"].map(|id| limit(id, "team", LimitType::QuotaTokens));
    let ruleset = compiled(limits.into_iter().chain(templates).collect());
    let selected = ruleset.resolve(&Chain::of_node(&NodeId::new(ML)), Gate::Two, &Dims::default());
    let ids: Vec<_> = selected.0.iter().map(|one| one.limit.id.as_str()).collect();
    assert_eq!(ids, ["10", "9", "a", "b", "c", "zz"]);
}

#[test]
fn limits_that_cannot_be_armed_stop_the_compile() {
    let check = |limits: Vec<Limit>, wanted: &str| {
        let error = Ruleset::compile(1, acme(), limits, Vec::new(), false).unwrap_err();
        assert_eq!(error.to_string(), wanted);
    };
    let missing = limit("ml_daily", "org:acme/team:nope", LimitType::BudgetUsd);
    check(vec![missing], r#"govern: limit "ml_daily": pinned node "org:acme/team:nope" not in tenancy tree"#);
    let twice = vec![limit("a", "org", LimitType::Rpm), limit("a", "team", LimitType::Rpm)];
    check(twice, r#"govern: limit "a": duplicate id"#);
    let mut zero = limit("a", "org", LimitType::Rpm);
    zero.amount = Units::ZERO;
    check(vec![zero], r#"govern: limit "a": amount must be above zero"#);
    let mut live = limit("a", "org", LimitType::Rpm);
    live.window = Window::Live;
    check(vec![live], r#"govern: limit "a": period is not one of type rpm"#);
    let mut still = limit("a", "org", LimitType::Tpm);
    still.window = Window::Rolling { period: Span::ZERO, algorithm: Algorithm::default() };
    check(vec![still], r#"govern: limit "a": period is not one of type tpm"#);
    // Also a limit that is inert for another reason needs its node.
    let nowhere = for_model(limit("a", "org:x", LimitType::Rpm), "gpt-*");
    check(vec![nowhere], r#"govern: limit "a": pinned node "org:x" not in tenancy tree"#);
}

#[test]
fn each_override_is_taken_or_dropped_alone() {
    let limits = vec![
        allowing(limit("budget", "team", LimitType::BudgetUsd), Some(5 * 10u128.pow(12))),
        allowing(limit("open", "team", LimitType::QuotaTokens), None),
        allowing(limit("zero_ceiling", "__global", LimitType::QuotaRequests), Some(0)),
        allowing(limit("pinned", ML, LimitType::QuotaRequests), Some(500)),
        allowing(limit("rate", "team", LimitType::Rpm), Some(500)),
        allowing(limit("at_key", "key", LimitType::QuotaRequests), Some(500)),
        limit("denied", "team", LimitType::BudgetUsd),
    ];
    let taken = [
        over("budget", ML, 5 * 10u128.pow(12)),
        over("open", SEARCH, 10u128.pow(12)),
        over("zero_ceiling", "__global", 7),
        over("pinned", ML, 1),
    ];
    let dropped = [
        (over("budget", SEARCH, 5 * 10u128.pow(12) + 1), "the amount 5.000000000001 is above the ceiling 5"),
        (over("open", ML, 0), "the amount must be above zero"),
        (over("pinned", SEARCH, 5), "the limit has no instance at node \"org:acme/team:search\""),
        (over("open", "__global", 5), "the limit has no instance at node \"__global\""),
        (over("open", "org:acme", 5), "the limit has no instance at node \"org:acme\""),
        (over("open", "org:acme/team:nope", 5), "node \"org:acme/team:nope\" is not in the tenancy tree"),
        (over("at_key", DEV1, 5), "the limit has no instance at node \"org:acme/team:ml/user:dev1\""),
        (over("rate", ML, 5), "limit type rpm takes no override"),
        (over("denied", ML, 5), "the limit does not allow overrides"),
        (over("nobody", ML, 5), "no limit has the id \"nobody\""),
    ];
    let all = dropped.iter().map(|(bad, _)| bad).chain(&taken).cloned().collect();
    let (ruleset, reported) = Ruleset::compile(1, acme(), limits, all, false).unwrap();
    assert_eq!(reported.len(), dropped.len());
    for (report, (bad, reason)) in reported.iter().zip(&dropped) {
        assert_eq!(&report.override_, bad, "dropped ones are told in their order");
        assert!(report.reason.starts_with(reason), "{report:?}, wanted {reason:?}");
        assert_eq!(ruleset.validate_override(bad).as_ref(), Err(&report.reason));
    }
    for one in ruleset.all_instances() {
        let wanted = taken.iter().find(|good| good.limit_id == one.limit.id && good.node == one.node);
        assert_eq!(one.amount, wanted.map_or(Units(100), |good| good.amount), "{one:?}");
        let selected = ruleset.resolve(&Chain::of_node(&one.node), one.limit.kind.gate(), &Dims::default());
        let same = selected.0.iter().find(|same| same.limit.id == one.limit.id && same.node == one.node);
        assert_eq!(same.map(|same| same.amount), Some(one.amount));
    }
}

#[test]
fn of_two_overrides_of_one_instance_the_later_stays() {
    let limits = vec![allowing(limit("q", "team", LimitType::QuotaTokens), None)];
    let overrides = vec![over("q", ML, 5), over("q", SEARCH, 6), over("q", ML, 7), over("q", ML, 0)];
    let (ruleset, dropped) = Ruleset::compile(1, acme(), limits, overrides, false).unwrap();
    let reasons: Vec<_> = dropped.iter().map(|one| (one.override_.amount.0, one.reason.as_str())).collect();
    let replaced = "a later override of the same limit and node takes its place";
    assert_eq!(reasons, [(5, replaced), (0, "the amount must be above zero")]);
    let amounts: Vec<_> = ruleset.all_instances().iter().map(|one| one.amount.0).collect();
    assert_eq!(amounts, [7, 6]);
}

#[test]
fn inert_limits_have_no_instance_and_are_named() {
    let limits = vec![
        allowing(limit("at_key", "key", LimitType::QuotaRequests), Some(500)),
        limit("at_global", "global", LimitType::QuotaRequests),
        for_model(limit("rpm_model", "user", LimitType::Rpm), "m*"),
        for_model(limit("rpm_star", "user", LimitType::Rpm), "*"),
    ];
    let leaf = NodeId::new(DEV1).key_leaf("vk_FEKZdMs2UQRi");
    let compile = |key_nodes| {
        // A key-level node made by hand must not wake `level: key` up.
        let tree = Tree::new([NodeId::new(DEV1), leaf.clone()]);
        Ruleset::compile(1, tree, limits.clone(), Vec::new(), key_nodes).unwrap().0
    };
    let (off, on) = (compile(false), compile(true));
    let at_leaf = Override { limit_id: LimitId::new("at_key"), node: leaf.clone(), amount: Units(5) };
    let turned_down = off.validate_override(&at_leaf).unwrap_err();
    assert!(turned_down.starts_with("the limit has no instance at node"), "{turned_down}");
    assert_eq!(on.validate_override(&at_leaf), Ok(()));
    let inert =
        |ruleset: &Ruleset| ruleset.inert().map(|(limit, _)| limit.id.to_string()).collect::<Vec<_>>();
    assert_eq!(inert(&off), ["at_global", "at_key", "rpm_model"]);
    assert_eq!(inert(&on), ["at_global", "rpm_model"]);
    assert_eq!(pairs(&off.all_instances()), [("rpm_star", DEV1)]);
    assert_eq!(pairs(&on.all_instances()), [("at_key", leaf.as_str()), ("rpm_star", DEV1)]);
    let chain = Chain::of_key(&NodeId::new(DEV1), "vk_FEKZdMs2UQRi");
    assert!(off.resolve(&chain, Gate::Two, &Dims::default()).is_empty());
    assert_eq!(pairs(&on.resolve(&chain, Gate::Two, &Dims::default()).0), [("at_key", leaf.as_str())]);
    // Before the body is read, all models are one: the same counter, whatever the caller passes.
    let asking = |model| off.resolve(&chain, Gate::One, &Dims { model, ..Dims::default() });
    assert_eq!(asking("m1"), asking("m2"));
}

#[test]
fn every_dropped_limit_says_why() {
    let limits = vec![
        limit("global_one", "__global", LimitType::Rpm),
        limit("mine", ML, LimitType::QuotaRequests),
        limit("theirs", SEARCH, LimitType::QuotaRequests),
        for_model(limit("other_model", ML, LimitType::QuotaRequests), "llama*"),
        limit("every_user", "user", LimitType::Concurrency),
        limit("every_team", "team", LimitType::Concurrency),
        limit("at_key", "key", LimitType::QuotaRequests),
    ];
    let ruleset = compiled(limits);
    let dims = Dims { model: "gpt-4o", provider: "local", endpoint: "/v1/chat/completions" };
    let check = |owner: &str, instances: &[(&str, &str)], dropped: &[(&str, &str)]| {
        let explanation = ruleset.explain(&Chain::of_node(&NodeId::new(owner)), &dims);
        assert_eq!(pairs(&explanation.instances), instances);
        let said: Vec<_> =
            explanation.dropped.iter().map(|one| (one.limit.id.as_str(), one.reason.as_str())).collect();
        assert_eq!(said.len(), dropped.len(), "{said:?}");
        for ((id, reason), (wanted_id, wanted)) in said.iter().zip(dropped) {
            assert!(id == wanted_id && reason.starts_with(wanted), "{said:?}");
        }
        let all = explanation.instances.iter().map(|one| &one.limit.id);
        let all: std::collections::BTreeSet<_> =
            all.chain(explanation.dropped.iter().map(|one| &one.limit.id)).collect();
        assert_eq!(all.len(), ruleset.limits().len(), "each limit is selected or dropped");
    };
    check(
        ML,
        &[("every_team", ML), ("global_one", "__global"), ("mine", ML)],
        &[
            ("at_key", "inert: attach level key selects nothing"),
            ("every_user", "the request's chain has no node at level user"),
            ("other_model", "match.model \"llama*\" does not fit \"gpt-4o\""),
            ("theirs", "pinned node \"org:acme/team:search\" is not in the request's chain"),
        ],
    );
    check(
        "org:acme/team:ml/user:typo",
        &[("every_team", ML), ("global_one", "__global"), ("mine", ML)],
        &[
            ("at_key", "inert"),
            ("every_user", "node \"org:acme/team:ml/user:typo\" of the chain is not in the tenancy tree"),
            ("other_model", "match.model"),
            ("theirs", "pinned node"),
        ],
    );
}

#[test]
fn an_empty_ruleset_selects_nothing() {
    let ruleset = Ruleset::empty(7);
    assert_eq!((ruleset.version(), ruleset.limits().len(), ruleset.tree().len()), (7, 0, 0));
    assert!(ruleset.resolve(&Chain::anonymous(), Gate::Two, &Dims::default()).is_empty());
    assert!(ruleset.limit(&LimitId::new("x")).is_none());
}
