//! What else ran on the machine while something was measured. Where that was much, latencies may be its doing.

use std::time::{Duration, Instant};

use crate::run::cpu;

/// Ticks of `/proc/stat` are hundredths of a second on every machine (USER_HZ).
const TICK: Duration = Duration::from_millis(10);

/// Processor time at one moment: of the whole machine, and of what belongs to the measurement.
#[derive(Clone, Copy, Debug)]
struct Spent {
    all: Duration,
    ours: Duration,
}

/// A stretch of time that is being watched.
pub struct Watched {
    began: Instant,
    before: Option<Spent>,
    gateway: u32,
}

impl Watched {
    /// From now on; this process and the one of this id belong to the measurement.
    pub fn begin(gateway: u32) -> Watched {
        Watched { began: Instant::now(), before: spent(gateway), gateway }
    }

    /// The share of the machine, 0 to 1, that others had since; `None` where the system does not say.
    pub fn others(&self) -> Option<f64> {
        let (before, after) = (self.before?, spent(self.gateway)?);
        let processors = std::thread::available_parallelism().ok()?.get();
        Some(share(before, after, self.began.elapsed(), processors))
    }
}

fn share(before: Spent, after: Spent, took: Duration, processors: usize) -> f64 {
    let all = after.all.saturating_sub(before.all);
    let ours = after.ours.saturating_sub(before.ours);
    let whole = took.as_secs_f64() * processors as f64;
    (all.saturating_sub(ours).as_secs_f64() / whole.max(1e-9)).min(1.0)
}

fn spent(gateway: u32) -> Option<Spent> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let ours = cpu::of_process("self") + cpu::of_process(&gateway.to_string());
    Some(Spent { all: busy(&stat)?, ours })
}

/// Time that the processors were not idle, the time that a hypervisor took from them included.
fn busy(stat: &str) -> Option<Duration> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u32> = line.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let [user, nice, system, _, _, irq, softirq, steal] = ticks.try_into().ok()?;
    Some(
        TICK * user
            .checked_add(nice)?
            .checked_add(system)?
            .checked_add(irq)?
            .checked_add(softirq)?
            .checked_add(steal)?,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_ours_is_the_others() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy(stat), Some(TICK * 171));
        assert_eq!(busy("cpu0 1 2 3 4 5 6 7 8\n"), None);
        let of =
            |all: u64, ours: u64| Spent { all: Duration::from_secs(all), ours: Duration::from_secs(ours) };
        let took = Duration::from_secs(10);
        assert_eq!(share(of(100, 20), of(110, 25), took, 2), 0.25);
        assert_eq!(share(of(100, 20), of(104, 25), took, 2), 0.0);
    }
}
