//! Which of a provider's base URLs is next: the least busy of those that are well.

use std::sync::Arc;

use engine::Monotonic;

use crate::snapshot::Target;

/// The least busy target that is well and not in `tried`; when all that are left are set aside, the least busy of
/// those, so that a provider whose every address failed is still tried. `turn` breaks ties in rotation. `None` when
/// every target has been tried.
pub fn pick(
    targets: &[Arc<Target>],
    tried: &[Arc<Target>],
    now: Monotonic,
    turn: usize,
) -> Option<Arc<Target>> {
    let count = targets.len();
    (0..count)
        .map(|step| &targets[(turn + step) % count])
        .filter(|target| !tried.iter().any(|one| Arc::ptr_eq(one, target)))
        .min_by_key(|target| (target.is_aside(now), target.busy()))
        .cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::SET_ASIDE;

    const NOW: Monotonic = Monotonic(1_000_000);

    /// Busy exchanges, set aside, already tried.
    type State = (usize, bool, bool);

    /// The states of the targets, then which one is picked at turn 0.
    #[test]
    fn the_least_busy_well_target_is_next() {
        let table: &[(&[State], Option<usize>)] = &[
            (&[], None),
            (&[(0, false, false)], Some(0)),
            (&[(2, false, false), (1, false, false)], Some(1)),
            (&[(1, false, false), (1, false, false)], Some(0)),
            (&[(0, true, false), (9, false, false)], Some(1)),
            (&[(3, true, false), (2, true, false)], Some(1)),
            (&[(0, false, true), (9, false, false)], Some(1)),
            (&[(0, false, true), (0, true, false)], Some(1)),
            (&[(0, false, true)], None),
        ];
        for (states, wanted) in table {
            let targets: Vec<_> = states.iter().map(|_| target()).collect();
            let mut occupied = Vec::new();
            let mut tried = Vec::new();
            for (one, (busy, aside, used)) in targets.iter().zip(*states) {
                occupied.extend((0..*busy).map(|_| one.occupy()));
                if *aside {
                    one.set_aside(NOW);
                }
                if *used {
                    tried.push(one.clone());
                }
            }
            let picked = pick(&targets, &tried, NOW, 0);
            let index = picked.map(|one| targets.iter().position(|t| Arc::ptr_eq(t, &one)).unwrap());
            assert_eq!(index, *wanted, "{states:?}");
        }
    }

    #[test]
    fn ties_rotate_and_a_target_set_aside_comes_back() {
        let targets = [target(), target()];
        let at = |turn, now| {
            let picked = pick(&targets, &[], now, turn).unwrap();
            targets.iter().position(|t| Arc::ptr_eq(t, &picked)).unwrap()
        };
        assert_eq!([at(0, NOW), at(1, NOW), at(2, NOW)], [0, 1, 0]);
        targets[0].set_aside(NOW);
        assert_eq!(at(0, NOW), 1);
        assert_eq!(at(0, Monotonic(NOW.0 + SET_ASIDE.as_nanos() as u64)), 0);
        targets[1].set_aside(NOW);
        targets[1].is_well();
        assert_eq!(at(0, NOW), 1);
    }

    fn target() -> Arc<Target> {
        Arc::new(Target::new("127.0.0.1:9".parse().unwrap(), "h".into(), String::new(), None))
    }
}
