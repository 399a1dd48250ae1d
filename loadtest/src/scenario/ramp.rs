//! The highest rate at which p99 keeps a goal, found on a machine that other things disturb.
//!
//! Rates are doubled until even the loosest goal is missed at two of them in a row. Then, goal by goal, the stretch between the highest
//! rate that kept it and the next one above that missed it is halved (by its geometric mean) until its ends are near enough. That a
//! lower rate missed it does not matter: servers and machines that have little to do sleep, and wake up slowly. A single
//! measurement on a busy machine proves little, so
//!
//! - a rate that misses a goal is measured a second time, and has missed it only when both did;
//! - the rate that is found in the end is measured again, and counts only when it kept the goal in two measurements of at most
//!   three. Otherwise it has missed it, and the search goes on below;
//! - a miss while something else had much of the machine proves nothing, three times at each rate.
//!
//! Every measurement serves all goals. A measurement with a failure, a status of 400 and up, or a request unsent keeps none.

use std::time::Duration;

use super::file::Ramp;

/// How far below the first rate it is searched when even that misses a goal.
const BELOW: f64 = 4.0;
/// Measurements of a rate that must keep the goal, and how many there may be.
const KEPT: usize = 2;
const TRIES: usize = 3;
/// Disturbed measurements of a rate that prove nothing; more of them count like any other, so that a machine that is never quiet gets
/// an answer too.
const DISTURBED: usize = 3;
/// Misses of a rate after which it has missed a goal.
const MISSES: usize = 2;
/// Rates from here on are whole numbers: a hundredth of one is finer than any precision that is asked for.
const WHOLE: f64 = 100.0;
/// Rates in a row at which the loosest goal is missed before no higher one is tried.
const MISSED_IN_A_ROW: usize = 2;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Requests a second.
    pub rate: f64,
    /// What 99 of 100 answers did not pass.
    pub p99: Duration,
    /// Every request was sent and answered with success.
    pub clean: bool,
    /// Something else had much of the machine meanwhile.
    pub disturbed: bool,
}

impl Measured {
    fn keeps(&self, goal: Duration) -> bool {
        self.clean && self.p99 <= goal
    }
}

/// What was found for one goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The p99 to be kept.
    pub p99: Duration,
    /// The highest rate that keeps it; `None` when none was found.
    pub rate: Option<f64>,
    /// The largest p99 measured at that rate among the measurements that kept the goal.
    pub measured: Option<Duration>,
    /// The rate was confirmed and one near above it misses the goal, undisturbed; else the steps ran out, the machine was not quiet, or
    /// the highest rate of all keeps it.
    pub settled: bool,
}

/// All that a search came to.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// As the goals were given.
    pub goals: Vec<Goal>,
    /// Every measurement, in order.
    pub steps: Vec<Measured>,
}

struct Search<'a, M> {
    ramp: &'a Ramp,
    measure: M,
    steps: Vec<Measured>,
}

/// The stretch in which the highest rate for a goal lies.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// The highest rate that kept the goal.
    low: Option<f64>,
    /// The lowest one above it; if nothing kept the goal, of all.
    high: Option<f64>,
}

/// Searches with `measure`, which sends load at a rate and says what came of it.
///
/// # Errors
/// The first error of `measure`.
pub fn search<E>(ramp: &Ramp, measure: impl FnMut(f64) -> Result<Measured, E>) -> Result<Found, E> {
    let mut search = Search { ramp, measure, steps: Vec::new() };
    let goals: Vec<Duration> =
        ramp.goals_ms.iter().map(|millis| Duration::from_secs_f64(millis / 1000.0)).collect();
    search.double(&goals)?;
    for goal in &goals {
        search.settle(*goal)?;
    }
    let goals = goals.into_iter().map(|goal| search.found(goal)).collect();
    Ok(Found { goals, steps: search.steps })
}

impl<E, M: FnMut(f64) -> Result<Measured, E>> Search<'_, M> {
    fn steps_left(&self) -> bool {
        self.steps.len() < self.ramp.steps
    }

    fn step(&mut self, rate: f64) -> Result<(), E> {
        let measured = (self.measure)(rate)?;
        self.steps.push(measured);
        Ok(())
    }

    /// Measurements at `rate` that prove something about `goal`, and how many of them kept it.
    fn tally(&self, rate: f64, goal: Duration) -> (usize, usize) {
        let at = || self.steps.iter().filter(move |step| step.rate == rate);
        let kept = at().filter(|step| step.keeps(goal)).count();
        let disturbed = at().filter(|step| !step.keeps(goal) && step.disturbed).count();
        (at().count() - disturbed.min(DISTURBED), kept)
    }

    /// Whether `rate` keeps `goal` as far as is known: not always missed, and not found to have been luck.
    fn keeps(&self, rate: f64, goal: Duration) -> bool {
        let (all, kept) = self.tally(rate, goal);
        kept >= KEPT || (kept > 0 && all < TRIES)
    }

    /// Measures `rate`, again while it is open whether it misses one of `goals`.
    fn judge(&mut self, rate: f64, goals: &[Duration]) -> Result<(), E> {
        loop {
            self.step(rate)?;
            let is_open = |goal: &Duration| !self.keeps(rate, *goal) && self.tally(rate, *goal).0 < MISSES;
            if !goals.iter().any(is_open) || !self.steps_left() {
                return Ok(());
            }
        }
    }

    fn double(&mut self, goals: &[Duration]) -> Result<(), E> {
        let loosest = goals.iter().copied().max().unwrap_or_default();
        let (mut rate, mut missed) = (self.ramp.from, 0);
        while self.steps_left() {
            self.judge(rate, goals)?;
            missed = if self.keeps(rate, loosest) { 0 } else { missed + 1 };
            if missed == MISSED_IN_A_ROW || rate >= self.ramp.to {
                break;
            }
            rate = (rate * 2.0).min(self.ramp.to);
        }
        Ok(())
    }

    fn stretch(&self, goal: Duration) -> Stretch {
        let rates = || self.steps.iter().map(|step| step.rate);
        let kept = rates().filter(|rate| self.keeps(*rate, goal));
        let low = kept.fold(None, |most: Option<f64>, rate| Some(most.map_or(rate, |most| most.max(rate))));
        let above = rates().filter(|rate| low.is_none_or(|low| *rate > low));
        let high =
            above.fold(None, |least: Option<f64>, rate| Some(least.map_or(rate, |least| least.min(rate))));
        Stretch { low, high }
    }

    /// The next rate to be tried, a whole number where that is near enough; `None` when the ends are near enough.
    fn between(&self, stretch: Stretch) -> Option<f64> {
        let rate = match (stretch.low, stretch.high) {
            (Some(low), Some(high)) => {
                (high > low * (1.0 + self.ramp.precision)).then(|| (low * high).sqrt())
            }
            (None, Some(high)) => (high > self.ramp.from / BELOW).then_some(high / 2.0),
            (_, None) => None,
        };
        rate.map(|rate| if rate >= WHOLE { rate.round() } else { rate })
    }

    fn settle(&mut self, goal: Duration) -> Result<(), E> {
        while self.steps_left() {
            let stretch = self.stretch(goal);
            if let Some(rate) = self.between(stretch) {
                self.judge(rate, &[goal])?;
                continue;
            }
            let Some(low) = stretch.low else { return Ok(()) };
            if self.tally(low, goal).1 >= KEPT {
                return Ok(());
            }
            // One time of at most three decides; if it was luck, the stretch is another one from then on.
            self.step(low)?;
        }
        Ok(())
    }

    fn found(&self, goal: Duration) -> Goal {
        let stretch = self.stretch(goal);
        let confirmed = stretch.low.is_none_or(|low| self.tally(low, goal).1 >= KEPT);
        let kept = self.steps.iter().filter(|step| Some(step.rate) == stretch.low && step.keeps(goal));
        let misses = self.steps.iter().filter(|step| Some(step.rate) == stretch.high && !step.keeps(goal));
        let quiet = misses.filter(|step| !step.disturbed).count() > 0;
        Goal {
            p99: goal,
            rate: stretch.low,
            measured: kept.map(|step| step.p99).max(),
            settled: confirmed && quiet && self.between(stretch).is_none(),
        }
    }
}

#[cfg(test)]
#[path = "ramp_tests.rs"]
mod tests;
