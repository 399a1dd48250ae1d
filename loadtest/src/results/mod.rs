//! What runs came to, read back from their JSON: side by side, and as one page with plots.

mod page;
mod plot;
mod ratios;

use std::path::Path;

use serde_json::Value;

pub use page::page;
pub use ratios::{ratios, ratios_json};

/// A figure: what it is called, and where it is in a report.
type Figure = (&'static str, &'static [&'static str]);

/// What every view shows of the latency.
const LATENCY: [Figure; 5] = [
    ("p50, us", &["latency_us", "p50"]),
    ("p90, us", &["latency_us", "p90"]),
    ("p99, us", &["latency_us", "p99"]),
    ("p99.9, us", &["latency_us", "p99.9"]),
    ("max, us", &["latency_us", "max"]),
];

/// One run, as `run --json` or `scenario --json` printed it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it is called in tables and plots.
    pub name: String,
    /// The report.
    pub report: Value,
}

impl Outcome {
    /// Reads one from a file; its name is the file's, without its ending.
    ///
    /// # Errors
    /// In words: which file, and what is wrong with it.
    pub fn read(path: &Path) -> Result<Outcome, String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        let report: Value =
            serde_json::from_str(&text).map_err(|error| format!("{shown}: it is no JSON: {error}"))?;
        if report["latency_curve_us"].as_array().is_none() {
            return Err(format!(
                "{shown}: it is no report of `loadtest run --json` or `loadtest scenario --json`"
            ));
        }
        let name =
            path.file_stem().map_or_else(|| shown.to_string(), |stem| stem.to_string_lossy().into_owned());
        Ok(Outcome { name, report })
    }

    /// A figure somewhere in the report, by its path.
    fn figure(&self, path: &[&str]) -> Option<f64> {
        path.iter().try_fold(&self.report, |value, key| value.get(key)).and_then(Value::as_f64)
    }
}
