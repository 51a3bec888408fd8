//! One node of the list and what is known of it: its standing, its round trip, its clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{
    Admission, AdmissionPolicy, ClockSample, Moment, NodeError, Pass, Request, ServerFacts,
    Standing,
};
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::node::Node;

/// A node and its caretaker's notes.
pub(crate) struct Member {
    /// Its number in the list.
    pub(super) index: usize,
    pub(crate) node: Arc<dyn Node>,
    notes: Mutex<Notes>,
    pub(super) examine: Notify,
    examinations: AtomicU64,
    progress: watch::Sender<u64>,
}

/// What the caretaker knows.
pub(crate) struct Notes {
    pub(crate) admission: Admission,
    pub(crate) round_trip: Option<Duration>,
    pub(crate) server: Option<ServerFacts>,
    pub(crate) record: Option<String>,
}

impl Member {
    /// `progress` counts the examinations of all members.
    pub(super) fn new(
        index: usize,
        node: Arc<dyn Node>,
        policy: AdmissionPolicy,
        progress: watch::Sender<u64>,
    ) -> Self {
        let notes = Notes {
            admission: Admission::new(policy, node.id().as_str()),
            round_trip: None,
            server: None,
            record: None,
        };
        Self {
            index,
            node,
            notes: Mutex::new(notes),
            examine: Notify::new(),
            examinations: AtomicU64::new(0),
            progress,
        }
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pass to show to this node, or why it may not vote.
    pub(crate) fn pass(&self, now: impl FnOnce() -> Moment) -> Result<Arc<Pass>, NodeError> {
        let notes = self.notes();
        match notes.admission.standing() {
            Standing::Voting(pass) => Ok(pass.clone()),
            standing => Err(standing
                .objection(now())
                .unwrap_or_else(|| NodeError::not_voting("not voting"))),
        }
    }

    /// The pass to show with `request`.
    pub(crate) fn pass_for(
        &self,
        now: impl FnOnce() -> Moment,
        request: &Request,
    ) -> Result<Arc<Pass>, NodeError> {
        self.notes().admission.pass_for(now, request)
    }

    pub(crate) fn votes(&self, now: Moment) -> bool {
        self.pass(|| now).is_ok()
    }

    pub(crate) fn max_ttl(&self) -> Option<Duration> {
        self.notes().admission.standing().pass().map(|pass| pass.max_ttl)
    }

    /// Has the caretaker look at once.
    pub(crate) fn examine_soon(&self) {
        self.examine.notify_one();
    }

    /// Says whether leases may end earlier than they would have.
    pub(crate) fn observe_clock(&self, sample: ClockSample) -> bool {
        let jump = self.notes().admission.observe_clock(sample);
        if let Some(jump) = jump {
            warn!(node = %self.node.id(), "{jump}");
        }
        jump.is_some_and(|jump| !jump.ahead.is_zero())
    }

    /// How often it was examined.
    pub(crate) fn examinations(&self) -> u64 {
        self.examinations.load(Ordering::Acquire)
    }

    pub(super) fn examined(&self, settle: impl FnOnce(&mut Notes)) {
        settle(&mut self.notes());
        self.examinations.fetch_add(1, Ordering::Release);
        self.progress.send_modify(|count| *count += 1);
    }
}
