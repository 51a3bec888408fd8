//! What must be so, one promise a file. An invariant sees everything that happens in true time, and
//! knows nothing of how the core works.

mod counted_once;
mod exclusion;
mod fences;
mod gives_back;
mod noticed;
mod own_release;
mod quorum_grants;
mod remembers;
mod served;
mod superseded;

use crate::clock::Time;
use crate::history::Invariant;

/// All of them. `quorum` is that of the member list, `memory` how long a server that forgot must not
/// be counted.
pub fn all(quorum: usize, holders: usize, memory: Time) -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(exclusion::Exclusion::default()),
        Box::new(fences::Fences::default()),
        Box::new(superseded::Superseded::default()),
        Box::new(own_release::OwnRelease),
        Box::new(noticed::Noticed::default()),
        Box::new(quorum_grants::QuorumGrants::new(quorum)),
        Box::new(remembers::Remembers(memory)),
        Box::new(counted_once::CountedOnce),
        Box::new(served::Served::new(holders)),
        Box::new(gives_back::GivesBack),
    ]
}
