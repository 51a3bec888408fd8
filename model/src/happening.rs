//! One step of the world.

use crate::holders::Decision;

/// What may happen next. Nodes and attempts by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// An attempt begins.
    Start {
        /// Which.
        agent: u8,
        /// The proposal of its first round.
        proposal: u8,
        /// The member list that it is configured for.
        list: u8,
    },
    /// A holder is done, and an attempt begins with its holder value; nothing is released.
    HandOver {
        /// Who is done.
        from: u8,
        /// Who begins.
        to: u8,
        /// The proposal of its first round.
        proposal: u8,
    },
    /// A holder is done, and another goes on with its lease and a reserved fence; nobody is asked.
    TakeReserved {
        /// Who is done.
        from: u8,
        /// Who goes on.
        to: u8,
    },
    /// A question of an attempt reaches a node, and the answer is on its way.
    Arrive(Arrival),
    /// A holder decides other than to believe that it holds.
    Decide {
        /// Who.
        agent: u8,
        /// What.
        decision: Decision,
    },
    /// A holder sends an extend, or a refresh if `to` is above its token.
    Extend {
        /// Who.
        agent: u8,
        /// The fence that the nodes shall have.
        to: u8,
    },
    /// Somebody with the id of a lease, and perhaps a made-up one, asks to keep it.
    Claim {
        /// Whose.
        agent: u8,
        /// The lowest fence that the id names.
        lowest: u8,
        /// The highest.
        highest: u8,
    },
    /// Somebody takes the lease from its holder.
    Force {
        /// Who holds it.
        agent: u8,
    },
    /// A holder releases.
    Release {
        /// Who.
        agent: u8,
    },
    /// The owner's time is over on a node. Only in a plain world.
    Expire {
        /// Which node.
        node: u8,
    },
    /// A node loses its memory.
    Wipe {
        /// Which.
        node: u8,
    },
    /// A replica of a node gets its data, and follows it no longer.
    Replicate {
        /// Which node.
        node: u8,
    },
    /// A node copies a server; its process and its connections live on.
    Copy {
        /// Which node.
        node: u8,
        /// The server: another node, or its own replica if it is the same.
        from: u8,
    },
    /// The name of the second member leads an attempt to the first one's server from now on.
    Mislead {
        /// Whom.
        agent: u8,
    },
    /// A node that lost its memory is back.
    Rejoin {
        /// Which.
        node: u8,
    },
    /// `core::Admission` looks at a node that lost its memory.
    Examine {
        /// Which.
        node: u8,
        /// What its clock shows.
        clock: u8,
    },
    /// The same, where clocks may have been set.
    Judge {
        /// Which.
        node: u8,
        /// Whose clocks are ahead, one bit each: its own first.
        ahead: u8,
    },
    /// Time passes.
    Tick,
    /// A node's floor is changed so that fences below it may be forgotten.
    RaiseFloor {
        /// Which node.
        node: u8,
        /// The new floor.
        to: u8,
    },
    /// A node forgets idle fences.
    Forget {
        /// Which.
        node: u8,
        /// Whether the owner ran out before.
        expired: bool,
    },
    /// A node serves the longer list from now on.
    Switch {
        /// Which.
        node: u8,
    },
    /// A node serves no list for now.
    Bar {
        /// Which.
        node: u8,
    },
    /// All nodes serve the longer list.
    SwitchAll {
        /// The floor of their new records.
        floor: u8,
    },
}

/// A question reaches a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Whose.
    pub agent: u8,
    /// Its how manieth question.
    pub question: u8,
    /// Which node.
    pub node: u8,
    /// Whether the time of the owner there was over before.
    ///
    /// An owner may run out at any moment, but nobody notices before the next question comes.
    pub expired: bool,
    /// Whether the answer is seen, if it decides.
    ///
    /// A holder that can believe that it holds might as well do so at once: to do so later only
    /// gives others less to break.
    pub seen: bool,
}
