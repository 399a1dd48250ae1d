//! A client for the few requests beside the load: it waits for each answer, on one connection that it keeps.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::bounds;
use crate::http::response::{Progress, Reader};

/// A connection to one server, opened when it is needed.
pub struct Client {
    address: SocketAddr,
    host: String,
    stream: Option<TcpStream>,
}

/// An answer.
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    /// Its body as JSON.
    pub fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(&self.body).map_err(|error| format!("the answer is no JSON: {error}"))
    }

    /// The start of its body, to be shown.
    pub fn excerpt(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(300).collect()
    }
}

impl Client {
    pub fn new(address: SocketAddr, host: &str) -> Client {
        Client { address, host: host.to_owned(), stream: None }
    }

    /// Sends one request and reads its answer. A kept connection that turns out to be closed is opened again once, for a GET.
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &str,
    ) -> Result<Answer, String> {
        let kept = self.stream.is_some();
        match self.try_ask(method, path, headers, body) {
            Err(_) if kept && method == "GET" => self.try_ask(method, path, headers, body),
            answered => answered,
        }
        .map_err(|error| format!("{method} http://{}{path}: {error}", self.host))
    }

    fn try_ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &str,
    ) -> Result<Answer, String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let patience = bounds::MANAGEMENT_PATIENCE;
                let stream =
                    TcpStream::connect_timeout(&self.address, patience).map_err(|error| error.to_string())?;
                let ready = stream.set_read_timeout(Some(patience)).and_then(|()| stream.set_nodelay(true));
                ready.map_err(|error| error.to_string())?;
                stream
            }
        };
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if method != "GET" {
            request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        request += "\r\n";
        request += body;
        stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let (mut reader, mut buffer, mut piece) = (Reader::new(method == "HEAD"), Vec::new(), [0; 16 * 1024]);
        let mut answer = Vec::new();
        loop {
            let count = stream.read(&mut piece).map_err(|error| error.to_string())?;
            if count == 0 {
                if reader.may_end() {
                    break;
                }
                return Err("the connection ended before the answer did".into());
            }
            buffer.extend_from_slice(&piece[..count]);
            let fed = reader.feed(&mut buffer, |_, data| answer.extend_from_slice(data));
            let progress = fed.map_err(|bad| format!("the answer is no HTTP: {}", bad.0))?;
            if answer.len() > bounds::MAX_MANAGEMENT_ANSWER {
                return Err(format!("the answer is larger than {} bytes", bounds::MAX_MANAGEMENT_ANSWER));
            }
            if progress == Progress::Done {
                break;
            }
        }
        let head = reader.head().ok_or("the answer has no head")?;
        if head.keep_alive && buffer.is_empty() {
            self.stream = Some(stream);
        }
        Ok(Answer { status: head.status, body: answer })
    }
}
