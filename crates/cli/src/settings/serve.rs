//! The settings of `leasehold serve`: its flags before the table `[serve]` of the file before the
//! defaults.
//!
//! They have no variables: the file can be read again while the server runs, an environment cannot.

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use leasehold_server::{Limits, Network, TlsFiles};

use super::file::Kind;
use super::{Setting, Settings, Source};
use crate::commands::serve::Args;
use crate::duration;
use crate::exit::Failure;
use crate::logging::LogFormat;

/// The keys of the table, which are the names of the flags. Not `trust-new-nodes`: that is somebody's
/// word for one start.
pub(super) const KEYS: [(&str, Kind); 16] = [
    ("listen", Kind::Text),
    ("tokens", Kind::Text),
    ("tls-cert", Kind::Text),
    ("tls-key", Kind::Text),
    ("client-ca", Kind::Text),
    ("insecure", Kind::Switch),
    ("log-format", Kind::Text),
    ("max-wait", Kind::Text),
    ("max-connections", Kind::Text),
    ("max-waiters", Kind::Text),
    ("max-waiters-per-token", Kind::Text),
    ("max-requests-per-token", Kind::Text),
    ("metrics-lock", Kind::List),
    ("trusted-proxies", Kind::List),
    ("drain-notice", Kind::Text),
    ("drain", Kind::Text),
];

/// A load balancer asks every second or two, and believes the second answer.
const DRAIN_NOTICE: Duration = Duration::from_secs(5);

/// What is in force at a server.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) listen: Setting<SocketAddr>,
    tokens: Setting<Option<PathBuf>>,
    tls_cert: Setting<Option<PathBuf>>,
    tls_key: Setting<Option<PathBuf>>,
    client_ca: Setting<Option<PathBuf>>,
    insecure: Setting<bool>,
    pub(crate) log_format: Setting<LogFormat>,
    max_wait: Setting<Duration>,
    max_connections: Setting<usize>,
    max_waiters: Setting<usize>,
    max_waiters_per_token: Setting<usize>,
    max_requests_per_token: Setting<usize>,
    metrics_lock: Setting<Vec<String>>,
    trusted_proxies: Setting<Vec<Network>>,
    pub(crate) drain_notice: Setting<Duration>,
    drain: Setting<Duration>,
}

impl Serve {
    /// Merges what was typed with what the file says.
    pub(crate) fn resolve(flags: &Args, settings: &Settings) -> Result<Self, Failure> {
        let limits = Limits::default();
        let file = |key| InFile { key, settings };
        let path = |key, flag: &Option<PathBuf>| file(key).or(flag.clone().map(Some), None, path);
        let number = |key, flag, default| file(key).or(flag, default, count);
        let time = |key, flag, default| file(key).or(flag, default, duration::parse);
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 7717));
        Ok(Self {
            listen: file("listen").or(flags.listen, listen, address)?,
            tokens: path("tokens", &flags.tokens)?,
            tls_cert: path("tls-cert", &flags.tls_cert)?,
            tls_key: path("tls-key", &flags.tls_key)?,
            client_ca: path("client-ca", &flags.client_ca)?,
            insecure: file("insecure").or(flags.insecure.then_some(true), false, switch)?,
            log_format: file("log-format").or(flags.log_format, LogFormat::Text, format)?,
            max_wait: time("max-wait", flags.max_wait, limits.max_wait)?,
            max_connections: number(
                "max-connections",
                flags.max_connections,
                limits.max_connections,
            )?,
            max_waiters: number("max-waiters", flags.max_waiters, limits.max_waiters)?,
            max_waiters_per_token: number(
                "max-waiters-per-token",
                flags.max_waiters_per_token,
                limits.max_waiters_per_token,
            )?,
            max_requests_per_token: number(
                "max-requests-per-token",
                flags.max_requests_per_token,
                limits.max_requests_per_token,
            )?,
            metrics_lock: file("metrics-lock").or_list(&flags.metrics_lock),
            trusted_proxies: file("trusted-proxies").or_networks(&flags.trusted_proxies)?,
            drain_notice: time("drain-notice", flags.drain_notice, DRAIN_NOTICE)?,
            drain: time("drain", flags.drain, limits.drain)?,
        })
    }

    /// What fits only together.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match (&self.tls_cert.value, &self.tls_key.value, &self.client_ca.value) {
            (Some(_), None, _) => Err(Failure::Usage("--tls-cert needs --tls-key".into())),
            (None, Some(_), _) => Err(Failure::Usage("--tls-key needs --tls-cert".into())),
            (None, None, Some(_)) => {
                Err(Failure::Usage("--client-ca needs --tls-cert and --tls-key".into()))
            }
            _ => self.check_reach(),
        }
    }

    /// Whoever can reach the port may otherwise take every lock, or read every token.
    fn check_reach(&self) -> Result<(), Failure> {
        let listen = self.listen.value;
        if listen.ip().is_loopback() || self.insecure.value {
            return Ok(());
        }
        let missing = match (&self.tokens.value, &self.tls_cert.value) {
            (Some(_), Some(_)) => return Ok(()),
            (None, Some(_)) => "--tokens is",
            (Some(_), None) => "--tls-cert and --tls-key are",
            (None, None) => "--tokens, --tls-cert and --tls-key are",
        };
        Err(Failure::Usage(format!(
            "{listen} can be reached from other machines, and {missing} missing\n\
             hint: give them, or listen on 127.0.0.1, or say --insecure if something else protects it"
        )))
    }

    /// Takes from `running` what a server cannot change while it runs, and names what differs.
    pub(crate) fn keep_what_cannot_change(&mut self, running: &Self) -> Vec<String> {
        let mut differs = Vec::new();
        let mut note = |key, source: &Source| differs.push(format!("`serve.{key}` ({source})"));
        if self.listen.value != running.listen.value {
            note("listen", &self.listen.source);
            self.listen = running.listen.clone();
        }
        if self.log_format.value != running.log_format.value {
            note("log-format", &self.log_format.source);
            self.log_format = running.log_format.clone();
        }
        // A file that went away must not let everybody in.
        if self.tokens.value.is_none() && running.tokens.value.is_some() {
            note("tokens", &self.tokens.source);
            self.tokens = running.tokens.clone();
        }
        // Other certificates can be read, but callers know whether they speak HTTPS.
        if self.tls_cert.value.is_some() != running.tls_cert.value.is_some() {
            note("tls-cert", &self.tls_cert.source);
            self.tls_cert = running.tls_cert.clone();
            self.tls_key = running.tls_key.clone();
            self.client_ca = running.client_ca.clone();
        }
        differs
    }

    /// As the server wants it.
    pub(crate) fn for_server(&self, backend: &str) -> leasehold_server::Settings {
        let mut settings = leasehold_server::Settings::default();
        settings.backend = backend.to_owned();
        settings.tokens = self.tokens.value.clone();
        settings.tls = self.tls();
        settings.metrics_locks = self.metrics_lock.value.clone();
        settings.trusted_proxies = self.trusted_proxies.value.clone();
        settings.limits.max_wait = self.max_wait.value;
        settings.limits.max_connections = self.max_connections.value;
        settings.limits.max_waiters = self.max_waiters.value;
        settings.limits.max_waiters_per_token = self.max_waiters_per_token.value;
        settings.limits.max_requests_per_token = self.max_requests_per_token.value;
        settings.limits.drain = self.drain.value;
        settings
    }

    fn tls(&self) -> Option<TlsFiles> {
        let (cert, key) = (self.tls_cert.value.clone()?, self.tls_key.value.clone()?);
        Some(TlsFiles { cert, key, client_ca: self.client_ca.value.clone() })
    }

    /// All values as they may be shown, in the order of the documentation.
    pub(crate) fn shown(&self) -> Vec<(&'static str, String, &Source)> {
        fn path(setting: &Setting<Option<PathBuf>>) -> (String, &Source) {
            let text = setting.value.as_ref().map(|path| path.display().to_string());
            (text.unwrap_or_else(|| "none".into()), &setting.source)
        }
        fn plain<T: Display>(setting: &Setting<T>) -> (String, &Source) {
            (setting.value.to_string(), &setting.source)
        }
        fn time(setting: &Setting<Duration>) -> (String, &Source) {
            (duration::short(setting.value), &setting.source)
        }
        let format = self.log_format.value.to_possible_value();
        let format = format.map_or(String::new(), |format| format.get_name().to_owned());
        let locks = match &self.metrics_lock.value[..] {
            [] => "none".to_owned(),
            locks => locks.join(", "),
        };
        let proxies: Vec<_> = self.trusted_proxies.value.iter().map(Network::to_string).collect();
        let proxies = if proxies.is_empty() { "none".to_owned() } else { proxies.join(", ") };
        let values = [
            plain(&self.listen),
            path(&self.tokens),
            path(&self.tls_cert),
            path(&self.tls_key),
            path(&self.client_ca),
            plain(&self.insecure),
            (format, &self.log_format.source),
            time(&self.max_wait),
            plain(&self.max_connections),
            plain(&self.max_waiters),
            plain(&self.max_waiters_per_token),
            plain(&self.max_requests_per_token),
            (locks, &self.metrics_lock.source),
            (proxies, &self.trusted_proxies.source),
            time(&self.drain_notice),
            time(&self.drain),
        ];
        let rows = KEYS.iter().zip(values);
        rows.map(|((key, _), (value, source))| (*key, value, source)).collect()
    }
}

/// A key of the table.
struct InFile<'a> {
    key: &'static str,
    settings: &'a Settings,
}

impl InFile<'_> {
    fn or<T>(
        self,
        flag: Option<T>,
        default: T,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Setting<T>, Failure> {
        if let Some(value) = flag {
            return Ok(Setting { value, source: Source::Flag });
        }
        let name = format!("serve.{}", self.key);
        let Some((given, source)) = self.settings.file.get(&name) else {
            return Ok(Setting { value: default, source: Source::Default });
        };
        match check(given.text()) {
            Ok(value) => Ok(Setting { value, source }),
            Err(reason) => Err(Failure::Config(format!("{}: {reason}", source.of(&name)))),
        }
    }

    fn or_list(self, flags: &[String]) -> Setting<Vec<String>> {
        if !flags.is_empty() {
            return Setting { value: flags.to_vec(), source: Source::Flag };
        }
        match self.settings.file.get(&format!("serve.{}", self.key)) {
            Some((given, source)) => Setting { value: given.texts.clone(), source },
            None => Setting { value: Vec::new(), source: Source::Default },
        }
    }
}

impl InFile<'_> {
    fn or_networks(self, flags: &[Network]) -> Result<Setting<Vec<Network>>, Failure> {
        let name = format!("serve.{}", self.key);
        let given = self.or_list(&flags.iter().map(Network::to_string).collect::<Vec<_>>());
        let networks = given.value.iter().map(|text| text.parse());
        let value = networks
            .collect::<Result<_, String>>()
            .map_err(|reason| Failure::Config(format!("{}: {reason}", given.source.of(&name))))?;
        Ok(Setting { value, source: given.source })
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let reason = |_| format!("`{text}` is not an address; write it like 127.0.0.1:7717");
    text.parse().map_err(reason)
}

fn path(text: &str) -> Result<Option<PathBuf>, String> {
    if text.is_empty() { Err("it is empty".into()) } else { Ok(Some(text.into())) }
}

fn switch(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "write true or false".into())
}

fn format(text: &str) -> Result<LogFormat, String> {
    LogFormat::from_str(text, false).map_err(|_| format!("`{text}` is not one of text, json"))
}

/// A number of whatever is limited.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("`{text}` is not a number above zero")),
        Ok(number) => Ok(number),
    }
}

#[cfg(test)]
mod tests;
