//! Two holders never both have validity left.

use std::collections::HashMap;

use leasehold_core::{Holder, LockName};

use crate::clock::Time;
use crate::history::{Happening, Invariant, Shown, short};

/// Who believes to hold what, and until when.
#[derive(Debug, Default)]
pub(super) struct Exclusion {
    believers: HashMap<LockName, Vec<(Holder, Time)>>,
}

impl Exclusion {
    fn check(&self, now: Time, lock: &LockName, who: &Holder) -> Result<(), String> {
        let others = self.believers.get(lock).into_iter().flatten();
        match others.filter(|(other, _)| other != who).find(|(_, until)| *until > now) {
            None => Ok(()),
            Some((other, until)) => Err(format!(
                "{} and {} both hold {lock}; the other until {}",
                short(who),
                short(other),
                Shown(*until)
            )),
        }
    }

    fn forget(&mut self, is_gone: impl Fn(&Holder) -> bool) {
        for believers in self.believers.values_mut() {
            believers.retain(|(holder, _)| !is_gone(holder));
        }
    }
}

impl Invariant for Exclusion {
    fn promise(&self) -> &'static str {
        "exclusion"
    }

    fn watch(&mut self, now: Time, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::Acquired { who, lock, until, .. } => {
                self.check(now, lock, who)?;
                self.believers.entry(lock.clone()).or_default().push((who.clone(), *until));
            }
            Happening::Extended { who, until, .. } => {
                let mut of = None;
                for (lock, believers) in &mut self.believers {
                    if let Some(believer) = believers.iter_mut().find(|(holder, _)| holder == who) {
                        believer.1 = believer.1.max(*until);
                        of = Some(lock.clone());
                    }
                }
                if let Some(lock) = of {
                    self.check(now, &lock, who)?;
                }
            }
            Happening::Lost { who } | Happening::Done { who } => self.forget(|gone| gone == who),
            Happening::Crashed { client } => {
                let label = format!("c{client}.");
                self.forget(|gone| gone.label().starts_with(&label));
            }
            _ => {}
        }
        Ok(())
    }
}
