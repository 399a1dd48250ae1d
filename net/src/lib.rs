//! The data plane: one pinned core, one runtime, one listener, one shard each.

pub mod answer;
pub mod bounds;
pub mod endpoint;
pub mod http1;
pub mod identity;
pub mod json;
pub mod usage;
