//! The commands, one file each.

pub(crate) mod acquire;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod extend;
pub(crate) mod force_release;
pub(crate) mod hold;
pub(crate) mod init;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod names;
pub(crate) mod nodes;
pub(crate) mod plan;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod watch;
