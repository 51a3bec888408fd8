//! Going through everything that is asked of a node in a lock's life, to find out beforehand what a
//! node does not let us do.

use leasehold_core::{Fence, Holder, LockName, Reply, Request, Ttl};

use crate::Locks;
use crate::error::{NodeReport, NodeReports, OptionsError};
use crate::locks::LOOK_LIMIT;

impl Locks {
    /// Asks every node to acquire, extend, show, list and release the lock called `name`, which
    /// should be nobody else's, and returns what each of them said to each of these. Any reply, even
    /// a refusal because another rehearsal is under way, shows that the node lets us ask.
    pub async fn rehearse(
        &self,
        name: impl AsRef<str>,
    ) -> Result<Vec<(&'static str, NodeReports)>, OptionsError> {
        let lock = LockName::new(name)?;
        let cluster = self.cluster();
        let holder = Holder::new(&crate::default_holder(), crate::chance::nonce())?;
        let proposal = Fence::from_clock(cluster.clock.wall());
        let ttl = Ttl::new(5 * LOOK_LIMIT)?;
        let acquire =
            Request::Acquire { lock: lock.clone(), holder: holder.clone(), proposal, ttl };
        let mut said = vec![("acquire", self.ask_for_reports(acquire).await)];
        // Where a lock server made the number, that one.
        let own = |report: &NodeReport| match report.answer {
            Some(Ok(Reply::GrantedWith { fence })) => Some(fence),
            _ => None,
        };
        let token = said[0].1.0.iter().find_map(own).unwrap_or(proposal);
        let (same_lock, same_holder) = (lock.clone(), holder.clone());
        let extend = Request::Extend {
            lock: same_lock,
            holder: same_holder,
            token,
            next: token,
            unbroken: false,
            ttl,
        };
        for (what, request) in [
            ("extend", extend),
            ("inspect", Request::Inspect { lock: lock.clone() }),
            ("list", Request::List { prefix: lock.as_str().to_owned() }),
            ("release", Request::Release { lock, holder }),
        ] {
            said.push((what, self.ask_for_reports(request).await));
        }
        Ok(said)
    }

    async fn ask_for_reports(&self, request: Request) -> NodeReports {
        let mut gather = self.cluster().gather(request, LOOK_LIMIT).await;
        self.reports(&mut gather)
    }
}
