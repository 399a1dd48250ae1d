//! The normalised usage of one exchange.

use crate::units::Tokens;

/// What an exchange really used.
///
/// `input` includes the cached part, as OpenAI reports it. Anthropic reports cache reads beside its input; whoever
/// reads that report adds them to `input` and `cached_input` alike.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input: Tokens,
    /// Of these, tokens read from the provider's cache.
    pub cached_input: Tokens,
    /// Tokens written.
    pub output: Tokens,
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
    fn cached_tokens_are_counted_once() {
        let usage = Usage { input: Tokens(40), cached_input: Tokens(30), output: Tokens(11) };
        assert_eq!(usage.tokens(), Tokens(51));
        let huge = Usage { input: Tokens(u64::MAX), output: Tokens(1), ..Usage::default() };
        assert_eq!(huge.tokens(), Tokens(u64::MAX));
    }
}
