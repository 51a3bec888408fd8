//! The lock table behind a mutex: for one process, and for tests.

mod lines;

use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{
    Facts, LockName, LockTable, NO_REPLICATION, NodeError, Reply, Request, Role, ServerFacts,
};
use tokio::sync::watch;

use self::lines::Lines;
use crate::clock::Clock;
use crate::node::{Ask, Node, NodeId, OnNudge, OnPlace, OnWatched, Place, Ticket, Watch};

/// A node that lives and dies with this process.
#[derive(Debug)]
pub struct MemoryNode {
    id: NodeId,
    run_id: String,
    clock: Arc<dyn Clock>,
    table: Mutex<LockTable>,
    lines: Lines,
    generation: watch::Sender<u64>,
}

impl MemoryNode {
    /// An empty node called `id`.
    pub fn new(id: NodeId, clock: Arc<dyn Clock>) -> Self {
        Self {
            id,
            run_id: format!("{:032x}", crate::chance::nonce()),
            clock,
            table: Mutex::default(),
            lines: Lines::default(),
            generation: watch::Sender::new(1),
        }
    }
}

impl Node for MemoryNode {
    fn id(&self) -> &NodeId {
        &self.id
    }

    fn ask(&self, ask: Ask) {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let identity = ask.pass.as_ref().map(|pass| &*pass.record);
        // Poisoned only if the table panicked half-way; what it holds can then not be trusted.
        let Ok(mut table) = self.table.lock() else {
            let reason = "the lock table panicked earlier".to_owned();
            return ask.reply_to.answer(Err(NodeError::Rejected { reason }));
        };
        let reply = match &*ask.request {
            Request::Probe => Reply::Facts(Box::new(Facts {
                generation: 1,
                clock: wall,
                record: table.record().map(str::to_owned),
                highest: table.highest(),
                has_spent: table.has_spent(),
                server: ServerFacts {
                    version: format!("memory {}", env!("CARGO_PKG_VERSION")),
                    run_id: self.run_id.clone(),
                    replication_id: NO_REPLICATION.to_owned(),
                    role: Role::Primary,
                    evicts: None,
                    persists: false,
                    expires_by_wall: false,
                },
                others: Vec::new(),
                unmet: 0,
                addresses: 1,
            })),
            request => table.apply(now, wall, identity, request),
        };
        drop(table);
        if let (Reply::Released, Some(lock)) = (&reply, ask.request.lock()) {
            self.lines.freed(lock);
        }
        ask.reply_to.answer(Ok(reply));
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    fn watch(&self, lock: &LockName, told: OnWatched) -> Option<Watch> {
        let watch = self.lines.watch(lock, told);
        let now = self.clock.now();
        let is_free = self.table.lock().is_ok_and(|table| table.owner(now, lock).is_none());
        if is_free {
            self.lines.freed(lock);
        }
        Some(Box::new(watch))
    }

    fn stand_in_line(
        &self,
        lock: &LockName,
        ticket: Option<Ticket>,
        told: OnPlace,
    ) -> Option<Box<dyn Place>> {
        Some(Box::new(self.lines.enter(lock, ticket, told)))
    }

    fn on_nudge(&self, told: OnNudge) {
        self.lines.on_nudge(told);
    }
}

impl MemoryNode {
    /// Forgets everything, as a server without a disk does when it restarts.
    pub fn forget(&self) {
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = LockTable::new();
    }
}
