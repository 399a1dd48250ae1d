//! What of a document is of interest: a static tree of names, with what it takes to find one made when it is compiled.

use super::names::{Names, same};
use crate::bounds::MAX_NUMBER_BYTES;

/// Bytes of a name or a number that are kept between two pieces. Longer names are of no interest.
pub(super) const KEPT_BYTES: usize = MAX_NUMBER_BYTES;

/// A node of the tree of names that are of interest.
#[derive(Debug)]
pub struct Watch {
    /// Reported when the value here is a number, a string, an object or an empty array.
    pub(super) slot: Option<u8>,
    /// Below an object: names and their nodes.
    members: &'static [(&'static str, &'static Watch)],
    /// Where in `members` a name would be.
    names: Names,
    /// Below an array: the node of every element.
    elements: Option<&'static Watch>,
}

/// Of no interest, and nothing below it.
pub(super) static NOTHING: Watch = Watch::new(None, &[], None);

impl Watch {
    /// Names of one object.
    const MOST_MEMBERS: usize = 16;

    /// A node: `slot` is reported when the value here is a number, a string, an object or an empty array; `members` are the
    /// names of interest below an object, `elements` is the node of every element of an array.
    ///
    /// # Panics
    ///
    /// While it is compiled, when there are too many names or [`Names`] cannot keep them apart.
    pub const fn new(
        slot: Option<u8>,
        members: &'static [(&'static str, &'static Watch)],
        elements: Option<&'static Watch>,
    ) -> Watch {
        assert!(members.len() <= Watch::MOST_MEMBERS, "too many names in one object");
        let mut names = [""; Watch::MOST_MEMBERS];
        let mut at = 0;
        while at < members.len() {
            names[at] = members[at].0;
            assert!(names[at].len() <= KEPT_BYTES, "a name that is too long to be found in pieces");
            at += 1;
        }
        Watch { slot, members, names: Names::of(names.split_at(members.len()).0), elements }
    }

    /// The node of the member of that name.
    #[inline(always)]
    pub(super) fn member(&self, name: &[u8]) -> &'static Watch {
        match self.names.candidate(name).and_then(|index| self.members.get(index)) {
            Some((known, watch)) if same(known.as_bytes(), name) => watch,
            _ => &NOTHING,
        }
    }

    #[inline]
    pub(super) fn element(&self) -> &'static Watch {
        self.elements.unwrap_or(&NOTHING)
    }
}
