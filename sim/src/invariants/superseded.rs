//! An extension that began after a later holder had acquired fails, whatever the clocks do.

use std::collections::HashMap;

use leasehold_core::{Fence, Holder, LockName};

use crate::clock::Time;
use crate::history::{Happening, Invariant, Shown, short};

/// Who acquired what, when and with which fence.
#[derive(Debug, Default)]
pub(super) struct Superseded {
    acquired: HashMap<LockName, Vec<(Time, Fence)>>,
    /// What each holder has, and since when.
    holders: HashMap<Holder, (LockName, Fence, Time)>,
}

impl Invariant for Superseded {
    fn promise(&self) -> &'static str {
        "superseded"
    }

    fn watch(&mut self, now: Time, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::Acquired { who, lock, fence, .. } => {
                self.acquired.entry(lock.clone()).or_default().push((now, *fence));
                self.holders.insert(who.clone(), (lock.clone(), *fence, now));
            }
            Happening::Extended { who, started, .. } => {
                let Some((lock, own, since)) = self.holders.get(who) else { return Ok(()) };
                let later = self.acquired[lock].iter().find(|(complete, fence)| {
                    since < complete && complete <= started && fence > own
                });
                if let Some((complete, fence)) = later {
                    return Err(format!(
                        "{}, who has fence {own}, began to extend at {} and succeeded, though \
                         {fence} was acquired at {}",
                        short(who),
                        Shown(*started),
                        Shown(*complete)
                    ));
                }
            }
            Happening::Lost { who } | Happening::Done { who } => {
                self.holders.remove(who);
            }
            _ => {}
        }
        Ok(())
    }
}
