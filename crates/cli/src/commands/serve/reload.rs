//! Reading everything again while the server runs: settings, tokens, certificates. All of it is checked
//! before any of it is put in force.

use leasehold_server::Server;
use tracing::{error, warn};

use super::Args;
use crate::args::Global;
use crate::context::Context;
use crate::exit::Failure;
use crate::logging;
use crate::settings::{Serve, Settings};

/// What a server was started with, and what is in force by now.
pub(super) struct InForce<'a> {
    pub(super) flags: &'a Args,
    pub(super) global: &'a Global,
    pub(super) context: &'a Context,
    /// What the backend is called.
    pub(super) kind: &'a str,
    pub(super) serve: Serve,
}

impl InForce<'_> {
    /// What was good goes on if what is new is not.
    pub(super) fn reload(&mut self, server: &Server) {
        match self.try_reload(server) {
            Ok(differs) if differs.is_empty() => {}
            Ok(differs) => warn!(
                target: "leasehold_server",
                "changed, but only a restart puts it in force: {}",
                differs.join(", ")
            ),
            Err(problem) => {
                // A hint stands in a line of its own, a log does not.
                let problem = problem.to_string().replace('\n', "; ");
                error!(target: "leasehold_server", "not read again, the old ones stand: {problem}");
            }
        }
    }

    /// Names what changed but cannot be put in force.
    fn try_reload(&mut self, server: &Server) -> Result<Vec<String>, Failure> {
        let settings = Settings::resolve(self.global, |name| std::env::var_os(name))?;
        let mut serve = Serve::resolve(self.flags, &settings)?;
        // As it would start, and as it goes on with what cannot change.
        serve.check()?;
        let mut differs = self.differs(&settings);
        differs.extend(serve.keep_what_cannot_change(&self.serve));
        serve.check()?;
        let format = Some(serve.log_format.value);
        let filter = logging::filter(self.global.verbose, settings.log.value.as_ref(), format);
        server.reload(&serve.for_server(self.kind))?;
        if let Some(filter) = filter {
            self.context.logs.replace(filter);
        }
        self.serve = serve;
        Ok(differs)
    }

    /// The settings of all commands that a server reads only when it starts. The others are for those
    /// who acquire.
    fn differs(&self, settings: &Settings) -> Vec<String> {
        let running = &self.context.settings;
        let backend = settings.backend.value != running.backend.value;
        let color = settings.color.value != running.color.value;
        let all = [
            (backend, "backend", &settings.backend.source),
            (color, "color", &settings.color.source),
        ];
        let differ = all.into_iter().filter(|(differs, ..)| *differs);
        differ.map(|(_, key, source)| format!("`{key}` ({source})")).collect()
    }
}
