//! What is promised, as predicates of one state.

use std::fmt;

use leasehold_judge::rules;

use crate::holders::quorum;
use crate::protocol::Protocol;
use crate::state::{Agent, Node, State};

/// One promise of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Two acquisitions never get the same number; neither does a refresh.
    F1,
    /// If A completed before B started, B's fence is larger.
    F2,
    /// An extend or refresh that started after a later holder completed fails.
    F5,
    /// Of two that hold, the one with the lower fence lost its lease on some node before.
    F6,
    /// From B's completion on, fewer than a quorum can keep A with a lower fence.
    F7,
    /// Two never hold at once. Only where nothing expires.
    M,
    /// On a node that granted a handed-over lease, no message of a former user changes anything.
    H,
    /// A claim changes nothing on any node, and what is given back has no fence above the one given.
    C,
    /// What was released on all nodes is on a quorum no more, and what was ended by force on no node
    /// where it was.
    R,
}

impl Promise {
    /// Whether it holds in `state`.
    pub fn holds(self, protocol: &Protocol, state: &State) -> bool {
        let agents = &state.agents[..protocol.setup.agents];
        match self {
            Self::F2 => !state.broke_f2,
            Self::F5 => !state.broke_f5,
            Self::H => !state.broke_h,
            Self::C => !state.broke_c,
            Self::R => !(0..agents.len()).any(|agent| is_revived(protocol, state, agent)),
            Self::F1 => !pairs(agents).any(|(a, b)| shares_a_number(a, b)),
            Self::M => !pairs(agents).any(|(a, b)| a.holds() && b.holds()),
            Self::F6 => !pairs(agents)
                .any(|(a, b)| a.holds() && b.holds() && a.fence < b.fence && !a.missed),
            Self::F7 => !pairs(agents).any(|(a, b)| {
                a.completed()
                    && b.completed()
                    && a.fence < b.fence
                    && can_be_kept(protocol, state, a)
            }),
        }
    }
}

/// All pairs, in both orders.
fn pairs(agents: &[Agent]) -> impl Iterator<Item = (&Agent, &Agent)> {
    let others =
        |(i, a)| agents.iter().enumerate().filter(move |(j, _)| i != *j).map(move |(_, b)| (a, b));
    agents.iter().enumerate().flat_map(others)
}

fn shares_a_number(a: &Agent, b: &Agent) -> bool {
    let numbers = [(a.fence, b.fence), (a.fence, b.token), (a.token, b.fence), (a.token, b.token)];
    a.completed() && b.completed() && !numbers.into_iter().all(|(a, b)| rules::differ(a, b))
}

fn can_be_kept(protocol: &Protocol, state: &State, agent: &Agent) -> bool {
    let members = protocol.setup.list_len(agent.list);
    let kept = state.nodes[..members].iter().filter(|node| {
        let view = protocol.nodes.view(node.table);
        view.owner == Some(agent.holder) && view.fence <= agent.token
    });
    kept.count() >= quorum(members).needed()
}

fn is_revived(protocol: &Protocol, state: &State, agent: usize) -> bool {
    let nodes = &state.nodes[..protocol.setup.nodes];
    let holder = state.agents[agent].holder;
    let owns = |node: &&Node| protocol.view(node).owner == Some(holder);
    let is_forced = |node: &&Node| node.forced >> agent & 1 == 1;
    let is_released = nodes.iter().all(|node| node.released >> agent & 1 == 1);
    let owned = nodes.iter().filter(owns).count();
    nodes.iter().filter(owns).any(|node| is_forced(&node))
        || is_released && owned >= quorum(nodes.len()).needed()
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
