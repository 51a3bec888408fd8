//! All states, and who can wait for ever.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::state::{Phase, Process, State};
use super::steps::{Step, steps};
use super::{Promise, Setup, Verdict};

/// Every state that can be reached, with what may happen there.
struct Graph {
    states: Vec<State>,
    /// Where each step leads to.
    steps: Vec<Vec<(Step, usize)>>,
    /// How each state was first reached.
    from: Vec<Option<(usize, Step)>>,
}

/// Explores everything; `progress` is told now and then how many states there are so far.
pub(super) fn explore(setup: &Setup, progress: impl Fn(usize)) -> (usize, Verdict) {
    let graph = Graph::of(setup, progress);
    let waits = |process: usize| move |state: &State| state.processes[process].is_waiting();
    let waits_for_ever = match setup.promise {
        Promise::EachIsServed => (0..setup.processes).find_map(|one| graph.stays(waits(one))),
        Promise::OneIsServed => graph.stays(|state| {
            let holds = |process: &Process| process.phase == Phase::Holds;
            let waits = state.processes.iter().any(Process::is_waiting);
            waits && !state.processes.iter().any(holds)
        }),
        Promise::InTurn => {
            let overtakes = graph.states.iter().position(|state| state.overtook);
            overtakes.map(|at| (at, "one was overtaken"))
        }
    };
    let verdict = match waits_for_ever {
        Some((at, how)) => {
            let mut trace = graph.way_to(at);
            trace.push(format!("and then: {how}"));
            Verdict::Starves { trace }
        }
        None => Verdict::Served,
    };
    (graph.states.len(), verdict)
}

impl Graph {
    fn of(setup: &Setup, progress: impl Fn(usize)) -> Self {
        let first = State::new(setup);
        let mut known = HashMap::from([(first.clone(), 0)]);
        let mut graph = Self { states: vec![first], steps: Vec::new(), from: vec![None] };
        while graph.steps.len() < graph.states.len() {
            let here = graph.steps.len();
            let mut leads_to = Vec::new();
            for (step, next) in steps(setup, &graph.states[here]) {
                let fresh = graph.states.len();
                let there = *known.entry(next).or_insert_with_key(|next| {
                    graph.states.push(next.clone());
                    graph.from.push(Some((here, step)));
                    fresh
                });
                leads_to.push((step, there));
            }
            graph.steps.push(leads_to);
            if here.is_multiple_of(65_536) {
                progress(graph.states.len());
            }
        }
        graph
    }

    fn way_to(&self, mut at: usize) -> Vec<String> {
        let mut way = Vec::new();
        while let Some((before, step)) = self.from[at] {
            way.push(format!("{step:?}"));
            at = before;
        }
        way.reverse();
        way
    }

    /// A state after which it can be so for ever, though everything that is due happens in the end.
    fn stays(&self, is_so: impl Fn(&State) -> bool) -> Option<(usize, &'static str)> {
        let within: Vec<bool> = self.states.iter().map(is_so).collect();
        let is_stuck = |at: &usize| within[*at] && !self.steps[*at].iter().any(|(s, _)| s.is_due());
        if let Some(at) = (0..self.states.len()).find(is_stuck) {
            return Some((at, "nothing is due any more"));
        }
        Some((self.endless_round(&within)?, "the same again and again"))
    }

    /// A state that a run within these states comes back to for ever, though everything that is due
    /// happens.
    fn endless_round(&self, within: &[bool]) -> Option<usize> {
        let mut search = Search::new(self.states.len());
        let within: Vec<usize> = (0..within.len()).filter(|at| within[*at]).collect();
        let mut rounds = self.components(&mut search, &within);
        while let Some(round) = rounds.pop() {
            let inside: HashSet<usize> = round.iter().copied().collect();
            let late = self.left_out(&round, &inside);
            if late.is_empty() {
                if self.goes_round(&round, &inside) {
                    return Some(round[0]);
                }
                continue;
            }
            // Such a run would have to keep away from where these are possible.
            let is_possible =
                |at: &usize| self.steps[*at].iter().any(|(step, _)| late.contains(step));
            let rest: Vec<usize> = round.iter().copied().filter(|at| !is_possible(at)).collect();
            rounds.extend(self.components(&mut search, &rest));
        }
        None
    }

    /// What goes by the clock, is possible in this round, and never happens in it.
    fn left_out(&self, round: &[usize], inside: &HashSet<usize>) -> BTreeSet<Step> {
        let (mut possible, mut happens) = (BTreeSet::new(), BTreeSet::new());
        for (step, to) in round.iter().flat_map(|at| &self.steps[*at]) {
            if step.goes_by_the_clock() {
                possible.insert(*step);
                if inside.contains(to) {
                    happens.insert(*step);
                }
            }
        }
        possible.difference(&happens).copied().collect()
    }

    /// Whether a run can go round in these states for ever, and nothing that is due all the time is
    /// left out.
    fn goes_round(&self, round: &[usize], inside: &HashSet<usize>) -> bool {
        let stays = |(_, to): &&(Step, usize)| inside.contains(to);
        let mut edges = round.iter().flat_map(|at| self.steps[*at].iter()).filter(stays);
        if edges.next().is_none() {
            return false;
        }
        let due = self.steps[round[0]].iter().map(|(step, _)| *step).filter(|s| s.is_due());
        due.into_iter().all(|step| {
            let is_off = |at: &usize| !self.steps[*at].iter().any(|(other, _)| *other == step);
            let happens = |at: &usize| {
                self.steps[*at].iter().any(|(other, to)| *other == step && inside.contains(to))
            };
            round.iter().any(is_off) || round.iter().any(happens)
        })
    }

    /// The strongly connected parts of the states in `within`: Tarjan's, without recursion.
    fn components(&self, search: &mut Search, within: &[usize]) -> Vec<Vec<usize>> {
        search.begin(within);
        let Search { marks, index, low } = search;
        let (mut stack, mut found, mut next) = (Vec::new(), Vec::new(), 0);
        for root in within.iter().copied() {
            if marks[root] != Mark::Unseen {
                continue;
            }
            let mut calls = vec![(root, 0)];
            while let Some((at, edge)) = calls.pop() {
                if marks[at] == Mark::Unseen {
                    (index[at], low[at]) = (next, next);
                    next += 1;
                    stack.push(at);
                    marks[at] = Mark::OnStack;
                }
                let mut edge = edge;
                let mut goes_down = false;
                while let Some((_, to)) = self.steps[at].get(edge) {
                    let to = *to;
                    if marks[to] == Mark::Unseen {
                        calls.push((at, edge));
                        calls.push((to, 0));
                        goes_down = true;
                        break;
                    }
                    if marks[to] == Mark::OnStack {
                        low[at] = low[at].min(low[to]);
                    }
                    edge += 1;
                }
                if goes_down {
                    continue;
                }
                if low[at] == index[at] {
                    let split = stack.iter().rposition(|other| *other == at).unwrap_or(0);
                    let part = stack.split_off(split);
                    part.iter().for_each(|other| marks[*other] = Mark::Done);
                    found.push(part);
                }
            }
        }
        found
    }
}

/// What a search for components knows of each state. Made once: there are many searches in few states.
struct Search {
    marks: Vec<Mark>,
    index: Vec<usize>,
    low: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Not in what is searched, or in a part that was found.
    Done,
    Unseen,
    OnStack,
}

impl Search {
    fn new(states: usize) -> Self {
        Self { marks: vec![Mark::Done; states], index: vec![0; states], low: vec![0; states] }
    }

    fn begin(&mut self, within: &[usize]) {
        within.iter().for_each(|at| self.marks[*at] = Mark::Unseen);
    }
}
