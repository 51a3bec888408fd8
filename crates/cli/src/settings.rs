//! The one place where settings come together: flags before environment before file before
//! default, each with its origin, each checked whoever set it.
//!
//! All of them are texts until they are checked, so a value is judged alike wherever it stands.

mod file;
mod serve;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::args::Global;
use crate::duration;
use crate::exit::Failure;
use crate::logging::Wanted;
use crate::output::ColorChoice;
use file::File;
pub(crate) use serve::{Serve, count};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    Environment(&'static str),
    File { path: PathBuf, line: usize },
    Default,
}

/// A value and its origin.
#[derive(Debug, Clone)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) source: Source,
}

/// What is in force.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where the locks live. May hold a password: shown by [`leasehold::without_password`] only.
    pub(crate) backend: Setting<String>,
    /// How long nodes keep a lease that nobody extends.
    pub(crate) ttl: Setting<Duration>,
    /// How long to wait for a lock; `None` for as long as it takes.
    pub(crate) wait: Setting<Option<Duration>>,
    /// Who holds, for people; `None` for `user@host:pid`.
    pub(crate) holder: Setting<Option<String>>,
    /// What opens a lock server, where the URL says nothing. Never shown.
    pub(crate) token: Setting<Option<Secret>>,
    /// When to use colors.
    pub(crate) color: Setting<ColorChoice>,
    /// Which traces to write.
    pub(crate) log: Setting<Option<Wanted>>,
    /// The file that was read.
    pub(crate) file: File,
}

/// A text that is never shown.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A setting's name in the file, and its variable. Not `LEASEHOLD_HOLDER`: `run` gives that to its
/// command, and it names one acquisition.
const KEYS: [(&str, &str); 7] = [
    ("backend", "LEASEHOLD_BACKEND"),
    ("ttl", "LEASEHOLD_TTL"),
    ("wait", "LEASEHOLD_WAIT"),
    ("holder", "LEASEHOLD_HOLDER_LABEL"),
    ("token", "LEASEHOLD_TOKEN"),
    ("color", "LEASEHOLD_COLOR"),
    ("log", "LEASEHOLD_LOG"),
];

/// Names a variable's value, if it is set.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Settings {
    /// Merges and checks. `environment` is asked for variables by name.
    pub(crate) fn resolve(
        global: &Global,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Failure> {
        let environment: Lookup<'_> = &environment;
        let file = File::find(global.config.as_deref(), environment)?;
        let layers = Layers { environment, file: &file };
        let color = global.color.and_then(|color| color.to_possible_value());
        let color = color.map(|value| value.get_name().to_owned());
        Ok(Self {
            backend: layers.get("backend", global.backend.clone(), "sqlite:", backend)?,
            ttl: layers.get("ttl", None, "10s", duration::parse)?,
            wait: layers.get("wait", None, "forever", wait)?,
            holder: layers.get("holder", None, "", optional)?,
            token: layers.get("token", None, "", |text| Ok(optional(text)?.map(Secret)))?,
            color: layers.get("color", color, "auto", |text| ColorChoice::from_str(text, false))?,
            log: layers
                .get("log", None, "", |text| optional(text)?.map(|t| t.parse()).transpose())?,
            file,
        })
    }

    /// How long a lease lasts, if a command's flag does not say it.
    pub(crate) fn ttl_or(&self, flag: Option<Duration>) -> Duration {
        flag.unwrap_or(self.ttl.value)
    }

    /// All values as they may be shown, in the order of the documentation.
    pub(crate) fn shown(&self) -> [(&'static str, String, &Source); 7] {
        let color = self.color.value.to_possible_value();
        let log = self.log.value.as_ref().map(|wanted| wanted.text.as_str());
        let wait = self.wait.value.map_or_else(|| "forever".to_owned(), duration::short);
        let or = |value: &Option<String>, default: &str| {
            value.clone().unwrap_or_else(|| default.to_owned())
        };
        [
            ("backend", leasehold::without_password(&self.backend.value), &self.backend.source),
            ("ttl", duration::short(self.ttl.value), &self.ttl.source),
            ("wait", wait, &self.wait.source),
            ("holder", or(&self.holder.value, "user@host:pid"), &self.holder.source),
            (
                "token",
                self.token.value.as_ref().map_or("none", |_| "***").into(),
                &self.token.source,
            ),
            ("color", color.map_or(String::new(), |c| c.get_name().to_owned()), &self.color.source),
            ("log", log.unwrap_or("off").to_owned(), &self.log.source),
        ]
    }
}

struct Layers<'a> {
    environment: Lookup<'a>,
    file: &'a File,
}

impl Layers<'_> {
    fn get<T>(
        &self,
        key: &'static str,
        flag: Option<String>,
        default: &str,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Setting<T>, Failure> {
        let (text, source) = match flag {
            Some(text) => (text, Source::Flag),
            None => self.below_flags(key)?.unwrap_or((default.to_owned(), Source::Default)),
        };
        match check(&text) {
            Ok(value) => Ok(Setting { value, source }),
            Err(reason) => Err(Failure::Config(format!("{}: {reason}", source.of(key)))),
        }
    }

    fn below_flags(&self, key: &'static str) -> Result<Option<(String, Source)>, Failure> {
        let variable = KEYS.iter().find(|(name, _)| *name == key).map(|(_, variable)| *variable);
        // Empty means unset, as everywhere else.
        let set = |variable: &&'static str| {
            (self.environment)(variable).filter(|value| !value.is_empty()).map(|v| (v, *variable))
        };
        if let Some((value, variable)) = variable.as_ref().and_then(set) {
            let text = value
                .into_string()
                .map_err(|_| Failure::Config(format!("{variable}: it is not UTF-8")))?;
            return Ok(Some((text, Source::Environment(variable))));
        }
        Ok(self.file.get(key).map(|(given, source)| (given.text().to_owned(), source)))
    }
}

impl Source {
    /// Names a value by its origin, for errors.
    fn of(&self, key: &str) -> String {
        match self {
            Self::Flag => format!("--{key}"),
            Self::Environment(variable) => (*variable).to_owned(),
            Self::File { .. } => format!("{self}: `{key}`"),
            Self::Default => key.to_owned(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Whether a URL holds something that must not be shown.
pub(crate) fn has_password(url: &str) -> bool {
    leasehold::without_password(url) != url
}

/// Only that there is one: the library judges it when it is opened.
fn backend(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty; write it like sqlite:PATH, redis://a,b,c or https://host".into()),
        text => Ok(text.to_owned()),
    }
}

fn wait(text: &str) -> Result<Option<Duration>, String> {
    if text == "forever" { Ok(None) } else { duration::parse(text).map(Some) }
}

fn optional(text: &str) -> Result<Option<String>, String> {
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
#[path = "settings/tests.rs"]
mod tests;
