//! `audit`: the trail, oldest first.

use std::path::PathBuf;
use std::process::ExitCode;

use control::config::{Config, Credentials};
use control::start::{StartError, config_path};
use control::store::Store;
use serde_json::{Value, json};

use crate::arguments::AuditArguments;
use crate::output::print;
use crate::table::table;

/// Prints the audit trail.
pub fn run(config: Option<PathBuf>, arguments: &AuditArguments) -> Result<ExitCode, StartError> {
    let path = config_path(config)?;
    let loaded =
        Config::load(&path, Credentials::Unused).map_err(|rejected| StartError::config(&path, &rejected))?;
    let rows = match Store::open_existing(&loaded.config.data_dir)? {
        Some(store) => store.audit_rows()?,
        None => Vec::new(),
    };
    if arguments.json {
        let shown: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "seq": row.seq, "at": row.at, "actor": row.actor, "action": row.action, "target": row.target,
                    "before": row.before, "after": row.after, "result": row.result,
                })
            })
            .collect();
        print(&format!("{:#}\n", json!({ "audit": shown })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |value: &Option<Value>| value.as_ref().map(Value::to_string).unwrap_or_default();
    let lines: Vec<_> = rows
        .iter()
        .map(|row| {
            vec![
                row.seq.to_string(),
                row.at.clone(),
                row.actor.clone(),
                row.action.clone(),
                row.target.clone(),
                row.result.clone(),
                text(&row.after),
            ]
        })
        .collect();
    print(&table(&["SEQ", "AT", "ACTOR", "ACTION", "TARGET", "RESULT", "AFTER"], &lines))?;
    Ok(ExitCode::SUCCESS)
}
