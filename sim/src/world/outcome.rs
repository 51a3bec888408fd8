//! What came of a run, and how much happened in it.

use std::fmt;

use crate::clock::Time;
use crate::history::{Happening, Violation};

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What broke, and when; of each promise the first time.
    pub violations: Vec<(Time, Violation)>,
    /// What happened, if it was to be told.
    pub timeline: Vec<(Time, Happening)>,
    /// How much happened.
    pub figures: Figures,
}

/// How much happened.
#[derive(Debug, Default, Clone, Copy)]
pub struct Figures {
    /// Events in all.
    pub events: u64,
    /// Locks acquired.
    pub acquired: u64,
    /// Among these, handed over.
    pub handed_over: u64,
    /// Among these, with a reserved fence.
    pub reserved: u64,
    /// Leases extended.
    pub extended: u64,
    /// Among these, with a raised token.
    pub refreshed: u64,
    /// Leases lost.
    pub lost: u64,
    /// Locks that callers were told to have.
    pub told: u64,
    /// Renewals that they were told of.
    pub renewed: u64,
    /// Releases that they were told of.
    pub released: u64,
    /// Leases that they made up.
    pub lies: u64,
    /// Things done to the world.
    pub faults: u64,
    /// Among these, changes of the servers behind the members' addresses.
    pub changes: u64,
    /// How often the clock of a server was set.
    pub clocks: u64,
    /// How often the clock of a process stood still.
    pub frozen: u64,
    /// How often a person set the cluster up.
    pub inits: u64,
    /// Processes that started late.
    pub late: u64,
    /// Processes that were told another longest lease than all others.
    pub odd: u64,
    /// Changes of the member list that were begun, or begun once more.
    pub successions: u64,
    /// Among these, those that took place.
    pub succeeded: u64,
    /// Worlds in which no list was left that all its nodes serve.
    pub no_list: u64,
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.acquired += other.acquired;
        self.handed_over += other.handed_over;
        self.reserved += other.reserved;
        self.extended += other.extended;
        self.refreshed += other.refreshed;
        self.lost += other.lost;
        self.told += other.told;
        self.renewed += other.renewed;
        self.released += other.released;
        self.lies += other.lies;
        self.faults += other.faults;
        self.changes += other.changes;
        self.clocks += other.clocks;
        self.frozen += other.frozen;
        self.inits += other.inits;
        self.late += other.late;
        self.odd += other.odd;
        self.successions += other.successions;
        self.succeeded += other.succeeded;
        self.no_list += other.no_list;
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, acquired, handed_over, extended, refreshed, lost, faults, .. } = self;
        let Self { changes, clocks, frozen, inits, late, odd, .. } = self;
        let Self { successions, succeeded, no_list, told, renewed, released, lies, .. } = self;
        let Self { reserved, .. } = self;
        write!(
            f,
            "{events} events, {faults} faults, {changes} of them to servers, {clocks} clocks set, \
             {frozen} processes frozen, {late} started late, {odd} told another max_ttl, set up \
             {inits} times, {successions} changes of the list begun, {succeeded} done, {no_list} left \
             without a list, {acquired} acquired, {handed_over} of them handed over, {reserved} \
             of these with a reserved fence, {extended} extended, {refreshed} of them refreshed, \
             {lost} lost; callers were told of {told} leases, {renewed} renewals and {released} \
             releases, and made {lies} up"
        )
    }
}
