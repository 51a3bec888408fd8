//! A lock file with its identity record, and the requests that tests make of it.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::SystemClock;
use leasehold::nodes::sqlite::{SqliteError, SqliteNode};
use leasehold_core::{
    Fence, Fingerprint, Holder, LockName, MemberName, Origin, Record, RecordState, Request, Ttl,
    WallMicros,
};

use crate::asking::ask;

pub(crate) fn open(path: &Path) -> Result<SqliteNode, SqliteError> {
    SqliteNode::open(path, Arc::new(SystemClock))
}

pub(crate) fn record() -> String {
    let record = Record {
        cluster: Fingerprint::of_members(["a"]),
        nodes: 1,
        member: MemberName::of_one(),
        max_ttl: Duration::from_secs(3600),
        life: 1,
        run_id: "run".into(),
        replication_id: "-".into(),
        origin: Origin::First,
        state: RecordState::Admitted,
        floor: Fence::new(100).unwrap(),
        born: WallMicros(0),
        waits: None,
        clocks: Vec::new(),
    };
    record.to_string()
}

/// An open node that has its record.
pub(crate) fn admitted(path: &Path) -> SqliteNode {
    let node = open(path).unwrap();
    let write = Request::ReplaceRecord { expected: None, record: record().into() };
    ask(&node, None, write).unwrap();
    node
}

pub(crate) fn name(lock: &str) -> LockName {
    LockName::new(lock).unwrap()
}

fn holder(nonce: u128) -> Holder {
    Holder::new("h", nonce).unwrap()
}

pub(crate) fn acquire(lock: &str, nonce: u128, proposal: u64, ttl: Duration) -> Request {
    Request::Acquire {
        lock: name(lock),
        holder: holder(nonce),
        proposal: Fence::new(proposal).unwrap(),
        ttl: Ttl::new(ttl).unwrap(),
    }
}

pub(crate) fn release(lock: &str, nonce: u128) -> Request {
    Request::Release { lock: name(lock), holder: holder(nonce) }
}

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Has the write lock until it is dropped.
pub(crate) fn write_lock(path: &Path) -> rusqlite::Connection {
    let blocker = rusqlite::Connection::open(path).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    blocker
}
