//! The map from an identity to its cell, shared by all cores.
//!
//! Found once for each plan, then kept in the plan, so its locks are never on the way of a request. In a test build
//! under shuttle it is one map behind one of shuttle's locks, which is what a shard of the real one is: shuttle must see
//! a lock to run another thread while it is held.
//!
//! Invariant: [`CellMap::retain`] sees each cell within the lock that [`CellMap::find_or_make`] needs to hand it out.

pub(super) use chosen::CellMap;

#[cfg(not(shuttle))]
mod chosen {
    use dashmap::DashMap;

    use crate::cells::Cell;
    use crate::counter_identity::Identity;

    pub(in crate::cells) struct CellMap(DashMap<Identity, Cell, ahash::RandomState>);

    impl CellMap {
        pub(in crate::cells) fn new() -> CellMap {
            CellMap(DashMap::with_hasher(ahash::RandomState::new()))
        }

        /// The identity's cell, made if there is none. Looked up by reference first: the identity is cloned only when
        /// the cell is new.
        pub(in crate::cells) fn find_or_make(
            &self,
            identity: &Identity,
            make: impl FnOnce() -> Cell,
        ) -> Cell {
            if let Some(cell) = self.0.get(identity) {
                return cell.clone();
            }
            self.0.entry(identity.clone()).or_insert_with(make).clone()
        }

        /// Forgets the cells that are not to be kept.
        pub(in crate::cells) fn retain(&self, keep: impl Fn(&Cell) -> bool) {
            self.0.retain(|_, cell| keep(cell));
        }

        /// Shows each cell.
        pub(in crate::cells) fn each(&self, mut look: impl FnMut(&Cell)) {
            self.0.iter().for_each(|entry| look(entry.value()));
        }

        pub(in crate::cells) fn len(&self) -> usize {
            self.0.len()
        }
    }
}

#[cfg(shuttle)]
mod chosen {
    use std::collections::BTreeMap;

    use shuttle::sync::Mutex;

    use crate::cells::Cell;
    use crate::counter_identity::Identity;

    /// In the order of the hash, so that one schedule replayed is one history.
    pub(in crate::cells) struct CellMap(Mutex<BTreeMap<u64, Cell>>);

    impl CellMap {
        pub(in crate::cells) fn new() -> CellMap {
            CellMap(Mutex::new(BTreeMap::new()))
        }

        pub(in crate::cells) fn find_or_make(
            &self,
            identity: &Identity,
            make: impl FnOnce() -> Cell,
        ) -> Cell {
            if let Some(cell) = self.0.lock().unwrap().get(&identity.hash64()) {
                return cell.clone();
            }
            self.0.lock().unwrap().entry(identity.hash64()).or_insert_with(make).clone()
        }

        pub(in crate::cells) fn retain(&self, keep: impl Fn(&Cell) -> bool) {
            self.0.lock().unwrap().retain(|_, cell| keep(cell));
        }

        /// Shows each cell.
        pub(in crate::cells) fn each(&self, look: impl FnMut(&Cell)) {
            self.0.lock().unwrap().values().for_each(look);
        }

        pub(in crate::cells) fn len(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }
}
