//! A counterexample in words.

use leasehold_core::Reply;
use stateright::Path;

use crate::happening::{Arrival, Happening};
use crate::holders::Decision;
use crate::promise::Promise;
use crate::protocol::Protocol;
use crate::state::{NODES_MAX, Question, State};

/// The one property that is given to the checker, so that it stops at the first state without it.
pub const PROPERTY: &str = "the promises hold";

/// Which promises are broken at the end of `path`, and how it came to that.
pub fn tell(protocol: &Protocol, path: Path<State, Happening>) -> (Vec<Promise>, Vec<String>) {
    let end = path.last_state();
    let broken =
        protocol.setup.checks.iter().filter(|promise| !promise.holds(protocol, end)).copied();
    let broken = broken.collect();
    // A state has its nodes in order; the story keeps their names.
    let mut names: [usize; NODES_MAX] = std::array::from_fn(|place| place + 1);
    let mut story = Vec::new();
    for (state, happening) in path.into_vec() {
        let Some(happening) = happening else { break };
        story.push(sentence(protocol, &state, happening, &names));
        let Some(next) = protocol.after(&state, happening) else { break };
        let (_, places) = next.in_order(protocol.setup.nodes);
        names = places.map(|place| names[place]);
    }
    (broken, story)
}

fn sentence(
    protocol: &Protocol,
    state: &State,
    happening: Happening,
    names: &[usize; NODES_MAX],
) -> String {
    let who = |agent: u8| char::from(b'A' + agent);
    let name = |node: u8| names[usize::from(node)];
    let owner = |node: u8| {
        let owner = protocol.view(&state.nodes[usize::from(node)]).owner;
        owner.map_or("nobody".to_owned(), |owner| who(owner).to_string())
    };
    match happening {
        Happening::Start { agent, proposal, list } => {
            let list = match protocol.setup.lists {
                None => String::new(),
                Some(_) => format!(" and the list of {} nodes", protocol.setup.list_len(list)),
            };
            format!("{} starts with proposal {proposal}{list}", who(agent))
        }
        Happening::HandOver { from, to, proposal } => format!(
            "{} is done and hands over to {}, who asks with {}'s holder value and proposal {proposal}",
            who(from),
            who(to),
            who(state.agents[usize::from(from)].holder),
        ),
        Happening::TakeReserved { from, to } => format!(
            "{} is done and hands its lease to {}, who holds the lock with the reserved fence {}",
            who(from),
            who(to),
            state.agents[usize::from(from)].fence + 1,
        ),
        Happening::Arrive(arrival) => {
            let Arrival { agent, node, .. } = arrival;
            let place = usize::from(arrival.question);
            let asked = state.agents[usize::from(agent)].questions[place];
            let expired = match arrival.expired {
                true => format!(", where {} has expired", owner(node)),
                false => String::new(),
            };
            let (_, reply) = protocol.answer(state, arrival);
            let reply = reply_words(protocol.nodes.reply(reply));
            let (who, asked, node) = (who(agent), question_words(asked), name(node));
            let lost = if arrival.seen { "" } else { ", which is lost" };
            let belief = belief_words(protocol, state, arrival);
            format!("{who}'s {asked} reaches node {node}{expired}: {reply}{lost}{belief}")
        }
        Happening::Decide { agent, decision } => {
            format!("{} {}", who(agent), decision_words(decision))
        }
        Happening::Extend { agent, to } => {
            let token = state.agents[usize::from(agent)].token;
            let later = if to > token { format!(" to {to}") } else { String::new() };
            let verb = if to > token { "refreshes" } else { "extends" };
            format!("{} {verb} its lease with token {token}{later}", who(agent))
        }
        Happening::Claim { agent, lowest, highest } => {
            format!("somebody claims {}'s lease with fences {lowest} to {highest}", who(agent))
        }
        Happening::Force { agent } => format!("somebody takes the lease from {}", who(agent)),
        Happening::Release { agent } => format!("{} releases", who(agent)),
        Happening::Expire { node } => format!("{} expires on node {}", owner(node), name(node)),
        Happening::Wipe { node } => format!(
            "node {} loses its memory (owner {}, fence {})",
            name(node),
            owner(node),
            protocol.view(&state.nodes[usize::from(node)]).fence
        ),
        Happening::Replicate { node } => {
            format!("node {} has a replica, which follows it no longer", name(node))
        }
        Happening::Copy { node, from } if node == from => {
            format!("node {} copies its replica (owner {} is gone)", name(node), owner(node))
        }
        Happening::Copy { node, from } => {
            format!("node {} copies node {} (owner {})", name(node), name(from), owner(node))
        }
        Happening::Mislead { agent } => {
            format!("the name of node 2 leads {} to node 1", who(agent))
        }
        Happening::Rejoin { node } => format!("node {} is back", name(node)),
        Happening::Examine { node, clock } => {
            let after = protocol.after(state, happening);
            let is_out = after.is_some_and(|after| after.nodes[usize::from(node)].is_out);
            let what = if is_out { "quarantined" } else { "admitted, with that as floor" };
            format!("node {} is {what}, its clock shows {clock}", name(node))
        }
        Happening::Judge { node, ahead } => {
            let after = protocol.after(state, happening);
            let is_out = after.is_some_and(|after| after.nodes[usize::from(node)].is_out);
            let what = if is_out { "quarantined" } else { "admitted" };
            format!("node {} is {what}, the clocks {ahead:03b} are ahead", name(node))
        }
        Happening::Tick => format!("time passes to {}", state.now + 1),
        Happening::RaiseFloor { node, to } => format!("node {}'s floor becomes {to}", name(node)),
        Happening::Forget { node, expired: true } => {
            format!("node {}, where {} has expired, forgets idle fences", name(node), owner(node))
        }
        Happening::Forget { node, .. } => format!("node {} forgets idle fences", name(node)),
        Happening::Switch { node } => format!("node {} serves the longer list", name(node)),
        Happening::Bar { node } => format!("node {} is barred", name(node)),
        Happening::SwitchAll { floor } => {
            format!("all nodes serve the longer list, with floor {floor}")
        }
    }
}

fn question_words(question: Question) -> String {
    match question {
        Question::None => "nothing".into(),
        Question::Acquire(proposal) => format!("acquire with {proposal}"),
        Question::Extend(token, next) if token == next => format!("extend with {token}"),
        Question::Extend(token, next) => format!("refresh from {token} to {next}"),
        Question::Claim(lowest, highest) => format!("claim with {lowest} to {highest}"),
        Question::Release => "release".into(),
        Question::Force(seen) => format!("forced release of {seen}"),
    }
}

fn decision_words(decision: Decision) -> String {
    match decision {
        Decision::AskAgain(_, proposal) => format!("asks all nodes again, with {proposal}"),
        Decision::GiveUp => "gives up".into(),
        Decision::Failed => "counts no quorum that kept its lease".into(),
        Decision::Acquired(fence) => format!("holds the lock with fence {fence}"),
        Decision::Extended => "counts a quorum that kept its lease".into(),
    }
}

/// What the holder comes to believe by an arrival, if anything.
fn belief_words(protocol: &Protocol, state: &State, arrival: Arrival) -> String {
    let (i, who) = (usize::from(arrival.agent), char::from(b'A' + arrival.agent));
    let before = &state.agents[i];
    let Some(after) = protocol.after(state, Happening::Arrive(arrival)) else {
        return String::new();
    };
    let after = &after.agents[i];
    if before.stage == after.stage {
        return String::new();
    }
    if !before.completed() {
        return format!("; {who} holds the lock with fence {}", after.fence);
    }
    let late =
        if before.outdated { ", though a later holder had completed before it asked" } else { "" };
    format!("; {who} counts a quorum that kept its lease{late}")
}

fn reply_words(reply: &Reply) -> String {
    match reply {
        Reply::Granted => "GRANTED".into(),
        Reply::Busy { .. } => "BUSY".into(),
        Reply::Behind { fence } => format!("BEHIND {fence}"),
        Reply::Extended { .. } => "EXTENDED".into(),
        Reply::Healed { .. } => "HEALED".into(),
        Reply::Superseded { fence } => format!("SUPERSEDED {fence}"),
        Reply::Released => "RELEASED".into(),
        Reply::NotHeld { .. } => "NOT HELD".into(),
        Reply::Stranger { .. } => "STRANGER".into(),
        other => format!("{other:?}"),
    }
}
