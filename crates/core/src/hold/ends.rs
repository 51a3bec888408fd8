//! Until when each node keeps a lease, as far as its holder knows. A node whose clock goes ahead ends
//! the lease that much earlier; so do all nodes at once when it is the holder that stood still.

use crate::quorum::Ballot;
use crate::{ClockJump, Drift, Lease, Moment, Quorum, Reply, Ttl, WallMicros};

/// The ends of one lease, by node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends {
    nodes: Vec<Option<End>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    at: Moment,
    /// Jumps that were noticed after this moment may have come after the node began to count.
    since: Moment,
    /// When it was asked, and what its clock showed when it began. A jump that was noticed between
    /// the question and the answer came after that if the clock had shown more by then.
    asked_at: Moment,
    clock: WallMicros,
}

impl End {
    fn is_before(&self, jump: &ClockJump) -> bool {
        let is_beyond = jump.shown > self.clock;
        jump.noticed > self.since || (jump.noticed > self.asked_at && is_beyond)
    }
}

impl Ends {
    /// Takes in who keeps the lease by the votes of a round for it, however late they came.
    pub fn note(&mut self, ballot: &Ballot, ttl: Ttl, drift: Drift) {
        let asked_at = ballot.asked_at();
        let at = Lease::deadline(asked_at, ttl, drift);
        self.nodes.resize(self.nodes.len().max(ballot.votes().len()), None);
        for (end, vote) in self.nodes.iter_mut().zip(ballot.votes()) {
            let Some(vote) = vote else { continue };
            let (since, clock) = match vote.answer {
                Ok(Reply::Granted | Reply::GrantedWith { .. }) => (asked_at, WallMicros(u64::MAX)),
                // The clock was read in the same step. What it showed then was noticed with the answer.
                Ok(Reply::Extended { clock } | Reply::Healed { clock }) => {
                    (asked_at.plus(vote.after), clock)
                }
                _ => continue,
            };
            if end.is_none_or(|end| (end.at, end.since) < (at, since)) {
                *end = Some(End { at, since, asked_at, clock });
            }
        }
    }

    /// Takes in what somebody else knew of the same lease.
    pub fn merge(&mut self, other: &Self) {
        self.nodes.resize(self.nodes.len().max(other.nodes.len()), None);
        for (end, other) in self.nodes.iter_mut().zip(&other.nodes) {
            let key = |end: Option<End>| end.map(|end| (end.at, end.since));
            if key(*end) < key(*other) {
                *end = *other;
            }
        }
    }

    /// Whether a quorum of others can be free by now, because nodes forgot what they keep: `gone` says
    /// when that was noticed. What a node took in after that it knows.
    pub fn are_gone(&self, quorum: Quorum, gone: impl Fn(usize) -> Option<Moment>) -> bool {
        let keeps = |(node, end): &(usize, &Option<End>)| {
            end.is_some_and(|end| gone(*node).is_none_or(|gone| end.asked_at > gone))
        };
        let keeping = self.nodes.iter().enumerate().filter(keeps).count();
        keeping < quorum.nodes() - quorum.needed() + 1
    }

    /// The moment at which a quorum of others could have been free, if the clocks of nodes jumped as
    /// `jumps` says: until then every quorum has a node that keeps the lease.
    pub fn deadline<'a>(&self, quorum: Quorum, jumps: impl Fn(usize) -> &'a [ClockJump]) -> Moment {
        let end = |(node, end): (usize, &Option<End>)| {
            let end = (*end)?;
            let later = jumps(node).iter().filter(|jump| end.is_before(jump));
            Some(later.fold(end.at, |at, jump| at.less(jump.ahead)))
        };
        let mut ends: Vec<Moment> = self.nodes.iter().enumerate().filter_map(end).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let needed = quorum.nodes() - quorum.needed() + 1;
        ends.get(needed - 1).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use super::*;
    use crate::quorum::{AcquireRound, AcquireSpec, ExtendRound};
    use crate::{Answer, Fence, Holder, LockName, NodeError};

    const EXACT: Drift = Drift { parts_per_million: 0, fixed: Duration::ZERO };

    fn ms(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    fn ttl() -> Ttl {
        Ttl::new(Duration::from_millis(1000)).unwrap()
    }

    fn quorum(nodes: usize) -> Quorum {
        Quorum::majority_of(NonZeroUsize::new(nodes).unwrap())
    }

    fn lease() -> Lease {
        let fence = Fence::new(7).unwrap();
        Lease {
            lock: LockName::new("l").unwrap(),
            holder: Holder::new("h", 1).unwrap(),
            fence,
            token: fence,
            ttl: ttl(),
            deadline: ms(0),
            uncertain: false,
        }
    }

    /// One lease, and what its holder sees of the nodes. A node's clock shows the microseconds of
    /// ours, plus its jumps.
    struct Bench {
        ends: Ends,
        quorum: Quorum,
        jumps: Vec<Vec<ClockJump>>,
    }

    impl Bench {
        /// Acquired on `granted` of so many nodes, asked at 0.
        fn new(nodes: usize, granted: usize) -> Self {
            let spec = AcquireSpec {
                lock: lease().lock,
                holder: lease().holder,
                ttl: ttl(),
                drift: EXACT,
                min_validity: Duration::ZERO,
            };
            let mut round = AcquireRound::new(spec, quorum(nodes), lease().fence, ms(0));
            for node in 0..nodes {
                let silence = Err(NodeError::Unreachable { reason: "gone".into() });
                let answer = if node < granted { Ok(Reply::Granted) } else { silence };
                round.answer(ms(10), 1, node, answer);
            }
            let mut ends = Ends::default();
            ends.note(round.ballot(), ttl(), EXACT);
            Self { ends, quorum: quorum(nodes), jumps: vec![Vec::new(); nodes] }
        }

        fn jump(&mut self, node: usize, noticed: u64, ahead: u64) {
            self.jumps[node].push(ClockJump {
                micros: ahead as i64 * 1000,
                ahead: Duration::from_millis(ahead),
                noticed: ms(noticed),
                shown: WallMicros((noticed + ahead) * 1000),
            });
        }

        fn round(&self, asked: u64) -> ExtendRound {
            ExtendRound::new(&lease(), self.quorum, EXACT, ms(asked))
        }

        /// Extended by these nodes, asked and answered then.
        fn extend(&mut self, asked: u64, answered: u64, nodes: &[usize]) {
            let mut round = self.round(asked);
            for node in nodes {
                round.answer(ms(answered), *node, extended(answered * 1000));
            }
            self.ends.note(round.ballot(), ttl(), EXACT);
        }

        fn deadline(&self) -> u64 {
            self.ends.deadline(self.quorum, |node| &self.jumps[node]).as_nanos() / 1_000_000
        }
    }

    fn extended(clock: u64) -> Answer {
        Ok(Reply::Extended { clock: WallMicros(clock) })
    }

    #[test]
    fn a_lease_ends_when_a_quorum_of_others_can_be_free() {
        // By so many nodes, of which so many grant it, and so many jump by 300 ms.
        for (nodes, granted, jumped, deadline) in [
            (1, 1, 0, 1000),
            (1, 1, 1, 700),
            (3, 2, 0, 1000),
            (3, 2, 1, 700),
            (3, 3, 1, 1000),
            (3, 3, 2, 700),
            // Two of four keep every three from being free.
            (4, 3, 1, 1000),
            (4, 3, 2, 700),
            (4, 4, 2, 1000),
            (4, 4, 3, 700),
            (5, 3, 1, 700),
            (5, 4, 1, 1000),
            (5, 5, 2, 1000),
            (5, 5, 3, 700),
        ] {
            let mut bench = Bench::new(nodes, granted);
            for node in 0..jumped {
                bench.jump(node, 100, 300);
            }
            assert_eq!(bench.deadline(), deadline, "{granted} of {nodes}, {jumped} jumped");
        }
    }

    #[test]
    fn the_nodes_that_jumped_least_decide_and_jumps_of_one_node_add_up() {
        let mut bench = Bench::new(3, 3);
        for (node, ahead) in [(0, 300), (1, 500), (2, 100)] {
            bench.jump(node, 100, ahead);
        }
        assert_eq!(bench.deadline(), 700, "the second of three");
        bench.jump(2, 200, 150);
        assert_eq!(bench.deadline(), 700);
        bench.jump(2, 300, 100);
        assert_eq!(bench.deadline(), 650);
        bench.jump(0, 300, 5_000);
        bench.jump(2, 400, u64::MAX / 1_000_000_000);
        assert_eq!(bench.deadline(), 0, "before all time");
    }

    #[test]
    fn a_jump_shortens_what_a_node_counted_before_it_and_not_what_it_counts_after_it() {
        let mut bench = Bench::new(1, 1);
        bench.jump(0, 100, 300);
        assert_eq!(bench.deadline(), 700);
        bench.extend(200, 210, &[0]);
        assert_eq!(bench.deadline(), 1200, "it began after the jump");
        bench.jump(0, 300, 50);
        assert_eq!(bench.deadline(), 1150);
    }

    #[test]
    fn a_jump_that_is_noticed_with_the_answer_came_before_it() {
        let mut bench = Bench::new(1, 1);
        bench.jump(0, 210, 300);
        let mut round = bench.round(200);
        round.answer(ms(210), 0, extended((210 + 300) * 1000));
        bench.ends.note(round.ballot(), ttl(), EXACT);
        assert_eq!(bench.deadline(), 1200);
    }

    #[test]
    fn a_jump_after_a_grant_was_asked_for_may_have_come_after_it() {
        let mut bench = Bench::new(1, 1);
        bench.jump(0, 5, 300);
        assert_eq!(bench.deadline(), 700, "asked at 0, answered at 10");
    }

    #[test]
    fn an_answer_that_was_overtaken_by_the_news_of_a_jump_is_from_before_it() {
        let mut bench = Bench::new(1, 1);
        let mut round = bench.round(200);
        bench.jump(0, 250, 300);
        round.answer(ms(280), 0, extended(201 * 1000));
        bench.ends.note(round.ballot(), ttl(), EXACT);
        assert_eq!(bench.deadline(), 900);
        // A clock that went ahead and back again long ago is no such thing.
        let mut bench = Bench::new(1, 1);
        bench.jump(0, 100, 3_600_000);
        bench.extend(200, 210, &[0]);
        assert_eq!(bench.deadline(), 1200);
    }

    #[test]
    fn votes_count_whenever_they_come_and_never_shorten() {
        let mut bench = Bench::new(3, 2);
        let mut first = bench.round(100);
        bench.extend(200, 210, &[0]);
        assert_eq!(bench.deadline(), 1000, "one is no quorum");
        first.answer(ms(300), 0, extended(300_000));
        first.answer(ms(300), 2, Ok(Reply::Healed { clock: WallMicros(300_000) }));
        bench.ends.note(first.ballot(), ttl(), EXACT);
        assert_eq!(bench.deadline(), 1100, "1200, 1000 and 1100");
        bench.ends.note(first.ballot(), ttl(), EXACT);
        assert_eq!(bench.deadline(), 1100, "the same again");

        let mut bench = Bench::new(1, 1);
        let mut first = bench.round(100);
        bench.extend(200, 210, &[0]);
        first.answer(ms(300), 0, extended(300_000));
        bench.ends.note(first.ballot(), ttl(), EXACT);
        assert_eq!(bench.deadline(), 1200);
    }

    #[test]
    fn what_somebody_else_knew_of_a_lease_is_added_and_shortens_nothing() {
        let mut bench = Bench::new(3, 2);
        let mut other = Bench::new(3, 2);
        bench.extend(100, 110, &[0, 1]);
        other.extend(200, 210, &[2]);
        bench.ends.merge(&other.ends);
        assert_eq!(bench.deadline(), 1100, "1100, 1100 and 1200");
        other.extend(200, 210, &[1]);
        bench.ends.merge(&other.ends);
        assert_eq!(bench.deadline(), 1200);
        bench.ends.merge(&Ends::default());
        assert_eq!(bench.deadline(), 1200);
        let mut nothing = Ends::default();
        nothing.merge(&bench.ends);
        assert_eq!(nothing, bench.ends);
    }

    #[test]
    fn a_lease_is_gone_when_so_many_nodes_forgot_it_that_a_quorum_of_others_is_free() {
        for (nodes, granted, forgot, is_gone) in [
            (1, 1, 0, false),
            (1, 1, 1, true),
            (3, 2, 0, false),
            (3, 2, 1, true),
            (3, 3, 1, false),
            (3, 3, 2, true),
            (4, 3, 1, false),
            (4, 3, 2, true),
        ] {
            let bench = Bench::new(nodes, granted);
            let gone = |node| (node < forgot).then_some(ms(100));
            let found = bench.ends.are_gone(bench.quorum, gone);
            assert_eq!(found, is_gone, "{granted} of {nodes}, {forgot} forgot");
        }
    }

    #[test]
    fn what_a_node_took_in_after_it_forgot_it_keeps() {
        let mut bench = Bench::new(1, 1);
        bench.extend(100, 110, &[0]);
        assert!(bench.ends.are_gone(bench.quorum, |_| Some(ms(100))), "asked at the same moment");
        bench.extend(200, 210, &[0]);
        assert!(!bench.ends.are_gone(bench.quorum, |_| Some(ms(100))));
    }

    #[test]
    fn who_does_not_keep_the_lease_has_no_end_for_it() {
        let mut bench = Bench::new(3, 1);
        assert_eq!(bench.deadline(), 0, "one of three kept it");
        let mut round = bench.round(100);
        let fence = Fence::new(9).unwrap();
        round.answer(ms(110), 1, Ok(Reply::Superseded { fence }));
        round.answer(ms(110), 2, Ok(Reply::Stranger { record: None }));
        bench.ends.note(round.ballot(), ttl(), EXACT);
        assert_eq!(bench.deadline(), 0);
        assert_eq!(Ends::default().deadline(quorum(3), |_| &[]), Moment::default());
    }
}
