//! Which key each request takes.

use crate::random::Random;

/// How keys are drawn, out of as many as there are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Draw {
    /// Each request takes the next one.
    #[default]
    InTurn,
    /// Always the first.
    One,
    /// The first most often: the one of rank `k`, from 1, with a weight of `1 / k^exponent`.
    Zipf {
        /// 0 draws evenly; 1 is what words, pages and tenants are like.
        exponent: f64,
    },
    /// The first with a share of its own, the others evenly with what is left.
    Hot {
        /// From 0 to 1.
        share: f64,
    },
}

/// The keys that one thread takes, one after the other: the same ones for the same seed.
///
/// Invariant: `keys` is above zero; `sums` ascends, and is empty for every draw but `Zipf`.
pub struct Picker {
    draw: Draw,
    keys: usize,
    turn: usize,
    random: Random,
    /// Up to each rank, the share of all that is drawn.
    sums: Vec<f64>,
}

impl Picker {
    /// Out of `keys` of them (at least one); the turns of `Draw::InTurn` begin at `first`.
    pub fn new(draw: Draw, keys: usize, seed: u64, first: usize) -> Picker {
        let keys = keys.max(1);
        let sums = match draw {
            Draw::Zipf { exponent } => shares_so_far(keys, exponent),
            _ => Vec::new(),
        };
        Picker { draw, keys, turn: first, random: Random::new(seed), sums }
    }

    /// The place of the next key, from 0.
    pub fn pick(&mut self) -> usize {
        match self.draw {
            Draw::One => 0,
            Draw::InTurn => {
                let turn = self.turn;
                self.turn = turn.wrapping_add(1);
                turn % self.keys
            }
            Draw::Zipf { .. } => {
                let drawn = self.random.fraction();
                self.sums.partition_point(|sum| *sum <= drawn).min(self.keys - 1)
            }
            Draw::Hot { share } => match self.keys {
                1 => 0,
                _ if self.random.fraction() < share => 0,
                _ => 1 + (self.random.next() % (self.keys as u64 - 1)) as usize,
            },
        }
    }
}

fn shares_so_far(keys: usize, exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        })
        .collect();
    sums.iter_mut().for_each(|so_far| *so_far /= sum);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(draw: Draw, keys: usize, seed: u64, draws: usize) -> Vec<u64> {
        let mut picker = Picker::new(draw, keys, seed, 0);
        let mut counts = vec![0; keys];
        (0..draws).for_each(|_| counts[picker.pick()] += 1);
        counts
    }

    /// The weights added up again for each draw, rank by rank.
    fn naive(keys: usize, exponent: f64, random: &mut Random) -> usize {
        let all: f64 = (1..=keys).map(|rank| 1.0 / (rank as f64).powf(exponent)).sum();
        let mut left = random.fraction() * all;
        for rank in 1..=keys {
            left -= 1.0 / (rank as f64).powf(exponent);
            if left < 0.0 {
                return rank - 1;
            }
        }
        keys - 1
    }

    #[test]
    fn zipf_draws_what_adding_up_the_weights_draws() {
        fn check(keys: usize, exponent: f64, seed: u64) {
            let mut picker = Picker::new(Draw::Zipf { exponent }, keys, seed, 0);
            let mut random = Random::new(seed);
            let mut apart = 0;
            for _ in 0..2000 {
                let (fast, slow) = (picker.pick(), naive(keys, exponent, &mut random));
                // A draw on the very edge between two ranks may be rounded to either side.
                assert!(fast.abs_diff(slow) <= 1, "{fast} and {slow} of {keys}, {exponent}, {seed}");
                apart += usize::from(fast != slow);
            }
            assert!(apart <= 2, "{apart} of {keys}, {exponent}, {seed}");
        }
        for seed in [0, 1, 7, 99] {
            check(1, 1.0, seed);
            check(10, 0.0, seed);
            check(100, 1.0, seed);
            check(1000, 1.3, seed);
            check(10_000, 0.9, seed);
        }
    }

    #[test]
    fn shares_are_as_they_were_asked_for() {
        /// Each wanted share, by place, within four standard deviations of as many draws.
        fn check(draw: Draw, keys: usize, wanted: &[(usize, f64)]) {
            const DRAWS: usize = 100_000;
            let counts = counts(draw, keys, 5, DRAWS);
            assert_eq!(counts.iter().sum::<u64>(), DRAWS as u64);
            for (place, share) in wanted {
                let mean = share * DRAWS as f64;
                let off = (counts[*place] as f64 - mean).abs();
                assert!(
                    off <= 4.0 * (mean * (1.0 - share)).sqrt(),
                    "{draw:?}: {} of {mean} at {place}",
                    counts[*place]
                );
            }
        }
        check(Draw::One, 3, &[(0, 1.0), (1, 0.0), (2, 0.0)]);
        check(Draw::InTurn, 4, &[(0, 0.25), (1, 0.25), (2, 0.25), (3, 0.25)]);
        check(Draw::Hot { share: 0.9 }, 11, &[(0, 0.9), (1, 0.01), (10, 0.01)]);
        check(Draw::Hot { share: 0.5 }, 1, &[(0, 1.0)]);
        // Harmonic number of 4: 25/12.
        check(Draw::Zipf { exponent: 1.0 }, 4, &[(0, 0.48), (1, 0.24), (2, 0.16), (3, 0.12)]);
        check(Draw::Zipf { exponent: 0.0 }, 4, &[(0, 0.25), (3, 0.25)]);
    }

    #[test]
    fn a_seed_draws_the_same_again() {
        let draw = Draw::Zipf { exponent: 1.0 };
        assert_eq!(counts(draw, 50, 3, 500), counts(draw, 50, 3, 500));
        assert_ne!(counts(draw, 50, 3, 500), counts(draw, 50, 4, 500));
    }
}
