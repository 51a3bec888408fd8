//! What Leasehold promises to holders, judged by what holders were told; and chance from a seed.
//!
//! Simulation, chaos, the simulated driver and bench tell the same promises what happened, each in
//! its own names for holders (`W`) and by its own clock, in nanoseconds. A [`Promise`] knows no
//! exception: it reports each [`Violation`] with the holders and the times. Whether a known limit of
//! the protocol excuses it is decided by the side that told the event, because only that side knows
//! which clocks were set and which machines stood still. A promise that needs votes, servers or
//! clocks to be judged is judged where these are seen.

mod chance;
mod exclusion;
mod fences;
mod holds;
mod lost;
mod noticed;
pub mod rules;
mod superseded;

use leasehold_core::Fence;

pub use chance::Chance;
pub use exclusion::Exclusion;
pub use fences::Fences;
pub use lost::Lost;
pub use noticed::Noticed;
pub use superseded::Superseded;

/// What a holder was told, or did about it. A holder is anybody who was told: a guard, a child of
/// `run`, a caller of the HTTP API. Its name stands for one acquisition.
pub enum Event<'a, W> {
    /// It was told that it has a lock.
    Believes {
        /// The holder.
        who: &'a W,
        /// The lock's name.
        lock: &'a str,
        /// Its fence.
        fence: Fence,
        /// When it asked.
        asked: u64,
        /// Until when it believes to hold.
        until: u64,
    },
    /// An extension of its lease succeeded.
    Extended {
        /// The holder.
        who: &'a W,
        /// When the extension was sent.
        asked: u64,
        /// Until when it believes to hold now.
        until: u64,
    },
    /// Its deadline moved, or was looked at again.
    Moved {
        /// The holder.
        who: &'a W,
        /// Until when it believes to hold now.
        until: u64,
    },
    /// It was told that its lease is lost.
    Lost {
        /// The holder.
        who: &'a W,
    },
    /// It is done, and believes nothing more.
    Ended {
        /// The holder.
        who: &'a W,
    },
    /// Its process is gone, with all holders in it.
    Vanished {
        /// Which holders these are.
        is_gone: &'a dyn Fn(&W) -> bool,
    },
    /// Somebody looks at all who believe to hold something.
    Looked,
}

/// How a promise was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation<W> {
    /// Two hold one lock at the same time.
    Overlap {
        /// The lock's name.
        lock: String,
        /// Who had it.
        first: W,
        /// Who got it nevertheless.
        second: W,
        /// When that was seen.
        at: u64,
        /// Until when each of them believes.
        until: [u64; 2],
    },
    /// A fence was given twice.
    SameFence {
        /// The lock's name.
        lock: String,
        /// The fence.
        fence: Fence,
        /// Who had it.
        first: W,
        /// When that was told so.
        given: u64,
        /// Who got it again.
        second: W,
    },
    /// An acquisition that began after another was complete did not get a higher fence.
    LowerFence {
        /// The lock's name.
        lock: String,
        /// Who had the highest fence when the second one asked.
        first: W,
        /// That fence.
        before: Fence,
        /// Who asked later.
        second: W,
        /// When.
        asked: u64,
        /// The fence that it got.
        fence: Fence,
    },
    /// An extension that was sent after a later acquisition was complete succeeded.
    LateExtension {
        /// Who extended.
        who: W,
        /// With which fence.
        fence: Fence,
        /// When it sent the extension.
        asked: u64,
        /// The fence of the later acquisition.
        later: Fence,
        /// When that was complete.
        complete: u64,
    },
    /// A lease was over and its holder was not told before another one got the lock.
    NotTold {
        /// The lock's name.
        lock: String,
        /// Who was not told.
        first: W,
        /// When its lease was over.
        end: u64,
        /// Who got the lock.
        second: W,
    },
    /// A lease that was lost is held again.
    HeldAgain {
        /// The holder.
        who: W,
        /// When it was told of its loss.
        lost: u64,
        /// Until when it believes to hold now.
        until: u64,
    },
}

/// Something that must be so, whatever happens.
pub trait Promise<W> {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Hears what happened at `at`, and says how that breaks the promise. Events come in the order
    /// of time.
    fn see(&mut self, at: u64, event: &Event<'_, W>) -> Vec<Violation<W>>;
}

/// All promises.
pub fn promises<W: Clone + Eq + std::hash::Hash + 'static>() -> Vec<Box<dyn Promise<W>>> {
    vec![
        Box::new(Exclusion::default()),
        Box::new(Fences::default()),
        Box::new(Superseded::default()),
        Box::new(Noticed::default()),
        Box::new(Lost::default()),
    ]
}

#[cfg(test)]
mod testing {
    use leasehold_core::Fence;

    use crate::Event;

    pub(crate) fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    /// Of lock `l`.
    pub(crate) fn believes(who: &u32, number: u64, asked: u64, until: u64) -> Event<'_, u32> {
        Event::Believes { who, lock: "l", fence: fence(number), asked, until }
    }

    pub(crate) fn extended(who: &u32, asked: u64, until: u64) -> Event<'_, u32> {
        Event::Extended { who, asked, until }
    }
}
