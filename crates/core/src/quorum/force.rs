//! Take a lock away from its holder, for good: wherever the holder could heal it back, another fence
//! has to stand in its way.
//!
//! A forced release raises the fence of each node above what that node knew. But the holder may have
//! raised its token since a person saw its fence, on other nodes; with a higher token it heals a node
//! that was raised above a lower one. So the nodes are looked at after they answered. Each token of
//! the holder was on one node of every quorum once. If a quorum has one fence that was not written
//! for the holder, then it was written over each of its tokens, and is higher.

use crate::{Answer, Fence, Holder, Quorum, Reply, Sighting};

/// One forced release, of as many rounds as it takes.
#[derive(Debug, Clone)]
pub struct ForceRound {
    quorum: Quorum,
    holder: Holder,
    fence: Fence,
    number: u32,
    /// By node: it wrote a fence in this round, and has no owner since.
    is_freed: Vec<bool>,
    was_held: bool,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForceStep {
    /// Have all nodes show the lock.
    Look,
    /// Ask all nodes once more, with [`ForceRound::fence`].
    AskAgain,
    /// The holder cannot have the lock any more.
    Done {
        /// Whether it had it on any node.
        was_held: bool,
    },
    /// Others came after the fence that was named.
    MovedOn {
        /// The highest fence.
        fence: Fence,
    },
    /// Too few nodes answered, or the holder raised its token each time.
    NoQuorum,
}

impl ForceRound {
    /// A holder can raise its token in between, but hardly so often.
    const ROUNDS_MAX: u32 = 8;

    /// About to ask all nodes to take the lock from `holder`, which has it with `fence`.
    pub fn new(quorum: Quorum, holder: Holder, fence: Fence) -> Self {
        Self { quorum, holder, fence, number: 1, is_freed: Vec::new(), was_held: false }
    }

    /// The fence to ask with.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// What the nodes answered, in their order.
    pub fn answered<'a>(&mut self, answers: impl Iterator<Item = &'a Answer>) -> ForceStep {
        let (mut told, mut superseded) = (0, Vec::new());
        self.is_freed.clear();
        for answer in answers {
            let (is_freed, is_told) = match answer {
                Ok(Reply::Released) => {
                    self.was_held = true;
                    (true, true)
                }
                Ok(Reply::NotHeld { owner: None }) => (true, true),
                Ok(Reply::NotHeld { owner: Some(_) }) => (false, true),
                Ok(Reply::Superseded { fence }) => {
                    superseded.push(*fence);
                    (false, true)
                }
                _ => (false, false),
            };
            self.is_freed.push(is_freed);
            told += usize::from(is_told);
        }
        match superseded.iter().max() {
            Some(fence) if self.number == 1 && superseded.len() >= self.quorum.needed() => {
                ForceStep::MovedOn { fence: *fence }
            }
            _ if told >= self.quorum.needed() => ForceStep::Look,
            _ => ForceStep::NoQuorum,
        }
    }

    /// What the nodes showed of the lock after that, in their order.
    pub fn looked<'a>(&mut self, answers: impl Iterator<Item = &'a Answer>) -> ForceStep {
        let seen = answers.enumerate().filter_map(|(node, answer)| match answer {
            Ok(Reply::Seen(sighting)) => Some((node, sighting)),
            _ => None,
        });
        let seen: Vec<_> = seen.collect();
        let is_freed = |node: usize| self.is_freed.get(node) == Some(&true);
        // What stands on a free node that wrote nothing is another's, or was the holder's and is no more.
        let told = seen.iter().filter(|(node, seen)| seen.owner.is_some() || is_freed(*node));
        let top = told.filter_map(|(_, seen)| seen.fence).max();
        let is_written_over = |(node, seen): &&(usize, &Sighting)| match &seen.owner {
            _ if seen.fence != top => false,
            Some(owner) => !owner.is(&self.holder),
            None => is_freed(*node),
        };
        let needed = self.quorum.needed();
        if seen.iter().filter(is_written_over).count() >= needed {
            return ForceStep::Done { was_held: self.was_held };
        }
        if seen.len() < needed || self.number >= Self::ROUNDS_MAX {
            return ForceStep::NoQuorum;
        }
        self.number += 1;
        let highest = seen.iter().filter_map(|(_, seen)| seen.fence).max();
        self.fence = self.fence.max(highest.unwrap_or_default());
        ForceStep::AskAgain
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use super::*;
    use crate::{
        Fingerprint, LockName, LockTable, MemberName, Moment, NodeError, Origin, Record,
        RecordState, Request, Ttl, WallMicros,
    };

    fn number(fence: u64) -> Fence {
        Fence::new(fence).unwrap()
    }

    fn who(nonce: u128) -> Holder {
        Holder::new("h", nonce).unwrap()
    }

    fn lock() -> LockName {
        LockName::new("l").unwrap()
    }

    fn ttl() -> Ttl {
        Ttl::new(Duration::from_secs(60)).unwrap()
    }

    /// Three nodes that are what nodes are, and what they are asked.
    struct Nodes {
        tables: Vec<LockTable>,
        record: String,
        now: Moment,
    }

    impl Nodes {
        fn new() -> Self {
            let record = Record {
                cluster: Fingerprint::of_members(["a"]),
                nodes: 3,
                member: MemberName::of_one(),
                max_ttl: Duration::from_secs(60),
                life: 1,
                run_id: "run".into(),
                replication_id: "-".into(),
                origin: Origin::First,
                state: RecordState::Admitted,
                floor: Fence::ZERO,
                born: WallMicros(0),
                waits: None,
                clocks: Vec::new(),
            }
            .to_string();
            let (tables, now) = (vec![LockTable::new(); 3], Moment::from_millis(1));
            let mut nodes = Self { tables, record: record.clone(), now };
            for node in 0..3 {
                let record = record.as_str().into();
                nodes.ask(node, &Request::ReplaceRecord { expected: None, record }).unwrap();
            }
            nodes
        }

        fn ask(&mut self, node: usize, request: &Request) -> Answer {
            let record = Some(&*self.record);
            Ok(self.tables[node].apply(self.now, WallMicros(7), record, request))
        }

        /// Asks these nodes; the others are silent.
        fn ask_all(&mut self, nodes: &[usize], request: &Request) -> Vec<Answer> {
            let silent = || Err(NodeError::Unreachable { reason: "gone".into() });
            (0..3)
                .map(|node| if nodes.contains(&node) { self.ask(node, request) } else { silent() })
                .collect()
        }

        fn acquire(&mut self, holder: u128, fence: u64, nodes: &[usize]) {
            let (holder, proposal) = (who(holder), number(fence));
            let request = Request::Acquire { lock: lock(), holder, proposal, ttl: ttl() };
            for answer in nodes.iter().map(|node| self.ask(*node, &request)) {
                assert_eq!(answer, Ok(Reply::Granted));
            }
        }

        /// On how many nodes the holder has the lock after it extended it on these.
        fn extend(&mut self, (token, next): (u64, u64), nodes: &[usize]) -> usize {
            let request = Request::Extend {
                lock: lock(),
                holder: who(1),
                token: number(token),
                next: number(next),
                unbroken: false,
                ttl: ttl(),
            };
            let has = |answer: &&Answer| {
                matches!(answer, Ok(Reply::Extended { .. } | Reply::Healed { .. }))
            };
            self.ask_all(nodes, &request).iter().filter(has).count()
        }

        /// Forces the release on these nodes, with `between` after each round.
        fn force(
            &mut self,
            fence: u64,
            nodes: &[usize],
            mut between: impl FnMut(&mut Self),
        ) -> (ForceStep, u32) {
            let quorum = Quorum::majority_of(NonZeroUsize::new(3).unwrap());
            let mut round = ForceRound::new(quorum, who(1), number(fence));
            loop {
                let (holder, fence) = (who(1), round.fence());
                let request = Request::ForceRelease { lock: lock(), holder, fence, reason: None };
                let step = round.answered(self.ask_all(nodes, &request).iter());
                between(self);
                if step != ForceStep::Look {
                    return (step, round.number);
                }
                let seen = self.ask_all(nodes, &Request::Inspect { lock: lock() });
                match round.looked(seen.iter()) {
                    ForceStep::AskAgain => {}
                    step => return (step, round.number),
                }
            }
        }
    }

    const HELD: ForceStep = ForceStep::Done { was_held: true };

    #[test]
    fn a_holder_that_raised_its_token_since_cannot_heal_the_lock_back() {
        // What a person saw was 5. Since then a quorum has 9, and one node missed that.
        for (answering, rounds) in [(&[0, 1][..], 2), (&[1, 2], 2), (&[0, 1, 2], 1)] {
            let mut nodes = Nodes::new();
            nodes.acquire(1, 5, &[0, 1, 2]);
            assert_eq!(nodes.extend((5, 9), &[0, 2]), 2);
            let forced = nodes.force(5, answering, |_| {});
            assert_eq!(forced, (HELD, rounds), "by {answering:?}");
            for next in [9, 20] {
                let kept = nodes.extend((9, next), &[0, 1, 2]);
                assert!(kept < 2, "it went on with {kept} nodes after {answering:?} were forced");
            }
        }
    }

    #[test]
    fn free_nodes_count_only_where_no_token_of_the_holder_heals_them() {
        let mut nodes = Nodes::new();
        nodes.acquire(1, 5, &[0, 1]);
        assert_eq!(nodes.extend((5, 9), &[0, 1]), 2);
        // One of them forgot, one never knew: free, both of them.
        nodes.tables[1] = Nodes::new().tables[1].clone();
        assert_eq!(nodes.force(5, &[0, 1, 2], |_| {}).0, HELD);
        assert_eq!(nodes.extend((9, 9), &[0, 1, 2]), 0);
        assert_eq!(nodes.extend((9, 30), &[0, 1, 2]), 0);
    }

    #[test]
    fn without_a_refresh_one_round_is_enough_also_where_others_wait_for_the_lock() {
        let mut nodes = Nodes::new();
        nodes.acquire(1, 5, &[0, 1, 2]);
        assert_eq!(nodes.force(5, &[0, 1, 2], |_| {}), (HELD, 1));
        let mut nodes = Nodes::new();
        nodes.acquire(1, 5, &[0, 1, 2]);
        let next = |nodes: &mut Nodes| nodes.acquire(2, 20, &[0, 1]);
        assert_eq!(nodes.force(5, &[0, 1, 2], next), (HELD, 1));
        let free = Nodes::new().force(5, &[0, 1], |_| {});
        assert_eq!(free, (ForceStep::Done { was_held: false }, 1));
    }

    #[test]
    fn what_a_failed_attempt_left_on_fewer_nodes_takes_no_further_round() {
        let mut nodes = Nodes::new();
        nodes.acquire(1, 5, &[0, 1]);
        nodes.acquire(2, 30, &[2]);
        nodes.ask(2, &Request::Release { lock: lock(), holder: who(2) }).unwrap();
        assert_eq!(nodes.force(5, &[0, 1, 2], |_| {}), (HELD, 1));
        assert_eq!(nodes.extend((5, 5), &[0, 1, 2]), 0);
    }

    #[test]
    fn who_came_later_is_told_and_too_few_nodes_are_no_success() {
        let mut nodes = Nodes::new();
        nodes.acquire(2, 20, &[0, 1]);
        for node in 0..3 {
            nodes.ask(node, &Request::Release { lock: lock(), holder: who(2) }).unwrap();
        }
        let moved_on = ForceStep::MovedOn { fence: number(20) };
        assert_eq!(nodes.force(5, &[0, 1, 2], |_| {}).0, moved_on);
        let mut nodes = Nodes::new();
        nodes.acquire(1, 5, &[0, 1, 2]);
        assert_eq!(nodes.force(5, &[0], |_| {}).0, ForceStep::NoQuorum);
        // One that takes it back each time is not done for.
        let mut nodes = Nodes::new();
        nodes.acquire(1, 5, &[0, 1, 2]);
        let mut fence = 100;
        let again = |nodes: &mut Nodes| {
            fence += 10;
            assert_eq!(nodes.extend((fence, fence), &[0, 1, 2]), 3);
        };
        assert_eq!(nodes.force(5, &[0, 1, 2], again).0, ForceStep::NoQuorum);
    }
}
