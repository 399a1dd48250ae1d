//! What a run came to: an aligned table for people, JSON for programs.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::ledger::Ledger;
use super::machine;
use super::seconds::Second;
use super::tally::{Failed, Latencies, Tally};
use super::{Pattern, RunOptions};
use crate::duration::show;

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was asked for.
    pub options: RunOptions,
    /// Connections really used.
    pub connections: usize,
    /// What was seen after the warm-up.
    pub tally: Tally,
    /// What became of the requests of each credential; empty unless that was asked for.
    pub ledger: Ledger,
    /// The measured time.
    pub measured: Duration,
    /// Processor time of the generator's threads over the whole run.
    pub generator_cpu: Duration,
    /// Real time of the whole run, connecting and warm-up included.
    pub whole_run: Duration,
}

/// The percentiles shown.
const PERCENTILES: [(f64, &str); 6] =
    [(50.0, "p50"), (75.0, "p75"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9"), (99.99, "p99.99")];

impl Report {
    /// Answers of any status a second.
    pub fn rate(&self) -> f64 {
        let seconds = self.measured.as_secs_f64();
        if seconds > 0.0 { self.tally.answers() as f64 / seconds } else { 0.0 }
    }

    /// The share of the time that the generator's threads were busy, 0 to 1: near 1 it is the generator that is measured.
    pub fn generator_busy(&self) -> f64 {
        let threads = self.options.threads.max(1) as f64;
        let whole = self.whole_run.as_secs_f64() * threads;
        (self.generator_cpu.as_secs_f64() / whole.max(1e-9)).min(1.0)
    }

    /// What a reader of the figures must know before trusting them.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.tally.not_sent > 0 {
            warnings.push(format!(
                "{} requests were due and never sent: no connection came free; the percentiles leave them out",
                self.tally.not_sent
            ));
        }
        if self.generator_busy() > 0.95 {
            warnings.push("the generator was busy all the time: it may be what was measured".into());
        }
        if let Some(fault) = self.tally.first_fault {
            warnings.push(format!("the first answer that was no HTTP: {fault}"));
        }
        if self.tally.answers() == 0 {
            warnings.push("no request was answered".into());
        }
        warnings
    }

    /// The latency groups that have anything in them, named.
    fn groups(&self) -> Vec<(String, Latencies)> {
        let tally = &self.tally;
        let mut groups = vec![("latency".to_owned(), tally.latency())];
        if tally.statuses.len() > 1 {
            let by_status = tally.statuses.iter();
            groups.extend(by_status.map(|(status, latencies)| (format!("  {status}"), latencies.clone())));
        }
        groups.push(("first byte".into(), tally.first_byte.clone()));
        groups.push(("first event".into(), tally.first_event.clone()));
        groups.push(("event gap".into(), tally.event_gap.clone()));
        groups.push(("event delay".into(), tally.event_delay.clone()));
        groups.push(("send delay".into(), tally.send_delay.clone()));
        groups.retain(|(_, latencies)| latencies.count() > 0);
        groups
    }

    /// The table.
    pub fn table(&self) -> String {
        let (options, tally) = (&self.options, &self.tally);
        let pattern = match options.pattern {
            Pattern::Closed => "closed loop".to_owned(),
            Pattern::Open { rate } => format!("open loop, {rate} requests/s"),
        };
        let mut out = String::new();
        let mut line = |name: &str, text: String| {
            // Writing into a string cannot fail.
            let _ = writeln!(out, "{name:<11} {text}");
        };
        line("target", format!("{} {}", options.method, options.target.url));
        line(
            "load",
            format!("{pattern}, {} connections, {} threads", self.connections, options.threads.max(1)),
        );
        line("measured", format!("{} after {} of warm-up", show(self.measured), show(options.warm_up)));
        line("answers", format!("{:<12} {:.0}/s", tally.answers(), self.rate()));
        for (status, latencies) in &tally.statuses {
            line(&format!("  {status}"), latencies.count().to_string());
        }
        line("failures", tally.all_failures().to_string());
        for (how, name) in Failed::ALL {
            if tally.failures(how) > 0 {
                line(&format!("  {name}"), tally.failures(how).to_string());
            }
        }
        if matches!(options.pattern, Pattern::Open { .. }) {
            line("not sent", tally.not_sent.to_string());
        }
        line("connects", tally.connects.to_string());
        line("read", format!("{:.1} MB", tally.bytes as f64 / 1e6));
        if tally.streams > 0 {
            line("streams", format!("{} with {} events", tally.streams, tally.events));
        }
        line("generator", format!("{:.0} % busy", self.generator_busy() * 100.0));
        out.push('\n');
        out += &latency_table(&self.groups());
        for warning in self.warnings() {
            let _ = writeln!(out, "\nnote: {warning}");
        }
        out
    }

    /// Second by second: answers, and what their latencies did not pass, in microseconds.
    fn seconds(&self) -> Vec<Value> {
        let row = |second: &Second| {
            let of = |percent| micros(second.percentile(percent));
            json!({ "answers": second.answers(), "p50": of(50.0), "p99": of(99.0), "max": of(100.0) })
        };
        self.tally.seconds.iter().map(row).collect()
    }

    /// The same as JSON. Latencies are in microseconds.
    pub fn json(&self) -> Value {
        let (options, tally) = (&self.options, &self.tally);
        let (kind, rate) = match options.pattern {
            Pattern::Closed => ("closed", Value::Null),
            Pattern::Open { rate } => ("open", json!(rate)),
        };
        let statuses: Map<String, Value> = tally
            .statuses
            .iter()
            .map(|(status, latencies)| (status.to_string(), json!(latencies.count())))
            .collect();
        let by_status: Map<String, Value> = tally
            .statuses
            .iter()
            .map(|(status, latencies)| (status.to_string(), summary(latencies)))
            .collect();
        let failures: Map<String, Value> =
            Failed::ALL.iter().map(|(how, name)| ((*name).to_owned(), json!(tally.failures(*how)))).collect();
        json!({
            "url": options.target.url, "method": options.method,
            "load": {"kind": kind, "rate": rate}, "connections": self.connections, "threads": options.threads.max(1),
            "warm_up_s": options.warm_up.as_secs_f64(), "measured_s": self.measured.as_secs_f64(),
            "answers": tally.answers(), "answers_per_s": rounded(self.rate()), "statuses": statuses,
            "failures": failures, "all_failures": tally.all_failures(), "not_sent": tally.not_sent,
            "connects": tally.connects, "bytes": tally.bytes, "streams": tally.streams, "events": tally.events,
            "latency_us": summary(&tally.latency()), "latency_by_status_us": by_status,
            "first_byte_us": summary(&tally.first_byte), "first_event_us": summary(&tally.first_event),
            "event_gap_us": summary(&tally.event_gap), "event_delay_us": summary(&tally.event_delay),
            "send_delay_us": summary(&tally.send_delay),
            "latency_curve_us": curve(&tally.latency()), "seconds": self.seconds(), "machine": machine::about(),
            "generator_busy": rounded(self.generator_busy()), "generator_cpu_s": self.generator_cpu.as_secs_f64(),
            "warnings": self.warnings(),
        })
    }
}

/// Points of the distribution, as percent and microseconds: nines in steps of a tenth, as far as there are answers for them.
fn curve(latencies: &Latencies) -> Vec<[f64; 2]> {
    let mut points = Vec::new();
    for step in 0.. {
        let rest = 10f64.powf(-f64::from(step) / 10.0);
        if rest * latencies.count() as f64 <= 1.0 {
            break;
        }
        let percent = 100.0 * (1.0 - rest);
        points.push([(percent * 1e6).round() / 1e6, micros(latencies.percentile(percent))]);
    }
    if latencies.count() > 0 {
        points.push([100.0, micros(latencies.max())]);
    }
    points
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn micros(latency: Duration) -> f64 {
    rounded(latency.as_nanos() as f64 / 1000.0)
}

/// Null when there is nothing: a percentile of nothing is not zero.
fn summary(latencies: &Latencies) -> Value {
    if latencies.count() == 0 {
        return Value::Null;
    }
    let mut object = Map::new();
    object.insert("count".into(), json!(latencies.count()));
    object.insert("mean".into(), json!(micros(latencies.mean())));
    for (percent, name) in PERCENTILES {
        object.insert(name.into(), json!(micros(latencies.percentile(percent))));
    }
    object.insert("max".into(), json!(micros(latencies.max())));
    Value::Object(object)
}

fn latency_table(groups: &[(String, Latencies)]) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let mut heads = vec!["", "count", "mean"];
    heads.extend(PERCENTILES.iter().map(|(_, name)| *name));
    heads.push("max");
    let mut rows: Vec<Vec<String>> = vec![heads.into_iter().map(str::to_owned).collect()];
    for (name, latencies) in groups {
        let mut row = vec![name.clone(), latencies.count().to_string(), show(latencies.mean())];
        row.extend(PERCENTILES.iter().map(|(percent, _)| show(latencies.percentile(*percent))));
        row.push(show(latencies.max()));
        rows.push(row);
    }
    aligned(&rows)
}

/// Rows of equal length as text: the first column to the left, the others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing into a string cannot fail.
            let _ = match column {
                0 => write!(line, "{cell:<first$}", first = 12.max(*width)),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}
