//! Which server each member of a list shows. Memory belongs to a server, so a server that two members
//! show must not be counted twice, and nobody can tell for which of them it may be counted.

use crate::{Facts, Record};

/// The members of one list, side by side.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    shown: Vec<Option<Shown>>,
}

/// What a member showed when it was last examined.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    run_id: String,
    life: Option<u128>,
}

impl Roster {
    /// A list of which nothing is known yet.
    pub fn new(members: usize) -> Self {
        Self { shown: vec![None; members] }
    }

    /// Member number `member` shows the server that `facts` tell of. Returns the member that shows
    /// the same one, if there is one: neither votes.
    pub fn show(&mut self, member: usize, facts: &Facts) -> Option<usize> {
        let record = facts.record.as_deref().and_then(|text| Record::parse(text).ok());
        // A record that another server wrote is a copy, and not this server's life.
        let own = record.filter(|record| record.is_by(&facts.server));
        let shown =
            Shown { run_id: facts.server.run_id.clone(), life: own.map(|record| record.life) };
        let twin = self.shown.iter().enumerate().find_map(|(other, seen)| {
            let is_same = |seen: &Shown| {
                seen.run_id == shown.run_id || (seen.life.is_some() && seen.life == shown.life)
            };
            (other != member && seen.as_ref().is_some_and(is_same)).then_some(other)
        });
        if let Some(slot) = self.shown.get_mut(member) {
            *slot = Some(shown);
        }
        twin
    }

    /// Member number `member` did not answer: it shows nobody, and is examined before it votes.
    pub fn hide(&mut self, member: usize) {
        if let Some(slot) = self.shown.get_mut(member) {
            *slot = None;
        }
    }
}
