//! What the process says about itself, on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts the log. `TT_LOG` chooses what is said (`info` when it is not set, `net=debug` and the like); no credential is
/// ever part of it.
pub fn start() {
    start_at("info");
}

/// The same, saying nothing but warnings unless `TT_LOG` asks for more: for verbs that print for people.
pub fn start_quietly() {
    start_at("warn");
}

fn start_at(level: &str) {
    let filter = EnvFilter::try_from_env("TT_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
}
