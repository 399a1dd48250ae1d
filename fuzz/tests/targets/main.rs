//! Every place where bytes from outside are first read. What each promises beside not to panic stands at the target.

mod configuration;
mod requests;
mod responses;
mod storage;
