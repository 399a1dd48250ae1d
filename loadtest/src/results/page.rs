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
    let rates = rate_lines(outcomes);
    if !rates.is_empty() {
        out += "<h2>p99 by rate</h2>\n<p>Every measurement of a ramp that was answered in full; of several at one rate, the least.</p>\n";
        out += &plot(&rates, &rate_ticks(&rates));
        out += &goals(outcomes);
    }
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

/// p99 over requests a second, of each ramp.
fn rate_lines(outcomes: &[Outcome]) -> Vec<Line> {
    let lines = outcomes.iter().zip(COLOURS.iter().cycle()).filter_map(|(outcome, colour)| {
        let steps = outcome.report["ramp"]["steps"].as_array()?;
        let clean = steps.iter().filter(|step| step["clean"] == true);
        let mut points: Vec<(f64, f64)> =
            clean.filter_map(|step| Some((step["rate"].as_f64()?, step["p99_us"].as_f64()?))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
        points.dedup_by(|later, first| later.0 == first.0);
        Some(Line { colour, dashes: "", points })
    });
    lines.collect()
}

fn rate_ticks(lines: &[Line]) -> Vec<Tick> {
    let highest = lines.iter().flat_map(|line| &line.points).map(|point| point.0).fold(1.0, f64::max);
    // The largest of 1, 2 and 5 times a power of ten that leaves five ticks or more.
    let power = 10f64.powf((highest / 5.0).log10().floor());
    let step =
        [5.0, 2.0, 1.0].into_iter().map(|of| of * power).find(|step| highest / step >= 5.0).unwrap_or(power);
    (0..=(highest / step) as usize)
        .map(|count| (count as f64 * step, format!("{}/s", count as f64 * step)))
        .collect()
}

/// What each ramp found.
fn goals(outcomes: &[Outcome]) -> String {
    let mut out =
        "<table>\n<tr><th></th><th>p99 within, us</th><th>requests/s</th><th>measured, us</th></tr>\n"
            .to_owned();
    for outcome in outcomes {
        for goal in outcome.report["ramp"]["goals"].as_array().into_iter().flatten() {
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}{}</td><td>{}</td></tr>",
                escaped(&outcome.name),
                text_of(&goal["p99_us"]),
                text_of(&goal["rate"]),
                if goal["settled"] == true { "" } else { " (not settled)" },
                text_of(&goal["measured_p99_us"]),
            );
        }
    }
    out + "</table>\n"
}

/// Of a scenario: what was driven, what its backend can do, and whether the counts are right.
fn scenario(report: &Value) -> String {
    if report["scenario"].is_null() {
        return String::new();
    }
    let (scenario, driven, backend) = (&report["scenario"], &report["driven"], &report["backend"]);
    let governance = match scenario["governance"].as_bool() {
        Some(true) => ", governance on",
        Some(false) => ", governance off",
        None => "",
    };
    let mut out = format!(
        "<p>Scenario {}: {}<br>\n{} ({}){governance}; {} keys, drawn {}, seed {}.",
        text_of(&scenario["name"]),
        text_of(&scenario["about"]),
        text_of(&driven["what"]),
        text_of(&driven["version"]),
        text_of(&scenario["keys"]),
        text_of(&scenario["draw"]),
        text_of(&scenario["seed"]),
    );
    if let (Some(ceiling), Some(used)) = (backend["ceiling_per_s"].as_f64(), backend["ceiling_used"].as_f64())
    {
        let _ = write!(out, " The backend alone: {ceiling}/s, of which {:.0} % were used.", used * 100.0);
    }
    out += "</p>\n";
    let check = &report["check"];
    let _ = match (check["made"].as_bool(), check["passed"].as_bool()) {
        (Some(true), Some(true)) => {
            writeln!(out, "<p>{} counters are what clients saw.</p>", text_of(&check["counters"]))
        }
        (Some(true), _) => writeln!(out, "<p class=\"note\">The counters are not what clients saw.</p>"),
        _ => writeln!(out, "<p class=\"note\">Nothing was checked: {}</p>", text_of(&check["why"])),
    };
    for one in check["differences"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "<p class=\"note\">{}: {}: {} counted, {} seen</p>",
            text_of(&one["key"]),
            text_of(&one["cap"]),
            text_of(&one["counted"]),
            text_of(&one["seen"]),
        );
    }
    out
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
    out += &scenario(report);
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
        check_fetches_nothing(&page);
    }

    fn check_fetches_nothing(page: &str) {
        for fetch in ["src=", "href=", "@import", "<script"] {
            assert!(!page.contains(fetch), "{fetch}");
        }
    }

    #[test]
    fn a_scenario_is_shown_with_its_check_and_a_ramp_with_its_rates() {
        let step = |rate: f64, p99: f64, clean: bool| json!({ "rate": rate, "p99_us": p99, "clean": clean });
        let report = |passed: bool| {
            json!({
                "latency_curve_us": [[0.0, 80.0]], "scenario": { "name": "ramp", "about": "a <b>", "governance": false },
                "check": { "made": true, "passed": passed, "counters": 7,
                           "differences": if passed { json!([]) } else { json!([{ "key": "vk_1", "cap": "rpm", "counted": "2", "seen": "1" }]) } },
                "ramp": {
                    "goals": [{ "p99_us": 500.0, "rate": 2000, "measured_p99_us": 450.0, "settled": false }],
                    "steps": [step(2000.0, 450.0, true), step(1000.0, 300.0, true), step(2000.0, 440.0, true), step(4000.0, 1.0, false)],
                },
            })
        };
        let of = |passed: bool| page(&[Outcome { name: "x".into(), report: report(passed) }]);
        let (right, wrong) = (of(true), of(false));
        for part in [
            "p99 by rate",
            ">2000/s<",
            "2000 (not settled)",
            "a &lt;b&gt;",
            "governance off",
            "7 counters are what",
        ] {
            assert!(right.contains(part), "{part} in {right}");
        }
        assert!(wrong.contains("vk_1: rpm: 2 counted, 1 seen"), "{wrong}");
        let lines = rate_lines(&[Outcome { name: "x".into(), report: report(true) }]);
        assert_eq!(lines[0].points, [(1000.0, 300.0), (2000.0, 440.0)]);
        check_fetches_nothing(&right);
        let ticks = |highest: f64| {
            let line = Line { colour: "", dashes: "", points: vec![(highest, 1.0)] };
            rate_ticks(&[line]).into_iter().map(|tick| tick.1).collect::<Vec<_>>()
        };
        assert_eq!(ticks(5.0), ["0/s", "1/s", "2/s", "3/s", "4/s", "5/s"]);
        assert_eq!(ticks(26_000.0), ["0/s", "5000/s", "10000/s", "15000/s", "20000/s", "25000/s"]);
    }
}
