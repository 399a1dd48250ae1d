//! `validate`: errors on stdout, warnings on stderr.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use control::config::{Config, Credentials, Finding};
use control::start::{StartError, config_path, located};
use serde_json::{Value, json};

use crate::arguments::ValidateArguments;
use crate::output::print;

/// Checks a config and prints everything there is to say about it.
pub fn run(config: Option<PathBuf>, arguments: &ValidateArguments) -> Result<ExitCode, StartError> {
    let path = config_path(config)?;
    let (mut errors, mut warnings, summary) = match Config::load(&path, Credentials::Needed) {
        Ok(loaded) => (Vec::new(), loaded.warnings, summary(&loaded.config)),
        Err(rejected) => (rejected.errors, rejected.warnings, String::new()),
    };
    if arguments.strict {
        errors.append(&mut warnings);
        errors.sort_by_key(|finding| finding.line);
    }
    if arguments.json {
        let document = json!({ "errors": as_json(&errors), "warnings": as_json(&warnings) });
        print(&format!("{document:#}\n"))?;
    } else {
        for warning in &warnings {
            eprintln!("{}", located(&path, warning));
        }
        print(&text(&path, &errors, &summary))?;
    }
    Ok(ExitCode::from(u8::from(!errors.is_empty())))
}

fn text(path: &Path, errors: &[Finding], summary: &str) -> String {
    if errors.is_empty() {
        return format!("{}: ok: {summary}\n", path.display());
    }
    errors.iter().map(|error| located(path, error) + "\n").collect()
}

fn summary(config: &Config) -> String {
    let governance = &config.governance;
    format!(
        "{} providers, {} routes, {} prices, {} nodes, {} limits, governance {}",
        config.providers.len(),
        config.routes.iter().count(),
        config.prices.len(),
        governance.nodes.len(),
        governance.limits.len(),
        if governance.enabled { "on" } else { "off" },
    )
}

fn as_json(findings: &[Finding]) -> Vec<Value> {
    findings
        .iter()
        .map(|finding| json!({ "path": finding.path, "line": finding.line, "message": finding.message }))
        .collect()
}
