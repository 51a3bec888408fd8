//! Callers of lock servers, and scripts with lease tokens: they hold what they were told they hold, by
//! clocks of their own. Each request goes to any process; any answer may get lost.

use std::time::Duration;

use leasehold_core::{Fence, Holder, LockName, Moment, Ttl};
use leasehold_judge::Chance;

use super::{Event, World, client_rate};
use crate::client::{Token, Told, Wish};
use crate::clock::{Clock, MILLIS, SECOND, Time};
use crate::history::Happening;
use crate::scenario::MAX_TTL;

/// After so long without an answer nobody waits for it any more.
const PATIENCE: Duration = Duration::from_secs(1);

/// Somebody who asks processes for locks.
#[derive(Debug)]
pub(super) struct Caller {
    /// Beyond the numbers of the processes.
    number: usize,
    clock: Clock,
    lock: LockName,
    doing: Doing,
    /// Counts its requests.
    request: u64,
    /// Counts what it wants to be woken for.
    ticket: u64,
    /// The last lease that it was told of.
    known: Option<Token>,
    /// The last acquire with an idempotency key.
    keyed: Option<Wish>,
    renews: bool,
    chance: Chance,
}

#[derive(Debug)]
enum Doing {
    Thinking,
    /// Since when, by its own clock.
    Asking(u64),
    Holding(Held),
    /// Waits to be told of the release of this.
    Releasing(Token),
    Retired,
}

#[derive(Debug)]
struct Held {
    token: Token,
    /// By its own clock, as everything here.
    until: u64,
    work_until: u64,
    renew_at: u64,
    /// When the renewal was sent that is under way.
    asked: Option<u64>,
}

impl Caller {
    fn now(&self, time: Time) -> u64 {
        self.clock.at(time)
    }

    fn label(&self) -> String {
        format!("c{}.0", self.number)
    }

    fn ttl(&mut self) -> Ttl {
        let ttl = self.chance.duration(Duration::from_millis(300)..MAX_TTL);
        Ttl::new(ttl).expect("long enough")
    }

    /// What it asks for next: at times what it asked for before with the same key.
    fn wish(&mut self) -> (Wish, Duration) {
        if let Some(wish @ Wish::Acquire { wait, .. }) = &self.keyed
            && self.chance.percent(50)
        {
            return (wish.clone(), *wait);
        }
        let wait = Duration::from_millis([0, 500, 4_000, 15_000][self.chance.index(4)]);
        let (label, lock, ttl) = (self.label(), self.lock.clone(), self.ttl());
        let mark = self.chance.percent(50).then(|| self.chance.bits());
        let wish = Wish::Acquire { lock, label, ttl, wait, mark };
        self.keyed = mark.map(|_| wish.clone());
        (wish, wait)
    }

    /// What it was never given: another fence, another holder, or one that it had and has no more.
    fn lie(&mut self) -> Option<Token> {
        let mut token = self.known.clone()?;
        match self.chance.index(6) {
            0 => token.fence = token.fence.next(),
            1 => token.fence = Fence::MAX,
            2 => token.highest = token.highest.next(),
            3 => token.highest = Fence::MAX,
            4 => token.holder = Holder::new(&self.label(), self.chance.nonce()).expect("ASCII"),
            _ => {}
        }
        token.highest = token.highest.max(token.fence);
        Some(token)
    }
}

impl World {
    pub(super) fn start_callers(&mut self) {
        for caller in 0..self.scenario.callers {
            let mut chance = Chance::new(self.chance.bits());
            let rate = chance.around(client_rate(&self.scenario));
            self.callers.push(Caller {
                number: self.scenario.clients + caller,
                clock: Clock::new(chance.within(0..1000 * SECOND), rate),
                lock: self.locks[chance.index(self.locks.len())].clone(),
                doing: Doing::Thinking,
                request: 0,
                ticket: 0,
                known: None,
                keyed: None,
                renews: chance.percent(70),
                chance,
            });
            self.think(caller);
        }
    }

    fn think(&mut self, caller: usize) {
        let this = &mut self.callers[caller];
        this.doing = if self.is_calm { Doing::Retired } else { Doing::Thinking };
        let pause = this.chance.within(10 * MILLIS..SECOND);
        let at = this.now(self.now) + pause;
        self.wake_caller(caller, at);
    }

    /// At a time of its own clock.
    fn wake_caller(&mut self, caller: usize, at: u64) {
        let this = &mut self.callers[caller];
        this.ticket += 1;
        let (at, ticket) = (this.clock.when(at, self.now), this.ticket);
        self.at(at, Event::Caller { caller, ticket });
    }

    pub(super) fn caller_wakes(&mut self, caller: usize, ticket: u64) {
        let (now, this) = (self.now, &mut self.callers[caller]);
        if this.ticket != ticket {
            return;
        }
        match &this.doing {
            Doing::Thinking if self.is_calm => this.doing = Doing::Retired,
            Doing::Retired => {}
            // Nobody answered.
            Doing::Asking(_) | Doing::Releasing(_) => self.think(caller),
            Doing::Holding(_) => self.hold_on(caller),
            Doing::Thinking => {
                self.perhaps_lie(caller);
                let this = &mut self.callers[caller];
                this.doing = Doing::Asking(this.now(now));
                let (wish, wait) = this.wish();
                let give_up = this.now(now) + (wait + PATIENCE).as_nanos() as u64;
                self.ask(caller, wish);
                self.wake_caller(caller, give_up);
            }
        }
    }

    /// Whatever comes of it, it does not go by that.
    fn perhaps_lie(&mut self, caller: usize) {
        let this = &mut self.callers[caller];
        if this.chance.percent(20)
            && let Some(token) = this.lie()
        {
            let ttl = this.ttl();
            self.outcome.figures.lies += 1;
            self.ask(caller, Wish::Renew { token, ttl });
        }
    }

    /// Sends a request to any process. It may get lost.
    fn ask(&mut self, caller: usize, wish: Wish) {
        let this = &mut self.callers[caller];
        this.request += 1;
        let request = this.request;
        let process = this.chance.index(self.scenario.clients);
        if Some(process) == self.scenario.odd_client() || this.chance.percent(2) {
            return;
        }
        let delay = this.chance.within(MILLIS / 10..5 * MILLIS);
        let life = self.clients[process].life;
        self.after(delay, Event::Errand { process, life, caller, request, wish });
    }

    pub(super) fn errand(
        &mut self,
        (process, life): (usize, u64),
        (caller, request): (usize, u64),
        wish: Wish,
    ) {
        if !self.is_current(process, life) {
            return;
        }
        if let Some(later) = self.is_paused(process) {
            return self.at(later, Event::Errand { process, life, caller, request, wish });
        }
        self.with(process, |this, now, acts| {
            this.run_errand(now, (caller, request), wish, acts);
        });
    }

    /// An answer is on its way.
    pub(super) fn answer_caller(&mut self, caller: usize, request: u64, told: Told) {
        if let Told::Held { token, started, .. } = &told {
            self.tell(Happening::Confirmed { who: token.holder.clone(), started: *started });
        }
        let chance = &mut self.callers[caller].chance;
        if !chance.percent(3) {
            let slow = if chance.percent(5) { 800 * MILLIS } else { 5 * MILLIS };
            let delay = chance.within(MILLIS / 10..slow);
            self.after(delay, Event::Told { caller, request, told });
        }
    }

    pub(super) fn told(&mut self, caller: usize, request: u64, told: Told) {
        let time = self.now;
        let this = &mut self.callers[caller];
        let now = this.now(time);
        if this.request != request {
            return;
        }
        match (&mut this.doing, told) {
            (Doing::Asking(sent), Told::Held { token, elapsed, left, started, votes }) => {
                let until = *sent + (elapsed + left).as_nanos() as u64;
                let is_past =
                    this.known.replace(token.clone()).is_some_and(|it| it.holder == token.holder);
                // A repeat may tell of what it was done with: that is given back once more.
                if until <= now || is_past {
                    return self.give_back(caller, token);
                }
                let work_until = now + this.chance.within(0..4 * SECOND);
                let renew_at = if this.renews { now + (until - now) / 3 } else { u64::MAX };
                let believed = this.clock.when(until, time);
                let (who, lock) = (token.holder.clone(), token.lock.clone());
                let (value, fence) = (who.clone(), token.fence);
                this.doing =
                    Doing::Holding(Held { token, until, work_until, renew_at, asked: None });
                let until = believed;
                self.outcome.figures.told += 1;
                let reserved = false;
                let acquired = Happening::Acquired {
                    who,
                    value,
                    lock,
                    fence,
                    reserved,
                    started,
                    until,
                    votes,
                };
                self.tell(acquired);
                self.hold_on(caller);
            }
            (Doing::Asking(_), _) => self.think(caller),
            (Doing::Holding(held), Told::Held { elapsed, left, started, votes, .. }) => {
                let Some(asked) = held.asked.take().filter(|_| now < held.until) else { return };
                held.until = held.until.max(asked + (elapsed + left).as_nanos() as u64);
                held.renew_at = now + (held.until - now) / 3;
                let (who, until) = (held.token.holder.clone(), this.clock.when(held.until, time));
                let refreshed = false;
                self.outcome.figures.renewed += 1;
                self.tell(Happening::Extended { who, started, refreshed, until, votes });
                self.hold_on(caller);
            }
            (Doing::Holding(held), Told::Lost) if held.asked.is_some() => {
                let who = held.token.holder.clone();
                self.tell(Happening::Lost { who });
                self.think(caller);
            }
            (Doing::Releasing(token), Told::Released) => {
                let token = token.clone();
                self.tell_released(token);
                self.think(caller);
            }
            (Doing::Releasing(_), _) => self.think(caller),
            _ => {}
        }
    }

    /// Waits for a while to be told what became of it.
    fn give_back(&mut self, caller: usize, token: Token) {
        let this = &mut self.callers[caller];
        this.doing = Doing::Releasing(token.clone());
        let patience = this.now(self.now) + PATIENCE.as_nanos() as u64;
        self.ask(caller, Wish::Release { token });
        self.wake_caller(caller, patience);
    }

    fn tell_released(&mut self, token: Token) {
        let (now, mut kept) = (self.now, Vec::new());
        // A server that is no member gives no vote: it waits before it does, whatever it keeps.
        let is_member = |(number, _): &(usize, _)| self.addresses.member(*number).is_some();
        for (number, server) in self.servers.iter().enumerate().filter(is_member) {
            let moment = Moment::from_nanos(server.clock.at(now));
            if server.table.owner(moment, &token.lock) == Some(&token.holder) {
                kept.push((number, server.forgot));
            }
        }
        self.outcome.figures.released += 1;
        self.tell(Happening::Released { who: token.holder, kept });
    }

    /// Works on, renews, is done, or finds that its time is over.
    fn hold_on(&mut self, caller: usize) {
        let (time, is_calm) = (self.now, self.is_calm);
        let this = &mut self.callers[caller];
        let now = this.now(time);
        let Doing::Holding(held) = &mut this.doing else { return };
        let (who, token) = (held.token.holder.clone(), held.token.clone());
        if now >= held.until {
            self.tell(Happening::Lost { who });
            return self.think(caller);
        }
        if now >= held.work_until || is_calm {
            self.tell(Happening::Done { who });
            return self.give_back(caller, token);
        }
        if now >= held.renew_at {
            held.asked = Some(now);
            held.renew_at = now + (held.until - now) / 3 + MILLIS;
            let ttl = this.ttl();
            self.ask(caller, Wish::Renew { token, ttl });
        }
        self.perhaps_lie(caller);
        let Doing::Holding(held) = &self.callers[caller].doing else { return };
        let at = held.until.min(held.work_until).min(held.renew_at);
        self.wake_caller(caller, at);
    }
}
