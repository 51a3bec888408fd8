//! Whether a lock is held by a lease of the same idempotency key.

use leasehold::{AcquireError, LockName, Locks, Owner, Reply};

/// Whether a node that refused names a lease of the key with this mark. If such a lease has a quorum, one
/// of them does; but others may, in the majority, still name one that was over before its grant came
/// to them.
pub(super) fn is_named(error: &AcquireError, mark: Option<u64>) -> bool {
    let Some(mark) = mark else { return false };
    match error {
        AcquireError::TimedOut { last: Some(last), .. } => is_named(last, Some(mark)),
        AcquireError::Held { nodes, .. } => nodes.0.iter().any(|report| match &report.answer {
            Some(Ok(Reply::Busy { owner, .. })) => has_mark(owner, mark),
            _ => false,
        }),
        _ => false,
    }
}

/// Whether a lease of the key has a quorum, as far as the nodes say.
pub(super) async fn is_held(locks: &Locks, lock: &LockName, mark: Option<u64>) -> bool {
    let Some(mark) = mark else { return false };
    let status = locks.inspect_as_answered(lock.as_str()).await;
    status.is_ok_and(|status| status.holder().is_some_and(|owner| has_mark(owner, mark)))
}

fn has_mark(owner: &Owner, mark: u64) -> bool {
    matches!(owner, Owner::Holder(holder) if holder.mark() == mark)
}
