//! From the YAML tree to typed values, collecting every error.
//!
//! A reader of one config sees all of its mistakes in one run, so nothing here stops at the first: a function
//! that cannot make its value notes a [`Finding`] and answers `None`, and the caller goes on with what stands beside
//! it. One rule follows everywhere: whoever answers `None` has noted why, so the caller adds nothing.
//!
//! `${NAME}` in a scalar is the environment's value; an unset one is an error. `$${` writes a plain `${`. A scalar that
//! takes a value from the environment counts as unquoted, since in `{...}` and in JSON it has to stand in quotes.

use std::collections::HashMap;
use std::fmt;

use super::number::{self, NumberError};
use crate::bounds;
use crate::yaml::{Entry, Mark, Node, Value};

/// One thing to say about a config: an error or a warning, with its place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The path of the value, such as `governance.limits[0].attach`; empty for the file as a whole.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, in words.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return write!(out, "{}", self.message);
        }
        write!(out, "{}: {}", self.path, self.message)
    }
}

/// The environment, as a function, so that tests bring their own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A node and its path.
#[derive(Clone, Debug)]
pub struct At<'a> {
    /// The node.
    pub node: &'a Node,
    /// Its path from the root.
    pub path: String,
}

impl<'a> At<'a> {
    fn key(&self, key: &str) -> String {
        let plain = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match (self.path.is_empty(), plain) {
            (true, _) => key.to_owned(),
            (false, true) => format!("{}.{key}", self.path),
            (false, false) => format!("{}[{key:?}]", self.path),
        }
    }

    /// The same place under a quoted key, as the paths of free names are written: `users["ml"]`.
    pub fn quoted(&self, entry: &'a Entry) -> At<'a> {
        At { node: &entry.value, path: format!("{}[{:?}]", self.path, entry.key) }
    }
}

/// The entries of a mapping whose keys are all known.
#[derive(Debug)]
pub struct Fields<'a> {
    at: At<'a>,
    entries: &'a [Entry],
}

impl<'a> Fields<'a> {
    /// The value under `key`; a null value counts as absent.
    pub fn get(&self, key: &str) -> Option<At<'a>> {
        self.spelt(key).filter(|at| !at.node.is_null())
    }

    /// The value under `key`, also when YAML would call it null: for ids, which are what is written.
    pub fn spelt(&self, key: &str) -> Option<At<'a>> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(At { node: &entry.value, path: self.at.key(key) })
    }

    /// Where the key itself stands, else where the mapping begins.
    pub fn mark_of(&self, key: &str) -> Mark {
        self.entries.iter().find(|entry| entry.key == key).map_or(self.at.node.mark, |entry| entry.mark)
    }

    /// The mapping itself.
    pub fn at(&self) -> &At<'a> {
        &self.at
    }

    /// The path that `key` has or would have.
    pub fn path_of(&self, key: &str) -> String {
        self.at.key(key)
    }
}

/// Collects what there is to say while the tree is read.
pub struct Decoder<'a> {
    environment: Environment<'a>,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

impl<'a> Decoder<'a> {
    /// A decoder that has found nothing yet.
    pub fn new(environment: Environment<'a>) -> Decoder<'a> {
        Decoder { environment, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Everything found: errors, then warnings, each by line.
    pub fn into_findings(mut self) -> (Vec<Finding>, Vec<Finding>) {
        self.errors.sort_by_key(|finding| finding.line);
        self.warnings.sort_by_key(|finding| finding.line);
        (self.errors, self.warnings)
    }

    /// Notes an error at a value.
    pub fn error(&mut self, at: &At<'_>, message: impl Into<String>) {
        self.error_at(at.path.clone(), at.node.mark, message);
    }

    /// Notes an error at a path and place.
    pub fn error_at(&mut self, path: String, mark: Mark, message: impl Into<String>) {
        if self.errors.len() < bounds::CONFIG_ERRORS {
            self.errors.push(Finding { path, line: mark.line, message: message.into() });
        }
    }

    /// Notes a warning at a value.
    pub fn warn(&mut self, at: &At<'_>, message: impl Into<String>) {
        if self.warnings.len() < bounds::CONFIG_ERRORS {
            self.warnings.push(Finding {
                path: at.path.clone(),
                line: at.node.mark.line,
                message: message.into(),
            });
        }
    }

    /// The value of an environment variable.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name)
    }

    /// A mapping with known keys. Unknown keys and keys given twice are noted and left out.
    pub fn fields<'n>(&mut self, at: At<'n>, known: &[&str]) -> Option<Fields<'n>> {
        let entries = self.entries(&at)?;
        for entry in entries {
            if !known.contains(&entry.key.as_str()) {
                let message = match nearest(&entry.key, known) {
                    Some(meant) => format!("unknown key; did you mean `{meant}`?"),
                    None => format!("unknown key; the keys here are {}", known.join(", ")),
                };
                self.error_at(at.key(&entry.key), entry.mark, message);
            }
        }
        Some(Fields { at, entries })
    }

    /// The entries of a mapping with free keys; keys given twice are noted. Null is an empty mapping.
    pub fn entries<'n>(&mut self, at: &At<'n>) -> Option<&'n [Entry]> {
        match &at.node.value {
            Value::Mapping(entries) => {
                self.duplicates(at, entries);
                Some(entries)
            }
            _ if at.node.is_null() => Some(&[]),
            _ => {
                self.error(at, format!("must be a mapping, not {}", at.node.kind()));
                None
            }
        }
    }

    fn duplicates(&mut self, at: &At<'_>, entries: &[Entry]) {
        let mut first: HashMap<&str, usize> = HashMap::with_capacity(entries.len());
        for entry in entries {
            if let Some(line) = first.get(entry.key.as_str()) {
                let message = format!("the key is given twice (first on line {line})");
                self.error_at(at.key(&entry.key), entry.mark, message);
            } else {
                first.insert(&entry.key, entry.mark.line);
            }
        }
    }

    /// The items of a list. Null is an empty list.
    pub fn list<'n>(&mut self, at: &At<'n>) -> Option<Vec<At<'n>>> {
        match &at.node.value {
            Value::Sequence(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, node)| At { node, path: format!("{}[{index}]", at.path) })
                    .collect(),
            ),
            _ if at.node.is_null() => Some(Vec::new()),
            _ => {
                self.error(at, format!("must be a list, not {}", at.node.kind()));
                None
            }
        }
    }

    /// A key that must be there. Null is noted as missing.
    pub fn required<'n>(&mut self, fields: &Fields<'n>, key: &str) -> Option<At<'n>> {
        let found = fields.get(key);
        if found.is_none() {
            self.error_at(fields.path_of(key), fields.mark_of(key), "is missing");
        }
        found
    }

    /// A scalar's text with the environment put in, and whether it was quoted.
    pub fn scalar(&mut self, at: &At<'_>) -> Option<(String, bool)> {
        let Value::Scalar(scalar) = &at.node.value else {
            self.error(at, format!("must be a single value, not {}", at.node.kind()));
            return None;
        };
        match substitute(&scalar.text, self.environment) {
            Ok(text) => {
                let quoted = scalar.quoted && text == scalar.text;
                Some((text, quoted))
            }
            Err(message) => {
                self.error(at, message);
                None
            }
        }
    }

    /// A string that is not empty, as it is spelt.
    pub fn string(&mut self, at: &At<'_>) -> Option<String> {
        let (text, _) = self.scalar(at)?;
        if text.is_empty() {
            self.error(at, "is empty");
            return None;
        }
        Some(text)
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, at: &At<'_>) -> Option<bool> {
        let (text, quoted) = self.scalar(at)?;
        match text.as_str() {
            "true" | "True" | "TRUE" if !quoted => Some(true),
            "false" | "False" | "FALSE" if !quoted => Some(false),
            _ => {
                self.error(at, format!("must be true or false, not {}", shown(at)));
                None
            }
        }
    }

    /// One of a few words.
    pub fn word<T: Copy>(&mut self, at: &At<'_>, words: &[(&str, T)]) -> Option<T> {
        let (text, _) = self.scalar(at)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.error(at, format!("must be {}, not {}", alternatives(&names), shown(at)));
        }
        found.map(|(_, value)| *value)
    }

    /// The digits of a number: an unquoted scalar that is a finite decimal, zero or above.
    pub fn decimal(&mut self, at: &At<'_>) -> Option<String> {
        let (text, quoted) = self.scalar(at)?;
        let wrong = match number::check_decimal(&text) {
            _ if quoted => "must be a number, not a string in quotes".to_owned(),
            Ok(()) => return Some(text),
            Err(NumberError::NotNumber) => format!("must be a number, not {}", shown(at)),
            Err(error) => error.to_string(),
        };
        self.error(at, wrong);
        None
    }

    /// A whole number within bounds, both inclusive.
    pub fn integer(&mut self, at: &At<'_>, low: u128, high: u128) -> Option<u128> {
        let text = self.decimal(at)?;
        let wrong = match number::integer(&text) {
            Ok(value) if value < low && low == 1 => "must be above zero".to_owned(),
            Ok(value) if value < low => format!("must be at least {low}"),
            Ok(value) if value <= high => return Some(value),
            Ok(_) | Err(NumberError::Overflow) => format!("is out of range: at most {high}"),
            Err(error) => error.to_string(),
        };
        self.error(at, wrong);
        None
    }
}

/// A value as an error shows it: the text in the file, never what the environment put in, since that may be secret.
pub fn shown(at: &At<'_>) -> String {
    match &at.node.value {
        Value::Scalar(scalar) if scalar.text.len() <= 80 => format!("{:?}", scalar.text),
        Value::Scalar(_) => "a long text".to_owned(),
        _ => at.node.kind().to_owned(),
    }
}

/// `a, b or c`.
pub fn alternatives(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [front @ .., last] => format!("{} or {last}", front.join(", ")),
    }
}

/// Puts the environment into `${NAME}`.
fn substitute(text: &str, environment: Environment<'_>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find("${") {
        if rest[..position].ends_with('$') {
            out.push_str(&rest[..position - 1]);
            out.push_str("${");
            rest = &rest[position + 2..];
            continue;
        }
        out.push_str(&rest[..position]);
        let inner = &rest[position + 2..];
        let end = inner.find('}').ok_or("has `${` without its `}`; write `$${` for a plain `${`")?;
        let name = &inner[..end];
        if !is_variable_name(name) {
            return Err(format!("has ${{{name}}}, which is not the name of an environment variable"));
        }
        let value = environment(name).ok_or_else(|| format!("environment variable {name} is not set"))?;
        out.push_str(&value);
        rest = &inner[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Whether a text can name an environment variable: letters, digits and `_`, no digit first.
pub fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.as_bytes()[0].is_ascii_digit()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The known key that a misspelt one was most likely meant to be: at most two edits away.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    if key.len() > 40 {
        return None;
    }
    known
        .iter()
        .map(|candidate| (edits(key, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 2 && *distance < candidate.len())
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance in bytes.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.bytes().enumerate() {
            let substitution = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = substitution.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_put_in_or_missed() {
        let environment = |name: &str| match name {
            "HOST" => Some("10.0.0.1".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (text, want) in [
            ("http://${HOST}:9", Ok("http://10.0.0.1:9")),
            ("${HOST}${HOST}", Ok("10.0.0.110.0.0.1")),
            ("a${EMPTY}b", Ok("ab")),
            ("cost: $5 $", Ok("cost: $5 $")),
            ("$${HOST}", Ok("${HOST}")),
            ("${NOPE}", Err("environment variable NOPE is not set")),
            ("${NOPE", Err("has `${` without its `}`; write `$${` for a plain `${`")),
            ("${A B}", Err("has ${A B}, which is not the name of an environment variable")),
            ("${}", Err("has ${}, which is not the name of an environment variable")),
        ] {
            let got = substitute(text, &environment);
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{text}");
        }
    }

    #[test]
    fn a_misspelt_key_is_recognised_within_two_edits() {
        for (key, want) in
            [("amout", Some("amount")), ("max_hed", Some("max_head")), ("zebra", None), ("", None)]
        {
            assert_eq!(nearest(key, &["amount", "max_head", "period"]), want, "{key}");
        }
    }
}
