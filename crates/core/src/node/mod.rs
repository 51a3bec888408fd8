//! One node: what it does with a request, what it answers, and whether its answers count.

mod admission;
#[cfg(test)]
mod clock_tests;
mod clock_watch;
mod record;
mod reply;
mod request;
mod roster;
mod row;
mod sighting;
mod table;

pub(crate) use admission::no_single_server;
pub use admission::{Admission, AdmissionPolicy, AdmissionStep, Cause, Pass, Standing, quarantine};
pub use clock_watch::{ClockJump, ClockSample, ClockWatch};
pub use record::{Fingerprint, MemberName, Origin, Record, RecordError, RecordState};
pub use reply::{
    Answer, Facts, NO_REPLICATION, NodeError, Owner, Reply, Role, ServerFacts, Sighting,
};
pub use request::Request;
pub use roster::{Line, Peers, Roster};
pub use row::Row;
pub use table::LockTable;
