//! `audit`: the trail, oldest first, and whether it is whole.

use std::path::PathBuf;
use std::process::ExitCode;

use control::config::{Config, Credentials};
use control::start::{StartError, config_path};
use control::store::{Store, Verified};
use serde_json::{Value, json};

use crate::arguments::{AuditArguments, AuditVerb};
use crate::output::print;
use crate::table::table;

/// Prints the audit trail, or verifies it.
pub fn run(config: Option<PathBuf>, arguments: &AuditArguments) -> Result<ExitCode, StartError> {
    let path = config_path(config)?;
    let loaded =
        Config::load(&path, Credentials::Unused).map_err(|rejected| StartError::config(&path, &rejected))?;
    if let Some(AuditVerb::Verify { noted, json }) = &arguments.verb {
        return verify(&loaded.config, noted.as_deref(), *json);
    }
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
                    "node": row.node, "before": row.before, "after": row.after, "result": row.result, "hash": row.hash,
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

fn verify(config: &Config, noted: Option<&str>, as_json: bool) -> Result<ExitCode, StartError> {
    let verified = match Store::open_existing(&config.data_dir)? {
        Some(store) => store.verify_audit(noted)?,
        None => return Err(StartError::new(format!("{}: there is no database", config.data_dir.display()))),
    };
    let document = match &verified {
        Verified::Whole { rows, head } => json!({ "whole": true, "rows": rows, "head": head }),
        Verified::Broken { seq, reason } => json!({ "whole": false, "seq": seq, "reason": reason }),
    };
    match &verified {
        _ if as_json => print(&format!("{document:#}\n"))?,
        Verified::Whole { rows, head } => {
            print(&format!("whole: {rows} rows, the newest has the hash {head}\n"))?
        }
        Verified::Broken { seq, reason } => print(&format!("broken at row {seq}: {reason}\n"))?,
    }
    Ok(ExitCode::from(u8::from(matches!(verified, Verified::Broken { .. }))))
}
