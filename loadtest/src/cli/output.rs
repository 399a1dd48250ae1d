//! What the verbs print, and the line that says how far a run is.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use loadtest::results::{self, Outcome};
use loadtest::run::Progress;

/// Prints a result.
pub fn print(text: &str) -> Result<(), String> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|error| format!("the result cannot be written: {error}"))
}

/// Writes results as a page.
pub fn write_page(path: &Path, outcomes: &[Outcome]) -> Result<(), String> {
    std::fs::write(path, results::page(outcomes)).map_err(|error| format!("{}: {error}", path.display()))
}

/// A line on the terminal that is written over again and again; nothing where there is no terminal.
pub struct Line {
    show: bool,
    last: Progress,
}

impl Line {
    pub fn new() -> Line {
        Line { show: std::io::stderr().is_terminal(), last: Progress::default() }
    }

    /// Says what is being done.
    pub fn say(&self, text: &str) {
        if self.show {
            eprint!("\r\x1b[K{text}");
        }
    }

    /// Says how far the load is, about four times a second.
    pub fn load(&mut self, now: Progress, what: &str) {
        if now.elapsed < self.last.elapsed {
            self.last = Progress::default();
        }
        let since = now.elapsed.saturating_sub(self.last.elapsed);
        if since < Duration::from_millis(250) {
            return;
        }
        let rate = (now.answers - self.last.answers) as f64 / since.as_secs_f64();
        self.say(&format!(
            "{what}{:6.1} s  {rate:9.0}/s  {} answers  {} of status 400 and up  {} failures",
            now.elapsed.as_secs_f64(),
            now.answers,
            now.error_statuses,
            now.failures
        ));
        self.last = now;
    }

    /// Takes the line away.
    pub fn clear(&self) {
        self.say("");
    }
}
