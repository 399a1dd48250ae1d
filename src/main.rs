//! The tokentriage command.
fn main() {}
