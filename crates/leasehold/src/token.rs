//! A lease that is not tied to a process: written down as text, extended and released by whoever
//! has the text.
//!
//! Nobody keeps it in the background and nobody is told when it is lost, so it is extended only
//! while a quorum still knows it without interruption: what lapsed, even for a moment, is lost.
//!
//! The text is a claim: whoever hands it in may have made it up. A node changes nothing unless it has
//! just this owner, and then nothing but the time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use leasehold_core::rounds::{Belief, ExtendRound, ExtendStep, LeaseClaim, ReleaseRound};
use leasehold_core::{Fence, Holder, Lease, LockName, LossReason, Request, Ttl};

use crate::Locks;
use crate::driver::Op;
use crate::error::{ExtendError, Loss, NodeReports, OptionsError, ReleaseOutcome};

/// A lease as text: `lease1:FENCE:TTL_MS:HOLDER/NAME`, percent-encoded where needed; `FENCE-TOKEN`
/// if it was refreshed while somebody kept it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseToken {
    /// Which lock.
    pub name: LockName,
    /// Who holds it.
    pub holder: Holder,
    /// The fencing token.
    pub fence: Fence,
    /// What the nodes have for it: the fence, or a higher number since it was refreshed.
    pub token: Fence,
    /// How long the nodes keep it after each extension.
    pub ttl: Duration,
}

/// Stands first in each token; the number goes up when the format changes.
const FORMAT: &str = "lease1";

impl LeaseToken {
    pub(crate) fn of(lease: &Lease) -> Self {
        Self {
            name: lease.lock.clone(),
            holder: lease.holder.clone(),
            fence: lease.fence,
            token: lease.token,
            ttl: lease.ttl.get(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(FORMAT)?.strip_prefix(':')?;
        let (fence, rest) = rest.split_once(':')?;
        let (ttl, rest) = rest.split_once(':')?;
        let (holder, name) = rest.split_once('/')?;
        let plain = |text: &str| {
            let decoded = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
            Some(decoded.into_owned())
        };
        let ttl = Duration::from_millis(ttl.parse().ok()?);
        let (fence, token) = fence.split_once('-').unwrap_or((fence, fence));
        let number = |text: &str| Fence::new(text.parse().ok()?);
        Some(Self {
            name: LockName::new(plain(name)?).ok()?,
            holder: Holder::parse(&plain(holder)?).ok()?,
            fence: number(fence)?,
            token: number(token)?,
            ttl: Ttl::new(ttl).ok()?.get(),
        })
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encode = |text| percent_encoding::utf8_percent_encode(text, ENCODED);
        let (holder, name) = (encode(self.holder.as_str()), encode(self.name.as_str()));
        write!(f, "{FORMAT}:{}", self.fence)?;
        if self.token != self.fence {
            write!(f, "-{}", self.token)?;
        }
        write!(f, ":{}:{holder}/{name}", self.ttl.as_millis())
    }
}

/// Everything that a shell, a URL or our own separators would trip over.
const ENCODED: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'@')
    .remove(b':');

impl FromStr for LeaseToken {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Self, OptionsError> {
        Self::parse(text).ok_or_else(|| OptionsError::Value {
            name: "lease token".into(),
            value: text.chars().take(40).collect(),
            reason: "it is not one that `acquire` prints".into(),
        })
    }
}

impl Locks {
    /// Extends the lease that `token` stands for, and says for how long it is good from now.
    ///
    /// Succeeds only if a quorum kept it all the time: a lease that lapsed is lost. It never gets
    /// shorter: of a `ttl` that ends sooner than what the nodes keep already, the longer end stands.
    pub async fn extend(&self, token: &LeaseToken) -> Result<Duration, ExtendError> {
        Ok(self.extend_since(token, || ()).await?.1)
    }

    /// As [`Self::extend`], for a caller that tells it to others by another clock: `read` is called first, and what
    /// is left counts from then. A pause between the two makes it less, never more.
    pub async fn extend_since<T>(
        &self,
        token: &LeaseToken,
        read: impl FnOnce() -> T,
    ) -> Result<(T, Duration), ExtendError> {
        let cluster = self.cluster();
        cluster.check_home()?;
        let now = cluster.now();
        let ttl = Ttl::new(token.ttl).map_err(OptionsError::from)?;
        // A node that forgets sits out max_ttl: a longer lease could be given away in between.
        match cluster.max_ttl() {
            Some(max) if token.ttl > max => {
                return Err(OptionsError::TtlAboveMax { asked: token.ttl, max }.into());
            }
            _ => {}
        }
        let claim = LeaseClaim {
            lock: token.name.clone(),
            holder: token.holder.clone(),
            fence: token.fence,
            highest: token.token,
            ttl,
        };
        let limit = cluster.limit.for_ttl(ttl);
        let (round, lease) = ExtendRound::claim(claim, cluster.quorum, cluster.drift, now);
        let op = cluster.begin_extend(&lease, round, limit);
        op.decided(limit).await;
        let (step, is_lost, ballot) =
            op.with(|round| (round.step(), round.is_lost(), round.ballot().clone()));
        let nodes = NodeReports::of(cluster.node_ids(), &ballot);
        if let Some((request, free)) = op.with(|round| round.to_heal(&lease)) {
            cluster.heal(request, &free, limit);
        }
        match step {
            ExtendStep::Extended { deadline } if cluster.now() < deadline => {
                Ok((read(), deadline.since(cluster.now())))
            }
            _ if is_lost => Err(lost(token, &nodes).into()),
            _ => {
                let (lock, left) = (token.name.clone(), Duration::ZERO);
                Err(ExtendError::NoQuorum { lock, left, nodes })
            }
        }
    }

    /// Gives back the lease that `token` stands for.
    pub async fn release(&self, token: &LeaseToken) -> ReleaseOutcome {
        let cluster = self.cluster();
        let limit = Ttl::new(token.ttl).map_or(cluster.limit.time, |t| cluster.limit.for_ttl(t));
        // Whether it was still good only the nodes can tell.
        let (holder, now) = (token.holder.clone(), cluster.now());
        let round = ReleaseRound::new(holder, token.token, cluster.quorum, Belief::Unknown, now);
        let op = Op::new(cluster, round);
        let request = Request::Release { lock: token.name.clone(), holder: token.holder.clone() };
        cluster.ask_all(&op, 0, request, limit);
        cluster.release_ended(&op, &token.name, limit).await;
        op.with(|round| {
            let nodes = || NodeReports::of(cluster.node_ids(), round.ballot());
            ReleaseOutcome::of(round.step(), nodes)
        })
    }
}

fn lost(token: &LeaseToken, nodes: &NodeReports) -> Loss {
    let reason = LossReason::Expired { last: Some(nodes.to_string()) };
    Loss { lock: token.name.clone(), fence: token.fence, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str) -> LeaseToken {
        let lease = Lease {
            lock: LockName::new(name).unwrap(),
            holder: Holder::new("ana@db 1:7", 5).unwrap(),
            fence: Fence::new(1_700_000_000_000_001).unwrap(),
            token: Fence::new(1_700_000_000_000_001).unwrap(),
            ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
            deadline: leasehold_core::Moment::default(),
            uncertain: false,
        };
        LeaseToken::of(&lease)
    }

    #[test]
    fn a_token_reads_back_as_written_and_needs_no_quotes() {
        for name in ["nightly", "a/b:c", "émile ☂", "x'\"$(rm)", "%41"] {
            let text = token(name).to_string();
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.@:/%".contains(&b);
            assert!(text.bytes().all(plain), "{text}");
            assert_eq!(text.parse::<LeaseToken>(), Ok(token(name)), "{text}");
        }
        let mut refreshed = token("l");
        refreshed.token = refreshed.fence.next();
        let text = refreshed.to_string();
        assert!(text.starts_with("lease1:1700000000000001-1700000000000002:30000:"), "{text}");
        assert_eq!(text.parse::<LeaseToken>(), Ok(refreshed));
    }

    #[test]
    fn what_is_no_token_is_refused_with_a_sentence() {
        let good = token("l").to_string();
        for bad in
            ["", "lease1", "lease2:1:2:h/n", &good[..good.len() - 1], &good.replace("30000", "1")]
        {
            let error = bad.parse::<LeaseToken>().unwrap_err().to_string();
            assert!(error.contains("not one that `acquire` prints"), "{error}");
        }
    }
}
