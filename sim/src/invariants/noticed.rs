//! A holder that lost its lease has been told before another one has the lock, unless it stood
//! still.

use std::collections::HashMap;

use leasehold_core::{Holder, LockName};

use crate::clock::Time;
use crate::history::{Happening, Invariant, Shown, short};

/// Who has not been told yet, and who stands still.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    holders: HashMap<Holder, (LockName, Time)>,
    pauses: HashMap<usize, (Time, Time)>,
}

impl Noticed {
    fn forget(&mut self, who: &Holder) {
        self.holders.remove(who);
    }

    /// Whether it stood still at any time from `since` to `now`.
    fn stood_still(&self, who: &Holder, since: Time, now: Time) -> bool {
        let client = who.label()[1..].split('.').next().and_then(|number| number.parse().ok());
        let pause = client.and_then(|client: usize| self.pauses.get(&client));
        pause.is_some_and(|(from, until)| *from <= now && *until >= since)
    }
}

impl Invariant for Noticed {
    fn promise(&self) -> &'static str {
        "noticed"
    }

    fn watch(&mut self, now: Time, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::Acquired { who, lock, until, .. } => {
                let ignorant = self.holders.iter().find(|(other, (of, good))| {
                    // Two who both believe to hold are another promise's business.
                    let is_over = *good <= now;
                    *other != who && of == lock && is_over && !self.stood_still(other, *good, now)
                });
                if let Some((other, (_, good))) = ignorant {
                    return Err(format!(
                        "{} has {lock} now, but {} was never told (it was good until {})",
                        short(who),
                        short(other),
                        Shown(*good)
                    ));
                }
                self.holders.insert(who.clone(), (lock.clone(), *until));
            }
            Happening::Extended { who, until, .. } | Happening::Moved { who, until } => {
                if let Some((_, good)) = self.holders.get_mut(who) {
                    *good = *until;
                }
            }
            Happening::Lost { who } | Happening::Done { who } => self.forget(who),
            Happening::Paused { client, until } | Happening::StoodStill { client, until, .. } => {
                self.pauses.insert(*client, (now, *until));
            }
            Happening::Crashed { client } => {
                let label = format!("c{client}.");
                self.holders.retain(|holder, _| !holder.label().starts_with(&label));
            }
            _ => {}
        }
        Ok(())
    }
}
