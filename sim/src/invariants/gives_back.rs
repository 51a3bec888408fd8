//! Nothing is held when nobody holds: some time after everybody had the lock for the last time, no
//! node has an owner.

use crate::clock::Time;
use crate::history::{Happening, Invariant, short};

#[derive(Debug)]
pub(super) struct GivesBack;

impl Invariant for GivesBack {
    fn promise(&self) -> &'static str {
        "gives back"
    }

    fn watch(&mut self, _: Time, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::Rest { owners } => match owners.first() {
                None => Ok(()),
                Some((node, owner)) => {
                    Err(format!("node {node} is still owned by {}", short(owner)))
                }
            },
            _ => Ok(()),
        }
    }
}
