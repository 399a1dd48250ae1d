//! When each request of an open loop is to be sent: fixed before the run, whatever the server does.
//!
//! Request `k` of the whole run is due at `k / rate`. Threads take turns: thread `t` of `T` has the requests `t, t + T, t + 2T, ...`,
//! so that the threads together send evenly and need not speak to each other.

use std::time::Duration;

/// The due times of one thread.
///
/// Invariant: `rate` is finite and above zero, `thread < threads`.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    rate: f64,
    threads: u64,
    thread: u64,
}

impl Schedule {
    /// The share of `thread` (from 0) of `threads` in `rate` requests a second.
    pub fn new(rate: f64, threads: usize, thread: usize) -> Schedule {
        assert!(rate.is_finite() && rate > 0.0, "a rate must be above zero");
        assert!(thread < threads, "there is no such thread");
        Schedule { rate, threads: threads as u64, thread: thread as u64 }
    }

    /// When this thread's request `index` (from 0) is due, from the start of the run.
    pub fn due(&self, index: u64) -> Duration {
        let overall = index.saturating_mul(self.threads).saturating_add(self.thread);
        // 53 bits hold nanoseconds of 100 days exactly; beyond a century there is no run.
        Duration::try_from_secs_f64(overall as f64 / self.rate).unwrap_or(Duration::MAX)
    }

    /// How many of this thread's requests are due before `span` has passed.
    pub fn due_before(&self, span: Duration) -> u64 {
        let overall = span.as_secs_f64() * self.rate;
        let mut count = (overall / self.threads as f64) as u64;
        while count > 0 && self.due(count - 1) >= span {
            count -= 1;
        }
        while self.due(count) < span {
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_together_send_evenly() {
        fn check(rate: f64, threads: usize) {
            let mut all: Vec<Duration> = (0..threads)
                .flat_map(|thread| {
                    let schedule = Schedule::new(rate, threads, thread);
                    (0..100).map(move |index| schedule.due(index))
                })
                .collect();
            all.sort();
            for (overall, due) in all.iter().enumerate() {
                let want = Duration::from_secs_f64(overall as f64 / rate);
                let off = due.abs_diff(want);
                assert!(off <= Duration::from_nanos(1), "request {overall} is due at {due:?}, not {want:?}");
            }
        }
        check(1.0, 1);
        check(1000.0, 3);
        check(33_333.3, 4);
        check(0.25, 2);
    }

    #[test]
    fn what_is_due_before_an_instant_is_what_counting_says() {
        fn check(rate: f64, threads: usize, span: Duration) {
            let mut sum = 0;
            for thread in 0..threads {
                let schedule = Schedule::new(rate, threads, thread);
                let counted = (0..).take_while(|index| schedule.due(*index) < span).count() as u64;
                assert_eq!(schedule.due_before(span), counted, "{rate} {threads} {thread} {span:?}");
                sum += counted;
            }
            let whole = (span.as_secs_f64() * rate).ceil() as u64;
            assert!(sum.abs_diff(whole) <= 1, "{sum} of {whole}");
        }
        for span in [0, 1, 999, 1000, 2500].map(Duration::from_millis) {
            check(1000.0, 1, span);
            check(1000.0, 3, span);
            check(7.7, 2, span);
            check(12_345.0, 4, span);
        }
    }

    #[test]
    fn a_late_request_does_not_move_the_next() {
        // The due time is a function of the index alone: no state to drift.
        let schedule = Schedule::new(100.0, 1, 0);
        assert_eq!(schedule.due(50), Duration::from_millis(500));
        assert_eq!(schedule.due(50), Duration::from_millis(500));
        assert_eq!(schedule.due(51), Duration::from_millis(510));
    }
}
