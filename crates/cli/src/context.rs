//! What every command needs: where the locks are, and how to speak.

use leasehold::{Background, Builder, Locks};

use crate::args::Global;
use crate::exit::Failure;
use crate::logging::{LogFormat, Logs};
use crate::output::Output;
use crate::settings::{Settings, Source};
use crate::{logging, settings};

/// Settings that are in force, after flags, environment and file.
#[derive(Debug)]
pub(crate) struct Context {
    /// The backend URL. May hold a password: never shown.
    pub(crate) backend: String,
    /// Everything that was set, and where.
    pub(crate) settings: Settings,
    /// How to speak.
    pub(crate) output: Output,
    /// What goes into the log.
    pub(crate) logs: Logs,
}

impl Context {
    /// `server` says how a server writes its logs, if this is one.
    pub(crate) fn new(global: &Global, settings: Settings, server: Option<LogFormat>) -> Self {
        let output = Output::new(global.json, global.quiet, settings.color.value);
        let filter = logging::filter(global.verbose, settings.log.value.as_ref(), server);
        let logs = filter.map_or_else(Logs::default, |filter| Logs::start(filter, &output, server));
        let backend = settings.backend.value.clone();
        if settings.backend.source == Source::Flag && settings::has_password(&backend) {
            output.note(
                "warning: everybody on this machine can read the password with ps; set \
                 LEASEHOLD_BACKEND, or `backend` in a settings file that only you can read",
            );
        }
        Self { backend, settings, output, logs }
    }

    /// Opens the backend. Its background work is done where the command runs: nothing here blocks,
    /// and a thread of its own costs a millisecond that a short `run` would feel.
    pub(crate) async fn open(&self) -> Result<Locks, Failure> {
        Ok(self.builder().open().await?)
    }

    /// What the settings say about the backend.
    pub(crate) fn builder(&self) -> Builder {
        let mut builder =
            Locks::builder().url(&self.backend).background(Background::CurrentRuntime);
        if let Some(label) = &self.settings.holder.value {
            builder = builder.holder(label);
        }
        if let Some(token) = &self.settings.token.value {
            builder = builder.token(&token.0);
        }
        builder
    }
}
