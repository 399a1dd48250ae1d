//! The arithmetic of the check, case by case.

use super::*;

/// One key with one cap, before and after.
struct Case {
    kind: &'static str,
    period: &'static str,
    before: u128,
    after: u128,
    held: u128,
    new_window: bool,
    seen: KeySeen,
}

impl Default for Case {
    fn default() -> Case {
        Case { kind: "rpm", period: "24h0m0s", before: 0, after: 0, held: 0, new_window: false, seen: SEEN }
    }
}

/// Ten admitted, with 120 and 80 tokens.
const SEEN: KeySeen =
    KeySeen { admitted: 10, refused: 5, input_tokens: 120, output_tokens: 80, unreported: 0, uncertain: 0 };
const UNCERTAIN: KeySeen = KeySeen { uncertain: 2, ..SEEN };
const UNREPORTED: KeySeen = KeySeen { unreported: 1, ..SEEN };

fn known() -> Known {
    Known {
        prices: Some((150_000, 600_000)),
        sliding: vec!["limit".into()],
        most_tokens: 50,
        elapsed: Duration::from_secs(100),
    }
}

fn keys(count: usize) -> Vec<Key> {
    (0..count).map(|number| Key { kid: format!("vk_{number}"), credential: String::new() }).collect()
}

fn cap(case: &Case, observed: u128, held: u128, window: &str) -> Cap {
    Cap {
        limit: "limit".into(),
        node: "org:a".into(),
        kind: case.kind.into(),
        period: case.period.into(),
        resets_at: case.period.chars().all(char::is_alphabetic).then(|| window.to_owned()),
        observed,
        held,
        counts: true,
    }
}

fn verdict(case: &Case, known: &Known) -> Verdict {
    let view = |cap| View { caps: vec![vec![cap]], usage: None };
    let before = view(cap(case, case.before, 0, "one"));
    let after = view(cap(case, case.after, case.held, if case.new_window { "two" } else { "one" }));
    let ledger = Ledger { keys: vec![case.seen], ..Ledger::default() };
    compare(&keys(1), &before, &after, &ledger, known)
}

/// The figures that differ, as `counted / seen`.
fn check(case: Case, wanted: &[&str]) {
    let found = verdict(&case, &known());
    let shown: Vec<String> =
        found.differences.iter().map(|one| format!("{} / {}", one.counted, one.seen)).collect();
    assert_eq!(shown, wanted, "{} {} {}: {found:?}", case.kind, case.before, case.after);
}

#[test]
fn a_counter_shows_what_clients_saw_and_what_was_there_before() {
    check(Case { after: 10, ..Case::default() }, &[]);
    check(Case { after: 11, ..Case::default() }, &["11 / 10"]);
    check(Case { after: 9, ..Case::default() }, &["9 / 10"]);
    check(Case { before: 7, after: 17, ..Case::default() }, &[]);
    check(Case { before: 7, after: 10, ..Case::default() }, &["10 / 17"]);
    let tokens = || Case { kind: "tpm", ..Case::default() };
    check(Case { after: 200, ..tokens() }, &[]);
    check(Case { after: 199, ..tokens() }, &["199 / 200"]);
    let quota = || Case { kind: "quota_requests", period: "month", ..Case::default() };
    check(Case { after: 10, ..quota() }, &[]);
    check(Case { after: 12, ..quota() }, &["12 / 10"]);
    let money = || Case { kind: "budget_usd", period: "month", ..Case::default() };
    check(Case { after: 120 * 150_000 + 80 * 600_000, ..money() }, &[]);
    check(Case { after: 120 * 150_000 + 80 * 600_000 + 1, ..money() }, &["66000001 / 66000000"]);
}

#[test]
fn at_rest_nothing_is_held_and_no_slot_is_taken() {
    let slots = || Case { kind: "concurrency", period: "", ..Case::default() };
    check(slots(), &[]);
    check(Case { after: 1, ..slots() }, &["1 / 0"]);
    check(Case { after: 200, held: 3, kind: "tpm", ..Case::default() }, &["3 / 0"]);
}

#[test]
fn what_clients_did_not_see_widens_the_figure_by_just_that() {
    let case = |kind, after| Case { kind, after, seen: UNCERTAIN, ..Case::default() };
    check(case("rpm", 10), &[]);
    check(case("rpm", 12), &[]);
    check(case("rpm", 13), &["13 / 10 to 12"]);
    check(case("rpm", 9), &["9 / 10 to 12"]);
    check(case("tpm", 300), &[]);
    check(case("tpm", 301), &["301 / 200 to 300"]);
    check(case("budget_usd", 66_000_000 + 2 * 50 * 600_000), &[]);
    check(case("budget_usd", 66_000_000 + 2 * 50 * 600_000 + 1), &["126000001 / 66000000 to 126000000"]);
}

#[test]
fn a_window_that_may_have_ended_has_an_upper_bound_only() {
    let ended =
        |after| Case { kind: "quota_tokens", period: "day", new_window: true, after, ..Case::default() };
    check(ended(3), &[]);
    check(ended(201), &["201 / 0 to 200"]);
    let short = |after| Case { period: "1m0s", after, ..Case::default() };
    check(short(0), &[]);
    check(short(11), &["11 / 0 to 10"]);
    let found = verdict(&short(0), &known());
    assert_eq!((found.counters, found.bounded["a window that ended during the run"]), (1, 1));
    // Nobody said that it slides.
    let found = verdict(&Case { after: 0, ..Case::default() }, &Known { sliding: Vec::new(), ..known() });
    assert!(
        found.differences.is_empty() && found.bounded.contains_key("a rate that may not slide"),
        "{found:?}"
    );
}

#[test]
fn what_cannot_be_known_is_left_out_and_said() {
    let found = verdict(&Case { kind: "tpm", seen: UNREPORTED, ..Case::default() }, &known());
    assert_eq!((found.counters, found.left_out["answers that report no tokens"]), (0, 1));
    let no_prices = Known { prices: None, ..known() };
    let found = verdict(&Case { kind: "budget_usd", period: "day", ..Case::default() }, &no_prices);
    assert_eq!((found.counters, found.left_out["prices that are not known here"]), (0, 1));
    assert!(found.differences.is_empty());
}

#[test]
fn a_shared_counter_is_the_sum_of_its_keys() {
    let case = Case::default();
    let view = |observed: u128| View { caps: vec![vec![cap(&case, observed, 0, "one")]; 3], usage: None };
    let ledger = Ledger { keys: vec![SEEN, SEEN, KeySeen::default()], ..Ledger::default() };
    let found = compare(&keys(3), &view(5), &view(25), &ledger, &known());
    assert_eq!((found.counters, found.differences.len()), (1, 0), "{found:?}");
    let found = compare(&keys(3), &view(5), &view(24), &ledger, &known());
    let wanted = Difference {
        key: "vk_0 and 2 more".into(),
        cap: "limit at org:a (rpm)".into(),
        counted: "24".into(),
        seen: "25".into(),
    };
    assert_eq!(found.differences, [wanted]);
}

#[test]
fn the_usage_of_each_key_is_compared_too() {
    let used = |requests, tokens| BTreeMap::from([("vk_0".to_owned(), Used { requests, tokens })]);
    let view = |usage| View { caps: vec![Vec::new()], usage: Some(usage) };
    let check = |first, last, seen, wanted: usize| {
        let ledger = Ledger { keys: vec![seen], ..Ledger::default() };
        let found = compare(&keys(1), &view(first), &view(last), &ledger, &known());
        assert_eq!(found.differences.len(), wanted, "{found:?}");
    };
    check(BTreeMap::new(), used(10, 200), SEEN, 0);
    check(used(1, 1), used(11, 201), SEEN, 0);
    check(used(1, 1), used(11, 202), SEEN, 1);
    check(BTreeMap::new(), BTreeMap::new(), SEEN, 2);
    check(BTreeMap::new(), used(12, 300), UNCERTAIN, 0);
    check(BTreeMap::new(), used(13, 301), UNCERTAIN, 2);
}

#[test]
fn a_cap_that_does_not_count_is_not_compared() {
    let mut off = cap(&Case::default(), 0, 0, "one");
    off.counts = false;
    let view = View { caps: vec![vec![off]], usage: None };
    let ledger = Ledger { keys: vec![SEEN], ..Ledger::default() };
    assert_eq!(compare(&keys(1), &view, &view, &ledger, &known()).counters, 0);
}

#[test]
fn periods_are_read_as_go_prints_them() {
    for (text, seconds) in
        [("1m0s", Some(60.0)), ("24h0m0s", Some(86_400.0)), ("1.5s", Some(1.5)), ("500ms", Some(0.5))]
    {
        assert_eq!(go_duration(text).map(|period| period.as_secs_f64()), seconds, "{text}");
    }
    for text in ["", "month", "5", "0s", "1x"] {
        assert_eq!(go_duration(text), None, "{text}");
    }
}
