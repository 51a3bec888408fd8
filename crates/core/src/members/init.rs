//! A new member list, all of whose nodes are admitted at once.

use std::time::Duration;

use super::{MemberList, TRIES, Told, read};
use crate::{
    Admission, AdmissionPolicy, AdmissionStep, ClockSample, Facts, Moment, NodeError, Origin,
    RecordState, Roster, Standing,
};

/// Why nobody was admitted by a person's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitRefusal {
    /// This member must not be.
    Refused {
        /// Its number in the list.
        member: usize,
        /// Why.
        reason: String,
    },
    /// This member is not there.
    Down {
        /// Its number in the list.
        member: usize,
        /// How that showed.
        error: NodeError,
    },
    /// Some know the cluster, and some do not.
    NotNew {
        /// One that does.
        known: usize,
        /// One that does not.
        blank: usize,
    },
}

/// The nodes of a new cluster, which are admitted at once on the word of a person that they never held
/// a lock.
#[derive(Debug, Clone)]
pub struct Init {
    list: MemberList,
    roster: Roster,
    /// When all members had answered.
    received: Moment,
}

impl Init {
    /// Judges the members of a new cluster, and says what is to be written to each: nothing where the
    /// cluster is admitted already. Every one must be there and none may know the cluster. Whoever
    /// waits because it restarted, lost some of its memory, or comes from another list, is refused.
    /// `lives` gives 128 fresh random bits each time.
    pub fn new(
        list: MemberList,
        told: Told<'_>,
        mut lives: impl FnMut() -> u128,
    ) -> Result<(Self, Vec<AdmissionStep>), InitRefusal> {
        let off = |(member, reason)| InitRefusal::Refused { member, reason };
        let mut roster = list.compare_clocks(told).map_err(off)?;
        let Told { sent, received, facts: all } = told;
        all.iter().enumerate().for_each(|(member, facts)| _ = roster.show(member, facts));
        let mut init = Self { list, roster, received };
        let (mut steps, mut is_known) = (Vec::new(), Vec::new());
        for (member, facts) in all.iter().enumerate() {
            let (admission, step) = init.examine(member, (sent, received), facts, lives());
            match admission.standing() {
                Standing::Refused { reason } | Standing::Foreign { reason } => {
                    return Err(InitRefusal::Refused { member, reason: reason.clone() });
                }
                Standing::Down(error) => {
                    return Err(InitRefusal::Down { member, error: error.clone() });
                }
                _ => {}
            }
            let record = read(facts).map(|(_, record)| record);
            is_known.push(record.as_ref().is_some_and(|r| r.state == RecordState::Admitted));
            if let Some(record) = record
                && record.state != RecordState::Admitted
                && record.origin != Origin::First
            {
                let reason = "it was a member before, and waits until everything that it may have \
                              granted is over; init is for servers that never held a lock"
                    .to_owned();
                return Err(InitRefusal::Refused { member, reason });
            }
            steps.push(step);
        }
        let known = is_known.iter().position(|is_known| *is_known);
        let blank = is_known.iter().position(|is_known| !is_known);
        match (known, blank) {
            (Some(known), Some(blank)) => Err(InitRefusal::NotNew { known, blank }),
            (Some(_), None) => Ok((init, Vec::new())),
            _ => Ok((init, steps)),
        }
    }

    /// What the members said is too old to write by: meanwhile somebody else may have set the cluster up,
    /// locks may have been granted, and a member that forgot them looks like a new one.
    pub fn is_stale(&self, now: Moment) -> bool {
        /// Long enough for the records of a list whose nodes are slow.
        const GOOD_FOR: Duration = Duration::from_secs(3);
        now.since(self.received) > GOOD_FOR
    }

    /// So often at most a record is written that another client changes meanwhile.
    pub const TRIES: usize = TRIES;

    /// A member whose record was not written, because another client had changed it, tells this: a
    /// client that looks at the same node wrote down that it waits, which changes nothing.
    pub fn again(
        &mut self,
        member: usize,
        asked: (Moment, Moment),
        facts: &Facts,
        life: u128,
    ) -> AdmissionStep {
        match read(facts) {
            Some((_, record)) if record.origin != Origin::First => AdmissionStep::Settled,
            _ => self.examine(member, asked, facts, life).1,
        }
    }

    /// Examines a member as if no quarantine were asked for.
    fn examine(
        &mut self,
        member: usize,
        (sent, received): (Moment, Moment),
        facts: &Facts,
        life: u128,
    ) -> (Admission, AdmissionStep) {
        let policy = AdmissionPolicy { quarantine: false, ..self.list.policy.clone() };
        let mut admission = Admission::new(policy, &self.list.names[member]);
        let twin = self.roster.show(member, facts);
        let sample = ClockSample { sent, received, clock: facts.clock };
        let peers = self.roster.peers(member, twin, sample);
        let step = admission.examine(sent, received, facts, life, &peers);
        (admission, step)
    }
}
