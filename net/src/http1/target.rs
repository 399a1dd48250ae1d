//! The request target: which form it has, and the one reading of its path (SPEC §10, odd spellings).
//!
//! The path is used for routing, for the `endpoint` dim, for scopes and for the backend's request line
//! alike, so it must mean the same to all of them. Escapes of unreserved characters are undone (RFC 3986
//! §6.2.2.2); whatever another parser might fold differently (dot segments, empty segments, encoded
//! slashes, dots and backslashes, controls, bytes beyond ASCII) is refused. Rejected: resolving dot
//! segments here, because a backend that resolves them in another order then serves another path.

/// Why a target is refused: one sentence.
pub(super) type TargetError = &'static str;

/// A target in parts, as offsets into the raw target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    /// The authority of an absolute-form target.
    pub(super) authority: Option<(usize, usize)>,
    /// The raw path.
    pub(super) path: (usize, usize),
    /// The path with unreserved escapes undone, when that differs from the raw one.
    pub(super) normal: Option<String>,
    /// What follows `?`.
    pub(super) query: Option<(usize, usize)>,
}

/// Read a target for `method`.
pub(super) fn read(method: &[u8], raw: &[u8]) -> Result<Target, TargetError> {
    if is_plain(raw) {
        return Ok(Target { path: (0, raw.len()), ..Target::default() });
    }
    if !raw.iter().all(u8::is_ascii_graphic) {
        return Err("the request target has bytes outside of printable ASCII");
    }
    if raw.contains(&b'#') {
        return Err("the request target has a fragment");
    }
    if raw == b"*" {
        return match method {
            b"OPTIONS" => Ok(Target { path: (0, 1), ..Target::default() }),
            _ => Err("the target * belongs to OPTIONS alone"),
        };
    }
    let (authority, from) = if raw.first() == Some(&b'/') { (None, 0) } else { absolute(raw)? };
    let mark = raw[from..].iter().position(|byte| *byte == b'?').map_or(raw.len(), |at| from + at);
    let query = (mark < raw.len()).then_some((mark + 1, raw.len()));
    let normal = match &raw[from..mark] {
        b"" => Some("/".to_owned()),
        path => normalised(path)?,
    };
    Ok(Target { authority, path: (from, mark), normal, query })
}

/// `http://authority` in front of a path: the authority's place, and where the path begins.
fn absolute(raw: &[u8]) -> Result<(Option<(usize, usize)>, usize), TargetError> {
    let scheme = ["http://", "https://"].iter().find(|scheme| {
        raw.len() > scheme.len() && raw[..scheme.len()].eq_ignore_ascii_case(scheme.as_bytes())
    });
    let Some(from) = scheme.map(|scheme| scheme.len()) else {
        return Err("the request target is neither a path nor an http URL");
    };
    let to =
        raw[from..].iter().position(|byte| matches!(byte, b'/' | b'?')).map_or(raw.len(), |at| from + at);
    if to == from || !is_authority(&raw[from..to]) {
        return Err("the request target's authority is malformed");
    }
    Ok((Some((from, to)), to))
}

/// Whether a target is nothing but a path in its normal form: what nearly all are, told in one pass without a branch a byte.
fn is_plain(raw: &[u8]) -> bool {
    let (mut odd, mut before) = (0, 0);
    for byte in raw {
        let class = CLASSES[usize::from(*byte)];
        odd |= class & (NOT_IN_PATH | before);
        // The bit of a slash becomes the one of what may not stand behind it.
        before = class >> 1;
    }
    raw.first() == Some(&b'/') && odd == 0
}

/// The bytes that stand in a path as they are (RFC 3986 §3.3) have no bit `NOT_IN_PATH`.
static CLASSES: [u8; 256] = {
    let mut classes = classes(b"/-._~:@!$&'()*+,;=", NOT_IN_PATH);
    classes[b'.' as usize] = NOT_BEHIND_SLASH;
    classes[b'/' as usize] = NOT_BEHIND_SLASH | SLASH;
    classes
};
const NOT_IN_PATH: u8 = 1;
const NOT_BEHIND_SLASH: u8 = 2;
const SLASH: u8 = 4;

/// The bytes of a host's name, in which a `%` begins an escape, are those without a bit.
static NOT_IN_HOST: [u8; 256] = classes(b"-._~%", 1);

/// `class` for all bytes but letters, digits and `others`.
const fn classes(others: &[u8], class: u8) -> [u8; 256] {
    let mut table = [class; 256];
    let mut byte = 0;
    while byte < table.len() {
        if (byte as u8).is_ascii_alphanumeric() {
            table[byte] = 0;
        }
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = 0;
        at += 1;
    }
    table
}

/// `uri-host [":" port]` with no user information (RFC 9110 §7.2).
pub(super) fn is_authority(value: &[u8]) -> bool {
    let in_host = |byte: &u8| NOT_IN_HOST[usize::from(*byte)] == 0;
    let port = match value {
        [b'[', literal @ ..] => {
            let end = literal.iter().position(|byte| !in_host(byte) && *byte != b':').unwrap_or(0);
            match &literal[end..] {
                [b']', port @ ..] if end > 0 => port,
                _ => return false,
            }
        }
        name => &name[name.iter().position(|byte| !in_host(byte)).unwrap_or(name.len())..],
    };
    match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// None: the path is its own normal form.
fn normalised(path: &[u8]) -> Result<Option<String>, TargetError> {
    let odd = path.iter().find(|byte| CLASSES[usize::from(**byte)] & NOT_IN_PATH != 0 && **byte != b'%');
    match odd {
        Some(b'\\') => return Err("the path has a backslash"),
        Some(_) => return Err("the path has a character that must be escaped"),
        None if !path.contains(&b'%') => return one_reading(path).map(|()| None),
        None => {}
    }
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            out.push(char::from(*first));
            continue;
        }
        let [high, low, tail @ ..] = tail else { return Err("the path has an incomplete escape") };
        let (Some(high), Some(low)) = (char::from(*high).to_digit(16), char::from(*low).to_digit(16)) else {
            return Err("the path has an escape that is not two hexadecimal digits");
        };
        rest = tail;
        match (high * 16 + low) as u8 {
            b'.' | b'/' | b'\\' | b'%' => {
                return Err("the path has an escaped dot, slash, backslash or percent sign");
            }
            0..=0x1f | 0x7f => return Err("the path has an escaped control character"),
            plain @ (b'-' | b'_' | b'~' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9') => {
                out.push(char::from(plain));
            }
            other => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                out.push('%');
                out.push(char::from(HEX[usize::from(other >> 4)]));
                out.push(char::from(HEX[usize::from(other & 15)]));
            }
        }
    }
    one_reading(out.as_bytes())?;
    Ok(Some(out))
}

/// No empty segment but a last one, no dot segment (also not one with parameters, `..;x`).
fn one_reading(path: &[u8]) -> Result<(), TargetError> {
    let mut segments = path[1..].split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_some() {
            return Err("the path has an empty segment");
        }
        let name = segment.split(|byte| *byte == b';').next().unwrap_or(segment);
        if matches!(name, b"." | b"..") {
            return Err("the path has a dot segment");
        }
    }
    Ok(())
}
