//! The tree from the scanner's events, with an own stack: no recursion here, whatever the nesting.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{Entry, Mark, Node, Scalar, Value, YamlError};
use crate::bounds;

/// A node that is not finished yet.
struct Open {
    node: Node,
    anchor: usize,
    /// In a mapping: the key whose value comes next.
    key: Option<(String, Mark)>,
}

struct Builder {
    stack: Vec<Open>,
    anchors: HashMap<usize, Node>,
    aliased: usize,
    root: Option<Node>,
    documents: usize,
}

/// Reads one YAML document. `None` is an empty one.
///
/// The error is the first one of the scanner: after it nothing that follows means anything.
pub fn parse(text: &str) -> Result<Option<Node>, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder =
        Builder { stack: Vec::new(), anchors: HashMap::new(), aliased: 0, root: None, documents: 0 };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| YamlError {
            mark: mark_at(error.marker()),
            message: format!("not YAML: {}", error.info()),
        })?;
        builder.take(event, span)?;
    }
    Ok(builder.root)
}

fn mark_at(marker: &saphyr_parser::Marker) -> Mark {
    Mark { line: marker.line().max(1), column: marker.col() + 1 }
}

fn refuse<T>(mark: Mark, message: impl Into<String>) -> Result<T, YamlError> {
    Err(YamlError { mark, message: message.into() })
}

/// Whether a tag says "string"; any tag but the core schema's own is refused.
fn says_string(tag: Option<&Tag>, mark: Mark) -> Result<bool, YamlError> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.handle == "!" && tag.suffix.is_empty() => Ok(true),
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => Ok(true),
        Some(tag) if tag.is_yaml_core_schema() && matches!(tag.suffix.as_str(), "map" | "seq") => Ok(false),
        Some(tag) => refuse(mark, format!("the tag {tag} is not supported")),
    }
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let mark = mark_at(&span.start);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return refuse(mark, "a second YAML document begins here; one file is one document");
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = says_string(tag.as_deref(), mark)? || style != ScalarStyle::Plain;
                let value = Value::Scalar(Scalar { text: text.into_owned(), quoted });
                self.finish(Node { value, mark }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.open(Value::Sequence(Vec::new()), mark, anchor, tag.as_deref())
            }
            Event::MappingStart(anchor, tag) => {
                self.open(Value::Mapping(Vec::new()), mark, anchor, tag.as_deref())
            }
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(done) => self.finish(done.node, done.anchor),
                None => refuse(mark, "not YAML: an end without a beginning"),
            },
            Event::Alias(anchor) => self.alias(anchor, mark),
        }
    }

    fn open(&mut self, value: Value, mark: Mark, anchor: usize, tag: Option<&Tag>) -> Result<(), YamlError> {
        says_string(tag, mark)?;
        if self.stack.len() >= bounds::YAML_DEPTH {
            return refuse(mark, format!("nested deeper than {} levels", bounds::YAML_DEPTH));
        }
        self.stack.push(Open { node: Node { value, mark }, anchor, key: None });
        Ok(())
    }

    /// Puts a copy of the anchored node here. The copy is given the alias's own place for its first node, so that
    /// an error points at the use; the nodes under it keep theirs.
    fn alias(&mut self, anchor: usize, mark: Mark) -> Result<(), YamlError> {
        let Some(target) = self.anchors.get(&anchor) else {
            return refuse(mark, "an alias inside the node that it names");
        };
        self.aliased += target.size();
        if self.aliased > bounds::YAML_ALIASED_NODES {
            return refuse(mark, format!("aliases expand to more than {} nodes", bounds::YAML_ALIASED_NODES));
        }
        if self.stack.len() + target.depth() > bounds::YAML_DEPTH {
            return refuse(mark, format!("nested deeper than {} levels", bounds::YAML_DEPTH));
        }
        let copy = Node { value: target.value.clone(), mark };
        self.finish(copy, 0)
    }

    /// Hangs a finished node into its parent.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        if anchor != 0 {
            // Counted like an alias: a chain of anchors around each other keeps one copy a level.
            self.aliased += node.size();
            if self.aliased > bounds::YAML_ALIASED_NODES {
                return refuse(node.mark, "anchors hold too much; write it out");
            }
            self.anchors.insert(anchor, node.clone());
        }
        let Some(parent) = self.stack.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut parent.node.value {
            Value::Sequence(items) => items.push(node),
            Value::Mapping(entries) => match parent.key.take() {
                Some((key, mark)) => entries.push(Entry { key, mark, value: node }),
                None => match node.value {
                    Value::Scalar(scalar) => parent.key = Some((scalar.text, node.mark)),
                    _ => return refuse(node.mark, "a key must be a scalar"),
                },
            },
            Value::Scalar(_) => return refuse(node.mark, "not YAML: a node inside a scalar"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree in one line: `text` for plain, `"text"` for quoted scalars, keys with their line.
    fn show(node: &Node) -> String {
        match &node.value {
            Value::Scalar(scalar) if scalar.quoted => format!("{:?}", scalar.text),
            Value::Scalar(scalar) => scalar.text.clone(),
            Value::Sequence(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
            Value::Mapping(entries) => {
                let shown: Vec<_> = entries
                    .iter()
                    .map(|e| format!("{}@{}: {}", e.key, e.mark.line, show(&e.value)))
                    .collect();
                format!("{{{}}}", shown.join(", "))
            }
        }
    }

    fn check(text: &str, want: &str) {
        let got = match parse(text) {
            Ok(None) => "empty".to_owned(),
            Ok(Some(node)) => show(&node),
            Err(error) => format!("{}:{}: {}", error.mark.line, error.mark.column, error.message),
        };
        assert_eq!(got, want, "{text:?}");
    }

    #[test]
    fn scalars_keep_their_spelling_and_keys_their_line() {
        for (text, want) in [
            ("", "empty"),
            ("# only a comment\n", "empty"),
            ("\u{feff}a: 1", "{a@1: 1}"),
            ("a: no\nb: 007\nc: \"1e3\"\nd: 0.60", "{a@1: no, b@2: 007, c@3: \"1e3\", d@4: 0.60}"),
            ("a: 'x'\nb: |\n  y\nc: !!str 5", "{a@1: \"x\", b@2: \"y\\n\", c@4: \"5\"}"),
            ("{\"a\": [1, {\"b\":2}],\n \"c\": null}", "{a@1: [1, {b@1: 2}], c@2: null}"),
            ("a: 1\nb: 2\na: 3", "{a@1: 1, b@2: 2, a@3: 3}"),
            ("a: &x {b: 1}\nc: *x", "{a@1: {b@1: 1}, c@2: {b@1: 1}}"),
            ("a:\nb: ~", "{a@1: , b@2: ~}"),
        ] {
            check(text, want);
        }
    }

    #[test]
    fn what_is_no_tree_is_refused_with_its_place() {
        check("a: &x [*x]", "1:8: an alias inside the node that it names");
        check("a: 1\n---\nb: 2", "2:1: a second YAML document begins here; one file is one document");
        check("[a, b]: 1", "1:1: a key must be a scalar");
        check("a: !thing 1", "1:4: the tag !thing is not supported");
        check(&"[".repeat(200), "1:33: nested deeper than 32 levels");
    }

    #[test]
    fn nine_levels_of_nine_aliases_stop_at_the_bound() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let inner = vec![format!("*a{}", level - 1); 9].join(", ");
            text += &format!("a{level}: &a{level} [{inner}]\n");
        }
        let error = parse(&text).expect_err("a bomb");
        assert!(
            error.message.contains("100000 nodes") || error.message.contains("anchors hold"),
            "{error:?}"
        );
    }
}
