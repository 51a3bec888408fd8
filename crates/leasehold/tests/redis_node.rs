//! The Redis node against real servers, well and unwell.
#![cfg(feature = "redis")]

#[path = "redis_node/access.rs"]
mod access;
#[path = "redis_node/connection.rs"]
mod connection;
#[path = "redis_node/replies.rs"]
mod replies;
#[path = "redis_node/support.rs"]
mod support;
