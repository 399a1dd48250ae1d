//! `govern preview`.

use std::path::PathBuf;
use std::process::ExitCode;

use control::preview::{Preview, Subject, preview as look};
use control::start::{StartError, config_path};

use crate::arguments::PreviewArguments;
use crate::output::print;
use crate::table::table;

/// Prints what the limits compile to.
pub fn preview(config: Option<PathBuf>, arguments: &PreviewArguments) -> Result<ExitCode, StartError> {
    let path = config_path(config)?;
    let subject = match (&arguments.node, &arguments.key) {
        (Some(node), _) => Subject::Node(node.clone()),
        (None, Some(kid)) => Subject::Key(kid.clone()),
        (None, None) => Subject::Everything,
    };
    let seen = look(&path, &subject, arguments.model.as_deref(), arguments.endpoint.as_deref())?;
    if arguments.json {
        print(&format!("{:#}\n", seen.json()))?;
        return Ok(ExitCode::SUCCESS);
    }
    for warning in &seen.warnings {
        eprintln!("{warning}");
    }
    print(&text(&seen))?;
    Ok(ExitCode::SUCCESS)
}

fn text(seen: &Preview) -> String {
    let rows: Vec<_> = seen
        .instances
        .iter()
        .map(|row| {
            let limit = &row.instance.limit;
            let amount = format!("{} {}", row.amount(), limit.kind.unit());
            vec![
                row.gate().to_string(),
                limit.id.to_string(),
                row.instance.node.to_string(),
                limit.kind.name().to_owned(),
                amount,
                limit.window.period_text().into_owned(),
                if limit.suspended { "suspended" } else { limit.posture.word() }.to_owned(),
                row.matches(),
            ]
        })
        .collect();
    let mut out = table(&["GATE", "LIMIT", "NODE", "TYPE", "AMOUNT", "PERIOD", "POSTURE", "MATCH"], &rows);
    if !seen.dropped.is_empty() {
        let rows: Vec<_> = seen
            .dropped
            .iter()
            .map(|dropped| vec![dropped.limit_id.clone(), dropped.reason.clone()])
            .collect();
        out.push('\n');
        out.push_str(&table(&["SELECTS NOTHING", "WHY"], &rows));
    }
    out
}
