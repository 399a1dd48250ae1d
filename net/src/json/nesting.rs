//! The containers that are open in a document: one bit each, and no recursion.
//!
//! The innermost 64 are one word. Whole words of those around them are kept aside, which only a document that is nested
//! deeper than any real one needs, so that a scanner is small to make and to move.

use crate::bounds::MAX_JSON_DEPTH;

/// The open containers.
#[derive(Clone, Debug, Default)]
pub struct Nesting {
    depth: usize,
    /// The innermost in bit 0; set: an object. None when nothing is open.
    kinds: u64,
    /// Full words of the containers further out; at most `MAX_JSON_DEPTH / 64`.
    outer: Vec<u64>,
}

/// One container more would be deeper than [`MAX_JSON_DEPTH`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooDeep;

impl Nesting {
    /// How many are open.
    #[inline]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Whether the innermost is an object.
    #[inline]
    pub fn in_object(&self) -> bool {
        self.kinds & 1 == 1
    }

    /// Whether the innermost is an array.
    #[inline]
    pub fn in_array(&self) -> bool {
        self.depth > 0 && !self.in_object()
    }

    /// An object or an array begins.
    ///
    /// # Errors
    ///
    /// [`TooDeep`], and nothing is opened.
    #[inline]
    pub fn open(&mut self, object: bool) -> Result<(), TooDeep> {
        if self.depth == MAX_JSON_DEPTH {
            return Err(TooDeep);
        }
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.put_aside();
        }
        self.kinds = self.kinds << 1 | u64::from(object);
        self.depth += 1;
        Ok(())
    }

    #[cold]
    fn put_aside(&mut self) {
        self.outer.push(std::mem::take(&mut self.kinds));
    }

    /// The innermost ends; there is one.
    #[inline]
    pub fn close(&mut self) {
        self.depth -= 1;
        self.kinds >>= 1;
        if self.depth.is_multiple_of(64) {
            self.kinds = self.outer.pop().unwrap_or(0);
        }
    }

    /// Nothing is open any more.
    pub fn clear(&mut self) {
        self.depth = 0;
        self.kinds = 0;
        self.outer.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_remembered_to_the_deepest_container() {
        for is_object in [
            |_| true,
            |_| false,
            |depth: usize| depth.is_multiple_of(2),
            |depth: usize| depth.is_multiple_of(3),
            |depth: usize| (depth / 64).is_multiple_of(2),
        ] {
            let mut nesting = Nesting::default();
            let check = |nesting: &Nesting, depth: usize| {
                assert_eq!(nesting.depth(), depth);
                let innermost = depth.checked_sub(1).map(is_object);
                assert_eq!(
                    (nesting.in_object(), nesting.in_array()),
                    (innermost == Some(true), innermost == Some(false)),
                    "{depth}"
                );
            };
            for depth in 0..MAX_JSON_DEPTH {
                check(&nesting, depth);
                assert_eq!(nesting.open(is_object(depth)), Ok(()));
            }
            assert_eq!(nesting.open(true), Err(TooDeep));
            for depth in (0..MAX_JSON_DEPTH).rev() {
                check(&nesting, depth + 1);
                nesting.close();
            }
            check(&nesting, 0);
            for depth in 0..200 {
                assert_eq!(nesting.open(is_object(depth)), Ok(()));
            }
            nesting.clear();
            check(&nesting, 0);
        }
    }
}
