//! One attempt to acquire: the core's rounds, carried out. Dropping it at any point leaves no grant
//! behind.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::{AcquireRound, AcquireSpec, AcquireStep, Ballot, Refusal};
use leasehold_core::{AskAs, Drift, Ends, Fence, Holder, Lease, LockName, Request, Reserved, Ttl};

use super::{Cluster, Op};

/// What to try for.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) lock: LockName,
    pub(crate) label: Arc<str>,
    /// The first half of the holder's random part, if it is not drawn.
    pub(crate) mark: Option<u64>,
    pub(crate) ttl: Ttl,
    pub(crate) min_validity: Duration,
}

/// A lease, and who granted it.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) lease: Lease,
    pub(crate) proof: Proof,
    /// The fences that are reserved for those behind, if it was handed off.
    pub(crate) reserved: Option<Reserved>,
}

/// Who granted a lease.
pub(crate) enum Proof {
    /// Those who said so, also after the decision.
    Round(Arc<Op<AcquireRound>>),
    /// Those that the former user knew of.
    Ends(Ends),
}

impl Proof {
    /// Takes in until when the nodes keep `lease`.
    pub(crate) fn tell(&self, ends: &mut Ends, lease: &Lease, drift: Drift) {
        match self {
            Self::Round(op) => op.with(|round| ends.note(round.ballot(), lease.ttl, drift)),
            Self::Ends(known) => ends.merge(known),
        }
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof")
    }
}

/// An attempt that failed, with the evidence.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) ballot: Ballot,
}

impl Attempt {
    /// Asks all nodes once, in up to three rounds. Asks once more if too few nodes could answer
    /// because their records had just changed, which a look at them mends.
    pub(crate) async fn run(&self, cluster: &Arc<Cluster>) -> Result<Won, Refused> {
        self.run_as(cluster, None).await
    }

    /// Asks all nodes once, with a random part that the caller drew.
    pub(crate) async fn run_with(
        &self,
        cluster: &Arc<Cluster>,
        nonce: u128,
    ) -> Result<Won, Refused> {
        self.once(cluster, Some(AskAs { holder: self.holder(nonce), above: Fence::ZERO })).await
    }

    fn nonce(&self) -> u128 {
        let drawn = crate::chance::nonce();
        match self.mark {
            Some(mark) => u128::from(mark) << 64 | u128::from(drawn as u64),
            None => drawn,
        }
    }

    fn holder(&self, nonce: u128) -> Holder {
        Holder::new(&self.label, nonce).expect("the label was checked with the options")
    }

    /// The same as `run`, as a holder that the nodes may still know as the owner: of a lease whose user is
    /// done with it, and for which no release was sent.
    pub(crate) async fn run_as(
        &self,
        cluster: &Arc<Cluster>,
        ask_as: Option<AskAs>,
    ) -> Result<Won, Refused> {
        match self.once(cluster, ask_as).await {
            // Boxed, as everything that few need: a future is as large as its largest branch.
            Err(refused) if refused.is_worth_a_look() => {
                Box::pin(self.once_more(cluster, refused)).await
            }
            other => other,
        }
    }

    async fn once_more(&self, cluster: &Arc<Cluster>, refused: Refused) -> Result<Won, Refused> {
        cluster.examine_all(cluster.limit.for_ttl(self.ttl)).await;
        match self.once(cluster, None).await {
            // The first ballot tells more: the second may only say that nodes are being examined.
            Err(again) if again.is_worth_a_look() => Err(refused),
            other => other,
        }
    }

    async fn once(&self, cluster: &Arc<Cluster>, ask_as: Option<AskAs>) -> Result<Won, Refused> {
        let may_be_known = ask_as.is_some();
        let AskAs { holder, above } = ask_as
            .unwrap_or_else(|| AskAs { holder: self.holder(self.nonce()), above: Fence::ZERO });
        let spec = AcquireSpec {
            lock: self.lock.clone(),
            holder: holder.clone(),
            ttl: self.ttl,
            drift: cluster.drift,
            min_validity: self.min_validity,
        };
        let now = cluster.now();
        let proposal = cluster.propose(&self.lock, above, now);
        let round = AcquireRound::new(spec, cluster.quorum, proposal, now);
        let op = Op::new(cluster, round);
        let unfinished =
            Unfinished { cluster, attempt: self, holder, op: &op, may_be_known, is_over: false };
        let limit = cluster.limit.for_ttl(self.ttl);
        unfinished.ask(limit);
        loop {
            op.decided(limit).await;
            let now = cluster.now();
            let settles_for =
                |node: usize| cluster.members[node].notes().admission.settles_for(now);
            match op.with(|round| round.step(now, settles_for)) {
                AcquireStep::Wait => {}
                AcquireStep::AskAgain => unfinished.ask(limit),
                AcquireStep::Settle(at) => cluster.sleep(at.since(cluster.now())).await,
                AcquireStep::Acquired(lease) => {
                    unfinished.finish();
                    if op.with(|round| round.number()) > 1 {
                        cluster.saw_fence(&self.lock, lease.fence);
                    }
                    let proof = Proof::Round(op.clone());
                    return Ok(Won { lease, proof, reserved: None });
                }
                AcquireStep::GiveUp(refusal) => {
                    let (ballot, seen) = op.with(|round| (round.ballot().clone(), round.seen()));
                    cluster.saw_fence(&self.lock, seen);
                    return Err(Refused { refusal, ballot });
                }
            }
        }
    }
}

impl Refused {
    fn is_worth_a_look(&self) -> bool {
        self.refusal.is_worth_a_look(&self.ballot)
    }
}

/// An attempt that has asked and not won yet. However it ends, what may have been granted is given
/// back, behind the acquire on the same connection.
struct Unfinished<'a> {
    cluster: &'a Arc<Cluster>,
    attempt: &'a Attempt,
    holder: Holder,
    op: &'a Arc<Op<AcquireRound>>,
    /// Nodes may know the holder although this attempt never asked them.
    may_be_known: bool,
    is_over: bool,
}

impl Unfinished<'_> {
    fn ask(&self, limit: Duration) {
        let (number, proposal) = self.op.with(|round| (round.number(), round.proposal()));
        let request = Request::Acquire {
            lock: self.attempt.lock.clone(),
            holder: self.holder.clone(),
            proposal,
            ttl: self.attempt.ttl,
        };
        self.cluster.ask_all(self.op, number, request, limit);
    }

    fn finish(mut self) {
        self.is_over = true;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.op.abandon();
            let Attempt { lock, ttl, .. } = self.attempt;
            // A node that took nothing in would only have more to do, which is why it took nothing.
            let may_have =
                |node| self.may_be_known || !self.op.with(|round| round.was_never_asked(node));
            self.cluster.give_back_where(lock, &self.holder, *ttl, may_have);
        }
    }
}
