//! What changes rarely: configuration, keys, the database, the management listener.

#![forbid(unsafe_code)]

pub mod admin;
pub mod arm;
pub mod bounds;
pub mod config;
pub mod keys;
pub mod plane;
pub mod preview;
pub mod secret;
pub mod socket;
pub mod start;
pub mod store;
pub mod yaml;
