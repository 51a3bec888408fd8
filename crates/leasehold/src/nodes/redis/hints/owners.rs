//! Which owners keep a lock though its key changes: their leases are extended, or handed to the next
//! waiter of their process. A change of such a key is looked at before anybody is woken; otherwise it
//! is most likely a release, and a look would only cost time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many are remembered before all are forgotten, which costs each a question in vain.
const MAX: usize = 256;

#[derive(Default)]
pub(super) struct Owners {
    /// The last owner that was seen of a key, and whether the key has changed since.
    last: BTreeMap<Arc<str>, (String, bool)>,
    /// Labels of owners that were still there after a change.
    staying: BTreeSet<String>,
}

impl Owners {
    /// `owner` has the lock at `key`.
    pub(super) fn saw(&mut self, key: &Arc<str>, owner: &str) {
        if self.last.len() >= MAX {
            self.last.clear();
        }
        let before = self.last.insert(key.clone(), (owner.to_owned(), false));
        if before.is_some_and(|(before, has_changed)| has_changed && before == owner) {
            if self.staying.len() >= MAX {
                self.staying.clear();
            }
            self.staying.insert(label(owner).to_owned());
        }
    }

    /// The key changed, and its owner may be gone. Whether that is worth a look first.
    pub(super) fn may_stay(&mut self, key: &str) -> bool {
        let Some((owner, has_changed)) = self.last.get_mut(key) else { return false };
        *has_changed = true;
        self.staying.contains(label(owner))
    }
}

/// Those of one process go by one label.
fn label(owner: &str) -> &str {
    owner.rsplit_once(':').map_or(owner, |(label, _)| label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_there_after_a_change_may_stay_again() {
        let (mut owners, key) = (Owners::default(), Arc::from("l"));
        assert!(!owners.may_stay(&key), "nobody was seen");
        owners.saw(&key, "a:1");
        owners.saw(&key, "a:1");
        assert!(!owners.may_stay(&key), "nothing had changed");
        owners.saw(&key, "b:1");
        assert!(!owners.may_stay(&key), "a release, and another came");
        owners.saw(&key, "b:1");
        assert!(owners.may_stay(&key));
        owners.saw(&key, "a:2");
        assert!(!owners.may_stay(&key));
        owners.saw(&key, "b:2");
        assert!(owners.may_stay(&key), "of the same process");
    }

    #[test]
    fn owners_do_not_pile_up() {
        let mut owners = Owners::default();
        for number in 0..3 * MAX {
            let (key, owner) = (Arc::from(format!("l{number}")), format!("{number}:1"));
            owners.saw(&key, &owner);
            owners.may_stay(&key);
            owners.saw(&key, &owner);
        }
        assert!(owners.last.len() <= MAX && owners.staying.len() <= MAX);
    }
}
