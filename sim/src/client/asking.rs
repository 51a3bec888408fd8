//! How the holders of a process put their questions: to all members at once, each with the record that
//! it is known to have.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::{AcquireRound, AcquireSpec};
use leasehold_core::{Fence, Holder, NodeError, Request, Standing};

use super::{Act, Client, Doing, Pending, Purpose, Question, Timer};
use crate::clock::Time;
use crate::history::Happening;

impl Client {
    pub(super) fn acquire(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let value = self.name_attempt(holder);
        let lock = &self.holders[holder].lock;
        let value = self.worn_value(lock).unwrap_or(value);
        let proposal = self.propose(time, lock, Fence::ZERO);
        self.ask_as(time, holder, value, proposal, acts);
    }

    /// A fresh name for an attempt, which also serves as its holder value.
    pub(super) fn name_attempt(&mut self, holder: usize) -> Holder {
        let nonce = self.chance.nonce();
        let mark = self.holders[holder].errand.as_ref().and_then(|errand| errand.mark);
        let nonce =
            mark.map_or(nonce, |mark| u128::from(mark) << 64 | nonce & u128::from(u64::MAX));
        let who = Holder::new(&self.holders[holder].label, nonce).expect("ASCII");
        self.holders[holder].who = who.clone();
        who
    }

    /// Begins an attempt with this holder value and this proposal.
    pub(super) fn ask_as(
        &mut self,
        time: Time,
        holder: usize,
        value: Holder,
        proposal: Fence,
        acts: &mut Vec<Act>,
    ) {
        let now = self.now(time);
        let lock = self.holders[holder].lock.clone();
        let spec = AcquireSpec {
            lock: lock.clone(),
            holder: value,
            ttl: self.holders[holder].ttl,
            drift: self.policy.drift,
            min_validity: Duration::ZERO,
        };
        let round = AcquireRound::new(spec, self.quorum, proposal, now);
        self.holders[holder].started = time;
        self.holders[holder].doing = Doing::Acquiring(Box::new(round));
        let who = self.holders[holder].who.clone();
        acts.push(Act::Tell(Happening::Started { who, lock }));
        let op = self.new_op(holder);
        self.drop_half_way(time, holder, op, acts);
        self.ask_round(time, holder, acts);
    }

    /// Now and then the caller loses interest.
    pub(super) fn drop_half_way(
        &mut self,
        time: Time,
        holder: usize,
        op: u64,
        acts: &mut Vec<Act>,
    ) {
        if self.chance.percent(self.habits.drops) {
            let after = self.chance.duration(Duration::ZERO..self.habits.limit);
            let at = self.now(time).plus(after);
            acts.push(Act::Wake { at, timer: Timer::Drop { holder, op } });
        }
    }

    /// Puts the acquire question to all members.
    pub(super) fn ask_round(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let Doing::Acquiring(round) = &self.holders[holder].doing else { return };
        let spec = round.spec();
        let request = Request::Acquire {
            lock: spec.lock.clone(),
            holder: spec.holder.clone(),
            proposal: round.proposal(),
            ttl: spec.ttl,
        };
        let number = round.number();
        self.ask_all(time, holder, number, request, self.habits.limit, acts);
        self.decide(time, holder, acts);
    }

    pub(super) fn ask_all(
        &mut self,
        time: Time,
        holder: usize,
        number: u32,
        request: Request,
        limit: Duration,
        acts: &mut Vec<Act>,
    ) {
        let op = self.holders[holder].op;
        let at = self.now(time).plus(limit);
        acts.push(Act::Wake { at, timer: Timer::Limit { holder, op } });
        self.put(time, Purpose::Vote { holder, op, round: number }, request, acts);
    }

    /// Puts a question to all members that vote.
    pub(super) fn put(
        &mut self,
        time: Time,
        purpose: Purpose,
        request: Request,
        acts: &mut Vec<Act>,
    ) {
        let now = self.now(time);
        let request = Arc::new(request);
        let is_acquire = matches!(*request, Request::Acquire { .. });
        let is_vetoed = is_acquire
            && self
                .members
                .iter()
                .any(|member| matches!(member.admission.standing(), Standing::Foreign { .. }));
        for member in 0..self.members.len() {
            let this = &self.members[member];
            let refusal = |reason: &str| NodeError::not_voting(reason);
            let mut request = request.clone();
            let pass = match this.admission.pass_for(|| now, &request) {
                _ if !request.needs_identity() => Ok(None),
                Ok(_) if is_vetoed => Err(refusal("another is foreign")),
                Ok(pass) if pass.generation != this.generation => Err(refusal("a new connection")),
                Ok(pass) => {
                    request = pass.fitted(&request);
                    Ok(Some(pass.record.clone()))
                }
                Err(objection) => Err(objection),
            };
            let pass = pass.and_then(|pass| {
                let reason = || "connection refused".to_owned();
                if this.is_connected {
                    Ok(pass)
                } else {
                    Err(NodeError::Unreachable { reason: reason() })
                }
            });
            match pass {
                Ok(identity) => {
                    self.send(time, member, purpose, request, identity, acts);
                }
                Err(error) => _ = self.cast(now, member, purpose, Err(error)),
            }
        }
    }

    pub(super) fn send(
        &mut self,
        time: Time,
        member: usize,
        purpose: Purpose,
        request: Arc<Request>,
        identity: Option<Arc<str>>,
        acts: &mut Vec<Act>,
    ) -> u64 {
        self.counter += 1;
        let ask = self.counter;
        self.asks.insert(ask, Pending { member, sent: self.now(time), purpose });
        let this = &self.members[member];
        // A vote, and the record that votes rest on, is for the server that was examined.
        let names_run =
            request.needs_identity() || matches!(*request, Request::ReplaceRecord { .. });
        let question = Question {
            run: this.run.clone().filter(|_| names_run),
            compares: match *request {
                Request::Probe => this.admission.compares(),
                _ => 0,
            },
            request,
            identity,
        };
        acts.push(Act::Send { member, ask, question });
        ask
    }

    pub(super) fn new_op(&mut self, holder: usize) -> u64 {
        self.counter += 1;
        self.holders[holder].op = self.counter;
        self.counter
    }
}
