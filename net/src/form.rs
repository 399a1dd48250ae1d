//! Bodies that are forms (`multipart/form-data`, RFC 7578): audio to transcribe, images to edit. Of their fields the gateway
//! reads what it reads of JSON: the model, whether the answer streams, how many are asked for, and the text of the prompt.
//!
//! Strict where two readers could differ: one boundary, CRLF, each part with one name, nothing before the first part or
//! behind the last, no governed field twice, in another case, as a file, or in a transfer encoding. A line inside a file that
//! begins like the boundary and goes on otherwise is refused: some readers would end the part there.
//!
//! Files are passed over at memory speed; nothing is copied.

use std::ops::Range;

use memchr::memmem;

use crate::bounds::{MAX_FORM_PARTS, MAX_MODEL_BYTES, MAX_PART_HEAD};
use crate::endpoint::Endpoint;
use crate::json::{BodyError, BodyFacts};

/// Why a body is no form, as the end of a sentence.
type Reason = &'static str;

const MODEL: BodyError =
    BodyError::Wrong("model", "a text that is not empty, of at most 256 bytes, without control characters");

/// The boundary that a Content-Type names; `None` if it is no `multipart/form-data`.
///
/// # Errors
/// It is one, and its boundary is missing or none (RFC 2046 §5.1.1).
pub fn boundary(content_type: &[u8]) -> Option<Result<&str, Reason>> {
    let text = std::str::from_utf8(content_type).ok()?;
    let (kind, parameters) = text.split_once(';').unwrap_or((text, ""));
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let mut found = None;
    for parameter in parameters.split(';') {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        if name.trim().eq_ignore_ascii_case("boundary") && found.replace(value.trim()).is_some() {
            return Some(Err("its Content-Type names two boundaries"));
        }
    }
    let Some(value) = found else { return Some(Err("its Content-Type names no boundary")) };
    let value = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&byte);
    match (1..=70).contains(&value.len()) && value.bytes().all(allowed) {
        true => Some(Ok(value)),
        false => Some(Err("its boundary is not 1 to 70 of the characters that a boundary may have")),
    }
}

/// One part: its field's name, whether it is a file or coded, and where its content is.
struct Part<'b> {
    name: &'b str,
    is_text: bool,
    content: Range<usize>,
}

/// The parts of a body, in order.
struct Parts<'b> {
    body: &'b [u8],
    /// CRLF, two dashes, and the boundary.
    delimiter: Vec<u8>,
    /// Behind the delimiter that was found last.
    at: usize,
}

impl<'b> Parts<'b> {
    fn new(body: &'b [u8], boundary: &str) -> Result<Parts<'b>, Reason> {
        let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
        match body.starts_with(&delimiter[2..]) {
            true => Ok(Parts { body, at: delimiter.len() - 2, delimiter }),
            false => Err("it does not begin with its boundary"),
        }
    }

    /// The next part; `None` behind the last one.
    fn next(&mut self) -> Result<Option<Part<'b>>, Reason> {
        let rest = &self.body[self.at..];
        if let Some(end) = rest.strip_prefix(b"--") {
            return match end {
                b"" | b"\r\n" => Ok(None),
                _ => Err("something follows its last boundary"),
            };
        }
        const LIKE: Reason = "a line begins like its boundary and is none";
        let Some(rest) = rest.strip_prefix(b"\r\n") else { return Err(LIKE) };
        let start = self.at + 2;
        let bounded = &rest[..rest.len().min(MAX_PART_HEAD)];
        // A part without headers has no name either.
        let Some(head) = memmem::find(bounded, b"\r\n\r\n") else { return Err("a part's head does not end") };
        // Who cuts at boundaries before reading heads would see other parts.
        if memmem::find(&self.body[self.at..start + head], &self.delimiter).is_some() {
            return Err(LIKE);
        }
        let (name, is_text) = read_head(&rest[..head])?;
        let from = start + head + 4;
        // The content may be empty: its delimiter then begins with the head's last line end.
        let length = memmem::find(&self.body[from - 2..], &self.delimiter);
        let Some(length) = length else { return Err("its last boundary is missing") };
        let end = from - 2 + length;
        self.at = end + self.delimiter.len();
        Ok(Some(Part { name, is_text, content: from..end.max(from) }))
    }
}

/// The field's name in a part's head, and whether the content is its plain text.
fn read_head(head: &[u8]) -> Result<(&str, bool), Reason> {
    let head = std::str::from_utf8(head).map_err(|_| "a part's head is no text")?;
    let (mut name, mut is_text) = (None, true);
    for line in head.split("\r\n") {
        if line.starts_with([' ', '\t']) {
            return Err("a part's head has a folded line");
        }
        let Some((header, value)) = line.split_once(':') else {
            return Err("a part's head has a line without a colon");
        };
        if header.eq_ignore_ascii_case("content-transfer-encoding") {
            is_text = false;
        }
        if !header.eq_ignore_ascii_case("content-disposition") {
            continue;
        }
        let (found, is_file) = disposition(value)?;
        is_text &= !is_file;
        if name.replace(found).is_some() {
            return Err("a part has two names");
        }
    }
    name.map(|name| (name, is_text)).ok_or("a part has no name")
}

/// `form-data; name="..."`, and whether it names a file.
fn disposition(value: &str) -> Result<(&str, bool), Reason> {
    const BAD: Reason = "a part's Content-Disposition is malformed";
    let mut rest = value.trim_start().strip_prefix("form-data").ok_or(BAD)?.trim();
    let (mut name, mut is_file) = (None, false);
    while let Some(parameter) = rest.strip_prefix(';') {
        let (key, behind) = parameter.trim_start().split_once('=').ok_or(BAD)?;
        let (text, behind) = match behind.strip_prefix('"') {
            Some(quoted) => {
                let end = closing_quote(quoted).ok_or(BAD)?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => behind.split_at(behind.find(';').unwrap_or(behind.len())),
        };
        if key.eq_ignore_ascii_case("name") && name.replace(text).is_some() {
            return Err("a part has two names");
        }
        is_file |= key.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("filename"));
        rest = behind.trim();
    }
    match (name, rest) {
        // What is escaped there is read in several ways.
        (Some(name), "") if !name.contains('\\') => Ok((name, is_file)),
        _ => Err(BAD),
    }
}

/// Where a quoted text ends; what is behind a backslash does not end it.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

/// The fields that are read.
const FIELDS: [&str; 4] = ["model", "stream", "n", "prompt"];

/// Reads a form.
///
/// # Errors
/// Each is a 400 with its text as the message.
pub fn read(body: &[u8], boundary: &str, endpoint: Endpoint) -> Result<BodyFacts, BodyError> {
    let mut parts = Parts::new(body, boundary).map_err(BodyError::NotAForm)?;
    let mut facts = BodyFacts::of_form(endpoint);
    let mut seen = [false; FIELDS.len()];
    let mut count = 0;
    while let Some(part) = parts.next().map_err(BodyError::NotAForm)? {
        count += 1;
        if count > MAX_FORM_PARTS {
            return Err(BodyError::NotAForm("it has more than 128 parts"));
        }
        let Some(at) = FIELDS.iter().position(|field| field.eq_ignore_ascii_case(part.name)) else {
            continue;
        };
        let field = FIELDS[at];
        if part.name != field {
            return Err(BodyError::Misspelt(field));
        }
        if std::mem::replace(&mut seen[at], true) {
            return Err(BodyError::Duplicate(field));
        }
        let text = std::str::from_utf8(&body[part.content.clone()]);
        let (Ok(text), true) = (text, part.is_text) else {
            return Err(BodyError::Wrong(field, "plain text, not a file"));
        };
        match field {
            "model" => {
                if text.is_empty() || text.len() > MAX_MODEL_BYTES || text.contains(char::is_control) {
                    return Err(MODEL);
                }
                facts.model_span = part.content;
            }
            "stream" => {
                facts.stream = text.parse().map_err(|_| BodyError::Wrong("stream", "true or false"))?;
            }
            "n" => {
                let number =
                    text.parse().ok().filter(|n| *n > 0 && text.bytes().all(|byte| byte.is_ascii_digit()));
                facts.n = number.ok_or(BodyError::Wrong("n", "a positive integer"))?;
            }
            _ => facts.prompt_bytes = text.len() as u64,
        }
    }
    match seen[0] {
        true => Ok(facts),
        false => Err(BodyError::NoModel),
    }
}

#[cfg(test)]
mod tests;
