//! The normalised usage of one exchange.

use crate::units::Tokens;

/// What an exchange really used.
///
/// `input` and `output` are wholes; the kinds below them are parts, as OpenAI reports them. Anthropic reports cache reads
/// and writes beside its input; whoever reads that report adds them to `input` and to their kind alike. Parts that
/// add up to more than their whole are no error: [`crate::ModelPrice::cost`] takes them in a fixed order until the whole is
/// used up.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct Usage {
    /// Tokens read, of all kinds.
    pub input: Tokens,
    /// Of these, tokens read from the provider's cache.
    pub cached_input: Tokens,
    /// Of these, tokens written to the provider's cache.
    pub cache_write: Tokens,
    /// Of the tokens written to the cache, those kept for an hour (Anthropic).
    pub cache_write_hour: Tokens,
    /// Of the tokens read, those of audio.
    pub audio_input: Tokens,
    /// Of the tokens read, those of images.
    pub image_input: Tokens,
    /// Tokens written, of all kinds.
    pub output: Tokens,
    /// Of these, tokens of reasoning.
    pub reasoning: Tokens,
    /// Of these, tokens of audio.
    pub audio_output: Tokens,
    /// Of these, tokens of images.
    pub image_output: Tokens,
    /// Images made.
    pub images: u64,
    /// Thousandths of a second of audio, where the backend reports time in place of tokens.
    pub milliseconds: u64,
    /// Characters of the prompt's text, where that is what a model is paid for.
    pub characters: u64,
}

impl Usage {
    /// What token limits count: all tokens read and written, at most `u64::MAX`.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        self.input.saturating_add(self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_are_parts_and_counted_once() {
        let part = Tokens(30);
        let usage = Usage {
            input: Tokens(40),
            cached_input: part,
            cache_write: part,
            cache_write_hour: part,
            audio_input: part,
            image_input: part,
            output: Tokens(11),
            reasoning: part,
            audio_output: part,
            image_output: part,
            images: 7,
            milliseconds: 7,
            characters: 7,
        };
        assert_eq!(usage.tokens(), Tokens(51));
        let huge = Usage { input: Tokens(u64::MAX), output: Tokens(1), ..Usage::default() };
        assert_eq!(huge.tokens(), Tokens(u64::MAX));
    }
}
