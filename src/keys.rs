//! `keys mint`, `keys list`, `keys revoke`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use control::arm::is_known_node;
use control::config::{Config, Credentials};
use control::keys::{self, Expiry, MintRequest, Revoked};
use control::socket::{Announced, announce_keys};
use control::start::{StartError, config_path};
use control::store::{KeyRow, Store};
use engine::NodeId;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::arguments::{KeysVerb, MintArguments};
use crate::output::print;
use crate::table::table;

/// Runs one of the verbs about keys.
pub fn run(config: Option<PathBuf>, verb: KeysVerb) -> Result<ExitCode, StartError> {
    let path = config_path(config)?;
    let loaded =
        Config::load(&path, Credentials::Unused).map_err(|rejected| StartError::config(&path, &rejected))?;
    let config = loaded.config;
    match verb {
        KeysVerb::Mint(arguments) => mint(&config, arguments),
        KeysVerb::List { json } => list(&config, json),
        KeysVerb::Revoke { kid, json } => revoke(&config, &kid, json),
    }
}

/// Who acts, for the audit trail.
pub fn actor() -> String {
    match std::env::var("USER") {
        Ok(user) if !user.is_empty() && user.len() <= 64 && !user.contains(char::is_control) => {
            format!("cli:{user}")
        }
        _ => "cli".to_owned(),
    }
}

fn mint(config: &Config, arguments: MintArguments) -> Result<ExitCode, StartError> {
    let mut store = Store::open(&config.data_dir)?;
    let owner = NodeId::new(&arguments.owner);
    let known = is_known_node(config, &store.runtime_plane()?, &owner);
    if let Some(warning) = keys::owner_warning(&owner, known) {
        eprintln!("warning: {warning}");
    }
    let request = MintRequest {
        owner: arguments.owner,
        name: arguments.name,
        models: arguments.models.map(|patterns| patterns.0),
        providers: arguments.providers.map(|patterns| patterns.0),
        endpoints: arguments.endpoints.map(|patterns| patterns.0),
        allow_passthrough: arguments.allow_passthrough,
        expires: arguments.expires.map(Expiry::After),
        admin: false,
    };
    let minted = keys::mint(&mut store, request, &actor(), Timestamp::now())?;
    tell_server(&config.data_dir, &minted.row.kid);
    if arguments.json {
        let mut shown = keys::describe(&minted.row);
        if let Value::Object(members) = &mut shown {
            members.insert("key".to_owned(), minted.credential.expose().into());
        }
        print(&format!("{shown:#}\n"))?;
    } else {
        let until = minted.row.expires_at.map(|at| format!("until  {at}\n")).unwrap_or_default();
        let (kid, owner, key) = (&minted.row.kid, &minted.row.owner, minted.credential.expose());
        print(&format!("kid    {kid}\nowner  {owner}\n{until}key    {key}\n"))?;
        eprintln!("The key is shown this once; only its hash is kept.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells a running server at once. The database has the change already, so trouble here is a warning.
fn tell_server(data_dir: &Path, kid: &str) {
    match announce_keys(data_dir, &[kid]) {
        Announced::NoServer | Announced::Published => {}
        Announced::Failed(reason) => {
            eprintln!("warning: stored, but the running server did not take it: {reason}; restart it");
        }
    }
}

fn list(config: &Config, as_json: bool) -> Result<ExitCode, StartError> {
    let rows = match Store::open_existing(&config.data_dir)? {
        Some(store) => store.keys()?,
        None => Vec::new(),
    };
    let now = Timestamp::now();
    if as_json {
        let shown: Vec<_> = rows.iter().map(|row| keys::listed(row, now)).collect();
        print(&format!("{:#}\n", json!({ "keys": shown })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let patterns = |list: &Option<Vec<String>>| list.as_ref().map_or("any".to_owned(), |list| list.join(","));
    let line = |row: &KeyRow| {
        vec![
            row.kid.clone(),
            keys::state(row, now).to_owned(),
            row.owner.clone(),
            row.name.clone().unwrap_or_default(),
            patterns(&row.models),
            row.created_at.to_string(),
            row.expires_at.map(|at| at.to_string()).unwrap_or_default(),
            row.last_used_at.map_or_else(|| "never".to_owned(), |at| at.to_string()),
        ]
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    print(&table(&["KID", "STATE", "OWNER", "NAME", "MODELS", "CREATED", "EXPIRES", "LAST USED"], &lines))?;
    Ok(ExitCode::SUCCESS)
}

fn revoke(config: &Config, kid: &str, as_json: bool) -> Result<ExitCode, StartError> {
    let mut store = Store::open(&config.data_dir)?;
    let outcome = keys::revoke(&mut store, kid, &actor(), Timestamp::now())?;
    let said = match outcome {
        Revoked::Unknown => return Err(StartError::new(format!("there is no key {kid:?}"))),
        Revoked::Now => "revoked",
        Revoked::Before => "was revoked before",
    };
    tell_server(&config.data_dir, kid);
    if as_json {
        let row = store.key(kid)?;
        let shown = row.map_or(Value::Null, |row| keys::describe(&row));
        print(&format!("{shown:#}\n"))?;
    } else {
        print(&format!("{kid} {said}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
