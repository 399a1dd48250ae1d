//! Lines on two axes, as SVG.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 70.0;
const BELOW: f64 = 40.0;
const MARGIN: f64 = 14.0;

/// One line: its colour and dashes, and its points in the units of the axes.
pub struct Line {
    /// Such as `#1b6ca8`.
    pub colour: &'static str,
    /// Dashes as SVG has them; empty for none.
    pub dashes: &'static str,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// What is written under the plot at a place of the x axis.
pub type Tick = (f64, String);

/// Draws `lines` over `ticks`; the y axis is logarithmic, in microseconds.
pub fn plot(lines: &[Line], ticks: &[Tick]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points).filter(|point| point.1 > 0.0);
    if points().next().is_none() {
        return "<p>No answer was measured.</p>\n".to_owned();
    }
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN, f64::max);
    let right = most(|point| point.0).max(ticks.last().map_or(0.0, |tick| tick.0)).max(1e-9);
    let low = points().map(|point| point.1).fold(f64::MAX, f64::min).log10().floor();
    let high = most(|point| point.1).log10().ceil().max(low + 1.0);
    let x = |value: f64| LEFT + value / right * (WIDTH - LEFT - MARGIN);
    let y = |value: f64| MARGIN + (high - value.max(1e-9).log10()) / (high - low) * (HEIGHT - BELOW - MARGIN);
    let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n");
    // Writing into a string cannot fail.
    for power in low as i32..=high as i32 {
        let (value, at) = (10f64.powi(power), y(10f64.powi(power)));
        let text = match power {
            6.. => format!("{} s", value / 1e6),
            3..=5 => format!("{} ms", value / 1e3),
            _ => format!("{value} us"),
        };
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" class=\"grid\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            WIDTH - MARGIN,
            LEFT - 8.0,
            at + 4.0,
        );
    }
    for (value, text) in ticks {
        let at = x(*value);
        let bottom = HEIGHT - BELOW;
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{MARGIN}\" y2=\"{bottom}\" class=\"grid\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
            bottom + 18.0,
        );
    }
    for line in lines {
        let points: Vec<String> = line
            .points
            .iter()
            .filter(|point| point.1 > 0.0)
            .map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" stroke=\"{}\" stroke-dasharray=\"{}\"/>",
            points.join(" "),
            line.colour,
            line.dashes,
        );
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_stays_within_its_frame() {
        let line =
            Line { colour: "red", dashes: "", points: vec![(0.0, 7.0), (1.0, 0.0), (5.0, 2_000_000.0)] };
        let svg = plot(&[line], &[(0.0, "0 s".into()), (5.0, "5 s".into())]);
        let points = svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a line");
        assert_eq!(points.split(' ').count(), 2, "what is nothing is not drawn: {points}");
        for number in points.split([' ', ',']) {
            let value: f64 = number.parse().expect("a number");
            assert!((0.0..=WIDTH).contains(&value), "{points}");
        }
        for label in ["1 us", "1 ms", "1 s", "0 s", "5 s"] {
            assert!(svg.contains(&format!(">{label}<")), "{label}: {svg}");
        }
        assert!(plot(&[], &[]).contains("No answer"));
    }
}
