//! A client on a raw socket: exact bytes out, one framed response in, nothing forgiven.
//!
//! Rejected: an HTTP library, which cannot send what is malformed and hides how a message ended.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use serde_json::Value;

use super::wire::Wire;

/// No single read waits longer than this.
const PATIENCE: Duration = Duration::from_secs(10);

/// One response, as it was framed.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Header lines in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body with its framing taken off.
    pub body: Vec<u8>,
    /// Whether the body ended as its framing promised.
    pub complete: bool,
}

impl Response {
    /// The first value of header `name` (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in the body of {self:?}"))
    }

    /// `error.code` of a JSON error body, or an empty string.
    pub fn code(&self) -> String {
        self.error_text("code")
    }

    /// A string member of the JSON error body, or an empty string.
    pub fn error_text(&self, member: &str) -> String {
        let document: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        document["error"][member].as_str().unwrap_or_default().to_owned()
    }
}

/// One connection to the gateway.
pub struct Connection {
    stream: Wire,
    ahead: Vec<u8>,
}

impl Connection {
    /// Connects to `port` on this machine.
    pub fn open(port: u16) -> Connection {
        Connection::try_open(port).unwrap_or_else(|error| panic!("the gateway does not accept: {error}"))
    }

    /// The same for a gateway that may not be there.
    pub fn try_open(port: u16) -> std::io::Result<Connection> {
        Ok(Connection::over(Wire::plain(Connection::dial(port)?)))
    }

    /// The same over TLS, with the handshake made.
    pub fn try_open_tls(port: u16, trust: Arc<ClientConfig>) -> std::io::Result<Connection> {
        let wire = Wire::client(Connection::dial(port)?, trust, "127.0.0.1");
        wire.shake_hands()?;
        Ok(Connection::over(wire))
    }

    fn dial(port: u16) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket option");
        stream.set_nodelay(true).expect("a socket option");
        Ok(stream)
    }

    /// Over a connection that is there.
    pub fn over(stream: Wire) -> Connection {
        Connection { stream, ahead: Vec::new() }
    }

    /// What it is over.
    pub fn wire(&self) -> &Wire {
        &self.stream
    }

    /// From now on silence is called so after this time.
    pub fn wait_no_longer_than(&mut self, silence: Duration) {
        self.stream.socket().set_read_timeout(Some(silence)).expect("a socket option");
    }

    /// Sends exact bytes. A peer that closed already is not an error: its answer is what counts.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends `bytes` and reads the response to it.
    pub fn ask(&mut self, bytes: &[u8]) -> Response {
        self.send(bytes);
        self.read()
    }

    /// [`Self::ask`], or why no response came.
    pub fn try_ask(&mut self, bytes: &[u8]) -> Result<Response, String> {
        self.send(bytes);
        self.try_read()
    }

    /// Reads one response; interim ones (1xx) are skipped.
    ///
    /// # Panics
    /// When the connection ends or falls silent before a whole head came.
    pub fn read(&mut self) -> Response {
        self.try_read().unwrap_or_else(|why| panic!("no response: {why}"))
    }

    /// Reads one response, or says why none came.
    pub fn try_read(&mut self) -> Result<Response, String> {
        let mut response = self.read_head()?;
        while response.status < 200 {
            response = self.read_head()?;
        }
        let (body, complete) = self.read_body(&response);
        response.body = body;
        response.complete = complete;
        Ok(response)
    }

    /// Reads the head of a response and leaves its body unread.
    pub fn read_head(&mut self) -> Result<Response, String> {
        let end = loop {
            if let Some(at) = find(&self.ahead, b"\r\n\r\n") {
                break at;
            }
            if !self.fill()? {
                return Err(format!("closed after {:?}", String::from_utf8_lossy(&self.ahead)));
            }
        };
        let head = String::from_utf8_lossy(&self.ahead[..end]).into_owned();
        self.ahead.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let start = lines.next().unwrap_or_default();
        let status = start.split(' ').nth(1).and_then(|code| code.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(':'));
        Ok(Response {
            status: status.ok_or_else(|| format!("no status in {start:?}"))?,
            headers: headers
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect(),
            body: Vec::new(),
            complete: false,
        })
    }

    /// The body of a response whose head has been read, and whether it ended properly.
    pub fn read_body(&mut self, head: &Response) -> (Vec<u8>, bool) {
        if let Some(length) = head.header("content-length") {
            let length = length.parse().expect("a length in digits");
            return self.take(length);
        }
        if head.header("transfer-encoding").is_some() {
            return self.read_chunks();
        }
        if head.status == 204 || head.status == 304 {
            return (Vec::new(), true);
        }
        while let Ok(true) = self.fill() {}
        (std::mem::take(&mut self.ahead), true)
    }

    /// The rest of a chunked body of which a part of one chunk was taken by [`Self::read_until`].
    pub fn read_rest_of_chunks(&mut self) -> (Vec<u8>, bool) {
        match self.read_until(b"\r\n") {
            Ok(_) => self.read_chunks(),
            Err(_) => (Vec::new(), false),
        }
    }

    /// Reads until `needle` has come; what was read, up to its end, is taken away.
    pub fn read_until(&mut self, needle: &[u8]) -> Result<Vec<u8>, String> {
        loop {
            if let Some(at) = find(&self.ahead, needle) {
                return Ok(self.ahead.drain(..at + needle.len()).collect());
            }
            if !self.fill()? {
                return Err(format!("closed after {:?}", String::from_utf8_lossy(&self.ahead)));
            }
        }
    }

    /// Whether the peer ends the connection without sending more.
    pub fn is_closed_by_peer(&mut self) -> bool {
        self.ahead.is_empty()
            && match self.fill() {
                Ok(more) => !more,
                Err(why) => !why.starts_with("silent"),
            }
    }

    /// Ends the connection with a reset instead of a close.
    pub fn reset(self) {
        let socket = socket2::SockRef::from(self.stream.socket());
        socket.set_linger(Some(Duration::ZERO)).expect("a socket option");
    }

    /// Says that nothing more will be sent, and keeps reading.
    pub fn half_close(&self) {
        let _ = self.stream.socket().shutdown(std::net::Shutdown::Write);
    }

    fn read_chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let Ok(line) = self.read_until(b"\r\n") else { return (body, false) };
            let digits = String::from_utf8_lossy(&line);
            let digits = digits.trim_end().split(';').next().unwrap_or_default().to_owned();
            let Ok(size) = usize::from_str_radix(&digits, 16) else { return (body, false) };
            let (data, whole) = self.take(size + 2);
            body.extend_from_slice(&data[..data.len().min(size)]);
            if !whole || size == 0 {
                return (body, whole);
            }
        }
    }

    fn take(&mut self, length: usize) -> (Vec<u8>, bool) {
        while self.ahead.len() < length {
            if !matches!(self.fill(), Ok(true)) {
                return (std::mem::take(&mut self.ahead), false);
            }
        }
        (self.ahead.drain(..length).collect(), true)
    }

    /// Reads what has come; false at the peer's close, an error after silence or a reset.
    fn fill(&mut self) -> Result<bool, String> {
        let mut block = [0; 16 << 10];
        match self.stream.read(&mut block) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.ahead.extend_from_slice(&block[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(format!("silent for {PATIENCE:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A whole request: `body` gets its Content-Length.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: gateway\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !body.is_empty() || method == "POST" {
        let framing = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        bytes.extend_from_slice(framing.as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// Where `needle` begins in `hay`.
pub fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}
