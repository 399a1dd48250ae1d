//! `compare`: two runs side by side.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use loadtest::results::{self, Outcome};

use super::output;

#[derive(Args)]
pub struct CompareArgs {
    /// The report to compare with.
    first: PathBuf,
    /// The report to compare.
    second: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Also write both as one page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Compares them.
pub fn run(args: &CompareArgs) -> Result<ExitCode, String> {
    let (first, second) = (Outcome::read(&args.first)?, Outcome::read(&args.second)?);
    match args.json {
        true => output::print(&format!("{}\n", results::ratios_json(&first, &second)))?,
        false => output::print(&results::ratios(&first, &second))?,
    }
    if let Some(path) = &args.html {
        output::write_page(path, &[first, second])?;
    }
    Ok(ExitCode::SUCCESS)
}
