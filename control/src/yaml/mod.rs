//! YAML as a tree with positions and spellings.
//!
//! The config decoder needs three things that a YAML value type throws away: where each node stands, how a
//! scalar was spelt (an id `007` or `no` is a string whatever YAML would make of it, and money is read from its
//! digits, never through a float), and every key of a mapping, the ones given twice included. So the tree is
//! built here from the events of the scanner.
//!
//! Rejected: serde with a YAML crate. It stops at the first error, resolves `no` and `1e3` before anybody is
//! asked, and its positions are lost behind `Option` and `flatten`.
//!
//! Invariants: the tree is at most [`bounds::YAML_DEPTH`] deep, aliases added at most
//! [`bounds::YAML_ALIASED_NODES`] nodes, lines and columns count from 1.
//!
//! [`bounds::YAML_DEPTH`]: crate::bounds::YAML_DEPTH
//! [`bounds::YAML_ALIASED_NODES`]: crate::bounds::YAML_ALIASED_NODES

mod build;

pub use build::parse;

/// Where a node begins; both count from 1.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct Mark {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

/// A node of the tree.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it begins.
    pub mark: Mark,
}

/// What a node is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// A scalar, uninterpreted.
    Scalar(Scalar),
    /// A sequence.
    Sequence(Vec<Node>),
    /// A mapping: every entry as written, also one whose key was there before.
    Mapping(Vec<Entry>),
}

/// A scalar's text after unquoting and unfolding, before any interpretation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Scalar {
    /// The text.
    pub text: String,
    /// Whether it stood in quotes, in a block scalar, or under `!!str`: then it is a string and no number.
    pub quoted: bool,
}

/// One entry of a mapping.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The key's text.
    pub key: String,
    /// Where the key begins.
    pub mark: Mark,
    /// The value.
    pub value: Node,
}

/// Why a text is no YAML that this program reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct YamlError {
    /// Where.
    pub mark: Mark,
    /// What is wrong, in a sentence.
    pub message: String,
}

impl Node {
    /// Whether the node is YAML's null: an empty plain scalar, `~` or `null`.
    pub fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar(scalar) => {
                !scalar.quoted && matches!(scalar.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            _ => false,
        }
    }

    /// The kind of node, as an error calls it.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Value::Scalar(scalar) if scalar.quoted => "a string",
            Value::Scalar(_) => "a scalar",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }

    /// How many nodes the tree under this one has, itself included.
    pub fn size(&self) -> usize {
        match &self.value {
            Value::Scalar(_) => 1,
            Value::Sequence(items) => 1 + items.iter().map(Node::size).sum::<usize>(),
            Value::Mapping(entries) => 1 + entries.iter().map(|entry| entry.value.size()).sum::<usize>(),
        }
    }

    /// How many levels the tree under this one has, itself included.
    pub fn depth(&self) -> usize {
        match &self.value {
            Value::Scalar(_) => 1,
            Value::Sequence(items) => 1 + items.iter().map(Node::depth).max().unwrap_or(0),
            Value::Mapping(entries) => 1 + entries.iter().map(|entry| entry.value.depth()).max().unwrap_or(0),
        }
    }
}
