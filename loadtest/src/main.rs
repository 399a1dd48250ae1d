//! `loadtest run` sends load to a URL, `loadtest scenario` runs what a file says and checks the counts, `loadtest backend` is a model
//! server to send load to, `loadtest compare` shows two runs side by side.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
