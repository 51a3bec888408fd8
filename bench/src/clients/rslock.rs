//! rslock, the Redlock of Rust, as it comes, or with a retry delay short enough for short holds.

use std::time::Duration;

use rslock::{LockGuard, LockManager};

use crate::order::Role;

const TTL: Duration = Duration::from_secs(10);
/// `acquire` begins anew when its retries are used up; this many never are.
const RETRIES: u32 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Rslock {
    manager: LockManager,
}

impl Rslock {
    pub(crate) fn open(role: &Role) -> Rslock {
        let urls = role.addrs.iter().map(|addr| format!("redis://{addr}/")).collect();
        let mut manager = LockManager::new(urls);
        if role.contestant == "rslock-5ms" {
            manager.set_retry(RETRIES, Duration::from_millis(5));
        }
        Rslock { manager }
    }

    pub(crate) async fn acquire(&self, name: &str) -> Result<LockGuard, String> {
        self.manager.acquire(name, TTL).await.map_err(|error| error.to_string())
    }
}
