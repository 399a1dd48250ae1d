//! Go's `path.Match`: the patterns of `match:`, of routes and of key scopes.
//!
//! A pattern is compiled once into pieces of tokens, split at `*`, and matched as Go matches: each piece takes the
//! first place where it fits, with no way back. That makes the time at most pattern x text; a backtracking matcher was
//! rejected for its exponential worst case. `*` and `?` never match `/`; a class in brackets may, as in Go.
//!
//! Two choices where Go leaves room: text is walked by code point throughout (Go tries `*` at every byte), and a
//! malformed pattern is found when it is built, wholly, while Go meets some faults only when a text gets that far.
//!
//! Invariant: matching allocates nothing.

use std::fmt;
use std::sync::Arc;

/// A compiled pattern. Cheap to clone; equal when written equally.
#[derive(Clone)]
pub struct Glob(Arc<Compiled>);

struct Compiled {
    pattern: Box<str>,
    pieces: Vec<Piece>,
}

/// What stands between two `*`.
struct Piece {
    /// Whether a `*` stands in front.
    star: bool,
    tokens: Vec<Token>,
}

enum Token {
    /// These characters, exactly.
    Literal(Box<str>),
    /// `?`: any character but `/`.
    Any,
    /// `[a-z]`, `[^a-z]`: a character in, or not in, the inclusive ranges.
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Glob {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The pattern is malformed: an unclosed or empty class, a range without an end, a `\` with nothing after it.
    pub fn new(pattern: &str) -> Result<Glob, BadPattern> {
        let pieces = parse(pattern).ok_or_else(|| BadPattern { pattern: pattern.to_owned() })?;
        Ok(Glob(Arc::new(Compiled { pattern: pattern.into(), pieces })))
    }

    /// Whether the pattern matches all of `text`.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let mut rest = text;
        let last = self.0.pieces.len().wrapping_sub(1);
        for (index, piece) in self.0.pieces.iter().enumerate() {
            if piece.star && piece.tokens.is_empty() {
                // A `*` at the very end takes what is left, if that is one path element.
                return !rest.contains('/');
            }
            let fits = |from| piece.match_prefix(from).filter(|left| index != last || left.is_empty());
            rest = match fits(rest) {
                Some(left) => left,
                None if piece.star => match first_place(rest, fits) {
                    Some(left) => left,
                    None => return false,
                },
                None => return false,
            };
        }
        rest.is_empty()
    }

    /// The pattern as written.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.0.pattern
    }
}

/// Moves forward one character at a time, never over a `/`, until `fits` says where the match ends.
fn first_place<'t>(text: &'t str, fits: impl Fn(&'t str) -> Option<&'t str>) -> Option<&'t str> {
    let mut rest = text.chars();
    while let Some(skipped) = rest.next() {
        if skipped == '/' {
            return None;
        }
        if let Some(left) = fits(rest.as_str()) {
            return Some(left);
        }
    }
    None
}

impl Piece {
    /// What is left of `text` after this piece, if it starts with it.
    fn match_prefix<'t>(&self, text: &'t str) -> Option<&'t str> {
        let mut rest = text;
        for token in &self.tokens {
            rest = match token {
                Token::Literal(literal) => rest.strip_prefix(&**literal)?,
                Token::Any => rest.strip_prefix(|c| c != '/')?,
                Token::Class { negated, ranges } => rest.strip_prefix(|c| {
                    ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
                })?,
            };
        }
        Some(rest)
    }
}

/// The pieces of a pattern; `None` when it is malformed.
fn parse(pattern: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut piece = Piece { star: false, tokens: Vec::new() };
    let mut literal = String::new();
    let mut rest = pattern.chars();
    while let Some(first) = rest.next() {
        let token = match first {
            '*' | '?' | '[' => {
                if !literal.is_empty() {
                    piece.tokens.push(Token::Literal(std::mem::take(&mut literal).into()));
                }
                match first {
                    '*' => {
                        // `**` is one star.
                        if piece.star && piece.tokens.is_empty() {
                            continue;
                        }
                        let next = Piece { star: true, tokens: Vec::new() };
                        let done = std::mem::replace(&mut piece, next);
                        if done.star || !done.tokens.is_empty() {
                            pieces.push(done);
                        }
                        continue;
                    }
                    '?' => Token::Any,
                    _ => parse_class(&mut rest)?,
                }
            }
            '\\' => {
                literal.push(rest.next()?);
                continue;
            }
            other => {
                literal.push(other);
                continue;
            }
        };
        piece.tokens.push(token);
    }
    if !literal.is_empty() {
        piece.tokens.push(Token::Literal(literal.into()));
    }
    if piece.star || !piece.tokens.is_empty() {
        pieces.push(piece);
    }
    Some(pieces)
}

/// The class after its `[`, up to and with its `]`.
fn parse_class(rest: &mut std::str::Chars<'_>) -> Option<Token> {
    let mut ranges = Vec::new();
    let negated = take_if(rest, '^');
    loop {
        if !ranges.is_empty() && take_if(rest, ']') {
            return Some(Token::Class { negated, ranges });
        }
        let low = class_character(rest)?;
        let high = if take_if(rest, '-') { class_character(rest)? } else { low };
        ranges.push((low, high));
    }
}

/// One end of a range: not `-`, not `]`, unless escaped.
fn class_character(rest: &mut std::str::Chars<'_>) -> Option<char> {
    match rest.next()? {
        '-' | ']' => None,
        '\\' => rest.next(),
        other => Some(other),
    }
}

fn take_if(rest: &mut std::str::Chars<'_>, wanted: char) -> bool {
    let found = rest.as_str().starts_with(wanted);
    if found {
        rest.next();
    }
    found
}

impl PartialEq for Glob {
    fn eq(&self, other: &Glob) -> bool {
        self.pattern() == other.pattern()
    }
}

impl Eq for Glob {}

impl fmt::Debug for Glob {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Glob({:?})", self.pattern())
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.pattern())
    }
}

/// A pattern that `path.Match` calls malformed.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct BadPattern {
    /// The pattern.
    pub pattern: String,
}

impl fmt::Display for BadPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "syntax error in pattern {:?}", self.pattern)
    }
}

impl std::error::Error for BadPattern {}

#[cfg(test)]
#[path = "glob_tests.rs"]
mod tests;
