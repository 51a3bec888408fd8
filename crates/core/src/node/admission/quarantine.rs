//! The quarantine: whether a life has waited for long enough, by whose clock, and with what floor it
//! comes back.

use std::sync::Arc;
use std::time::Duration;

use super::{ASKED_AGAIN_AFTER, Admission, AdmissionStep, Cause, LOOKED_AT_EVERY, Standing};
use crate::{Facts, Fence, Line, Moment, Origin, Peers, Record, RecordState, WallMicros};

/// A life that waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watched {
    life: u128,
    /// When we first saw it wait.
    since: Moment,
    /// For how long it had waited when its witnesses first told us.
    told: Option<(Moment, Duration)>,
    /// Whether they told us that it waits since the life before it was last asked, or later.
    is_alone: bool,
}

/// What is known of how long a life has waited.
enum Served {
    /// For as long as it must, and for this much longer.
    Yes(Duration),
    /// Not yet; for so long at least, if nothing changes.
    NotYet(Duration),
    /// Nobody can tell: it begins to wait anew.
    Anew,
    /// Another life voted here after it began to wait: what everybody saw of its wait counts for
    /// nothing.
    BesideAnother,
}

impl Admission {
    /// The node waits. Says what is to stand in its record instead, once it has waited for long
    /// enough, or where nobody can tell.
    pub(super) fn wait(
        &mut self,
        sent: Moment,
        now: Moment,
        (text, record): (&str, &Record),
        facts: &Facts,
        life: u128,
        peers: &Peers,
    ) -> AdmissionStep {
        // One that waits has given no votes, so the one before it may come back.
        self.lives.waiting = Some(record.life);
        let (left, successor) = match self.served(sent, now, record, facts, peers) {
            Served::NotYet(_) if self.wants_peers => (ASKED_AGAIN_AFTER, None),
            Served::NotYet(left) => (left, None),
            Served::Yes(longer) => {
                // A client that missed the barred one for a moment may have written this record.
                let is_beside_barred = record.origin == Origin::First && peers.is_one_barred;
                let may_vote = !self.policy.waits(record)
                    || !is_beside_barred && self.is_known(now, longer, peers);
                let left = if self.wants_peers { ASKED_AGAIN_AFTER } else { LOOKED_AT_EVERY };
                (left, may_vote.then(|| self.admit(record, facts, peers)))
            }
            Served::BesideAnother => {
                // With another life, so that those who watched this one begin anew as well.
                self.doubted = None;
                let clocks = self.clocks_to_wait_by(now, peers);
                let again = Record { life, born: facts.clock, clocks, ..record.clone() };
                (self.policy.quarantine_of(record), Some(again))
            }
            Served::Anew => {
                self.doubted = None;
                self.watched = self.watched.map(|watched| Watched { told: None, ..watched });
                let clocks = self.clocks_to_wait_by(now, peers);
                let again = Record { born: facts.clock, clocks, ..record.clone() };
                (self.policy.quarantine_of(record), Some(again))
            }
        };
        let cause = match self.line {
            Line::Off { micros, .. } => Cause::Off { micros },
            Line::InLine | Line::Unknown => Cause::of(record.origin),
        };
        self.standing = Standing::Waiting { until: now.plus(left), cause };
        match successor {
            Some(record) => AdmissionStep::Replace { expected: Some(Arc::from(text)), record },
            None => AdmissionStep::Settled,
        }
    }

    /// Whether enough is known of the others to let this one vote, which has waited for `longer` than
    /// it must.
    fn is_known(&mut self, now: Moment, longer: Duration, peers: &Peers) -> bool {
        // Who granted with this node before it forgot had decided by then.
        let slack = self.policy.max_clock_skew.saturating_mul(2);
        let since = now.less(longer.saturating_add(slack));
        // And who was not asked yet may say that it is too early.
        self.wants_peers = !peers.are_tried || peers.others().any(|other| other.asked < since);
        self.line == Line::InLine && !self.wants_peers
    }

    /// The record of a node that may vote from now on, above every number that it or anybody else may
    /// have given: others remember those, and its clock is above those that nobody does.
    fn admit(&self, record: &Record, facts: &Facts, peers: &Peers) -> Record {
        let remembered = peers.others().map(|other| other.highest).filter(|h| !h.is_spent());
        let floor = record.floor.max(Fence::from_clock(facts.clock));
        Record {
            state: RecordState::Admitted,
            floor: remembered.fold(floor, Fence::max),
            waits: None,
            clocks: Vec::new(),
            ..record.clone()
        }
    }

    /// The clocks by which a life that begins to wait now is to be judged: none, unless its own is one
    /// of a quorum that agrees.
    pub(super) fn clocks_to_wait_by(&self, now: Moment, peers: &Peers) -> Vec<Option<WallMicros>> {
        let is_whole = peers.count() > 1 && peers.count() == self.policy.nodes;
        let are_enough = self.line == Line::InLine && is_whole;
        if are_enough { peers.clocks(now) } else { Vec::new() }
    }

    /// Whether the life that `record` describes has waited for long enough.
    ///
    /// Either we saw it wait for that long by our own clock. Or all members whose clocks were written
    /// down when it began, at least a quorum, say so now: one of them that is right is enough. If one
    /// of them does not answer or says otherwise, nobody can tell, and it begins anew. Even all of
    /// them together cannot tell us that more time passed than we saw pass.
    fn served(
        &mut self,
        sent: Moment,
        now: Moment,
        record: &Record,
        facts: &Facts,
        peers: &Peers,
    ) -> Served {
        let needed = self.policy.quarantine_of(record);
        if !self.policy.waits(record) {
            return Served::Yes(Duration::ZERO);
        }
        if self.lives.overtook(record.life) {
            return Served::BesideAnother;
        }
        let unseen = Watched { life: record.life, since: now, told: None, is_alone: false };
        let mut watched = self.watched.filter(|seen| seen.life == record.life).unwrap_or(unseen);
        // Once: what we saw since then, we saw without another life in between.
        if !watched.is_alone {
            match self.is_beside_another(now, record, facts, peers) {
                Some(true) => return Served::BesideAnother,
                Some(false) => watched.is_alone = true,
                None => {}
            }
        }
        self.watched = Some(watched);
        let seen = sent.since(watched.since);
        if let Some(longer) = seen.checked_sub(needed) {
            return Served::Yes(longer);
        }
        let by_watching = Served::NotYet(needed.saturating_sub(seen));
        // A member that was not asked yet may be the one whose clock is right.
        if peers.count() == 1 || peers.count() != record.nodes || !peers.are_tried {
            return by_watching;
        }
        let went_back = facts.clock < record.born;
        let all = peers.waited(&record.clocks, now);
        let least = all.iter().map(|waited| waited.at_least).min();
        let longest = all.iter().map(|waited| waited.at_least).max();
        let shortest = all.iter().map(|waited| waited.at_most).min();
        let (Some(least), Some(longest), Some(shortest)) = (least, longest, shortest) else {
            return self.anew_or(by_watching);
        };
        let skew = self.policy.max_clock_skew;
        // A slow answer tells little of a clock, which is no disagreement.
        let drift = self.policy.drift.allowance(longest);
        let apart = longest.saturating_sub(shortest);
        let is_missing = all.len() < record.clocks.iter().flatten().count();
        if went_back || apart > skew.saturating_add(drift) {
            // It may be that we stood still since some of them were asked.
            let doubted = *self.doubted.get_or_insert(now);
            self.wants_peers = !peers.are_tried || peers.others().any(|o| o.asked < doubted);
            return if self.wants_peers { by_watching } else { self.anew_or(by_watching) };
        }
        if !is_missing {
            self.doubted = None;
        }
        let (told_at, told) = *watched.told.get_or_insert((now, least));
        self.watched = Some(watched);
        let passed = now.since(told_at);
        let most = told.saturating_add(passed).saturating_add(self.policy.drift.allowance(passed));
        let least = most.min(least);
        match least.checked_sub(needed) {
            Some(_) if is_missing => {
                // The one that does not answer may be the one that knows better. It may also be slow.
                let doubted = *self.doubted.get_or_insert(now);
                self.wants_peers = now < doubted.plus(ASKED_AGAIN_AFTER);
                if self.wants_peers { by_watching } else { self.anew_or(by_watching) }
            }
            Some(longer) if all.len() >= peers.quorum() => Served::Yes(longer),
            Some(_) => by_watching,
            None => {
                let left = needed.saturating_sub(seen).min(needed.saturating_sub(least));
                Served::NotYet(left)
            }
        }
    }

    /// Whether another life voted here since this one began to wait, for holders that it knows nothing
    /// of, as far as clocks can tell. Clients that met only this one do not know: it needs another name,
    /// which they have not watched.
    fn is_beside_another(
        &self,
        now: Moment,
        record: &Record,
        facts: &Facts,
        peers: &Peers,
    ) -> Option<bool> {
        let alone = self.lives.alone_for(now);
        let least = if peers.count() == 1 {
            // Nobody else's clock is there to tell. One that was set ahead makes it wait once more.
            Duration::from_micros(facts.clock.0.saturating_sub(record.born.0))
        } else if peers.count() == record.nodes && peers.are_tried {
            peers.waited(&record.clocks, now).iter().map(|waited| waited.at_least).min()?
        } else {
            return None;
        };
        let drift = self.policy.drift.allowance(least.min(alone));
        Some(least > alone.saturating_add(self.policy.max_clock_skew).saturating_add(drift))
    }

    /// Where the recorded clocks tell nothing, the wait begins anew, if there are clocks to begin with.
    fn anew_or(&self, otherwise: Served) -> Served {
        if self.line == Line::InLine { Served::Anew } else { otherwise }
    }
}
