//! One ask applied at its owner and, after it, by the book: the two must say the same, about every cap.

#![allow(dead_code, reason = "each test file uses its part")]

use engine::{Answer, Ask, Cause, CoreId, Estimate, GateTwoPlan, Instance, LimitType, Now, Reading, Shard};

use super::oracle::{Opinion, Oracle, alerts, refuses, skipped};

/// What the answers of one round must add up to.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// By place, cap and cause.
    pub tripped: Vec<(usize, String, Cause)>,
    /// Something other than requests in flight stood in the way.
    pub firm: bool,
    pub alerts: Vec<(usize, String)>,
    pub shadowed: Vec<(usize, String)>,
    pub tokens_left: Option<u128>,
    /// Owners that were asked.
    pub asked: usize,
}

impl Expected {
    /// The ids alone, in evaluation order.
    pub fn ids(list: &[(usize, String)]) -> Vec<String> {
        let mut list = list.to_vec();
        list.sort();
        list.into_iter().map(|(_, id)| id).collect()
    }
}

/// The cores that decide about a plan.
pub fn deciders(plan: &GateTwoPlan, cores: usize) -> Vec<CoreId> {
    let evaluated = plan.instances().filter(|cap| !skipped(cap));
    let mut deciders: Vec<CoreId> = evaluated.map(|cap| cap.identity.owner(cores)).collect();
    deciders.sort_unstable();
    deciders.dedup();
    deciders
}

/// Applies `ask` at the shard and by the book, compares, and adds to what its round must come to.
pub fn apply(
    shard: &mut Shard,
    oracle: &mut Oracle,
    (core, cores): (CoreId, usize),
    now: Now,
    ask: Ask,
    expected: &mut Expected,
) -> Answer {
    let told = ask.clone();
    let answer = shard.apply(now, ask);
    shard.invariants();
    match told {
        Ask::Settle { id, settlement } => oracle.end(core, now, id, Some(settlement)),
        Ask::Void { id } => oracle.end(core, now, id, None),
        Ask::Read { plan } => {
            let Answer::Read(readings) = &answer else { panic!("{answer:?}") };
            check_readings(oracle, &plan, now, readings);
        }
        Ask::Check { plan, estimate } => {
            expected.asked += 1;
            let says = opinions(oracle, &plan, (core, cores), now, estimate);
            check_refusal(oracle, &says, now, &answer, expected);
        }
        Ask::Reserve { id, plan, estimate, deadline, .. } => {
            expected.asked += 1;
            let says = opinions(oracle, &plan, (core, cores), now, estimate);
            let over = says.iter().any(|(_, cap, says)| refuses(cap) && says.cause.is_some());
            if over {
                check_refusal(oracle, &says, now, &answer, expected);
                return answer;
            }
            assert!(matches!(answer, Answer::Reserved(_)), "{answer:?} though nothing is over");
            for (place, cap, says) in &says {
                let named = (*place, cap.limit.id.to_string());
                match says.cause {
                    Some(_) if alerts(cap) => expected.alerts.push(named),
                    Some(_) => expected.shadowed.push(named),
                    None => {}
                }
                oracle.book(cap, now, id, deadline.0, estimate);
                if refuses(cap) && cap.limit.kind == LimitType::Tpm {
                    let after = oracle.ask(cap, now, estimate);
                    let left = cap.amount.0.saturating_sub(after.observed + after.held);
                    expected.tokens_left = Some(expected.tokens_left.map_or(left, |other| other.min(left)));
                }
            }
        }
    }
    answer
}

/// Every figure as read is the book's.
pub fn check_readings(oracle: &Oracle, plan: &GateTwoPlan, now: Now, readings: &[(u16, Reading)]) {
    let mut caps = plan.instances().enumerate();
    for (place, found) in readings {
        let (_, cap) = caps.find(|(at, _)| *at == usize::from(*place)).expect("places ascend");
        let says = oracle.ask(cap, now, Estimate::default());
        let found = (found.observed.0, found.held.0, found.estimated, found.unpriced, found.resets_at);
        let wanted = (says.observed, says.held, says.estimated, says.unpriced, says.resets_at);
        assert_eq!(
            found, wanted,
            "{} at {}: observed, held, estimated, unpriced, end",
            cap.limit.id, cap.node
        );
    }
}

/// What each evaluated cap of the plan at this owner says, with its place.
fn opinions<'a>(
    oracle: &Oracle,
    plan: &'a GateTwoPlan,
    (core, cores): (CoreId, usize),
    now: Now,
    estimate: Estimate,
) -> Vec<(usize, &'a Instance, Opinion)> {
    let owned = plan.instances().enumerate();
    let owned = owned.filter(|(_, cap)| cap.identity.owner(cores) == core && !skipped(cap));
    owned.map(|(place, cap)| (place, cap, oracle.ask(cap, now, estimate))).collect()
}

/// The answer lists exactly the caps that are over, each with its figures, cause and wait.
fn check_refusal(
    oracle: &Oracle,
    says: &[(usize, &Instance, Opinion)],
    now: Now,
    answer: &Answer,
    expected: &mut Expected,
) {
    let Answer::Refused(partial) = answer else { panic!("{answer:?} over {says:?}") };
    let over = || says.iter().filter(|(_, cap, says)| refuses(cap) && says.cause.is_some());
    assert_eq!(partial.tripped.len(), over().count(), "{partial:?} against {says:?}");
    for ((place, tripped), (wanted, cap, says)) in partial.tripped.iter().zip(over()) {
        assert_eq!((usize::from(*place), &tripped.instance), (*wanted, *cap));
        let found = (tripped.observed.0, tripped.held.0, Some(tripped.cause), tripped.resets_at);
        assert_eq!(found, (says.observed, says.held, says.cause, says.resets_at), "tripped {}", cap.limit.id);
        oracle.check_wait(cap, now, says, tripped.wait);
        expected.tripped.push((*wanted, cap.limit.id.to_string(), tripped.cause));
        expected.firm |= !says.in_flight_only;
    }
}
