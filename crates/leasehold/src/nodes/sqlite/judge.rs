//! What the answer is, given what stands in the file: the rules of [`leasehold_core::LockTable`]
//! for one lock. Nothing here reads or writes.

use std::time::{Duration, Instant};

use leasehold_core::{Fence, LockName, Moment, Owner, Reply, Request, Sighting, WallMicros};

/// One request, and what it needs to be carried out.
pub(super) struct Step<'a> {
    pub(super) request: &'a Request,
    pub(super) identity: Option<&'a str>,
    /// Until when other processes are waited for.
    pub(super) until: Instant,
}

/// The record and one lock, at one moment.
pub(super) struct Look {
    pub(super) record: Option<String>,
    pub(super) floor: Fence,
    /// Who owns it and has not expired.
    pub(super) owner: Option<(String, Moment)>,
    pub(super) fence: Option<Fence>,
}

/// What shall stand in a lock's row.
pub(super) struct Write {
    pub(super) owner: Option<(String, Moment, Duration)>,
    pub(super) fence: Fence,
}

impl Look {
    /// The answer, and what it takes to make it true. Nothing for a refusal.
    pub(super) fn judge(
        self,
        now: Moment,
        clock: WallMicros,
        step: &Step<'_>,
    ) -> (Reply, Option<Write>) {
        if step.request.needs_identity()
            && (step.identity.is_none() || step.identity != self.record.as_deref())
        {
            return (Reply::Stranger { record: self.record }, None);
        }
        let fence = self.fence.unwrap_or(self.floor);
        match step.request {
            Request::Acquire { holder, proposal, ttl, .. } => {
                if let Some(busy) = self.busy(now, holder.as_str(), fence) {
                    return (busy, None);
                }
                // Strictly: a node gives each number at most once.
                if *proposal <= fence {
                    return (Reply::Behind { fence }, None);
                }
                (Reply::Granted, Some(Write::owned(now, holder.as_str(), ttl.get(), *proposal)))
            }
            Request::Extend { holder, token, next, unbroken: true, ttl, .. } => {
                let is_meant = (token..=next).contains(&&fence) && self.fence.is_some();
                match self.owner {
                    Some((owner, until)) if owner == holder.as_str() && is_meant => {
                        let ttl = ttl.get().max(until.since(now));
                        let write = Write::owned(now, holder.as_str(), ttl, fence);
                        (Reply::Extended { clock }, Some(write))
                    }
                    owner => (Reply::NotHeld { owner: owner.map(owner_of) }, None),
                }
            }
            Request::Extend { holder, token, next, unbroken: false, ttl, .. } => {
                if fence > *next {
                    return (Reply::Superseded { fence }, None);
                }
                if let Some(busy) = self.busy(now, holder.as_str(), fence) {
                    return (busy, None);
                }
                // An owner wrote the fence itself; without one it may be another's, or the floor.
                if fence > *token && self.owner.is_none() {
                    return (Reply::Superseded { fence }, None);
                }
                let (reply, left) = match self.owner {
                    Some((_, until)) => (Reply::Extended { clock }, until.since(now)),
                    None => (Reply::Healed { clock }, Duration::ZERO),
                };
                // Never shorter.
                (reply, Some(Write::owned(now, holder.as_str(), ttl.get().max(left), *next)))
            }
            Request::Release { holder, .. } => match (self.owner, self.fence) {
                (Some((owner, _)), Some(fence)) if owner == holder.as_str() => {
                    (Reply::Released, Some(Write { owner: None, fence }))
                }
                (owner, _) => (Reply::NotHeld { owner: owner.map(owner_of) }, None),
            },
            Request::ForceRelease { holder, fence: seen, .. } => {
                let write = Some(Write { owner: None, fence: fence.max(*seen).next() });
                match self.owner {
                    Some((owner, _)) if owner == holder.as_str() => (Reply::Released, write),
                    _ if fence > *seen => (Reply::Superseded { fence }, None),
                    Some(owner) => (Reply::NotHeld { owner: Some(owner_of(owner)) }, None),
                    None => (Reply::NotHeld { owner: None }, write),
                }
            }
            // These never come here; a look is all there is to answer.
            Request::Inspect { .. }
            | Request::List { .. }
            | Request::Probe
            | Request::ReplaceRecord { .. }
            | Request::ForgetIdle { .. } => (Reply::Stranger { record: self.record }, None),
        }
    }

    fn busy(&self, now: Moment, asker: &str, fence: Fence) -> Option<Reply> {
        let (owner, until) = self.owner.as_ref().filter(|(owner, _)| owner != asker)?;
        Some(Reply::busy(Owner::from_value(owner.as_bytes()), Some(until.since(now)), fence))
    }

    pub(super) fn sighting(self, lock: LockName, now: Moment) -> Sighting {
        let expires_in = self.owner.as_ref().map(|(_, until)| until.since(now));
        Sighting::by_voter(lock, self.owner.map(owner_of), expires_in, self.fence)
    }
}

fn owner_of((owner, _): (String, Moment)) -> Owner {
    Owner::from_value(owner.as_bytes())
}

impl Write {
    fn owned(now: Moment, holder: &str, ttl: Duration, fence: Fence) -> Self {
        Self { owner: Some((holder.to_owned(), now.plus(ttl), ttl)), fence }
    }
}
