//! After the last fault every holder of a process gets the lock, if there is a list that its nodes serve. Callers
//! do not stand in line by themselves.

use std::collections::HashSet;

use super::readings::process_of;
use crate::clock::Time;
use crate::history::{Happening, Invariant};

/// Who has had it since.
#[derive(Debug)]
pub(super) struct Served {
    clients: usize,
    holders: usize,
    is_calm: bool,
    served: HashSet<String>,
}

impl Served {
    pub(super) fn new(clients: usize, holders: usize) -> Self {
        Self { clients, holders, is_calm: false, served: HashSet::new() }
    }
}

impl Invariant for Served {
    fn promise(&self) -> &'static str {
        "served"
    }

    fn watch(&mut self, _: Time, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::FaultsOver => self.is_calm = true,
            // Nobody but a person can tell which list is to be served.
            Happening::NoList => self.holders = 0,
            Happening::Acquired { who, .. } if self.is_calm && process_of(who).0 < self.clients => {
                self.served.insert(who.label().to_owned());
            }
            Happening::Rest { .. } if self.served.len() < self.holders => {
                return Err(format!(
                    "{} of {} holders got their lock after the last fault",
                    self.served.len(),
                    self.holders
                ));
            }
            _ => {}
        }
        Ok(())
    }
}
