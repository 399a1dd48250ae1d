//! What the model says: a loop of sentences, one word a token.

/// The words of the loop, each with the space in front of it that makes it part of a text; the last one ends the paragraph.
const WORDS: [&str; 32] = [
    "The",
    " river",
    " rises",
    " slowly",
    " in",
    " the",
    " morning,",
    " and",
    " the",
    " mill",
    " turns",
    " with",
    " it.",
    " By",
    " noon",
    " the",
    " grain",
    " is",
    " ground,",
    " the",
    " sacks",
    " are",
    " tied,",
    " and",
    " the",
    " carts",
    " roll",
    " down",
    " to",
    " the",
    " town.",
    "\n",
];

/// Word `index` of the endless text.
pub fn word(index: u64) -> &'static str {
    WORDS[(index % WORDS.len() as u64) as usize]
}

/// The first `tokens` words as one text.
pub fn text(tokens: u64) -> String {
    (0..tokens).map(word).collect()
}

/// The same, read on until it has `bytes` bytes or more: as if the tokens were longer.
pub fn text_of(tokens: u64, bytes: usize) -> String {
    let mut text = text(tokens);
    text.reserve(bytes.saturating_sub(text.len()));
    let mut next = tokens;
    while text.len() < bytes {
        text.push_str(word(next));
        next += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_as_long_as_it_must_be() {
        fn check(tokens: u64, bytes: usize, most: usize) {
            let text = text_of(tokens, bytes);
            assert!(bytes <= text.len() && text.len() <= most, "{tokens} {bytes}: {}", text.len());
            assert!(text.starts_with(&super::text(tokens)), "{text}");
        }
        check(3, 0, 15);
        check(3, 15, 15);
        check(3, 16, 25);
        check(0, 100_000, 100_010);
    }

    #[test]
    fn the_text_reads_on_over_the_end_of_the_loop() {
        let text = text(34);
        assert!(text.starts_with("The river rises"), "{text}");
        assert!(text.ends_with("down to the town.\nThe river"), "{text}");
    }
}
