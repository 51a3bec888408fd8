//! What may still be told of a look when its answers are put together. A slow node can hold up the
//! others' answers, and meanwhile what they say can stop being true.

use crate::{Drift, Lease, Moment, Sighting};

impl Sighting {
    /// What may be told of it at `now`, if its node was asked at `asked_at`. What is left counts from
    /// the question, as for a lease; an owner that can have expired since then is not told.
    #[must_use]
    pub fn told_at(mut self, now: Moment, asked_at: Moment, drift: Drift) -> Self {
        if let Some(left) = self.expires_in {
            let left = Lease::end(asked_at, left, drift).since(now);
            let can_be_over = left.is_zero();
            self.owner = self.owner.filter(|_| !can_be_over);
            self.expires_in = Some(left).filter(|_| !can_be_over);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Fence, Holder, LockName, Owner};

    const ASKED: Moment = Moment::from_millis(1_000);

    fn seen(left: Option<u64>) -> Sighting {
        Sighting {
            lock: LockName::new("l").unwrap(),
            owner: Some(Owner::Holder(Holder::new("ana", 1).unwrap())),
            expires_in: left.map(Duration::from_millis),
            fence: Fence::new(5),
            since: None,
        }
    }

    #[test]
    fn what_is_left_at_a_look_counts_from_the_question_less_the_drift() {
        let told = |after| {
            let now = ASKED.plus(Duration::from_millis(after));
            seen(Some(1_000)).told_at(now, ASKED, Drift::DEFAULT).expires_in
        };
        assert_eq!(told(0), Some(Duration::from_millis(988)));
        assert_eq!(told(900), Some(Duration::from_millis(88)));
        assert_eq!(told(987), Some(Duration::from_millis(1)));
    }

    #[test]
    fn an_owner_that_can_have_expired_since_the_question_is_not_told() {
        let at = |after, seen: Sighting| {
            seen.told_at(ASKED.plus(Duration::from_millis(after)), ASKED, Drift::DEFAULT)
        };
        assert!(at(294, seen(Some(300))).owner.is_some());
        for (after, left) in [(295, 300), (900, 300), (0, 2), (0, 0)] {
            let told = at(after, seen(Some(left)));
            assert_eq!((told.owner, told.expires_in), (None, None), "{left} ms after {after}");
            assert_eq!(told.fence, Fence::new(5), "a fence stays");
        }
        assert_eq!(at(900_000, seen(None)), seen(None), "what never expires is not over");
    }
}
