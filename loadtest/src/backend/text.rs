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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_reads_on_over_the_end_of_the_loop() {
        let text = text(34);
        assert!(text.starts_with("The river rises"), "{text}");
        assert!(text.ends_with("down to the town.\nThe river"), "{text}");
    }
}
