//! Downloads over real sockets, from a hub of our own that misbehaves where it is told to.

#[path = "../support/hub/mod.rs"]
mod hub;

mod bench;
mod catalogue;
mod disk;
mod gates;
mod jobs;
mod killed;
mod listing;
mod network;
mod proof;
mod snapshots;
mod transfer;
