//! Two holders never both have validity left.
//!
//! With one exception, which clocks that are set bring along. A node whose clock is set ahead frees a
//! lease before its holder can know. Nobody else is granted it who knows of the step; but a process
//! that has not read that clock since cannot know, nor can one that started later, if the clock is
//! within the largest skew of the others. The holder knows as soon as it has read the clock in
//! turn, and from then on nothing is excused; unless the clock was set back as well between the same
//! two readings, so that they show nothing. The same is true for a holder whose own clock stood still.

use std::collections::HashMap;

use leasehold_core::{Holder, LockName, Reply, Request};

use super::readings::{Readings, process_of};
use crate::clock::Time;
use crate::history::{Happening, Invariant, Shown, short};

/// Who believes to hold what.
#[derive(Debug)]
pub(super) struct Exclusion {
    nodes: usize,
    believers: HashMap<LockName, Vec<Believer>>,
    /// When servers said yes to a holder value, and for how long.
    yes: HashMap<(LockName, Holder), YesByServer>,
    readings: Readings,
    /// Two who both believe to hold, as long as that is excused.
    excused: Vec<(LockName, Holder, Holder)>,
    /// By holder value: beside whom the former user of a lease was excused. It is the same lease where a
    /// reserved fence is taken: nobody is asked, so nobody could know better than before.
    handed: Vec<(Holder, Holder)>,
}

/// When each server said yes, and for how long.
type YesByServer = HashMap<usize, Vec<(Time, Time)>>;

#[derive(Debug, Clone)]
struct Believer {
    who: Holder,
    value: Holder,
    until: Time,
    /// When the question was sent that it counts from.
    asked: Time,
}

impl Exclusion {
    pub(super) fn new(nodes: usize, max_skew: Time) -> Self {
        let (believers, yes, excused) = (HashMap::new(), HashMap::new(), Vec::new());
        let readings = Readings::new(max_skew);
        Self { nodes, believers, yes, readings, excused, handed: Vec::new() }
    }

    /// A holder is done: its lease may be on its way to the next waiter.
    fn hand_on(&mut self, who: &Holder) {
        let Some(value) = self.find(who).map(|(_, believer)| believer.value.clone()) else {
            return;
        };
        for (_, one, other) in &self.excused {
            let beside = if one == who { other } else { one };
            if one == who || other == who {
                self.handed.push((value.clone(), beside.clone()));
            }
        }
    }

    /// Whoever believes to hold it beside `who`, unless that is excused.
    fn check(&mut self, now: Time, lock: &LockName, who: &Holder) -> Result<(), String> {
        let Some(believers) = self.believers.get(lock) else { return Ok(()) };
        let Some(one) = believers.iter().find(|one| one.who == *who && one.until > now) else {
            return Ok(());
        };
        for other in believers.iter().filter(|other| other.who != *who && other.until > now) {
            let is_same = |(_, a, b): &&(LockName, Holder, Holder)| {
                (a == who && *b == other.who) || (b == who && *a == other.who)
            };
            // What the second of them learns after it was granted the lock changes nothing.
            let was_excused = self.excused.iter().any(|pair| is_same(&pair));
            if !self.is_excused(now, lock, (one, other), was_excused) {
                return Err(format!(
                    "{} and {} both hold {lock}; the other until {}",
                    short(who),
                    short(&other.who),
                    Shown(other.until)
                ));
            }
            if !was_excused {
                self.excused.push((lock.clone(), who.clone(), other.who.clone()));
            }
        }
        Ok(())
    }

    /// Whether each server that said yes to both freed the lock too early for the first of them, by
    /// something that was done to a clock; and one of them by something that the first could not know
    /// yet, nor the second when it counted a quorum.
    fn is_excused(
        &self,
        now: Time,
        lock: &LockName,
        (one, other): (&Believer, &Believer),
        was_excused: bool,
    ) -> bool {
        let yes = |of: &Believer| self.yes.get(&(lock.clone(), of.value.clone()));
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

    fn check_excused(&mut self, now: Time) -> Result<(), String> {
        for (lock, who, _) in self.excused.clone() {
            self.check(now, &lock, &who)?;
        }
        let believes = |believers: &[Believer], who: &Holder| {
            believers.iter().any(|it| it.who == *who && it.until > now)
        };
        let all = &self.believers;
        self.excused.retain(|(lock, one, other)| {
            all.get(lock).is_some_and(|them| believes(them, one) && believes(them, other))
        });
        Ok(())
    }

    fn forget(&mut self, is_gone: impl Fn(&Holder) -> bool) {
        for believers in self.believers.values_mut() {
            believers.retain(|believer| !is_gone(&believer.who));
        }
    }

    fn find(&mut self, who: &Holder) -> Option<(&LockName, &mut Believer)> {
        self.believers.iter_mut().find_map(|(lock, believers)| {
            believers.iter_mut().find(|believer| believer.who == *who).map(|it| (lock, it))
        })
    }
}

impl Invariant for Exclusion {
    fn promise(&self) -> &'static str {
        "exclusion"
    }

    fn watch(&mut self, now: Time, happening: &Happening) -> Result<(), String> {
        // What a process makes of a reading it does in the same step, and tells next.
        let changes = matches!(happening, Happening::Moved { .. } | Happening::Lost { .. });
        if !changes && !self.excused.is_empty() {
            self.check_excused(now)?;
        }
        self.readings.watch(now, happening);
        match happening {
            Happening::Acquired { who, value, lock, reserved, until, started, .. } => {
                let handed = self.handed.extract_if(.., |(of, _)| of == value);
                let handed = handed.filter(|_| *reserved);
                self.excused.extend(handed.map(|(_, other)| (lock.clone(), who.clone(), other)));
                let (who, value) = (who.clone(), value.clone());
                let believer = Believer { who: who.clone(), value, until: *until, asked: *started };
                self.believers.entry(lock.clone()).or_default().push(believer);
                self.check(now, lock, &who)?;
            }
            Happening::Extended { who, until, started, .. } => {
                let Some((lock, believer)) = self.find(who) else { return Ok(()) };
                (believer.until, believer.asked) = (*until, *started);
                let lock = lock.clone();
                self.check(now, &lock, who)?;
            }
            Happening::Applied { node, request, reply, .. } => {
                self.applied(now, *node, request, reply)
            }
            Happening::Moved { who, until } => {
                if let Some((_, believer)) = self.find(who) {
                    believer.until = *until;
                }
            }
            Happening::Lost { who } => self.forget(|gone| gone == who),
            Happening::Done { who } => {
                self.hand_on(who);
                self.forget(|gone| gone == who);
            }
            Happening::Crashed { client } => {
                let label = format!("c{client}.");
                self.forget(|gone| gone.label().starts_with(&label));
            }
            _ => {}
        }
        Ok(())
    }
}
