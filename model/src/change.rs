//! What becomes of the servers behind the members' names: copied over one another while their
//! processes and connections live on, and met under the name of another member.

use crate::fault::active;
use crate::happening::Happening;
use crate::mutation::Mutation;
use crate::protocol::Protocol;
use crate::state::{Node, State};

impl Protocol {
    /// The number of a node's server, 0 where all are alike, and its history.
    pub(crate) fn server(&self, node: &Node) -> (u8, u8) {
        if self.setup.has_names() { (node.class + 1, node.history) } else { (0, 0) }
    }

    /// Which servers may change next.
    pub(crate) fn changes(&self, state: &State, happenings: &mut Vec<Happening>) {
        if state.copies_left > 0 {
            self.copies(state, happenings);
        }
        if state.misleads_left > 0 {
            let agents = 0..self.setup.agents as u8;
            let begun = agents.filter(|agent| state.agents[usize::from(*agent)].is_active());
            happenings.extend(begun.map(|agent| Happening::Mislead { agent }));
        }
    }

    /// Names do not matter to what may happen, so it may as well be the first node that has a
    /// replica and copies it, or copies the second.
    fn copies(&self, state: &State, happenings: &mut Vec<Happening>) {
        let node = &state.nodes[0];
        if node.replica == 0 {
            happenings.push(Happening::Replicate { node: 0 });
        } else {
            happenings.push(Happening::Copy { node: 0, from: 0 });
        }
        happenings.push(Happening::Copy { node: 0, from: 1 });
    }

    pub(crate) fn replicate(&self, state: &mut State, node: u8) {
        let node = &mut state.nodes[usize::from(node)];
        node.replica = node.table + 1;
    }

    /// The node is a replica and a primary again before anybody looks. What it had is gone; if the
    /// core sees that, it sits out, and otherwise it votes.
    pub(crate) fn copy(&self, state: &mut State, node: u8, from: u8) {
        self.miss(state, node);
        state.copies_left -= 1;
        let waits_for = active(state);
        let place = usize::from(node);
        let table = match from == node {
            true => state.nodes[place].replica - 1,
            false => state.nodes[usize::from(from)].table,
        };
        let node = &mut state.nodes[place];
        (node.table, node.replica) = (table, 0);
        node.history += 1;
        if self.setup.mutation != Some(Mutation::CopyNotTold) {
            // Answers that were under way came before the news; whatever comes after is not heard.
            node.told = waits_for;
        }
        if !self.is_voter(state, 0, place) {
            let node = &mut state.nodes[place];
            (node.is_out, node.waits_for) = (true, waits_for);
        }
    }

    /// The connection to the second member breaks with all that was under way on it.
    pub(crate) fn mislead(&self, state: &mut State, agent: u8) {
        let i = usize::from(agent);
        state.misleads_left -= 1;
        state.agents[i].misled = true;
        state.nodes[1].lanes[i] = Default::default();
    }

    /// Whether an attempt was told that a node's data is not what it was when it asked.
    pub(crate) fn is_told(&self, state: &State, agent: u8, node: u8) -> bool {
        state.nodes[usize::from(node)].told >> agent & 1 == 1
    }
}
