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

/// `uri-host [":" port]` with no user information (RFC 9110 §7.2).
pub(super) fn is_authority(value: &[u8]) -> bool {
    let (host, rest) = match value.first() {
        Some(b'[') => match value.iter().position(|byte| *byte == b']') {
            Some(end) => (&value[1..end], &value[end + 1..]),
            None => return false,
        },
        _ => {
            let end = value.iter().position(|byte| *byte == b':').unwrap_or(value.len());
            (&value[..end], &value[end..])
        }
    };
    let literal = value.first() == Some(&b'[');
    let plain = host.iter().all(|byte| match byte {
        b':' => literal,
        b'-' | b'.' | b'_' | b'~' | b'%' => true,
        other => other.is_ascii_alphanumeric(),
    });
    let port = match rest {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    plain && port && !(literal && host.is_empty())
}

/// None: the path is its own normal form.
fn normalised(path: &[u8]) -> Result<Option<String>, TargetError> {
    let mut escaped = false;
    for byte in path {
        match byte {
            b'%' => escaped = true,
            b'/' | b'-' | b'.' | b'_' | b'~' | b':' | b'@' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')'
            | b'*' | b'+' | b',' | b';' | b'=' => {}
            b'\\' => return Err("the path has a backslash"),
            other if other.is_ascii_alphanumeric() => {}
            _ => return Err("the path has a character that must be escaped"),
        }
    }
    if !escaped {
        return one_reading(path).map(|()| None);
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
