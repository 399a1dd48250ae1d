//! How far a string runs as it is: to a quote, to a backslash, and in a body to a control, which is an error there.
//!
//! Eight bytes are looked at as one word. Subtracting a number from each byte sets the top bit of those that were less,
//! and of others only behind such a one: so the first mark is always right. Bytes of 0x80 and above are never marked.
//! Most names and values end within a few words; what is longer is left to a search that is made for it.

const EACH: u64 = u64::from_le_bytes([1; 8]);
const TOP: u64 = EACH << 7;
const QUOTES: u64 = EACH * b'"' as u64;
const BACKSLASHES: u64 = EACH * b'\\' as u64;
const BLANKS: u64 = EACH * b' ' as u64;

/// Bytes that are looked at before a search for long strings is asked.
const NEAR: usize = 64;

/// How many bytes stand in front of a quote or a backslash.
#[inline(always)]
pub fn before_quote(bytes: &[u8]) -> usize {
    let far = |far: &[u8]| memchr::memchr2(b'"', b'\\', far).unwrap_or(far.len());
    run(bytes, quotes, |byte| matches!(byte, b'"' | b'\\'), far)
}

/// How many bytes stand in front of a quote, a backslash or a control.
#[inline(always)]
pub fn before_special(bytes: &[u8]) -> usize {
    let is_special = |byte: u8| (byte < b' ') | (byte == b'"') | (byte == b'\\');
    let marks = |word: u64| quotes(word) | word.wrapping_sub(BLANKS) & !word & TOP;
    // The compiler makes vector compares of a block.
    let far = |far: &[u8]| {
        let (blocks, _) = far.as_chunks::<32>();
        let is_plain = |block: &&[u8; 32]| !block.iter().fold(false, |any, byte| any | is_special(*byte));
        let plain = blocks.iter().take_while(is_plain).count() * 32;
        let rest = &far[plain..];
        plain + rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len())
    };
    run(bytes, marks, is_special, far)
}

#[inline(always)]
fn quotes(word: u64) -> u64 {
    ((word ^ QUOTES).wrapping_sub(EACH) | (word ^ BACKSLASHES).wrapping_sub(EACH)) & !word & TOP
}

/// How many bytes stand in front of the first special one. `marks`: the top bits of the special bytes of a word, of which
/// the first is right. `far` finds it in what is longer than [`NEAR`].
#[inline(always)]
fn run(
    bytes: &[u8],
    marks: impl Fn(u64) -> u64,
    is_special: impl Fn(u8) -> bool,
    far: impl Fn(&[u8]) -> usize,
) -> usize {
    let (mut rest, mut plain) = (bytes, 0);
    while let Some((block, after)) = rest.split_first_chunk::<16>() {
        for word in block.as_chunks().0 {
            let marks = marks(u64::from_le_bytes(*word));
            if marks != 0 {
                return plain + marks.trailing_zeros() as usize / 8;
            }
            plain += 8;
        }
        rest = after;
        if plain == NEAR {
            return plain + far(rest);
        }
    }
    plain + rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that are special, next to one, or what a carry could make of one.
    const NEAR: &[u8] = b"\"\\!#[]\0\x01\x1f\x20\x21\x7f\x80\x81\xa0\xa2\xdc\xff";

    fn check(bytes: &[u8]) {
        let quote = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(bytes.len());
        assert_eq!(before_quote(bytes), quote, "{}", bytes.escape_ascii());
        let special = |byte: &u8| matches!(byte, 0..0x20 | b'"' | b'\\');
        let special = bytes.iter().position(special).unwrap_or(bytes.len());
        assert_eq!(before_special(bytes), special, "{}", bytes.escape_ascii());
    }

    #[test]
    fn every_pair_of_bytes_is_told_apart_at_every_place() {
        for first in NEAR {
            for second in 0..=u8::MAX {
                for place in 0..10 {
                    let mut bytes = [b'x'; 17];
                    (bytes[place], bytes[place + 1]) = (*first, second);
                    check(&bytes);
                    check(&bytes[..place + 2]);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_run_is_what_a_search_byte_by_byte_finds(
            plain in 0usize..200,
            bytes in proptest::collection::vec(
                prop_oneof![proptest::sample::select(NEAR), any::<u8>()],
                0..100,
            ),
        ) {
            check(&[&vec![b'x'; plain][..], &bytes].concat());
        }
    }
}
