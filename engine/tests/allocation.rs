//! The warm path allocates nothing: four levels, eight caps of all kinds, from gate 1 to the settlement.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use engine::{
    Ask, CalendarPeriod, CellTable, Conjunction, CoreId, Counted, Estimate, Estimator, Expected,
    GateOneVerdict, GateTwoPlan, Glob, Instance, Kid, Lesson, LimitType, Monotonic, PicoUsd, ProviderId,
    ReservationId, Route, Selected, Settlement, Shard, Step, Tokens, Usage, Window,
};
use support::{SECOND, calendar, epoch_offset, instance, limit, now, sliding};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator with the arguments it came with; beside that only a
// thread-local number changes, which neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps GlobalAlloc's contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps GlobalAlloc's contract, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps GlobalAlloc's contract, which is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_in(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// Three caps at gate 1 and five at gate 2, over user, team, org and the whole.
fn chain() -> (Selected, Selected) {
    let many = 1 << 40;
    let (user, team, org, whole) = ("org:acme/team:ml/user:dev1", "org:acme/team:ml", "org:acme", "__global");
    let month = || calendar(CalendarPeriod::Month);
    let at =
        |node: &str, id: &str, kind, window| -> Instance { instance(limit(id, kind, many, window), node) };
    let one = vec![
        at(user, "user_rpm", LimitType::Rpm, sliding(60 * SECOND)),
        at(user, "user_slots", LimitType::Concurrency, Window::Live),
        at(whole, "all_rpm", LimitType::Rpm, sliding(60 * SECOND)),
    ];
    let two = vec![
        at(user, "user_tpm", LimitType::Tpm, sliding(60 * SECOND)),
        at(team, "team_budget", LimitType::BudgetUsd, calendar(CalendarPeriod::Day)),
        at(team, "team_requests", LimitType::QuotaRequests, month()),
        at(org, "org_budget", LimitType::BudgetUsd, month()),
        at(org, "org_tokens", LimitType::QuotaTokens, month()),
    ];
    (Selected(one), Selected(two))
}

#[test]
fn a_warm_decision_allocates_nothing() {
    let (one, two) = chain();
    let gate_one = CellTable::new(epoch_offset()).plan(&one);
    let gate_two = GateTwoPlan::new(&two, 1);
    let mut shard = Shard::new(CoreId(0), 1);
    let mut decide = |sequence: u64| {
        let now = now(sequence * 10_000_000);
        let GateOneVerdict::Admitted(admission) = gate_one.admit(now) else { panic!("refused") };
        let id = ReservationId::new(CoreId(0), sequence);
        let estimate = Estimate { tokens: Tokens(300), money: Some(PicoUsd(45_000_000)) };
        let deadline = Monotonic(now.monotonic.0 + 900 * SECOND);
        let mut conjunction = Conjunction::new(id, Arc::clone(&gate_two), estimate, deadline);
        let reservation = loop {
            match conjunction.poll() {
                Step::Send(owner, ask) => conjunction.answered(owner, shard.apply(now, ask)),
                Step::Admitted(reservation) => break reservation,
                Step::Wait | Step::Refused(_) => panic!("refused"),
            }
        };
        assert!(admission.requests_left(now).is_some() && reservation.tokens_left().is_some());
        assert_eq!(admission.alerts().chain(reservation.alerts()).count(), 0);
        let settlement = Settlement { tokens: Tokens(15), money: Some(PicoUsd(2_250_000)), estimated: false };
        for (_, ask) in
            if sequence.is_multiple_of(4) { reservation.void() } else { reservation.settle(settlement) }
        {
            shard.apply(now, ask);
        }
        admission.finish(if sequence.is_multiple_of(4) { Counted::GivenBack } else { Counted::Kept });
        shard.expire(now);
    };
    (0..100).for_each(&mut decide);
    // Ten seconds' worth: ten buckets of the rate caps go by.
    assert_eq!(allocations_in(|| (100..1_100).for_each(&mut decide)), 0);
    let readings = allocations_in(|| {
        assert!(matches!(
            shard.apply(now(0), Ask::Read { plan: Arc::clone(&gate_two) }),
            engine::Answer::Read(_)
        ));
    });
    assert!(readings > 0, "the allocator counts");
}

#[test]
fn estimates_that_learn_allocate_with_their_first_lesson_only() {
    let route = Route {
        model: Glob::new("*").unwrap(),
        provider: ProviderId::new("p"),
        served_model: None,
        output_hold: Tokens(256),
        learns: true,
    };
    let kids: Vec<_> = (0..1000).map(|number| Kid::parse(&format!("vk_{number:012}"))).collect();
    let mut estimator = Estimator::default();
    let mut exchange = |number: usize| {
        let input = Tokens(number as u64);
        let lesson = Lesson::new(&route, kids[number % kids.len()], input, 1, false);
        let alone = Expected { input, ..Expected::default() };
        assert!(estimator.raise(&lesson, alone, None).input >= input);
        estimator
            .learn(&lesson, &Usage { input: Tokens(2 * input.0), output: Tokens(9), ..Usage::default() });
    };
    assert!(allocations_in(|| exchange(0)) > 0, "the room is taken");
    assert_eq!(allocations_in(|| (1..20_000).for_each(exchange)), 0);
}
