//! Going through everything that is asked of a node in a lock's life, to find out beforehand what a
//! node does not let us do.

use leasehold_core::{Fence, Holder, LockName, Request, Ttl};

use crate::Locks;
use crate::error::{NodeReports, OptionsError};
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
        let extend = Request::Extend {
            lock: lock.clone(),
            holder: holder.clone(),
            token: proposal,
            next: proposal,
            ttl,
        };
        let mut said = Vec::new();
        for (what, request) in [
            ("acquire", acquire),
            ("extend", extend),
            ("inspect", Request::Inspect { lock: lock.clone() }),
            ("list", Request::List { prefix: lock.as_str().to_owned() }),
            ("release", Request::Release { lock, holder }),
        ] {
            let mut gather = cluster.gather(request, LOOK_LIMIT).await;
            said.push((what, self.reports(&mut gather)));
        }
        Ok(said)
    }
}
