//! Whether a node's answers count. A vote belongs to one life of one server: a node that may have
//! forgotten something must not vote before everything it may have forgotten is over, and then only
//! above a floor that covers the fences it gave; and an address behind which another server answers
//! is not the node that was admitted. Decided here from what the node says of itself, all of it read
//! in one atomic step; asking and writing is the driver's work.
//!
//! Here is what is known of one node between examinations: its standing, its clock, and what to ask it
//! with. `examination` judges it anew, `quarantine` when it has waited for long enough, `lives` whether
//! several servers answer for it.

mod examination;
mod lives;
mod policy;
mod quarantine;
mod standing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::node::clock_watch::Bounds;
use crate::{
    ClockJump, ClockSample, ClockWatch, Facts, Line, MemberName, Moment, NodeError, Record, Request,
};

pub use policy::{AdmissionPolicy, quarantine};
pub(crate) use standing::no_single_server;
pub use standing::{Cause, Pass, Standing};

use lives::Lives;
use quarantine::Watched;

/// What to do after an examination.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and never kept")]
pub enum AdmissionStep {
    /// Nothing: the standing says it all.
    Settled,
    /// Write this record if the old one is still there, then examine again.
    Replace {
        /// What stands there now.
        expected: Option<Arc<str>>,
        /// What shall stand there.
        record: Record,
    },
}

/// The standing of one node.
#[derive(Debug, Clone)]
pub struct Admission {
    policy: AdmissionPolicy,
    member: MemberName,
    standing: Standing,
    lives: Lives,
    /// The server that all connections met when several were made.
    compared: Option<String>,
    clock: ClockWatch,
    minds_jumps: bool,
    /// By how much the clock went ahead, and when that was noticed; not older than a quarantine.
    jumps: Vec<ClockJump>,
    /// When it was noticed last that what it granted is gone, and what became of it.
    gone: Option<(Moment, String)>,
    /// The longest Ttl that was met here, which says for how long jumps matter.
    max_ttl: Duration,
    line: Line,
    /// What a node that was admitted is asked with; without it the node has no memory that counts.
    admitted: Option<Arc<Pass>>,
    /// A life that waits, as we saw it.
    watched: Option<Watched>,
    /// A server that has no record, and when we first asked and saw that.
    blank: Option<(String, Moment)>,
    /// Since when the clocks of the members are at odds about how long it waited.
    doubted: Option<Moment>,
    /// Whether it would be admitted if what is known of the others were newer.
    wants_peers: bool,
    warning: Option<String>,
}

impl Admission {
    /// How many connections are compared before a member votes for the first time.
    pub const COMPARED: usize = 3;
    /// So many jumps are told apart. A clock that cannot stand still must not fill our memory.
    const JUMPS_MAX: usize = 64;

    /// The member called `member`, which nobody asked yet.
    pub fn new(policy: AdmissionPolicy, member: &str) -> Self {
        let clock = ClockWatch::new(policy.drift);
        let member = policy.member(member);
        let max_ttl = policy.longest_ttl();
        Self {
            policy,
            max_ttl,
            member,
            standing: Standing::Unknown,
            lives: Lives::default(),
            compared: None,
            clock,
            minds_jumps: true,
            jumps: Vec::new(),
            gone: None,
            line: Line::Unknown,
            admitted: None,
            watched: None,
            blank: None,
            doubted: None,
            wants_peers: false,
            warning: None,
        }
    }

    /// What is known of it.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Something an operator should know though the node votes.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// The node's clock minus ours, in microseconds.
    pub fn clock_offset_micros(&self) -> Option<i64> {
        self.clock.offset_micros()
    }

    /// The offset by which proposals follow its clock. Where it waits when it forgot, its clock is past
    /// all of them by then. Where it does not, the least that its clock may show: its next life begins
    /// with what it shows.
    pub(crate) fn offset_to_follow(&self) -> Option<i64> {
        match self.policy.quarantine {
            true => self.clock.offset_micros(),
            false => self.clock.bounds().map(Bounds::least_offset),
        }
    }

    /// What is known of its clock.
    pub(crate) fn clock(&self) -> Option<Bounds> {
        self.clock.bounds()
    }

    /// By how much its clock went ahead within the time of a quarantine.
    pub fn jumps(&self) -> &[ClockJump] {
        &self.jumps
    }

    /// When it was noticed last that what it granted is gone, and what became of it.
    pub fn gone(&self) -> Option<&(Moment, String)> {
        self.gone.as_ref()
    }

    /// Whether it waits for what the others say, and is to be examined again when they have.
    pub fn wants_peers(&self) -> bool {
        self.wants_peers
    }

    /// What it is asked with to keep a lease that it may know. What it keeps it keeps from now on, and
    /// if it had given the lock to another its fence would say so. But not while its clock is behind
    /// a quorum that agrees: when that is put right, what it kept meanwhile is over at once, and a client
    /// that starts then sees nothing but right clocks. The others are enough to keep the lease.
    pub fn pass_to_extend(&self) -> Option<&Arc<Pass>> {
        match &self.standing {
            Standing::Voting(pass) => Some(pass),
            _ if self.is_behind() => None,
            _ => self.admitted.as_ref(),
        }
    }

    /// Whether a quorum's clocks agree with its own.
    pub(crate) fn is_in_line(&self) -> bool {
        self.line == Line::InLine
    }

    fn is_behind(&self) -> bool {
        self.minds_jumps && matches!(self.line, Line::Off { micros: ..0, is_outvoted: true })
    }

    /// What to ask it with for `request`, or why it may not be asked.
    ///
    /// A lease above max_ttl would outlive the quarantine of a node that forgot it; whoever asked may
    /// not have known max_ttl then.
    pub fn pass_for(
        &self,
        now: impl FnOnce() -> Moment,
        request: &Request,
    ) -> Result<Arc<Pass>, NodeError> {
        let (pass, ttl) = match request {
            Request::Acquire { ttl, .. } => (self.standing.pass_shared(), Some(ttl)),
            Request::Extend { ttl, .. } => (self.pass_to_extend(), Some(ttl)),
            _ => (self.standing.pass_shared().or(self.admitted.as_ref()), None),
        };
        let Some(pass) = pass else {
            let not_voting = || NodeError::not_voting("not voting");
            return Err(self.standing.objection(now()).unwrap_or_else(not_voting));
        };
        if let Some(ttl) = ttl
            && ttl.get() > pass.max_ttl
        {
            let reason = format!("ttl {ttl:?} is above its max_ttl, {:?}", pass.max_ttl);
            return Err(NodeError::Rejected { reason });
        }
        if self.jumps.is_empty() || !matches!(request, Request::Acquire { .. }) {
            return Ok(pass.clone());
        }
        let settles_for = self.settles_for(now());
        if ttl.is_some_and(|ttl| settles_for > self.policy.drift.allowance(ttl.get())) {
            let reason = format!("its clock went ahead by {settles_for:.1?} not long ago");
            return Err(NodeError::not_voting(reason));
        }
        Ok(pass.clone())
    }

    /// A vote of this node for a new holder counts so much later than it is given: its clock went ahead
    /// by this, and what it ended early is over by then.
    pub fn settles_for(&self, now: Moment) -> Duration {
        let ahead = self.jumps_that_matter(now).map(|jump| jump.ahead);
        ahead.fold(Duration::ZERO, Duration::saturating_add)
    }

    fn jumps_that_matter(&self, now: Moment) -> impl Iterator<Item = &ClockJump> {
        let since = self.policy.quarantine_for(self.max_ttl);
        let is_recent = move |jump: &&ClockJump| now < jump.noticed.plus(since);
        self.jumps.iter().filter(is_recent).filter(|_| self.policy.quarantine)
    }

    /// The record that stands on the node and one with a higher floor, so that fences which have been
    /// idle for `retention` may be dropped; if that is worth a new record. `facts` are those that it was
    /// last examined with. A clock that is not in line gives no floor: the next proposals go above it,
    /// and when it is put right nobody's clock is.
    pub fn raised(&self, facts: &Facts, retention: Duration) -> Option<(String, Record)> {
        let may_give = self.standing.pass().is_some() && self.is_in_line();
        Record::raised(facts, retention).filter(|_| may_give)
    }

    /// The clocks of the members were compared again.
    pub fn compared(&mut self, now: Moment, line: Line) {
        self.line = line;
        self.stand(now);
    }

    /// Its name, as it stands in the record.
    pub fn member(&self) -> &MemberName {
        &self.member
    }

    /// How many connections the next examination shall open beside the node's own and compare:
    /// several servers may answer at one address.
    pub fn compares(&self) -> usize {
        if self.compared.is_some() { 0 } else { Self::COMPARED - 1 }
    }

    /// Another member, `twin`, shows the same server: neither votes.
    pub fn is_one_server_with(&mut self, twin: &MemberName) {
        let member = &self.member;
        let reason = format!(
            "{member} and {twin} are one server: it would be counted twice, so neither votes; \
             give each member the address of a server of its own"
        );
        self.refuse(reason);
    }

    /// The node did not answer.
    pub fn down(&mut self, error: NodeError) {
        self.admitted = None;
        self.standing = Standing::Down(error);
    }

    /// The node's data were removed or replaced, which was noticed at `now`: what it granted is gone.
    /// Says whether that is news.
    pub fn forgot(&mut self, now: Moment, reason: String) -> bool {
        let is_news = !matches!(self.standing, Standing::Down(NodeError::Gone { .. }));
        if is_news {
            self.gone = Some((now, reason.clone()));
        }
        self.down(NodeError::Gone { reason });
        is_news
    }

    /// A reading of the node's clock that came with another answer.
    pub fn observe_clock(&mut self, sample: ClockSample) -> Option<ClockJump> {
        let jump = self.clock.observe(sample).filter(|_| self.minds_jumps)?;
        if !jump.ahead.is_zero() {
            let kept = self.policy.quarantine_for(self.max_ttl);
            self.jumps.retain(|old| jump.noticed < old.noticed.plus(kept));
            if self.jumps.len() >= Self::JUMPS_MAX {
                // As one that was as far as both and came as late as the second: no less than it was.
                let first = self.jumps.remove(0);
                self.jumps[0].ahead = self.jumps[0].ahead.saturating_add(first.ahead);
            }
            self.jumps.push(jump);
            self.stand(sample.received);
        }
        Some(jump)
    }

    /// The standing of a node that was admitted, by its clock.
    fn stand(&mut self, now: Moment) {
        let Some(pass) = &self.admitted else {
            return;
        };
        self.standing = if let Line::Off { micros, .. } = self.line {
            Standing::Waiting { until: now.plus(LOOKED_AT_EVERY), cause: Cause::Off { micros } }
        } else if self.settles_for(now) > self.policy.drift.allowance(pass.max_ttl)
            && let Some(jump) = self.jumps_that_matter(now).max_by_key(|jump| jump.ahead)
        {
            let until = jump.noticed.plus(self.policy.quarantine_for(pass.max_ttl));
            Standing::Waiting { until, cause: Cause::Clock(*jump) }
        } else {
            Standing::Voting(pass.clone())
        };
    }

    fn refuse(&mut self, reason: String) -> AdmissionStep {
        self.admitted = None;
        self.standing = Standing::Refused { reason };
        AdmissionStep::Settled
    }
}

/// Long enough for the others to answer.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What is waited for without an end in sight is looked at so often.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);
