//! The tokentriage command: parses its arguments and wires the crates. It holds no logic of its own.
//!
//! Exit codes: 0 done, 1 the input is wrong, 2 the command line is wrong.

#![forbid(unsafe_code)]

mod arguments;
mod audit;
mod demo;
mod govern;
mod keys;
mod log;
mod output;
mod serve;
mod table;
mod usage;
mod validate;
mod wire;

use std::process::ExitCode;

use arguments::{Arguments, GovernVerb, Verb};
use clap::Parser;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let Arguments { config, verb } = Arguments::parse();
    let outcome = match verb {
        Verb::Demo(arguments) => demo::run(arguments),
        Verb::Serve(arguments) => serve::run(config, arguments),
        Verb::Validate(arguments) => validate::run(config, &arguments),
        Verb::Govern { verb: GovernVerb::Preview(arguments) } => govern::preview(config, &arguments),
        Verb::Keys { verb } => keys::run(config, verb),
        Verb::Usage(arguments) => usage::run(config, arguments),
        Verb::Audit(arguments) => audit::run(config, &arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
    }
}
