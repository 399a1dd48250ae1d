//! What changes rarely: configuration, keys, the database, the management listener.
//!
//! Reading order: [`yaml`] and [`config`] turn a file into a [`config::Config`] or into every error that it has;
//! [`store`] is `governance.db`; [`arm`] folds both into a ruleset; [`start`] does all of it for `serve`; [`plane`] is
//! what runs beside the data plane: the management listener ([`admin`]), the control socket ([`socket`]), the watch on
//! the config file ([`watch`]) and the writer of what the cores report. [`management`] is what is in force and every way
//! to change it. [`names`] is where backends are. [`keys`] and [`preview`] are what the command's verbs call. All bounds are in [`bounds`].
//!
//! Nothing here is ever waited for by a request: what the data plane needs is published to it as a whole.

#![forbid(unsafe_code)]

pub mod admin;
pub mod arm;
pub mod bounds;
pub mod config;
pub mod keys;
pub mod management;
pub mod metrics;
pub mod names;
pub mod plane;
pub mod preview;
pub mod secret;
pub mod socket;
pub mod start;
pub mod store;
pub mod usage;
pub mod watch;
mod writer;
pub mod yaml;
