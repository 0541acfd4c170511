//! The endpoint over real sockets.

#[path = "../common/mod.rs"]
mod common;
#[path = "../support/mod.rs"]
mod support;

mod binary;
mod client;
mod golden;
mod limits;
mod refusals;
mod streams;
