//! What is asked, what is sent, what is answered: the state of a node's connection behind one
//! mutex. A request is encoded while the mutex is held, so the order on the wire is the order of
//! the calls, and a release can never overtake its own acquire.
//!
//! Nobody is answered while the mutex is held: whoever is answered may ask again at once. Only
//! `is_wanted` is called with it, so a sink must not ask while it holds what that needs.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::{Answer, NodeError, Reply, Request};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::answer::Step;
use super::exchange::{Exchange, Session};
use super::link::Direct;
use super::resp::Value;
use crate::node::{Ask, ReplyTo};

/// At most this many requests wait for answers. A healthy node answers a hundred thousand in a
/// second, so what does not fit into this is not going to be answered in time anyway; and at 300
/// bytes each they cannot hurt the process.
const PENDING_MAX: usize = 65_536;
/// At most this many bytes wait for a socket that takes none: a page of the largest requests for
/// each of the thousands of tasks that may ask at once.
const OUTGOING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A node that has not answered its oldest request for so long is still asked for anything but new
/// locks. Extensions and probes are few, and each may save leases: where the node or this process is
/// starved of processor time, the answers are on their way.
const SLOW_FOR: Duration = Duration::from_secs(1);
/// A server that sends nothing at all for so long, while something waits, is given up and connected
/// anew: longer than any pause that it may come back from with the answers still of use.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A node's connection as everybody sees it.
pub(super) struct Queue {
    state: Mutex<State>,
    /// Told when there is something to send.
    pub(super) wake: Notify,
    /// Told when nothing waits any more.
    pub(super) idle: Notify,
    pub(super) generation: watch::Sender<u64>,
}

struct State {
    phase: Phase,
    /// The socket, where anybody may write to it.
    direct: Option<Direct>,
    outgoing: Vec<u8>,
    /// Sent or about to be, in the order of the wire.
    pending: VecDeque<Pending>,
    /// Asked while there was no connection yet.
    early: VecDeque<Ask>,
    /// Somebody panicked half-way through: bytes and pending may not fit together any more.
    is_torn: bool,
    /// The server that answers on this connection may not vote; a new connection may meet another.
    is_unwanted: bool,
}

enum Phase {
    /// The first attempt, or the first one after a connection was lost.
    Connecting,
    Up(Session),
    /// The last attempt failed, like this.
    Down(NodeError),
}

struct Pending {
    exchange: Exchange,
    reply_to: ReplyTo,
    limit: Duration,
    sent: Instant,
    expected: usize,
    /// All but the last, where several are expected.
    replies: Vec<Value>,
}

/// Answers to hand over once the mutex is free.
type Answers = Vec<(ReplyTo, Answer)>;

/// What came in at once, and what it amounts to. Kept from one time to the next, for the room.
#[derive(Default)]
pub(super) struct Replies {
    pub(super) values: Vec<Value>,
    answers: Answers,
    unwanted: Vec<ReplyTo>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                phase: Phase::Connecting,
                direct: None,
                outgoing: Vec::new(),
                pending: VecDeque::new(),
                early: VecDeque::new(),
                is_torn: false,
                is_unwanted: false,
            }),
            wake: Notify::new(),
            idle: Notify::new(),
            generation: watch::Sender::new(0),
        }
    }

    /// Takes a request in, or refuses it at once.
    pub(super) fn ask(&self, ask: Ask) {
        let is_alone = ask.reply_to.is_alone();
        let mut state = self.lock();
        let is_first = state.outgoing.is_empty();
        let is_quiet = is_alone && is_first && state.pending.is_empty();
        let now = ask.asked;
        let refused = state.take_in(ask, now);
        // All that was sent before is answered, so nobody is writing: done here it saves waking
        // the task. Where others ask at the same time, the task writes what has gathered, all at
        // once: many small writes cost the client and the server more than the waking.
        let is_written = is_quiet && refused.is_none() && state.write_directly();
        drop(state);
        match refused {
            // Whoever came first has woken the task, which takes all there is.
            None if is_written || !is_first => {}
            None => self.wake.notify_one(),
            Some((reply_to, answer)) => reply_to.answer(answer),
        }
    }

    /// A connection is ready: what waited for it is sent, if it still makes sense.
    pub(super) fn open(&self, session: Session, direct: Option<Direct>) {
        let generation = session.generation;
        let refused: Answers = {
            let mut state = self.lock();
            state.phase = Phase::Up(session);
            state.direct = direct;
            let now = Instant::now();
            let early = std::mem::take(&mut state.early).into_iter();
            early.filter_map(|ask| state.take_in_late(ask, now)).collect()
        };
        self.tell_generation(Some(generation));
        deliver(refused);
        self.wake.notify_one();
    }

    /// The connection is lost and tried again at once: what was sent is not sent again.
    pub(super) fn lose(&self, error: &NodeError) {
        self.fail(Phase::Connecting, error, false);
    }

    /// No connection, and none in sight: whoever asks is told why.
    pub(super) fn shut(&self, error: &NodeError) {
        self.fail(Phase::Down(error.clone()), error, true);
    }

    fn fail(&self, phase: Phase, error: &NodeError, with_early: bool) {
        let (pending, early) = {
            let mut state = self.lock();
            state.phase = phase;
            state.direct = None;
            state.outgoing.clear();
            state.is_torn = false;
            let early = if with_early { std::mem::take(&mut state.early) } else { VecDeque::new() };
            (std::mem::take(&mut state.pending), early)
        };
        let pending = pending.into_iter().map(|pending| pending.reply_to);
        for reply_to in pending.chain(early.into_iter().map(|ask| ask.reply_to)) {
            reply_to.answer(Err(error.clone()));
        }
        self.idle.notify_one();
    }

    /// Takes everything that is to be sent; `out` is empty, and its room is used again.
    pub(super) fn take_outgoing(&self, out: &mut Vec<u8>) {
        std::mem::swap(out, &mut self.lock().outgoing);
    }

    /// Takes replies in, in the order of the wire. An error ends the connection.
    pub(super) fn receive(&self, replies: &mut Replies) -> Result<(), NodeError> {
        let Replies { values, answers, unwanted } = replies;
        let (result, is_idle, has_more, generation) = {
            let mut state = self.lock();
            let known = state.generation();
            let result =
                values.drain(..).try_for_each(|value| state.take_reply(value, answers, unwanted));
            // Nearly always the same, and telling costs.
            let generation = state.generation().filter(|new| Some(*new) != known);
            (result, state.is_idle(), !state.outgoing.is_empty(), generation)
        };
        self.tell_generation(generation);
        deliver(answers.drain(..));
        unwanted.clear();
        if is_idle {
            self.idle.notify_one();
        }
        if has_more {
            self.wake.notify_one();
        }
        result
    }

    /// The server says that it dropped all its data, as it does when it begins to copy another: what
    /// is answered from now on is not answered by the memory that was examined.
    pub(super) fn void_passes(&self) {
        let generation = {
            let mut state = self.lock();
            if let Phase::Up(session) = &mut state.phase {
                session.void_passes();
            }
            state.generation()
        };
        self.tell_generation(generation);
    }

    /// Has the node examined, if what was examined is not there any more.
    fn tell_generation(&self, generation: Option<u64>) {
        if let Some(generation) = generation {
            self.generation.send_if_modified(|known| {
                let is_new = *known < generation;
                *known = generation.max(*known);
                is_new
            });
        }
    }

    /// Has the connection given up for another one.
    pub(super) fn redial(&self) {
        self.lock().is_unwanted = true;
    }

    /// Why the connection should be given up, if it should: `heard` is when the last bytes came.
    pub(super) fn objection(&self, heard: Instant) -> Option<NodeError> {
        let mut state = self.lock();
        if state.is_torn {
            return Some(torn());
        }
        // Not before all was answered: what is given back must arrive.
        if state.is_idle() && std::mem::take(&mut state.is_unwanted) {
            let reason = "connecting anew: the server that answered may not vote".to_owned();
            return Some(NodeError::Unreachable { reason });
        }
        let silent = state.pending.front()?.sent.max(heard).elapsed();
        (silent > SILENCE_MAX).then(|| NodeError::Unreachable {
            reason: format!("no answer for {:.1} s", silent.as_secs_f64()),
        })
    }

    /// Whether nothing waits, neither to be sent nor to be answered.
    pub(super) fn is_idle(&self) -> bool {
        self.lock().is_idle()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| {
            self.state.clear_poison();
            let mut state = poisoned.into_inner();
            state.is_torn = true;
            state
        })
    }
}

fn deliver(answers: impl IntoIterator<Item = (ReplyTo, Answer)>) {
    for (reply_to, answer) in answers {
        reply_to.answer(answer);
    }
}

impl State {
    fn generation(&self) -> Option<u64> {
        match &self.phase {
            Phase::Up(session) => Some(session.generation),
            _ => None,
        }
    }

    fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.early.is_empty() && self.outgoing.is_empty()
    }

    /// Sends a request, or keeps it for later, or hands it back with the reason why not.
    fn take_in(&mut self, ask: Ask, now: Instant) -> Option<(ReplyTo, Answer)> {
        let refusal = match &self.phase {
            _ if self.is_torn => Some(Err(torn())),
            Phase::Down(error) => Some(Err(error.clone())),
            Phase::Up(session) => wrong_server(&ask, Some(session.generation)),
            Phase::Connecting => wrong_server(&ask, None),
        };
        if let Some(answer) = refusal.or_else(|| self.overload(&ask.request, now).map(Err)) {
            return Some((ask.reply_to, answer));
        }
        match &self.phase {
            Phase::Up(_) => self.send(ask, now),
            _ => self.early.push_back(ask),
        }
        None
    }

    /// The same, for a request that waited for the connection.
    fn take_in_late(&mut self, ask: Ask, now: Instant) -> Option<(ReplyTo, Answer)> {
        if now.duration_since(ask.asked) >= ask.limit {
            let error = NodeError::TimedOut { after: ask.limit };
            return Some((ask.reply_to, Err(error)));
        }
        self.take_in(ask, now)
    }

    fn overload(&self, request: &Request, now: Instant) -> Option<NodeError> {
        let waiting = self.pending.len() + self.early.len();
        if waiting >= PENDING_MAX || self.outgoing.len() >= OUTGOING_BYTES_MAX {
            let reason = format!("{waiting} requests wait already");
            return Some(NodeError::Overloaded { reason });
        }
        // Releases still go out, so that they reach a node that comes back.
        if matches!(request, Request::Release { .. }) {
            return None;
        }
        let oldest = self.pending.front()?;
        let silent = now.duration_since(oldest.sent);
        let patience = match request {
            Request::Acquire { .. } => oldest.limit,
            _ => oldest.limit.max(SLOW_FOR),
        };
        (silent > patience).then(|| NodeError::Overloaded {
            reason: format!("no answer for {:.1} s", silent.as_secs_f64()),
        })
    }

    fn send(&mut self, ask: Ask, now: Instant) {
        let Phase::Up(session) = &mut self.phase else {
            return;
        };
        let exchange = Exchange::new(ask.request, ask.pass, session);
        let expected = exchange.send(session, &mut self.outgoing);
        self.pending.push_back(Pending {
            exchange,
            reply_to: ask.reply_to,
            limit: ask.limit,
            sent: now,
            expected,
            replies: Vec::new(),
        });
    }

    /// Whether all that was to be sent has been, here and now.
    fn write_directly(&mut self) -> bool {
        let Some(socket) = &self.direct else {
            return false;
        };
        // An error is the task's to find.
        let written = socket.try_write(&self.outgoing).unwrap_or(0);
        self.outgoing.drain(..written);
        self.outgoing.is_empty()
    }

    fn take_reply(
        &mut self,
        mut value: Value,
        answers: &mut Answers,
        unwanted: &mut Vec<ReplyTo>,
    ) -> Result<(), NodeError> {
        if self.is_torn {
            return Err(torn());
        }
        let (Phase::Up(session), Some(first)) = (&mut self.phase, self.pending.front_mut()) else {
            let reason = "a reply that nobody asked for".to_owned();
            return Err(NodeError::Garbled { reason });
        };
        if first.expected > 1 {
            first.replies.push(value);
            if first.replies.len() < first.expected {
                return Ok(());
            }
            value = Value::Nil;
        }
        let Some(mut done) = self.pending.pop_front() else {
            return Ok(());
        };
        let several = std::mem::take(&mut done.replies);
        let replies = if done.expected > 1 { &several[..] } else { std::slice::from_ref(&value) };
        match done.exchange.receive(replies, session) {
            Step::Answer(answer) => {
                // After a reply of the wrong shape the next ones may be somebody else's, too.
                let verdict = match &answer {
                    Err(error @ NodeError::Garbled { .. }) => Err(error.clone()),
                    _ => Ok(()),
                };
                answers.push((done.reply_to, answer));
                verdict
            }
            // Asked with the mutex held: a caller that gave up says so before it asks for the
            // release, so this goes out before that release or not at all.
            Step::Again(exchange) if exchange.is_duty() || done.reply_to.is_wanted() => {
                done.expected = exchange.send(session, &mut self.outgoing);
                done.sent = Instant::now();
                self.pending.push_back(Pending { exchange, ..done });
                Ok(())
            }
            Step::Again(_) => {
                unwanted.push(done.reply_to);
                Ok(())
            }
        }
    }
}

fn torn() -> NodeError {
    NodeError::Unreachable { reason: "an earlier request panicked half-way".to_owned() }
}

/// Whether a request carries the pass of another connection, or of another server on this one. It is
/// not sent then; the driver has the node examined, and asks again.
fn wrong_server(ask: &Ask, generation: Option<u64>) -> Option<Answer> {
    let pass = ask.pass.as_ref()?;
    match generation {
        Some(current) if current == pass.generation => None,
        Some(_) => Some(Ok(Reply::Stranger { record: None })),
        None => Some(Err(NodeError::not_voting("reconnecting"))),
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
