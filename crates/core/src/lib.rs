//! The pure heart of Leasehold.
//!
//! Nothing here reads a clock, rolls a die, opens a socket or waits: time ([`Moment`]) and chance
//! are arguments, nodes are reached by whoever drives the rounds. So every run can be replayed,
//! simulated and model-checked with the very code that runs in production.
//!
//! * Words: [`LockName`], [`Holder`], [`Ttl`], [`Fence`], [`Lease`].
//! * One node: [`Row`] has the rules for one lock, [`LockTable`] is what a node does, as a function;
//!   [`Request`] and [`Reply`] are the only words exchanged with it; [`Admission`] decides whether
//!   its answers count, [`Roster`] that no server is counted twice and none whose clock is off the
//!   others'.
//! * Member lists: [`Init`] admits the nodes of a new one, [`Succession`] changes one.
//! * Many nodes: [`Quorum`] counts, [`rounds`] put one question to all nodes.
//! * Time: [`Keeper`] decides when to extend and when a lease is lost, [`wait`] when to ask again,
//!   [`Proposals`] which number to ask for.
//! * Inside one process: [`Handoff`] is a lease on its way to the next waiter.

#[cfg(test)]
mod fuzz;
mod hold;
mod members;
mod node;
mod quorum;
pub mod wait;
mod word;

/// One question put to all nodes, and what their answers amount to.
pub mod rounds {
    pub use crate::quorum::{
        AcquireRound, AcquireSpec, AcquireStep, Ballot, Belief, ExtendRound, ExtendStep,
        ForceRound, ForceStep, LeaseClaim, Refusal, ReleaseRound, ReleaseStep, Vote,
    };
}

pub use hold::{
    AskAs, Chain, Ends, Handoff, Inherited, Keeper, KeeperStep, LocalQueue, LossReason, NextWaiter,
    Reserved, TurnNumber,
};
pub use members::{Init, InitRefusal, MemberList, Side, Succession, SuccessionStep, Told};
pub use node::{
    Admission, AdmissionPolicy, AdmissionStep, Answer, Cause, ClockJump, ClockSample, ClockWatch,
    Facts, Fingerprint, Line, LockTable, MemberName, NO_REPLICATION, NodeError, Origin, Owner,
    Pass, Peers, Record, RecordError, RecordState, Reply, Request, Role, Roster, Row, ServerFacts,
    Sighting, Standing, quarantine,
};
pub use quorum::{Outlook, Proposals, Quorum, Tally};
pub use wait::RetryPolicy;
pub use word::{
    Drift, Fence, Holder, HolderError, LABEL_BYTES_MAX, Lease, LeaseState, LockName, Moment,
    NAME_BYTES_MAX, NameError, TTL_MIN, Ttl, TtlError, WallMicros,
};
