//! What the escapes of a string stand for. That they are escapes by the grammar is checked elsewhere, or not at all.

/// The character of the escape at the front of `text` (None: a lone surrogate), and its length.
pub(super) fn unescape(text: &[u8]) -> (Option<char>, usize) {
    let plain = match text.get(1) {
        Some(b'u') => {
            let high = u32::from(unit(text));
            if !(0xd800..0xdc00).contains(&high) {
                return (char::from_u32(high), 6);
            }
            let after = &text[text.len().min(6)..];
            let low = if after.starts_with(b"\\u") { u32::from(unit(after)) } else { 0 };
            return match (0xdc00..0xe000).contains(&low) {
                true => (char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)), 12),
                false => (None, 6),
            };
        }
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(other) => char::from(*other),
        None => return (None, 1),
    };
    (Some(plain), 2)
}

/// The UTF-16 unit of the `\u` with its digits at the front of `text`.
pub(super) fn unit(text: &[u8]) -> u16 {
    text.iter().skip(2).take(4).fold(0, |unit, digit| unit << 4 | hex(*digit))
}

/// The value of a hexadecimal digit; of what is none, zero.
fn hex(digit: u8) -> u16 {
    char::from(digit).to_digit(16).unwrap_or(0) as u16
}

/// Bytes in UTF-8 of what a UTF-16 unit stands for; each half of a surrogate pair is two of its four.
pub(super) fn utf8_bytes(unit: u16) -> u64 {
    match unit {
        ..0x80 => 1,
        0x80..0x800 | 0xd800..0xe000 => 2,
        _ => 3,
    }
}

/// An escape that is read byte by byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Escape {
    /// Its backslash was read.
    Begun,
    /// So many digits of a `\u`, which are this so far.
    Unicode { digits: u8, unit: u16 },
}

impl Escape {
    /// Takes the next byte; the UTF-16 unit that the escape stands for, when it is complete (any blank is a space).
    pub(super) fn take(&mut self, byte: u8) -> Option<u16> {
        let (digits, unit) = match *self {
            Escape::Begun if byte == b'u' => (0, 0),
            Escape::Begun if matches!(byte, b'n' | b't' | b'r' | b'b' | b'f') => return Some(b' '.into()),
            // What is no ASCII is no escape either: one byte, of no name.
            Escape::Begun => return Some(byte.min(0x7f).into()),
            Escape::Unicode { digits: 3, unit } => return Some(unit << 4 | hex(byte)),
            Escape::Unicode { digits, unit } => (digits + 1, unit << 4 | hex(byte)),
        };
        *self = Escape::Unicode { digits, unit };
        None
    }
}
