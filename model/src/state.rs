//! One state of the world, small and of fixed size: tables, records, replies and rounds are numbers
//! into what `nodes` and `holders` keep.

use std::hash::{Hash, Hasher};

/// The most nodes a case may have.
pub const NODES_MAX: usize = 5;
/// The most attempts a case may have.
pub const AGENTS_MAX: usize = 4;
/// The most questions one attempt may put to the nodes: rounds, extends, refreshes, the release.
pub const QUESTIONS_MAX: usize = 6;

/// One attempt to hold the lock, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Agent {
    /// How far it is.
    pub stage: Stage,
    /// The attempt whose holder value it uses: itself, or the first of those that handed over.
    pub holder: u8,
    /// Which member list it is configured for: 1 or 2.
    pub list: u8,
    /// Whether the name of the second member leads it to the first one's server.
    pub misled: bool,
    /// The number of its `AcquireRound` while it acquires, otherwise 0.
    pub round: u8,
    /// The highest fence of all that had completed when it started, while it acquires; or when the
    /// refresh was sent that reserves fences for those who waited then.
    pub before: u8,
    /// The fence it was given; 0 before.
    pub fence: u8,
    /// The fence that its extends carry: the first one, or that of the last refresh.
    pub token: u8,
    /// Whether a later holder had completed when its present extend or refresh was sent.
    pub outdated: bool,
    /// The highest number of a refresh that was sent and has not succeeded; 0 if there is none.
    pub refreshing: u8,
    /// Whether one of its owners expired, or was wiped away, on some node.
    pub missed: bool,
    /// Whether a release was sent, or its lease was to be ended by force.
    pub ended: bool,
    /// How many extends it sent.
    pub extends: u8,
    /// How many refreshes it sent.
    pub refreshes: u8,
    /// How many questions it put.
    pub asked: u8,
    /// What it asked.
    pub questions: [Question; QUESTIONS_MAX],
}

/// How far an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Stage {
    /// Not begun.
    #[default]
    Idle,
    /// Waits for answers to an acquire.
    Acquiring,
    /// Holds, and waits for nothing.
    Held,
    /// Holds, and waits for answers to an extend or a refresh.
    Extending,
    /// Gave up, or released.
    Over,
    /// Gave up, or released, and waits for answers to a claim that its lease is still there.
    Claiming,
}

/// What an attempt asks of each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Question {
    /// Nothing yet.
    #[default]
    None,
    /// Take the lock with this proposal.
    Acquire(u8),
    /// Keep it, with this token, and raise the fence to this number: the same, or a refresh.
    Extend(u8, u8),
    /// Keep it, if its owner has a fence from the first number to the second: what somebody says who
    /// was told of a lease, or made one up.
    Claim(u8, u8),
    /// Give it back.
    Release,
    /// Take it away from its owner, who was seen with this fence.
    Force(u8),
}

impl Question {
    /// Different for different questions, in 12 bits; numbers are below 32, and those of a claim below 8.
    pub fn key(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Release => 1,
            Self::Acquire(proposal) => 1 << 10 | u16::from(proposal),
            Self::Force(fence) => 1 << 10 | 1 << 8 | u16::from(fence),
            Self::Claim(lowest, highest) => {
                1 << 10 | 1 << 9 | u16::from(lowest) << 3 | u16::from(highest)
            }
            Self::Extend(token, next) => 1 << 11 | u16::from(token) << 5 | u16::from(next),
        }
    }
}

impl Hash for Question {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u16(self.key());
    }
}

/// One node, and what is under way between it and each attempt. Sorted, because nodes are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Node {
    /// Nodes of one class belong to the same member lists. Where members have names, each is a
    /// class of its own.
    pub class: u8,
    /// The number of its `LockTable`.
    pub table: u16,
    /// The attempts that must be over before it may come back from a wipe.
    pub waits_for: u8,
    /// Whether its memory is gone and nobody admitted it again.
    pub is_out: bool,
    /// How often its server copied another.
    pub history: u8,
    /// 1 plus the number of the table that its replica has; 0 if there is none.
    pub replica: u16,
    /// The attempts whose release came here, one bit each. Only where leases have ids.
    pub released: u8,
    /// The attempts that were ended by force here, so that nobody owned the lock: one bit each.
    pub forced: u8,
    /// The attempts that were told of a copy, one bit each: what they asked before is not counted.
    pub told: u8,
    /// What is under way from and to each attempt.
    pub lanes: [Lane; AGENTS_MAX],
}

/// What is under way between one node and one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Lane {
    /// The record that the attempt found here when it began; 0 if the node did not vote.
    pub pinned: u8,
    /// The answer to its present question; 0 if none is under way.
    pub reply: u8,
    /// Questions that may still arrive: 0, or 1 plus the number of the record they expect.
    pub pending: [u8; QUESTIONS_MAX],
}

impl Hash for Lane {
    /// One word: a state is hashed millions of times.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let [a, b, c, d, e, f] = self.pending;
        hasher.write_u64(u64::from_le_bytes([self.pinned, self.reply, a, b, c, d, e, f]));
    }
}

/// The whole world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// The attempts.
    pub agents: [Agent; AGENTS_MAX],
    /// The nodes.
    pub nodes: [Node; NODES_MAX],
    /// The time, in the cases that have one.
    pub now: u8,
    /// How many nodes may still be wiped.
    pub wipes_left: u8,
    /// How often a floor may still be raised to forget idle fences.
    pub drops_left: u8,
    /// How many servers may still be copied over.
    pub copies_left: u8,
    /// How many attempts may still be misled.
    pub misleads_left: u8,
    /// 1 plus the attempt whose latest question must arrive somewhere next; 0 if anything may happen.
    pub turn: u8,
    /// Whether the member list was changed behind a barrier.
    pub switched: bool,
    /// Whether F2 was seen broken.
    pub broke_f2: bool,
    /// Whether F5 was seen broken.
    pub broke_f5: bool,
    /// Whether H was seen broken.
    pub broke_h: bool,
    /// Whether C was seen broken.
    pub broke_c: bool,
}

impl Agent {
    /// Whether it has been given a fence.
    pub fn completed(&self) -> bool {
        self.fence > 0
    }

    /// Whether it believes that it holds the lock.
    pub fn holds(&self) -> bool {
        matches!(self.stage, Stage::Held | Stage::Extending)
    }

    /// Whether it has begun and is not over.
    pub fn is_active(&self) -> bool {
        !matches!(self.stage, Stage::Idle | Stage::Over)
    }

    /// Whether it waits for answers.
    pub fn waits(&self) -> bool {
        matches!(self.stage, Stage::Acquiring | Stage::Extending | Stage::Claiming)
    }

    /// Takes no further step of its own; what it asked may still arrive.
    pub fn stop(&mut self) {
        (self.stage, self.round, self.before, self.outdated) = (Stage::Over, 0, 0, false);
    }

    /// The highest number that it had sent, once it completed.
    pub fn highest(&self) -> u8 {
        self.token.max(self.refreshing)
    }

    /// Notes one more question and tells its place.
    pub fn ask(&mut self, question: Question) -> usize {
        let place = usize::from(self.asked);
        self.questions[place] = question;
        self.asked += 1;
        place
    }
}

impl State {
    /// Forgets the answers on their way to an attempt.
    pub fn drop_replies(&mut self, agent: usize) {
        for node in &mut self.nodes {
            node.lanes[agent].reply = 0;
        }
    }

    /// Forgets what was asked and can no longer arrive, unless an answer is still waited for.
    pub fn drop_questions(&mut self) {
        for i in 0..AGENTS_MAX {
            let asked = usize::from(self.agents[i].asked);
            let waits = self.agents[i].waits();
            for place in 0..asked - usize::from(waits && asked > 0) {
                if self.nodes.iter().all(|node| node.lanes[i].pending[place] == 0) {
                    self.agents[i].questions[place] = Question::None;
                }
            }
        }
    }

    /// The same state with its nodes in order, and where each of them stood before.
    pub fn in_order(mut self, nodes: usize) -> (Self, [usize; NODES_MAX]) {
        let mut places: [usize; NODES_MAX] = std::array::from_fn(|place| place);
        places[..nodes].sort_by_key(|place| self.nodes[*place]);
        self.nodes[..nodes].sort();
        (self, places)
    }
}
