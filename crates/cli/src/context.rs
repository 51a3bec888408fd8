//! What every command needs: where the locks are, and how to speak.

use leasehold::{Background, Builder, Locks};

use crate::args::Global;
use crate::exit::Failure;
use crate::logging::LogFormat;
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
}

impl Context {
    pub(crate) fn new(global: &Global, server: Option<LogFormat>) -> Result<Self, Failure> {
        let settings = Settings::resolve(global, |name| std::env::var_os(name))?;
        let output = Output::new(global.json, global.quiet, settings.color.value);
        logging::start(global.verbose, settings.log.value.as_deref(), &output, server)?;
        let backend = settings.backend.value.clone();
        if settings.backend.source == Source::Flag && settings::has_password(&backend) {
            output.note(
                "warning: everybody on this machine can read the password with ps; set \
                 LEASEHOLD_BACKEND, or `backend` in a settings file that only you can read",
            );
        }
        Ok(Self { backend, settings, output })
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
