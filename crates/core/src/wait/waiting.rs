//! When a waiter asks for a lock, from its wish until it has the lock or gives up.
//!
//! [`Line`] says what hints amount to. This adds time: how long a waiter trusts hints, how it backs
//! off where none come, and when its waiting time or its attempts are used up. Nothing here is
//! needed for safety, and a timer covers each hint that fails to come.
//!
//! One number per refusal is the jitter of all its timers: only one of them ends the wait.

use std::mem::take;
use std::time::Duration;

use super::backoff::{AFTER_EXPIRY, Backoff, RetryPolicy, share};
use super::line::{Line, Move};
use crate::rounds::Refusal;
use crate::{Moment, Owner, Quorum};

/// How often a waiter asks although no hint came, while hints are to be expected: often enough that
/// a lost one costs a second, and seldom enough that many waiters do not hurt.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Two refusals within this time were a race with others who were woken as well.
const RACE_WITHIN: Duration = Duration::from_millis(20);
/// How long the loser of such a race lets the others go first, at most; doubled with each further
/// one.
const BACK_OFF_AFTER_RACE: Duration = Duration::from_millis(1);
/// And no more often than this.
const DOUBLINGS_MAX: u32 = 5;
/// A waiter that does not learn its place within this time asks the nodes.
const WORD_WITHIN: Duration = Duration::from_millis(20);

/// What a waiter does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitStep {
    /// Ask the nodes. What comes of it is told to [`Waiting::refused`], unless it gets the lock.
    Ask,
    /// Enter the line on the first voting node that keeps one; see [`super::affinity`].
    Enter,
    /// Watch the lock on all voting nodes.
    Watch,
    /// Let the process of the owner know that somebody waits in line for what it holds.
    Nudge,
    /// Look again then, or when something was heard.
    SleepUntil(Moment),
    /// It does not get the lock.
    GiveUp(WaitEnd),
}

/// What a waiter has behind it that gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitEnd {
    /// How often it asked.
    pub attempts: u32,
    /// How long it waited.
    pub waited: Duration,
}

/// One waiter.
#[derive(Debug, Clone)]
pub struct Waiting {
    since: Moment,
    ends: Moment,
    takes_hints: bool,
    backoff: Backoff,
    line: Line,
    races: Races,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Asks,
    Waits(Wait),
    GivesUp(WaitEnd),
}

/// What ends one wait for the next question, if nothing is heard.
#[derive(Debug, Clone)]
struct Wait {
    since: Moment,
    jitter: u32,
    backs_off_until: Moment,
    /// When the owner expires.
    expires_at: Option<Moment>,
    takes_hints: bool,
    nudges: bool,
    /// A lease of this process ended.
    was_freed: bool,
    /// It was told to ask, but lets others go first.
    asks_at: Option<Moment>,
}

impl Waiting {
    /// One that wants the lock from `now` on, and waits for at most `wait`.
    pub fn new(now: Moment, wait: Option<Duration>, policy: RetryPolicy, quorum: Quorum) -> Self {
        Self {
            since: now,
            ends: wait.map_or(Moment::MAX, |wait| now.plus(wait)),
            takes_hints: policy.takes_hints(),
            backoff: Backoff::new(policy),
            line: Line::new(quorum),
            races: Races::default(),
            state: State::Asks,
        }
    }

    /// Its place and its watches, which hear what nodes say.
    pub fn line(&mut self) -> &mut Line {
        &mut self.line
    }

    /// Others were seen waiting for the lock a moment ago: it stands in line before it asks.
    pub fn contended(&mut self, now: Moment, jitter: u32) {
        if self.takes_hints {
            self.state = State::Waits(Wait::new(now, jitter, WORD_WITHIN));
        }
    }

    /// It asked, and did not get the lock.
    pub fn refused(&mut self, now: Moment, refusal: &Refusal, jitter: u32) {
        let (is_held, owner, expires_in) = match refusal {
            Refusal::Held { owner, expires_in } => (true, owner.as_ref(), *expires_in),
            Refusal::NoQuorum | Refusal::TooLate { .. } => (false, None, None),
        };
        let pause = self.backoff.after_refusal(jitter, expires_in);
        let Some(pause) = pause.filter(|_| now < self.ends) else {
            let (attempts, waited) = (self.backoff.refusals(), now.since(self.since));
            self.state = State::GivesUp(WaitEnd { attempts, waited });
            return;
        };
        let takes_hints = self.takes_hints && is_held;
        if takes_hints {
            self.races.refused(now);
            self.line.refused();
        } else {
            // Nobody could answer, so others may be able to ask.
            self.line.leave();
        }
        self.state = State::Waits(Wait {
            expires_at: expires_in.map(|left| now.plus(left)),
            takes_hints,
            nudges: takes_hints && matches!(owner, Some(Owner::Holder(_))),
            ..Wait::new(now, jitter, pause)
        });
    }

    /// A lease of this process on this lock ended: a reason to ask, unless hints are to be expected.
    pub fn freed(&mut self) {
        if let State::Waits(wait) = &mut self.state {
            wait.was_freed = true;
        }
    }

    /// What to do now.
    pub fn step(&mut self, now: Moment) -> WaitStep {
        let line = self.line;
        let wait = match &mut self.state {
            State::Asks => return WaitStep::Ask,
            State::GivesUp(end) => return WaitStep::GiveUp(*end),
            State::Waits(wait) => wait,
        };
        if line.is_in_line() && take(&mut wait.nudges) {
            return WaitStep::Nudge;
        }
        let (at, relies) = match wait.next_move(&line) {
            Move::Enter => return WaitStep::Enter,
            Move::Watch => return WaitStep::Watch,
            Move::Ask => {
                let pause = self.races.back_off(wait.jitter);
                (*wait.asks_at.get_or_insert_with(|| now.plus(pause)), true)
            }
            Move::Rely => (wait.looks_at(&line), true),
            Move::Doubt => (wait.backs_off_until, false),
        };
        let at = at.min(self.ends);
        if now >= at || wait.was_freed && !relies {
            self.line.asks();
            self.state = State::Asks;
            return WaitStep::Ask;
        }
        WaitStep::SleepUntil(at)
    }
}

impl Wait {
    fn new(now: Moment, jitter: u32, pause: Duration) -> Self {
        Self {
            since: now,
            jitter,
            backs_off_until: now.plus(pause),
            expires_at: None,
            takes_hints: true,
            nudges: false,
            was_freed: false,
            asks_at: None,
        }
    }

    fn next_move(&self, line: &Line) -> Move {
        if self.asks_at.is_some() {
            Move::Ask
        } else if self.takes_hints {
            line.next()
        } else {
            Move::Doubt
        }
    }

    /// When to ask although no hint came.
    fn looks_at(&self, line: &Line) -> Moment {
        let at = self.since.plus(LOOK_EVERY.mul_f64(0.75 + share(self.jitter) / 2.0));
        match self.expires_at {
            // Only the first in line: all at once they would split the votes.
            Some(expires_at) if line.is_first() => at.min(expires_at.plus(AFTER_EXPIRY)),
            _ => at,
        }
    }
}

/// Refusals that came right after each other: two that are woken at once and each get a part of the
/// votes would otherwise do so for ever.
#[derive(Debug, Clone, Default)]
struct Races {
    in_a_row: u32,
    refused_at: Option<Moment>,
}

impl Races {
    fn refused(&mut self, now: Moment) {
        let is_race = self.refused_at.is_some_and(|last| now.since(last) < RACE_WITHIN);
        self.in_a_row = if is_race { self.in_a_row.saturating_add(1) } else { 0 };
        self.refused_at = Some(now);
    }

    /// How long the others go first.
    fn back_off(&self, jitter: u32) -> Duration {
        match self.in_a_row.checked_sub(1) {
            Some(doublings) => {
                (BACK_OFF_AFTER_RACE * (1 << doublings.min(DOUBLINGS_MAX))).mul_f64(share(jitter))
            }
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::Holder;
    use crate::wait::{Heard, InLine, Ticket, Watched};

    const MOST: u32 = u32::MAX;

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    fn until(millis: u64) -> WaitStep {
        WaitStep::SleepUntil(at(millis))
    }

    /// For one node.
    fn waiting(wait: Option<u64>, policy: RetryPolicy) -> Waiting {
        let quorum = Quorum::majority_of(NonZeroUsize::MIN);
        Waiting::new(at(0), wait.map(Duration::from_millis), policy, quorum)
    }

    fn held(expires_in: Option<u64>) -> Refusal {
        let owner = Some(Owner::Holder(Holder::new("o", 1).unwrap()));
        Refusal::Held { owner, expires_in: expires_in.map(Duration::from_millis) }
    }

    /// One that was refused at `now`, nudged the owner, and was told its place.
    fn refused(waiting: &mut Waiting, now: u64, expires_in: Option<u64>, place: InLine) {
        assert_eq!(waiting.step(at(now)), WaitStep::Ask);
        waiting.refused(at(now), &held(expires_in), MOST / 2);
        if waiting.step(at(now)) == WaitStep::Enter {
            waiting.line().enter();
            assert_eq!(waiting.step(at(now)), WaitStep::Nudge);
        }
        waiting.line().hear(Heard::Place(place));
    }

    const FIRST: InLine = InLine::First { ticket: Ticket(1), others: 0 };
    const BEHIND: InLine = InLine::Behind(Ticket(2));

    fn free(waiting: &mut Waiting, now: u64) {
        assert_eq!(waiting.step(at(now)), WaitStep::Watch);
        waiting.line().watch();
        waiting.line().hear(Heard::Watch { node: 0, word: Watched::Free });
    }

    #[test]
    fn a_refused_waiter_enters_nudges_and_asks_when_it_is_told_to() {
        let mut waiting = waiting(None, RetryPolicy::DEFAULT);
        refused(&mut waiting, 5, None, FIRST);
        free(&mut waiting, 7);
        assert_eq!(waiting.step(at(7)), WaitStep::Ask);
        assert_eq!(waiting.step(at(7)), WaitStep::Ask, "until it is told what came of it");
        waiting.refused(at(8), &held(None), 0);
        assert_eq!(waiting.step(at(8)), WaitStep::Nudge, "it still stands in line");
    }

    #[test]
    fn without_word_of_its_place_it_backs_off() {
        let mut waiting = waiting(None, RetryPolicy::DEFAULT);
        waiting.refused(at(0), &held(None), MOST);
        assert_eq!(waiting.step(at(0)), WaitStep::Enter);
        waiting.line().enter();
        assert_eq!(waiting.step(at(0)), WaitStep::Nudge);
        assert_eq!(waiting.step(at(1)), until(20));
        waiting.line().hear(Heard::NoLine);
        assert_eq!(waiting.step(at(19)), until(20));
        assert_eq!(waiting.step(at(20)), WaitStep::Ask);
    }

    #[test]
    fn in_line_it_asks_about_once_a_second_whatever_the_expiry() {
        let mut waiting = waiting(None, RetryPolicy::DEFAULT);
        refused(&mut waiting, 0, Some(100), BEHIND);
        let WaitStep::SleepUntil(moment) = waiting.step(at(0)) else { panic!("it relies") };
        assert!((at(999)..=at(1001)).contains(&moment), "{moment:?}");
        assert_eq!(waiting.step(moment), WaitStep::Ask);
    }

    #[test]
    fn only_the_first_in_line_asks_when_the_owner_expires() {
        let mut waiting = waiting(None, RetryPolicy::DEFAULT);
        refused(&mut waiting, 0, Some(100), FIRST);
        assert_eq!(waiting.step(at(0)), WaitStep::Watch);
        waiting.line().watch();
        assert_eq!(waiting.step(at(0)), until(101));
    }

    #[test]
    fn the_end_of_an_own_lease_is_a_reason_to_ask_where_hints_may_not_come() {
        let mut relying = waiting(None, RetryPolicy::DEFAULT);
        refused(&mut relying, 0, None, BEHIND);
        relying.freed();
        assert!(matches!(relying.step(at(1)), WaitStep::SleepUntil(_)));
        relying.line().hear(Heard::Place(InLine::Over));
        assert_eq!(relying.step(at(2)), WaitStep::Enter);
        relying.line().hear(Heard::NoLine);
        assert_eq!(relying.step(at(2)), WaitStep::Ask, "it is not forgotten");

        let mut counting = waiting(None, RetryPolicy::FIVE_ATTEMPTS);
        counting.refused(at(0), &held(None), MOST);
        assert_eq!(counting.step(at(0)), until(100), "it stands in no line");
        counting.freed();
        assert_eq!(counting.step(at(1)), WaitStep::Ask);
    }

    #[test]
    fn at_the_end_of_its_time_it_asks_once_more_and_gives_up() {
        let mut waiting = waiting(Some(30), RetryPolicy::DEFAULT);
        refused(&mut waiting, 0, None, BEHIND);
        assert_eq!(waiting.step(at(1)), until(30));
        assert_eq!(waiting.step(at(30)), WaitStep::Ask);
        waiting.refused(at(31), &held(None), 0);
        let end = WaitEnd { attempts: 2, waited: Duration::from_millis(31) };
        assert_eq!(waiting.step(at(40)), WaitStep::GiveUp(end));
    }

    #[test]
    fn at_the_end_of_its_attempts_it_gives_up() {
        let mut waiting = waiting(None, RetryPolicy::ONCE);
        waiting.refused(at(3), &Refusal::NoQuorum, 0);
        let end = WaitEnd { attempts: 1, waited: Duration::from_millis(3) };
        assert_eq!(waiting.step(at(3)), WaitStep::GiveUp(end));
    }

    #[test]
    fn where_nobody_can_answer_it_leaves_the_line_and_backs_off() {
        let mut waiting = waiting(None, RetryPolicy::DEFAULT);
        refused(&mut waiting, 0, None, FIRST);
        free(&mut waiting, 0);
        assert_eq!(waiting.step(at(0)), WaitStep::Ask);
        waiting.refused(at(0), &Refusal::NoQuorum, MOST);
        assert!(!waiting.line().is_in_line());
        assert_eq!(waiting.step(at(0)), until(40));
    }

    #[test]
    fn losers_of_races_let_others_go_first_for_longer_and_longer() {
        let mut waiting = waiting(None, RetryPolicy::DEFAULT);
        let mut pauses = Vec::new();
        let mut now = at(0);
        for _ in 0..10 {
            waiting.refused(now, &held(None), MOST);
            waiting.line().enter();
            waiting.line().hear(Heard::Place(FIRST));
            assert_eq!(waiting.step(now), WaitStep::Nudge);
            free(&mut waiting, now.as_nanos() / 1_000_000);
            let asks_at = match waiting.step(now) {
                WaitStep::Ask => now,
                WaitStep::SleepUntil(asks_at) => asks_at,
                other => panic!("{other:?}"),
            };
            pauses.push(asks_at.since(now).as_millis());
            waiting.line().hear(Heard::Place(InLine::Over));
            waiting.freed();
            if asks_at > now {
                assert_eq!(waiting.step(now), WaitStep::SleepUntil(asks_at), "it is decided");
            }
            assert_eq!(waiting.step(asks_at), WaitStep::Ask);
            now = asks_at;
        }
        // The longest is longer than a race: then it begins anew.
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 0, 1, 2]);
    }

    #[test]
    fn a_contended_lock_is_stood_in_line_for_before_it_is_asked_for() {
        let mut first = waiting(None, RetryPolicy::DEFAULT);
        first.contended(at(0), 0);
        assert_eq!(first.step(at(0)), WaitStep::Enter);
        first.line().enter();
        assert_eq!(first.step(at(0)), until(20), "and not for long without a word");
        first.line().hear(Heard::Place(FIRST));
        assert_eq!(first.step(at(1)), WaitStep::Ask);

        let mut nowhere = waiting(None, RetryPolicy::DEFAULT);
        nowhere.contended(at(0), 0);
        nowhere.line().hear(Heard::NoLine);
        assert_eq!(nowhere.step(at(0)), WaitStep::Ask);

        let mut counting = waiting(None, RetryPolicy::FIVE_ATTEMPTS);
        counting.contended(at(0), 0);
        assert_eq!(counting.step(at(0)), WaitStep::Ask);
    }
}
