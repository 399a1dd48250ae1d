//! Processor time: of the thread that asks, exact to the nanosecond, or of the whole process where the system does not say.

use std::time::Duration;

/// Time that the calling thread has run so far.
pub fn of_this_thread() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// User and system time of this process so far, in steps of 10 ms; zero where the system does not say.
pub fn of_this_process() -> Duration {
    of_process("self")
}

/// The same of any process, by its id or as `self`.
pub fn of_process(process: &str) -> Duration {
    // Linux counts these in hundredths of a second on every machine (USER_HZ).
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name in brackets may hold spaces; the fields behind it start with the state, the third of all.
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u32 =
        behind_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
    TICK * ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        let before = (of_this_thread(), of_this_process());
        let mut sum = 0u64;
        while of_this_process() < before.1 + Duration::from_millis(20) {
            sum = (0..100_000u64).fold(sum, |sum, number| std::hint::black_box(sum ^ number));
        }
        if let Some(thread) = before.0 {
            assert!(of_this_thread() > Some(thread));
        }
        assert_eq!(of_process("0"), Duration::ZERO, "no process has this id");
    }
}
