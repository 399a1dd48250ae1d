//! The tenancy tree: node ids, the chain of one request, and which nodes exist.
//!
//! A node id is one or more `<kind>:<id>` segments joined by `/`. Ids are taken as given: a mistyped or out-of-charset
//! owner yields a chain whose prefixes are simply not in the tree. The charset is looked at only where a delegated admin
//! is authorised ([`NodeId::in_charset`], before [`NodeId::covers`]).
//!
//! Invariants: a chain goes deepest first, every entry but the last is a proper extension of the next, the last is
//! `__global`; `__global` is never in a [`Tree`]; the nodes of a level are in lexical order.

use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use ahash::AHashSet;

/// The synthetic root's name.
pub const GLOBAL: &str = "__global";

/// The id of a tenancy node, such as `org:acme/team:ml`. Cheap to clone.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// The id spelt so, taken as given.
    #[must_use]
    pub fn new(text: &str) -> NodeId {
        if text == GLOBAL { NodeId::global() } else { NodeId(text.into()) }
    }

    /// `__global`, where every chain ends.
    #[must_use]
    pub fn global() -> NodeId {
        static ROOT: LazyLock<NodeId> = LazyLock::new(|| NodeId(GLOBAL.into()));
        ROOT.clone()
    }

    /// Whether this is `__global`.
    #[must_use]
    pub fn is_global(&self) -> bool {
        &*self.0 == GLOBAL
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number of segments, at most 255; 0 for `__global`.
    #[must_use]
    pub fn depth(&self) -> u8 {
        if self.is_global() {
            return 0;
        }
        let separators = self.0.bytes().filter(|byte| *byte == b'/').count();
        u8::try_from(separators + 1).unwrap_or(u8::MAX)
    }

    /// The level that the last segment's kind names; `None` for any other kind.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        if self.is_global() {
            return Some(Level::Global);
        }
        let (kind, _) = self.last_segment().split_once(':')?;
        // `global:x` is a segment of an unknown kind, not the root.
        Level::parse(kind).filter(|level| *level != Level::Global)
    }

    fn last_segment(&self) -> &str {
        let separator = self.0.bytes().rposition(|byte| byte == b'/');
        separator.map_or(&*self.0, |at| &self.0[at + 1..])
    }

    /// Whether every segment is lowercase letters, `:`, then lowercase letters, digits, `-` and `_`. `__global` is not.
    #[must_use]
    pub fn in_charset(&self) -> bool {
        self.0.split('/').all(|segment| {
            let Some((kind, id)) = segment.split_once(':') else { return false };
            let id_byte = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
            !kind.is_empty()
                && kind.bytes().all(|b| b.is_ascii_lowercase())
                && !id.is_empty()
                && id.bytes().all(id_byte)
        })
    }

    /// The node one segment up; `__global` above a single segment, and nothing above `__global`.
    #[must_use]
    pub fn parent(&self) -> Option<NodeId> {
        if self.is_global() {
            return None;
        }
        Some(self.0.rsplit_once('/').map_or_else(NodeId::global, |(above, _)| NodeId::new(above)))
    }

    /// Whether `other` is this node or lies below it, compared segment by segment: `org:a` does not cover `org:ab`.
    /// Where authority depends on it, check [`NodeId::in_charset`] of both first.
    #[must_use]
    pub fn covers(&self, other: &NodeId) -> bool {
        self.is_global()
            || other.0.strip_prefix(&*self.0).is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }

    /// The leaf of a key held at this node: `<node>/key:<kid>`.
    #[must_use]
    pub fn key_leaf(&self, kid: &str) -> NodeId {
        NodeId(format!("{}/key:{kid}", self.0).into())
    }
}

impl Borrow<str> for NodeId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", &*self.0)
    }
}

/// A level that a template attaches at.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Level {
    /// The root; no tree node is ever at it.
    Global,
    /// An organisation.
    Org,
    /// A team.
    Team,
    /// A user.
    User,
    /// A virtual key; in the tree only with `governance.key_nodes`.
    Key,
}

impl Level {
    /// All levels, from the root down.
    pub const ALL: [Level; 5] = [Level::Global, Level::Org, Level::Team, Level::User, Level::Key];

    /// The word in the config, which is also the kind of a segment.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Level::Global => "global",
            Level::Org => "org",
            Level::Team => "team",
            Level::User => "user",
            Level::Key => "key",
        }
    }

    /// The level of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Level> {
        Self::ALL.into_iter().find(|level| level.name() == text)
    }

    /// Its place in a table of levels, 0 to 4.
    pub(crate) const fn slot(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The nodes one request is counted through, deepest first, ending at `__global`. Cheap to clone.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Chain {
    nodes: Arc<[NodeId]>,
    /// Whether the first of several nodes is a key.
    begins_with_key: bool,
}

impl Chain {
    /// The chain of a key: its leaf, the cumulative prefixes of its owner, `__global`.
    #[must_use]
    pub fn of_key(owner: &NodeId, kid: &str) -> Chain {
        let leaf = owner.key_leaf(kid);
        Self::above(vec![leaf], owner)
    }

    /// The chain of a node without a key: its cumulative prefixes, `__global`.
    #[must_use]
    pub fn of_node(node: &NodeId) -> Chain {
        Self::above(Vec::new(), node)
    }

    /// The chain of traffic without a key: `__global` alone.
    #[must_use]
    pub fn anonymous() -> Chain {
        static ANONYMOUS: LazyLock<Chain> = LazyLock::new(|| Chain::of_node(&NodeId::global()));
        ANONYMOUS.clone()
    }

    fn above(mut nodes: Vec<NodeId>, node: &NodeId) -> Chain {
        let mut next = Some(node.clone());
        while let Some(node) = next {
            next = node.parent();
            nodes.push(node);
        }
        let begins_with_key = nodes.len() > 1 && nodes[0].level() == Some(Level::Key);
        Chain { nodes: nodes.into(), begins_with_key }
    }

    /// Its nodes, deepest first.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Whether the first node is a key, with others above it.
    #[must_use]
    pub fn begins_with_key(&self) -> bool {
        self.begins_with_key
    }
}

/// The nodes that exist. Templates fan out over them, and a pinned limit must name one of them.
#[derive(Default, Debug)]
pub struct Tree {
    nodes: AHashSet<NodeId>,
    /// By [`Level::slot`], each in lexical order.
    levels: [Vec<NodeId>; 5],
}

impl Tree {
    /// The tree of these nodes. A node given twice is one node; `__global` is dropped, for it is no tree node.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = NodeId>) -> Tree {
        let nodes: AHashSet<NodeId> = nodes.into_iter().filter(|node| !node.is_global()).collect();
        let mut levels = <[Vec<NodeId>; 5]>::default();
        for node in &nodes {
            if let Some(level) = node.level() {
                levels[level.slot()].push(node.clone());
            }
        }
        for level in &mut levels {
            level.sort_unstable();
        }
        Tree { nodes, levels }
    }

    /// Whether the node exists.
    #[must_use]
    pub fn contains(&self, node: &NodeId) -> bool {
        self.nodes.contains(node)
    }

    /// The nodes at a level, in lexical order.
    #[must_use]
    pub fn nodes_at(&self, level: Level) -> &[NodeId] {
        &self.levels[level.slot()]
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(chain: &Chain) -> Vec<&str> {
        chain.nodes().iter().map(NodeId::as_str).collect()
    }

    #[test]
    fn the_chain_of_a_key_is_leaf_prefixes_global() {
        let check = |owner: &str, wanted: &[&str]| {
            assert_eq!(texts(&Chain::of_key(&NodeId::new(owner), "vk_1")), wanted);
            assert_eq!(texts(&Chain::of_node(&NodeId::new(owner))), wanted[1..]);
        };
        check(
            "org:acme/team:ml/user:dev1",
            &[
                "org:acme/team:ml/user:dev1/key:vk_1",
                "org:acme/team:ml/user:dev1",
                "org:acme/team:ml",
                "org:acme",
                "__global",
            ],
        );
        check("org:Acme X", &["org:Acme X/key:vk_1", "org:Acme X", "__global"]);
        check("org:a/../b", &["org:a/../b/key:vk_1", "org:a/../b", "org:a/..", "org:a", "__global"]);
        check("__global", &["__global/key:vk_1", "__global"]);
        assert_eq!(texts(&Chain::anonymous()), ["__global"]);
        for chain in [Chain::of_key(&NodeId::new(""), "k"), Chain::of_node(&NodeId::new("//"))] {
            assert_eq!(texts(&chain).last(), Some(&"__global"), "strange owners still end at the root");
        }
    }

    #[test]
    fn depth_level_and_parent_follow_the_segments() {
        for (text, depth, level, parent) in [
            ("__global", 0, Some(Level::Global), None),
            ("org:acme", 1, Some(Level::Org), Some("__global")),
            ("org:acme/team:ml", 2, Some(Level::Team), Some("org:acme")),
            ("org:acme/user:x", 2, Some(Level::User), Some("org:acme")),
            ("org:acme/team:ml/user:d/key:vk_A", 4, Some(Level::Key), Some("org:acme/team:ml/user:d")),
            ("global:x", 1, None, Some("__global")),
            ("Org:acme", 1, None, Some("__global")),
            ("org", 1, None, Some("__global")),
            ("org:acme/", 2, None, Some("org:acme")),
        ] {
            let node = NodeId::new(text);
            assert_eq!((node.depth(), node.level()), (depth, level), "{text}");
            assert_eq!(node.parent(), parent.map(NodeId::new), "{text}");
        }
        assert_eq!(NodeId::new(&"a:b/".repeat(400)).depth(), 255);
    }

    #[test]
    fn the_charset_is_lowercase_segments() {
        for good in ["org:acme", "org:a-b_9/team:x", "region:eu"] {
            assert!(NodeId::new(good).in_charset(), "{good}");
        }
        for bad in [
            "",
            "__global",
            "org:",
            ":a",
            "org",
            "org:Acme",
            "Org:acme",
            "org:a b",
            "org:acme/..",
            "org:acme/../org:evil",
            "org:a/",
            "/org:a",
            "org:a//team:b",
            "org:a:b",
            "org:\u{e4}",
            "o1:a",
        ] {
            assert!(!NodeId::new(bad).in_charset(), "{bad}");
        }
    }

    #[test]
    fn covering_goes_by_segments() {
        let covers = |above: &str, below: &str| NodeId::new(above).covers(&NodeId::new(below));
        assert!(covers("org:a", "org:a"));
        assert!(covers("org:a", "org:a/team:b"));
        assert!(covers("__global", "org:a"));
        assert!(!covers("org:a", "org:ab"));
        assert!(!covers("org:a/team:b", "org:a"));
        assert!(!covers("org:a", "__global"));
    }

    #[test]
    fn a_tree_lists_each_level_once_in_lexical_order() {
        let ids =
            ["org:b", "org:a/team:x", "org:a", "org:a", "__global", "region:eu", "org:a-b", "org:a/team:w"];
        let tree = Tree::new(ids.map(NodeId::new));
        let at = |level| tree.nodes_at(level).iter().map(NodeId::as_str).collect::<Vec<_>>();
        assert_eq!(at(Level::Org), ["org:a", "org:a-b", "org:b"]);
        assert_eq!(at(Level::Team), ["org:a/team:w", "org:a/team:x"]);
        assert_eq!(at(Level::Global), [""; 0]);
        assert_eq!(tree.len(), 6);
        assert!(tree.contains(&NodeId::new("region:eu")) && !tree.contains(&NodeId::global()));
        assert!(Tree::default().is_empty());
    }
}
