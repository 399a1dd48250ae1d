//! Free text in an answer: ids, which come from the config and from callers of mint, stand in headers and in JSON, some
//! of them four times. Nearly all can be copied as they are, which is found out once.

use crate::json::rewrite::write_escaped;
use std::io::Write;

/// A text, and whether no byte of it has to be written in another way.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    text: &'a str,
    is_plain: bool,
}

/// Bytes that stand for themselves in a header and in a JSON string. Those of characters beyond ASCII do.
static PLAIN: [bool; 256] = {
    let mut table = [true; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = !(byte as u8).is_ascii_control() && !matches!(byte as u8, b'"' | b'\\');
        byte += 1;
    }
    table
};

impl<'a> Text<'a> {
    pub(super) fn new(text: &'a str) -> Text<'a> {
        Text { text, is_plain: text.bytes().fold(true, |plain, byte| plain & PLAIN[usize::from(byte)]) }
    }

    /// Append the inside of a JSON string.
    pub(super) fn write_in_json(self, out: &mut Vec<u8>) {
        match self.is_plain {
            true => out.extend_from_slice(self.text.as_bytes()),
            false => write_escaped(out, self.text),
        }
    }

    /// Append a header's value. Control bytes are percent-encoded, so no text can end the line.
    pub(super) fn write_in_header(self, out: &mut Vec<u8>) {
        let text = self.text.trim_ascii();
        if self.is_plain {
            return out.extend_from_slice(text.as_bytes());
        }
        for byte in text.bytes() {
            match byte.is_ascii_control() {
                // Writing into a vector cannot fail.
                true => _ = write!(out, "%{byte:02X}"),
                false => out.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_is_written_as_a_header_and_a_json_string_take_it() {
        for character in (0..=0x200).filter_map(char::from_u32) {
            let text = format!("a{character}b ");
            let (mut header, mut json) = (Vec::new(), b"\"".to_vec());
            Text::new(&text).write_in_header(&mut header);
            Text::new(&text).write_in_json(&mut json);
            json.push(b'"');
            let wanted = match character.is_ascii_control() {
                true => format!("a%{:02X}b", u32::from(character)),
                false => format!("a{character}b"),
            };
            assert_eq!(String::from_utf8(header).unwrap(), wanted);
            assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), text);
        }
    }
}
