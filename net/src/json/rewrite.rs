//! The two changes that a body may need, spliced into a copy: every byte outside of them stays (SPEC §9).

use super::body::{Asked, BodyFacts, StreamOptions};
use super::plain::before_special;
use std::ops::Range;

/// The body to forward: with `served_model` in place of the model, and, when `ask_usage`, with
/// `stream_options.include_usage` true. None: the body is forwarded as it is.
///
/// `ask_usage` changes nothing where the client asked already.
pub fn rewrite(
    bytes: &[u8],
    facts: &BodyFacts,
    served_model: Option<&str>,
    ask_usage: bool,
) -> Option<Vec<u8>> {
    let served = served_model.filter(|served| *served != facts.model(bytes));
    let mut splices: [Option<(Range<usize>, Vec<u8>)>; 2] = [None, None];
    if let Some(served) = served {
        let mut written = Vec::with_capacity(served.len() + 2);
        match facts.is_form {
            true => written.extend_from_slice(served.as_bytes()),
            false => write_string(&mut written, served),
        }
        splices[0] = Some((facts.model_span.clone(), written));
    }
    if ask_usage && facts.include_usage == Asked::No {
        splices[1] = Some(usage_splice(facts));
    }
    if splices.iter().all(Option::is_none) {
        return None;
    }
    splices.sort_by_key(|splice| splice.as_ref().map_or(0, |(span, _)| span.start));
    let mut out = Vec::with_capacity(bytes.len() + 64 + served.map_or(0, str::len));
    let mut kept = 0;
    for (span, text) in splices.into_iter().flatten() {
        out.extend_from_slice(&bytes[kept..span.start]);
        out.extend_from_slice(&text);
        kept = span.end;
    }
    out.extend_from_slice(&bytes[kept..]);
    Some(out)
}

fn usage_splice(facts: &BodyFacts) -> (Range<usize>, Vec<u8>) {
    match &facts.stream_options {
        StreamOptions::Absent => {
            (facts.inside..facts.inside, b"\"stream_options\":{\"include_usage\":true},".to_vec())
        }
        StreamOptions::Null(span) => (span.clone(), b"{\"include_usage\":true}".to_vec()),
        StreamOptions::Object { include_usage: Some(value), .. } => (value.clone(), b"true".to_vec()),
        StreamOptions::Object { inside, empty: true, .. } => {
            (*inside..*inside, b"\"include_usage\":true".to_vec())
        }
        StreamOptions::Object { inside, .. } => (*inside..*inside, b"\"include_usage\":true,".to_vec()),
    }
}

/// Append a JSON string with its quotes.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    write_escaped(out, text);
    out.push(b'"');
}

/// Append the inside of a JSON string.
pub fn write_escaped(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    loop {
        let at = before_special(rest);
        out.extend_from_slice(&rest[..at]);
        if at == rest.len() {
            return;
        }
        match rest[at] {
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        rest = &rest[at + 1..];
    }
}
