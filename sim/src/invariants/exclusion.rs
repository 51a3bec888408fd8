//! What excuses two holders that both have validity left: clocks that were set.
//!
//! A node whose clock is set ahead frees a
//! lease before its holder can know. Nobody else is granted it who knows of the step; but a process
//! that has not read that clock since cannot know, nor can one that started later, if the clock is
//! within the largest skew of the others. The holder knows as soon as it has read the clock in
//! turn, and from then on nothing is excused; unless the clock was set back as well between the same
//! two readings, so that they show nothing. The same is true for a holder whose own clock stood still.

use std::collections::HashMap;

use leasehold_core::{Holder, LockName, Reply, Request};
use leasehold_judge::Violation;

use super::judged::Excuse;
use super::readings::{Readings, process_of};
use crate::clock::Time;
use crate::history::Happening;

/// Who may not be able to know better.
#[derive(Debug)]
pub(super) struct Excused {
    nodes: usize,
    believers: HashMap<Holder, Believer>,
    /// When servers said yes to a holder value, and for how long.
    yes: HashMap<(LockName, Holder), YesByServer>,
    readings: Readings,
    /// Two who both believe to hold, as long as that is excused.
    excused: Vec<(Holder, Holder)>,
    /// By holder value: beside whom the former user of a lease was excused. It is the same lease where a
    /// reserved fence is taken: nobody is asked, so nobody could know better than before.
    handed: Vec<(Holder, Holder)>,
}

/// When each server said yes, and for how long.
type YesByServer = HashMap<usize, Vec<(Time, Time)>>;

#[derive(Debug, Clone)]
struct Believer {
    who: Holder,
    lock: LockName,
    value: Holder,
    until: Time,
    /// When the question was sent that it counts from.
    asked: Time,
}

impl Excused {
    pub(super) fn new(nodes: usize, max_skew: Time) -> Self {
        let (believers, yes, excused) = (HashMap::new(), HashMap::new(), Vec::new());
        let readings = Readings::new(max_skew);
        Self { nodes, believers, yes, readings, excused, handed: Vec::new() }
    }

    /// A holder is done: its lease may be on its way to the next waiter.
    fn hand_on(&mut self, who: &Holder) {
        let Some(value) = self.believers.get(who).map(|believer| believer.value.clone()) else {
            return;
        };
        for (one, other) in &self.excused {
            let beside = if one == who { other } else { one };
            if one == who || other == who {
                self.handed.push((value.clone(), beside.clone()));
            }
        }
    }

    /// Whether each server that said yes to both freed the lock too early for the first of them, by
    /// something that was done to a clock; and one of them by something that the first could not know
    /// yet, nor the second when it counted a quorum.
    fn is_excused(
        &self,
        now: Time,
        (one, other): (&Believer, &Believer),
        was_excused: bool,
    ) -> bool {
        let yes = |of: &Believer| self.yes.get(&(of.lock.clone(), of.value.clone()));
        let (Some(to_one), Some(to_other)) = (yes(one), yes(other)) else { return false };
        let quorum = self.nodes / 2 + 1;
        if to_one.keys().all(|server| !to_other.contains_key(server)) {
            // Of two lists without a common server. The second waited for the first's lease.
            return [(one, to_one), (other, to_other)].iter().any(|it| self.stands_still(now, *it));
        }
        let mut is_unknown = false;
        // Of how many votes each of them knew that they did not count yet.
        let mut known = [0, 0];
        for (server, times) in to_one {
            let Some(others) = to_other.get(server) else { continue };
            let (mut first, mut second, mut by) = ((one, times), (other, others), 1);
            if others.last() < times.last() {
                std::mem::swap(&mut first, &mut second);
                by = 0;
            }
            let Some((from, ttl)) = first.1.last().copied() else { continue };
            let to = second.1.iter().map(|(at, _)| *at).find(|at| *at > from).unwrap_or(from);
            let (first, second) = (first.0, second.0);
            let (first_in, second_in) = (process_of(&first.who), process_of(&second.who));
            // Within what clocks drift meanwhile.
            let missing = first.until - now;
            let missing = missing - missing / 50;
            let still = self.readings.stood_still(first_in, *server, first.asked);
            let steps = self.readings.steps(*server, from, to);
            // One that did not take the last extension owes less than the first believes in.
            let owed = (from + ttl).saturating_sub(to);
            if owed <= ttl / 200 && still.by == 0 {
                // It kept the lease for as long as it was asked to, but for the drift of its clock. The
                // allowance for drift in the first's deadline is larger: it does not rest on this server.
                continue;
            }
            let owed = if still.by == 0 { missing.min(owed - owed / 50) } else { missing };
            if steps.ahead + still.by < owed || steps.ahead + still.by == 0 {
                return false;
            }
            let is_unseen = was_excused
                || self.nodes == 1
                || self.readings.unread(second_in, *server, &steps) > 0
                || self.readings.is_too_late_to_see(second_in, *server, &steps, quorum);
            // Nobody else can know that the first stood still.
            known[by] += usize::from(!is_unseen && still.by < missing);
            let unread =
                if is_unseen { self.readings.unread(first_in, *server, &steps) } else { 0 };
            is_unknown |= unread + still.unread >= missing.max(1);
        }
        let is_quorum = |(all, known): (&YesByServer, usize)| all.len() >= quorum + known;
        is_unknown && [to_one, to_other].into_iter().zip(known).all(is_quorum)
    }

    /// Whether a believer would know by now that its lease is over, had its own clock not stood still; and
    /// of the servers that gave it the lease so many have not shown it that yet, that its deadline stands.
    fn stands_still(&self, now: Time, (one, yes): (&Believer, &YesByServer)) -> bool {
        let missing = one.until - now;
        let still =
            |server: &usize| self.readings.stood_still(process_of(&one.who), *server, one.asked);
        let is_unread = |server: &&usize| still(server).unread >= missing - missing / 50;
        yes.keys().filter(is_unread).count() >= self.nodes - self.nodes / 2
    }

    fn applied(&mut self, now: Time, server: usize, request: &Request, reply: &Reply) {
        match (request, reply) {
            (Request::Acquire { lock, holder, ttl, .. }, Reply::Granted)
            | (
                Request::Extend { lock, holder, ttl, .. },
                Reply::Extended { .. } | Reply::Healed { .. },
            ) => {
                let ttl = ttl.get().as_nanos() as Time;
                let servers = self.yes.entry((lock.clone(), holder.clone())).or_default();
                servers.entry(server).or_default().push((now, ttl));
            }
            (Request::Release { lock, holder }, _) => {
                let key = (lock.clone(), holder.clone());
                if let Some(servers) = self.yes.get_mut(&key) {
                    servers.remove(&server);
                    if servers.is_empty() {
                        self.yes.remove(&key);
                    }
                }
            }
            _ => {}
        }
    }

    /// Forgets the pairs of which one believes no more.
    fn forget_pairs(&mut self, now: Time) {
        let all = &self.believers;
        let believes = |who: &Holder| all.get(who).is_some_and(|it| it.until > now);
        self.excused.retain(|(one, other)| believes(one) && believes(other));
    }
}

impl Excuse for Excused {
    fn looks_again(&self, happening: &Happening) -> bool {
        // What a process makes of a reading it does in the same step, and tells next.
        let changes = matches!(happening, Happening::Moved { .. } | Happening::Lost { .. });
        !changes && !self.excused.is_empty()
    }

    fn watch(&mut self, now: Time, happening: &Happening) {
        if self.looks_again(happening) {
            self.forget_pairs(now);
        }
        self.readings.watch(now, happening);
        match happening {
            Happening::Acquired { who, value, lock, reserved, until, started, .. } => {
                let handed = self.handed.extract_if(.., |(of, _)| of == value);
                let beside = handed.filter(|_| *reserved).map(|(_, other)| other);
                let pairs =
                    beside.flat_map(|other| [(who.clone(), other.clone()), (other, who.clone())]);
                self.excused.extend(pairs);
                let (value, lock) = (value.clone(), lock.clone());
                let (until, asked) = (*until, *started);
                let believer = Believer { who: who.clone(), lock, value, until, asked };
                self.believers.insert(who.clone(), believer);
            }
            Happening::Extended { who, until, started, .. } => {
                if let Some(believer) = self.believers.get_mut(who) {
                    (believer.until, believer.asked) = (*until, *started);
                }
            }
            Happening::Applied { node, request, reply, .. } => {
                self.applied(now, *node, request, reply)
            }
            Happening::Moved { who, until } => {
                if let Some(believer) = self.believers.get_mut(who) {
                    believer.until = *until;
                }
            }
            Happening::Lost { who } => _ = self.believers.remove(who),
            Happening::Done { who } => {
                self.hand_on(who);
                self.believers.remove(who);
            }
            Happening::Crashed { client } => {
                self.believers.retain(|who, _| process_of(who).0 != *client);
            }
            _ => {}
        }
    }

    /// What the second of two learns after it was granted the lock changes nothing.
    fn covers(&mut self, now: Time, violation: &Violation<Holder>) -> bool {
        let Violation::Overlap { first, second, .. } = violation else { return false };
        let (Some(one), Some(other)) = (self.believers.get(second), self.believers.get(first))
        else {
            return false;
        };
        let is_same = |(a, b): &(Holder, Holder)| (a, b) == (first, second);
        let was_excused = self.excused.iter().any(is_same);
        let is_excused = self.is_excused(now, (one, other), was_excused);
        if is_excused && !was_excused {
            self.excused.push((first.clone(), second.clone()));
        }
        is_excused
    }
}
