//! The reader of one whole response.

use super::chunked;
use super::head::{Framing, Parsed, ResponseHead, parse_response};

/// A response that is no HTTP, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadResponse(pub &'static str);

/// What the bytes so far came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More is to come.
    More,
    /// The response is complete; what is left in the buffer is not its own.
    Done,
}

/// The reader of one response, fed with a buffer that it empties.
///
/// Invariant: `left` is what is missing of a body with a length; `decoder` is used with chunks only.
#[derive(Debug)]
pub struct Reader {
    to_head_request: bool,
    head: Option<ResponseHead>,
    left: u64,
    decoder: chunked::Decoder,
}

impl Reader {
    /// At the start of the response to a request; `to_head_request` when its method was HEAD.
    pub fn new(to_head_request: bool) -> Reader {
        Reader { to_head_request, head: None, left: 0, decoder: chunked::Decoder::new() }
    }

    /// The head, once it has come. Interim (1xx) heads are passed over.
    pub fn head(&self) -> Option<&ResponseHead> {
        self.head.as_ref()
    }

    /// Takes what it can of `buffer`; body bytes go to `data`, with the head.
    ///
    /// # Errors
    /// The bytes are no response.
    pub fn feed(
        &mut self,
        buffer: &mut Vec<u8>,
        mut data: impl FnMut(&ResponseHead, &[u8]),
    ) -> Result<Progress, BadResponse> {
        let mut used = 0;
        let head = loop {
            if let Some(head) = self.head {
                break head;
            }
            match parse_response(&buffer[used..], self.to_head_request) {
                Parsed::Partial => {
                    buffer.drain(..used);
                    return Ok(Progress::More);
                }
                Parsed::Bad(reason) => return Err(BadResponse(reason)),
                Parsed::TooLarge => return Err(BadResponse("the response head is too large")),
                Parsed::Complete(head, length) => {
                    used += length;
                    if head.status == 101 {
                        return Err(BadResponse("the server switched protocols"));
                    }
                    if head.status < 200 {
                        continue;
                    }
                    self.head = Some(head);
                    if let Framing::Length(length) = head.framing {
                        self.left = length;
                    }
                }
            }
        };
        let rest = &buffer[used..];
        let (taken, done) = match head.framing {
            Framing::None => (0, true),
            Framing::Length(_) => {
                let taken = self.left.min(rest.len() as u64) as usize;
                self.left -= taken as u64;
                data(&head, &rest[..taken]);
                (taken, self.left == 0)
            }
            Framing::UntilClose => {
                data(&head, rest);
                (rest.len(), false)
            }
            Framing::Chunked => match self.decoder.feed(rest, |piece| data(&head, piece)) {
                Ok(chunked::Fed::More) => (rest.len(), false),
                Ok(chunked::Fed::Done(taken)) => (taken, true),
                Err(chunked::BadChunk(reason)) => return Err(BadResponse(reason)),
            },
        };
        if used + taken == buffer.len() {
            buffer.clear();
        } else {
            buffer.drain(..used + taken);
        }
        Ok(if done { Progress::Done } else { Progress::More })
    }

    /// Whether the end of the connection now is the end of the response.
    pub fn may_end(&self) -> bool {
        self.head.is_some_and(|head| head.framing == Framing::UntilClose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_split_gives_the_same_response() {
        fn check(text: &str, body: &str, left: usize) {
            for size in 1..=text.len() {
                let (mut reader, mut buffer, mut got) = (Reader::new(false), Vec::new(), Vec::new());
                let mut progress = Progress::More;
                let mut fed = 0;
                for piece in text.as_bytes().chunks(size) {
                    buffer.extend_from_slice(piece);
                    fed += piece.len();
                    progress = reader.feed(&mut buffer, |_, data| got.extend_from_slice(data)).expect(text);
                    if progress == Progress::Done {
                        break;
                    }
                }
                assert_eq!(String::from_utf8_lossy(&got), body, "pieces of {size}");
                assert_eq!(progress == Progress::Done, !reader.may_end(), "pieces of {size}");
                assert_eq!(buffer.len() + text.len() - fed, left, "pieces of {size}");
            }
        }
        check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc", 0);
        check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naXY", "a", 2);
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            "abc",
            0,
        );
        check("HTTP/1.0 200 OK\r\n\r\nto the end", "to the end", 0);
        check("HTTP/1.1 204 No Content\r\n\r\n", "", 0);
    }
}
