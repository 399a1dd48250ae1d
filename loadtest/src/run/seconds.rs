//! Answers second by second: what a stall looks like, which percentiles over the whole run hide.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::bounds::{LONGEST_LATENCY, SECONDS_KEPT};

/// The answers to requests that were due in one second.
#[derive(Clone, Debug)]
pub struct Second(Histogram<u32>);

impl Default for Second {
    fn default() -> Self {
        // Steps of six per cent are finer than a plot shows, and keep an hour in 20 MB. The bounds are constants that the type accepts.
        Second(Histogram::new_with_bounds(1, LONGEST_LATENCY, 1).expect("bounds of a histogram"))
    }
}

impl Second {
    /// How many.
    pub fn answers(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `percent` of them do not pass, within six per cent.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }
}

/// One [`Second`] for each since the end of the warm-up; the last one that is kept has all that come after it.
#[derive(Clone, Debug, Default)]
pub struct Seconds(Vec<Second>);

impl Seconds {
    /// Adds the answer to a request that was due `at` after the end of the warm-up.
    pub fn record(&mut self, at: Duration, latency: Duration) {
        let place = usize::try_from(at.as_secs()).unwrap_or(usize::MAX).min(SECONDS_KEPT - 1);
        if self.0.len() <= place {
            self.0.resize_with(place + 1, Second::default);
        }
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST_LATENCY);
        self.0[place].0.saturating_record(nanos.min(LONGEST_LATENCY));
    }

    /// Adds all of another thread.
    pub fn merge(&mut self, other: &Seconds) {
        if self.0.len() < other.0.len() {
            self.0.resize_with(other.0.len(), Second::default);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            // Both have the same bounds, so none is out of range.
            let _ = mine.0.add(&theirs.0);
        }
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &Second> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_filed_under_the_second_that_they_were_due_in() {
        let millis = Duration::from_millis;
        let mut threads = [Seconds::default(), Seconds::default()];
        for (thread, at, latency) in [(0, 0, 1), (1, 999, 3), (0, 2_500, 700), (1, 1_000_000_000, 5)] {
            threads[thread].record(millis(at), millis(latency));
        }
        let [mut all, other] = threads;
        all.merge(&other);
        let answers: Vec<u64> = all.iter().map(Second::answers).collect();
        assert_eq!(answers.len(), SECONDS_KEPT);
        assert_eq!((answers[..3].to_vec(), answers[SECONDS_KEPT - 1]), (vec![2, 0, 1], 1));
        let stall = all.iter().nth(2).expect("the third").percentile(99.0).as_secs_f64();
        assert!((0.65..0.76).contains(&stall), "{stall}");
    }
}
