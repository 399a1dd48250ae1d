//! The request's bytes, and one exchange over a connection.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::RunOptions;
use super::tally::{Failed, Tally};
use super::usage::{Tail, Usage};
use crate::http::head::Refuser;
use crate::http::response::{BadResponse, Progress, Reader};
use crate::http::sse::EventCounter;
use crate::http::stamps::{self, Stamps};
use crate::rt::Connection;

/// Whether the header fields ask the server to close the connection.
pub fn asks_to_close(headers: &[(String, String)]) -> bool {
    headers.iter().any(|(name, value)| {
        name.eq_ignore_ascii_case("connection")
            && value.split(',').any(|word| word.trim().eq_ignore_ascii_case("close"))
    })
}

/// The bytes of the requests: one, the same every time, or one for each credential.
///
/// # Errors
/// See [`request_bytes`]; a credential that no header field can hold.
pub fn all_requests(options: &RunOptions) -> Result<Vec<Vec<u8>>, String> {
    if options.credentials.is_empty() {
        return Ok(vec![request_bytes(options, None)?]);
    }
    options.credentials.iter().map(|credential| request_bytes(options, Some(credential))).collect()
}

/// The bytes of a request.
///
/// # Errors
/// A sentence: a header field or the method is malformed, or sets what the generator sets.
fn request_bytes(options: &RunOptions, credential: Option<&str>) -> Result<Vec<u8>, String> {
    let is_token = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    if !is_token(&options.method) {
        return Err(format!("{:?} is no request method", options.method));
    }
    let has = |wanted: &str| options.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let mut head = format!("{} {} HTTP/1.1\r\n", options.method, options.target.path);
    if !has("host") {
        head += &format!("Host: {}\r\n", options.target.host);
    }
    let bearer = credential.map(|credential| ("Authorization".to_owned(), format!("Bearer {credential}")));
    for (name, value) in options.headers.iter().chain(&bearer) {
        if !is_token(name) {
            return Err(format!("{name:?} is no header field name"));
        }
        if value.bytes().any(|byte| byte < b' ' && byte != b'\t') {
            return Err(format!("the value of {name} holds a control character"));
        }
        if name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(format!("{name} follows from the body and cannot be set"));
        }
        head += &format!("{name}: {value}\r\n");
    }
    let takes_a_body = matches!(options.method.as_str(), "POST" | "PUT" | "PATCH");
    if !options.body.is_empty() && !has("content-type") {
        head += "Content-Type: application/json\r\n";
    }
    if !options.body.is_empty() || takes_a_body {
        head += &format!("Content-Length: {}\r\n", options.body.len());
    }
    head += "\r\n";
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(&options.body);
    Ok(bytes)
}

/// What an exchange that was answered came to.
pub struct Answered {
    pub status: u16,
    pub keep_alive: bool,
    /// The limit that refused it.
    pub refused_by: Option<Refuser>,
    /// What it says that it used, if that is watched.
    pub usage: Option<Usage>,
    /// When the last byte had come.
    pub at: Instant,
}

/// One request and its answer. `intended` is when latencies count from, `at` that moment after the end of the warm-up;
/// `measured` says whether they are recorded, `watched` whether the usage that the answer reports is read.
pub struct Exchange<'a> {
    pub request: &'a Rc<Vec<u8>>,
    pub is_head: bool,
    pub intended: Instant,
    pub at: Duration,
    pub measured: bool,
    pub watched: bool,
}

impl Exchange<'_> {
    /// Sends and reads. `with_tally` lends the tally for a moment, never over a wait.
    pub async fn run(
        &self,
        connection: &mut Connection,
        buffer: &mut Vec<u8>,
        tail: &mut Tail,
        with_tally: impl Fn(&mut dyn FnMut(&mut Tally)),
    ) -> Result<Answered, Failed> {
        // What cannot be written may have been answered all the same (a refusal before the body was read), so reading decides.
        let _ = connection.write_all(self.request.clone()).await.0;
        let mut reader = Reader::new(self.is_head);
        let mut stream = Stream::default();
        let mut first = true;
        tail.clear();
        loop {
            let read = connection.read_more(buffer).await;
            let at = Instant::now();
            let read = match read {
                Ok(0) if reader.may_end() => {
                    return Ok(self.ended(&reader, &stream, tail, at, &with_tally));
                }
                Ok(0) | Err(_) if first => return Err(Failed::Closed),
                Ok(0) | Err(_) => return Err(Failed::Truncated),
                Ok(read) => read,
            };
            let since = at.saturating_duration_since(self.intended);
            if self.measured {
                with_tally(&mut |tally| {
                    tally.bytes += read as u64;
                    if first {
                        tally.first_byte.record(since);
                    }
                });
            }
            first = false;
            let mut events = 0;
            // When this read was over, for events that say when they were sent.
            let mut here = None;
            let fed = reader.feed(buffer, |head, data| {
                if head.is_event_stream {
                    events += stream.counter.feed(data);
                    if self.measured {
                        let here = *here.get_or_insert_with(stamps::now);
                        stream.stamps.feed(data, |sent| {
                            let delay = Duration::from_nanos(here.saturating_sub(sent));
                            with_tally(&mut |tally| tally.event_delay.record(delay));
                        });
                    }
                }
                if self.watched {
                    tail.feed(data);
                }
            });
            if events > 0 {
                let gap = stream.arrived(events, at, self.intended);
                if self.measured {
                    with_tally(&mut |tally| gap.record(tally));
                }
            }
            match fed {
                Ok(Progress::More) => {}
                Ok(Progress::Done) if buffer.is_empty() => {
                    return Ok(self.ended(&reader, &stream, tail, at, &with_tally));
                }
                Ok(Progress::Done) => {
                    with_tally(&mut |tally| note(tally, "more bytes than the response has"));
                    return Err(Failed::Protocol);
                }
                Err(BadResponse(reason)) => {
                    with_tally(&mut |tally| note(tally, reason));
                    return Err(Failed::Protocol);
                }
            }
        }
    }

    fn ended(
        &self,
        reader: &Reader,
        stream: &Stream,
        tail: &Tail,
        at: Instant,
        with_tally: &impl Fn(&mut dyn FnMut(&mut Tally)),
    ) -> Answered {
        let (status, keep_alive, is_stream) = reader
            .head()
            .map_or((0, false, false), |head| (head.status, head.keep_alive, head.is_event_stream));
        if self.measured {
            with_tally(&mut |tally| {
                tally.answered(status, self.at, at.saturating_duration_since(self.intended));
                tally.streams += u64::from(is_stream);
                tally.events += stream.events;
            });
        }
        let refused_by = reader.head().and_then(|head| head.refused_by);
        Answered { status, keep_alive, refused_by, usage: self.watched.then(|| tail.usage()).flatten(), at }
    }
}

fn note(tally: &mut Tally, fault: &'static str) {
    tally.first_fault.get_or_insert(fault);
}

/// The events of one answer.
#[derive(Default)]
pub struct Stream {
    counter: EventCounter,
    stamps: Stamps,
    events: u64,
    last: Option<Instant>,
}

/// What events that came in one read add to the latencies.
#[derive(Debug, PartialEq, Eq)]
pub struct Gap {
    first: Option<Duration>,
    gap: Option<Duration>,
    together: u64,
}

impl Stream {
    /// Notes `events` (one or more) that a read at `at` completed.
    pub fn arrived(&mut self, events: u64, at: Instant, intended: Instant) -> Gap {
        let last = self.last.replace(at);
        self.events += events;
        Gap {
            first: last.is_none().then(|| at.saturating_duration_since(intended)),
            gap: last.map(|last| at.saturating_duration_since(last)),
            together: events - 1,
        }
    }
}

impl Gap {
    fn record(&self, tally: &mut Tally) {
        if let Some(first) = self.first {
            tally.first_event.record(first);
        }
        if let Some(gap) = self.gap {
            tally.event_gap.record(gap);
        }
        for _ in 0..self.together {
            tally.event_gap.record(Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_between_reads_and_zero_within_one() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut stream = Stream::default();
        fn check(gap: Gap, first: Option<u64>, between: Option<u64>, together: u64) {
            let want = Gap {
                first: first.map(Duration::from_millis),
                gap: between.map(Duration::from_millis),
                together,
            };
            assert_eq!(gap, want);
        }
        check(stream.arrived(1, at(30), start), Some(30), None, 0);
        check(stream.arrived(1, at(40), start), None, Some(10), 0);
        check(stream.arrived(3, at(65), start), None, Some(25), 2);
        let mut tally = Tally::default();
        Stream::default().arrived(4, at(5), start).record(&mut tally);
        assert_eq!((tally.first_event.count(), tally.event_gap.count()), (1, 3));
        assert_eq!(tally.event_gap.max(), Duration::ZERO);
    }

    #[test]
    fn the_request_says_what_the_options_say() {
        let target = super::super::Target::parse("http://127.0.0.1:1/a?b").expect("a URL");
        let mut options = RunOptions::to(target);
        let text = |options: &RunOptions| {
            String::from_utf8(request_bytes(options, None).expect("bytes")).expect("text")
        };
        assert_eq!(text(&options), "GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
        options.method = "POST".into();
        options.headers = vec![("host".into(), "x".into()), ("X-Key".into(), "v".into())];
        options.body = b"{}".to_vec();
        assert_eq!(
            text(&options),
            "POST /a?b HTTP/1.1\r\nhost: x\r\nX-Key: v\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        );
        for (name, value) in [("a b", "x"), ("a", "x\r\ny: z"), ("Content-Length", "1"), ("", "x")] {
            options.headers = vec![(name.into(), value.into())];
            assert!(request_bytes(&options, None).is_err(), "{name:?}: {value:?}");
        }
        options.headers.clear();
        options.credentials = vec!["one".into(), "two".into()];
        let requests = all_requests(&options).expect("bytes");
        let second = String::from_utf8(requests[1].clone()).expect("text");
        assert!(requests.len() == 2 && second.contains("\r\nAuthorization: Bearer two\r\n"), "{second}");
        options.credentials.push("x\r\ny: z".into());
        assert!(all_requests(&options).is_err());
        assert!(asks_to_close(&[("connection".into(), "x, Close".into())]));
    }
}
