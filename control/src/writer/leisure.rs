//! Rows that nobody waits for: merged while they wait, written a few at a time.
//!
//! A round takes all that wait and writes them in portions; what comes meanwhile waits for the next round. The more wait,
//! the larger a portion, so that a round ends within [`PORTIONS`] of them, and its rows are in the database half a second
//! after they came, unless the disk is slower. Bounded by what differs.

use std::collections::HashMap;
use std::hash::Hash;

/// The least that is written at once: about a millisecond.
const PORTION: usize = 64;

/// The most portions of one round.
const PORTIONS: usize = 32;

/// Rows that wait, by what identifies them.
#[derive(Debug)]
pub struct Leisure<K, V> {
    waiting: HashMap<K, V>,
    round: Vec<(K, V)>,
    portion: usize,
}

impl<K, V> Default for Leisure<K, V> {
    fn default() -> Self {
        Leisure { waiting: HashMap::new(), round: Vec::new(), portion: PORTION }
    }
}

impl<K: Eq + Hash, V: Default> Leisure<K, V> {
    /// The row of `key` that waits; a new one if none does.
    pub fn of(&mut self, key: K) -> &mut V {
        self.waiting.entry(key).or_default()
    }

    /// How many rows wait.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.round.len()
    }

    /// Writes the next portion, or all that wait. What is not written waits on.
    ///
    /// # Errors
    /// What `write` says.
    pub fn write<E>(
        &mut self,
        all: bool,
        mut write: impl FnMut(&[(K, V)]) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            if self.round.is_empty() {
                self.round.extend(self.waiting.drain());
                self.portion = self.round.len().div_ceil(PORTIONS).max(PORTION);
            }
            if self.round.is_empty() {
                return Ok(());
            }
            let from = self.round.len().saturating_sub(self.portion);
            write(&self.round[from..])?;
            self.round.truncate(from);
            if !all {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Rows come and are written, some writes fail: in the end each key has had exactly what came for it.
    #[test]
    fn nothing_is_lost_and_nothing_is_written_twice() {
        let (mut leisure, mut came, mut written) = (Leisure::default(), BTreeMap::new(), BTreeMap::new());
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for step in 0..20_000 {
            let all = step == 19_999;
            let key = random(500);
            *leisure.of(key) += 1u64;
            *came.entry(key).or_insert(0u64) += 1;
            if !all && random(20) > 0 {
                continue;
            }
            let fails = !all && random(3) == 0;
            let outcome = leisure.write(all, |rows| {
                assert!(rows.len() <= PORTION, "{} rows at once", rows.len());
                if fails {
                    return Err(());
                }
                rows.iter().for_each(|(key, count)| *written.entry(*key).or_insert(0) += count);
                Ok(())
            });
            assert_eq!(outcome.is_err(), fails);
        }
        assert_eq!((leisure.len(), written), (0, came));
    }

    #[test]
    fn however_many_wait_a_round_has_so_many_portions() {
        for (rows, portions) in [(0, 1), (1, 1), (64, 1), (65, 2), (2_048, 32), (100_000, 32)] {
            let mut leisure = Leisure::default();
            (0..rows).for_each(|row| *leisure.of(row) = ());
            let mut calls = 0;
            while calls == 0 || leisure.len() > 0 {
                leisure.write(false, |_| Ok::<_, ()>(())).expect("written");
                calls += 1;
            }
            assert_eq!(calls, portions, "{rows} rows");
        }
    }
}
