//! Whether a refusal tells of a lease of the same idempotency key.

use leasehold::{AcquireError, Owner, Reply};

/// Whether the lock is held by a lease of the key with this mark.
pub(super) fn is_of_key(error: &AcquireError, mark: Option<u64>) -> bool {
    let Some(mark) = mark else { return false };
    match error {
        AcquireError::TimedOut { last: Some(last), .. } => is_of_key(last, Some(mark)),
        AcquireError::Held { nodes, .. } => {
            let owners = nodes.0.iter().filter_map(|report| match &report.answer {
                Some(Ok(Reply::Busy { owner, .. })) => Some(owner),
                _ => None,
            });
            is_named_most(&owners.collect::<Vec<_>>(), mark)
        }
        _ => false,
    }
}

/// Whether no other owner is named by more nodes. A node to which a grant came after its release names
/// the holder before until that one's TTL is over.
fn is_named_most(owners: &[&Owner], mark: u64) -> bool {
    let named = |owner: &Owner| owners.iter().filter(|other| **other == owner).count();
    let has_mark = |owner: &Owner| matches!(owner, Owner::Holder(holder) if holder.mark() == mark);
    let most = owners.iter().map(|owner| named(owner)).max();
    owners.iter().any(|owner| has_mark(owner) && Some(named(owner)) == most)
}

#[cfg(test)]
mod tests {
    use leasehold::Holder;

    use super::*;

    const OURS: u64 = 7;

    fn owner(mark: u64) -> Owner {
        Owner::Holder(Holder::new("ana", u128::from(mark) << 64 | 1).unwrap())
    }

    #[test]
    fn whoever_most_nodes_name_holds_the_lock_whichever_answered_first() {
        let [ours, other] = [owner(OURS), owner(8)];
        assert!(is_named_most(&[&ours], OURS));
        assert!(is_named_most(&[&other, &ours, &ours], OURS));
        assert!(is_named_most(&[&other, &ours], OURS), "nobody can tell, so it does not wait");
        assert!(!is_named_most(&[&ours, &other, &other], OURS));
        assert!(!is_named_most(&[&other], OURS) && !is_named_most(&[], OURS));
    }
}
