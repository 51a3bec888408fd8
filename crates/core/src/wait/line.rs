//! What a waiter knows of its place in line and of its watches, and what it does about it.
//!
//! The waiters of all processes stand in one line per lock, which one node keeps. Only the first in
//! line watches the lock, on all nodes, and asks when a quorum says that it is free: so a release
//! wakes one process. A hint decides nothing about the lock, it is only ever a reason to ask.
//!
//! Nothing here has a clock, so the model explores this very code (`model/src/line`). How long a
//! waiter trusts hints stands in `waiting.rs`.

use crate::{LockName, Quorum};

/// A waiter's number: lower ones are served first. Kept through retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Where a waiter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InLine {
    /// Somebody is before it.
    Behind(Ticket),
    /// Nobody is before it, and so many are behind it.
    First {
        /// Its number.
        ticket: Ticket,
        /// How many are behind it.
        others: usize,
    },
    /// It stands in no line any more: the way to the node broke, or the node keeps none.
    Over,
}

/// What became of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// The lock may be free on this node.
    Free,
    /// No word will come: the node cannot tell, or the way to it broke.
    Over,
}

/// What a waiter hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// About its latest place.
    Place(InLine),
    /// No node keeps a line for it.
    NoLine,
    /// About its latest watch on node number `node`.
    Watch {
        /// Which node.
        node: usize,
        /// What it said.
        word: Watched,
    },
}

/// What to do about what was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Ask the nodes for the lock.
    Ask,
    /// Enter the line.
    Enter,
    /// Watch the lock on all nodes.
    Watch,
    /// Wait: hints will come.
    Rely,
    /// Wait, but not for long: hints may not come.
    Doubt,
}

/// One waiter's place in line and its watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Line {
    quorum: Quorum,
    standing: Standing,
    ticket: Option<Ticket>,
    met: Met,
    watches: Option<Watches>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Standing {
    /// In no line.
    Nowhere,
    /// On the way into it.
    Entering,
    /// No node keeps one. The next refusal is a reason to look for one again.
    Outside,
    Behind,
    First,
}

/// Whom it met, the one that says most about the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Met {
    Nobody,
    /// In line, and only behind it.
    OthersBehind,
    /// In line, and before it.
    OthersBefore,
    /// It was refused.
    Holder,
}

/// Two sets of nodes. Those in neither will not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Watches {
    silent: u64,
    free: u64,
}

impl Line {
    /// Of a waiter that stands nowhere yet, and waits for a lock on so many nodes.
    pub fn new(quorum: Quorum) -> Self {
        Self { quorum, standing: Standing::Nowhere, ticket: None, met: Met::Nobody, watches: None }
    }

    /// Takes a word in. Whether it may change what to do: too few nodes on which the lock is free are
    /// no reason to wake anybody.
    pub fn hear(&mut self, word: Heard) -> bool {
        match word {
            Heard::Place(place) => self.hear_place(place),
            Heard::NoLine => self.stand(Standing::Outside),
            Heard::Watch { node, word } => self.hear_watch(node, word),
        }
    }

    fn hear_place(&mut self, place: InLine) -> bool {
        if let InLine::Behind(ticket) | InLine::First { ticket, .. } = place {
            self.ticket = Some(ticket);
        }
        match place {
            InLine::Behind(_) => {
                self.met = self.met.max(Met::OthersBefore);
                self.stand(Standing::Behind)
            }
            InLine::First { others, .. } => {
                if others > 0 {
                    self.met = self.met.max(Met::OthersBehind);
                }
                self.stand(Standing::First)
            }
            InLine::Over => self.stand(Standing::Nowhere),
        }
    }

    fn stand(&mut self, standing: Standing) -> bool {
        std::mem::replace(&mut self.standing, standing) != standing
    }

    fn hear_watch(&mut self, node: usize, word: Watched) -> bool {
        let Some(Watches { silent, free }) = &mut self.watches else { return false };
        *silent &= !bit(node);
        match word {
            Watched::Free => *free |= bit(node),
            Watched::Over => *free &= !bit(node),
        }
        word == Watched::Over || count(*free) == self.quorum.needed()
    }

    /// What to do now.
    pub fn next(&self) -> Move {
        match (self.standing, self.watches) {
            (Standing::Nowhere, _) => Move::Enter,
            (Standing::Entering, _) => Move::Doubt,
            // Nobody told us yet that somebody holds it.
            (Standing::Outside, _) if self.met < Met::Holder => Move::Ask,
            (Standing::Outside, _) => Move::Doubt,
            (Standing::Behind, _) => Move::Rely,
            // Nor was anybody before us.
            (Standing::First, _) if self.met < Met::OthersBefore => Move::Ask,
            (Standing::First, None) => Move::Watch,
            (Standing::First, Some(Watches { silent, free })) => {
                let needed = self.quorum.needed();
                if count(free) >= needed {
                    Move::Ask
                } else if count(free | silent) < needed {
                    Move::Doubt
                } else {
                    Move::Rely
                }
            }
        }
    }

    /// It is on its way into the line, with its ticket if it has one.
    pub fn enter(&mut self) -> Option<Ticket> {
        self.standing = Standing::Entering;
        self.ticket
    }

    /// It watches the lock on all nodes: nothing was heard of any yet.
    pub fn watch(&mut self) {
        let all = (0..self.quorum.nodes()).fold(0, |all, node| all | bit(node));
        self.watches = Some(Watches { silent: all, free: 0 });
    }

    /// It asks: what its watches told has been made use of.
    pub fn asks(&mut self) {
        self.watches = None;
    }

    /// It asked, and another holds the lock. It keeps its place.
    pub fn refused(&mut self) {
        self.met = Met::Holder;
        if self.standing == Standing::Outside {
            self.standing = Standing::Nowhere;
        }
    }

    /// It steps out of the line and ends its watches, as others may be able to ask. It keeps its
    /// ticket.
    pub fn leave(&mut self) {
        self.standing = Standing::Nowhere;
        self.watches = None;
    }

    /// Whether it stands in line, or is about to.
    pub fn is_in_line(&self) -> bool {
        matches!(self.standing, Standing::Entering | Standing::Behind | Standing::First)
    }

    /// Whether it was told that nobody is before it.
    pub fn is_first(&self) -> bool {
        self.standing == Standing::First
    }

    /// Whether others wanted the lock as well: its next user should stand in line before it asks.
    pub fn met_others(&self) -> bool {
        self.met != Met::Nobody
    }
}

/// The set of one node. Nodes behind the 64th are in no set, as if they could not tell.
fn bit(node: usize) -> u64 {
    u32::try_from(node).ok().and_then(|node| 1_u64.checked_shl(node)).unwrap_or(0)
}

fn count(nodes: u64) -> usize {
    nodes.count_ones() as usize
}

/// How much the line of `lock` belongs on a node: it stands on the voting node with the highest
/// value. The same for all processes, and another order for each lock. FNV-1a, stirred.
pub fn affinity(lock: &LockName, node: &str) -> u64 {
    let bytes = lock.as_str().bytes().chain([0]).chain(node.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    const T: Ticket = Ticket(7);

    fn line(nodes: usize) -> Line {
        Line::new(Quorum::majority_of(NonZeroUsize::new(nodes).unwrap()))
    }

    /// One that was refused, and is told its place.
    fn refused(nodes: usize, place: InLine) -> Line {
        let mut line = line(nodes);
        line.refused();
        assert_eq!(line.next(), Move::Enter);
        line.enter();
        assert!(line.hear(Heard::Place(place)));
        line
    }

    fn first(others: usize) -> InLine {
        InLine::First { ticket: T, others }
    }

    fn watch(node: usize, word: Watched) -> Heard {
        Heard::Watch { node, word }
    }

    #[test]
    fn who_is_alone_in_line_before_it_ever_asked_asks() {
        let mut line = line(3);
        assert_eq!(line.next(), Move::Enter);
        assert_eq!(line.enter(), None);
        assert_eq!(line.next(), Move::Doubt, "nobody told it its place yet");
        line.hear(Heard::Place(first(0)));
        assert_eq!(line.next(), Move::Ask);
        assert!(!line.met_others());
        line.hear(Heard::Place(first(1)));
        assert!(line.met_others());
    }

    #[test]
    fn who_was_behind_others_watches_once_it_is_first() {
        let mut line = line(3);
        line.enter();
        line.hear(Heard::Place(InLine::Behind(T)));
        assert_eq!((line.next(), line.met_others()), (Move::Rely, true));
        assert!(line.hear(Heard::Place(first(0))));
        assert_eq!(line.next(), Move::Watch);
    }

    #[test]
    fn the_first_in_line_asks_when_a_quorum_is_free() {
        let mut line = refused(5, first(0));
        assert_eq!(line.next(), Move::Watch);
        line.watch();
        assert!(!line.hear(watch(0, Watched::Free)));
        assert!(!line.hear(watch(0, Watched::Free)), "one node counts once");
        assert!(!line.hear(watch(4, Watched::Free)));
        assert_eq!(line.next(), Move::Rely);
        assert!(line.hear(watch(2, Watched::Free)), "that wakes it");
        assert_eq!(line.next(), Move::Ask);
        assert!(!line.hear(watch(1, Watched::Free)), "it is awake already");
    }

    #[test]
    fn it_doubts_when_too_few_nodes_can_still_tell() {
        let mut line = refused(3, first(0));
        line.watch();
        assert!(line.hear(watch(0, Watched::Over)));
        assert_eq!(line.next(), Move::Rely, "two of three are a quorum");
        line.hear(watch(1, Watched::Free));
        assert!(line.hear(watch(1, Watched::Over)));
        assert_eq!(line.next(), Move::Doubt);
    }

    #[test]
    fn asking_makes_use_of_what_the_watches_told_and_keeps_the_place() {
        let mut line = refused(1, first(0));
        line.watch();
        line.hear(watch(0, Watched::Free));
        line.asks();
        assert!(!line.hear(watch(0, Watched::Free)), "a word about an earlier watch");
        line.refused();
        assert_eq!(line.next(), Move::Watch);
    }

    #[test]
    fn who_leaves_comes_back_with_its_ticket() {
        let mut line = refused(3, InLine::Behind(T));
        line.leave();
        assert_eq!((line.next(), line.is_in_line()), (Move::Enter, false));
        assert_eq!(line.enter(), Some(T));
        assert!(line.hear(Heard::Place(InLine::Over)));
        assert_eq!((line.next(), line.enter()), (Move::Enter, Some(T)));
    }

    #[test]
    fn a_line_that_no_node_keeps_is_looked_for_again_after_a_refusal() {
        let mut line = line(3);
        line.enter();
        line.hear(Heard::NoLine);
        assert_eq!(line.next(), Move::Ask, "it has not asked yet");
        line.refused();
        assert_eq!(line.next(), Move::Enter);
        line.enter();
        line.hear(Heard::NoLine);
        assert_eq!(line.next(), Move::Doubt);
        line.refused();
        assert_eq!(line.next(), Move::Enter);
    }

    #[test]
    fn nodes_behind_the_64th_count_as_those_that_cannot_tell() {
        let mut line = refused(101, first(0));
        line.watch();
        assert!(!line.hear(watch(100, Watched::Free)));
        (0..50).for_each(|node| assert!(!line.hear(watch(node, Watched::Free))));
        assert!(line.hear(watch(50, Watched::Free)));
        assert_eq!(line.next(), Move::Ask);
        let mut line = refused(201, first(0));
        line.watch();
        assert_eq!(line.next(), Move::Doubt, "64 are no quorum of 201");
    }

    #[test]
    fn lines_of_many_locks_spread_over_the_nodes() {
        let nodes = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
        let mut lines = [0; 3];
        for number in 0..3000 {
            let lock = LockName::new(format!("lock/{number}")).unwrap();
            let most = (0..3).max_by_key(|node| affinity(&lock, nodes[*node])).unwrap();
            lines[most] += 1;
        }
        assert!(lines.iter().all(|count| (900..1100).contains(count)), "{lines:?}");
    }
}
