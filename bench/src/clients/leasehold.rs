//! Leasehold as a user would use it: leases are kept in the background, releases are awaited.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{AcquireError, Background, Guard, Locks, NodeReports, NodeState, Owner, Reply};

use tokio::sync::Mutex;

use super::beside::Company;
use crate::lock_server::LockServer;
use crate::order::Role;

/// Longer than the quarantine of a node.
const ALL_VOTE_WITHIN: Duration = Duration::from_secs(45);

#[derive(Debug)]
pub(crate) struct Leasehold {
    locks: Locks,
    votes: Arc<Votes>,
    /// Joins the queue of its process; otherwise it asks once.
    waits: bool,
    pub(super) company: Mutex<Company>,
    _server: Option<LockServer>,
}

/// How often the nodes were asked.
#[derive(Debug, Default)]
struct Votes {
    attempts: AtomicU64,
    splits: AtomicU64,
}

impl Leasehold {
    pub(crate) async fn open(role: &Role) -> Result<Leasehold, String> {
        let background = match role.contestant.ends_with("-thread") {
            true => Background::OwnThread,
            false => Background::CurrentRuntime,
        };
        let server = match role.contestant.contains("http") {
            true => Some(LockServer::start(&role.addrs)?),
            false => None,
        };
        let scheme = if role.contestant.contains("sqlite") { "sqlite:" } else { "redis://" };
        let url = match &server {
            Some(server) => format!("http://{}", server.address),
            None => format!("{scheme}{}", role.addrs.join(",")),
        };
        let builder = Locks::builder().url(url).background(background);
        let locks = builder.open().await.map_err(|error| error.to_string())?;
        all_vote(&locks).await?;
        let company = Mutex::new(Company::gather(&locks, role).await?);
        let waits = role.contestant != "leasehold-try";
        Ok(Leasehold { locks, votes: Arc::default(), waits, company, _server: server })
    }

    pub(crate) async fn acquire(&self, name: &str) -> Result<Guard, String> {
        if !self.waits {
            let guard = self.locks.lock(name).try_acquire().await;
            return guard.map_err(|error| error.to_string())?.ok_or_else(|| "held".to_owned());
        }
        let votes = self.votes.clone();
        let request = self.locks.lock(name).wait_forever().on_refusal(move |refusal| {
            votes.attempts.fetch_add(1, Ordering::Relaxed);
            votes.splits.fetch_add(u64::from(is_split(refusal)), Ordering::Relaxed);
        });
        let guard = request.acquire().await.map_err(|error| error.to_string())?;
        self.votes.attempts.fetch_add(1, Ordering::Relaxed);
        Ok(guard)
    }

    pub(crate) fn votes(&self) -> (u64, u64) {
        (self.votes.attempts.load(Ordering::Relaxed), self.votes.splits.load(Ordering::Relaxed))
    }
}

/// Our nodes are new, and nothing is measured before each of them votes. On a machine that is very
/// busy the first word of a person may come to nothing.
pub(crate) async fn all_vote(locks: &Locks) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let said = locks.init().await;
        if locks.nodes().iter().all(|health| health.state == NodeState::Up) {
            return Ok(());
        }
        if start.elapsed() > ALL_VOTE_WITHIN {
            return Err(format!("not all nodes vote: {:?}; {said:?}", locks.nodes()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Whether the lock was free and nobody got it: some nodes granted it to us, and no other owner was
/// seen on a quorum of them.
fn is_split(refusal: &AcquireError) -> bool {
    let (AcquireError::Held { nodes, .. } | AcquireError::NoQuorum { nodes, .. }) = refusal else {
        return false;
    };
    let needed = nodes.0.len() / 2 + 1;
    granted(nodes) > 0 && owners(nodes).iter().all(|owner| seen(nodes, owner) < needed)
}

fn granted(nodes: &NodeReports) -> usize {
    nodes.0.iter().filter(|report| matches!(report.answer, Some(Ok(Reply::Granted)))).count()
}

fn owners(nodes: &NodeReports) -> Vec<&Owner> {
    let owner = |answer| match answer {
        &Some(Ok(Reply::Busy { ref owner, .. })) => Some(owner),
        _ => None,
    };
    nodes.0.iter().filter_map(|report| owner(&report.answer)).collect()
}

fn seen(nodes: &NodeReports, owner: &Owner) -> usize {
    owners(nodes).iter().filter(|other| **other == owner).count()
}

#[cfg(test)]
mod tests {
    use leasehold::node::NodeId;
    use leasehold::{Fence, LockName, NodeReport};

    use super::*;

    /// A refusal by five nodes: `+` granted, `-` silent, a letter is who has it there.
    fn refused(votes: &str) -> AcquireError {
        let answer = |vote| match vote {
            '+' => Some(Ok(Reply::Granted)),
            '-' => None,
            owner => {
                let value = format!("{owner}:0123456789abcdef0123456789abcdef");
                let owner = Owner::from_value(value.as_bytes());
                Some(Ok(Reply::busy(owner, Some(Duration::from_secs(1)), Fence::ZERO)))
            }
        };
        let report = |(at, vote): (usize, char)| NodeReport {
            node: NodeId::new(format!("{at}")),
            answer: answer(vote),
            after: Duration::ZERO,
        };
        let nodes = NodeReports(votes.chars().enumerate().map(report).collect());
        let lock = LockName::new("x").unwrap();
        AcquireError::Held { lock, owner: None, expires_in: None, nodes }
    }

    #[test]
    fn votes_are_split_if_we_have_some_and_nobody_has_a_quorum() {
        for split in ["++aab", "+aabb", "+abcd"] {
            assert!(is_split(&refused(split)), "{split}");
        }
        for held in ["aaa--", "++aaa", "+aaa-", "aabbc"] {
            assert!(!is_split(&refused(held)), "{held}");
        }
    }
}
