//! Printing for people and pipes.

use std::io::{ErrorKind, Write};

use control::start::StartError;

/// Writes text to stdout. A reader that has gone (`| head`) is no error: it has what it wanted.
pub fn print(text: &str) -> Result<(), StartError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(StartError::new(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
