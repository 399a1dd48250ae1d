//! One page that needs nothing but itself: percentiles, seconds, figures, and what they depend on, of one run or several.

use std::fmt::Write;

use serde_json::Value;

use super::plot::{Line, Tick, plot};
use super::{Figure, LATENCY, Outcome};

/// A colour a run, in turn.
const COLOURS: [&str; 6] = ["#1b6ca8", "#c8553d", "#3a7d44", "#7b4b94", "#b8860b", "#444444"];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222}\
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #ddd}\
td:first-child,th:first-child{text-align:left}svg{width:100%;background:#fff}svg text{font-size:12px;fill:#555}\
.grid{stroke:#e4e4e4}polyline{fill:none;stroke-width:1.6}i{display:inline-block;width:1.4rem;height:.25rem;margin:0 .4rem .2rem 1rem}\
code{overflow-wrap:anywhere}.note{color:#a33}";

/// Text that may hold anything, as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => escaped(text),
        other => escaped(&other.to_string()),
    }
}

/// The page.
pub fn page(outcomes: &[Outcome]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Load test</title>\n<style>{STYLE}</style>\n\
         <h1>Load test</h1>\n"
    );
    out += "<p>";
    for (outcome, colour) in outcomes.iter().zip(COLOURS.iter().cycle()) {
        // Writing into a string cannot fail.
        let _ = write!(out, "<i style=\"background:{colour}\"></i>{}", escaped(&outcome.name));
    }
    out += "</p>\n";
    out += &figures(outcomes);
    out += "<h2>Latency by percentile</h2>\n";
    out += &plot(&percentile_lines(outcomes), &percentile_ticks());
    out += "<h2>Latency by second</h2>\n<p>Median as a line, p99 with long dashes, the longest with short ones; each request \
            in the second in which it was due.</p>\n";
    out += &plot(&second_lines(outcomes), &second_ticks(outcomes));
    out += "<h2>How it was measured</h2>\n";
    for outcome in outcomes {
        out += &about(outcome);
    }
    out
}

fn figures(outcomes: &[Outcome]) -> String {
    let counts: [Figure; 3] =
        [("answers/s", &["answers_per_s"]), ("answers", &["answers"]), ("failures", &["all_failures"])];
    let columns = || counts.iter().chain(&LATENCY);
    let heads: String = columns().map(|(name, _)| format!("<th>{name}</th>")).collect();
    let mut out = format!("<table>\n<tr><th></th>{heads}</tr>\n");
    for outcome in outcomes {
        let cells: String = columns()
            .map(|(_, path)| {
                outcome.figure(path).map_or("<td>-</td>".to_owned(), |value| format!("<td>{value}</td>"))
            })
            .collect();
        let _ = writeln!(out, "<tr><td>{}</td>{cells}</tr>", escaped(&outcome.name));
    }
    out + "</table>\n"
}

/// How far to the right a percentile stands: each nine takes as much room as the one before.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).max(1e-9).log10()
}

fn percentile_ticks() -> Vec<Tick> {
    [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999]
        .map(|percent| (nines(percent), format!("{percent}")))
        .to_vec()
}

fn percentile_lines(outcomes: &[Outcome]) -> Vec<Line> {
    let line = |(outcome, colour): (&Outcome, &&'static str)| {
        let curve = outcome.report["latency_curve_us"].as_array().into_iter().flatten();
        let points = curve.filter_map(|point| Some((point[0].as_f64()?, point[1].as_f64()?)));
        // The longest has no place on an axis of nines.
        let points = points.filter(|point| point.0 < 100.0).map(|(percent, value)| (nines(percent), value));
        Line { colour, dashes: "", points: points.collect() }
    };
    outcomes.iter().zip(COLOURS.iter().cycle()).map(line).collect()
}

fn seconds(outcome: &Outcome) -> &[Value] {
    outcome.report["seconds"].as_array().map_or(&[], Vec::as_slice)
}

fn second_ticks(outcomes: &[Outcome]) -> Vec<Tick> {
    let longest = outcomes.iter().map(|outcome| seconds(outcome).len()).max().unwrap_or(0).max(1);
    let step = longest.div_ceil(10);
    (0..=longest).step_by(step).map(|second| (second as f64, format!("{second} s"))).collect()
}

fn second_lines(outcomes: &[Outcome]) -> Vec<Line> {
    let kinds = [("p50", ""), ("p99", "7 3"), ("max", "2 3")];
    let lines = outcomes.iter().zip(COLOURS.iter().cycle()).flat_map(|(outcome, colour)| {
        kinds.map(|(name, dashes)| {
            let points = seconds(outcome).iter().enumerate();
            let points = points.filter_map(|(second, row)| Some((second as f64 + 0.5, row[name].as_f64()?)));
            Line { colour, dashes, points: points.collect() }
        })
    });
    lines.collect()
}

fn about(outcome: &Outcome) -> String {
    let (report, machine) = (&outcome.report, &outcome.report["machine"]);
    let load = match report["load"]["rate"].as_f64() {
        Some(rate) => format!("open loop, {rate} requests/s, latency from the time each was due"),
        None => "closed loop".to_owned(),
    };
    let mut out = format!(
        "<h3>{}</h3>\n<p>{} {}; {load}; {} connections, {} threads; {} s after {} s of warm-up; the generator was {} busy.<br>\n\
         {}, {} processors, kernel {}, commit {}, {}.<br>\n<code>{}</code></p>\n",
        escaped(&outcome.name),
        text_of(&report["method"]),
        text_of(&report["url"]),
        text_of(&report["connections"]),
        text_of(&report["threads"]),
        text_of(&report["measured_s"]),
        text_of(&report["warm_up_s"]),
        text_of(&report["generator_busy"]),
        text_of(&machine["cpu"]),
        text_of(&machine["processors"]),
        text_of(&machine["kernel"]),
        text_of(&machine["commit"]),
        text_of(&machine["date"]),
        text_of(&machine["command"]),
    );
    for warning in report["warnings"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", text_of(warning));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_has_every_run_and_fetches_nothing() {
        let run = |name: &str, factor: f64| Outcome {
            name: name.into(),
            report: json!({
                "url": "http://127.0.0.1:1/?a<b", "method": "GET", "load": { "rate": 50.0 }, "answers_per_s": 50.0,
                "latency_us": { "p50": 100.0 * factor }, "latency_curve_us": [[0.0, 80.0], [90.0, 300.0 * factor], [100.0, 9000.0]],
                "seconds": [{ "p50": 100.0, "p99": 200.0, "max": 9000.0 }, { "p50": 100.0, "p99": 220.0, "max": 400.0 }],
                "machine": { "kernel": "6.18" }, "warnings": ["mind the <gap>"],
            }),
        };
        let page = page(&[run("one", 1.0), run("a <b>", 2.0)]);
        assert_eq!(page.matches("<polyline").count(), 2 + 2 * 3);
        assert_eq!(page.matches("<svg").count(), 2);
        for part in [
            "a &lt;b&gt;",
            "a&lt;b",
            "mind the &lt;gap&gt;",
            "kernel 6.18",
            "open loop, 50 requests/s",
            ">200<",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for fetch in ["src=", "href=", "@import", "<script"] {
            assert!(!page.contains(fetch), "{fetch}");
        }
    }
}
