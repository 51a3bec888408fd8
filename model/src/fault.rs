//! What befalls the nodes: loss of memory and return, floors that rise, member lists that change.

use crate::clocks::{Look, Others};
use crate::happening::Happening;
use crate::mutation::Mutation;
use crate::nodes::Step;
use crate::promise::Promise;
use crate::protocol::Protocol;
use crate::setup::{Change, Rejoin};
use crate::state::{Agent, Node, Stage, State};

/// How long a node waits where clocks may be set, and what a right one shows after that, in
/// microseconds. A step is as long; the skew is half of it.
const QUARANTINE: u8 = 60;
const WAITED: u8 = 80;

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
            (Rejoin::AboveOthers, _) => {
                let waits_for = state.nodes[usize::from(node)].waits_for;
                let is_open = |(i, agent): (usize, &Agent)| {
                    waits_for >> i & 1 == 1
                        && matches!(agent.stage, Stage::Acquiring | Stage::Extending)
                };
                if !state.agents.iter().enumerate().any(is_open) {
                    happenings.push(Happening::Judge { node, ahead: 0 });
                }
            }
            (Rejoin::ByWitnesses, _) => {
                // Any but all of them.
                for ahead in 0..7 {
                    happenings.push(Happening::Judge { node, ahead });
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
        let waits_for = match self.setup.rejoin {
            Rejoin::AboveOthers => asking(state),
            _ => active(state),
        };
        let life = self.life(state);
        let node = &mut state.nodes[usize::from(node)];
        let former = self.view(node).fence;
        node.table = self.nodes.blank();
        match self.setup.rejoin {
            Rejoin::WithFormerFence => self.admit(node, life, former),
            Rejoin::Empty => self.admit(node, life, 0),
            Rejoin::AfterAttempts | Rejoin::AboveOthers | Rejoin::ByWitnesses => {
                (node.is_out, node.waits_for) = (true, waits_for)
            }
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
        let record = self.view(&state.nodes[usize::from(node)]).record;
        let since = state.nodes[usize::from(node)].waits_for;
        let count = self.setup.nodes as u8 / 2;
        let clocks = [state.now; 2];
        let others = Others { count, highest: self.remembered(&state, node, count)?, clocks };
        let look = Look {
            record,
            life: self.life(&state),
            clock,
            waited: if record > 0 { state.now - since } else { 0 },
            quarantine,
            others: (record > 0).then_some(others),
        };
        if record == 0 {
            state.nodes[usize::from(node)].waits_for = state.now;
        }
        self.write(state, node, look)
    }

    /// The same, where no clock tells the time, or clocks may have been set.
    pub(crate) fn judge(&self, state: State, node: u8, ahead: u8) -> Option<State> {
        let is_by_witnesses = self.setup.rejoin == Rejoin::ByWitnesses;
        let nodes = self.setup.nodes as u8;
        // N - q + 1: the fewest that meet every quorum without this node.
        let fewer = u8::from(self.setup.mutation == Some(Mutation::OneOtherFewer));
        let count = if is_by_witnesses { nodes - 1 } else { nodes - nodes / 2 - fewer };
        let this = state.nodes[usize::from(node)];
        let right = match is_by_witnesses && self.are_over(&state, this.waits_for) {
            true => WAITED,
            false => 1,
        };
        let clock = |bit: u8| if ahead >> bit & 1 == 1 { right + WAITED } else { right };
        let highest = match is_by_witnesses {
            true => 0,
            false => self.remembered(&state, node, count)?,
        };
        let look = Look {
            record: self.view(&this).record,
            life: self.life(&state),
            clock: clock(0),
            waited: 0,
            quarantine: if is_by_witnesses { QUARANTINE } else { 0 },
            others: Some(Others { count, highest, clocks: [clock(1), clock(2)] }),
        };
        self.write(state, node, look)
    }

    fn write(&self, mut state: State, node: u8, look: Look) -> Option<State> {
        let mut record = self.nodes.examined(look)?;
        if self.setup.rejoin == Rejoin::ByWitnesses {
            // Proposals are small and clocks are not: a floor would keep everybody out.
            record = self.nodes.with_floor(record, 0);
        }
        let node = &mut state.nodes[usize::from(node)];
        self.apply(node, Step::Write(record));
        node.is_out = !self.nodes.record(record).admitted;
        if !node.is_out {
            node.waits_for = 0;
        }
        Some(state)
    }

    /// What `count` others know at least: the highest fence of those that know the least. Those that
    /// are out know nothing; where they must not be counted, `None` if too few are left.
    fn remembered(&self, state: &State, node: u8, count: u8) -> Option<u8> {
        let others = state.nodes[..self.setup.nodes].iter().enumerate();
        let needs_memory = self.setup.rejoin == Rejoin::AboveOthers;
        let others = others
            .filter(|(other, it)| *other != usize::from(node) && !(needs_memory && it.is_out));
        let mut fences: Vec<u8> = others.map(|(_, it)| self.view(it).fence).collect();
        fences.sort_unstable();
        fences.get(usize::from(count) - 1).copied()
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

/// The attempts that wait for answers, one bit each.
fn asking(state: &State) -> u8 {
    let is_asking = |agent: &Agent| matches!(agent.stage, Stage::Acquiring | Stage::Extending);
    let asking = state.agents.iter().enumerate().filter(|(_, agent)| is_asking(agent));
    asking.fold(0, |mask, (i, _)| mask | 1 << i)
}
