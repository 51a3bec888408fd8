//! Which servers were met behind one address: several that take turns are not the member.

use std::time::Duration;

use super::AdmissionPolicy;
use crate::Moment;

/// The lives that were met at one address, in the order of their first coming.
#[derive(Debug, Clone, Default)]
pub(super) struct Lives {
    met: Vec<u128>,
    /// When the last of them was last asked: it was there after that.
    asked: Moment,
    /// The one that was last seen to wait. It gave no votes before that, whatever its age.
    pub(super) waiting: Option<u128>,
    /// Those that were seen to wait before another one voted.
    overtaken: Vec<u128>,
    /// Once one of them came back after another, none of them is the member.
    take_turns: bool,
}

impl Lives {
    /// An admitted server answers a question of `asked`; its life is `age` old. Whether it is one of
    /// several that answer here.
    ///
    /// A life that comes back after another shows that both are there. So does one that began before
    /// the other was last seen: a server that takes another's place begins its life then. One that
    /// served its `quarantine` may have begun it a little earlier: it is longer than the longest lease
    /// by twice the skew, so the other may have voted for that much longer.
    pub(super) fn meet(
        &mut self,
        life: u128,
        asked: Moment,
        age: Duration,
        quarantine: Duration,
        policy: &AdmissionPolicy,
    ) -> bool {
        let since_the_last = asked.since(self.asked);
        let waited = self.waiting.take();
        let was_waiting = waited == Some(life);
        if let Some(overtaken) = waited.filter(|_| !was_waiting) {
            remember(&mut self.overtaken, overtaken);
        }
        match self.met.iter().position(|met| *met == life) {
            Some(at) if at + 1 == self.met.len() => {}
            Some(_) => self.take_turns = true,
            None => {
                if std::mem::take(&mut self.take_turns) {
                    // Somebody put it right: a life that none of them had.
                    self.met.clear();
                }
                // One that is younger was admitted by a person's word.
                let served = if age >= quarantine { 2 } else { 0 };
                let skew = policy.max_clock_skew.saturating_mul(served);
                let slack = policy.drift.allowance(since_the_last).saturating_add(skew);
                self.take_turns = !self.met.is_empty()
                    && !was_waiting
                    && age > since_the_last.saturating_add(slack);
                remember(&mut self.met, life);
            }
        }
        self.asked = asked;
        self.take_turns
    }

    /// Whether another one voted here since `life` was first seen to wait.
    pub(super) fn overtook(&self, life: u128) -> bool {
        self.overtaken.contains(&life)
    }

    /// For how long, at most, a life that waits here can have waited beside no other that votes.
    pub(super) fn alone_for(&self, now: Moment) -> Duration {
        if self.met.is_empty() { Duration::MAX } else { now.since(self.asked) }
    }
}

/// So many lives are remembered. A server that is restarted more often than that is not confused with
/// one that comes back, it is only not recognised.
const REMEMBERED: usize = 16;

fn remember(lives: &mut Vec<u128>, life: u128) {
    lives.push(life);
    if lives.len() > REMEMBERED {
        lives.remove(0);
    }
}
