//! The promises as predicates, without any memory of what happened. The model explores states in
//! which an observer with a memory would be part of every state, so it asks these instead.

/// A time in which somebody believes to hold a lock; its end is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// From when.
    pub from: u64,
    /// Until when.
    pub until: u64,
}

/// Whether a fence is above the highest one that was given before its acquire began (F2).
pub fn grows<F: Ord>(fence: F, completed_before: F) -> bool {
    fence > completed_before
}

/// Whether two acquisitions of one lock may have these fences (F1).
pub fn differ<F: Eq>(one: F, other: F) -> bool {
    one != other
}

/// Whether a holder with the fence `own` must not extend any more once somebody with the fence
/// `later` has the lock (F5).
pub fn supersedes<F: Ord>(later: F, own: F) -> bool {
    later > own
}

/// The time in which two of one lock both believe to hold it, if there is any.
pub fn overlap(one: Span, other: Span) -> Option<Span> {
    let both = Span { from: one.from.max(other.from), until: one.until.min(other.until) };
    (both.from < both.until).then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: u64, until: u64) -> Span {
        Span { from, until }
    }

    #[test]
    fn spans_that_touch_do_not_overlap() {
        assert_eq!(overlap(span(1, 5), span(5, 9)), None);
        assert_eq!(overlap(span(5, 9), span(1, 5)), None);
        assert_eq!(overlap(span(1, 5), span(3, 3)), None, "nobody ever held it");
        assert_eq!(overlap(span(1, 6), span(5, 9)), Some(span(5, 6)));
        assert_eq!(overlap(span(5, 6), span(1, 9)), Some(span(5, 6)));
    }

    #[test]
    fn an_equal_fence_neither_grows_nor_differs_nor_supersedes() {
        assert!(!grows(3, 3) && !differ(3, 3) && !supersedes(3, 3));
        assert!(grows(4, 3) && differ(4, 3) && supersedes(4, 3));
        assert!(!grows(3, 4) && differ(3, 4) && !supersedes(3, 4));
    }
}
