//! Two runs side by side, figure by figure: what they are, and the second as a multiple of the first.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{Figure, LATENCY, Outcome};

/// Figures that are compared in front of the latency, and behind it.
const BEFORE: [Figure; 3] =
    [("answers/s", &["answers_per_s"]), ("failures", &["all_failures"]), ("not sent", &["not_sent"])];
const BEHIND: [Figure; 5] = [
    ("first byte p99, us", &["first_byte_us", "p99"]),
    ("first event p99, us", &["first_event_us", "p99"]),
    ("event gap p99, us", &["event_gap_us", "p99"]),
    ("event delay p99, us", &["event_delay_us", "p99"]),
    ("generator busy", &["generator_busy"]),
];

struct Row {
    name: String,
    first: f64,
    second: f64,
}

impl Row {
    /// `None` where the first is zero.
    fn ratio(&self) -> Option<f64> {
        (self.first != 0.0).then(|| self.second / self.first)
    }
}

/// Those that both have.
fn rows(first: &Outcome, second: &Outcome) -> Vec<Row> {
    let figures = BEFORE.iter().chain(&LATENCY).chain(&BEHIND);
    let both = figures.filter_map(|(name, path)| {
        Some(Row { name: (*name).to_owned(), first: first.figure(path)?, second: second.figure(path)? })
    });
    both.chain(goals(first, second)).collect()
}

/// The rates that two ramps found, for each p99 that both looked for.
fn goals(first: &Outcome, second: &Outcome) -> Vec<Row> {
    let of = |outcome: &Outcome| -> Vec<(f64, f64)> {
        let goals = outcome.report["ramp"]["goals"].as_array().into_iter().flatten();
        // Where none was found, there is no rate to compare.
        goals.filter_map(|goal| Some((goal["p99_us"].as_f64()?, goal["rate"].as_f64()?))).collect()
    };
    let theirs = of(second);
    let row = |(goal, first): (f64, f64)| {
        let (_, second) = theirs.iter().find(|(other, _)| *other == goal)?;
        Some(Row { name: format!("rate at p99 {} ms", goal / 1000.0), first, second: *second })
    };
    of(first).into_iter().filter_map(row).collect()
}

/// As a table; figures that only one of the two has are left out.
pub fn ratios(first: &Outcome, second: &Outcome) -> String {
    let width = first.name.len().max(second.name.len()).max(12);
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _ = writeln!(out, "{:<20}  {:>width$}  {:>width$}  {:>7}", "", first.name, second.name, "ratio");
    for row in rows(first, second) {
        let ratio = row.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let _ = writeln!(out, "{:<20}  {:>width$}  {:>width$}  {ratio:>7}", row.name, row.first, row.second);
    }
    out
}

/// The same as JSON.
pub fn ratios_json(first: &Outcome, second: &Outcome) -> Value {
    let figures = rows(first, second).into_iter().map(|row| {
        let figure = json!({ "first": row.first, "second": row.second, "ratio": row.ratio() });
        (row.name, figure)
    });
    json!({ "first": first.name, "second": second.name, "figures": figures.collect::<Map<_, _>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, report: Value) -> Outcome {
        Outcome { name: name.into(), report }
    }

    #[test]
    fn what_both_have_is_compared() {
        let one = json!({ "answers_per_s": 1000.0, "all_failures": 0, "latency_us": { "p50": 100.0, "p99": 400.0 } });
        let two = json!({ "answers_per_s": 1500.0, "all_failures": 3, "latency_us": { "p50": 90.0 } });
        let (one, two) = (outcome("nginx", one), outcome("ours", two));
        let text = ratios(&one, &two);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines,
            [
                vec!["nginx", "ours", "ratio"],
                vec!["answers/s", "1000", "1500", "1.50"],
                vec!["failures", "0", "3", "-"],
                vec!["p50,", "us", "100", "90", "0.90"],
            ]
        );
        let json = ratios_json(&one, &two);
        assert_eq!(json["figures"]["p50, us"]["ratio"], 0.9);
        assert_eq!(json["figures"]["failures"]["ratio"], Value::Null);
        assert!(json["figures"].get("p99, us").is_none());
    }

    #[test]
    fn the_rates_of_two_ramps_are_compared_goal_by_goal() {
        let goal = |p99: f64, rate: Value| json!({ "p99_us": p99, "rate": rate });
        let ramp = |goals: Value| json!({ "answers_per_s": 1.0, "ramp": { "goals": goals } });
        let one = outcome(
            "one",
            ramp(json!([goal(500.0, json!(2000)), goal(1000.0, json!(4000)), goal(5000.0, json!(9000))])),
        );
        let two = outcome(
            "two",
            ramp(json!([goal(500.0, json!(3000)), goal(1000.0, Value::Null), goal(10_000.0, json!(9000))])),
        );
        let json = ratios_json(&one, &two);
        assert_eq!(json["figures"]["rate at p99 0.5 ms"]["ratio"], 1.5);
        assert_eq!(json["figures"].as_object().map(Map::len), Some(2), "{json}");
    }
}
