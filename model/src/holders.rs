//! The holders' side: every round of the core that can come up, numbered, and what it decides from
//! the answers on their way, asked once and remembered.
//!
//! Which answers were seen is not part of a state. A holder that has seen some but not decided has
//! done nothing that anybody could notice, so it is enough to let it decide, at any moment, from
//! any part of what was answered, before or after its time limit.

use std::time::Duration;

use leasehold_core::rounds::{AcquireRound, AcquireSpec, AcquireStep, ExtendRound, ExtendStep};
use leasehold_core::{Drift, Fence, Lease, Moment, Quorum, Reply, Request};

use crate::memo::{Cache, Numbered};
use crate::mutation::Mutation;
use crate::nodes::{Nodes, fence, small, ttl};
use crate::setup::Setup;
use crate::state::NODES_MAX;

const NOW: Moment = Moment::from_millis(0);

/// What a holder may decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// It holds the lock with this fence.
    Acquired(u8),
    /// It asks all nodes again: the number of the next round, and its proposal.
    AskAgain(u8, u8),
    /// It gives up.
    GiveUp,
    /// It holds on.
    Extended,
    /// The extend or refresh failed; nothing changes.
    Failed,
}

impl Decision {
    /// Whether the holder believes from now on that it holds, or goes on to hold.
    pub fn believes(self) -> bool {
        matches!(self, Self::Acquired(_) | Self::Extended)
    }
}

/// What is asked of whom, as far as a decision depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Round {
    /// The acquire round of this number.
    Acquire(u8),
    /// An extend, or a refresh, to so many nodes.
    Extend(u8),
    /// A claim to so many nodes.
    Claim(u8),
}

type Replies = [u8; NODES_MAX];

/// An answer to a round that is no longer the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// Which round of its attempt it answers, from 1.
    pub round: u8,
    /// The number of the reply.
    pub reply: u8,
}

/// All rounds that came up. As the number of a round, 0 is none.
pub struct Holders {
    mutation: Option<Mutation>,
    rounds: Numbered<AcquireRound>,
    /// What may be decided, by number.
    choices: Numbered<Vec<Decision>>,
    /// The number of the choices for each round and replies.
    decisions: Cache<10>,
    /// The numbers of first rounds.
    firsts: Cache<8>,
}

impl Holders {
    /// No round yet.
    pub fn new(setup: &Setup) -> Self {
        Self {
            mutation: setup.mutation,
            rounds: Numbered::with_room(255),
            choices: Numbered::with_room(1 << 10),
            decisions: Cache::new(),
            firsts: Cache::new(),
        }
    }

    /// The number of a first round.
    pub fn first(&self, nodes: &Nodes, agent: u8, members: usize, proposal: u8) -> u8 {
        let key = u64::from_le_bytes([agent, members as u8, proposal, 0, 0, 0, 0, 0]);
        self.firsts.get(key, || self.new_round(nodes, agent, members, proposal).into()) as u8
    }

    fn new_round(&self, nodes: &Nodes, agent: u8, members: usize, proposal: u8) -> u8 {
        let spec = AcquireSpec {
            lock: nodes.lock().clone(),
            holder: nodes.holder(agent).clone(),
            ttl: ttl(),
            drift: Drift::DEFAULT,
            min_validity: Duration::ZERO,
        };
        self.number(AcquireRound::new(spec, quorum(members), fence(proposal), NOW))
    }

    /// Which round of its attempt this is, from 1.
    pub fn ordinal(&self, round: u8) -> u32 {
        self.round(round).number()
    }

    /// What the round of this number proposes.
    pub fn proposal(&self, round: u8) -> u8 {
        small(self.round(round).proposal())
    }

    /// What may be decided from the answers so far, in every way that any part of them was seen.
    pub fn decisions(&self, nodes: &Nodes, round: Round, replies: Replies) -> &[Decision] {
        self.decisions_with(nodes, round, replies, None)
    }

    /// The same, with one more answer that came late: to an earlier round of the same attempt.
    pub fn decisions_with(
        &self,
        nodes: &Nodes,
        round: Round,
        mut replies: Replies,
        late: Option<Late>,
    ) -> &[Decision] {
        replies.sort_unstable();
        let key = late.map_or(0, |late| u64::from(late.round) << 6 | u64::from(late.reply));
        let key = key << 9 | round.key();
        let key = replies.iter().fold(key, |key, reply| key << 6 | u64::from(*reply));
        let number = self
            .decisions
            .get(key, || self.choices.number(self.decide(nodes, round, replies, late)) as u64);
        self.choices.get(number as usize)
    }

    fn decide(
        &self,
        nodes: &Nodes,
        round: Round,
        replies: Replies,
        late: Option<Late>,
    ) -> Vec<Decision> {
        let hear = |reply: u8| Mutation::heard(self.mutation, nodes.reply(reply).clone());
        let answered: Vec<Reply> =
            replies.iter().filter(|reply| **reply > 0).map(|reply| hear(*reply)).collect();
        let late = late.map(|late| (late.round.into(), hear(late.reply)));
        let mut found = Vec::new();
        for seen in 0..1_u32 << answered.len() {
            let seen: Vec<&Reply> =
                (0..answered.len()).filter(|i| seen >> i & 1 == 1).map(|i| &answered[i]).collect();
            for time_is_up in [false, true] {
                let decision = match round {
                    Round::Acquire(number) => {
                        self.acquire(number, &seen, late.as_ref(), time_is_up)
                    }
                    Round::Extend(members) => extend(nodes, members, false, &seen, time_is_up),
                    Round::Claim(members) => extend(nodes, members, true, &seen, time_is_up),
                };
                found.extend(decision.filter(|decision| !found.contains(decision)));
            }
        }
        found
    }

    fn acquire(
        &self,
        number: u8,
        seen: &[&Reply],
        late: Option<&(u32, Reply)>,
        time_is_up: bool,
    ) -> Option<Decision> {
        let mut round = self.round(number).clone();
        for (node, reply) in seen.iter().enumerate() {
            round.answer(NOW, round.number(), node, Ok((*reply).clone()));
        }
        if let Some((earlier, reply)) = late {
            round.answer(NOW, *earlier, seen.len(), Ok(reply.clone()));
        }
        if time_is_up {
            round.time_up(NOW);
        }
        // No node's clock went ahead here, so votes count at once.
        match round.step(NOW, |_| Duration::ZERO) {
            AcquireStep::Wait | AcquireStep::Settle(_) => None,
            AcquireStep::AskAgain => {
                let proposal = small(round.proposal());
                Some(Decision::AskAgain(self.number(round), proposal))
            }
            AcquireStep::Acquired(lease) => Some(Decision::Acquired(small(lease.fence))),
            AcquireStep::GiveUp(_) => Some(Decision::GiveUp),
        }
    }

    fn round(&self, number: u8) -> &AcquireRound {
        self.rounds.get(usize::from(number) - 1)
    }

    fn number(&self, round: AcquireRound) -> u8 {
        self.rounds.number(round) as u8 + 1
    }
}

impl Round {
    /// Different for different rounds, in 9 bits.
    pub fn key(self) -> u64 {
        match self {
            Self::Acquire(number) => u64::from(number),
            Self::Extend(members) => 1 << 8 | u64::from(members),
            Self::Claim(members) => 1 << 8 | 1 << 3 | u64::from(members),
        }
    }
}

fn extend(
    nodes: &Nodes,
    members: u8,
    is_claim: bool,
    seen: &[&Reply],
    time_is_up: bool,
) -> Option<Decision> {
    // Which holder and which numbers makes no difference to how the answers are counted.
    let lease = lease(nodes, Fence::ZERO);
    let mut round = ExtendRound::new(&lease, quorum(members.into()), Drift::DEFAULT, NOW);
    if is_claim {
        round = round.unbroken();
    }
    for (node, reply) in seen.iter().enumerate() {
        round.answer(NOW, node, Ok((*reply).clone()));
    }
    if time_is_up {
        round.time_up(NOW);
    }
    match round.step() {
        ExtendStep::Wait => None,
        ExtendStep::Extended { .. } => Some(Decision::Extended),
        ExtendStep::Failed => Some(Decision::Failed),
    }
}

/// What the core gives back after a claim from the first number to the second was answered: with which
/// token, to which fence, and to which nodes.
pub fn heals(
    nodes: &Nodes,
    members: usize,
    (lowest, highest): (u8, u8),
    replies: Replies,
) -> Option<((u8, u8), Vec<usize>)> {
    let lease = lease(nodes, fence(lowest));
    let round = ExtendRound::new(&lease, quorum(members), Drift::DEFAULT, NOW);
    let mut round = round.refresh(fence(highest)).unbroken();
    for (node, reply) in replies.iter().enumerate().filter(|(_, reply)| **reply > 0) {
        round.answer(NOW, node, Ok(nodes.reply(*reply).clone()));
    }
    match round.to_heal(&lease)? {
        (Request::Extend { token, next, unbroken: false, .. }, free) => {
            Some(((small(token), small(next)), free))
        }
        (request, _) => unreachable!("{request:?}"),
    }
}

fn lease(nodes: &Nodes, token: Fence) -> Lease {
    Lease {
        lock: nodes.lock().clone(),
        holder: nodes.holder(0).clone(),
        fence: token,
        token,
        ttl: ttl(),
        deadline: NOW.plus(ttl().get()),
        uncertain: false,
    }
}

/// The quorum of so many nodes.
pub fn quorum(members: usize) -> Quorum {
    Quorum::majority_of(members.try_into().expect("a list has members"))
}
