//! The rules of one lock on one node, which stand here once. [`LockTable`] runs them on its entries and
//! the SQLite node on the row that it read; Lua scripts and the SQL that says yes in one statement are
//! tested to answer alike.
//!
//! A row knows nothing of records: who may ask at all is decided before, by [`Request::may_come_from`].
//!
//! [`LockTable`]: crate::LockTable

use crate::{Fence, Holder, LockName, Moment, Owner, Reply, Request, Sighting, Ttl, WallMicros};

/// What a node remembers of one lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Who owns it, and until when by the node's clock. An owner whose time is over counts as none.
    pub owner: Option<(Owner, Moment)>,
    /// Never decreases; survives expiry and release. An absent one counts as the record's floor.
    pub fence: Option<Fence>,
}

impl Row {
    /// Carries out one request for this lock; a refusal leaves the row as it is. `floor` is the
    /// record's, `clock` the node's.
    ///
    /// A request that is about no lock is not for a row: that is a refusal, too.
    pub fn apply(
        &mut self,
        floor: Fence,
        now: Moment,
        clock: WallMicros,
        request: &Request,
    ) -> Reply {
        let fence = self.fence.unwrap_or(floor);
        match request {
            Request::Acquire { holder, proposal, ttl, .. } => {
                self.acquire(fence, now, holder, *proposal, *ttl)
            }
            Request::Extend { holder, token, next, unbroken: true, ttl, .. } => {
                let is_meant = |fence: &Fence| (token..=next).contains(&fence);
                match self.fence.filter(is_meant).filter(|_| self.is_owned_by(now, holder)) {
                    Some(fence) => self.extend(fence, now, clock, holder, (fence, fence), *ttl),
                    None => Reply::NotHeld { owner: self.owner_at(now).cloned() },
                }
            }
            Request::Extend { holder, token, next, unbroken: false, ttl, .. } => {
                self.extend(fence, now, clock, holder, (*token, *next), *ttl)
            }
            Request::Release { holder, .. } => self.release(now, holder),
            Request::ForceRelease { holder, fence: seen, .. } => {
                self.force_release(fence, now, holder, *seen)
            }
            Request::Inspect { lock } => Reply::Seen(self.sighting(now, lock)),
            Request::List { .. }
            | Request::Probe
            | Request::ReplaceRecord { .. }
            | Request::ForgetIdle { .. } => Reply::Stranger { record: None },
        }
    }

    /// Who owns it at `now`.
    pub fn owner_at(&self, now: Moment) -> Option<&Owner> {
        self.owned_at(now).map(|(owner, _)| owner)
    }

    /// What an onlooker sees of `lock`, whose row this is.
    pub fn sighting(&self, now: Moment, lock: &LockName) -> Sighting {
        let owned = self.owned_at(now);
        Sighting::by_voter(
            lock.clone(),
            owned.map(|(owner, _)| owner.clone()),
            owned.map(|(_, until)| until.since(now)),
            self.fence,
        )
    }

    fn owned_at(&self, now: Moment) -> Option<(&Owner, Moment)> {
        let (owner, until) = self.owner.as_ref()?;
        (*until > now).then_some((owner, *until))
    }

    fn is_owned_by(&self, now: Moment, holder: &Holder) -> bool {
        self.owner_at(now).is_some_and(|owner| owner.is(holder))
    }

    fn acquire(
        &mut self,
        fence: Fence,
        now: Moment,
        holder: &Holder,
        proposal: Fence,
        ttl: Ttl,
    ) -> Reply {
        if let Some(busy) = self.busy(fence, now, holder) {
            return busy;
        }
        // Strictly: a node gives each number at most once, and ownership only together with it.
        if proposal <= fence {
            return Reply::Behind { fence };
        }
        self.fence = Some(proposal);
        self.owner = Some((Owner::Holder(holder.clone()), now.plus(ttl.get())));
        Reply::Granted
    }

    fn extend(
        &mut self,
        fence: Fence,
        now: Moment,
        clock: WallMicros,
        holder: &Holder,
        (token, next): (Fence, Fence),
        ttl: Ttl,
    ) -> Reply {
        if fence > next {
            return Reply::Superseded { fence };
        }
        if let Some(busy) = self.busy(fence, now, holder) {
            return busy;
        }
        let kept = self.owned_at(now).map(|(_, until)| until);
        // An owner wrote the fence itself. Without one, a fence above the token is another's, or
        // the floor of a node that forgot: such a node says nothing for this lease.
        if fence > token && kept.is_none() {
            return Reply::Superseded { fence };
        }
        self.fence = Some(next);
        // Never shorter: if too few nodes take it in, the holder goes by what it was promised before.
        let until = now.plus(ttl.get()).max(kept.unwrap_or_default());
        self.owner = Some((Owner::Holder(holder.clone()), until));
        match kept {
            Some(_) => Reply::Extended { clock },
            None => Reply::Healed { clock },
        }
    }

    fn release(&mut self, now: Moment, holder: &Holder) -> Reply {
        if !self.is_owned_by(now, holder) {
            return Reply::NotHeld { owner: self.owner_at(now).cloned() };
        }
        self.owner = None;
        Reply::Released
    }

    fn force_release(&mut self, fence: Fence, now: Moment, holder: &Holder, seen: Fence) -> Reply {
        // A holder is never used twice: as the owner it is the one that was seen, whatever it has
        // raised the fence to since.
        let is_owner = self.is_owned_by(now, holder);
        if !is_owner && fence > seen {
            return Reply::Superseded { fence };
        }
        let other = self.owner_at(now).filter(|_| !is_owner).cloned();
        if other.is_some() {
            return Reply::NotHeld { owner: other };
        }
        self.fence = Some(fence.max(seen).next());
        self.owner = None;
        if is_owner { Reply::Released } else { Reply::NotHeld { owner: None } }
    }

    fn busy(&self, fence: Fence, now: Moment, asker: &Holder) -> Option<Reply> {
        let (owner, until) = self.owned_at(now).filter(|(owner, _)| !owner.is(asker))?;
        let (owner, expires_in) = (owner.clone(), Some(until.since(now)));
        Some(Reply::busy(owner, expires_in, fence))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Moment = Moment::from_millis(1_000);
    const CLOCK: WallMicros = WallMicros(7);

    fn who(nonce: u128) -> Holder {
        Holder::new("h", nonce).unwrap()
    }

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    /// Nobody, two of ours and another library's, each with its end before, at and after now.
    fn rows() -> Vec<Row> {
        let ours = [1, 2].map(|nonce| Owner::Holder(who(nonce)));
        let other = Owner::OtherLibrary { value: "x".into() };
        let ends = [999, 1_000, 1_001, 1_500].map(Moment::from_millis);
        let owners = ours.into_iter().chain([other]);
        let owned = owners.flat_map(|owner| ends.map(|end| Some((owner.clone(), end))));
        let fences = [None, Some(1), Some(2), Some(3), Some(4)];
        let with_fence = |owner: Option<(Owner, Moment)>| {
            fences.map(|number| Row { owner: owner.clone(), fence: number.map(fence) })
        };
        owned.chain([None]).flat_map(with_fence).collect()
    }

    /// All that the first holder can ask of a lock, with numbers of up to five.
    fn requests() -> Vec<Request> {
        let (lock, holder) = (LockName::new("l").unwrap(), who(1));
        let ttl = Ttl::new(Duration::from_millis(100)).unwrap();
        let mut requests = vec![
            Request::Inspect { lock: lock.clone() },
            Request::Release { lock: lock.clone(), holder: holder.clone() },
        ];
        for one in (0..=5).map(fence) {
            let (lock, holder) = (lock.clone(), holder.clone());
            requests.push(Request::Acquire {
                lock: lock.clone(),
                holder: holder.clone(),
                proposal: one,
                ttl,
            });
            for next in (0..=5).map(fence) {
                for unbroken in [false, true] {
                    let (lock, holder) = (lock.clone(), holder.clone());
                    requests.push(Request::Extend {
                        lock,
                        holder,
                        token: one,
                        next,
                        unbroken,
                        ttl,
                    });
                }
            }
            requests.push(Request::ForceRelease { lock, holder, fence: one, reason: None });
        }
        requests
    }

    /// Each request to each row: before, the request, the reply, after.
    fn all() -> impl Iterator<Item = (Row, Fence, Request, Reply, Row)> {
        let floors = [0, 3].map(fence);
        rows().into_iter().flat_map(move |before| {
            floors.into_iter().flat_map(move |floor| {
                let before = before.clone();
                requests().into_iter().map(move |request| {
                    let mut after = before.clone();
                    let reply = after.apply(floor, NOW, CLOCK, &request);
                    (before.clone(), floor, request, reply, after)
                })
            })
        })
    }

    #[test]
    fn a_refusal_and_a_look_write_nothing() {
        let mut refused = 0;
        for (before, _, request, reply, after) in all() {
            let is_forced = matches!(request, Request::ForceRelease { .. });
            let writes = match &reply {
                Reply::Granted
                | Reply::Extended { .. }
                | Reply::Healed { .. }
                | Reply::Released => true,
                Reply::NotHeld { owner: None } => is_forced,
                _ => false,
            };
            if !writes {
                assert_eq!(before, after, "{request:?} {reply:?}");
                refused += 1;
            }
        }
        assert!(refused > 1_000, "{refused}");
    }

    #[test]
    fn a_fence_never_goes_down_and_a_grant_raises_it() {
        for (before, floor, request, reply, after) in all() {
            assert!(after.fence >= before.fence, "{before:?} {request:?}");
            if reply == Reply::Granted {
                assert!(
                    after.fence > Some(before.fence.unwrap_or(floor)),
                    "{before:?} {request:?}"
                );
            }
        }
    }

    #[test]
    fn nothing_but_a_release_takes_time_from_an_owner_and_nobody_takes_anothers_lock() {
        for (before, _, request, reply, after) in all() {
            let Some((owner, until)) = before.owned_at(NOW) else { continue };
            match (after.owned_at(NOW), &request) {
                (Some((by, end)), Request::Acquire { .. }) if by == owner => {
                    assert!(end >= until || reply == Reply::Granted, "{before:?} {request:?}");
                }
                (Some((by, end)), _) => {
                    assert_eq!(by, owner, "{before:?} {request:?}");
                    assert!(end >= until, "{before:?} {request:?}");
                }
                (None, _) => {
                    assert_eq!(reply, Reply::Released, "{before:?} {request:?}");
                    assert!(owner.is(&who(1)), "{before:?} {request:?}");
                }
            }
        }
    }

    #[test]
    fn a_request_about_no_lock_is_refused() {
        for request in [Request::Probe, Request::List { prefix: String::new() }] {
            let mut row = Row::default();
            let reply = row.apply(Fence::ZERO, NOW, CLOCK, &request);
            assert_eq!((reply, row), (Reply::Stranger { record: None }, Row::default()));
        }
    }
}
