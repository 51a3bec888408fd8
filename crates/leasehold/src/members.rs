//! Setting up a member list, and changing it: the core decides, here nodes are asked and written to.

use std::sync::Arc;

use leasehold_core::{
    AdmissionStep, Facts, Init, InitRefusal, MemberList, NodeError, Record, Reply, Request, Side,
    Succession, SuccessionStep, Told,
};
use tokio::task::JoinSet;

use crate::Locks;
use crate::error::InitError;
use crate::locks::LOOK_LIMIT;
use crate::node::NodeId;

/// So many connections to each node are compared before a cluster is set up, and by `doctor`.
const CONNECTIONS_COMPARED: usize = 8;

impl Locks {
    /// Admits the nodes of a new cluster at once, on the word of a person that they never held a
    /// lock. Every node must answer and none may know the cluster; otherwise nothing is changed.
    /// A cluster that is admitted already is left alone, and so is one whose nodes wait because they
    /// restarted, lost some of their memory, or come from another list.
    pub async fn init(&self) -> Result<(), InitError> {
        self.cluster().check_home()?;
        let sent = self.cluster().now();
        let all = self.facts_compared().await?;
        let told = Told { sent, received: self.cluster().now(), facts: &all };
        let begun = Init::new(self.member_list(), told, crate::chance::nonce);
        let (mut init, steps) = begun.map_err(|refusal| self.not_set_up(refusal))?;
        for (index, mut step) in steps.into_iter().enumerate() {
            let mut tries = Init::TRIES;
            while let AdmissionStep::Replace { expected, record } = step {
                if init.is_stale(self.cluster().now()) {
                    let reason =
                        "it was asked too long ago, so nothing more was written: run init again";
                    return Err(self.refused(index, reason));
                }
                let is_written = self.replace_record(index, expected, &record).await?;
                tries -= 1;
                if is_written || tries == 0 {
                    break;
                }
                let sent = self.cluster().now();
                let facts = self.facts_of(index).await?;
                let asked = (sent, self.cluster().now());
                step = init.again(index, asked, &facts, crate::chance::nonce());
            }
        }
        self.cluster().examine_all(LOOK_LIMIT).await;
        Ok(())
    }

    fn not_set_up(&self, refusal: InitRefusal) -> InitError {
        let id = |index: usize| self.cluster().members[index].node.id().clone();
        match refusal {
            InitRefusal::Refused { member, reason } => self.refused(member, &reason),
            InitRefusal::Down { member, error } => self.unreachable(member, error),
            InitRefusal::NotNew { known, blank } => {
                InitError::NotNew { known: id(known), blank: id(blank) }
            }
        }
    }

    fn member_list(&self) -> MemberList {
        let names = self.cluster().node_ids().map(|id| id.as_str().to_owned()).collect();
        MemberList::new(self.cluster().policy.clone(), names)
    }

    async fn facts_of(&self, index: usize) -> Result<Facts, InitError> {
        match self.cluster().ask_one(index, Request::Probe, LOOK_LIMIT).await {
            Ok(Reply::Facts(facts)) => Ok(*facts),
            Ok(other) => {
                Err(self.unreachable(index, NodeError::Garbled { reason: other.to_string() }))
            }
            Err(error) => Err(self.unreachable(index, error)),
        }
    }

    /// `init` for the builder: a cluster that is not new, or not all there, is opened as it is.
    pub(crate) async fn trust_if_new(&self) {
        if let Err(error) = self.init().await {
            tracing::warn!("not trusted as a new cluster: {error}");
        }
    }

    async fn replace_record(
        &self,
        index: usize,
        expected: Option<Arc<str>>,
        record: &Record,
    ) -> Result<bool, InitError> {
        let record = record.to_string().into();
        let request = Request::ReplaceRecord { expected, record };
        match self.cluster().ask_one(index, request, LOOK_LIMIT).await {
            Ok(Reply::Record { replaced }) => Ok(replaced),
            Ok(other) => {
                Err(self.unreachable(index, NodeError::Garbled { reason: other.to_string() }))
            }
            Err(error) => Err(self.unreachable(index, error)),
        }
    }

    fn unreachable(&self, index: usize, error: NodeError) -> InitError {
        InitError::Unreachable { node: self.cluster().members[index].node.id().clone(), error }
    }

    /// Makes this member list the successor of `old`, which is opened with the list as it was.
    ///
    /// Every node of both lists must answer, and each name of the new list lead to one server. Adding one node takes effect at once, the new node
    /// sitting out its quarantine; any other change stops all locks for that long, which is counted
    /// by the longer `max_ttl` of both lists (a single node's is a day, unless set). Holders that
    /// use the old list cannot extend any more and lose their leases within their Ttl. May be
    /// repeated if it fails half-way; if another change was quicker, it says so.
    pub async fn succeed(&self, old: &Locks) -> Result<(), InitError> {
        self.cluster().check_home()?;
        let mut change = Succession::new(old.member_list(), self.member_list());
        let locks_of = |side| if side == Side::New { self } else { old };
        let mut is_compared = false;
        loop {
            match change.step() {
                SuccessionStep::Ask(of) => {
                    let sent = self.cluster().now();
                    let facts = match of {
                        Side::New if !std::mem::replace(&mut is_compared, true) => {
                            self.facts_compared().await?
                        }
                        _ => locks_of(of).facts().await?,
                    };
                    let told = Told { sent, received: self.cluster().now(), facts: &facts };
                    change.told(told, crate::chance::nonce);
                }
                SuccessionStep::Replace { of, member, expected, record } => {
                    let is_written = locks_of(of).replace_record(member, expected, &record).await?;
                    change.written(is_written);
                }
                SuccessionStep::Refused { of, member, reason } => {
                    return Err(locks_of(of).refused(member, &reason));
                }
                SuccessionStep::Done => break,
            }
        }
        // An examination that was under way may tell of the old list; the one after it does not.
        for _ in 0..2 {
            self.cluster().examine_all(LOOK_LIMIT).await;
        }
        Ok(())
    }

    /// What the nodes say of themselves, each over several connections: a name that leads to several
    /// servers must not become a member.
    async fn facts_compared(&self) -> Result<Vec<Facts>, InitError> {
        let (facts, met) = tokio::join!(self.facts(), self.meet_servers());
        let mut facts = facts?;
        for (facts, (_, met)) in facts.iter_mut().zip(met) {
            facts.unmet = met.iter().filter(|met| met.is_none()).count();
            facts.others.extend(met.into_iter().flatten());
        }
        Ok(facts)
    }

    /// Opens several connections to each node, for a moment, and says which servers they met: the
    /// run id of each, or `None` where nobody answered. Two different ones are two servers behind one
    /// name, or one that restarted just now.
    pub async fn meet_servers(&self) -> Vec<(NodeId, Vec<Option<String>>)> {
        let cluster = self.cluster();
        let mut meetings = JoinSet::new();
        // A fork has nobody who would open them.
        let members = if cluster.is_elsewhere() { &[][..] } else { &cluster.members };
        for (index, member) in members.iter().enumerate() {
            let meeting = member.node.meet(CONNECTIONS_COMPARED);
            meetings.spawn_on(async move { (index, meeting.await) }, &cluster.background);
        }
        let mut met: Vec<_> = cluster.node_ids().map(|id| (id.clone(), Vec::new())).collect();
        while let Some(meeting) = meetings.join_next().await {
            if let Ok((index, servers)) = meeting {
                met[index].1 = servers;
            }
        }
        met
    }

    async fn facts(&self) -> Result<Vec<Facts>, InitError> {
        let cluster = self.cluster();
        let mut gather = cluster.gather(Request::Probe, LOOK_LIMIT).await;
        (0..cluster.members.len())
            .map(|index| match gather.take(index).0 {
                Ok(Reply::Facts(facts)) => Ok(*facts),
                Ok(other) => Err(self.refused(index, &other.to_string())),
                Err(error) => Err(self.unreachable(index, error)),
            })
            .collect()
    }

    fn refused(&self, index: usize, reason: &str) -> InitError {
        let node = self.cluster().members[index].node.id().clone();
        InitError::Refused { node, reason: reason.to_owned() }
    }
}
