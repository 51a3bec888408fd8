//! Commands in namespaces of their own, as containers have them: other mounts, another boot clock.
//! Making one takes rights that not every machine gives, and nothing that could be fetched.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// What a command has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Its mounts.
    Mounts,
    /// Its boot clock, ahead of the machine's by so many seconds; behind it, if that is negative.
    BootClock(i64),
    /// Its processes and their users: all below its first process end with that one.
    Processes,
}

impl Namespace {
    /// `unshare`, to be given a program and its arguments.
    pub fn unshare(self) -> Command {
        let mut command = Command::new("unshare");
        match self {
            Self::Mounts => command.arg("--mount"),
            Self::Processes => command.args(["--user", "--map-root-user", "--pid", "--fork"]),
            Self::BootClock(ahead) => command.args(["--time", "--boottime"]).arg(ahead.to_string()),
        };
        command
    }

    /// `command`, in such a namespace, after `setup` has run there in a shell.
    ///
    /// Arguments and variables of `command` are kept, its other settings are not.
    pub fn enter(self, setup: &str, command: &Command) -> Command {
        let mut inside = self.unshare();
        inside.args(["sh", "-ec", &format!("{setup}\nexec \"$0\" \"$@\"")]);
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// True when the calling test should return early, because this machine gives no such namespace.
    /// That is said where `./test` counts it.
    #[must_use]
    pub fn skip(self) -> bool {
        let tried = self.unshare().arg("true").stderr(Stdio::null()).status();
        if tried.is_ok_and(|status| status.success()) {
            return false;
        }
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let line = format!("SKIPPED: {test}: no right to make a namespace ({self:?})\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
        true
    }
}
