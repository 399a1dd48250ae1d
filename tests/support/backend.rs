//! A scripted model backend on a raw socket: a script answers each request with exact bytes.
//!
//! Each connection has a thread, so a script may simply wait. The backend keeps what it was asked.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::{HandshakeKind, ServerConfig};

use super::client::find;
use super::wire::Wire;

/// What becomes of the connection after a script.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Then {
    /// The next request is awaited.
    Keep,
    /// The connection is closed; over TLS its end is announced first. After an answer that is whole, and before another request,
    /// have it say `Connection: close`: the gateway sends the next one on this connection while the end is on its way.
    Close,
    /// The connection is closed; over TLS that looks like somebody on the way having cut it.
    Cut,
    /// The connection is reset.
    Reset,
}

/// Answers one request.
pub type Script = Arc<dyn Fn(&mut Exchange) -> Then + Send + Sync>;

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// The head, without its empty line.
    pub head: String,
    /// The body, as its Content-Length says.
    pub body: Vec<u8>,
}

impl Request {
    /// The first value of a header, its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(header, _)| header.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim())
    }
}

/// What a script holds while it answers.
pub struct Exchange {
    /// The request to answer.
    pub request: Request,
    /// Where it came from.
    pub stream: Wire,
    ending: Arc<AtomicBool>,
}

impl Exchange {
    /// Sends bytes as they are; false when the gateway has gone.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// A JSON reply with status `status`.
    pub fn reply(&mut self, status: u16, body: &str) -> bool {
        let length = body.len();
        self.send(
            format!(
                "HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\n\
                 Content-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        )
    }

    /// One chunk of a chunked body.
    pub fn chunk(&mut self, data: &str) -> bool {
        self.send(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes())
    }

    /// Waits until the gateway closes or resets the connection; false when it has not in time.
    pub fn wait_for_close(&mut self, bound: Duration) -> bool {
        let end = Instant::now() + bound;
        let _ = self.stream.socket().set_read_timeout(Some(Duration::from_millis(20)));
        let mut block = [0; 4096];
        while Instant::now() < end && !self.ending.load(Ordering::Relaxed) {
            match self.stream.read(&mut block) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if is_a_pause(error.kind()) => {}
                Err(_) => return true,
            }
        }
        false
    }
}

/// The running backend; its threads end when it is dropped.
pub struct Backend {
    /// The port that it listens on.
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    script: Mutex<Script>,
    requests: Mutex<Vec<Request>>,
    handshakes: Mutex<Vec<HandshakeKind>>,
    tls: Mutex<Option<Arc<ServerConfig>>>,
    open: AtomicUsize,
    ending: Arc<AtomicBool>,
}

impl Backend {
    /// Listens on a free port and answers every request with `script`.
    pub fn start(script: Script) -> Backend {
        Backend::start_with(0, script, None)
    }

    /// The same on a port that is known already.
    pub fn start_on(port: u16, script: Script) -> Backend {
        Backend::start_with(port, script, None)
    }

    /// The same over TLS.
    pub fn start_tls(script: Script, tls: Arc<ServerConfig>) -> Backend {
        Backend::start_with(0, script, Some(tls))
    }

    fn start_with(port: u16, script: Script, tls: Option<Arc<ServerConfig>>) -> Backend {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket").port();
        let shared = Arc::new(Shared {
            script: Mutex::new(script),
            requests: Mutex::new(Vec::new()),
            handshakes: Mutex::new(Vec::new()),
            tls: Mutex::new(tls),
            open: AtomicUsize::new(0),
            ending: Arc::new(AtomicBool::new(false)),
        });
        let state = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if state.ending.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), state) = (stream, state.clone()) else { continue };
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Backend { port, shared }
    }

    /// Replaces the script for the requests to come.
    pub fn answer_with(&self, script: Script) {
        *self.shared.script.lock().expect("no script panics under the lock") = script;
    }

    /// Replaces what TLS connections to come are made with.
    pub fn secure_with(&self, tls: Arc<ServerConfig>) {
        *self.shared.tls.lock().expect("a plain value") = Some(tls);
    }

    /// The TLS handshakes that were made, in order.
    pub fn handshakes(&self) -> Vec<HandshakeKind> {
        self.shared.handshakes.lock().expect("a plain list").clone()
    }

    /// How many whole requests have come.
    pub fn count(&self) -> usize {
        self.shared.requests.lock().expect("a plain list").len()
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().expect("a plain list").clone()
    }

    /// Forgets the requests so far: a long run needs none of them.
    pub fn forget_requests(&self) {
        self.shared.requests.lock().expect("a plain list").clear();
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    shared.open.fetch_add(1, Ordering::SeqCst);
    let tls = shared.tls.lock().expect("a plain value").clone();
    let stream = match tls {
        None => Wire::plain(stream),
        Some(tls) => Wire::server(stream, tls),
    };
    if stream.shake_hands().is_ok() {
        shared.handshakes.lock().expect("a plain list").extend(stream.handshake());
        converse(stream, shared);
    }
    shared.open.fetch_sub(1, Ordering::SeqCst);
}

fn converse(mut stream: Wire, shared: &Shared) {
    let mut ahead = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut ahead, shared) {
        shared.requests.lock().expect("a plain list").push(request.clone());
        let script = shared.script.lock().expect("no script panics under the lock").clone();
        let (own, ending) = (stream.clone(), shared.ending.clone());
        match script(&mut Exchange { request, stream: own, ending }) {
            Then::Keep => {}
            Then::Close => return stream.notify_close(),
            Then::Cut => return,
            Then::Reset => {
                let _ = socket2::SockRef::from(stream.socket()).set_linger(Some(Duration::ZERO));
                return;
            }
        }
    }
}

fn read_request(stream: &mut Wire, ahead: &mut Vec<u8>, shared: &Shared) -> Option<Request> {
    let end = loop {
        if let Some(at) = find(ahead, b"\r\n\r\n") {
            break at;
        }
        fill(stream, ahead, shared)?;
    };
    let head = String::from_utf8_lossy(&ahead[..end]).into_owned();
    ahead.drain(..end + 4);
    let mut request = Request { head, body: Vec::new() };
    let length = request.header("content-length").and_then(|digits| digits.parse().ok());
    let length: usize = length.unwrap_or(0);
    while ahead.len() < length {
        fill(stream, ahead, shared)?;
    }
    request.body = ahead.drain(..length).collect();
    Some(request)
}

fn fill(stream: &mut Wire, ahead: &mut Vec<u8>, shared: &Shared) -> Option<()> {
    let _ = stream.socket().set_read_timeout(Some(Duration::from_millis(100)));
    let mut block = [0; 16 << 10];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return None,
            Ok(count) => {
                ahead.extend_from_slice(&block[..count]);
                return Some(());
            }
            Err(error) if is_a_pause(error.kind()) => {
                if shared.ending.load(Ordering::Relaxed) {
                    return None;
                }
            }
            Err(_) => return None,
        }
    }
}

fn is_a_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

// ---- scripts -----------------------------------------------------------------------------------

/// The head of a chunked event stream.
pub const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                               Transfer-Encoding: chunked\r\n\r\n";

/// One event of a chat stream.
pub fn delta(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

/// A whole chat answer that reports `input` and `output` tokens.
pub fn chat_answer(input: u64, output: u64) -> String {
    let total = input + output;
    format!(
        "{{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m1\",\
         \"choices\":[{{\"index\":0,\"finish_reason\":\"stop\",\"message\":{{\"role\":\"assistant\",\
         \"content\":\"hello\"}}}}],\"usage\":{{\"prompt_tokens\":{input},\
         \"completion_tokens\":{output},\"total_tokens\":{total}}}}}"
    )
}

/// Answers every request with [`chat_answer`].
pub fn answers(input: u64, output: u64) -> Script {
    Arc::new(move |exchange| {
        exchange.reply(200, &chat_answer(input, output));
        Then::Keep
    })
}

/// Begins a stream with the text `begun`, and waits to be left.
pub fn streams_until_left() -> Script {
    Arc::new(|exchange| {
        exchange.send(STREAM_HEAD.as_bytes());
        exchange.chunk(&delta("begun"));
        assert!(exchange.wait_for_close(Duration::from_secs(8)), "the backend is not told");
        Then::Close
    })
}

/// Sends exact bytes, then ends the connection as told.
pub fn exactly(bytes: impl Into<Vec<u8>>, then: Then) -> Script {
    let bytes = bytes.into();
    Arc::new(move |exchange| {
        exchange.send(&bytes);
        if then == Then::Reset {
            std::thread::sleep(Duration::from_millis(30));
        }
        then
    })
}
