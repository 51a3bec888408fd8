//! The rule by which a lease goes to the next waiter of the same process. It stays on the nodes as it
//! is, and nothing is released.
//!
//! A holder with waiters behind it raises its token by a refresh. The numbers above its fence and up to
//! a token that a quorum has are nobody else's, ever: they are reserved for those who waited when the
//! refresh was sent. Each of them takes the next number, in order, and asks no node. Every other
//! waiter asks by an acquire round of the same holder value, above all that was ever sent with it.
//! DESIGN.md has the proof.
//!
//! Not here: who stands in the queue, who carries questions out, who gives back what nobody takes.

use std::time::Duration;

use crate::rounds::{ExtendRound, ExtendStep};
use crate::{Drift, Ends, Fence, Holder, Keeper, Lease, Moment, Quorum, Ttl};

/// At most so many hand-offs in a row, so that other processes get the lock.
const IN_A_ROW_MAX: u32 = 16;
/// And no further one after this time: sixteen long holds would be an age.
const IN_A_ROW_FOR: Duration = Duration::from_millis(100);

/// So much of its Ttl is left of a lease that goes on without asking: as good as new. Its first
/// extension, at a third of the Ttl, may fail and be tried again.
const GOOD_AS_NEW: f64 = 0.75;

/// A place in the queue of one process: 1 for the first who joined it, higher for each who came later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnNumber(pub u64);

/// The hand-offs in a row that brought a lease to its holder. The default is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chain {
    began: Option<Moment>,
    length: u32,
}

/// What a holder sees of the queue of its process.
#[derive(Debug, Clone, Copy)]
pub struct LocalQueue {
    /// Its own place there.
    pub turn: TurnNumber,
    /// The last place that was taken so far, if somebody waits.
    pub waiting_up_to: Option<TurnNumber>,
    /// How the lease came to it.
    pub chain: Chain,
}

/// The fences above a lease's own are kept for those who have a turn up to this one. Somebody who
/// joined the queue later may have begun to wait after another process completed with a higher fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    up_to: TurnNumber,
}

/// A lease whose holder is done with it, and for which no release was sent.
#[derive(Debug, Clone)]
pub struct Handoff {
    keeper: Keeper,
    ends: Ends,
    chain: Chain,
}

/// Who may take it, and what it wants.
#[derive(Debug, Clone, Copy)]
pub struct NextWaiter {
    /// Its place in the queue.
    pub turn: TurnNumber,
    /// How long its lease shall last.
    pub ttl: Ttl,
    /// How much of it must be left.
    pub min_validity: Duration,
    /// Whether its lease is extended. One that is not wants its whole Ttl.
    pub extends: bool,
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inherited {
    /// The next waiter holds, and no node is asked.
    Lease {
        /// With a fence of its own.
        lease: Lease,
        /// What is left for those behind it.
        rest: Reserved,
        /// Until when each node keeps the lease.
        ends: Ends,
    },
    /// It asks all nodes.
    Ask(AskAs),
}

/// How to ask for a lock with the holder value of a former user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskAs {
    /// That value. Nodes may know it as the owner.
    pub holder: Holder,
    /// The highest number that was ever sent with it. The proposal is above, so that a node which
    /// grants it refuses a late refresh of the former user: that one would set the former user's Ttl.
    pub above: Fence,
}

impl Chain {
    fn may_go_on(self, now: Moment) -> bool {
        let is_in_time = self.began.is_none_or(|began| now.since(began) < IN_A_ROW_FOR);
        self.length < IN_A_ROW_MAX && is_in_time
    }

    fn longer(self, now: Moment) -> Self {
        Self { began: self.began.or(Some(now)), length: self.length + 1 }
    }
}

impl Keeper {
    /// Reserves a fence for each waiter of the process, unless that was done: the refresh to be sent
    /// at `now`. `propose` makes a number above a given one.
    ///
    /// What comes of it goes to [`Keeper::settle_reserved`].
    pub fn reserve(
        &mut self,
        queue: &LocalQueue,
        quorum: Quorum,
        drift: Drift,
        now: Moment,
        propose: impl FnOnce(Fence) -> Fence,
    ) -> Option<ExtendRound> {
        let up_to = queue.waiting_up_to?;
        let covers_others = |reserved: Reserved| reserved.up_to > queue.turn;
        let is_done =
            self.lease().fence < self.lease().token && self.reserved.is_some_and(covers_others);
        // What runs out is lost, and a refresh would take it back.
        let may_send = self.extends && now < self.lease().deadline;
        if is_done || !may_send || !queue.chain.may_go_on(now) {
            return None;
        }
        self.refresh_beyond(IN_A_ROW_MAX.into());
        self.reserved = Some(Reserved { up_to });
        Some(self.round(quorum, drift, now, propose))
    }

    /// Takes in what came of the refresh that reserves fences, if it is decided by now.
    pub fn settle_reserved(&mut self, now: Moment, round: &ExtendRound) -> ExtendStep {
        let step = round.step();
        match step {
            ExtendStep::Wait => {}
            ExtendStep::Extended { deadline } => self.extended(now, deadline, round.next()),
            ExtendStep::Failed => self.reserved = None,
        }
        step
    }

    /// The same, with fences that were reserved before the lease came to this holder.
    #[must_use]
    pub fn with_reserved(mut self, rest: Reserved) -> Self {
        self.reserved = Some(rest);
        self
    }

    /// Lets a good lease go to the next waiter of the process, if one waits and other processes had
    /// their turn of late. The holder is done from then on: it sends nothing more for the lease, no
    /// release either.
    pub fn hand_off(&self, now: Moment, queue: &LocalQueue, ends: &mut Ends) -> Option<Handoff> {
        let is_good = now < self.lease().deadline;
        if queue.waiting_up_to.is_none() || !is_good || !queue.chain.may_go_on(now) {
            return None;
        }
        let (ends, chain) = (std::mem::take(ends), queue.chain.longer(now));
        Some(Handoff { keeper: self.clone(), ends, chain })
    }
}

impl Handoff {
    /// The lease as its former user had it.
    pub fn lease(&self) -> &Lease {
        self.keeper.lease()
    }

    /// The hand-offs in a row, this one included.
    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// Whether a waiter that goes by `label` may hold it: the label is part of what the nodes know.
    pub fn is_for(&self, label: &str) -> bool {
        self.lease().holder.label() == label
    }

    /// Whether a fence is reserved for `next`, or will be if the refresh under way is won.
    pub fn has_reserved_for(&self, next: &NextWaiter) -> bool {
        let waited = |reserved: Reserved| next.turn <= reserved.up_to;
        next.extends && self.keeper.reserved.is_some_and(waited)
    }

    /// Takes in what came of the refresh that reserves fences, if it is decided by now.
    pub fn settle_reserved(&mut self, now: Moment, round: &ExtendRound, drift: Drift) {
        if let ExtendStep::Extended { .. } = self.keeper.settle_reserved(now, round) {
            self.ends.note(round.ballot(), self.keeper.lease().ttl, drift);
        }
    }

    /// Gives the lease to `next`, or tells how it has to ask. A refresh that is not settled must not
    /// be sent any more.
    pub fn take(self, next: &NextWaiter, now: Moment) -> Inherited {
        let (former, above) = (self.keeper.lease(), self.keeper.highest_sent());
        let ask = AskAs { holder: former.holder.clone(), above };
        let Some(rest) = self.keeper.reserved.filter(|_| self.has_reserved_for(next)) else {
            return Inherited::Ask(ask);
        };
        // Nobody but a quorum makes a number the token, and nothing above it may be under way.
        let is_reserved = former.fence < former.token && above == former.token;
        let validity = former.validity_at(now);
        let is_as_asked = former.ttl == next.ttl && validity > next.min_validity;
        let is_good = !former.uncertain && validity >= former.ttl.get().mul_f64(GOOD_AS_NEW);
        if !(is_reserved && is_as_asked && is_good) {
            return Inherited::Ask(ask);
        }
        let lease = Lease { fence: former.fence.next(), ..former.clone() };
        Inherited::Lease { lease, rest, ends: self.ends }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::{LockName, Reply, WallMicros};

    const EXACT: Drift = Drift { parts_per_million: 0, fixed: Duration::ZERO };

    fn ms(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    fn number(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    fn ttl() -> Ttl {
        Ttl::new(Duration::from_millis(3000)).unwrap()
    }

    fn lease() -> Lease {
        Lease {
            lock: LockName::new("l").unwrap(),
            holder: Holder::new("h", 1).unwrap(),
            fence: number(7),
            token: number(7),
            ttl: ttl(),
            deadline: ms(3000),
            uncertain: false,
        }
    }

    fn keeper() -> Keeper {
        Keeper::new(lease(), ms(0), true, None)
    }

    fn queue(turn: u64, waiting_up_to: u64) -> LocalQueue {
        let last = Some(TurnNumber(waiting_up_to)).filter(|last| last.0 > turn);
        LocalQueue { turn: TurnNumber(turn), waiting_up_to: last, chain: Chain::default() }
    }

    fn waiter(turn: u64) -> NextWaiter {
        let (turn, ttl) = (TurnNumber(turn), ttl());
        NextWaiter { turn, ttl, min_validity: Duration::ZERO, extends: true }
    }

    fn reserve(keeper: &mut Keeper, queue: LocalQueue) -> Option<ExtendRound> {
        let one = Quorum::majority_of(NonZeroUsize::MIN);
        keeper.reserve(&queue, one, EXACT, ms(0), Fence::next)
    }

    fn win(round: &mut ExtendRound) {
        round.answer(ms(10), 0, Ok(Reply::Extended { clock: WallMicros(1) }));
    }

    fn hand_off(keeper: &Keeper, queue: LocalQueue) -> Handoff {
        keeper.hand_off(ms(20), &queue, &mut Ends::default()).expect("somebody waits")
    }

    /// Handed off by the first of three, who reserved fences for the others.
    fn reserved() -> Handoff {
        let mut keeper = keeper();
        let mut round = reserve(&mut keeper, queue(1, 3)).unwrap();
        win(&mut round);
        keeper.settle_reserved(ms(10), &round);
        hand_off(&keeper, queue(1, 3))
    }

    fn take(handoff: &Handoff, next: NextWaiter) -> Result<(Lease, Reserved), AskAs> {
        match handoff.clone().take(&next, ms(30)) {
            Inherited::Lease { lease, rest, .. } => Ok((lease, rest)),
            Inherited::Ask(ask) => Err(ask),
        }
    }

    #[test]
    fn those_who_waited_take_the_reserved_fences_in_order_and_then_somebody_asks_above_all() {
        let first = reserved();
        let token = number(7 + 16 + 1);
        assert_eq!((first.lease().fence, first.lease().token), (number(7), token));
        let (second, rest) = take(&first, waiter(2)).unwrap();
        assert_eq!((second.fence, second.token, second.deadline), (number(8), token, ms(3000)));
        let mut keeper = Keeper::new(second, ms(30), true, None).with_reserved(rest);
        assert!(reserve(&mut keeper, queue(2, 3)).is_none(), "the third has one");
        let (third, _) = take(&hand_off(&keeper, queue(2, 4)), waiter(3)).unwrap();
        assert_eq!(third.fence, number(9));
        let keeper = Keeper::new(third, ms(30), true, None).with_reserved(rest);
        let late = take(&hand_off(&keeper, queue(3, 4)), waiter(4)).unwrap_err();
        assert_eq!(late, AskAs { holder: lease().holder, above: token });
    }

    #[test]
    fn a_fence_is_reserved_once_a_quorum_has_the_token_and_not_before() {
        let mut keeper = keeper();
        let mut round = reserve(&mut keeper, queue(1, 2)).unwrap();
        let mut handoff = hand_off(&keeper, queue(1, 2));
        assert!(handoff.has_reserved_for(&waiter(2)), "worth waiting for");
        handoff.settle_reserved(ms(20), &round, EXACT);
        assert_eq!(take(&handoff, waiter(2)).unwrap_err().above, number(24), "it may be there");
        let mut failed = handoff.clone();
        let mut silent = round.clone();
        silent.time_up(ms(20));
        failed.settle_reserved(ms(20), &silent, EXACT);
        assert_eq!(take(&failed, waiter(2)).unwrap_err().above, number(24));
        win(&mut round);
        handoff.settle_reserved(ms(20), &round, EXACT);
        assert_eq!(take(&handoff, waiter(2)).unwrap().0.fence, number(8));
    }

    #[test]
    fn a_waiter_that_wants_anything_else_asks() {
        let handoff = reserved();
        let longer = Ttl::new(ttl().get() * 2).unwrap();
        for other in [
            waiter(4),
            NextWaiter { ttl: longer, ..waiter(2) },
            NextWaiter { min_validity: Duration::from_millis(2970), ..waiter(2) },
            NextWaiter { extends: false, ..waiter(2) },
        ] {
            assert!(take(&handoff, other).is_err(), "{other:?}");
        }
        assert!(handoff.is_for("h") && !handoff.is_for("i"));
    }

    #[test]
    fn a_lease_that_is_not_as_good_as_new_goes_on_by_asking() {
        let handoff = reserved();
        let at = |now| matches!(handoff.clone().take(&waiter(2), ms(now)), Inherited::Lease { .. });
        assert!(at(750) && !at(751));
        let mut failing = handoff.clone();
        failing.keeper.failed(ms(20), "no quorum".into(), 0);
        assert!(take(&failing, waiter(2)).is_err(), "it is uncertain");
        let mut refreshing = handoff;
        refreshing.keeper.superseded(number(90));
        assert_eq!(take(&refreshing, waiter(2)).unwrap_err().above, number(90));
    }

    #[test]
    fn there_is_no_fence_beyond_the_last() {
        let mut handoff = reserved();
        let last = Lease { fence: Fence::MAX, token: Fence::MAX, ..lease() };
        handoff.keeper =
            Keeper::new(last, ms(0), true, None).with_reserved(Reserved { up_to: TurnNumber(2) });
        assert!(take(&handoff, waiter(2)).is_err());
    }

    #[test]
    fn a_process_keeps_a_lock_for_sixteen_hand_offs_and_a_tenth_of_a_second() {
        let (keeper, mut ends) = (keeper(), Ends::default());
        let mut waits = queue(1, 2);
        for _ in 0..16 {
            waits.chain = keeper.hand_off(ms(500), &waits, &mut ends).unwrap().chain();
        }
        assert!(keeper.hand_off(ms(500), &waits, &mut ends).is_none(), "others have their turn");
        assert!(reserve(&mut keeper.clone(), waits).is_none(), "nobody is to have one");
        let mut waits = queue(1, 2);
        waits.chain = keeper.hand_off(ms(500), &waits, &mut ends).unwrap().chain();
        waits.chain = keeper.hand_off(ms(599), &waits, &mut ends).unwrap().chain();
        assert!(keeper.hand_off(ms(600), &waits, &mut ends).is_none(), "it began at 500");
    }

    #[test]
    fn nothing_is_handed_off_that_is_lost_or_that_nobody_waits_for() {
        let (keeper, mut ends) = (keeper(), Ends::default());
        assert!(keeper.hand_off(ms(10), &queue(1, 1), &mut ends).is_none());
        assert!(keeper.hand_off(ms(2999), &queue(1, 2), &mut ends).is_some());
        assert!(keeper.hand_off(ms(3000), &queue(1, 2), &mut ends).is_none());
    }

    #[test]
    fn nothing_is_reserved_without_need_nor_for_a_lease_that_is_not_extended_or_over() {
        assert!(reserve(&mut keeper(), queue(1, 1)).is_none(), "nobody waits");
        assert!(reserve(&mut Keeper::new(lease(), ms(0), false, None), queue(1, 2)).is_none());
        let over = Lease { deadline: ms(0), ..lease() };
        assert!(reserve(&mut Keeper::new(over, ms(0), true, None), queue(1, 2)).is_none());
    }
}
