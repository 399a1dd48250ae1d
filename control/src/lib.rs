//! What changes rarely: configuration, keys, the database, the management listener.

#![forbid(unsafe_code)]

pub mod bounds;
pub mod yaml;
