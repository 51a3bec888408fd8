//! How a waiter learns that it is time to ask again: it carries out what [`Waiting`] wants, and tells
//! it what the nodes say.
//!
//! Nodes speak from their own tasks, so what was heard stands behind a mutex, and each word bears the
//! number of the place or of the watches that it is about. Nothing is decided here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::rounds::Refusal;
use leasehold_core::wait::{Heard, InLine, Ticket, WaitEnd, WaitStep, Waiting, Watched, affinity};
use leasehold_core::{Holder, LockName, Owner};
use tokio::sync::Notify;

use super::Cluster;
use crate::chance;
use crate::node::{Place, Watch};

/// One waiter, and what the nodes tell it. Leaves the line when dropped.
pub(crate) struct Waiter<'a> {
    cluster: &'a Cluster,
    lock: &'a LockName,
    shared: Arc<Shared>,
    place: Option<Box<dyn Place>>,
    watches: Vec<Watch>,
    /// Nodes that kept no line for us, since the last time that all were tried.
    failed: Vec<usize>,
}

/// What nodes speak to, from their own tasks.
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    waiting: Waiting,
    /// Counts places: a word about an earlier one is no news.
    place: u32,
    /// Counts rounds of watches, as well.
    watch: u32,
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(cluster: &'a Cluster, lock: &'a LockName, waiting: Waiting) -> Self {
        let state = Mutex::new(State { waiting, place: 0, watch: 0 });
        Self {
            cluster,
            lock,
            shared: Arc::new(Shared { state, changed: Notify::new() }),
            place: None,
            watches: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Whether others wanted the lock as well.
    pub(crate) fn met_others(&self) -> bool {
        self.shared.state().waiting.line().met_others()
    }

    /// Others were seen waiting for the lock: stands in line without having asked, and returns when
    /// it is time to.
    pub(crate) async fn stand_first(&mut self) -> Result<(), WaitEnd> {
        self.shared.state().waiting.contended(self.cluster.now(), chance::jitter());
        self.wait(None, std::future::pending()).await?;
        let is_alone = {
            let mut state = self.shared.state();
            let line = state.waiting.line();
            line.is_first() && !line.met_others()
        };
        if is_alone {
            self.cluster.queues.contended.gone(self.lock);
        }
        Ok(())
    }

    /// After a refusal: returns when it is time to ask again, or when the waiter gives up. `freed`
    /// completes when a lease of this process ended.
    pub(crate) async fn refused(
        &mut self,
        refusal: &Refusal,
        freed: impl Future<Output = ()>,
    ) -> Result<(), WaitEnd> {
        let is_in_line = {
            let mut state = self.shared.state();
            state.waiting.refused(self.cluster.now(), refusal, chance::jitter());
            // The watches have served.
            state.watch += 1;
            let is_in_line = state.waiting.line().is_in_line();
            state.place += u32::from(!is_in_line);
            is_in_line
        };
        self.watches.clear();
        self.failed.clear();
        if !is_in_line {
            self.place = None;
        }
        let owner = match refusal {
            Refusal::Held { owner: Some(Owner::Holder(holder)), .. } => Some(holder),
            _ => None,
        };
        self.wait(owner, freed).await
    }

    /// Does what is to be done until it is time to ask.
    async fn wait(
        &mut self,
        owner: Option<&Holder>,
        freed: impl Future<Output = ()>,
    ) -> Result<(), WaitEnd> {
        let shared = self.shared.clone();
        let (mut freed, mut was_freed) = (std::pin::pin!(freed), false);
        let mut now = self.cluster.now();
        loop {
            let changed = shared.changed.notified();
            let step = shared.state().waiting.step(now);
            let at = match step {
                WaitStep::Ask => return Ok(()),
                WaitStep::GiveUp(end) => return Err(end),
                WaitStep::Enter => {
                    self.enter();
                    continue;
                }
                WaitStep::Watch => {
                    self.watch();
                    continue;
                }
                WaitStep::Nudge => {
                    if let (Some(place), Some(owner)) = (&self.place, owner) {
                        place.nudge(owner);
                    }
                    continue;
                }
                WaitStep::SleepUntil(at) => at,
            };
            tokio::select! {
                biased;
                () = changed => now = self.cluster.now(),
                () = &mut freed, if !was_freed => {
                    was_freed = true;
                    shared.state().waiting.freed();
                    now = self.cluster.now();
                }
                // The timer has its own clock: by that the moment has come.
                () = self.cluster.sleep(at.since(now)) => now = self.cluster.now().max(at),
            }
        }
    }

    /// Enters the line on the first node that keeps one.
    fn enter(&mut self) {
        self.place = None;
        for index in self.nodes_in_order() {
            let (number, ticket) = self.shared.state().enter();
            let shared = self.shared.clone();
            let told = Box::new(move |word| shared.in_line(number, word));
            self.failed.push(index);
            let node = &self.cluster.members[index].node;
            self.place = node.stand_in_line(self.lock, ticket, told);
            if self.place.is_some() {
                return;
            }
        }
        self.shared.state().waiting.line().hear(Heard::NoLine);
    }

    /// The voting nodes that have not failed us, in the order in which this lock's line may stand on
    /// them.
    fn nodes_in_order(&self) -> Vec<usize> {
        let now = self.cluster.now();
        let members = self.cluster.members.iter().enumerate();
        let fit = members.filter(|(index, m)| !self.failed.contains(index) && m.votes(now));
        let mut order: Vec<_> = fit
            .map(|(index, member)| (affinity(self.lock, member.node.id().as_str()), index))
            .collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        order.into_iter().map(|(_, index)| index).collect()
    }

    /// Watches the lock on all nodes.
    fn watch(&mut self) {
        let number = self.shared.state().watch();
        let now = self.cluster.now();
        for (index, member) in self.cluster.members.iter().enumerate() {
            let shared = self.shared.clone();
            let told = Box::new(move |word| shared.watched(number, index, word));
            // That it is free where nobody may vote is no news.
            match member.votes(now).then(|| member.node.watch(self.lock, told)).flatten() {
                Some(watch) => self.watches.push(watch),
                None => self.shared.watched(number, index, Watched::Over),
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_line(&self, place: u32, word: InLine) {
        let mut state = self.state();
        let is_news = state.place == place && state.waiting.line().hear(Heard::Place(word));
        drop(state);
        if is_news {
            self.changed.notify_waiters();
        }
    }

    fn watched(&self, watch: u32, node: usize, word: Watched) {
        let mut state = self.state();
        let word = Heard::Watch { node, word };
        let is_news = state.watch == watch && state.waiting.line().hear(word);
        drop(state);
        if is_news {
            self.changed.notify_waiters();
        }
    }
}

impl State {
    fn enter(&mut self) -> (u32, Option<Ticket>) {
        self.place += 1;
        (self.place, self.waiting.line().enter())
    }

    fn watch(&mut self) -> u32 {
        self.watch += 1;
        self.waiting.line().watch();
        self.watch
    }
}
