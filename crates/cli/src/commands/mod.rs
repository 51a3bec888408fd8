//! The commands, one file each.

pub(crate) mod hold;
pub(crate) mod run;
