//! What a process knows of the nodes, and how it finds out.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AdmissionStep, Answer, ClockSample, Facts, Fence, LockName, Moment, NodeError, Outlook, Reply,
    Request, Standing, WallMicros,
};

use super::{Act, Client, Member, PAUSE_MIN, PROBE_EVERY, PROBE_LIMIT, Purpose, Timer};
use crate::clock::{MICROS, Time};

impl Client {
    pub(super) fn propose(&self, time: Time, lock: &LockName, seen: Fence) -> Fence {
        let wall = || self.wall_micros(time);
        self.proposals.next(lock, seen, self.outlook(), self.now(time), wall)
    }

    fn wall_micros(&self, time: Time) -> WallMicros {
        WallMicros(self.wall.at(time) / MICROS)
    }

    fn outlook(&self) -> Outlook {
        let mut outlook = Outlook::default();
        self.members.iter().for_each(|member| outlook.add(&member.admission));
        outlook
    }

    pub(super) fn remember(&mut self, time: Time, lock: &LockName, fence: Fence) {
        let (outlook, now, wall) = (self.outlook(), self.now(time), self.wall_micros(time));
        self.proposals.saw(lock, fence, outlook, now, || wall);
    }

    /// Why its members do not vote, if it still waits for one.
    pub fn objections(&self, time: Time) -> Vec<String> {
        let now = self.now(time);
        let objection = |member: &Member| {
            let error = member.admission.standing().objection(now)?;
            Some(format!("{}: {error}", member.admission.member()))
        };
        let waits = !self.is_retired();
        self.members.iter().filter(|_| waits).filter_map(objection).collect()
    }

    pub(super) fn look(&mut self, time: Time, member: usize, acts: &mut Vec<Act>) {
        if self.members[member].looking.is_some() {
            return;
        }
        if !self.members[member].is_connected {
            let reason = "connection refused".to_owned();
            self.members[member].admission.down(NodeError::Unreachable { reason });
            self.gone(time, member);
            return self.look_later(time, member, acts);
        }
        let request = Arc::new(Request::Probe);
        self.question(time, member, Purpose::Probe, request, None, acts);
    }

    fn question(
        &mut self,
        time: Time,
        member: usize,
        purpose: Purpose,
        request: Arc<Request>,
        identity: Option<Arc<str>>,
        acts: &mut Vec<Act>,
    ) {
        let ask = self.send(time, member, purpose, request, identity, acts);
        self.members[member].looking = Some(ask);
        let at = self.now(time).plus(PROBE_LIMIT);
        acts.push(Act::Wake { at, timer: Timer::ExamineLimit { member, ask } });
    }

    fn look_later(&mut self, time: Time, member: usize, acts: &mut Vec<Act>) {
        let now = self.now(time);
        let this = &mut self.members[member];
        let pause = match std::mem::take(&mut this.looks_again) {
            true => PAUSE_MIN,
            false => this.admission.standing().look_again_in(now, PROBE_EVERY).max(PAUSE_MIN),
        };
        self.look_after(time, member, pause, acts);
    }

    fn look_after(&mut self, time: Time, member: usize, pause: Duration, acts: &mut Vec<Act>) {
        let now = self.now(time);
        self.counter += 1;
        self.members[member].ticket = self.counter;
        let timer = Timer::Examine { member, ticket: self.counter };
        acts.push(Act::Wake { at: now.plus(pause), timer });
    }

    /// Lets the core judge what a member said, and does what it wants written there.
    pub(super) fn looked(
        &mut self,
        time: Time,
        member: usize,
        sent: Moment,
        answer: Answer,
        acts: &mut Vec<Act>,
    ) {
        let now = self.now(time);
        self.members[member].looking = None;
        match answer {
            Ok(Reply::Facts(facts)) => {
                let step = self.examine(time, sent, member, &facts, acts);
                let this = &mut self.members[member];
                if let AdmissionStep::Replace { expected, record } = step {
                    let record = record.to_string().into();
                    let request = Arc::new(Request::ReplaceRecord { expected, record });
                    return self.question(time, member, Purpose::Record, request, None, acts);
                }
                if let Standing::Voting(pass) = this.admission.standing() {
                    if let Some(below) = this.forgets.take() {
                        let identity = Some(pass.record.clone());
                        let request = Arc::new(Request::ForgetIdle { below });
                        return self.question(
                            time,
                            member,
                            Purpose::Forget,
                            request,
                            identity,
                            acts,
                        );
                    }
                    if now >= this.forget_at
                        && let Some((expected, record)) =
                            this.admission.raised(&facts, self.habits.fence_retention)
                    {
                        this.forget_at = now.plus(self.habits.fence_retention / 4);
                        this.forgets = Some(record.floor);
                        let expected = Some(expected.into());
                        let record = record.to_string().into();
                        let request = Arc::new(Request::ReplaceRecord { expected, record });
                        return self.question(time, member, Purpose::Record, request, None, acts);
                    }
                }
            }
            Ok(Reply::Record { replaced: true }) => return self.look(time, member, acts),
            Ok(Reply::Record { replaced: false } | Reply::Stranger { .. }) => {
                self.members[member].forgets = None;
                return self.look(time, member, acts);
            }
            Ok(_) => {}
            Err(error) => {
                self.members[member].forgets = None;
                self.members[member].admission.down(error);
                self.gone(time, member);
            }
        }
        self.look_later(time, member, acts);
    }

    /// As the driver does it: first whether another member shows the same server, then the rest.
    fn examine(
        &mut self,
        time: Time,
        sent: Moment,
        member: usize,
        facts: &Facts,
        acts: &mut Vec<Act>,
    ) -> AdmissionStep {
        let (received, life) = (self.now(time), self.chance.nonce());
        let twin = self.roster.show(member, facts);
        let sample = ClockSample { sent, received, clock: facts.clock };
        let peers = self.roster.peers(member, twin, sample);
        let this = &mut self.members[member];
        this.run = Some(facts.server.run_id.as_str().into());
        let before = this.admission.jumps().last().copied();
        let wanted_peers = this.admission.wants_peers();
        let step = this.admission.examine(sent, received, facts, life, &peers);
        self.roster.note(member, sent, &this.admission, facts);
        let went_ahead = this.admission.jumps().last().copied() != before;
        let wants_peers = this.admission.wants_peers() && !wanted_peers;
        if let Some(twin) = twin {
            let ours = self.members[member].admission.member().clone();
            self.members[twin].admission.is_one_server_with(&ours);
        }
        self.compare_clocks(time);
        if went_ahead {
            self.clocks_went_ahead(time, acts);
        }
        for other in (0..self.members.len()).filter(|other| *other != member) {
            if wants_peers || self.members[other].admission.wants_peers() {
                self.look_soon(time, other, acts);
            }
        }
        step
    }

    /// Has each member know how its clock stands to those of the others.
    fn compare_clocks(&mut self, time: Time) {
        let now = self.now(time);
        for (index, member) in self.members.iter_mut().enumerate() {
            member.admission.compared(now, self.roster.line(index));
        }
    }

    /// A member did not answer: the next answer may come from another server.
    fn gone(&mut self, time: Time, member: usize) {
        self.roster.hide(member);
        self.compare_clocks(time);
    }

    /// Looks at a member now, or once more after the look that is under way; but two looks are a
    /// little apart, whatever calls for them.
    fn look_soon(&mut self, time: Time, member: usize, acts: &mut Vec<Act>) {
        if self.members[member].looking.is_some() {
            self.members[member].looks_again = true;
            return;
        }
        self.look_after(time, member, PAUSE_MIN, acts);
    }
}
