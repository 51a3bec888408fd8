//! What may become of a lease that its holder hands to the next waiter. The core is asked, with a
//! keeper that went through the refreshes of the attempt, at every moment that makes a difference.

use leasehold_core::rounds::ExtendRound;
use leasehold_core::{
    AskAs, Chain, Drift, Ends, Handoff, Inherited, Keeper, Lease, LocalQueue, Moment, NextWaiter,
    Reply, TurnNumber, WallMicros,
};

use crate::holders::quorum;
use crate::mutation::Mutation;
use crate::nodes::{NOW, fence, small, ttl};
use crate::protocol::Protocol;
use crate::state::Agent;

/// When a process has kept the lock for long enough, and of a lease less is left than a reserved fence
/// needs. Time has no other part here, so any state may be one in which it is up.
const TIME_IS_UP: Moment = Moment::from_millis(900);

/// The holder's own place in the queue, that of a waiter for whom a refresh reserves a fence, and that
/// of one who comes later.
const OWN: TurnNumber = TurnNumber(1);
const WAITED: TurnNumber = TurnNumber(2);
const CAME_LATE: TurnNumber = TurnNumber(3);

/// What the next waiter may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HandOff {
    /// It may hold at once: its fence, and the token.
    pub(crate) reserved: Option<(u8, u8)>,
    /// Even if it came after the refresh was sent.
    pub(crate) is_for_late_comers: bool,
    /// It may ask with a proposal above this.
    pub(crate) above: Option<u8>,
}

impl HandOff {
    /// As one number of 16 bits; fences are below 31.
    fn packed(self) -> u64 {
        let (fence, token) = self.reserved.unwrap_or_default();
        let above = self.above.map_or(0, |above| above + 1);
        let late = u64::from(self.is_for_late_comers) << 15;
        late | u64::from(fence) << 10 | u64::from(token) << 5 | u64::from(above)
    }

    fn unpacked(packed: u64) -> Self {
        let [fence, token, above] = [10, 5, 0].map(|by| (packed >> by & 31) as u8);
        Self {
            reserved: (fence > 0).then_some((fence, token)),
            is_for_late_comers: packed >> 15 & 1 == 1,
            above: above.checked_sub(1),
        }
    }
}

impl Protocol {
    /// What may become of the lease of `one`, which was handed on so many times before.
    pub(crate) fn hand_off(&self, one: &Agent, times: u8) -> HandOff {
        let key = [one.fence, one.token, one.refreshing, times];
        let key = u64::from(u32::from_le_bytes(key));
        HandOff::unpacked(self.hand_offs.get(key, || self.handed_off(one, times).packed()))
    }

    fn handed_off(&self, one: &Agent, times: u8) -> HandOff {
        let keeper = self.keeper(one);
        let mut found = HandOff::default();
        for now in [NOW, TIME_IS_UP] {
            let queue = queue(chain(&keeper, times));
            let Some(handoff) = keeper.hand_off(now, &queue, &mut Ends::default()) else {
                continue;
            };
            for turn in [WAITED, CAME_LATE] {
                match take(&handoff, self.believed(turn), now) {
                    Inherited::Lease { lease, .. } => {
                        found.reserved = Some((small(lease.fence), small(lease.token)));
                        found.is_for_late_comers |= turn == CAME_LATE;
                    }
                    Inherited::Ask(AskAs { above, .. }) => found.above = Some(small(above)),
                }
            }
        }
        found
    }

    /// The place that is taken for the waiter's.
    fn believed(&self, turn: TurnNumber) -> TurnNumber {
        let is_mistaken = self.setup.mutation == Some(Mutation::ReservedForLateComer);
        if is_mistaken { WAITED } else { turn }
    }

    /// The keeper of an attempt: its refreshes were won up to its token, and the latest one may be under
    /// way.
    fn keeper(&self, one: &Agent) -> Keeper {
        let (won, under_way) = match self.setup.mutation {
            Some(Mutation::ReservedBeforeWon) => (one.highest(), 0),
            Some(Mutation::ReservedBeyondToken) => (self.setup.proposals, 0),
            _ => (one.token, one.refreshing),
        };
        let lease = Lease {
            lock: self.nodes.lock().clone(),
            holder: self.nodes.holder(one.holder).clone(),
            fence: fence(one.fence),
            token: fence(one.fence),
            ttl: ttl(),
            deadline: NOW.plus(ttl().get()),
            uncertain: false,
        };
        let mut keeper = Keeper::new(lease, NOW, true, None);
        if won > one.fence {
            let mut round = self.refresh(&mut keeper, won);
            round.answer(NOW, 0, Ok(Reply::Extended { clock: WallMicros(0) }));
            keeper.settle_reserved(NOW, &round);
        }
        if under_way > 0 {
            let round = self.refresh(&mut keeper, under_way);
            keeper.settle_reserved(NOW, &round);
        }
        keeper
    }

    /// A refresh to `number` that the keeper sends: to reserve fences, or for other reasons.
    fn refresh(&self, keeper: &mut Keeper, number: u8) -> ExtendRound {
        let (one, next) = (quorum(1), fence(number));
        let queue = queue(Chain::default());
        let reserves = self.setup.reserves;
        let reserving =
            reserves.then(|| keeper.reserve(&queue, one, Drift::DEFAULT, NOW, |_| next));
        reserving.flatten().unwrap_or_else(|| {
            keeper.superseded(next);
            keeper.round(one, Drift::DEFAULT, NOW, |_| next)
        })
    }
}

/// The queue of a holder behind whom one waits.
fn queue(chain: Chain) -> LocalQueue {
    LocalQueue { turn: OWN, waiting_up_to: Some(WAITED), chain }
}

/// The chain of a lease that was handed on so many times.
fn chain(keeper: &Keeper, times: u8) -> Chain {
    (0..times).fold(Chain::default(), |chain, _| {
        let handoff = keeper.hand_off(NOW, &queue(chain), &mut Ends::default());
        handoff.as_ref().map_or(chain, Handoff::chain)
    })
}

fn take(handoff: &Handoff, turn: TurnNumber, now: Moment) -> Inherited {
    let min_validity = std::time::Duration::ZERO;
    let next = NextWaiter { turn, ttl: ttl(), min_validity, extends: true };
    handoff.clone().take(&next, now)
}
