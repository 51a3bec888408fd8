//! The nodes' side: every `LockTable` that can come up, numbered, and what `LockTable::apply` made of
//! it. Two tables are the same node state exactly if they are equal.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AdmissionPolicy, Drift, Fence, Fingerprint, Holder, LockName, LockTable, MemberName, Moment,
    Origin, Owner, Record, RecordState, Reply, Request, Ttl, WallMicros,
};

use crate::memo::{Cache, Numbered};
use crate::mutation::Mutation;
use crate::setup::Setup;
use crate::state::Question;
use crate::voters::{name, replication_id, run_id};

/// Requests are applied at the origin of time, so an owner's end is the same in every table.
pub(crate) const NOW: Moment = Moment::from_millis(0);
/// The node's clock as replies carry it; nobody reads it here.
const CLOCK: WallMicros = WallMicros(0);
/// The name of a member where members are alike.
pub(crate) const NOBODY: &str = "node";
/// How long an owner lasts.
const TTL: Duration = Duration::from_secs(1);

/// What can happen to one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A question arrives, with the holder value of the attempt `.0` and the number of the record
    /// that it expects.
    Asked(u8, Question, u8),
    /// The owner's time is over.
    Expire,
    /// The record of this number is written over whatever stands there.
    Write(u8),
    /// Idle fences below the floor are forgotten.
    Forget,
    /// Idle fences are forgotten as if the floor were above them.
    ForgetWithoutFloor,
}

/// What one table shows to those who check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The attempt whose holder value owns the lock.
    pub owner: Option<u8>,
    /// The recorded fence, or else the floor.
    pub fence: u8,
    /// The number of its identity record; 0 for none.
    pub record: u8,
}

/// What one record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordView {
    /// Whether the node votes.
    pub admitted: bool,
    /// The member list it serves.
    pub list: u8,
    /// Its floor.
    pub floor: u8,
}

/// All tables, records and replies that came up. As the number of a record or a reply, 0 is none.
pub struct Nodes {
    pub(crate) mutation: Option<Mutation>,
    pub(crate) members: usize,
    lock: LockName,
    holders: Vec<Holder>,
    tables: Numbered<(LockTable, View)>,
    records: Numbered<(Arc<str>, RecordView)>,
    replies: Numbered<Reply>,
    /// Table and reply after each step.
    results: Cache<24>,
    /// The records that were written for each reason.
    pub(crate) written: Cache<8>,
}

impl Nodes {
    /// No table yet.
    pub fn new(setup: &Setup) -> Self {
        let holder = |agent: usize| {
            let label = char::from(b'A' + agent as u8).to_string();
            Holder::new(&label, agent as u128).expect("a letter is a label")
        };
        Self {
            mutation: setup.mutation,
            members: setup.nodes,
            lock: LockName::new("lock").expect("a good name"),
            holders: (0..setup.agents).map(holder).collect(),
            tables: Numbered::with_room(1 << 16),
            records: Numbered::with_room(255),
            // As many as six bits can tell apart, where rounds are remembered by their replies.
            replies: Numbered::with_room(63),
            results: Cache::new(),
            written: Cache::new(),
        }
    }

    /// The lock that everybody wants.
    pub fn lock(&self) -> &LockName {
        &self.lock
    }

    /// The holder of an attempt.
    pub fn holder(&self, agent: u8) -> &Holder {
        &self.holders[usize::from(agent)]
    }

    /// The number of an empty table.
    pub fn blank(&self) -> u16 {
        self.number(LockTable::new())
    }

    /// What a table shows.
    pub fn view(&self, table: u16) -> View {
        self.tables.get(table.into()).1
    }

    /// What a record says.
    pub fn record(&self, record: u8) -> RecordView {
        if record == 0 {
            RecordView::default()
        } else {
            self.records.get(usize::from(record) - 1).1
        }
    }

    /// A reply, as the core gave it but for what no decision reads.
    pub fn reply(&self, reply: u8) -> &Reply {
        self.replies.get(usize::from(reply) - 1)
    }

    /// The number of a reply.
    pub fn number_of_reply(&self, reply: Reply) -> u8 {
        self.replies.number(reply) as u8 + 1
    }

    /// The table after `step`, and the number of the reply.
    pub fn apply(&self, table: u16, step: Step) -> (u16, u8) {
        let result = self.results.get(u64::from(table) << 23 | step.key(), || {
            let mut after = self.tables.get(table.into()).0.clone();
            let reply = self.run(&mut after, step);
            u64::from(self.number(after)) << 8 | u64::from(self.number_of_reply(abridged(reply)))
        });
        ((result >> 8) as u16, result as u8)
    }

    /// The one place where the core's node is run.
    fn run(&self, table: &mut LockTable, step: Step) -> Reply {
        let inspect = Request::Inspect { lock: self.lock.clone() };
        match step {
            Step::Asked(agent, question, record) => {
                let identity = (record > 0).then(|| self.text(record));
                let request = self.request(agent, question);
                Mutation::node(self.mutation, table, &request, |table, request| {
                    table.apply(NOW, CLOCK, identity, request)
                })
            }
            // The core drops an owner that ran out when it next looks at the lock.
            Step::Expire => table.apply(NOW.plus(TTL), CLOCK, None, &inspect),
            Step::Write(record) => write(table, self.text(record).into()),
            Step::Forget => {
                let identity = table.record().map(str::to_owned);
                let request = Request::ForgetIdle { below: Fence::MAX };
                table.apply(NOW, CLOCK, identity.as_deref(), &request)
            }
            Step::ForgetWithoutFloor => {
                let Some(before) = table.record().map(Arc::<str>::from) else {
                    return Reply::Stranger { record: None };
                };
                let record = Record::parse(&before).expect("the model writes good records");
                write(table, Record { floor: Fence::MAX, ..record }.to_string().into());
                let reply = self.run(table, Step::Forget);
                write(table, before);
                reply
            }
        }
    }

    fn request(&self, agent: u8, question: Question) -> Request {
        let (lock, holder) = (self.lock.clone(), self.holder(agent).clone());
        let ttl = ttl();
        match question {
            Question::None => Request::Inspect { lock },
            Question::Acquire(proposal) => {
                Request::Acquire { lock, holder, proposal: fence(proposal), ttl }
            }
            Question::Extend(token, next) => Request::Extend {
                lock,
                holder,
                token: fence(token),
                next: fence(next),
                unbroken: false,
                ttl,
            },
            Question::Claim(lowest, highest) => Request::Extend {
                lock,
                holder,
                token: fence(lowest),
                next: fence(highest),
                unbroken: true,
                ttl,
            },
            Question::Release => Request::Release { lock, holder },
            Question::Force(seen) => {
                Request::ForceRelease { lock, holder, fence: fence(seen), reason: None }
            }
        }
    }

    fn number(&self, table: LockTable) -> u16 {
        let view = self.look(&table);
        self.tables.number((table, view)) as u16
    }

    fn look(&self, table: &LockTable) -> View {
        let owner = table.owner(NOW, &self.lock).and_then(|owner| {
            self.holders.iter().position(|holder| holder == owner).map(|agent| agent as u8)
        });
        let inspect = Request::Inspect { lock: self.lock.clone() };
        let Reply::Seen(seen) = table.clone().apply(NOW, CLOCK, None, &inspect) else {
            unreachable!("a table answers an inspection")
        };
        let record = table.record().map_or(0, |text| self.number_of_record(text));
        let fence = seen.fence.map_or(self.record(record).floor, small);
        View { owner, fence, record }
    }

    pub(crate) fn text(&self, record: u8) -> &str {
        &self.records.get(usize::from(record) - 1).0
    }

    pub(crate) fn number_of_record(&self, text: &str) -> u8 {
        let record = Record::parse(text).expect("the model writes good records");
        let view = RecordView {
            admitted: record.state == RecordState::Admitted,
            list: if record.cluster == cluster(1) { 1 } else { 2 },
            floor: small(record.floor),
        };
        self.records.number((text.into(), view)) as u8 + 1
    }

    /// The number of an admitted record, written by a server with this history. Servers are
    /// numbered from 1; 0 stands for one of many that are alike.
    pub fn admitted(
        &self,
        list: u8,
        nodes: usize,
        life: u8,
        floor: u8,
        (server, history): (u8, u8),
    ) -> u8 {
        let key = u64::from_le_bytes([1, list, nodes as u8, life, floor, server, history, 0]);
        self.written.get(key, || {
            let record = Record {
                cluster: cluster(list),
                nodes,
                member: MemberName::new(&server.checked_sub(1).map_or(NOBODY.into(), name)),
                max_ttl: Duration::ZERO,
                life: u128::from(server) << 8 | u128::from(life),
                run_id: run_id(server),
                replication_id: replication_id(server, history),
                origin: Origin::First,
                state: RecordState::Admitted,
                floor: fence(floor),
                born: WallMicros(0),
                waits: None,
                clocks: Vec::new(),
            };
            let record = Mutation::record(self.mutation, record);
            self.number_of_record(&record.to_string()).into()
        }) as u8
    }

    /// The number of the same record, but with another floor.
    pub fn with_floor(&self, record: u8, floor: u8) -> u8 {
        let key = u64::from_le_bytes([2, record, floor, 0, 0, 0, 0, 0]);
        let floor = fence(floor);
        self.written.get(key, || self.changed(record, |record| Record { floor, ..record })) as u8
    }

    /// The number of the same record, but barred.
    pub fn barred(&self, record: u8) -> u8 {
        let key = u64::from_le_bytes([3, record, 0, 0, 0, 0, 0, 0]);
        let state = RecordState::Barred;
        self.written.get(key, || self.changed(record, |record| Record { state, ..record })) as u8
    }

    fn changed(&self, record: u8, change: impl FnOnce(Record) -> Record) -> u64 {
        let record = Record::parse(self.text(record)).expect("the model writes good records");
        self.number_of_record(&change(record).to_string()).into()
    }

    /// What was found out before for a key that no record has, or what is found out now.
    pub(crate) fn cached(&self, key: u64, find: impl FnOnce() -> u8) -> u8 {
        self.written.get(key, || find().into()) as u8
    }

    /// The same reply with its fence left out if `drops`, and whether it shows one.
    pub fn without_fence(&self, reply: u8, drops: bool) -> (u8, bool) {
        let zero = Fence::ZERO;
        let (bare, fence) = match self.reply(reply).clone() {
            Reply::Busy { owner, expires_in, fence, since } => {
                (Reply::Busy { owner, expires_in, fence: zero, since }, fence)
            }
            Reply::Behind { fence } => (Reply::Behind { fence: zero }, fence),
            Reply::Superseded { fence } => (Reply::Superseded { fence: zero }, fence),
            other => (other, zero),
        };
        if drops { (self.number_of_reply(bare), false) } else { (reply, fence > zero) }
    }
}

impl Step {
    /// Different for different steps, in 23 bits.
    fn key(self) -> u64 {
        match self {
            Self::Asked(holder, question, record) => {
                u64::from(holder) << 20 | u64::from(question.key()) << 8 | u64::from(record)
            }
            Self::Expire => 7 << 20,
            Self::Forget => 7 << 20 | 1,
            Self::ForgetWithoutFloor => 7 << 20 | 2,
            Self::Write(record) => 7 << 20 | 1 << 8 | u64::from(record),
        }
    }
}

fn write(table: &mut LockTable, record: Arc<str>) -> Reply {
    let expected = table.record().map(Arc::from);
    table.apply(NOW, CLOCK, None, &Request::ReplaceRecord { expected, record })
}

/// What a client expects whose nodes wait `quarantine` ticks after a wipe.
pub(crate) fn policy(nodes: usize, quarantine: u8) -> AdmissionPolicy {
    AdmissionPolicy {
        cluster: cluster(2),
        nodes,
        max_ttl: None,
        max_ttl_default: Duration::ZERO,
        drift: Drift { parts_per_million: 0, fixed: Duration::ZERO },
        // The quarantine is twice the skew, and a tick is a microsecond.
        max_clock_skew: Duration::from_nanos(500) * u32::from(quarantine),
        quarantine: true,
        strict: false,
    }
}

pub(crate) fn cluster(list: u8) -> Fingerprint {
    Fingerprint::of_members([if list == 1 { "the shorter list" } else { "all nodes" }])
}

/// A number below 32 as a fence.
pub fn fence(number: u8) -> Fence {
    Fence::new(number.into()).expect("small")
}

/// A fence as a small number; the largest ones are alike.
pub fn small(fence: Fence) -> u8 {
    u8::try_from(fence.get()).unwrap_or(u8::MAX)
}

/// The one Ttl.
pub fn ttl() -> Ttl {
    Ttl::new(TTL).expect("long enough")
}

/// Without what no decision reads, so that states do not differ by it.
fn abridged(reply: Reply) -> Reply {
    match reply {
        Reply::Busy { fence, .. } => {
            let owner = Owner::OtherLibrary { value: String::new() };
            Reply::Busy { owner, expires_in: None, fence, since: None }
        }
        Reply::Stranger { .. } => Reply::Stranger { record: None },
        Reply::NotHeld { owner: Some(_) } => {
            Reply::NotHeld { owner: Some(Owner::OtherLibrary { value: String::new() }) }
        }
        other => other,
    }
}
