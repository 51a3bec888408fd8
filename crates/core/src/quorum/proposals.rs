//! Which number a first round, or a refresh, proposes, and when a number was proposed.

use std::collections::HashMap;

use crate::{Admission, Fence, LockName, Moment, Owner, WallMicros};

/// What the nodes that may be asked show together: their clocks, as far as these are in line, and their
/// floors.
#[derive(Debug, Clone, Default)]
pub struct Outlook {
    offsets: Vec<i64>,
    floor: Fence,
    /// Whether one of them may be asked at all.
    is_any: bool,
}

impl Outlook {
    /// Looks at one more node.
    pub fn add(&mut self, admission: &Admission) {
        if let Some(pass) = admission.pass_to_extend() {
            self.is_any = true;
            let votes = admission.standing().pass().is_some();
            if votes || admission.is_in_line() {
                self.floor = self.floor.max(pass.floor);
            }
            // A node that waits because its clock went ahead still extends, and so takes a number.
            self.offsets.extend(admission.offset_to_follow().filter(|_| admission.is_in_line()));
        }
    }

    /// The clock in the middle of the nodes' that are in line; our own, `wall`, only while there is nobody
    /// to ask. None at all where nodes may be asked and no clock is known to be right: a number that
    /// follows a wrong clock stays on the nodes, whatever becomes of the question.
    ///
    /// Proposals follow the nodes' clocks rather than our own: the floor of a node that lost its
    /// memory is its clock, so a holder with a clock of its own could leave fences above it that
    /// nobody remembers.
    fn clock(&mut self, now: Moment, wall: impl FnOnce() -> WallMicros) -> WallMicros {
        self.offsets.sort_unstable();
        match self.offsets.get(self.offsets.len().saturating_sub(1) / 2) {
            Some(offset) => {
                let ours = (now.as_nanos() / 1000) as i64;
                WallMicros(u64::try_from(ours.saturating_add(*offset)).unwrap_or(0))
            }
            None if self.is_any => WallMicros(0),
            None => wall(),
        }
    }
}

/// When the owner of a lock proposed the fence that stands beside it, for people only. Proposals follow the
/// clocks, and nowhere else is a fence read as a time: one that an engine made is none. It is the time of
/// the last refresh if there was one, and no time at all if a clock was wrong before.
pub(crate) fn proposed_at(owner: &Owner, fence: Fence) -> Option<WallMicros> {
    matches!(owner, Owner::Holder(_)).then_some(WallMicros(fence.get()))
}

/// Makes proposals, and remembers fences that are ahead of the clock, to save a round.
#[derive(Debug, Clone, Default)]
pub struct Proposals {
    ahead: HashMap<LockName, Fence>,
}

impl Proposals {
    /// Names for which a fence ahead of the clock is remembered. Only wrong clocks make any.
    const AHEAD_MAX: usize = 1024;

    /// Above the floor of every node that votes, because a node counts an absent fence as its floor;
    /// above what was seen; and near the nodes' clocks.
    pub fn next(
        &self,
        lock: &LockName,
        seen: Fence,
        mut outlook: Outlook,
        now: Moment,
        wall: impl FnOnce() -> WallMicros,
    ) -> Fence {
        let ahead = self.ahead.get(lock).copied().unwrap_or(Fence::ZERO);
        let clock = outlook.clock(now, wall);
        Fence::proposal(clock, outlook.floor.max(ahead).max(seen))
    }

    /// Remembers a fence of `lock` that the clock would not have reached.
    pub fn saw(
        &mut self,
        lock: &LockName,
        fence: Fence,
        mut outlook: Outlook,
        now: Moment,
        wall: impl FnOnce() -> WallMicros,
    ) {
        if fence < Fence::from_clock(outlook.clock(now, wall)) {
            return;
        }
        // Forgetting costs a second round, nothing else.
        if self.ahead.len() >= Self::AHEAD_MAX {
            self.ahead.clear();
        }
        let known = self.ahead.entry(lock.clone()).or_default();
        *known = fence.max(*known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Holder;

    const NOW: Moment = Moment::from_millis(1);
    const WALL: WallMicros = WallMicros(500);

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    fn outlook(offsets: &[i64], floor: u64) -> Outlook {
        Outlook { offsets: offsets.to_vec(), floor: fence(floor), is_any: !offsets.is_empty() }
    }

    #[test]
    fn a_fence_tells_when_one_of_ours_proposed_it_and_nothing_of_another_librarys_lock() {
        let (holder, fence) = (Holder::new("ana", 1).unwrap(), Fence::from_clock(WALL));
        assert_eq!(proposed_at(&Owner::Holder(holder), fence), Some(WALL));
        let other = Owner::OtherLibrary { value: "theirs".into() };
        assert_eq!(proposed_at(&other, fence), None);
    }

    #[test]
    fn the_clock_is_the_lower_middle_of_the_nodes_and_ours_only_without_any() {
        for (offsets, clock) in [
            (&[][..], 500),
            (&[9_000], 10_000),
            (&[900_000, 2_000], 3_000),
            (&[5_000_000, -900, 4_000], 5_000),
            (&[i64::MIN], 0),
        ] {
            assert_eq!(outlook(offsets, 0).clock(NOW, || WALL), WallMicros(clock), "{offsets:?}");
        }
    }

    #[test]
    fn a_number_follows_no_clock_where_nodes_may_be_asked_and_none_is_in_line() {
        let lock = LockName::new("l").unwrap();
        let outlook = Outlook { is_any: true, ..outlook(&[], 7) };
        let next = Proposals::default().next(&lock, fence(9), outlook, NOW, || WALL);
        assert_eq!(next, fence(10));
    }

    #[test]
    fn a_proposal_is_above_floors_and_fences_seen_and_remembered() {
        let lock = LockName::new("l").unwrap();
        let mut proposals = Proposals::default();
        let next = |proposals: &Proposals, seen, floor| {
            let outlook = outlook(&[0], floor);
            proposals.next(&lock, fence(seen), outlook, NOW, || WALL).get()
        };
        assert_eq!(next(&proposals, 0, 0), 1_000);
        assert_eq!(next(&proposals, 0, 1_000), 1_001);
        assert_eq!(next(&proposals, 7_000, 1_000), 7_001);
        proposals.saw(&lock, fence(999), outlook(&[0], 0), NOW, || WALL);
        assert_eq!(next(&proposals, 0, 0), 1_000);
        proposals.saw(&lock, fence(3_000), outlook(&[0], 0), NOW, || WALL);
        proposals.saw(&lock, fence(2_000), outlook(&[0], 0), NOW, || WALL);
        assert_eq!(next(&proposals, 0, 0), 3_001);
    }
}
