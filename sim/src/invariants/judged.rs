//! What the judge promises to holders, told by what happens here. The judge knows no exception; each
//! known limit of the protocol that excuses a broken promise has a file of its own beside this one.

use leasehold_core::Holder;
use leasehold_judge::{Event, Promise, Violation, promises};

use super::{Terms, exclusion, fences, noticed};
use crate::clock::Time;
use crate::history::{Happening, Invariant, Shown, short};

/// A known limit of the protocol, by which a promise of the judge may be broken.
pub(super) trait Excuse {
    /// Whether what was excused is to be looked at again before this is taken in.
    fn looks_again(&self, _: &Happening) -> bool {
        false
    }

    /// Takes in what happens.
    fn watch(&mut self, now: Time, happening: &Happening);

    /// Whether this is what is left of the promise.
    fn covers(&mut self, now: Time, violation: &Violation<Holder>) -> bool;
}

/// A promise of the judge, and what excuses it, if anything does.
struct Judged {
    promise: Box<dyn Promise<Holder>>,
    excuse: Option<Box<dyn Excuse>>,
}

/// All promises of the judge.
pub(super) fn all(terms: Terms) -> impl Iterator<Item = Box<dyn Invariant>> {
    promises().into_iter().map(move |promise| {
        let excuse: Option<Box<dyn Excuse>> = match promise.name() {
            "exclusion" => Some(Box::new(exclusion::Excused::new(terms.nodes, terms.max_skew))),
            "fences" => Some(Box::new(fences::Excused::new(terms.others, terms.memory))),
            "noticed" => Some(Box::new(noticed::Excused::default())),
            _ => None,
        };
        Box::new(Judged { promise, excuse }) as Box<dyn Invariant>
    })
}

impl Judged {
    /// Those of `found` that nothing excuses, as a story.
    fn judge(&mut self, now: Time, found: Vec<Violation<Holder>>) -> Result<(), String> {
        let excuse = &mut self.excuse;
        let mut is_excused = |it: &Violation<_>| match excuse {
            Some(excuse) => excuse.covers(now, it),
            None => false,
        };
        // Each is shown to the excuse, which remembers what it excused.
        let broken: Vec<_> = found.iter().filter(|it| !is_excused(it)).collect();
        broken.first().map_or(Ok(()), |violation| Err(story(violation)))
    }
}

impl Invariant for Judged {
    fn promise(&self) -> &'static str {
        self.promise.name()
    }

    fn watch(&mut self, now: Time, happening: &Happening) -> Result<(), String> {
        let looks_again = self.excuse.as_ref().is_some_and(|it| it.looks_again(happening));
        let found = match looks_again {
            true => self.promise.see(now, &Event::Looked),
            false => Vec::new(),
        };
        let still = self.judge(now, found);
        if let Some(excuse) = &mut self.excuse {
            excuse.watch(now, happening);
        }
        let found = tell(&mut *self.promise, now, happening);
        still.and(self.judge(now, found))
    }
}

/// Tells the judge of what holders were told.
fn tell(
    promise: &mut dyn Promise<Holder>,
    now: Time,
    happening: &Happening,
) -> Vec<Violation<Holder>> {
    let event = match happening {
        Happening::Acquired { who, lock, fence, started, until, .. } => Event::Believes {
            who,
            lock: lock.as_str(),
            fence: *fence,
            asked: *started,
            until: *until,
        },
        Happening::Extended { who, started, until, .. } => {
            Event::Extended { who, asked: *started, until: *until }
        }
        Happening::Moved { who, until } => Event::Moved { who, until: *until },
        Happening::Lost { who } => Event::Lost { who },
        Happening::Done { who } => Event::Ended { who },
        Happening::Crashed { client } => {
            let label = format!("c{client}.");
            let is_gone = |who: &Holder| who.label().starts_with(&label);
            return promise.see(now, &Event::Vanished { is_gone: &is_gone });
        }
        _ => return Vec::new(),
    };
    promise.see(now, &event)
}

fn story(violation: &Violation<Holder>) -> String {
    match violation {
        Violation::Overlap { lock, first, second, until: [until, _], .. } => {
            let (who, other) = (short(second), short(first));
            format!("{who} and {other} both hold {lock}; the other until {}", Shown(*until))
        }
        Violation::SameFence { lock, fence, given, second, .. } => format!(
            "{} got fence {fence} of {lock}, which was given at {} already",
            short(second),
            Shown(*given)
        ),
        Violation::LowerFence { lock, before, second, asked, fence, .. } => format!(
            "{} began at {} and got fence {fence} of {lock}, but {before} was given before",
            short(second),
            Shown(*asked)
        ),
        Violation::LateExtension { who, fence, asked, later, complete } => format!(
            "{}, who has fence {fence}, began to extend at {} and succeeded, though {later} was \
             acquired at {}",
            short(who),
            Shown(*asked),
            Shown(*complete)
        ),
        Violation::NotTold { lock, first, end, second } => format!(
            "{} has {lock} now, but {} was never told (it was good until {})",
            short(second),
            short(first),
            Shown(*end)
        ),
        Violation::HeldAgain { who, lost, until } => format!(
            "{} was told at {} that it lost, and holds again until {}",
            short(who),
            Shown(*lost),
            Shown(*until)
        ),
    }
}
