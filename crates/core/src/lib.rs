//! The pure heart of Leasehold.
//!
//! Nothing here reads a clock, rolls a die, opens a socket or waits: time ([`Moment`]) and chance
//! are arguments, nodes are reached by whoever drives the rounds. So every run can be replayed,
//! simulated and model-checked with the very code that runs in production.
//!
//! * Words: [`LockName`], [`Holder`], [`Ttl`], [`Fence`], [`Lease`].
//! * One node: [`LockTable`] is what a node does, as a function; [`Request`] and [`Reply`] are the
//!   only words exchanged with it; [`Admission`] decides whether its answers count, [`Roster`] that
//!   no server is counted twice and none whose clock is off the others'.
//! * Member lists: [`Init`] admits the nodes of a new one, [`Succession`] changes one.
//! * Many nodes: [`Quorum`] counts, [`rounds`] put one question to all nodes.
//! * Time: [`Keeper`] decides when to extend and when a lease is lost, [`wait`] when to ask again,
//!   [`Proposals`] which number to ask for.

mod admission;
#[cfg(test)]
mod clock_tests;
mod clock_watch;
mod ends;
mod fence;
#[cfg(test)]
mod fuzz;
mod holder;
mod keeper;
mod lease;
mod lock_table;
mod members;
mod message;
mod name;
mod proposals;
mod quorum;
mod record;
mod roster;
pub mod rounds;
mod time;
pub mod wait;

pub use admission::{Admission, AdmissionPolicy, AdmissionStep, Cause, Pass, Standing, quarantine};
pub use clock_watch::{ClockJump, ClockSample, ClockWatch};
pub use ends::Ends;
pub use fence::Fence;
pub use holder::{Holder, HolderError, LABEL_BYTES_MAX};
pub use keeper::{Keeper, KeeperStep, LossReason};
pub use lease::{Lease, LeaseState};
pub use lock_table::LockTable;
pub use members::{Init, InitRefusal, MemberList, Side, Succession, SuccessionStep, Told};
pub use message::{
    Answer, Facts, NO_REPLICATION, NodeError, Owner, Reply, Request, Role, ServerFacts, Sighting,
    WallMicros,
};
pub use name::{LockName, NAME_BYTES_MAX, NameError};
pub use proposals::{Outlook, Proposals};
pub use quorum::{Quorum, Tally};
pub use record::{Fingerprint, MemberName, Origin, Record, RecordError, RecordState};
pub use roster::{Line, Peers, Roster};
pub use time::{Drift, Moment, TTL_MIN, Ttl, TtlError};
pub use wait::RetryPolicy;
