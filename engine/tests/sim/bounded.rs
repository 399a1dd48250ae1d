//! What clients choose freely, names of models and nodes, must not choose how much memory a core takes (`engine::bounds`);
//! and what is forgotten for it must never have mattered.

use engine::bounds::{COUNTERS_A_SHARD, COUNTERS_BEFORE_SWEEP};
use engine::cells::TokenBucket;
use engine::{
    Algorithm, Answer, Ask, CalendarPeriod, CellTable, Chain, CoreId, Counted, CounterMark, Dims, Enforce,
    Estimate, Fail, Gate, GateOneVerdict, GateTwoPlan, Glob, Identity, Instance, Limit, LimitType, Mode,
    Monotonic, NodeId, Now, PicoUsd, ReservationId, Ruleset, Selected, Settlement, Shard, Tokens, Tree,
    Units, Window, WindowIndex, Zone,
};

use super::support::{SECOND, calendar, epoch_offset, instance, limit, now, rolling, sliding};

/// Between two rounds of upkeep.
const ROUND: usize = 1_000;

fn shard() -> Shard {
    Shard::new(CoreId(0), 1).with_epoch_offset(epoch_offset())
}

fn estimate() -> Estimate {
    Estimate { tokens: Tokens(5), money: Some(PicoUsd(5)) }
}

fn reserve(shard: &mut Shard, now: Now, id: u64, instance: Instance) -> Answer {
    let plan = GateTwoPlan::new(&Selected(vec![instance]), 1);
    let (id, deadline) = (ReservationId(id), Monotonic(u64::MAX - 1));
    shard.apply(now, Ask::Reserve { id, plan, estimate: estimate(), deadline, final_round: false })
}

fn settle(shard: &mut Shard, now: Now, id: u64, tokens: u64) {
    let settlement =
        Settlement { tokens: Tokens(tokens), money: Some(PicoUsd(tokens.into())), estimated: false };
    let _ = shard.apply(now, Ask::Settle { id: ReservationId(id), settlement });
}

/// One round: what the core does every so often. The marks go to nobody here.
fn upkeep(shard: &mut Shard, now: Now) -> usize {
    let marks = shard.take_last_marks().marks.len();
    while shard.expire(now) {}
    marks
}

/// A request of one key for a model of that name, under a limit that matches on the model.
fn of_model(ruleset: &Ruleset, chain: &Chain, model: &str) -> Instance {
    let dims = Dims { model, provider: "p", endpoint: "/e" };
    ruleset.resolve(chain, Gate::Two, &dims).0.remove(0)
}

const DAY_AND_TWO_HOURS: u64 = 26 * 3_600 * SECOND;

#[test]
fn random_model_names_from_one_key_are_forgotten() {
    let check = |kind: LimitType, window: Window, used: u64, step: u64| {
        let mut capped = limit("capped", kind, 1_000, window);
        capped.matches.model = Some(Glob::new("*").unwrap());
        let (ruleset, _) = Ruleset::compile(1, Tree::default(), vec![capped], Vec::new(), false).unwrap();
        let chain = Chain::of_key(&NodeId::new("org:a"), "vk_1");
        let (mut shard, mut most) = (shard(), 0);
        for id in 0..100_000 {
            let at = now(step * id);
            let instance =
                of_model(&ruleset, &chain, &format!("m{}", id.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            assert!(matches!(reserve(&mut shard, at, id, instance), Answer::Reserved(_)));
            settle(&mut shard, at, id, used);
            most = most.max(shard.counters());
            if id.is_multiple_of(ROUND as u64) {
                upkeep(&mut shard, at);
            }
        }
        // A calendar window may last a day and two hours longer in another zone, which its limit may be given.
        let kept_on = if used > 0 { DAY_AND_TWO_HOURS.min(100_000 * step) / step } else { 0 };
        let kept_on = if kind == LimitType::Tpm { 0 } else { kept_on as usize };
        let bound = 2 * (COUNTERS_BEFORE_SWEEP + kept_on) + ROUND;
        assert!(most <= bound, "{kind}, {used} used: {most} counters, {bound} at most");
        shard.invariants();
    };
    // Nothing was used: the backend knows no such model.
    check(LimitType::BudgetUsd, calendar(CalendarPeriod::Month), 0, 1_000);
    check(LimitType::QuotaTokens, calendar(CalendarPeriod::Year), 0, 1_000);
    check(LimitType::Tpm, sliding(60 * SECOND), 0, 1_000);
    // Something was used, and the windows pass: a thousand names in each.
    check(LimitType::BudgetUsd, calendar(CalendarPeriod::Hour), 5, 3_600 * SECOND / 200);
    check(LimitType::QuotaRequests, calendar(CalendarPeriod::Day), 5, 86_400 * SECOND / 1_000);
    for algorithm in Algorithm::ALL {
        check(LimitType::Tpm, rolling(60 * SECOND, algorithm), 5, 60 * SECOND / 1_000);
    }
}

#[test]
fn a_million_nodes_do_not_grow_a_shard_without_end() {
    let budget = |fail: Fail| {
        let mut budget = limit("budget", LimitType::BudgetUsd, 1_000, calendar(CalendarPeriod::Day));
        budget.posture.fail = fail;
        budget
    };
    let mut shard = shard();
    let (mut unavailable, mut admitted) = (0, 0);
    for id in 0..1_000_000 {
        let at = now(id);
        let fail = if id.is_multiple_of(2) { Fail::Open } else { Fail::Closed };
        let answer = reserve(&mut shard, at, id, instance(budget(fail), &format!("org:o{id}")));
        match answer {
            Answer::Reserved(_) => admitted += 1,
            Answer::Refused(_) => unavailable += 1,
            other => panic!("{other:?}"),
        }
        settle(&mut shard, at, id, 5);
        assert!(shard.counters() <= COUNTERS_A_SHARD);
        if id.is_multiple_of(32 * ROUND as u64) {
            upkeep(&mut shard, at);
        }
    }
    assert_eq!(shard.counters(), COUNTERS_A_SHARD);
    assert_eq!(
        unavailable,
        (1_000_000 - COUNTERS_A_SHARD as u64) / 2,
        "a full shard fails as the limit says"
    );
    assert_eq!(admitted + unavailable, 1_000_000);
    upkeep(&mut shard, now(86_401 * SECOND));
    assert_eq!(shard.counters(), COUNTERS_A_SHARD, "in another zone the day goes on");
    let later = now((86_401 + 26 * 3600) * SECOND);
    upkeep(&mut shard, later);
    assert_eq!(shard.counters(), 0, "a day that is over everywhere is forgotten");
    let after = reserve(&mut shard, later, 1_000_000, instance(budget(Fail::Closed), "org:new"));
    assert!(matches!(after, Answer::Reserved(_)));
    shard.invariants();
}

#[test]
fn a_million_nodes_do_not_grow_the_cells_without_end() {
    let table = CellTable::new(epoch_offset());
    let (mut most, period) = (0, 60 * SECOND);
    for id in 0..1_000_000u64 {
        let at = now(id * (period / 50_000));
        let rate = limit("rate", LimitType::Concurrency, 5, Window::Live);
        let plan = table.plan(&Selected(vec![instance(rate, &format!("org:o{id}"))]));
        let GateOneVerdict::Admitted(admission) = plan.admit(at) else { panic!("refused") };
        admission.finish(Counted::Kept);
        most = most.max(table.len());
        if id.is_multiple_of(10_000) {
            drop(plan);
            table.sweep(at.monotonic);
        }
    }
    assert!(most <= 20_000, "{most} cells");
}

#[test]
fn a_forgotten_window_is_never_opened_again() {
    let day = 86_400 * SECOND;
    let check = |used: u64| {
        let mut shard = shard();
        let cap =
            || instance(limit("cap", LimitType::QuotaTokens, 5, calendar(CalendarPeriod::Day)), "org:a");
        assert!(matches!(reserve(&mut shard, now(0), 1, cap()), Answer::Reserved(_)));
        settle(&mut shard, now(0), 1, 5);
        // The wall clock is set forward by a day; something is asked, the counter is forgotten, the clock is set back.
        assert!(matches!(reserve(&mut shard, now(day), 2, cap()), Answer::Reserved(_)));
        settle(&mut shard, now(day), 2, used);
        let _ = shard.take_last_marks();
        shard.sweep(now(4 * day));
        assert!(!shard.knows(&cap().identity));
        for id in 3..5 {
            let _ = reserve(&mut shard, now(0), id, cap());
            settle(&mut shard, now(0), id, 5);
        }
        let tomorrow = reserve(&mut shard, now(4 * day + 1), 5, cap());
        assert!(matches!(tomorrow, Answer::Refused(_)), "what was admitted early counts in the later window");
    };
    check(0);
    check(5);
}

#[test]
fn an_empty_window_ahead_of_the_wall_clock_is_kept() {
    let mut shard = shard();
    let cap = || instance(limit("cap", LimitType::QuotaTokens, 5, calendar(CalendarPeriod::Day)), "org:a");
    assert!(matches!(reserve(&mut shard, now(0), 1, cap()), Answer::Reserved(_)));
    settle(&mut shard, now(0), 1, 5);
    assert!(matches!(reserve(&mut shard, now(86_400 * SECOND), 2, cap()), Answer::Reserved(_)));
    let _ = shard.apply(now(86_400 * SECOND), Ask::Void { id: ReservationId(2) });
    let _ = shard.take_last_marks();
    assert_eq!(shard.sweep(now(0)), 0, "the full day before it would be opened again");
    assert_eq!(shard.sweep(now(86_400 * SECOND)), 1);
}

#[test]
fn restored_counters_of_windows_that_are_over_are_forgotten() {
    let mark = |node: u64, window: i64| CounterMark {
        limit_id: "cap".into(),
        node: format!("org:o{node}"),
        model: None,
        provider: None,
        endpoint: None,
        period: "day".into(),
        algorithm: "calendar_usd".into(),
        window: WindowIndex(window),
        observed: Units(7),
        high_water: Units(7),
        uncertain: Units(0),
        estimated: false,
        unpriced: false,
    };
    let mut shard = shard();
    let at = now(0);
    let today = at.wall.as_second().div_euclid(86_400);
    for node in 0..3 * COUNTERS_BEFORE_SWEEP as u64 {
        assert!(shard.restore(at, mark(node, today - (node % 3) as i64 * 2)));
    }
    upkeep(&mut shard, at);
    assert_eq!(shard.counters(), COUNTERS_BEFORE_SWEEP, "those of today are left");
    for strange in [i64::MAX, i64::MIN] {
        assert!(shard.restore(at, mark(1 << 40, strange)));
    }
    upkeep(&mut shard, at);
    let unknown = CounterMark { period: "fortnight".into(), ..mark(0, today) };
    assert!(!shard.restore(at, unknown), "a period that this program does not know");
    shard.invariants();
}

#[test]
fn looking_at_a_token_bucket_changes_no_ending() {
    // Two holds of 10 of 20 a period; half a period later one has drained. The other is given back, or settled above.
    let check = |used: u64| {
        let outcome = |looked: bool| {
            let cap = || {
                instance(limit("cap", LimitType::Tpm, 20, rolling(SECOND, Algorithm::TokenBucket)), "org:a")
            };
            let mut shard = shard();
            for id in [1, 2] {
                assert!(matches!(reserve(&mut shard, now(0), id, cap()), Answer::Reserved(_)));
            }
            let plan = GateTwoPlan::new(&Selected(vec![cap()]), 1);
            let later = now(SECOND / 4);
            if looked {
                let _ = shard.apply(later, Ask::Read { plan: plan.clone() });
            }
            settle(&mut shard, later, 1, used);
            let Answer::Read(readings) = shard.apply(later, Ask::Read { plan }) else { panic!("no reading") };
            readings[0].1
        };
        assert_eq!(outcome(true), outcome(false), "{used} used");
    };
    [0, 3, 5, 50].into_iter().for_each(check);
}

#[test]
fn tokens_under_a_limit_that_observed_owe_one_period_when_it_is_enforced() {
    let cap = |mode: Mode, enforce: Enforce| {
        let mut cap = limit("cap", LimitType::Tpm, 20, rolling(SECOND, Algorithm::TokenBucket));
        (cap.posture.mode, cap.posture.enforce) = (mode, enforce);
        instance(cap, "org:a")
    };
    for (mode, enforce) in [(Mode::Shadow, Enforce::Hard), (Mode::On, Enforce::AlertOnly)] {
        let mut shard = shard();
        for id in 0..10_000 {
            assert!(matches!(reserve(&mut shard, now(id), id, cap(mode, enforce)), Answer::Reserved(_)));
            settle(&mut shard, now(id), id, 5);
        }
        let hard = || cap(Mode::On, Enforce::Hard);
        for (at, admits) in [(SECOND, false), (SECOND + SECOND / 2, true)] {
            let answer = reserve(&mut shard, now(at), 10_000 + at, hard());
            assert_eq!(matches!(answer, Answer::Reserved(_)), admits, "{mode:?}, {enforce:?}, {at} ns");
        }
        shard.invariants();
    }
}

#[test]
fn a_bucket_far_above_its_amount_drains_while_it_refuses() {
    // An amount of 6,000 a second is used up, and then edited to one a second.
    let bucket = TokenBucket::new(SECOND);
    for _ in 0..6_000 {
        assert!(bucket.admit(SECOND, 6_000).is_some());
    }
    for second in 1..6_000 {
        assert!(bucket.admit(second * SECOND + SECOND / 2, 1).is_none(), "admitted after {second} s");
        let left = bucket.level(second * SECOND, 1).observed;
        assert!((6_000 - second..6_003 - second).contains(&left), "{left} left after {second} s");
    }
    assert!(bucket.admit(6_002 * SECOND, 1).is_some());
}

#[test]
fn a_zone_that_skips_a_date_does_not_open_the_next_early() {
    // The limit is edited from UTC to a zone that had no 2011-12-30, while the counter is in that date.
    let at = |text: &str| Now { monotonic: Monotonic(0), wall: text.parse().unwrap() };
    let cap = |zone: &str| {
        let zone = Zone::named(zone).unwrap();
        let window = Window::Calendar { period: CalendarPeriod::Day, zone };
        let capped: Limit = limit("cap", LimitType::QuotaRequests, 1, window);
        instance(capped, "org:a")
    };
    let mut shard = shard();
    let friday = at("2011-12-30T01:00:00Z");
    assert!(matches!(reserve(&mut shard, friday, 1, cap("UTC")), Answer::Reserved(_)));
    settle(&mut shard, friday, 1, 1);
    let apia: Identity = cap("Pacific/Apia").identity;
    assert!(shard.knows(&apia), "the zone is not part of the identity");
    let answer = reserve(&mut shard, friday, 2, cap("Pacific/Apia"));
    let Answer::Refused(partial) = answer else { panic!("{answer:?}") };
    let ends = partial.tripped[0].1.resets_at;
    assert_eq!(
        ends,
        Some("2011-12-30T10:00:00Z".parse().unwrap()),
        "it is over when the next date begins there"
    );
}
