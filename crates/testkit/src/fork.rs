//! A real `fork()`, for programs that must not be unsafe: a preloaded library does it.

use std::fs;
use std::io;
use std::process::Command;

use crate::preload::{library, preload};

const SOURCE: &str = include_str!("fork_shim.c");

/// Has `program` be able to [`fork`].
pub fn can_fork(program: &mut Command) {
    preload(program, &library("fork-shim", SOURCE));
}

/// Forks this process, with the thread that calls: the child's process id, or 0 in the child. Fails
/// where the process was not made ready by [`can_fork`].
pub fn fork() -> io::Result<i32> {
    let said = fs::read_link("/leasehold/fork")?;
    let number = said.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("not a process id: {}", said.display())))
}
