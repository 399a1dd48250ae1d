//! The command line: one room a verb.

mod backend;
mod compare;
mod output;
mod run;
mod scenario;
mod values;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A load generator and a model backend that drive any URL.
#[derive(Parser)]
#[command(name = "loadtest", version, about)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Sends load to an http URL and reports what came back.
    Run(run::RunArgs),
    /// Runs a scenario against a gateway that it starts, or against what is there, and compares the counts with what clients saw.
    Scenario(Box<scenario::ScenarioArgs>),
    /// Serves as a model backend with the OpenAI API until it is ended.
    Backend(backend::BackendArgs),
    /// Shows two runs side by side, from what `run --json` or `scenario --json` printed: the second as a multiple of the first.
    Compare(compare::CompareArgs),
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Run(args) => run::run(args),
        Verb::Scenario(args) => scenario::run(&args),
        Verb::Backend(args) => backend::run(args),
        Verb::Compare(args) => compare::run(&args),
    };
    outcome.unwrap_or_else(|message| {
        eprintln!("loadtest: {message}");
        ExitCode::from(1)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        super::Cli::command().debug_assert();
    }
}
