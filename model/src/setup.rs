//! The bounds of one case: how many of what there are, and what may go wrong.

use std::ops::RangeInclusive;

use crate::mutation::Mutation;
use crate::promise::Promise;

/// What a case explores. Everything that can happen within it happens in some path.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many nodes.
    pub nodes: usize,
    /// How many attempts, each with a holder of its own.
    pub agents: usize,
    /// First proposals are 1 up to this, in any order.
    pub proposals: u8,
    /// How many rounds an attempt may add to its first.
    pub more_rounds: u8,
    /// How many extends an attempt may send.
    pub extends: u8,
    /// Whether extends are claims: of somebody who was told the id of a lease, and may make it up.
    pub claims: Claims,
    /// Whether a lease may be taken from its holder.
    pub forces: bool,
    /// How many refreshes an attempt may send.
    pub refreshes: u8,
    /// How many of the attempts, in the order in which they begin, may extend and refresh.
    pub keepers: u8,
    /// How many attempts may begin with the holder value of one that is done.
    pub handovers: u8,
    /// Whether refreshes reserve fences, so that a lease can also be handed over without asking the
    /// nodes.
    pub reserves: bool,
    /// Whether owners may expire, at any moment.
    pub expiry: bool,
    /// Whether attempts give up and release, by messages that may be late or lost.
    pub releases: bool,
    /// How many times a node may lose its memory.
    pub wipes: u8,
    /// When and how such a node comes back.
    pub rejoin: Rejoin,
    /// What records the holders show to the nodes.
    pub identity: Identity,
    /// Clocks, where proposals and floors are read from them.
    pub clock: Option<Clock>,
    /// Two member lists, if there are.
    pub lists: Option<Lists>,
    /// How often a floor may be raised so that idle fences can be forgotten.
    pub drops: u8,
    /// How often a server may copy another one, or its own replica.
    pub copies: u8,
    /// How often the name of the second member may come to lead an attempt to the first one's
    /// server.
    pub misleads: u8,
    /// Whether every step is taken by itself, also those that cannot matter. Then there are many
    /// times more states, and the same must come of them.
    pub plain: bool,
    /// What is wrong on purpose.
    pub mutation: Option<Mutation>,
    /// What is checked.
    pub checks: &'static [Promise],
}

/// Whether leases are extended by what somebody says who has their id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claims {
    /// Holders extend their own.
    Never,
    /// Holders have an id, and perhaps they put other fences into it.
    Held,
    /// The same, and ids are used again once their release has come to a quorum.
    Replayed,
}

/// How a node that lost its memory comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejoin {
    /// At once, with the fence it had as its floor. While it is out, messages are just late.
    WithFormerFence,
    /// At once, and with nothing.
    Empty,
    /// Once every attempt that was under way at the wipe is over and owns nothing; with nothing.
    AfterAttempts,
    /// As `core::Admission` says to a client that saw it wait for long enough: above its clock, which
    /// is within the skew of real time. Of the others as few answer as may, and they know the least.
    Admitted,
    /// As `core::Admission` says, once no attempt is undecided that may count a vote of before: above
    /// what so many others remember that every quorum has one of them. All clocks show nothing, so none of them is needed.
    AboveOthers,
    /// As `core::Admission` says from clocks of which all but one may be wrong when it looks. A right
    /// one says that the time is over when every attempt of before is over and owns nothing.
    ByWitnesses,
}

/// What record a request shows to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Whatever stands there: no check at all.
    Unchecked,
    /// What stood there when the attempt began, in all its requests.
    Pinned,
    /// What stood there when the question was put.
    Reread,
    /// What stood there when the attempt began, but extends read it again.
    RereadByExtends,
}

/// Real time in ticks; all clocks are within `skew` of it. One tick is one fence number.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// How far any clock may be off.
    pub skew: u8,
    /// The first tick.
    pub from: u8,
    /// The last tick.
    pub to: u8,
    /// How long a node that lost its memory must wait.
    pub quarantine: u8,
}

/// Two member lists: the first `shorter` nodes, and all nodes.
#[derive(Debug, Clone, Copy)]
pub struct Lists {
    /// How many nodes the first list has.
    pub shorter: usize,
    /// The list that each node serves at first; 0 for a node that is not set up.
    pub served: [u8; 5],
    /// How nodes come to serve the second list.
    pub change: Change,
}

/// How a member list is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Never.
    Never,
    /// Node by node, while all go on.
    Rolling,
    /// Every node is barred first, then all serve the new list.
    Barrier {
        /// Whether the new records have the highest fence of all nodes as floor.
        floor: bool,
        /// Whether every attempt of before must be over and own nothing.
        waits: bool,
    },
}

impl Setup {
    /// Three nodes, attempts that acquire once, owners that may expire, and nothing else.
    pub const BASE: Self = Self {
        nodes: 3,
        agents: 2,
        proposals: 2,
        more_rounds: 0,
        extends: 0,
        claims: Claims::Never,
        forces: false,
        refreshes: 0,
        keepers: u8::MAX,
        handovers: 0,
        reserves: false,
        expiry: true,
        releases: false,
        wipes: 0,
        rejoin: Rejoin::WithFormerFence,
        identity: Identity::Reread,
        clock: None,
        lists: None,
        drops: 0,
        copies: 0,
        misleads: 0,
        plain: false,
        mutation: None,
        checks: &[Promise::F1, Promise::F2, Promise::F6, Promise::F7],
    };

    /// Whether it matters that an attempt gives up.
    pub fn gives_up(&self) -> bool {
        self.releases || self.waits_for_attempts()
    }

    /// Whether a node's return or a change of the list waits until attempts are over.
    pub fn waits_for_attempts(&self) -> bool {
        let barrier = self
            .lists
            .is_some_and(|lists| matches!(lists.change, Change::Barrier { waits: true, .. }));
        barrier
            || self.copies > 0
            || (self.wipes > 0
                && matches!(self.rejoin, Rejoin::AfterAttempts | Rejoin::ByWitnesses))
    }

    /// Whether leases have ids that callers hand in.
    pub fn has_claims(&self) -> bool {
        self.claims != Claims::Never
    }

    /// Whether members have names, so that it matters which server is which.
    pub fn has_names(&self) -> bool {
        self.copies > 0 || self.misleads > 0
    }

    /// The proposals that a first round may have.
    pub fn first_proposals(&self, now: u8) -> RangeInclusive<u8> {
        match self.clock {
            Some(clock) => now.saturating_sub(clock.skew)..=now + clock.skew,
            None => 1..=self.proposals,
        }
    }

    /// How many nodes a member list has.
    pub fn list_len(&self, list: u8) -> usize {
        match self.lists {
            Some(lists) if list == 1 => lists.shorter,
            _ => self.nodes,
        }
    }

    /// The bounds in short: `N=3 K=2 p1..2 r1 e1`.
    pub fn bounds(&self) -> String {
        let mut text = format!("N={} K={}", self.nodes, self.agents);
        match self.clock {
            Some(clock) => {
                text += &format!(
                    " time {}..{} s={} T={}",
                    clock.from, clock.to, clock.skew, clock.quarantine
                )
            }
            None => text += &format!(" p1..{}", self.proposals),
        }
        text += &format!(" r{}", self.more_rounds);
        for (letter, count) in [
            ("e", self.extends),
            ("f", self.refreshes),
            ("h", self.handovers),
            ("w", self.wipes),
            ("d", self.drops),
            ("c", self.copies),
            ("m", self.misleads),
        ] {
            if count > 0 {
                text += &format!(" {letter}{count}");
            }
        }
        if usize::from(self.keepers) < self.agents {
            text += &format!(" of {}", self.keepers);
        }
        match self.claims {
            Claims::Never => {}
            Claims::Held => text += ", claims",
            Claims::Replayed => text += ", claims, also after the release",
        }
        if self.forces {
            text += ", forced";
        }
        if self.reserves {
            text += ", reserved";
        }
        if !self.expiry {
            text += ", no expiry";
        }
        if self.releases {
            text += ", releases";
        }
        text
    }
}
