//! What a change of the member list asks for, and how far it has come.

use std::sync::Arc;
use std::time::Duration;

use crate::{Facts, Record};

/// One of the two lists of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The list as it was.
    Old,
    /// The list as it shall be.
    New,
}

/// What to do next for a change of the member list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuccessionStep {
    /// Ask all members of this list, and go on with what they told. If one does not answer, the change
    /// stops here; it may be begun anew.
    Ask(Side),
    /// Write this record if the old one is still there, and go on with whether it was.
    Replace {
        /// The list that has the member.
        of: Side,
        /// Its number there.
        member: usize,
        /// What stands there now.
        expected: Option<Arc<str>>,
        /// What shall stand there.
        record: Record,
    },
    /// The change took place.
    Done,
    /// It did not, because of this member.
    Refused {
        /// The list that has the member.
        of: Side,
        /// Its number there.
        member: usize,
        /// Why.
        reason: String,
    },
}

/// What is to be asked when everything is written.
#[derive(Debug, Clone)]
pub(super) enum Stage {
    /// Who they are: first those of the new list, then the others.
    First { ours: Option<Vec<Facts>> },
    /// Whether all of the old list serve the new one, now that the node that is added is barred.
    Rolling { tries: usize },
    /// The node that is added.
    Added { tries: usize },
    /// That node, if its record was not written.
    Adding { tries: usize },
    /// Whether all of these refuse the old list.
    Barrier { whom: Whom, tries: usize, waits: Duration },
    /// What they remember, now that all do: first those of the new list, then the others.
    Barred { ours: Option<Vec<Facts>> },
    /// Whether the change took place, as somebody else may have made another one meanwhile: first
    /// those of the new list, then the others.
    Confirm { ours: Option<Vec<Facts>> },
    /// Nothing.
    Over,
}

/// Who is barred, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom {
    /// Those of the new list that the old one does not know.
    Joining,
    /// The node that is added to a list that stays as it is.
    Added,
    /// All of the old list.
    Old,
    /// All of the new list.
    New,
}

impl Whom {
    pub(super) fn of(self) -> Side {
        match self {
            Self::Joining | Self::Added | Self::New => Side::New,
            Self::Old => Side::Old,
        }
    }
}
