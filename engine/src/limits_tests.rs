//! The table of limit types, postures, dims, and the shapes that resolve to nothing.

use super::*;
use crate::calendar::CalendarPeriod;
use crate::time::Span;

fn limit(kind: LimitType, attach: Attach, matches: Match) -> Limit {
    let window = match kind {
        LimitType::Rpm | LimitType::Tpm => {
            Window::Rolling { period: Span::from_secs(60), algorithm: Algorithm::default() }
        }
        LimitType::Concurrency => Window::Live,
        _ => Window::Calendar { period: CalendarPeriod::Day, zone: Zone::utc() },
    };
    Limit {
        id: LimitId::new("l"),
        attach,
        kind,
        amount: Units(5),
        window,
        admit: Admit::default(),
        posture: Posture::default(),
        matches,
        overrides: OverridePolicy::default(),
        suspended: false,
    }
}

fn glob(pattern: &str) -> Option<Glob> {
    Some(Glob::new(pattern).unwrap())
}

#[test]
fn the_six_types_are_as_the_table_lists_them() {
    let check = |kind: LimitType, name, class: &str, unit, gate, overridable| {
        let found = (kind.name(), kind.class().name(), kind.unit(), kind.gate(), kind.overridable());
        assert_eq!(found, (name, class, unit, gate, overridable));
        assert_eq!(LimitType::parse(name), Some(kind));
    };
    check(LimitType::Rpm, "rpm", "count", "requests", Gate::One, false);
    check(LimitType::Concurrency, "concurrency", "count", "concurrent-requests", Gate::One, false);
    check(LimitType::Tpm, "tpm", "count", "tokens", Gate::Two, false);
    check(LimitType::QuotaRequests, "quota_requests", "count", "requests", Gate::Two, true);
    check(LimitType::QuotaTokens, "quota_tokens", "count", "tokens", Gate::Two, true);
    check(LimitType::BudgetUsd, "budget_usd", "spend", "usd", Gate::Two, true);
    assert_eq!(LimitType::parse("RPM"), None);
    assert_eq!(LimitType::BudgetUsd.figure(Units(12_600_000)).to_string(), "0.0000126");
    assert_eq!(LimitType::Tpm.figure(Units(12)).to_string(), "12");
}

#[test]
fn a_posture_is_one_word_and_hard_by_default() {
    let word = |mode, enforce| Posture { mode, enforce, fail: Fail::Open }.word();
    assert_eq!(word(Mode::Off, Enforce::Hard), "off");
    assert_eq!(word(Mode::Shadow, Enforce::AlertOnly), "shadow");
    assert_eq!(word(Mode::On, Enforce::AlertOnly), "alert_only");
    assert_eq!(word(Mode::On, Enforce::Hard), "hard");
    assert_eq!(Posture::default(), Posture { mode: Mode::On, enforce: Enforce::Hard, fail: Fail::Open });
    for name in ["off", "shadow", "on"] {
        assert_eq!(Mode::parse(name).map(Mode::name), Some(name));
    }
    for name in ["hard", "alert_only"] {
        assert_eq!(Enforce::parse(name).map(Enforce::name), Some(name));
    }
    for name in ["open", "closed"] {
        assert_eq!(Fail::parse(name).map(Fail::name), Some(name));
    }
    for name in ["while_under", "if_fits"] {
        assert_eq!(Admit::parse(name).map(Admit::name), Some(name));
    }
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::parse(algorithm.name()), Some(algorithm));
    }
}

#[test]
fn off_and_suspended_limits_are_not_evaluated() {
    let mut one = limit(LimitType::Rpm, Attach::Level(Level::Org), Match::default());
    assert!(one.is_evaluated());
    one.suspended = true;
    assert!(!one.is_evaluated());
    one.suspended = false;
    one.posture.mode = Mode::Shadow;
    assert!(one.is_evaluated());
    one.posture.mode = Mode::Off;
    assert!(!one.is_evaluated());
}

#[test]
fn periods_are_shown_as_go_and_the_calendar_name_them() {
    let rolling = Window::Rolling { period: Span::from_secs(90), algorithm: Algorithm::TokenBucket };
    assert_eq!(rolling.period_text(), "1m30s");
    let zone = Zone::named("Asia/Tokyo").unwrap();
    assert_eq!(Window::Calendar { period: CalendarPeriod::Month, zone }.period_text(), "month");
    assert_eq!(Window::Live.period_text(), "");
    assert_eq!(Zone::named("Mars/Olympus"), None);
}

#[test]
fn a_match_asks_only_what_it_names() {
    let matches = Match { model: glob("gpt-*"), provider: None, endpoint: glob("/v1/chat/*") };
    let dims = Dims { model: "gpt-4o", provider: "x", endpoint: "/v1/chat/completions" };
    assert!(matches.fits(&dims));
    assert!(Match::default().fits(&Dims::default()));
    let unfit = |dims: Dims<'static>| matches.first_unfit(&dims).map(|(dim, _, value)| (dim, value));
    assert_eq!(unfit(Dims { model: "llama", ..dims }), Some(("model", "llama")));
    assert_eq!(unfit(Dims { endpoint: "/v1/x", ..dims }), Some(("endpoint", "/v1/x")));
    assert_eq!(dims.seen_at(Gate::One).values(), ["", "", "/v1/chat/completions"]);
    assert_eq!(dims.seen_at(Gate::Two), dims);
}

#[test]
fn shapes_that_resolve_to_nothing_say_why() {
    let check = |limit: &Limit, key_nodes: bool, wanted: Option<&str>| {
        let reason = limit.inert_reason(key_nodes);
        let starts = matches!((reason, wanted), (Some(reason), Some(wanted)) if reason.starts_with(wanted));
        assert!(starts || (reason, wanted) == (None, None), "{limit:?}: {reason:?}");
    };
    let any = Match::default;
    let at = Attach::Level;
    check(&limit(LimitType::BudgetUsd, at(Level::Global), any()), true, Some("attach level global"));
    check(&limit(LimitType::BudgetUsd, at(Level::Key), any()), false, Some("attach level key"));
    check(&limit(LimitType::BudgetUsd, at(Level::Key), any()), true, None);
    check(&limit(LimitType::BudgetUsd, Attach::Node(NodeId::global()), any()), false, None);
    let model = || Match { model: glob("gpt-*"), ..any() };
    let provider = || Match { provider: glob("loc*"), ..any() };
    for kind in [LimitType::Rpm, LimitType::Concurrency] {
        check(&limit(kind, at(Level::Org), model()), false, Some("match.model"));
        check(&limit(kind, at(Level::Org), provider()), false, Some("match.provider"));
        let star = Match { model: glob("*"), provider: glob("*"), endpoint: glob("/v1/*") };
        check(&limit(kind, at(Level::Org), star), false, None);
    }
    check(&limit(LimitType::Tpm, at(Level::Org), model()), false, None);
}

#[test]
fn an_absent_or_zero_ceiling_is_none() {
    let policy = |allow, ceiling| OverridePolicy { allow, ceiling };
    assert!(policy(true, None).is_unbounded());
    assert!(policy(true, Some(Units::ZERO)).is_unbounded());
    assert!(!policy(true, Some(Units::ONE)).is_unbounded());
    assert!(!policy(false, None).is_unbounded());
    let mut rate = limit(LimitType::Rpm, Attach::Level(Level::Org), Match::default());
    rate.overrides.allow = true;
    assert!(!rate.override_allowed(), "a rate takes none, whatever it says");
}
