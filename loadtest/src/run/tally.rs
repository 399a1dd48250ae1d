//! What one thread has seen, and the sum over threads.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::seconds::Seconds;
use crate::bounds::LONGEST_LATENCY as HOUR;

/// Latencies in nanoseconds, three digits exact, up to an hour (beyond it they count as an hour).
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        // These bounds are constants that the type accepts.
        Latencies(Histogram::new_with_bounds(1, HOUR, 3).expect("bounds of a histogram"))
    }
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(HOUR);
        self.0.saturating_record(nanos.min(HOUR));
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Latencies) {
        // Both have the same bounds, so none is out of range.
        let _ = self.0.add(&other.0);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value that `percent` of all do not pass.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }

    /// The largest.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// The mean.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }
}

/// How a request failed to get an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// No connection.
    Connect,
    /// The connection ended, or was reset, before any byte of the answer.
    Closed,
    /// The connection ended, or was reset, in the midst of the answer.
    Truncated,
    /// What came is no HTTP response, or more came than the response.
    Protocol,
    /// The answer was not complete in time.
    TimedOut,
    /// The run was over before the answer was.
    Unfinished,
}

impl Failed {
    /// All kinds, with their names in reports.
    pub const ALL: [(Failed, &'static str); 6] = [
        (Failed::Connect, "connect"),
        (Failed::Closed, "closed"),
        (Failed::Truncated, "truncated"),
        (Failed::Protocol, "protocol"),
        (Failed::TimedOut, "timed_out"),
        (Failed::Unfinished, "unfinished"),
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        Failed::ALL[self as usize].1
    }
}

/// What was seen after the warm-up. Every request is in it once: under its status, under its failure, or in `not_sent`.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Latency to the last byte, by status.
    pub statuses: Vec<(u16, Latencies)>,
    /// The same, by the second in which the request was due.
    pub seconds: Seconds,
    /// Latency to the first byte of the answer.
    pub first_byte: Latencies,
    /// Latency to the first event of an event stream.
    pub first_event: Latencies,
    /// From one event to the next of the same stream. Events that came in one read have a gap of zero.
    pub event_gap: Latencies,
    /// From when the backend wrote an event, if the event says so, to when it was here.
    pub event_delay: Latencies,
    /// From the intended to the real time of sending (open loop only).
    pub send_delay: Latencies,
    failures: [u64; Failed::ALL.len()],
    /// Requests that were due and for which no connection became free before the end (open loop only).
    pub not_sent: u64,
    /// Connections opened, before and during the run.
    pub connects: u64,
    /// Event streams that came to their end.
    pub streams: u64,
    /// Events of all streams.
    pub events: u64,
    /// Bytes read, heads included.
    pub bytes: u64,
    /// The first protocol fault in words: what to look for.
    pub first_fault: Option<&'static str>,
}

impl Tally {
    /// Adds an answer to a request that was due `at` after the end of the warm-up.
    pub fn answered(&mut self, status: u16, at: Duration, latency: Duration) {
        self.of_status(status).record(latency);
        self.seconds.record(at, latency);
    }

    fn of_status(&mut self, status: u16) -> &mut Latencies {
        let place = match self.statuses.iter().position(|(known, _)| *known == status) {
            Some(place) => place,
            None => {
                self.statuses.push((status, Latencies::default()));
                self.statuses.len() - 1
            }
        };
        &mut self.statuses[place].1
    }

    /// Adds a failure.
    pub fn failed(&mut self, how: Failed) {
        self.failures[how as usize] += 1;
    }

    /// Failures of one kind.
    pub fn failures(&self, how: Failed) -> u64 {
        self.failures[how as usize]
    }

    /// Failures of all kinds.
    pub fn all_failures(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// Requests that got an answer, of any status.
    pub fn answers(&self) -> u64 {
        self.statuses.iter().map(|(_, latencies)| latencies.count()).sum()
    }

    /// Latency to the last byte, of every status.
    pub fn latency(&self) -> Latencies {
        let mut all = Latencies::default();
        for (_, latencies) in &self.statuses {
            all.merge(latencies);
        }
        all
    }

    /// Adds all of another thread.
    pub fn merge(&mut self, other: &Tally) {
        for (status, latencies) in &other.statuses {
            self.of_status(*status).merge(latencies);
        }
        self.statuses.sort_by_key(|(status, _)| *status);
        self.seconds.merge(&other.seconds);
        self.first_byte.merge(&other.first_byte);
        self.first_event.merge(&other.first_event);
        self.event_gap.merge(&other.event_gap);
        self.event_delay.merge(&other.event_delay);
        self.send_delay.merge(&other.send_delay);
        for (mine, theirs) in self.failures.iter_mut().zip(other.failures) {
            *mine += theirs;
        }
        self.not_sent += other.not_sent;
        self.connects += other.connects;
        self.streams += other.streams;
        self.events += other.events;
        self.bytes += other.bytes;
        self.first_fault = self.first_fault.or(other.first_fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::seconds::Second;

    #[test]
    fn merged_threads_are_as_one_that_saw_everything() {
        let (mut one, mut threads) = (Tally::default(), vec![Tally::default(); 3]);
        for number in 0..3000u64 {
            let status = [200, 200, 429][number as usize % 3];
            let latency = Duration::from_micros(10 + number * 7 % 5000);
            for tally in [&mut one, &mut threads[number as usize % 2 + (number / 2) as usize % 2]] {
                tally.answered(status, Duration::from_secs(number / 1000), latency);
                tally.event_gap.record(latency / 2);
                tally.event_delay.record(latency / 3);
                tally.bytes += number;
                if number % 10 == 0 {
                    tally.failed(Failed::Closed);
                }
            }
        }
        let mut merged = Tally::default();
        threads.iter().for_each(|tally| merged.merge(tally));
        assert_eq!(merged.answers(), 3000);
        assert_eq!((merged.all_failures(), merged.failures(Failed::Closed)), (300, 300));
        assert_eq!(merged.bytes, one.bytes);
        for percent in [1.0, 50.0, 99.0, 99.9, 100.0] {
            assert_eq!(merged.latency().percentile(percent), one.latency().percentile(percent));
            assert_eq!(merged.event_gap.percentile(percent), one.event_gap.percentile(percent));
            assert_eq!(merged.event_delay.percentile(percent), one.event_delay.percentile(percent));
        }
        let counts = |tally: &Tally| -> Vec<(u16, u64)> {
            tally.statuses.iter().map(|(status, all)| (*status, all.count())).collect()
        };
        assert_eq!(counts(&merged), [(200, 2000), (429, 1000)]);
        assert_eq!(merged.latency().max(), one.latency().max());
        let seconds = |tally: &Tally| -> Vec<u64> { tally.seconds.iter().map(Second::answers).collect() };
        assert_eq!((seconds(&merged), seconds(&one)), (vec![1000; 3], vec![1000; 3]));
    }

    #[test]
    fn percentiles_are_three_digits_exact_and_an_hour_is_the_most() {
        let mut latencies = Latencies::default();
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        let median = latencies.percentile(50.0).as_nanos() as f64;
        assert!((median / 500_000.0 - 1.0).abs() < 0.002, "{median}");
        latencies.record(Duration::from_secs(100_000));
        // Three digits: the bucket of an hour reaches a thousandth further.
        assert!(latencies.max() <= Duration::from_millis(3_603_600));
        assert_eq!(latencies.count(), 1001);
    }

    #[test]
    fn each_failure_has_its_own_place() {
        for (place, (how, _)) in Failed::ALL.iter().enumerate() {
            assert_eq!(*how as usize, place);
        }
    }
}
