//! A lock server as a backend, with everything between it and its clients that can go wrong: slow and
//! broken connections, a server that is killed, nodes that are away, tokens and certificates.

mod access;
mod connections;
mod hints;
mod outages;
mod served;

use std::time::{Duration, Instant};

use leasehold::{AcquireError, Guard, Locks, NodeState};
use tokio::task::JoinHandle;

/// Long enough that nothing expires while a slow machine runs a test.
const LONG: Duration = Duration::from_secs(25);

/// What must happen soon, even on a busy machine; far less than [`LONG`].
const SOON: Duration = Duration::from_secs(10);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Waits until `is_true`.
async fn soon<F: Future<Output = bool>>(what: &str, is_true: impl Fn() -> F) {
    let start = Instant::now();
    while !is_true().await {
        assert!(start.elapsed() < SOON, "not within {SOON:?}: {what}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// Waits until nobody owns `name`, which can be long before it would expire.
async fn is_given_back(locks: &Locks, name: &str) {
    let is_free = || async { locks.inspect(name).await.is_ok_and(|seen| seen.owner().is_none()) };
    soon("it is given back", is_free).await;
}

/// Somebody who waits for `name`, which another holds: refused once already.
async fn waiter(locks: &Locks, name: &str) -> JoinHandle<Result<Guard, AcquireError>> {
    let (refused, mut refusals) = tokio::sync::mpsc::unbounded_channel();
    let request = locks.lock(name).ttl(LONG).wait(LONG);
    let waiter = tokio::spawn(request.on_refusal(move |_| _ = refused.send(())).acquire());
    refusals.recv().await.expect("it is refused first");
    waiter
}

async fn is_up(locks: &Locks) {
    soon("the server is up", || async { locks.nodes()[0].state == NodeState::Up }).await;
}
