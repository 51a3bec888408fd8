//! What befalls the nodes: loss of memory and return, floors that rise, member lists that change.

use crate::happening::Happening;
use crate::mutation::Mutation;
use crate::nodes::Step;
use crate::promise::Promise;
use crate::protocol::Protocol;
use crate::setup::{Change, Rejoin};
use crate::state::{Node, State};

impl Protocol {
    /// What may happen to the nodes next.
    pub(crate) fn faults(&self, state: &State, happenings: &mut Vec<Happening>) {
        for (n, node) in state.nodes[..self.setup.nodes].iter().enumerate() {
            let n = n as u8;
            if node.is_out {
                self.returns(state, n, happenings);
            } else if state.wipes_left > 0 {
                happenings.push(Happening::Wipe { node: n });
            }
            if self.setup.plain && self.setup.expiry && self.view(node).owner.is_some() {
                happenings.push(Happening::Expire { node: n });
            }
            if self.setup.drops > 0 {
                self.drops(state, n, happenings);
            }
        }
        self.changes(state, happenings);
        if self.setup.clock.is_some_and(|clock| state.now < clock.to) {
            happenings.push(Happening::Tick);
        }
        self.switches(state, happenings);
    }

    fn returns(&self, state: &State, node: u8, happenings: &mut Vec<Happening>) {
        match (self.setup.rejoin, self.setup.clock) {
            (Rejoin::Admitted, Some(clock)) => {
                for clock in state.now - clock.skew..=state.now + clock.skew {
                    happenings.push(Happening::Examine { node, clock });
                }
            }
            _ if self.are_over(state, state.nodes[usize::from(node)].waits_for) => {
                happenings.push(Happening::Rejoin { node });
            }
            _ => {}
        }
    }

    fn drops(&self, state: &State, node: u8, happenings: &mut Vec<Happening>) {
        let view = self.view(&state.nodes[usize::from(node)]);
        let floor = self.nodes.record(view.record).floor;
        let needs_floor = self.setup.mutation != Some(Mutation::ForgetWithoutFloor);
        if state.drops_left > 0 && needs_floor {
            let may_fall = self.setup.mutation == Some(Mutation::FloorMayFall);
            let lowest = if may_fall { 0 } else { floor + 1 };
            for to in (lowest..=self.setup.proposals + 1).filter(|to| *to != floor) {
                happenings.push(Happening::RaiseFloor { node, to });
            }
        }
        if needs_floor || state.drops_left > 0 {
            let expired = view.owner.is_some();
            if !expired || self.setup.expiry {
                happenings.push(Happening::Forget { node, expired });
            }
        }
    }

    fn switches(&self, state: &State, happenings: &mut Vec<Happening>) {
        let Some(lists) = self.setup.lists else { return };
        let nodes = &state.nodes[..self.setup.nodes];
        let record = |node: &Node| self.nodes.record(self.view(node).record);
        match lists.change {
            Change::Rolling => {
                for (n, _) in nodes.iter().enumerate().filter(|(_, node)| record(node).list == 1) {
                    happenings.push(Happening::Switch { node: n as u8 });
                }
            }
            Change::Barrier { floor, waits } if !state.switched => {
                let old = || nodes[..lists.shorter].iter().enumerate();
                for (n, _) in old().filter(|(_, node)| record(node).admitted) {
                    happenings.push(Happening::Bar { node: n as u8 });
                }
                let all_barred = old().all(|(_, node)| !record(node).admitted);
                if all_barred && (!waits || self.are_over(state, u8::MAX)) {
                    let highest = nodes.iter().map(|node| self.view(node).fence).max();
                    let floor = if floor { highest.unwrap_or(0) } else { 0 };
                    happenings.push(Happening::SwitchAll { floor });
                }
            }
            Change::Barrier { .. } | Change::Never => {}
        }
    }

    /// Notes that the owner on a node lost its lease there.
    pub(crate) fn miss(&self, state: &mut State, node: u8) {
        let tenant = self.tenant(state, &state.nodes[usize::from(node)]);
        if let Some(tenant) = tenant
            && self.setup.checks.contains(&Promise::F6)
        {
            state.agents[tenant].missed = true;
        }
    }

    pub(crate) fn expire(&self, state: &mut State, node: u8) {
        self.miss(state, node);
        self.apply(&mut state.nodes[usize::from(node)], Step::Expire);
    }

    pub(crate) fn wipe(&self, state: &mut State, node: u8) {
        self.miss(state, node);
        state.wipes_left -= 1;
        let waits_for = active(state);
        let life = self.life(state);
        let node = &mut state.nodes[usize::from(node)];
        let former = self.view(node).fence;
        node.table = self.nodes.blank();
        match self.setup.rejoin {
            Rejoin::WithFormerFence => self.admit(node, life, former),
            Rejoin::Empty => self.admit(node, life, 0),
            Rejoin::AfterAttempts => (node.is_out, node.waits_for) = (true, waits_for),
            Rejoin::Admitted => node.is_out = true,
        }
    }

    /// A number for the life that begins with the last wipe.
    fn life(&self, state: &State) -> u8 {
        self.setup.wipes - state.wipes_left + self.setup.copies - state.copies_left
    }

    fn admit(&self, node: &mut Node, life: u8, floor: u8) {
        let record = self.nodes.admitted(2, self.setup.nodes, life, floor, self.server(node));
        self.apply(node, Step::Write(record));
    }

    pub(crate) fn rejoin(&self, state: &mut State, node: u8) {
        let life = self.life(state);
        let node = &mut state.nodes[usize::from(node)];
        (node.is_out, node.waits_for) = (false, 0);
        self.admit(node, life, 0);
    }

    /// The core's `Admission` looks at a node that is out, and writes what it says.
    pub(crate) fn examine(&self, mut state: State, node: u8, clock: u8) -> Option<State> {
        let quarantine = self.setup.clock?.quarantine;
        let life = self.life(&state);
        let node = &mut state.nodes[usize::from(node)];
        let record = self.nodes.examined(self.view(node).record, clock, life, quarantine)?;
        self.apply(node, Step::Write(record));
        node.is_out = !self.nodes.record(record).admitted;
        Some(state)
    }

    /// Whether every attempt of `mask` is over and owns nothing.
    fn are_over(&self, state: &State, mask: u8) -> bool {
        let is_over = |i: usize| {
            let owns = |node: &Node| self.tenant(state, node) == Some(i);
            !state.agents[i].is_active() && !state.nodes[..self.setup.nodes].iter().any(owns)
        };
        (0..self.setup.agents).filter(|i| mask >> i & 1 == 1).all(is_over)
    }

    pub(crate) fn raise_floor(&self, state: &mut State, node: u8, to: u8) {
        state.drops_left -= 1;
        let node = &mut state.nodes[usize::from(node)];
        let record = self.nodes.with_floor(self.view(node).record, to);
        self.apply(node, Step::Write(record));
    }

    pub(crate) fn forget(&self, mut state: State, node: u8, expired: bool) -> Option<State> {
        if expired {
            self.expire(&mut state, node);
        }
        let node = &mut state.nodes[usize::from(node)];
        let before = node.table;
        let step = match self.setup.mutation {
            Some(Mutation::ForgetWithoutFloor) => {
                state.drops_left -= 1;
                Step::ForgetWithoutFloor
            }
            _ => Step::Forget,
        };
        self.apply(node, step);
        (node.table != before).then_some(state)
    }

    pub(crate) fn bar(&self, state: &mut State, node: u8) {
        let node = &mut state.nodes[usize::from(node)];
        let record = self.nodes.barred(self.view(node).record);
        self.apply(node, Step::Write(record));
    }

    pub(crate) fn switch(&self, state: &mut State, node: u8) {
        let node = &mut state.nodes[usize::from(node)];
        let floor = self.nodes.record(self.view(node).record).floor;
        self.admit(node, 0, floor);
    }

    pub(crate) fn switch_all(&self, state: &mut State, floor: u8) {
        state.switched = true;
        for node in &mut state.nodes[..self.setup.nodes] {
            self.admit(node, 0, floor);
        }
    }
}

/// The attempts that have begun and are not over, one bit each.
pub(crate) fn active(state: &State) -> u8 {
    let active = state.agents.iter().enumerate().filter(|(_, agent)| agent.is_active());
    active.fold(0, |mask, (i, _)| mask | 1 << i)
}
