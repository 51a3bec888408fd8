//! What is wrong on purpose, all in one place. A mutation changes what the core answered, or what
//! a holder hears, at the boundary between them; it must be found, or the model has no teeth.

use leasehold_core::{
    Facts, Fence, Holder, LockName, LockTable, Moment, Owner, Record, Reply, Request, ServerFacts,
    WallMicros,
};

use crate::clocks::Others;

/// One rule left out, or got wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A node grants a proposal that equals its fence.
    AcceptEqual,
    /// A node grants what it granted to the same owner before.
    GrantAgain,
    /// A node that another owns raises its fence and says GRANTED.
    BusyRaises,
    /// A node grants although another owns the lock.
    AcquireFromAnyone,
    /// A release ends anybody's ownership.
    ReleaseAnyone,
    /// An extend looks neither at the owner nor at the fence.
    ExtendAnyone,
    /// An extend does not look at the fence where the holder still owns.
    ExtendOwnerOnly,
    /// An extend heals a free node whatever its fence.
    HealAnyFence,
    /// A holder counts BEHIND as GRANTED.
    CountBehind,
    /// A holder counts BUSY as GRANTED.
    CountBusy,
    /// A holder adds up what the nodes granted in different rounds.
    AddUpRounds,
    /// A holder completes with an old round after it sent a newer one; extends look at the owner.
    OldRoundCompletes,
    /// A node that has no owner takes a claim for an extend.
    ClaimHeals,
    /// A node that confirms a claim raises its fence to the highest one claimed.
    ClaimRaises,
    /// A node confirms a claim without a look at its owner.
    ClaimFromAnyone,
    /// What was confirmed is given back with the highest fence claimed.
    HealHighest,
    /// What no quorum confirmed is given back all the same.
    HealUnconfirmed,
    /// A refresh is one more acquire round with the same holder.
    RefreshIsAcquire,
    /// A refresh is an extend with a larger token, and EXTENDED alone counts.
    RefreshIsExtend,
    /// A refresh counts a node that was wiped and knows nothing above its floor.
    RefreshCountsForgotten,
    /// The record of a node that comes back has no floor.
    NoFloor,
    /// Nodes do not look whose member list a request comes from.
    NoFingerprint,
    /// Idle fences are forgotten and the floor stays where it was.
    ForgetWithoutFloor,
    /// The floor becomes the fence of whatever lock was forgotten, also if that is lower.
    FloorMayFall,
    /// A handed-over attempt may propose less than its former user sent.
    HandOverAnyProposal,
    /// A holder hands over and goes on as if it had not.
    HandOverGoesOn,
    /// A handed-over attempt is given the fence of its former user.
    HandOverKeepsFence,
    /// A holder sends a release and hands over none the less.
    HandOverAfterRelease,
    /// A handed-over attempt counts what nodes answered to the extend of its former user.
    HandOverCountsExtends,
    /// An attempt that was handed over and has no quorum hands over, with what was granted to it.
    HandOverKeepsGrants,
    /// A fence counts as reserved up to a token that no quorum has yet.
    ReservedBeforeWon,
    /// A fence above the token counts as reserved.
    ReservedBeyondToken,
    /// Who came after the token was raised takes a reserved fence.
    ReservedForLateComer,
    /// The replication id in a record is not compared with that of the server.
    HistoryNotCompared,
    /// A server that copied another does not tell its clients before it answers.
    CopyNotTold,
    /// Neither the roster is consulted nor the member in a record compared.
    TwinsVote,
    /// A node comes back with its own clock as floor, whatever the others remember.
    FloorByOwnClock,
    /// A node comes back above what one other fewer remembers than meets every quorum.
    OneOtherFewer,
    /// A node has waited for long enough when its own clock says so.
    OwnClockDecides,
}

const NOW: Moment = Moment::from_millis(0);
const KEPT: Reply = Reply::Extended { clock: WallMicros(0) };

impl Mutation {
    /// What the node answers to `request`; `ask` is the core's own answer.
    pub fn node(
        mutation: Option<Self>,
        table: &mut LockTable,
        request: &Request,
        ask: impl Fn(&mut LockTable, &Request) -> Reply,
    ) -> Reply {
        let before = table.clone();
        let reply = ask(table, request);
        let (Some(mutation), Some(lock)) = (mutation, request.lock()) else { return reply };
        let extend = |holder: &Holder, token: Fence, ttl| Request::Extend {
            lock: lock.clone(),
            holder: holder.clone(),
            token,
            next: token,
            unbroken: false,
            ttl,
        };
        let release =
            |holder: &Holder| Request::Release { lock: lock.clone(), holder: holder.clone() };
        match (mutation, request, &reply) {
            (
                Self::AcceptEqual,
                Request::Acquire { holder, proposal, ttl, .. },
                Reply::Behind { fence },
            ) if fence == proposal => {
                ask(table, &extend(holder, *proposal, *ttl));
                Reply::Granted
            }
            (
                Self::GrantAgain,
                Request::Acquire { holder, proposal, .. },
                Reply::Behind { fence },
            ) if fence == proposal && table.owner(NOW, lock) == Some(holder) => Reply::Granted,
            (
                Self::BusyRaises,
                Request::Acquire { proposal, ttl, .. },
                Reply::Busy { owner: Owner::Holder(owner), fence, .. },
            ) if proposal > fence => {
                ask(table, &extend(owner, *proposal, *ttl));
                Reply::Granted
            }
            (
                Self::AcquireFromAnyone,
                Request::Acquire { .. },
                Reply::Busy { owner: Owner::Holder(owner), .. },
            ) => {
                ask(table, &release(owner));
                ask(table, request)
            }
            (
                Self::ReleaseAnyone,
                Request::Release { .. },
                Reply::NotHeld { owner: Some(Owner::Holder(owner)) },
            ) => ask(table, &release(owner)),
            (
                Self::ExtendAnyone,
                Request::Extend { .. },
                Reply::Busy { .. } | Reply::Superseded { .. },
            ) => KEPT,
            (
                Self::ExtendOwnerOnly | Self::OldRoundCompletes,
                Request::Extend { holder, ttl, .. },
                Reply::Superseded { fence },
            ) if table.owner(NOW, lock) == Some(holder) => {
                ask(table, &extend(holder, *fence, *ttl))
            }
            (
                Self::HealAnyFence,
                Request::Extend { holder, ttl, .. },
                Reply::Superseded { fence },
            ) if table.owner(NOW, lock).is_none() => ask(table, &extend(holder, *fence, *ttl)),
            (
                Self::ClaimHeals,
                Request::Extend { holder, token, unbroken: true, ttl, .. },
                Reply::NotHeld { owner: None },
            ) => ask(table, &extend(holder, *token, *ttl)),
            (
                Self::ClaimRaises,
                Request::Extend { holder, next, unbroken: true, ttl, .. },
                Reply::Extended { .. },
            ) => ask(table, &extend(holder, *next, *ttl)),
            (
                Self::ClaimFromAnyone,
                Request::Extend { unbroken: true, .. },
                Reply::NotHeld { .. },
            ) => KEPT,
            (_, Request::Extend { token, next, .. }, _) if next > token => {
                mutation.refreshed(table, request, &before, reply, ask)
            }
            _ => reply,
        }
    }

    fn refreshed(
        self,
        table: &mut LockTable,
        request: &Request,
        before: &LockTable,
        reply: Reply,
        ask: impl Fn(&mut LockTable, &Request) -> Reply,
    ) -> Reply {
        let Request::Extend { lock, holder, next, ttl, .. } = request else { return reply };
        let (lock, holder, ttl) = (lock.clone(), holder.clone(), *ttl);
        let larger = |lock, holder| Request::Extend {
            lock,
            holder,
            token: *next,
            next: *next,
            unbroken: false,
            ttl,
        };
        match self {
            Self::RefreshIsAcquire => {
                *table = before.clone();
                match ask(table, &Request::Acquire { lock, holder, proposal: *next, ttl }) {
                    Reply::Granted => KEPT,
                    refused => refused,
                }
            }
            Self::RefreshIsExtend => {
                *table = before.clone();
                match ask(table, &larger(lock, holder)) {
                    Reply::Healed { .. } => Reply::NotHeld { owner: None },
                    other => other,
                }
            }
            Self::RefreshCountsForgotten
                if matches!(reply, Reply::Superseded { .. }) && knows_nothing(table, &lock) =>
            {
                ask(table, &larger(lock, holder))
            }
            _ => reply,
        }
    }

    /// What a holder hears of a reply.
    pub fn heard(mutation: Option<Self>, reply: Reply) -> Reply {
        match (mutation, &reply) {
            (Some(Self::CountBehind), Reply::Behind { .. })
            | (Some(Self::CountBusy), Reply::Busy { .. }) => Reply::Granted,
            _ => reply,
        }
    }

    /// What a server says of itself, as far as it is compared with the record that stands there.
    pub fn server(
        mutation: Option<Self>,
        server: ServerFacts,
        written: Option<Record>,
    ) -> ServerFacts {
        match (mutation, written) {
            (Some(Self::HistoryNotCompared), Some(record)) => {
                ServerFacts { replication_id: record.replication_id, ..server }
            }
            _ => server,
        }
    }

    /// The name under which a member is examined, and its twin.
    pub fn known_as(
        mutation: Option<Self>,
        name: String,
        twin: Option<usize>,
        facts: &Facts,
    ) -> (String, Option<usize>) {
        let record = facts.record.as_deref().and_then(|text| Record::parse(text).ok());
        match (mutation, record) {
            (Some(Self::TwinsVote), Some(record)) => (record.member.to_string(), None),
            _ => (name, twin),
        }
    }

    /// What a client makes of the others when it looks at a node whose own clock shows `clock`.
    pub fn others(mutation: Option<Self>, clock: u8, others: Others) -> Others {
        match mutation {
            Some(Self::FloorByOwnClock) => Others { highest: 0, ..others },
            Some(Self::OwnClockDecides) => Others { clocks: [clock; 2], ..others },
            _ => others,
        }
    }

    /// The record that is written to a node that comes back.
    pub fn record(mutation: Option<Self>, record: Record) -> Record {
        match mutation {
            Some(Self::NoFloor) => Record { floor: Fence::ZERO, ..record },
            _ => record,
        }
    }
}

fn knows_nothing(table: &LockTable, lock: &LockName) -> bool {
    let inspect = Request::Inspect { lock: lock.clone() };
    let seen = table.clone().apply(NOW, WallMicros(0), None, &inspect);
    matches!(seen, Reply::Seen(seen) if seen.owner.is_none() && seen.fence.is_none())
}
