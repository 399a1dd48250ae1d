//! What the process says about itself, on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts the log. `TT_LOG` chooses what is said (`info` when it is not set, `net=debug` and the like; `info,access=debug`
/// adds one event a request). `TT_LOG_FORMAT=json` makes each event a JSON object on a line of its own. No credential is
/// ever part of it.
pub fn start() {
    start_at("info");
}

/// The same, saying nothing but warnings unless `TT_LOG` asks for more: for verbs that print for people.
pub fn start_quietly() {
    start_at("warn");
}

fn start_at(level: &str) {
    let asked = std::env::var("TT_LOG").ok().filter(|asked| !asked.is_empty());
    let parsed = asked.as_deref().map(EnvFilter::try_new);
    let wrong = parsed.as_ref().and_then(|parsed| parsed.as_ref().err().map(ToString::to_string));
    let filter = parsed.and_then(Result::ok).unwrap_or_else(|| EnvFilter::new(level));
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let format = std::env::var("TT_LOG_FORMAT");
    match format.as_deref() {
        Ok("json") => log.json().flatten_event(true).with_span_list(false).init(),
        Ok("text" | "") | Err(_) => log.with_ansi(colours).init(),
        Ok(other) => {
            log.with_ansi(colours).init();
            tracing::warn!("TT_LOG_FORMAT is {other:?}, which is neither `text` nor `json`: it is text");
        }
    }
    if let Some(reason) = wrong {
        tracing::warn!("TT_LOG is {asked:?}, which is no filter ({reason}): it is {level}");
    }
}
