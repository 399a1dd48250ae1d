//! Gate 2 case by case: what a refusal lists over several owners, holds and windows, prices, deadlines, what a restart
//! keeps, and the bound on counters. SPEC §4, §5.

mod support;

use std::sync::Arc;

use engine::{
    Admit, Algorithm, Answer, Ask, CalendarPeriod, Cause, Conjunction, CoreId, CounterMark, Estimate, Fail,
    GateTwoPlan, Limit, LimitType, Monotonic, Now, PicoUsd, Reading, Refusal, Reservation, ReservationId,
    Selected, Settlement, Shard, Span, Step, Tokens, Wait, Window, Zone,
};
use support::{SECOND, calendar, instance, limit, now, rolling, selected, sliding};

fn quota(id: &str, kind: LimitType, amount: u128) -> Limit {
    limit(id, kind, amount, calendar(CalendarPeriod::Day))
}

fn named(refusal: &Refusal) -> Vec<(&str, u128, Wait)> {
    let caps = refusal.tripped.iter();
    caps.map(|cap| (cap.instance.limit.id.as_str(), cap.observed.0, cap.wait)).collect()
}

/// Shards and the messages between them, delivered at once.
struct Cores {
    shards: Vec<Shard>,
    sequence: u64,
}

impl Cores {
    fn new(cores: usize) -> Cores {
        let shards = (0..cores).map(|core| Shard::new(CoreId(core as u16), cores));
        Cores { shards: shards.collect(), sequence: 0 }
    }

    fn send(&mut self, now: Now, owner: CoreId, ask: Ask) -> Answer {
        let shard = &mut self.shards[usize::from(owner.0)];
        let answer = shard.apply(now, ask);
        shard.invariants();
        answer
    }

    fn reserve(
        &mut self,
        now: Now,
        plan: &Arc<GateTwoPlan>,
        estimate: Estimate,
    ) -> Result<Reservation, Refusal> {
        self.sequence += 1;
        let id = ReservationId::new(CoreId(0), self.sequence);
        let deadline = now.monotonic.plus(Span(900 * SECOND));
        let mut conjunction = Conjunction::new(id, Arc::clone(plan), estimate, deadline);
        loop {
            match conjunction.poll() {
                Step::Send(owner, ask) => {
                    let answer = self.send(now, owner, ask);
                    conjunction.answered(owner, answer);
                }
                Step::Wait => panic!("everything was answered"),
                Step::Admitted(reservation) => return Ok(reservation),
                Step::Refused(refusal) => return Err(refusal),
            }
        }
    }

    fn settle(&mut self, now: Now, reservation: Reservation, settlement: Settlement) {
        for (owner, ask) in reservation.settle(settlement) {
            self.send(now, owner, ask);
        }
    }

    fn void(&mut self, now: Now, reservation: Reservation) {
        for (owner, ask) in reservation.void() {
            self.send(now, owner, ask);
        }
    }

    fn read(&mut self, now: Now, plan: &Arc<GateTwoPlan>) -> Vec<Reading> {
        let mut readings = Vec::new();
        for owner in plan.owners() {
            match self.send(now, owner, Ask::Read { plan: Arc::clone(plan) }) {
                Answer::Read(part) => readings.extend(part),
                other => panic!("{other:?}"),
            }
        }
        readings.sort_by_key(|(place, _)| *place);
        readings.into_iter().map(|(_, reading)| reading).collect()
    }

    fn figures(&mut self, now: Now, plan: &Arc<GateTwoPlan>) -> Vec<(u128, u128)> {
        self.read(now, plan).into_iter().map(|reading| (reading.observed.0, reading.held.0)).collect()
    }
}

fn expects(tokens: u64, money: u128) -> Estimate {
    Estimate { tokens: Tokens(tokens), money: Some(PicoUsd(money)) }
}

fn used(tokens: u64, money: u128) -> Settlement {
    Settlement { tokens: Tokens(tokens), money: Some(PicoUsd(money)), estimated: false }
}

#[test]
fn a_gate_two_refusal_lists_every_owners_caps_in_evaluation_order_and_leaves_nothing() {
    for cores in [1, 2, 3, 4, 7] {
        let ids = ["a", "b", "c", "d", "e", "f"];
        let quotas = |amounts: [u128; 6]| {
            let limits = ids.iter().zip(amounts);
            GateTwoPlan::new(
                &selected(limits.map(|(id, amount)| quota(id, LimitType::QuotaTokens, amount))),
                cores,
            )
        };
        let mut world = Cores::new(cores);
        let first = world.reserve(now(0), &quotas([100; 6]), expects(1, 0)).unwrap();
        world.settle(now(0), first, used(10, 0));
        let plan = quotas([100, 10, 100, 5, 100, 1]);
        let refusal = world.reserve(now(0), &plan, expects(1, 0)).unwrap_err();
        let reset = Wait::For(Span(30 * SECOND));
        assert_eq!(named(&refusal), [("b", 10, reset), ("d", 10, reset), ("f", 10, reset)], "{cores} cores");
        assert!(refusal.tripped.iter().all(|cap| cap.cause == Cause::Over && cap.resets_at.is_some()));
        assert_eq!(world.figures(now(0), &plan), [(10, 0); 6]);
    }
}

#[test]
fn others_holds_alone_refuse_with_a_short_wait_and_a_firm_cap_with_its_own() {
    let limits = [quota("q", LimitType::QuotaTokens, 100), quota("firm", LimitType::QuotaRequests, 1)];
    for cores in [1, 3] {
        let mut world = Cores::new(cores);
        let only = GateTwoPlan::new(&selected([limits[0].clone()]), cores);
        let held = world.reserve(now(0), &only, expects(150, 0)).unwrap();
        let refusal = world.reserve(now(0), &only, expects(150, 0)).unwrap_err();
        assert_eq!(named(&refusal), [("q", 0, Wait::SOON)]);
        let tripped = refusal.refused_by();
        assert_eq!((tripped.cause, tripped.held.0), (Cause::HeldOnly, 150));
        world.settle(now(0), held, used(15, 0));
        let both = GateTwoPlan::new(&selected(limits.clone()), cores);
        let one = world.reserve(now(0), &both, expects(100, 0)).unwrap();
        let refusal = world.reserve(now(0), &both, expects(1, 0)).unwrap_err();
        let causes: Vec<_> = refusal.tripped.iter().map(|cap| cap.cause).collect();
        assert_eq!(causes, [Cause::HeldOnly, Cause::Over]);
        assert_eq!(refusal.wait(), Wait::For(Span(30 * SECOND)), "until the last of them admits");
        world.void(now(0), one);
        assert_eq!(world.figures(now(0), &both), [(15, 0), (0, 0)], "a void gives the request back too");
    }
}

#[test]
fn while_under_overshoots_by_one_request_and_if_fits_never() {
    let mut fits = quota("fits", LimitType::QuotaTokens, 165);
    fits.admit = Admit::IfFits;
    let plan = GateTwoPlan::new(&selected([fits]), 1);
    let mut world = Cores::new(1);
    let held = world.reserve(now(0), &plan, expects(150, 0)).unwrap();
    assert_eq!(world.reserve(now(0), &plan, expects(16, 0)).unwrap_err().refused_by().cause, Cause::HeldOnly);
    world.settle(now(0), held, used(15, 0));
    let edge = world.reserve(now(0), &plan, expects(150, 0)).unwrap();
    world.settle(now(0), edge, used(15, 0));
    let over = world.reserve(now(0), &plan, expects(150, 0)).unwrap_err();
    assert_eq!((over.refused_by().cause, over.wait()), (Cause::Over, Wait::For(Span(30 * SECOND))));
    let never = world.reserve(now(0), &plan, expects(166, 0)).unwrap_err();
    assert_eq!((never.wait(), never.retryable()), (Wait::Never, false));
    let under = GateTwoPlan::new(&selected([quota("under", LimitType::QuotaTokens, 30)]), 1);
    let one = world.reserve(now(0), &under, expects(2, 0)).unwrap();
    world.settle(now(0), one, used(150, 0));
    assert_eq!(world.figures(now(0), &under), [(150, 0)], "more than was held is kept");
    assert!(world.reserve(now(0), &under, expects(2, 0)).is_err());
}

#[test]
fn a_budget_of_a_thousandth_admits_exactly_6667_requests_of_one_token() {
    // 0.001 USD at 0.15 USD per million tokens, sent one by one (SPEC §4.8).
    let plan = GateTwoPlan::new(&selected([quota("b", LimitType::BudgetUsd, 1_000_000_000)]), 1);
    let mut world = Cores::new(1);
    let mut passed = 0;
    while let Ok(held) = world.reserve(now(0), &plan, expects(257, 150_000 * 257)) {
        world.settle(now(0), held, used(1, 150_000));
        passed += 1;
    }
    assert_eq!(passed, 6667);
}

#[test]
fn a_request_belongs_to_the_window_it_was_admitted_in() {
    let limits = [
        quota("day", LimitType::QuotaTokens, 50),
        limit("tpm", LimitType::Tpm, 50, sliding(SECOND)),
        quota("requests", LimitType::QuotaRequests, 5),
    ];
    let plan = GateTwoPlan::new(&selected(limits), 2);
    let mut world = Cores::new(2);
    let late = world.reserve(now(29 * SECOND), &plan, expects(2, 0)).unwrap();
    let void = world.reserve(now(29 * SECOND), &plan, expects(2, 0)).unwrap();
    assert_eq!(world.figures(now(29 * SECOND), &plan), [(0, 4), (0, 4), (2, 0)]);
    let next = now(31 * SECOND); // midnight was at 30 s
    assert_eq!(world.figures(next, &plan), [(0, 0); 3]);
    let fresh = world.reserve(next, &plan, expects(3, 0)).unwrap();
    world.settle(next, late, used(1000, 0));
    world.void(next, void);
    assert_eq!(world.figures(next, &plan), [(0, 3), (0, 3), (1, 0)]);
    world.settle(next, fresh, used(3, 0));
    assert_eq!(world.figures(next, &plan), [(3, 0), (3, 0), (1, 0)]);
}

#[test]
fn a_wall_clock_set_back_reopens_nothing_and_set_forward_again_refuses_no_fresh_window() {
    let plan = GateTwoPlan::new(&selected([quota("q", LimitType::QuotaRequests, 1)]), 1);
    let mut world = Cores::new(1);
    let next_day = now(60 * SECOND);
    let held = world.reserve(next_day, &plan, expects(1, 0)).unwrap();
    world.settle(next_day, held, used(1, 0));
    let back = now(0);
    let refusal = world.reserve(back, &plan, expects(1, 0)).unwrap_err();
    assert_eq!(refusal.wait(), Wait::For(Span(86_430 * SECOND)), "the newer window still counts");
    let later = now(86_431 * SECOND);
    assert!(world.reserve(later, &plan, expects(1, 0)).is_ok());
}

#[test]
fn no_price_is_the_postures_matter() {
    for (fail, refuses) in [(Fail::Open, false), (Fail::Closed, true)] {
        let mut budget = quota("b", LimitType::BudgetUsd, 5);
        budget.posture.fail = fail;
        let plan = GateTwoPlan::new(&selected([budget]), 1);
        let mut world = Cores::new(1);
        let unpriced = Estimate { tokens: Tokens(9), money: None };
        match world.reserve(now(0), &plan, unpriced) {
            Err(refusal) => {
                assert!(refuses);
                assert_eq!((refusal.refused_by().cause, refusal.wait()), (Cause::Unpriced, Wait::Never));
                assert!(world.reserve(now(0), &plan, expects(9, 0)).is_ok(), "a price of zero is a price");
            }
            Ok(held) => {
                assert!(!refuses);
                assert_eq!(world.figures(now(0), &plan), [(0, 0)]);
                world.settle(now(0), held, Settlement { tokens: Tokens(9), money: None, estimated: true });
                let reading = world.read(now(0), &plan)[0];
                assert_eq!((reading.observed.0, reading.unpriced, reading.estimated), (0, true, true));
                assert!(!world.read(now(31 * SECOND), &plan)[0].unpriced, "a new window is clean");
            }
        }
    }
}

#[test]
fn a_hold_past_its_deadline_is_voided_and_what_comes_after_changes_nothing() {
    let limits = [
        quota("q", LimitType::QuotaRequests, 1),
        limit("t", LimitType::Tpm, 9, rolling(3_600 * SECOND, Algorithm::TokenBucket)),
    ];
    let plan = GateTwoPlan::new(&selected(limits), 1);
    let mut world = Cores::new(1);
    let lost = world.reserve(now(0), &plan, expects(8, 0)).unwrap();
    world.shards[0].expire(now(899 * SECOND));
    assert_eq!(world.shards[0].live_reservations(), 1);
    world.shards[0].expire(now(900 * SECOND));
    assert_eq!(world.shards[0].live_reservations(), 0);
    world.settle(now(901 * SECOND), lost, used(8, 0));
    assert_eq!(world.figures(now(901 * SECOND), &plan), [(0, 0), (0, 0)]);
}

#[test]
fn tokens_by_bucket_drain_and_waits_are_true() {
    let plan = GateTwoPlan::new(
        &selected([limit("t", LimitType::Tpm, 60, rolling(60 * SECOND, Algorithm::TokenBucket))]),
        1,
    );
    let mut world = Cores::new(1);
    let held = world.reserve(now(0), &plan, expects(90, 0)).unwrap();
    let left = held.tokens_left().unwrap();
    assert_eq!((left.remaining.0, left.reset), (0, Span(90 * SECOND)));
    assert_eq!(world.reserve(now(0), &plan, expects(1, 0)).unwrap_err().wait(), Wait::SOON);
    // Ten seconds drain ten of the ninety; giving eighty back takes out what is left of the top.
    world.settle(now(10 * SECOND), held, used(70, 0));
    assert_eq!(world.figures(now(10 * SECOND), &plan), [(60, 0)]);
    let Wait::For(wait) = world.reserve(now(10 * SECOND), &plan, expects(1, 0)).unwrap_err().wait() else {
        panic!()
    };
    assert!(world.reserve(now(10 * SECOND + wait.0 - 1), &plan, expects(1, 0)).is_err());
    let next = world.reserve(now(10 * SECOND + wait.0), &plan, expects(5, 0)).unwrap();
    // All of it has drained by then: giving it back must not take out what is not there.
    world.void(now(200 * SECOND), next);
    assert_eq!(world.figures(now(200 * SECOND), &plan), [(0, 0)]);
}

#[test]
fn fixed_windows_of_tokens_are_aligned_to_the_epoch() {
    let plan = GateTwoPlan::new(
        &selected([limit("t", LimitType::Tpm, 5, rolling(60 * SECOND, Algorithm::FixedWindow))]),
        1,
    );
    let mut world = Cores::new(1); // it starts 30 s into a minute
    let held = world.reserve(now(0), &plan, expects(5, 0)).unwrap();
    world.settle(now(0), held, used(5, 0));
    assert_eq!(
        world.reserve(now(SECOND), &plan, expects(1, 0)).unwrap_err().wait(),
        Wait::For(Span(29 * SECOND))
    );
    assert!(world.reserve(now(30 * SECOND), &plan, expects(1, 0)).is_ok());
}

fn last_marks(world: &mut Cores) -> Vec<CounterMark> {
    world.shards.iter_mut().flat_map(|shard| shard.take_last_marks().marks).collect()
}

#[test]
fn marks_survive_a_restart_onto_another_number_of_cores() {
    let zone = Zone::named("Asia/Tokyo").unwrap();
    let month = Window::Calendar { period: CalendarPeriod::Month, zone };
    let limits = || {
        [
            quota("q", LimitType::QuotaRequests, 9),
            limit("b", LimitType::BudgetUsd, 900, month.clone()),
            limit("t", LimitType::Tpm, 900, sliding(SECOND)),
        ]
    };
    let mut world = Cores::new(3);
    let plan = GateTwoPlan::new(&selected(limits()), 3);
    let held = world.reserve(now(0), &plan, expects(5, 70)).unwrap();
    let still = world.reserve(now(0), &plan, expects(5, 70)).unwrap();
    world.settle(now(0), held, Settlement { estimated: true, ..used(5, 77) });
    let mut marks: Vec<CounterMark> = last_marks(&mut world);
    assert_eq!(marks.len(), 2, "only calendar counters outlive a restart: {marks:?}");
    assert!(last_marks(&mut world).is_empty(), "each change once");
    world.settle(now(0), still, used(1, 1));
    let later = last_marks(&mut world);
    assert_eq!(
        later.iter().map(|mark| mark.observed.0).collect::<Vec<_>>(),
        [78],
        "the quota had not changed"
    );
    let mut restarted = Cores::new(2);
    // A newer mark of a counter takes the older one's place, as in the journal.
    marks.retain(|mark| later.iter().all(|newer| newer.limit_id != mark.limit_id));
    for mark in marks.into_iter().chain(later) {
        let taken: Vec<bool> =
            restarted.shards.iter_mut().map(|shard| shard.restore(now(0), mark.clone())).collect();
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "its owner takes it");
    }
    let plan = GateTwoPlan::new(&selected(limits()), 2);
    let readings = restarted.read(now(SECOND), &plan);
    let shown: Vec<_> =
        readings.iter().map(|reading| (reading.observed.0, reading.held.0, reading.estimated)).collect();
    assert_eq!(shown, [(2, 0, false), (78, 0, true), (0, 0, false)]);
    let resets: Vec<_> = readings.iter().map(|reading| reading.resets_at.map(|at| at.to_string())).collect();
    let wanted = [Some("2026-03-29T00:00:00Z"), Some("2026-03-31T15:00:00Z"), None];
    assert_eq!(resets, wanted.map(|at| at.map(str::to_owned)));
    assert_eq!(restarted.read(now(31 * SECOND), &plan)[0].observed.0, 0, "the day has passed");
}

#[test]
fn resets_are_told_of_counters_that_do_not_exist_and_reading_makes_none() {
    let plan = GateTwoPlan::new(&selected([quota("q", LimitType::QuotaRequests, 9)]), 1);
    let mut world = Cores::new(1);
    let reading = world.read(now(0), &plan)[0];
    assert_eq!(reading.resets_at.unwrap().to_string(), "2026-03-29T00:00:00Z");
    let mut never = quota("q", LimitType::QuotaTokens, 9);
    never.admit = Admit::IfFits;
    assert!(world.reserve(now(0), &GateTwoPlan::new(&selected([never]), 1), expects(10, 0)).is_err());
    assert_eq!(world.shards[0].counters(), 0, "neither does a refusal");
}

/// A plan remembers its counter's slot. When the counter is forgotten and the slot goes to another, the plan must not take
/// the other's figures for its own.
#[test]
fn a_slot_that_changed_hands_is_not_mistaken_for_ones_own() {
    let mut world = Cores::new(1);
    let plan = |id: String| GateTwoPlan::new(&selected([quota(&id, LimitType::QuotaTokens, 10)]), 1);
    let mut last = plan("last".to_owned());
    for number in 0..engine::bounds::COUNTERS_BEFORE_SWEEP {
        last = plan(format!("q{number}"));
        let reservation = world.reserve(now(0), &last, expects(1, 0)).unwrap();
        for (_, ask) in reservation.settle(used(5, 0)) {
            world.shards[0].apply(now(0), ask);
        }
    }
    let later = now(2 * 86_400 * SECOND);
    let marks = world.shards[0].take_last_marks().marks.len();
    world.shards[0].expire(later);
    assert_eq!((marks, world.shards[0].counters()), (engine::bounds::COUNTERS_BEFORE_SWEEP, 0));
    let other = plan("other".to_owned());
    let reservation = world.reserve(later, &other, expects(1, 0)).unwrap();
    world.settle(later, reservation, used(10, 0));
    assert_eq!(world.figures(later, &last), [(0, 0)]);
    let reservation = world.reserve(later, &last, expects(1, 0)).expect("its own counter is empty");
    assert_eq!((world.figures(later, &last), world.figures(later, &other)), (vec![(0, 1)], vec![(10, 0)]));
    world.void(later, reservation);
}

#[test]
fn counters_that_clients_name_are_bounded() {
    let many = |range: std::ops::Range<usize>| {
        range.map(|index| instance(quota("q", LimitType::QuotaTokens, 9), &format!("org:o{index}")))
    };
    let mut world = Cores::new(1);
    let half = engine::bounds::COUNTERS_A_SHARD / 2;
    for index in 0..half * 2 {
        let plan = GateTwoPlan::new(&Selected(many(index..index + 1).collect()), 1);
        let answer = world.shards[0].apply(
            now(0),
            Ask::Reserve {
                id: ReservationId(index as u64),
                plan,
                estimate: expects(1, 0),
                deadline: Monotonic(900 * SECOND),
                final_round: false,
            },
        );
        assert!(matches!(answer, Answer::Reserved(_)));
        if index < half {
            world.shards[0]
                .apply(now(0), Ask::Settle { id: ReservationId(index as u64), settlement: used(1, 0) });
        }
    }
    let more = |fail| {
        let mut limit = quota("other", LimitType::QuotaTokens, 9);
        limit.posture.fail = fail;
        GateTwoPlan::new(&selected([limit]), 1)
    };
    world.sequence = 1 << 40;
    let deadline = Monotonic(SECOND);
    let ask = |plan, id| Ask::Reserve {
        id: ReservationId(id),
        plan,
        estimate: expects(1, 0),
        deadline,
        final_round: false,
    };
    let Answer::Refused(partial) = world.shards[0].apply(now(0), ask(more(Fail::Closed), 1 << 40)) else {
        panic!()
    };
    assert_eq!(partial.tripped[0].1.cause, Cause::Unavailable);
    assert!(matches!(world.shards[0].apply(now(0), ask(more(Fail::Open), 1 << 41)), Answer::Reserved(_)));
    let _ = world.shards[0].take_last_marks();
    // The day is over in every zone: what is settled says nothing any more.
    let later = now(3 * 86_400 * SECOND);
    world.shards[0].sweep(later);
    assert_eq!(world.shards[0].counters(), half, "those in use are kept");
    assert!(matches!(world.shards[0].apply(later, ask(more(Fail::Closed), 1 << 42)), Answer::Reserved(_)));
    world.shards[0].invariants();
}

/// Two hold, the first is given back, as much drains, a third holds: giving the second back then frees nothing of the third.
#[test]
fn a_token_bucket_knows_that_what_is_given_back_lets_the_others_drain_sooner() {
    let mut cap = limit("t", LimitType::Tpm, 200, rolling(SECOND, Algorithm::TokenBucket));
    cap.admit = Admit::IfFits;
    let plan = GateTwoPlan::new(&selected([cap]), 1);
    let mut world = Cores::new(1);
    let [first, second] = [0, 0].map(|at| world.reserve(now(at), &plan, expects(100, 0)).unwrap());
    let void = |world: &mut Cores, at, reservation: Reservation| {
        for (owner, ask) in reservation.void() {
            world.send(now(at), owner, ask);
        }
    };
    void(&mut world, 0, first);
    let half = SECOND / 2;
    let third = world.reserve(now(half), &plan, expects(100, 0)).unwrap();
    void(&mut world, half, second);
    let reading = world.read(now(half), &plan)[0];
    assert_eq!((reading.observed.0, reading.held.0), (0, 100), "the third holds what it held");
    world.settle(now(half), third, used(100, 0));
}
