//! Whether a node's answers count. A vote belongs to one life of one server: a node that may have
//! forgotten something must not vote before everything it may have forgotten is over, and then only
//! above a floor that covers the fences it gave; and an address behind which another server answers
//! is not the node that was admitted. Decided here from what the node says of itself, all of it read
//! in one atomic step; asking and writing is the driver's work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock_watch::Bounds;
use crate::{
    ClockJump, ClockSample, ClockWatch, Drift, Facts, Fence, Fingerprint, Line, MemberName, Moment,
    NodeError, Origin, Peers, Record, RecordState, Request, Role, WallMicros,
};

/// What a client expects of its nodes. The same for all nodes of a cluster.
#[derive(Debug, Clone)]
pub struct AdmissionPolicy {
    /// The member list that this client is configured for.
    pub cluster: Fingerprint,
    /// How many nodes that list has.
    pub nodes: usize,
    /// The longest Ttl of the cluster. The same for all its clients, like the member list: quarantines
    /// last as long. `None`, which adopts what the node says, only where there is no quarantine.
    pub max_ttl: Option<Duration>,
    /// Written to a node that has no record, if `max_ttl` says nothing.
    pub max_ttl_default: Duration,
    /// How far clocks may drift.
    pub drift: Drift,
    /// How far the wall clocks of nodes may be apart. A node whose clock is not within this of a
    /// quorum's, its own included, grants nothing and gives no floor.
    pub max_clock_skew: Duration,
    /// Whether a node that forgot sits out. Off only for a quorum of one.
    pub quarantine: bool,
    /// Whether a node that may evict keys is refused rather than warned about.
    pub strict: bool,
}

/// The proof that a node was examined, to be shown with each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// The node's record, to the letter.
    pub record: Arc<str>,
    /// The connection on which it was read, and the server that was met on it. Behind another one
    /// may be a server that restarted.
    pub generation: u64,
    /// An absent fence counts as this, so a proposal must be above it.
    pub floor: Fence,
    /// The longest Ttl of the cluster.
    pub max_ttl: Duration,
    /// Whether the node waited, before it voted, for all leases that it may have forgotten.
    pub has_waited: bool,
}

impl Pass {
    /// `request` as this node is asked. One that did not wait heals no lease from before its floor:
    /// others may have had the lock since then, and what it has of them may be from an old backup.
    /// A lease that it still keeps is extended, for only its owner wrote that.
    pub fn fitted(&self, request: &Arc<Request>) -> Arc<Request> {
        match &**request {
            Request::Extend { lock, holder, token, next, unbroken: false, ttl }
                if !self.has_waited && *token < self.floor =>
            {
                let (lock, holder) = (lock.clone(), holder.clone());
                let (token, next, unbroken, ttl) = (Fence::ZERO, *next, false, *ttl);
                Arc::new(Request::Extend { lock, holder, token, next, unbroken, ttl })
            }
            _ => request.clone(),
        }
    }
}

/// Whether a node votes, as far as this client is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nobody asked it yet.
    Unknown,
    /// It does.
    Voting(Arc<Pass>),
    /// Not before a moment on our clock.
    Waiting {
        /// When it is looked at again.
        until: Moment,
        /// Why it must wait.
        cause: Cause,
    },
    /// Not until somebody changes something.
    Refused {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Never, for this client: it belongs to another cluster. Where one node does, two member lists
    /// are in use, and nothing may be acquired with this one.
    Foreign {
        /// Whose it is.
        reason: String,
    },
    /// It did not answer.
    Down(NodeError),
}

/// Why a node has to wait before it may vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It is new, or it lost its memory: nobody but a person can tell.
    Forgot,
    /// Another process or another history of writes than before: some of its memory may be gone.
    AnotherLife,
    /// A change of the member list: it knows nothing of what the list before granted.
    AnotherList,
    /// Its clock went ahead, so that it may have ended leases early.
    Clock(ClockJump),
    /// Its clock is off those of the others.
    Off {
        /// How far ahead, in microseconds; negative for behind.
        micros: i64,
    },
    /// Its member list is being changed.
    Barred,
}

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

/// A life that waits.
#[derive(Debug, Clone, Copy)]
struct Watched {
    life: u128,
    /// When we first saw it wait.
    since: Moment,
    /// For how long it had waited when its witnesses first told us.
    told: Option<(Moment, Duration)>,
}

/// What is known of how long a life has waited.
enum Served {
    /// For as long as it must, and for this much longer.
    Yes(Duration),
    /// Not yet; for so long at least, if nothing changes.
    NotYet(Duration),
    /// Nobody can tell: it begins to wait anew.
    Anew,
}

/// The lives that were met at one address, in the order of their first coming.
#[derive(Debug, Clone, Default)]
struct Lives {
    met: Vec<u128>,
    /// When the last of them was last asked: it was there after that.
    asked: Moment,
    /// The one that was last seen to wait. It gave no votes before that, whatever its age.
    waiting: Option<u128>,
    /// Once one of them came back after another, none of them is the member.
    take_turns: bool,
}

impl Lives {
    /// So many are remembered. A server that is restarted more often than that is not confused with
    /// one that comes back, it is only not recognised.
    const REMEMBERED: usize = 16;

    /// An admitted server answers a question of `asked`; its life is `age` old. Whether it is one of
    /// several that answer here.
    ///
    /// A life that comes back after another shows that both are there. So does one that began before
    /// the other was last seen: a server that takes another's place begins its life then. One that
    /// served its `quarantine` may have begun it a little earlier: it is longer than the longest lease
    /// by twice the skew, so the other may have voted for that much longer.
    fn meet(
        &mut self,
        life: u128,
        asked: Moment,
        age: Duration,
        quarantine: Duration,
        policy: &AdmissionPolicy,
    ) -> bool {
        let since_the_last = asked.since(self.asked);
        let was_waiting = self.waiting.take() == Some(life);
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
                self.met.push(life);
                if self.met.len() > Self::REMEMBERED {
                    self.met.remove(0);
                }
            }
        }
        self.asked = asked;
        self.take_turns
    }

    /// For how long, at most, a life that waits here can have waited beside no other that votes.
    fn alone_for(&self, now: Moment) -> Duration {
        if self.met.is_empty() { Duration::MAX } else { now.since(self.asked) }
    }
}

impl AdmissionPolicy {
    /// What the record of the member called `name` calls it.
    pub fn member(&self, name: &str) -> MemberName {
        if self.nodes == 1 { MemberName::of_one() } else { MemberName::new(name) }
    }

    /// How long a node that forgot must not vote, where the longest Ttl is this.
    pub fn quarantine_for(&self, max_ttl: Duration) -> Duration {
        quarantine(max_ttl, self.drift, self.max_clock_skew)
    }

    /// How long the life that this record describes must not vote.
    pub fn quarantine_of(&self, record: &Record) -> Duration {
        self.quarantine_for(record.max_ttl).max(record.waits.unwrap_or_default())
    }

    /// Whether the life that this record describes waits at all before it votes. A single node waits
    /// for what the list before it granted, though not for what it forgot.
    fn waits(&self, record: &Record) -> bool {
        self.quarantine || record.waits.is_some()
    }

    /// The longest Ttl, where no record says it.
    pub fn longest_ttl(&self) -> Duration {
        self.max_ttl.unwrap_or(self.max_ttl_default)
    }

    /// Whether a record is one of this member list, with this longest Ttl.
    pub fn is_list_of(&self, record: &Record) -> bool {
        record.cluster == self.cluster
            && record.nodes == self.nodes
            && self.max_ttl.is_none_or(|ours| ours == record.max_ttl)
    }
}

/// How long a node that forgot must not vote: until the longest lease that it may have granted is
/// over, and until its clock is above every number that it may have given.
pub fn quarantine(max_ttl: Duration, drift: Drift, max_clock_skew: Duration) -> Duration {
    let skew = max_clock_skew.saturating_mul(2);
    max_ttl.saturating_add(drift.allowance(max_ttl)).saturating_add(skew)
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

    /// Judges what the node says of itself. `life` is 128 fresh random bits, used if the node needs
    /// a new record; `peers` are the other members, by the [`Roster`].
    ///
    /// [`Roster`]: crate::Roster
    pub fn examine(
        &mut self,
        sent: Moment,
        received: Moment,
        facts: &Facts,
        life: u128,
        peers: &Peers,
    ) -> AdmissionStep {
        self.minds_jumps = facts.server.expires_by_wall;
        self.admitted = None;
        self.wants_peers = false;
        self.observe_clock(ClockSample { sent, received, clock: facts.clock });
        let peers = &peers.knowing(self.clock.bounds());
        self.line = peers.line();
        self.warning = evicts(facts)
            .or_else(|| several_addresses(facts))
            .or_else(|| self.fences_ahead(facts))
            .or_else(|| spent(facts));
        if let Some(reason) = self.unfit(facts).or_else(|| self.several_servers(facts)) {
            return self.refuse(reason);
        }
        if self.compared.is_none() && facts.unmet > 0 {
            // Behind one that hangs may be another server, which answers others.
            let reason = met_nobody(facts.unmet);
            self.standing = Standing::Down(NodeError::not_voting(reason));
            return AdmissionStep::Settled;
        }
        if self.compared.as_ref() != Some(&facts.server.run_id) {
            // Another server than the one that was compared. It says nothing before it is, too:
            // one that only some connections meet may have been admitted by others.
            self.compared = None;
            self.standing = Standing::Unknown;
            return AdmissionStep::Settled;
        }
        if let Some(twin) = &peers.twin {
            self.is_one_server_with(twin);
            return AdmissionStep::Settled;
        }
        let Some(text) = &facts.record else {
            return self.begin_first_life(sent, received, facts, life, peers);
        };
        self.blank = None;
        let record = match Record::parse(text) {
            Ok(record) => record,
            Err(error) => {
                return self.refuse(format!(
                    "{error}; use another database, or a newer Leasehold, and do not delete it \
                     while locks are held"
                ));
            }
        };
        if let Some(reason) = self.foreign(&record).or_else(|| self.disagreement(&record)) {
            self.standing = Standing::Foreign { reason };
            return AdmissionStep::Settled;
        }
        if let Some(reason) = self.another_member(&record) {
            return self.refuse(reason);
        }
        if !record.is_by(&facts.server) {
            // It restarted with what it had on disk, or has the data of another server, or is one.
            // Nothing that it says of its disk tells which of the last writes are missing.
            return self.begin_life(received, facts, Some((text, &record)), life, peers);
        }
        let age = Duration::from_micros(facts.clock.0.saturating_sub(record.born.0));
        let quarantine = self.policy.quarantine_of(&record);
        if record.state == RecordState::Admitted
            && self.lives.meet(record.life, sent, age, quarantine, &self.policy)
        {
            return self.refuse(format!(
                "several servers take turns at its address (this one has life {:.8}, and was there \
                 beside another): let the address lead to one server, and restart this program",
                format!("{:032x}", record.life)
            ));
        }
        if record.is_of_the_format_before() {
            let record = Record {
                member: self.member.clone(),
                replication_id: facts.server.replication_id.clone(),
                ..record
            };
            return AdmissionStep::Replace { expected: Some(Arc::from(text.as_str())), record };
        }
        if record.state == RecordState::Quarantined {
            return self.wait(sent, received, text, &record, facts, peers);
        }
        self.watched = None;
        self.settle(received, text, &record, facts);
        AdmissionStep::Settled
    }

    /// The node has no record. A client that writes one says what list it belongs to, so nobody does who
    /// finds the list in doubt. What the others said before it lost its record is too old to tell:
    /// one of them may have been without a record then.
    fn begin_first_life(
        &mut self,
        sent: Moment,
        now: Moment,
        facts: &Facts,
        life: u128,
        peers: &Peers,
    ) -> AdmissionStep {
        if let Some(foreign) = &peers.foreign {
            let reason = format!(
                "it has no record, and none is written, because {foreign} belongs to another cluster \
                 or has another max_ttl: give every client the same member list and max_ttl"
            );
            self.standing = Standing::Foreign { reason };
            return AdmissionStep::Settled;
        }
        if peers.is_one_barred {
            // It may have been barred itself, and holders of the old list may have leases still.
            let (until, cause) = (now.plus(LOOKED_AT_EVERY), Cause::Barred);
            self.standing = Standing::Waiting { until, cause };
            return AdmissionStep::Settled;
        }
        let run_id = &facts.server.run_id;
        let blank = self.blank.take().filter(|(blank, _)| blank == run_id);
        let (_, since) = self.blank.insert(blank.unwrap_or_else(|| (run_id.clone(), sent)));
        if !peers.are_tried || peers.asked.is_some_and(|asked| asked < *since) {
            self.wants_peers = true;
            self.standing = Standing::Unknown;
            return AdmissionStep::Settled;
        }
        self.begin_life(now, facts, None, life, peers)
    }

    /// The node remembers nothing, or not enough. Until its new record stands there it has no
    /// standing: what it said before was said by another life.
    fn begin_life(
        &mut self,
        now: Moment,
        facts: &Facts,
        old: Option<(&String, &Record)>,
        life: u128,
        peers: &Peers,
    ) -> AdmissionStep {
        let mut record = self.new_life(facts, old.map(|(_, record)| record), life);
        // It may have had to wait for as long as the others have to, for what an older list granted.
        record.waits = record.waits.max(peers.waits);
        if record.state == RecordState::Quarantined {
            record.clocks = self.clocks_to_wait_by(now, peers);
        }
        let until = now.plus(self.policy.quarantine_of(&record));
        self.standing = match record.state {
            RecordState::Quarantined => {
                Standing::Waiting { until, cause: Cause::of(record.origin) }
            }
            RecordState::Barred => {
                Standing::Waiting { until: now.plus(LOOKED_AT_EVERY), cause: Cause::Barred }
            }
            RecordState::Admitted => Standing::Unknown,
        };
        let expected = old.map(|(text, _)| Arc::from(text.as_str()));
        AdmissionStep::Replace { expected, record }
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

    /// What an operator should know of its fences: they follow clocks, so a clock was wrong once. Nothing
    /// is wrong with them while they are remembered.
    fn fences_ahead(&self, facts: &Facts) -> Option<String> {
        let now = Fence::from_clock(facts.clock);
        let ahead = Duration::from_micros(facts.remembers().get().saturating_sub(now.get()));
        let is_right = !matches!(self.line, Line::Off { .. });
        (is_right && ahead > self.policy.max_clock_skew.saturating_mul(2)).then(|| {
            format!(
                "its highest fence is {} ahead of its clock: do not let a majority of nodes lose \
                 their memory before the clocks have come so far",
                rounded(ahead)
            )
        })
    }

    /// Why this server may never vote, whatever it remembers.
    fn unfit(&self, facts: &Facts) -> Option<String> {
        match facts.server.role {
            Role::Replica => Some(
                "it is a replica, and a replica never votes: give the address of its primary"
                    .into(),
            ),
            Role::ClusterMember => Some(
                "it runs in cluster mode: Leasehold needs independent standalone servers".into(),
            ),
            Role::Primary if self.policy.strict => evicts(facts),
            Role::Primary => None,
        }
    }

    /// Whether connections to its address met different servers.
    fn several_servers(&mut self, facts: &Facts) -> Option<String> {
        let reason = answered_by_several(facts);
        // Until several agree, several are asked.
        if reason.is_some() {
            self.compared = None;
        } else if self.compared.is_none() && facts.unmet > 0 {
            return None;
        } else if !facts.others.is_empty() || self.compared.is_none() {
            self.compared = Some(facts.server.run_id.clone());
        }
        reason
    }

    /// Why this node belongs to others.
    fn foreign(&self, record: &Record) -> Option<String> {
        let is_ours = record.cluster == self.policy.cluster && record.nodes == self.policy.nodes;
        (!is_ours).then(|| {
            format!(
                "it belongs to cluster {} of {} node(s), you are configured for cluster {} of {}: \
                 give every client the same member list, spelled the same way, and the same quarantine",
                record.cluster, record.nodes, self.policy.cluster, self.policy.nodes
            )
        })
    }

    /// Whether its record names another member of our list.
    fn another_member(&self, record: &Record) -> Option<String> {
        let (ours, theirs) = (&self.member, &record.member);
        (!record.is_of_the_format_before() && ours != theirs).then(|| {
            format!(
                "its record says that it is {theirs}, not {ours}: correct its address; if this is \
                 {ours} with a copy of the data of {theirs}, delete the record, and it sits out its \
                 quarantine"
            )
        })
    }

    /// Why its cluster is not as this client was told.
    fn disagreement(&self, record: &Record) -> Option<String> {
        match self.policy.max_ttl {
            Some(ours) if ours != record.max_ttl => Some(format!(
                "its cluster has max_ttl {:?}, you are configured for {ours:?}: give every client \
                 the same, with max_ttl={0:?} in the backend URL",
                record.max_ttl
            )),
            _ => None,
        }
    }

    /// The node waits. Says what is to stand in its record instead, once it has waited for long
    /// enough, or where nobody can tell.
    fn wait(
        &mut self,
        sent: Moment,
        now: Moment,
        text: &str,
        record: &Record,
        facts: &Facts,
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
    fn clocks_to_wait_by(&self, now: Moment, peers: &Peers) -> Vec<Option<WallMicros>> {
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
        let unseen = Watched { life: record.life, since: now, told: None };
        let mut watched = self.watched.filter(|seen| seen.life == record.life).unwrap_or(unseen);
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
        let alone = self.lives.alone_for(now);
        let drift = self.policy.drift.allowance(least.min(alone));
        if least > alone.saturating_add(skew).saturating_add(drift) {
            // Another life voted here since this one began to wait, for holders that it knows nothing of.
            return self.anew_or(by_watching);
        }
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

    /// Where the recorded clocks tell nothing, the wait begins anew, if there are clocks to begin with.
    fn anew_or(&self, otherwise: Served) -> Served {
        if self.line == Line::InLine { Served::Anew } else { otherwise }
    }

    /// The record of a node that remembers nothing, or not enough.
    fn new_life(&self, facts: &Facts, old: Option<&Record>, life: u128) -> Record {
        let adopted = old.map_or(self.policy.max_ttl_default, |record| record.max_ttl);
        let old_floor = old.map_or(Fence::ZERO, |record| record.floor);
        let waits = old.and_then(|record| record.waits);
        Record {
            cluster: self.policy.cluster,
            nodes: self.policy.nodes,
            member: self.member.clone(),
            max_ttl: self.policy.max_ttl.unwrap_or(adopted),
            life,
            run_id: facts.server.run_id.clone(),
            replication_id: facts.server.replication_id.clone(),
            origin: if old.is_some() { Origin::Later } else { Origin::First },
            state: match old.map(|record| record.state) {
                // Its members have not all left their old list, whatever became of this one.
                Some(RecordState::Barred) => RecordState::Barred,
                _ if self.policy.quarantine || waits.is_some() => RecordState::Quarantined,
                _ => RecordState::Admitted,
            },
            // A clock that nobody has compared yet gives no floor: that comes when it is admitted.
            floor: match self.policy.quarantine {
                true => old_floor,
                false => old_floor.max(Fence::from_clock(facts.clock)),
            },
            born: facts.clock,
            waits,
            clocks: Vec::new(),
        }
    }

    fn settle(&mut self, now: Moment, text: &str, record: &Record, facts: &Facts) {
        if record.state != RecordState::Admitted {
            let (until, cause) = (now.plus(LOOKED_AT_EVERY), Cause::Barred);
            self.standing = Standing::Waiting { until, cause };
            return;
        }
        self.max_ttl = self.max_ttl.max(record.max_ttl);
        self.admitted = Some(Arc::new(Pass {
            record: text.into(),
            generation: facts.generation,
            floor: record.floor,
            max_ttl: record.max_ttl,
            has_waited: self.policy.waits(record),
        }));
        self.stand(now);
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

/// What an operator should know of its memory.
fn evicts(facts: &Facts) -> Option<String> {
    let policy = facts.server.evicts.as_ref()?;
    Some(format!(
        "it may evict locks (maxmemory-policy {policy}): \
         set `maxmemory-policy noeviction`, or give it no maxmemory"
    ))
}

/// What an operator should know of a lock that nobody can have any more.
fn spent(facts: &Facts) -> Option<String> {
    facts.has_spent.then(|| {
        "the fence of one of its locks is used up: somebody made it up, and nobody can acquire that \
         lock again; use another name for it"
            .into()
    })
}

/// What an operator should know of its name.
fn several_addresses(facts: &Facts) -> Option<String> {
    let count = facts.addresses;
    (count > 1).then(|| {
        format!(
            "its name has {count} addresses, and behind each may be another server: \
             give it a name that leads to one"
        )
    })
}

impl Standing {
    /// When to examine it next, if a node that votes is examined once in `every`.
    pub fn look_again_in(&self, now: Moment, every: Duration) -> Duration {
        /// Short, so that a node is back soon.
        const WHILE_DOWN: Duration = Duration::from_millis(250);
        match self {
            Self::Voting(_) | Self::Refused { .. } | Self::Foreign { .. } => every,
            Self::Waiting { until, .. } => (until.since(now) + Duration::from_millis(1)).min(every),
            Self::Unknown | Self::Down(_) => WHILE_DOWN.min(every),
        }
    }

    /// Whether the server that answers may not vote, however long a client waits.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Foreign { .. })
    }

    /// The pass, if the node votes.
    pub fn pass(&self) -> Option<&Pass> {
        self.pass_shared().map(|pass| &**pass)
    }

    fn pass_shared(&self) -> Option<&Arc<Pass>> {
        match self {
            Self::Voting(pass) => Some(pass),
            _ => None,
        }
    }

    /// Why a node that does not vote does not.
    pub fn objection(&self, now: Moment) -> Option<NodeError> {
        let (reason, cause) = match self {
            Self::Voting(_) => return None,
            Self::Down(error) => return Some(error.clone()),
            Self::Unknown => ("not connected yet".to_owned(), None),
            Self::Foreign { reason } => return Some(NodeError::Denied { reason: reason.clone() }),
            Self::Refused { reason } => (reason.clone(), None),
            Self::Waiting { cause: cause @ (Cause::Barred | Cause::Off { .. }), .. } => {
                (cause.to_string(), Some(*cause))
            }
            Self::Waiting { until, cause } => {
                let left = until.since(now);
                (format!("{cause}: it does not vote for another {left:.1?}"), Some(*cause))
            }
        };
        Some(NodeError::NotVoting { reason, cause })
    }
}

impl Cause {
    fn of(origin: Origin) -> Self {
        match origin {
            Origin::First => Self::Forgot,
            Origin::Later => Self::AnotherLife,
            Origin::Succession => Self::AnotherList,
        }
    }
}

/// Why the name of a member does not lead to one server, or may not, as far as several connections
/// tell.
pub(crate) fn no_single_server(facts: &Facts) -> Option<String> {
    answered_by_several(facts).or_else(|| (facts.unmet > 0).then(|| met_nobody(facts.unmet)))
}

fn answered_by_several(facts: &Facts) -> Option<String> {
    let run_id = &facts.server.run_id;
    let other = facts.others.iter().find(|other| *other != run_id);
    other.map(|other| {
        format!(
            "its address is answered by several servers (run ids {run_id:.8} and {other:.8}): \
             give each server an address of its own"
        )
    })
}

fn met_nobody(connections: usize) -> String {
    format!("not compared yet: {connections} further connection(s) met nobody")
}

/// A length of time in one unit that people think in.
fn rounded(time: Duration) -> String {
    match time.saturating_add(Duration::from_millis(500)).as_secs() {
        0..10 => format!("{time:.1?}"),
        secs @ 10..7_200 => format!("{secs} s"),
        secs @ 7_200..172_800 => format!("{} h", secs / 3_600),
        secs => format!("{} d", secs / 86_400),
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forgot => f.write_str("it is new or lost its memory"),
            Self::AnotherLife => {
                f.write_str("it restarted, copied another server or got its first replica")
            }
            Self::Clock(jump) => jump.fmt(f),
            Self::Off { micros } => {
                let by = Duration::from_micros(micros.unsigned_abs());
                let way = if *micros < 0 { "behind" } else { "ahead of" };
                write!(f, "its clock is {} {way} the others: put it right", rounded(by))
            }
            Self::AnotherList => f.write_str(
                "its member list was changed, and leases of the list before may live still",
            ),
            Self::Barred => f.write_str("its member list is being changed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock_tests::Cluster;
    use crate::{Roster, ServerFacts, WallMicros};

    const SECOND: u64 = 1_000_000;

    fn policy(nodes: usize) -> AdmissionPolicy {
        AdmissionPolicy {
            cluster: Fingerprint::of_members(["a", "b", "c"]),
            nodes,
            max_ttl: None,
            max_ttl_default: Duration::from_secs(30),
            drift: Drift::DEFAULT,
            max_clock_skew: Duration::from_secs(1),
            quarantine: nodes > 1,
            strict: false,
        }
    }

    fn facts(clock: u64, record: Option<&Record>) -> Facts {
        Facts {
            generation: 1,
            clock: WallMicros(clock),
            record: record.map(Record::to_string),
            highest: Fence::ZERO,
            has_spent: false,
            server: ServerFacts {
                version: "redis 7.0.15".into(),
                run_id: "run1".into(),
                replication_id: "repl1".into(),
                role: Role::Primary,
                evicts: None,
                persists: false,
                expires_by_wall: true,
            },
            others: Vec::new(),
            unmet: 0,
            addresses: 1,
        }
    }

    /// Examines at the same time on both clocks, plus a constant. All connections meet one server,
    /// unless the facts say otherwise.
    fn examine(admission: &mut Admission, facts: &Facts) -> AdmissionStep {
        let now = Moment::from_nanos(facts.clock.0 * 1000);
        let mut facts = facts.clone();
        if facts.others.is_empty() {
            facts.others.push(facts.server.run_id.clone());
        }
        let peers = alone(now, &facts);
        admission.examine(now, now, &facts, 99, &peers)
    }

    fn look(admission: &mut Admission, now: Moment, facts: &Facts) -> AdmissionStep {
        admission.examine(now, now, facts, 99, &alone(now, facts))
    }

    /// Nobody else is known.
    fn alone(now: Moment, facts: &Facts) -> Peers {
        Peers::none(ClockSample { sent: now, received: now, clock: facts.clock })
    }

    fn replaced(step: AdmissionStep) -> Record {
        match step {
            AdmissionStep::Replace { record, .. } => record,
            AdmissionStep::Settled => panic!("nothing to replace"),
        }
    }

    fn admitted(policy: &AdmissionPolicy) -> Record {
        Record {
            cluster: policy.cluster,
            nodes: policy.nodes,
            member: policy.member("a"),
            max_ttl: Duration::from_secs(30),
            life: 1,
            run_id: "run1".into(),
            replication_id: "repl1".into(),
            origin: Origin::First,
            state: RecordState::Admitted,
            floor: Fence::new(5).unwrap(),
            born: WallMicros(1),
            waits: None,
            clocks: Vec::new(),
        }
    }

    /// Fences of an old backup are no witness of what was granted after it.
    #[test]
    fn a_node_that_did_not_wait_heals_no_lease_from_before_its_floor() {
        let extend = |token| {
            Arc::new(Request::Extend {
                lock: crate::LockName::new("l").unwrap(),
                holder: crate::Holder::new("h", 1).unwrap(),
                token: Fence::new(token).unwrap(),
                next: Fence::new(9).unwrap(),
                unbroken: false,
                ttl: crate::Ttl::new(Duration::from_secs(1)).unwrap(),
            })
        };
        let token_of = |pass: &Pass, token| match &*pass.fitted(&extend(token)) {
            Request::Extend { token, unbroken: false, .. } => token.get(),
            other => panic!("{other:?}"),
        };
        let pass_of = |nodes| {
            let policy = policy(nodes);
            let mut admission = Admission::new(policy.clone(), "a");
            examine(&mut admission, &facts(10, Some(&admitted(&policy))));
            admission.standing().pass().expect("it votes").clone()
        };
        let one = pass_of(1);
        assert_eq!(token_of(&one, 4), 0, "below the floor, and so below every fence");
        assert_eq!(token_of(&one, 5), 5);
        assert_eq!(token_of(&pass_of(3), 4), 4, "it waited for that lease");
    }

    #[test]
    fn a_node_without_memory_sits_out_the_quarantine_and_returns_with_its_clock_as_floor() {
        let policy = policy(3);
        let mut admission = Admission::new(policy.clone(), "a");
        let born = 1_000 * SECOND;
        let record = replaced(examine(&mut admission, &facts(born, None)));
        assert_eq!(record.state, RecordState::Quarantined);
        assert_eq!(record.born, WallMicros(born));
        assert!(admission.standing().pass().is_none());

        // 30 s + 1 % + 2 ms of drift, and twice a second of skew.
        let served = born + 32 * SECOND + 302_000;
        for clock in [born, born + 20 * SECOND, served - 1] {
            assert_eq!(
                examine(&mut admission, &facts(clock, Some(&record))),
                AdmissionStep::Settled
            );
            let Standing::Waiting { until, cause: Cause::Forgot } = admission.standing() else {
                panic!("{:?}", admission.standing());
            };
            assert_eq!(*until, Moment::from_nanos(served * 1000));
        }
        let back = replaced(examine(&mut admission, &facts(served, Some(&record))));
        assert_eq!(back.state, RecordState::Admitted);
        assert_eq!(back.floor.get(), served);
        assert_eq!(back.life, record.life);
        examine(&mut admission, &facts(served, Some(&back)));
        assert_eq!(admission.standing().pass().unwrap().floor.get(), served);
    }

    #[test]
    fn a_quorum_of_one_is_admitted_at_once_above_its_clock() {
        let mut admission = Admission::new(policy(1), "a");
        let record = replaced(examine(&mut admission, &facts(77, None)));
        assert_eq!((record.state, record.floor.get()), (RecordState::Admitted, 77));
    }

    #[test]
    fn another_process_or_another_history_begins_a_new_life_whatever_is_on_disk() {
        let policy = policy(3);
        let old = admitted(&policy);
        for change in [
            |server: &mut ServerFacts| server.run_id = "run2".into(),
            |server: &mut ServerFacts| server.replication_id = "repl2".into(),
        ] {
            let mut admission = Admission::new(policy.clone(), "a");
            let mut after = facts(50 * SECOND, Some(&old));
            examine(&mut admission, &after);
            assert!(admission.standing().pass().is_some());
            change(&mut after.server);
            after.server.persists = true;
            let record = replaced(examine(&mut admission, &after));
            assert!(admission.standing().pass().is_none(), "it does not vote meanwhile");
            assert_eq!((record.state, record.origin), (RecordState::Quarantined, Origin::Later));
            assert_eq!(record.life, 99);
            assert!(record.is_by(&after.server));
            assert_eq!(record.floor, old.floor, "a clock that nobody compared gives no floor");
        }
    }

    #[test]
    fn the_record_of_another_member_is_never_taken_over() {
        let policy = policy(3);
        let theirs = Record { member: policy.member("b"), ..admitted(&policy) };
        for run_id in ["run1", "run2"] {
            let mut admission = Admission::new(policy.clone(), "a");
            let mut copy = facts(9, Some(&theirs));
            copy.server.run_id = run_id.into();
            assert_eq!(examine(&mut admission, &copy), AdmissionStep::Settled);
            let objection = admission.standing().objection(Moment::default()).unwrap().to_string();
            assert!(objection.contains("it is b, not a"), "{objection}");
        }
    }

    #[test]
    fn a_quorum_of_one_needs_no_name() {
        let policy = policy(1);
        for name in ["a", "b"] {
            let mut admission = Admission::new(policy.clone(), name);
            examine(&mut admission, &facts(9, Some(&admitted(&policy))));
            assert!(admission.standing().pass().is_some(), "{:?}", admission.standing());
        }
    }

    #[test]
    fn two_members_that_show_one_server_do_not_vote_until_they_show_two() {
        let policy = policy(3);
        let names = ["a", "b", "c"].map(MemberName::new);
        let mut roster = Roster::new(names.to_vec(), &policy);
        let mut members = ["a", "b"].map(|name| Admission::new(policy.clone(), name));
        let mut look = |members: &mut [Admission; 2], member: usize, facts: &Facts| {
            let twin = roster.show(member, facts);
            let now = Moment::from_nanos(facts.clock.0 * 1000);
            let sample = ClockSample { sent: now, received: now, clock: facts.clock };
            members[member].examine(now, now, facts, 99, &roster.peers(member, twin, sample));
            if let Some(twin) = twin {
                members[twin].is_one_server_with(&names[member]);
            }
            members.each_ref().map(|member| member.standing().pass().is_some())
        };
        let shown = facts(9, Some(&admitted(&policy)));
        assert_eq!(look(&mut members, 0, &shown), [true, false]);
        assert_eq!(look(&mut members, 1, &shown), [false, false], "it was the same server");
        let Standing::Refused { reason } = members[0].standing() else { panic!() };
        assert!(reason.starts_with("a and b are one server"), "{reason}");
        // Another database of it has another record, but dies with it.
        let other = Record { member: names[1].clone(), life: 2, ..admitted(&policy) };
        assert_eq!(look(&mut members, 1, &facts(9, Some(&other))), [false, false]);
        assert_eq!(look(&mut members, 0, &shown), [false, false]);

        let mut second = facts(9, Some(&Record { run_id: "run2".into(), ..other }));
        second.server.run_id = "run2".into();
        second.others = vec!["run2".into()];
        assert_eq!(look(&mut members, 1, &second), [false, true]);
        assert_eq!(look(&mut members, 0, &shown), [true, true]);
        // A copy has the record of another server, and is not that server.
        let mut copy = shown.clone();
        copy.server.run_id = "run3".into();
        assert_eq!(look(&mut members, 1, &copy), [true, false]);
        assert_eq!(look(&mut members, 0, &shown), [true, false]);
    }

    #[test]
    fn a_member_that_does_not_answer_shows_nobody() {
        let shown = facts(9, None);
        let names = ["a", "b"].map(MemberName::new);
        let mut roster = Roster::new(names.to_vec(), &policy(2));
        assert_eq!(roster.show(0, &shown), None);
        assert_eq!(roster.show(1, &shown), Some(0));
        roster.hide(0);
        assert_eq!(roster.show(1, &shown), None);
    }

    #[test]
    fn an_address_with_several_servers_behind_it_is_refused_until_all_connections_agree() {
        let policy = policy(3);
        let mut admission = Admission::new(policy.clone(), "a");
        assert_eq!(admission.compares(), 2);
        let mut shown = facts(9, Some(&admitted(&policy)));
        shown.others = vec!["run1".into(), "run2".into()];
        examine(&mut admission, &shown);
        let Standing::Refused { reason } = admission.standing() else { panic!() };
        assert!(reason.contains("several servers"), "{reason}");
        assert_eq!(admission.compares(), 2, "so it is compared again");
        shown.others = vec!["run1".into(), "run1".into()];
        examine(&mut admission, &shown);
        assert!(admission.standing().pass().is_some());
        assert_eq!(admission.compares(), 0);
    }

    #[test]
    fn a_server_that_answers_instead_of_the_compared_one_is_compared_before_it_votes() {
        let policy = policy(3);
        let mut admission = Admission::new(policy.clone(), "a");
        let now = Moment::default();
        let mut look = |facts: &Facts| {
            let step = admission.examine(now, now, facts, 99, &alone(now, facts));
            assert_eq!(step, AdmissionStep::Settled);
            (admission.standing().pass().is_some(), admission.compares())
        };
        let first = facts(9, Some(&admitted(&policy)));
        assert_eq!(look(&first), (true, 0), "nobody could be compared");
        let mut second =
            facts(9, Some(&Record { run_id: "run2".into(), life: 2, ..admitted(&policy) }));
        second.server.run_id = "run2".into();
        assert_eq!(look(&second), (false, 2), "a new connection met somebody else");
        second.others = vec!["run1".into(), "run2".into()];
        assert_eq!(look(&second), (false, 2));
        second.others = vec!["run2".into(), "run2".into()];
        assert_eq!(look(&second), (true, 0), "the first was replaced");
    }

    #[test]
    fn a_life_that_comes_back_after_another_is_refused_and_so_is_the_other() {
        let policy = policy(3);
        let mut admission = Admission::new(policy.clone(), "a");
        let server = |number: u128| {
            let run_id = format!("run{number}");
            let record = Record { life: number, run_id: run_id.clone(), ..admitted(&policy) };
            let mut facts = facts(9, Some(&record));
            facts.server.run_id = run_id;
            facts
        };
        let mut votes = |number| {
            examine(&mut admission, &server(number));
            admission.standing().pass().is_some()
        };
        assert!(votes(1) && votes(1));
        assert!(votes(2) && votes(2), "a node that was replaced");
        assert!(!votes(1), "it was not replaced: they take turns");
        assert!(!votes(2) && !votes(1), "and nobody can tell who is the member");
        assert!(votes(3), "somebody put it right");
        assert!(votes(3) && votes(1), "what was before that is forgotten");

        // A failover that was called off before the other voted.
        let mut waiting = server(4);
        let record = Record::parse(waiting.record.as_deref().unwrap()).unwrap();
        let record = Record { state: RecordState::Quarantined, born: WallMicros(9), ..record };
        waiting.record = Some(record.to_string());
        examine(&mut admission, &waiting);
        assert!(matches!(admission.standing(), Standing::Waiting { .. }));
        examine(&mut admission, &server(1));
        assert!(admission.standing().pass().is_some(), "{:?}", admission.standing());
    }

    #[test]
    fn a_life_that_began_while_another_was_there_is_refused_and_a_successor_is_not() {
        let policy = policy(3);
        let at = |s: u64| Moment::from_millis(s * 1000);
        let second = |born: u64| {
            let record = Record {
                life: 2,
                run_id: "run2".into(),
                born: WallMicros(born * SECOND),
                ..admitted(&policy)
            };
            let mut facts = facts(5_000 * SECOND, Some(&record));
            facts.server.run_id = "run2".into();
            facts.others = vec!["run2".into()];
            facts
        };
        // The first was last seen so many seconds ago. Clocks are not compared: only how old a life is.
        for (ago, age, votes) in
            [(10, 9, true), (10, 11, false), (10, 3_600, false), (32, 33, true), (32, 35, false)]
        {
            let mut admission = Admission::new(policy.clone(), "a");
            let first = facts(9_000 * SECOND, Some(&admitted(&policy)));
            admission.examine(at(100), at(100), &first, 0, &alone(at(100), &first));
            assert!(admission.standing().pass().is_some());
            let now = at(100 + ago);
            let second = second(5_000 - age);
            admission.examine(now, now, &second, 0, &alone(now, &second));
            // A jump of the clock, which this is as well, is another matter.
            let is_refused = matches!(admission.standing(), Standing::Refused { .. });
            assert_eq!(is_refused, !votes, "{age} s old: {:?}", admission.standing());
        }
    }

    #[test]
    fn a_life_that_was_seen_to_wait_is_a_successor_however_old_its_clock_makes_it() {
        let policy = policy(3);
        let mut admission = Admission::new(policy.clone(), "a");
        let shown = |life: u128, state, born: u64| {
            let run_id = format!("run{life}");
            let born = WallMicros(born * SECOND);
            let record = Record { life, run_id: run_id.clone(), state, born, ..admitted(&policy) };
            let mut facts = facts(9_000 * SECOND, Some(&record));
            facts.server.run_id = run_id;
            facts
        };
        let first = shown(1, RecordState::Admitted, 5_000);
        let waiting = shown(2, RecordState::Quarantined, 8_999);
        // Its clock was set right meanwhile.
        let aged = shown(2, RecordState::Admitted, 1);
        for facts in [&first, &waiting, &aged, &aged] {
            examine(&mut admission, facts);
        }
        assert!(!admission.standing().is_refusal(), "{:?}", admission.standing());

        let mut admission = Admission::new(policy.clone(), "a");
        for facts in [&first, &waiting, &first, &aged] {
            examine(&mut admission, facts);
        }
        assert!(admission.standing().is_refusal(), "the first was there after it began");
    }

    #[test]
    fn a_connection_that_meets_nobody_is_no_comparison() {
        let policy = policy(3);
        let mut admission = Admission::new(policy.clone(), "a");
        let mut shown = facts(9, Some(&admitted(&policy)));
        shown.others = vec!["run1".into()];
        shown.unmet = 1;
        examine(&mut admission, &shown);
        let objection = admission.standing().objection(Moment::default()).unwrap().to_string();
        assert!(objection.contains("not compared yet"), "{objection}");
        assert_eq!(admission.compares(), 2);
        shown.others.push("run1".into());
        shown.unmet = 0;
        examine(&mut admission, &shown);
        assert!(admission.standing().pass().is_some());
    }

    #[test]
    fn a_record_of_the_format_before_is_upgraded_in_one_step() {
        let policy = policy(3);
        let new = admitted(&policy);
        let text = new.to_string().replace("leasehold2", "leasehold1");
        let gone = ["member=a ", "replid=repl1 ", "origin=first "];
        let text = gone.iter().fold(text, |text, word| text.replace(word, ""));
        let mut old = facts(9, None);
        old.record = Some(text.clone());
        let mut admission = Admission::new(policy.clone(), "a");
        let AdmissionStep::Replace { expected, record } = examine(&mut admission, &old) else {
            panic!("{:?}", admission.standing());
        };
        assert_eq!(expected.as_deref(), Some(text.as_str()));
        assert_eq!(record, Record { origin: Origin::Later, ..new });
        assert!(admission.standing().pass().is_none());
        examine(&mut admission, &facts(9, Some(&record)));
        assert!(admission.standing().pass().is_some(), "it keeps its memory and its vote");

        old.server.run_id = "run2".into();
        let begun = replaced(examine(&mut Admission::new(policy, "a"), &old));
        assert_eq!((begun.state, begun.life), (RecordState::Quarantined, 99));
    }

    #[test]
    fn a_clock_that_went_back_makes_the_quarantine_start_again() {
        // By more than it waited, and by less.
        for (waited, back) in [(5 * SECOND, 10 * SECOND as i64), (20 * SECOND, 10 * SECOND as i64)]
        {
            let mut cluster = Cluster::new(3);
            cluster.look_at_all();
            cluster.forget(0);
            cluster.look_at_all();
            let began = cluster.record(0).born;
            cluster.pass(waited);
            // All but one: a clock that is alone is off, and begins nothing.
            (cluster.nodes[0].off, cluster.nodes[1].off) = (-back, -back);
            cluster.newcomer();
            cluster.look_at_all();
            cluster.look(0);
            let record = cluster.record(0);
            assert_eq!(record.state, RecordState::Quarantined);
            assert_ne!(record.born, began);
            assert_eq!(record.born, cluster.clock(0));
        }
    }

    #[test]
    fn another_member_list_is_refused_by_name() {
        let ours = policy(3);
        for record in [
            Record { cluster: Fingerprint::of_members(["a"]), ..admitted(&ours) },
            Record { nodes: 5, ..admitted(&ours) },
        ] {
            let mut admission = Admission::new(ours.clone(), "a");
            assert_eq!(examine(&mut admission, &facts(9, Some(&record))), AdmissionStep::Settled);
            let objection = admission.standing().objection(Moment::default()).unwrap().to_string();
            assert!(objection.contains("belongs to cluster"), "{objection}");
            assert!(objection.contains(&format!("of {} node(s)", record.nodes)), "{objection}");
        }
    }

    #[test]
    fn max_ttl_belongs_to_the_cluster() {
        let mut ours = policy(3);
        let record = Record { max_ttl: Duration::from_secs(300), ..admitted(&ours) };
        let mut adopting = Admission::new(ours.clone(), "a");
        examine(&mut adopting, &facts(9, Some(&record)));
        assert_eq!(adopting.standing().pass().unwrap().max_ttl, Duration::from_secs(300));

        ours.max_ttl = Some(Duration::from_secs(30));
        let mut insisting = Admission::new(ours, "a");
        examine(&mut insisting, &facts(9, Some(&record)));
        let objection = insisting.standing().objection(Moment::default()).unwrap().to_string();
        assert!(objection.contains("max_ttl 300s, you are configured for 30s"), "{objection}");
    }

    #[test]
    fn replicas_cluster_members_and_garbage_never_vote() {
        let policy = policy(3);
        let mut replica = facts(9, Some(&admitted(&policy)));
        replica.server.role = Role::Replica;
        let mut shard = replica.clone();
        shard.server.role = Role::ClusterMember;
        let mut garbage = facts(9, None);
        garbage.record = Some("hello".into());
        for (facts, word) in
            [(replica, "replica"), (shard, "cluster mode"), (garbage, "not one of ours")]
        {
            let mut admission = Admission::new(policy.clone(), "a");
            assert_eq!(examine(&mut admission, &facts), AdmissionStep::Settled);
            let objection = admission.standing().objection(Moment::default()).unwrap().to_string();
            assert!(objection.contains(word), "{objection}");
        }
    }

    #[test]
    fn an_evicting_node_is_warned_about_and_in_strict_mode_refused() {
        let mut policy = policy(3);
        let mut evicting = facts(9, Some(&admitted(&policy)));
        evicting.server.evicts = Some("volatile-ttl".into());
        let mut lenient = Admission::new(policy.clone(), "a");
        examine(&mut lenient, &evicting);
        assert!(lenient.standing().pass().is_some());
        assert!(lenient.warning().unwrap().contains("volatile-ttl"));
        policy.strict = true;
        let mut strict = Admission::new(policy, "a");
        examine(&mut strict, &evicting);
        assert!(matches!(strict.standing(), Standing::Refused { .. }));
    }

    #[test]
    fn a_clock_jump_takes_the_vote_away_for_the_quarantine() {
        let policy = policy(3);
        let record = admitted(&policy);
        let mut admission = Admission::new(policy, "a");
        let at = |s: u64| Moment::from_millis(s * 1000);
        let shows = |s: u64| facts(s * SECOND, Some(&record));
        look(&mut admission, at(100), &shows(5_000));
        assert!(admission.standing().pass().is_some());
        look(&mut admission, at(101), &shows(5_001 + 3_600));
        let Standing::Waiting { until, cause: Cause::Clock(jump) } = admission.standing() else {
            panic!("{:?}", admission.standing());
        };
        assert_eq!(*until, at(101).plus(Duration::from_millis(32_302)));
        assert!((jump.micros - 3_600_000_000).abs() < 20_000, "{jump:?}");
        look(&mut admission, at(120), &shows(5_020 + 3_600));
        assert!(admission.standing().pass().is_none(), "still sitting it out");
        look(&mut admission, at(134), &shows(5_034 + 3_600));
        assert!(admission.standing().pass().is_some());
    }

    #[test]
    fn a_clock_by_which_nothing_expires_may_jump() {
        let policy = policy(1);
        let record = admitted(&policy);
        let mut admission = Admission::new(policy, "a");
        for (s, shown) in [(100, 5_000), (101, 8_601), (102, 5_002)] {
            let mut facts = facts(shown * SECOND, Some(&record));
            facts.server.expires_by_wall = false;
            let at = Moment::from_millis(s * 1000);
            look(&mut admission, at, &facts);
            assert!(admission.standing().pass().is_some(), "{:?}", admission.standing());
            let offset = (shown - s) as i64 * SECOND as i64;
            assert_eq!(
                admission.clock_offset_micros(),
                Some(offset),
                "it is followed all the same"
            );
        }
    }

    /// A change of the list bars its nodes, and lets them in when all have left the old list.
    #[test]
    fn a_barred_node_that_restarts_is_barred_still() {
        for policy in [policy(1), policy(3)] {
            let waits = Some(Duration::from_secs(40));
            for state in [RecordState::Barred, RecordState::Quarantined] {
                let old = Record { state, waits, ..admitted(&policy) };
                let old = Record { origin: Origin::Succession, ..old };
                let mut after = facts(50 * SECOND, Some(&old));
                after.server.run_id = "run2".into();
                let mut admission = Admission::new(policy.clone(), "a");
                let record = replaced(examine(&mut admission, &after));
                assert_eq!((record.state, record.waits, record.life), (state, waits, 99));
                assert!(admission.standing().pass().is_none());
            }
        }
    }

    /// A quorum of one does not wait for having forgotten.
    #[test]
    fn a_quorum_of_one_waits_for_the_list_before_it() {
        let policy = policy(1);
        let (state, waits) = (RecordState::Quarantined, Some(Duration::from_secs(40)));
        let old = Record { state, waits, ..admitted(&policy) };
        let mut admission = Admission::new(policy, "a");
        for clock in [50, 51, 89] {
            let step = examine(&mut admission, &facts(clock * SECOND, Some(&old)));
            assert_eq!(step, AdmissionStep::Settled, "{clock}");
        }
        let record = replaced(examine(&mut admission, &facts(90 * SECOND, Some(&old))));
        assert_eq!((record.state, record.waits), (RecordState::Admitted, None));
    }
}
