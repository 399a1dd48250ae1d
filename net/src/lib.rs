//! The data plane: one pinned core, one runtime, one listener, one shard each.

pub mod bounds;
pub mod http1;
