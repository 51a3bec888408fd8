//! Clients that want the one lock, and how their leases end.

use leasehold_core::{Origin, RecordState};
use leasehold_judge::rules;

use super::state::{Bits, Lease, Phase, State, bit};
use super::world::World;

impl World {
    /// What a node remembers.
    fn remembers(&self, state: &State, node: usize) -> u64 {
        let floor = state.nodes[node].record.as_ref().map_or(0, |it| it.record.floor.get());
        state.nodes[node].highest.max(floor)
    }

    /// Whether this node votes for this client.
    pub(super) fn may_vote(&self, state: &State, client: usize, node: usize) -> bool {
        let lease = &state.leases[client];
        let list = &self.lists[self.setup.clients[client]];
        let remembers = self.remembers(state, node);
        let is_behind = self.setup.fences
            && match lease.phase {
                Phase::Asks => lease.fence <= remembers,
                Phase::Holds => lease.fence < remembers,
                Phase::Idle | Phase::Over => false,
            };
        list.is_served_by(node, &state.nodes[node])
            && state.owner(node).is_none_or(|owner| owner == client)
            && lease.votes & bit(node) == 0
            && (lease.votes == 0 || lease.passes & bit(node) != 0)
            && !is_behind
    }

    /// A node votes for a client: it grants, or it renews.
    pub(super) fn vote(&self, next: &mut State, client: usize, node: usize) {
        let remembers = self.remembers(next, node);
        let list = &self.lists[self.setup.clients[client]];
        let quorum = list.quorum();
        let serve = |at: &usize| list.is_served_by(*at, &next.nodes[*at]);
        let passes = (0..next.nodes.len()).filter(serve).fold(0, |all, at| all | bit(at));
        let lease = &mut next.leases[client];
        if lease.phase == Phase::Idle {
            let fence = if self.setup.fences { remembers + 1 } else { 0 };
            *lease = Lease { phase: Phase::Asks, fence, ..Lease::default() };
        }
        if lease.votes == 0 {
            (lease.outwaits_round, lease.passes) = (0, passes);
        }
        lease.votes |= bit(node);
        lease.passes &= !lease.votes;
        lease.owns |= bit(node);
        if self.setup.fences {
            next.nodes[node].highest = next.nodes[node].highest.max(lease.fence);
        }
        if lease.votes.count_ones() < quorum {
            return;
        }
        if lease.phase == Phase::Asks && self.setup.fences {
            next.went_back |= !rules::grows(lease.fence, next.completed);
            next.completed = next.completed.max(lease.fence);
        }
        // What it was granted in earlier rounds may be over from now on.
        let owns = lease.owns & lease.votes;
        let outwaits = lease.outwaits_round;
        *lease =
            Lease { phase: Phase::Holds, owns, outwaits, fence: lease.fence, ..Lease::default() };
    }

    /// A client gives up, or releases, or its time is over.
    pub(super) fn end(&self, lease: &mut Lease) {
        let phase = if self.setup.fences { Phase::Over } else { Phase::Idle };
        *lease = Lease { phase, ..Lease::default() };
    }

    /// Something else stands on a node now.
    pub(super) fn is_written(&self, next: &mut State, node: usize) {
        let state = next.nodes[node].record.as_ref().map(|written| written.record.state);
        let waits: Bits = match state {
            Some(RecordState::Quarantined) => bit(node),
            _ => 0,
        };
        for lease in next.leases.iter_mut().filter(|lease| lease.is_alive()) {
            lease.outwaits = lease.outwaits & !bit(node) | waits;
            lease.outwaits_round = lease.outwaits_round & !bit(node) | waits;
            lease.passes &= !bit(node);
            if lease.phase == Phase::Asks {
                lease.outwaits = 0;
            }
            if lease.votes == 0 {
                lease.outwaits_round = 0;
            }
        }
    }

    /// A quarantine is over, and with it every lease of before.
    pub(super) fn has_waited(&self, next: &mut State, node: usize) {
        for lease in &mut next.leases {
            let is_over = match lease.phase {
                Phase::Asks => lease.outwaits_round & bit(node) != 0,
                _ => lease.outwaits & bit(node) != 0,
            };
            if is_over {
                self.end(lease);
            } else if lease.outwaits_round & bit(node) != 0 {
                (lease.votes, lease.passes, lease.outwaits_round) = (0, 0, 0);
            }
        }
    }

    /// What a node that waited has as its floor. Where no change wrote it down, its clock is above all
    /// numbers by now.
    pub(super) fn floor_after_waiting(&self, state: &State, node: usize) -> u64 {
        let Some(written) = &state.nodes[node].record else { return 0 };
        let given = state.nodes.iter().map(|node| node.highest).max().unwrap_or_default();
        let floor = written.record.floor.get();
        if written.record.origin == Origin::Succession { floor } else { floor.max(given) }
    }
}
