//! HTTP/1.0 and 1.1 without sockets: heads in, framing decided, bodies decoded, heads out.
//!
//! One rule decides every doubtful case: what two parsers could read in two ways is refused. That is
//! stricter than RFC 9112 where it says SHOULD or MAY, because a governor that counts one request while
//! the backend sees two has failed. Rejected: hyper (its own task model, an allocation a header), and
//! httparse alone (it takes bare LF and knows no framing); httparse does the byte work below `head`.
//!
//! Invariants: a head is parsed from a slice that ends at its empty line, so nothing of the body can be
//! taken for a header; a message has one framing or is refused; a refusal always closes the connection.

pub mod chunked;
pub mod head;
pub mod headers;
pub mod response;
pub mod target;
pub mod write;

pub use chunked::{ChunkStep, ChunkedDecoder};
pub use head::{BodyFraming, HeadBounds, HeadError, HeadProgress, HeadSearch, RequestHead, Version};
pub use headers::{Header, Role};
pub use response::{ResponseBody, ResponseHead};

#[cfg(test)]
mod tests;
