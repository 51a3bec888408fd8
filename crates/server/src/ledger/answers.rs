//! Grants whose answers are on their way, and whether somebody knows of them all the same: a caller that
//! repeated its request, or one that chose the nonce and so knew the lease id before the answer came.
//!
//! A lease that somebody was told of is not given back because another connection broke. So an id is
//! claimed before anything is said of its lease, and either the claim comes first or the giving back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::{Holder, LeaseToken, LockName};

/// All answers on their way.
#[derive(Default)]
pub(super) struct Answers(Mutex<HashMap<Lease, State>>);

type Lease = (LockName, Holder);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    OnItsWay,
    /// Somebody handed the lease id in, or repeated the request.
    Claimed,
    /// The lease is being given back.
    TakenBack,
}

/// One answer on its way. When it is dropped the answer arrived, or its lease was given back.
pub(crate) struct Answer {
    all: Arc<Answers>,
    lease: Lease,
}

impl Answers {
    fn states(&self) -> MutexGuard<'_, HashMap<Lease, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer that tells of this lease is about to go out.
    pub(super) fn begin(self: &Arc<Self>, token: &LeaseToken) -> Answer {
        let lease = (token.name.clone(), token.holder.clone());
        self.states().insert(lease.clone(), State::OnItsWay);
        Answer { all: self.clone(), lease }
    }

    /// Somebody knows of this lease. False if it is being given back.
    pub(super) fn claim(&self, token: &LeaseToken) -> bool {
        let lease = (token.name.clone(), token.holder.clone());
        match self.states().get_mut(&lease) {
            Some(State::TakenBack) => false,
            Some(state) => {
                *state = State::Claimed;
                true
            }
            None => true,
        }
    }
}

impl Answer {
    /// It did not arrive. Whether its lease may be given back; the answer is kept until that is done.
    pub(super) fn take_back(&self) -> bool {
        match self.all.states().get_mut(&self.lease) {
            Some(state) if *state == State::OnItsWay => {
                *state = State::TakenBack;
                true
            }
            _ => false,
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.all.states().remove(&self.lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_given_back_or_told_and_never_both() {
        let answers = Arc::<Answers>::default();
        let token: LeaseToken = format!("lease1:7:30000:h:{:032x}/l", 1).parse().unwrap();
        for is_claimed in [true, false] {
            let answer = answers.begin(&token);
            if is_claimed {
                assert!(answers.claim(&token));
            }
            assert_eq!(answer.take_back(), !is_claimed);
            assert_eq!(answers.claim(&token), is_claimed, "while it is given back");
            drop(answer);
            assert!(answers.claim(&token) && answers.states().is_empty());
        }
    }
}
