//! HTTP/1.1 without sockets: heads on `httparse`, the chunked decoder, the reader of whole responses.
//!
//! Both ends of this crate use it: the backend parses requests, the generator parses responses. It is strict where leniency would
//! hide a fault of the program under test: two lengths, a length beside chunks, or bytes that are no HTTP are an error.

pub mod chunked;
pub mod head;
pub mod response;
pub mod sse;
pub mod stamps;
