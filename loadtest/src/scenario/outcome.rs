//! What a scenario came to: a table for people, JSON for programs.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::backend::Ceiling;
use super::check::{Difference, Verdict};
use super::execute::{Settings, Where};
use super::file::DrawName;
use super::ramp::Found;
use crate::bounds;
use crate::duration::show;
use crate::run::{Report, machine};

/// Above this share of what the backend can do, it may be the backend that is measured.
const CEILING_SHARE: f64 = 0.5;

/// What was driven.
#[derive(Clone, Debug, Default)]
pub struct Driven {
    /// The gateway's command, or the URL.
    pub what: String,
    /// What its `--version` says.
    pub version: Option<String>,
    /// Processor time that it took.
    pub cpu: Option<Duration>,
    /// Its resident memory in bytes, before and after.
    pub resident: Option<(u64, u64)>,
    /// Requests a second that reached the backend.
    pub backend_rate: Option<f64>,
    /// The share of the machine that had nothing to do with it, 0 to 1.
    pub others: Option<f64>,
}

/// Whether counters were compared with what clients saw.
#[derive(Clone, Debug)]
pub enum Checked {
    /// They were.
    Compared(Verdict),
    /// They were not, for this reason.
    Not(String),
}

/// A scenario that was run.
#[derive(Clone, Debug)]
pub struct Outcome {
    settings: Settings,
    /// The run; of a ramp, the one at the highest rate that keeps the loosest goal. Its ledger has everything that was sent.
    pub report: Report,
    /// What a ramp found.
    pub found: Option<Found>,
    driven: Driven,
    ceiling: Option<Ceiling>,
    /// What the check came to.
    pub checked: Checked,
}

impl Outcome {
    pub(super) fn new(
        settings: &Settings,
        report: Report,
        found: Option<Found>,
        driven: Driven,
        ceiling: Option<Ceiling>,
        checked: Checked,
    ) -> Outcome {
        Outcome { settings: settings.clone(), report, found, driven, ceiling, checked }
    }

    /// Whether nothing differs. A run that was not checked has not failed.
    pub fn passed(&self) -> bool {
        self.differences().is_empty()
    }

    /// What differs.
    pub fn differences(&self) -> &[Difference] {
        match &self.checked {
            Checked::Compared(verdict) => &verdict.differences,
            Checked::Not(_) => &[],
        }
    }

    /// How many counters were compared; `None` when nothing was checked.
    pub fn counters(&self) -> Option<usize> {
        match &self.checked {
            Checked::Compared(verdict) => Some(verdict.counters),
            Checked::Not(_) => None,
        }
    }

    /// The share of what the backend can do that this run asked of it.
    fn ceiling_used(&self) -> Option<f64> {
        let rate = match self.found {
            // Between the steps of a ramp nothing is sent, and those below the last say nothing about it.
            Some(_) => self.report.rate(),
            None => self.driven.backend_rate?,
        };
        Some(rate / self.ceiling?.rate.max(1e-9))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(used) = self.ceiling_used().filter(|used| *used > CEILING_SHARE) {
            warnings.push(format!(
                "{:.0} % of what the backend can do was used: it may be the backend that was measured",
                used * 100.0
            ));
        }
        if let Some(others) = self.driven.others.filter(|others| *others > bounds::QUIET_MACHINE) {
            warnings.push(format!(
                "other processes had {:.0} % of the machine: latencies may be their doing; run it again when it is quiet",
                others * 100.0
            ));
        }
        if matches!(self.checked, Checked::Not(_)) {
            warnings.push("nothing was checked: that every request was counted rightly is not known".into());
        }
        warnings
    }

    /// The table.
    pub fn table(&self) -> String {
        let scenario = &self.settings.scenario;
        let mut out = String::new();
        let mut line = |name: &str, text: String| {
            // Writing into a string cannot fail.
            let _ = writeln!(out, "{name:<11} {text}");
        };
        line("scenario", format!("{}: {}", scenario.name, scenario.about));
        let version = self.driven.version.as_ref().map_or(String::new(), |version| format!(" ({version})"));
        line("driven", format!("{}{version}, {}", self.driven.what, self.governed()));
        line("keys", format!("{}, drawn {}; seed {}", self.keys(), self.drawn(), self.settings.seed));
        if let Some(ceiling) = self.ceiling {
            let least = if ceiling.at_least { "at least " } else { "" };
            let used = self
                .ceiling_used()
                .map_or(String::new(), |used| format!("; this run used {:.0} %", used * 100.0));
            line("backend", format!("ceiling {least}{:.0}/s without its pauses{used}", ceiling.rate));
        }
        if let (Some(cpu), Some((before, after))) = (self.driven.cpu, self.driven.resident) {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let memory = format!("{:.1} MiB before, {:.1} MiB after", mib(before), mib(after));
            line("gateway", format!("{} of CPU, {memory}", show(cpu)));
        }
        let about = machine::about();
        let text = |name: &str| match &about[name] {
            Value::String(text) => text.clone(),
            Value::Null => "unknown".into(),
            other => other.to_string(),
        };
        let others = self
            .driven
            .others
            .map_or(String::new(), |others| format!("; others had {:.0} % of it", others * 100.0));
        line(
            "machine",
            format!("{}, {} processors, kernel {}{others}", text("cpu"), text("processors"), text("kernel")),
        );
        line("made", format!("{}, commit {}: {}", text("date"), text("commit"), text("command")));
        out += &self.report.table();
        out.push('\n');
        out += &self.ramp_table();
        out += &self.check_table();
        for warning in self.warnings() {
            let _ = writeln!(out, "\nnote: {warning}");
        }
        out
    }

    fn governed(&self) -> &'static str {
        match (&self.settings.target, self.settings.scenario.governance.enabled) {
            (Where::Existing(_), _) => "as it is",
            (Where::Own(_), true) => "governance on",
            (Where::Own(_), false) => "governance off",
        }
    }

    fn keys(&self) -> usize {
        self.report.options.credentials.len()
    }

    fn drawn(&self) -> String {
        let keys = &self.settings.scenario.keys;
        match keys.draw {
            DrawName::InTurn => "in turn".into(),
            DrawName::One => "always the first".into(),
            DrawName::Zipf => format!("by rank, exponent {}", keys.exponent.unwrap_or(1.0)),
            DrawName::Hot => format!("with {} for the first", keys.hot_share.unwrap_or(0.9)),
        }
    }

    fn ramp_table(&self) -> String {
        let mut out = String::new();
        let Some(found) = &self.found else { return out };
        let _ = writeln!(out, "{:<14}{:>12}  {:>10}", "p99 within", "requests/s", "measured");
        for goal in &found.goals {
            let rate = goal.rate.map_or("none".into(), |rate| format!("{rate:.0}"));
            let measured = goal.measured.map_or("-".into(), show);
            let unsettled = match (goal.settled, goal.rate) {
                (true, _) => "",
                (false, Some(rate))
                    if rate >= self.settings.scenario.ramp.as_ref().map_or(f64::MAX, |ramp| ramp.to) =>
                {
                    "  the highest that was tried"
                }
                (false, _) => "  not settled: the steps ran out, or the machine was never quiet",
            };
            let _ = writeln!(out, "{:<14}{rate:>12}  {measured:>10}{unsettled}", show(goal.p99));
        }
        let _ = writeln!(
            out,
            "({} measurements of {})\n",
            found.steps.len(),
            show(self.report.options.duration.unwrap_or_default())
        );
        out
    }

    fn check_table(&self) -> String {
        let seen = self.report.ledger.total();
        let mut out = String::new();
        let _ = writeln!(
            out,
            "seen        {} admitted, {} refused, {} tokens read and {} written, warm-up included",
            seen.admitted, seen.refused, seen.input_tokens, seen.output_tokens
        );
        for (limit, count) in &self.report.ledger.refused_by {
            let _ = writeln!(out, "            {count} refused by {}", limit.name());
        }
        if seen.uncertain > 0 {
            let why: Vec<String> =
                self.report.ledger.uncertain.iter().map(|(why, count)| format!("{count} {why}")).collect();
            let _ = writeln!(out, "uncertain   {}: {}", seen.uncertain, why.join(", "));
        }
        let verdict = match &self.checked {
            Checked::Not(why) => {
                let _ = writeln!(out, "check       none: {why}");
                return out;
            }
            Checked::Compared(verdict) => verdict,
        };
        let compared = verdict.counters;
        match verdict.differences.len() {
            0 => {
                let _ =
                    writeln!(out, "check       {compared} counters are what clients saw; nothing is held");
            }
            differ => {
                let _ = writeln!(out, "check       FAILED: {differ} figures of {compared} counters differ");
                out += &difference_table(&verdict.differences);
            }
        }
        for (why, count) in &verdict.bounded {
            let _ = writeln!(out, "            {count} of them were only compared from above: {why}");
        }
        for (why, count) in &verdict.left_out {
            let _ = writeln!(out, "            {count} more were left out: {why}");
        }
        out
    }

    /// All of it as JSON: what `run --json` prints, and more.
    pub fn json(&self) -> Value {
        let (scenario, seen) = (&self.settings.scenario, self.report.ledger.total());
        let by_limit: Map<String, Value> =
            self.report.ledger.refused_by.iter().map(|(limit, count)| (limit.name(), json!(count))).collect();
        let mut whole = self.report.json();
        whole["scenario"] = json!({
            "name": scenario.name, "about": scenario.about, "keys": self.keys(), "draw": self.drawn(),
            "seed": self.settings.seed,
            "governance": match &self.settings.target {
                Where::Own(_) => json!(scenario.governance.enabled),
                Where::Existing(_) => Value::Null,
            },
        });
        whole["driven"] = json!({
            "what": self.driven.what, "version": self.driven.version,
            "cpu_s": self.driven.cpu.map(|cpu| cpu.as_secs_f64()),
            "resident_before": self.driven.resident.map(|(before, _)| before),
            "resident_after": self.driven.resident.map(|(_, after)| after),
            "others": self.driven.others.map(|others| (others * 1000.0).round() / 1000.0),
        });
        whole["backend"] = json!({
            "ceiling_per_s": self.ceiling.map(|ceiling| ceiling.rate.round()),
            "ceiling_is_at_least": self.ceiling.map(|ceiling| ceiling.at_least),
            "requests_per_s": self.driven.backend_rate.map(f64::round),
            "ceiling_used": self.ceiling_used().map(|used| (used * 1000.0).round() / 1000.0),
        });
        whole["seen"] = json!({
            "admitted": seen.admitted, "refused": seen.refused, "refused_by": by_limit, "input_tokens": seen.input_tokens,
            "output_tokens": seen.output_tokens, "unreported": seen.unreported, "uncertain": seen.uncertain,
            "uncertain_by": self.report.ledger.uncertain,
        });
        whole["check"] = self.check_json();
        if let Some(found) = &self.found {
            whole["ramp"] = ramp_json(found);
        }
        if let Some(Value::Array(warnings)) = whole.get_mut("warnings") {
            warnings.extend(self.warnings().into_iter().map(Value::from));
        }
        whole
    }

    fn check_json(&self) -> Value {
        match &self.checked {
            Checked::Not(why) => json!({ "made": false, "why": why }),
            Checked::Compared(verdict) => {
                let difference = |one: &Difference| json!({ "key": one.key, "cap": one.cap, "counted": one.counted, "seen": one.seen });
                json!({
                    "made": true, "passed": verdict.differences.is_empty(), "counters": verdict.counters,
                    "bounded": verdict.bounded, "left_out": verdict.left_out,
                    "differences": verdict.differences.iter().map(difference).collect::<Vec<_>>(),
                })
            }
        }
    }
}

fn micros(time: Duration) -> f64 {
    (time.as_nanos() as f64 / 100.0).round() / 10.0
}

fn ramp_json(found: &Found) -> Value {
    let goal = |goal: &super::ramp::Goal| {
        json!({
            "p99_us": micros(goal.p99), "rate": goal.rate.map(f64::round), "measured_p99_us": goal.measured.map(micros),
            "settled": goal.settled,
        })
    };
    let step = |step: &super::ramp::Measured| json!({ "rate": step.rate, "p99_us": micros(step.p99), "clean": step.clean, "disturbed": step.disturbed });
    json!({
        "goals": found.goals.iter().map(goal).collect::<Vec<_>>(),
        "steps": found.steps.iter().map(step).collect::<Vec<_>>(),
    })
}

fn difference_table(differences: &[Difference]) -> String {
    let heads = ["key", "cap", "counted", "seen"].map(str::to_owned);
    let rows = differences.iter().take(bounds::DIFFERENCES_SHOWN);
    let rows = rows.map(|one| [one.key.clone(), one.cap.clone(), one.counted.clone(), one.seen.clone()]);
    let rows: Vec<[String; 4]> = std::iter::once(heads).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let mut out = String::new();
    for [key, cap, counted, seen] in &rows {
        let _ = writeln!(
            out,
            "    {key:<0$}  {cap:<1$}  {counted:>2$}  {seen:>3$}",
            width(0),
            width(1),
            width(2),
            width(3)
        );
    }
    if let Some(more) = differences.len().checked_sub(bounds::DIFFERENCES_SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(out, "    and {more} more");
    }
    out
}
