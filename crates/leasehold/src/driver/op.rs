//! One question to all nodes, under way: the answers come in on the nodes' tasks, the decision is
//! awaited by the caller. The caller is woken once, when there is something to decide.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use leasehold_core::rounds::{
    AcquireRound, Ballot, ExtendRound, ExtendStep, ReleaseRound, ReleaseStep,
};
use leasehold_core::{Answer, ClockSample, Moment, NodeError, Pass, Reply};

use super::Cluster;
use super::rota::{Due, Rota, Slot};
use super::trail::{self, Trail};
use crate::clock::Clock;
use crate::node::ReplySink;

/// What the core's rounds have in common.
pub(crate) trait Decides: Send + 'static {
    fn answer(&mut self, now: Moment, round: u32, node: usize, answer: Answer);
    fn time_up(&mut self, now: Moment);
    fn is_decided(&self) -> bool;
    fn asked_at(&self) -> Moment;
    /// Whether answers are numbered like the nodes of the cluster, so that what they tell about a
    /// node can be noted.
    fn notes_nodes(&self) -> bool {
        true
    }
    /// The votes, if a quorum said yes.
    fn won(&self) -> Option<&Ballot> {
        None
    }
}

impl Decides for AcquireRound {
    fn answer(&mut self, now: Moment, round: u32, node: usize, answer: Answer) {
        self.answer(now, round, node, answer);
    }
    fn time_up(&mut self, now: Moment) {
        self.time_up(now);
    }
    fn is_decided(&self) -> bool {
        self.is_decided()
    }
    fn asked_at(&self) -> Moment {
        self.ballot().asked_at()
    }
    fn won(&self) -> Option<&Ballot> {
        self.is_won().then(|| self.ballot())
    }
}

impl Decides for ExtendRound {
    fn answer(&mut self, now: Moment, _: u32, node: usize, answer: Answer) {
        self.answer(now, node, answer);
    }
    fn time_up(&mut self, now: Moment) {
        self.time_up(now);
    }
    fn is_decided(&self) -> bool {
        self.step() != ExtendStep::Wait
    }
    fn asked_at(&self) -> Moment {
        self.ballot().asked_at()
    }
    fn won(&self) -> Option<&Ballot> {
        matches!(self.step(), ExtendStep::Extended { .. }).then(|| self.ballot())
    }
}

impl Decides for ReleaseRound {
    fn answer(&mut self, now: Moment, _: u32, node: usize, answer: Answer) {
        self.answer(now, node, answer);
    }
    fn time_up(&mut self, now: Moment) {
        self.time_up(now);
    }
    fn is_decided(&self) -> bool {
        self.step() != ReleaseStep::Wait
    }
    fn asked_at(&self) -> Moment {
        self.ballot().asked_at()
    }
}

/// Waits for every node: for questions that decide nothing.
#[derive(Debug)]
pub(crate) struct Gather {
    asked_at: Moment,
    pub(crate) answers: Vec<Option<(Answer, Moment)>>,
}

impl Gather {
    pub(crate) fn new(nodes: usize, asked_at: Moment) -> Self {
        Self { asked_at, answers: (0..nodes).map(|_| None).collect() }
    }

    /// What node number `node` answered, and how long that took.
    pub(crate) fn take(&mut self, node: usize) -> (Answer, Duration) {
        let (answer, at) = self.answers[node].take().unwrap_or_else(|| {
            let reason = "it was not asked".to_owned();
            (Err(NodeError::Unreachable { reason }), self.asked_at)
        });
        (answer, at.since(self.asked_at))
    }
}

impl Decides for Gather {
    fn answer(&mut self, now: Moment, _: u32, node: usize, answer: Answer) {
        if let Some(slot @ None) = self.answers.get_mut(node) {
            *slot = Some((answer, now));
        }
    }
    fn time_up(&mut self, now: Moment) {
        let after = now.since(self.asked_at);
        for slot in self.answers.iter_mut().filter(|slot| slot.is_none()) {
            *slot = Some((Err(NodeError::TimedOut { after }), now));
        }
    }
    fn is_decided(&self) -> bool {
        self.answers.iter().all(Option::is_some)
    }
    fn asked_at(&self) -> Moment {
        self.asked_at
    }
}

/// One question to one node, by its caretaker.
#[derive(Debug)]
pub(super) struct Single {
    asked_at: Moment,
    answer: Option<Answer>,
}

impl Single {
    pub(super) fn new(asked_at: Moment) -> Self {
        Self { asked_at, answer: None }
    }

    pub(super) fn take(&mut self) -> Answer {
        let reason = || NodeError::Unreachable { reason: "it was not asked".into() };
        self.answer.take().unwrap_or_else(|| Err(reason()))
    }
}

impl Decides for Single {
    fn answer(&mut self, _: Moment, _: u32, _: usize, answer: Answer) {
        self.answer.get_or_insert(answer);
    }
    fn time_up(&mut self, now: Moment) {
        let after = now.since(self.asked_at);
        self.answer.get_or_insert(Err(NodeError::TimedOut { after }));
    }
    fn is_decided(&self) -> bool {
        self.answer.is_some()
    }
    fn asked_at(&self) -> Moment {
        self.asked_at
    }
    fn notes_nodes(&self) -> bool {
        false
    }
}

/// A round and its waiter.
pub(crate) struct Op<R> {
    clock: Arc<dyn Clock>,
    cluster: Weak<Cluster>,
    is_alone: bool,
    state: Mutex<OpState<R>>,
}

struct OpState<R> {
    round: R,
    waker: Option<Waker>,
    abandoned: bool,
    is_time_up: bool,
    in_flight: Option<InFlight>,
    /// Of the latest question, where somebody wants to know, until it is told.
    trail: Option<Box<Trail>>,
}

/// Counts a question as under way until it is dropped.
struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R: Decides> Op<R> {
    pub(crate) fn new(cluster: &Arc<Cluster>, round: R) -> Arc<Self> {
        let others = cluster.in_flight.fetch_add(1, Ordering::Relaxed);
        let in_flight = Some(InFlight(cluster.in_flight.clone()));
        let state = OpState {
            round,
            waker: None,
            abandoned: false,
            is_time_up: false,
            in_flight,
            trail: None,
        };
        Arc::new(Self {
            clock: cluster.clock.clone(),
            cluster: Arc::downgrade(cluster),
            is_alone: others == 0,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, OpState<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at, or changes, the round.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut R) -> T) -> T {
        look(&mut self.state().round)
    }

    /// Remembers what was asked, to be told if it is won.
    pub(super) fn leave_trail(&self, trail: Trail) {
        self.state().trail = Some(Box::new(trail));
    }

    pub(super) fn note_pass(&self, node: usize, pass: &Arc<Pass>) {
        if let Some(trail) = &mut self.state().trail {
            trail.passes[node] = Some(pass.clone());
        }
    }

    /// From now on no answer matters, and no node may send what it has not sent yet.
    pub(crate) fn abandon(&self) {
        self.state().abandoned = true;
    }

    /// Waits until the round is decided, at most for `limit` from when it was asked.
    pub(crate) async fn decided(self: &Arc<Self>, limit: Duration) {
        let Some(cluster) = self.cluster.upgrade() else {
            return;
        };
        let patient: Weak<Self> = Arc::downgrade(self);
        let due = {
            let mut state = self.state();
            // A further round has its own time.
            state.is_time_up = false;
            state.round.asked_at().plus(limit)
        };
        let _alarm = Alarm { rota: &cluster.rota, slot: cluster.rota.add(due, Due::Op(patient)) };
        poll_fn(|context| {
            let mut state = self.state();
            if state.round.is_decided() || state.is_time_up {
                state.in_flight = None;
                return Poll::Ready(());
            }
            match &mut state.waker {
                Some(waker) => waker.clone_from(context.waker()),
                empty => *empty = Some(context.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }
}

/// Takes what is no longer due off the rota.
struct Alarm<'a> {
    rota: &'a Rota<Due>,
    slot: Slot,
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.rota.remove(self.slot);
    }
}

/// A question whose time may be up.
pub(crate) trait Patient: Send + Sync {
    /// A node that has not answered is counted as a "no".
    fn time_up(&self);
}

impl<R: Decides> Patient for Op<R> {
    fn time_up(&self) {
        let mut state = self.state();
        state.round.time_up(self.clock.now());
        state.is_time_up = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<R: Decides> ReplySink for Op<R> {
    fn answer(&self, node: usize, round: u32, answer: Answer) {
        let now = self.clock.now();
        let mut state = self.state();
        let note = Note::of(&answer, state.round.asked_at()).filter(|_| state.round.notes_nodes());
        state.round.answer(now, round, node, answer);
        let waker = if state.round.is_decided() { state.waker.take() } else { None };
        if state.trail.is_some()
            && let Some(ballot) = state.round.won().cloned()
            && let Some((trail, cluster)) = state.trail.take().zip(self.cluster.upgrade())
        {
            trail.tell(&cluster, &ballot);
        }
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Some(note) = note
            && let Some(cluster) = self.cluster.upgrade()
        {
            note.tell(&cluster, node, now);
        }
    }

    fn is_wanted(&self) -> bool {
        let state = self.state();
        !state.abandoned && !state.round.is_decided()
    }

    fn is_alone(&self) -> bool {
        self.is_alone
    }
}

/// What an answer tells about the node itself.
enum Note {
    Stranger,
    Clock { sent: Moment, clock: leasehold_core::WallMicros },
}

impl Note {
    fn of(answer: &Answer, sent: Moment) -> Option<Self> {
        match answer {
            Ok(Reply::Stranger { .. }) => Some(Self::Stranger),
            Ok(Reply::Extended { clock } | Reply::Healed { clock }) => {
                Some(Self::Clock { sent, clock: *clock })
            }
            _ => None,
        }
    }

    fn tell(self, cluster: &Cluster, node: usize, received: Moment) {
        let member = &cluster.members[node];
        match self {
            Self::Stranger => member.examine_soon(),
            Self::Clock { sent, clock } => {
                if member.observe_clock(ClockSample { sent, received, clock }) {
                    cluster.clocks_went_ahead();
                }
                trail::tell_reading(member.node.id(), sent, received);
            }
        }
    }
}
