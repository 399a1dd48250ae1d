//! What is part of a counter's identity, what is not, and that its hash never changes.

use super::*;
use crate::calendar::CalendarPeriod;
use crate::glob::Glob;
use crate::limits::{Admit, Attach, Match, OverridePolicy, Posture, Zone};
use crate::time::Span;
use crate::units::Units;

fn limit(kind: LimitType, window: Window, model: Option<&str>) -> Limit {
    Limit {
        id: LimitId::new("cap"),
        attach: Attach::Node(NodeId::global()),
        kind,
        amount: Units(5),
        window,
        admit: Admit::default(),
        posture: Posture::default(),
        matches: Match { model: model.map(|pattern| Glob::new(pattern).unwrap()), ..Match::default() },
        overrides: OverridePolicy::default(),
        suspended: false,
    }
}

fn rolling(seconds: u64, algorithm: Algorithm) -> Window {
    Window::Rolling { period: Span::from_secs(seconds), algorithm }
}

fn calendar(period: CalendarPeriod) -> Window {
    Window::Calendar { period, zone: Zone::utc() }
}

#[test]
fn amount_posture_and_zone_keep_the_counter() {
    let node = NodeId::new("org:acme");
    let dims = Dims { model: "gpt-4o", provider: "p", endpoint: "/e" };
    let base = limit(LimitType::BudgetUsd, calendar(CalendarPeriod::Day), Some("gpt-*"));
    let identity = Identity::new(&base, &node, &dims);
    let mut edited = base.clone();
    edited.amount = Units(9);
    edited.posture.mode = crate::limits::Mode::Shadow;
    edited.matches.model = Some(Glob::new("gpt-4*").unwrap());
    edited.suspended = true;
    edited.admit = Admit::IfFits;
    edited.window =
        Window::Calendar { period: CalendarPeriod::Day, zone: Zone::named("Asia/Tokyo").unwrap() };
    assert_eq!(Identity::new(&edited, &node, &dims), identity);
    let elsewhere = Dims { provider: "other", endpoint: "/other", ..dims };
    assert_eq!(Identity::new(&base, &node, &elsewhere), identity, "dims that the limit does not ask");
    assert_eq!(identity.dims(), [Some("gpt-4o"), None, None]);
}

#[test]
fn id_node_asked_dims_period_and_algorithm_part_counters() {
    let node = NodeId::new("org:acme");
    let dims = Dims { model: "m", provider: "p", endpoint: "/e" };
    let rpm = limit(LimitType::Rpm, rolling(60, Algorithm::SlidingWindow), Some("*"));
    let mut other_id = rpm.clone();
    other_id.id = LimitId::new("cap2");
    let mut asks_nothing = rpm.clone();
    asks_nothing.matches = Match::default();
    let of = |limit: &Limit| Identity::new(limit, &node, &dims);
    let all = [
        of(&rpm),
        of(&other_id),
        of(&asks_nothing),
        Identity::new(&rpm, &NodeId::new("org:b"), &dims),
        Identity::new(&rpm, &node, &Dims { model: "m2", ..dims }),
        Identity::new(&rpm, &node, &Dims { model: "", ..dims }),
        of(&limit(LimitType::Rpm, rolling(61, Algorithm::SlidingWindow), Some("*"))),
        of(&limit(LimitType::Rpm, rolling(60, Algorithm::FixedWindow), Some("*"))),
        of(&limit(LimitType::Rpm, rolling(60, Algorithm::TokenBucket), Some("*"))),
        of(&limit(LimitType::Concurrency, Window::Live, None)),
        of(&limit(LimitType::QuotaRequests, calendar(CalendarPeriod::Day), None)),
        of(&limit(LimitType::QuotaTokens, calendar(CalendarPeriod::Day), None)),
        of(&limit(LimitType::BudgetUsd, calendar(CalendarPeriod::Day), None)),
        of(&limit(LimitType::BudgetUsd, calendar(CalendarPeriod::Week), None)),
    ];
    for (at, one) in all.iter().enumerate() {
        for (beside, other) in all.iter().enumerate() {
            assert_eq!(one == other, at == beside, "{one:?} and {other:?}");
            assert_eq!(one.hash64() == other.hash64(), at == beside);
        }
        let dims = one.dims();
        let (id, node) = (one.limit_id().as_str(), one.node().as_str());
        let back = Identity::from_parts(id, node, dims, one.period_text(), one.algorithm());
        assert_eq!(back.as_ref(), Some(one), "and back from its parts");
        assert_eq!(back.map(|back| back.hash64()), Some(one.hash64()));
    }
    assert_eq!(Identity::from_parts("a", "b", [None; 3], "day", "abacus"), None);
}

#[test]
fn parts_do_not_run_into_each_other() {
    let hash = |id, node, dims| Identity::from_parts(id, node, dims, "day", "live").unwrap().hash64();
    assert_ne!(hash("ab", "c", [None; 3]), hash("a", "bc", [None; 3]));
    assert_ne!(hash("a", "b", [Some("x"), None, None]), hash("a", "b", [None, Some("x"), None]));
    assert_ne!(hash("a", "b", [Some(""), None, None]), hash("a", "b", [None; 3]));
}

#[test]
fn the_hash_is_the_same_for_ever() {
    // Owners and stored marks depend on it: a change of these numbers is a change of every counter's home.
    let of =
        |id| Identity::from_parts(id, "org:acme", [Some("m"), None, None], "1m0s", "sliding_window").unwrap();
    assert_eq!(of("ml_daily").hash64(), 0x50ce_a6a9_20e9_9e15);
    assert_eq!(of("").hash64(), 0x9f71_43de_4c6e_b0f4);
}

#[test]
fn owners_share_evenly_and_stay_in_range() {
    for cores in [1usize, 2, 3, 7, 8, 64] {
        let mut owned = vec![0u32; cores];
        for number in 0..8000 {
            let node = format!("org:o{number}");
            let identity = Identity::from_parts("cap", &node, [None; 3], "day", "calendar_usd").unwrap();
            owned[usize::from(identity.owner(cores).0)] += 1;
        }
        let share = 8000 / cores as u32;
        assert!(owned.iter().all(|count| (share * 6 / 10..=share * 14 / 10).contains(count)), "{owned:?}");
    }
    assert_eq!(Identity::from_parts("c", "n", [None; 3], "", "live").unwrap().owner(0), CoreId(0));
}
