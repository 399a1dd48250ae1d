//! Which of a provider's addresses is next: the least busy of those that are well.

use std::sync::Arc;

use engine::Monotonic;

use super::health::Standing;
use super::target::Target;

/// The next target.
#[derive(Debug)]
pub struct Picked {
    /// Which one.
    pub target: Arc<Target>,
    /// It has been set aside, and this request finds out whether it is well again; no other does meanwhile.
    pub probes: bool,
}

/// The next target that is not in `tried`. In this order: one that is due to be probed; the least busy that is well,
/// second choices after the others; the least busy of those set aside, so that a provider whose every address failed is
/// still tried. `turn` breaks ties in rotation. `None` when every target has been tried.
pub fn pick(targets: &[Arc<Target>], tried: &[Arc<Target>], now: Monotonic, turn: usize) -> Option<Picked> {
    let count = targets.len();
    loop {
        let left = (0..count)
            .map(|step| &targets[(turn + step) % count])
            .filter(|target| !tried.iter().any(|one| Arc::ptr_eq(one, target)));
        let target = left.min_by_key(|target| rank(target, now))?;
        if target.standing(now) != Standing::Due {
            return Some(Picked { target: target.clone(), probes: false });
        }
        if target.health.claim(now) {
            return Some(Picked { target: target.clone(), probes: true });
        }
        // Another core was faster, which leaves it set aside or well: never due again at this instant.
    }
}

/// Lower is better.
fn rank(target: &Target, now: Monotonic) -> (u8, usize) {
    let rank = match (target.standing(now), target.is_second_choice) {
        (Standing::Due, false) => 0,
        (Standing::Well, false) => 1,
        (Standing::Well, true) => 2,
        (Standing::Due, true) => 3,
        (Standing::Aside, _) => 4,
    };
    (rank, target.busy())
}

#[cfg(test)]
mod tests {
    use super::super::target::Occupied;
    use super::*;
    use crate::bounds::SET_ASIDE;

    const NOW: Monotonic = Monotonic(1_000_000);

    /// Busy exchanges, set aside, second choice, already tried.
    type State = (usize, bool, bool, bool);

    /// The states of the targets, then which one is picked at turn 0.
    #[test]
    fn the_least_busy_well_target_is_next() {
        const fn well(busy: usize) -> State {
            (busy, false, false, false)
        }
        let table: &[(&[State], Option<usize>)] = &[
            (&[], None),
            (&[well(0)], Some(0)),
            (&[well(2), well(1)], Some(1)),
            (&[well(1), well(1)], Some(0)),
            (&[(0, true, false, false), well(9)], Some(1)),
            (&[(3, true, false, false), (2, true, false, false)], Some(1)),
            (&[(0, false, false, true), well(9)], Some(1)),
            (&[(0, false, false, true), (0, true, false, false)], Some(1)),
            (&[(0, false, false, true)], None),
            (&[(0, false, true, false), well(9)], Some(1)),
            (&[(5, false, true, false), (0, true, false, false)], Some(0)),
        ];
        for (states, wanted) in table {
            let targets: Vec<_> = states.iter().map(|state| target(state.2)).collect();
            let mut occupied = Vec::new();
            let mut tried = Vec::new();
            for (one, (busy, aside, _, used)) in targets.iter().zip(*states) {
                occupied.extend((0..*busy).map(|_| Occupied::new(one, false)));
                if *aside {
                    let _ = one.health.unreachable(NOW, false);
                }
                if *used {
                    tried.push(one.clone());
                }
            }
            let picked = pick(&targets, &tried, NOW, 0);
            let index = picked.map(|one| targets.iter().position(|t| Arc::ptr_eq(t, &one.target)).unwrap());
            assert_eq!(index, *wanted, "{states:?}");
        }
    }

    #[test]
    fn ties_rotate_and_one_request_probes_what_was_set_aside() {
        let targets = [target(false), target(false)];
        let at = |turn, now| {
            let picked = pick(&targets, &[], now, turn).unwrap();
            (targets.iter().position(|t| Arc::ptr_eq(t, &picked.target)).unwrap(), picked.probes)
        };
        assert_eq!([at(0, NOW), at(1, NOW), at(2, NOW)], [(0, false), (1, false), (0, false)]);
        let _ = targets[0].health.unreachable(NOW, false);
        assert_eq!(at(0, NOW), (1, false));
        let due = Monotonic(NOW.0 + SET_ASIDE.as_nanos() as u64);
        assert_eq!([at(0, due), at(0, due)], [(0, true), (1, false)], "one probes");
        targets[0].health.answered();
        assert_eq!(at(0, due), (0, false));
        let _ = targets[1].health.unreachable(due, false);
        assert!(targets[1].health.connected());
        assert_eq!(at(1, due), (1, false));
    }

    fn target(is_second_choice: bool) -> Arc<Target> {
        let target = Target::new("127.0.0.1:9".parse().unwrap(), "h".into(), String::new(), None);
        Arc::new(target.second_choice(is_second_choice))
    }
}
