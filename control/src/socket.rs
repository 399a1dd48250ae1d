//! The control socket: how the command line tells a running server what has changed in the database.
//!
//! A Unix socket in `data_dir`, mode 0600: who may open it may read the database anyway, so it asks for no credential.
//! One line in, one line out: `keys KID KID ...` is answered by `ok` once the data plane has the change, or by
//! `error REASON`. The line carries no state: the server reads the database, which was committed before. Polling
//! the database instead was rejected: "at once" would be as late as the interval.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bounds;

/// The socket's name in `data_dir`.
pub const SOCKET_FILE: &str = "control.sock";

/// What came of telling the server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Announced {
    /// No server runs on this folder.
    NoServer,
    /// The server has the change.
    Published,
    /// A server is there and does not have it, or did not say so in time.
    Failed(String),
}

/// Tells the server of a `data_dir` that these keys have changed, and waits for its answer.
pub fn announce_keys(data_dir: &Path, kids: &[&str]) -> Announced {
    match ask(data_dir, &format!("keys {}\n", kids.join(" "))) {
        Ok(None) => Announced::NoServer,
        Ok(Some(answer)) if answer == "ok" => Announced::Published,
        Ok(Some(answer)) => Announced::Failed(answer.strip_prefix("error ").unwrap_or(&answer).to_owned()),
        Err(error) => Announced::Failed(error.to_string()),
    }
}

fn ask(data_dir: &Path, line: &str) -> std::io::Result<Option<String>> {
    let address = SocketAddress::of(data_dir)?;
    let mut stream = match UnixStream::connect(&address.path) {
        Ok(stream) => stream,
        // No socket, or one that a dead server has left.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let wait = Some(Duration::from_millis(bounds::CONTROL_WAIT_MS));
    stream.set_read_timeout(wait)?;
    stream.set_write_timeout(wait)?;
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).take(bounds::CONTROL_LINE_BYTES as u64).read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(std::io::Error::new(ErrorKind::UnexpectedEof, "it closed without an answer"));
    }
    Ok(Some(answer.trim_end().to_owned()))
}

/// A path that fits a socket address, and what keeps it valid.
///
/// Socket addresses end at 107 bytes. A deeper `data_dir` is reached through `/proc/self/fd`, whose paths are short.
#[derive(Debug)]
pub struct SocketAddress {
    /// The path to bind or connect to.
    pub path: PathBuf,
    _folder: Option<std::fs::File>,
}

impl SocketAddress {
    /// The address of the socket in `data_dir`.
    pub fn of(data_dir: &Path) -> std::io::Result<SocketAddress> {
        use std::os::fd::AsRawFd;
        let path = data_dir.join(SOCKET_FILE);
        if path.as_os_str().len() <= bounds::SOCKET_PATH_BYTES {
            return Ok(SocketAddress { path, _folder: None });
        }
        let folder = std::fs::File::open(data_dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET_FILE}", folder.as_raw_fd()));
        Ok(SocketAddress { path, _folder: Some(folder) })
    }
}
