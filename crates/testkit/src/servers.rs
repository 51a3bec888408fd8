//! Real servers that do not behave: started on a port of their own, killed, paused, restarted with
//! or without their memory, and with a clock that jumps.
//!
//! A server is its folder: `server.conf`, `data/`, `server.log`, the socket and the clock file. A
//! restart uses the same folder and port; dropping the server kills it and removes the folder.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::clock_shim::WallClock;
use crate::locate::Need;
use crate::ports::ReservedPort;
use crate::resp::{CallError, Connection, Value};
use crate::spawn::{bound_command, spawn};
use crate::tls::TlsFiles;
use crate::wait::holds_within;

/// A server starts in 0.1 s; the rest is for a machine that compiles something on every core
/// meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A stop signal is obeyed at the next clock tick, unless the machine is very busy.
const SIGNAL_WITHIN: Duration = Duration::from_secs(10);
const POLL_EVERY: Duration = Duration::from_millis(3);
/// Someone outside these tests may take a port between our look and the server's bind.
const PORTS_TO_TRY: usize = 20;

/// What a server should be like, before it is started.
#[derive(Clone, Debug)]
#[must_use]
pub struct ServerBuilder {
    need: Need,
    password: Option<String>,
    config: Vec<(String, String)>,
    unix_socket: bool,
    tls: Option<TlsFiles>,
    clock_shim: bool,
    accept_loading: bool,
}

impl ServerBuilder {
    fn new(need: Need) -> ServerBuilder {
        ServerBuilder {
            need,
            password: None,
            config: Vec::new(),
            unix_socket: false,
            tls: None,
            clock_shim: false,
            accept_loading: false,
        }
    }

    /// Requires this password of every client (`requirepass`).
    pub fn password(mut self, password: &str) -> ServerBuilder {
        self.password = Some(password.to_owned());
        self
    }

    /// Adds the line `key value` to the server's configuration file, after the defaults; several
    /// words are several arguments, as in any redis.conf.
    pub fn config(mut self, key: &str, value: &str) -> ServerBuilder {
        self.config.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Keeps an append-only file and syncs it `always`, `everysec` or `no`.
    pub fn append_fsync(self, when: &str) -> ServerBuilder {
        self.config("appendonly", "yes").config("appendfsync", when)
    }

    /// Listens on a Unix socket too; see [`RedisServer::socket_path`].
    pub fn unix_socket(mut self) -> ServerBuilder {
        self.unix_socket = true;
        self
    }

    /// Speaks TLS on the port instead of plain text. A client certificate is looked at but not
    /// demanded, unless `config("tls-auth-clients", "yes")` says so. The fetched Valkey is built
    /// without TLS.
    pub fn tls(mut self, files: &TlsFiles) -> ServerBuilder {
        self.tls = Some(files.clone());
        self
    }

    /// Runs the server under a clock that [`RedisServer::jump_clock`] moves.
    pub fn with_clock_shim(mut self) -> ServerBuilder {
        self.clock_shim = true;
        self
    }

    /// Counts a server that still loads its data as started. Otherwise a start waits for the end of
    /// that.
    pub fn accept_loading(mut self) -> ServerBuilder {
        self.accept_loading = true;
        self
    }

    /// Starts the server and waits until it answers. Panics with its log if it does not.
    #[track_caller]
    pub fn start(self) -> RedisServer {
        let mut why = String::new();
        for _ in 0..PORTS_TO_TRY {
            let server = RedisServer::prepare(&self);
            match server.launch() {
                Ok(()) => return server,
                Err(Unstarted::PortTaken(said)) => why = said,
                Err(Unstarted::Failed(said)) => panic!("{said}"),
            }
        }
        panic!("{PORTS_TO_TRY} ports in a row were taken: {why}");
    }

    /// Starts `count` servers alike.
    #[track_caller]
    pub fn start_many(self, count: usize) -> Vec<RedisServer> {
        (0..count).map(|_| self.clone().start()).collect()
    }
}

/// A running server, or one that was killed and can be started again.
///
/// All methods take `&self`, so that a test may hurt a server while a client uses it.
#[derive(Debug)]
pub struct RedisServer {
    need: Need,
    dir: TempDir,
    port: ReservedPort,
    password: Option<String>,
    socket: Option<PathBuf>,
    tls: Option<TlsFiles>,
    clock: Option<WallClock>,
    accept_loading: bool,
    child: Mutex<Option<Child>>,
}

enum Unstarted {
    PortTaken(String),
    Failed(String),
}

impl RedisServer {
    /// A Redis, without persistence unless asked.
    pub fn redis() -> ServerBuilder {
        ServerBuilder::new(Need::Redis)
    }

    /// A Redis 6.2, the oldest that we support, without persistence unless asked. It keeps scripts over
    /// a restart from its files, which later ones do not.
    pub fn old_redis() -> ServerBuilder {
        ServerBuilder::new(Need::OldRedis)
    }

    /// A Valkey, without persistence unless asked.
    pub fn valkey() -> ServerBuilder {
        ServerBuilder::new(Need::Valkey)
    }

    /// Another server by the same program, without persistence unless asked.
    pub fn another(&self) -> ServerBuilder {
        ServerBuilder::new(self.need)
    }

    /// `127.0.0.1:port`.
    pub fn addr(&self) -> String {
        self.port.addr()
    }

    /// The port, the same for the server's whole life.
    pub fn port(&self) -> u16 {
        self.port.port()
    }

    /// `redis://127.0.0.1:port`, with the password if there is one; `rediss://localhost:port` with
    /// TLS.
    pub fn url(&self) -> String {
        let (scheme, host) = match self.tls {
            Some(_) => ("rediss", "localhost"),
            None => ("redis", "127.0.0.1"),
        };
        let password = match &self.password {
            Some(password) => format!(":{}@", percent_encode(password)),
            None => String::new(),
        };
        format!("{scheme}://{password}{host}:{}", self.port())
    }

    /// The Unix socket of a server started with [`ServerBuilder::unix_socket`].
    #[track_caller]
    pub fn socket_path(&self) -> &Path {
        self.socket.as_deref().expect("a server started with .unix_socket()")
    }

    /// The process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// What the server has logged since it was first started.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }

    /// True until it is killed or dies; a paused server counts as running.
    pub fn is_running(&self) -> bool {
        self.child().as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Kills it like a power cut (SIGKILL) and waits until it is gone. What it had written to disk
    /// stays.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills it and starts it on the same port with what is on disk.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.relaunch();
    }

    /// Kills it and starts it on the same port with nothing on disk: the node that forgot.
    #[track_caller]
    pub fn restart_empty(&self) {
        self.kill();
        let data = self.data_dir();
        fs::remove_dir_all(&data).and_then(|()| fs::create_dir(&data)).expect("the data are wiped");
        self.relaunch();
    }

    /// A copy of what it has on disk now, to [`restart_from`](Self::restart_from).
    #[track_caller]
    pub fn backup(&self) -> TempDir {
        let backup = tempfile::Builder::new().prefix("leasehold-").tempdir().expect("a folder");
        copy_folder(&self.data_dir(), backup.path()).expect("a copy of the data");
        backup
    }

    /// Kills it and starts it on the same port with nothing on disk but these files, which may be
    /// those of another server.
    #[track_caller]
    pub fn restart_from(&self, backup: &Path) {
        self.kill();
        let data = self.data_dir();
        fs::remove_dir_all(&data)
            .and_then(|()| fs::create_dir(&data))
            .and_then(|()| copy_folder(backup, &data))
            .expect("the data are replaced");
        self.relaunch();
    }

    /// Stops the process where it stands (SIGSTOP). Connections stay open and even new ones are
    /// accepted by the kernel, but nothing is answered until [`resume`](Self::resume).
    #[track_caller]
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        assert!(
            holds_within(SIGNAL_WITHIN, || self.process_state() == Some('T')),
            "{} did not stop",
            self.addr()
        );
    }

    /// Lets a paused server go on.
    #[track_caller]
    pub fn resume(&self) {
        self.signal(Signal::CONT);
        assert!(
            holds_within(SIGNAL_WITHIN, || self.process_state() != Some('T')),
            "{} did not go on",
            self.addr()
        );
    }

    /// Moves the server's wall clock by `seconds` from where it stands, backwards if negative; the
    /// next command sees the new time. The server must have been started
    /// [`with_clock_shim`](ServerBuilder::with_clock_shim).
    #[track_caller]
    pub fn jump_clock(&self, seconds: f64) {
        self.clock().jump(seconds);
    }

    /// Sets how far the server's wall clock is ahead of the real one, behind if negative.
    #[track_caller]
    pub fn set_clock_offset(&self, seconds: f64) {
        self.clock().set(seconds);
    }

    /// Sends one command over a new connection of its own and waits up to 5 seconds for the answer.
    /// With TLS it goes over a Unix socket. An error is the server's own text, or why there was no
    /// answer.
    pub fn command(&self, command: &[&str]) -> Result<Value, String> {
        self.try_command(command).map_err(|error| error.to_string())
    }

    /// The key of the fences that belong to the identity record as it is now.
    #[track_caller]
    pub fn fences_key(&self) -> String {
        let script =
            "return 'leasehold:fences:' .. redis.sha1hex(redis.call('GET', KEYS[1]) or '')";
        let key = self.command(&["EVAL", script, "1", "leasehold:node"]).expect("a script");
        key.as_text().expect("a text").to_owned()
    }

    /// The string under `key`.
    #[track_caller]
    pub fn get(&self, key: &str) -> Option<String> {
        match self.must(&["GET", key]) {
            Value::Nil => None,
            Value::Text(text) => Some(text),
            other => panic!("GET answered {other:?}"),
        }
    }

    /// The remaining milliseconds of `key`, as Redis says it: -2 without the key, -1 without an
    /// expiry.
    #[track_caller]
    pub fn pttl(&self, key: &str) -> i64 {
        self.must(&["PTTL", key]).as_int().expect("PTTL answers an integer")
    }

    /// Whether `key` is there.
    #[track_caller]
    pub fn exists(&self, key: &str) -> bool {
        self.must(&["EXISTS", key]) == Value::Int(1)
    }

    /// Removes every key.
    #[track_caller]
    pub fn flush_all(&self) {
        self.must(&["FLUSHALL"]);
    }

    #[track_caller]
    fn must(&self, command: &[&str]) -> Value {
        match self.try_command(command) {
            Ok(value) => value,
            Err(error) => panic!("{} to {}: {error}", command[0], self.addr()),
        }
    }

    fn try_command(&self, command: &[&str]) -> Result<Value, CallError> {
        let mut connection = match (&self.tls, &self.socket) {
            (Some(_), Some(socket)) => Connection::to_socket(socket)?,
            _ => Connection::to(&self.addr())?,
        };
        if let Some(password) = &self.password {
            connection.try_call(&["AUTH", password])?;
        }
        connection.try_call(command)
    }

    fn prepare(builder: &ServerBuilder) -> RedisServer {
        let dir = tempfile::Builder::new().prefix("leasehold-").tempdir().expect("a folder");
        let port = ReservedPort::take();
        // With TLS the socket is the way in for `command`, which speaks no TLS.
        let socket =
            (builder.unix_socket || builder.tls.is_some()).then(|| dir.path().join("socket"));
        let clock = builder
            .clock_shim
            .then(|| WallClock::new(dir.path().join("clock")).expect("a clock file"));
        let server = RedisServer {
            need: builder.need,
            dir,
            port,
            password: builder.password.clone(),
            socket,
            tls: builder.tls.clone(),
            clock,
            accept_loading: builder.accept_loading,
            child: Mutex::new(None),
        };
        fs::create_dir(server.data_dir()).expect("a data folder");
        fs::write(server.config_file(), server.config(&builder.config)).expect("a config file");
        server
    }

    fn config(&self, wanted: &[(String, String)]) -> String {
        let port = self.port().to_string();
        let mut lines = vec![
            ("bind", "127.0.0.1".to_owned()),
            ("dir", quoted(&self.data_dir().to_string_lossy())),
            ("save", quoted("")),
            ("appendonly", "no".to_owned()),
        ];
        match &self.tls {
            None => lines.push(("port", port)),
            Some(files) => lines.extend([
                ("port", "0".to_owned()),
                ("tls-port", port),
                ("tls-cert-file", quoted(&files.server_cert().to_string_lossy())),
                ("tls-key-file", quoted(&files.server_key().to_string_lossy())),
                ("tls-ca-cert-file", quoted(&files.ca().to_string_lossy())),
                ("tls-auth-clients", "optional".to_owned()),
            ]),
        }
        if let Some(socket) = &self.socket {
            lines.push(("unixsocket", quoted(&socket.to_string_lossy())));
        }
        if let Some(password) = &self.password {
            lines.push(("requirepass", quoted(password)));
        }
        let wanted = wanted.iter().map(|(key, value)| {
            (key.as_str(), if value.is_empty() { quoted("") } else { value.clone() })
        });
        lines.into_iter().chain(wanted).map(|(key, value)| format!("{key} {value}\n")).collect()
    }

    fn launch(&self) -> Result<(), Unstarted> {
        let failed = |error: io::Error| {
            Unstarted::Failed(format!("{} cannot be started: {error}", self.need.path().display()))
        };
        let log_before = self.log().len();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("server.log"))
            .map_err(failed)?;
        let mut command = bound_command(self.need.path());
        command
            .arg(self.config_file())
            .current_dir(self.dir.path())
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log);
        if let Some(clock) = &self.clock {
            clock.preload(&mut command);
        }
        let mut child = spawn(command).map_err(failed)?;
        let verdict = self.await_answer(&mut child);
        let said = || self.log().get(log_before..).unwrap_or_default().to_owned();
        match verdict {
            Verdict::Ready => {
                *self.child() = Some(child);
                Ok(())
            }
            Verdict::Stranger => {
                let _ = child.kill();
                let _ = child.wait();
                let stranger = format!("another process answers on {}", self.addr());
                Err(Unstarted::PortTaken(stranger))
            }
            Verdict::Died if said().contains("Address already in use") => {
                Err(Unstarted::PortTaken(said()))
            }
            Verdict::Died => Err(Unstarted::Failed(format!("the server ended:\n{}", said()))),
            Verdict::Silent(why) => {
                let _ = child.kill();
                let _ = child.wait();
                let text = format!("no answer in {READY_WITHIN:?} ({why}):\n{}", said());
                Err(Unstarted::Failed(text))
            }
        }
    }

    fn await_answer(&self, child: &mut Child) -> Verdict {
        let end = Instant::now() + READY_WITHIN;
        loop {
            if !matches!(child.try_wait(), Ok(None)) {
                return Verdict::Died;
            }
            let why = match self.try_command(&["PING"]) {
                Err(CallError::Refused(text))
                    if text.starts_with("LOADING") && !self.accept_loading =>
                {
                    text
                }
                Err(CallError::Broken(error)) => error.to_string(),
                Ok(_) | Err(CallError::Refused(_)) if self.is_stranger(child.id()) => {
                    return Verdict::Stranger;
                }
                Ok(_) | Err(CallError::Refused(_)) => return Verdict::Ready,
            };
            if Instant::now() > end {
                return Verdict::Silent(why);
            }
            thread::sleep(POLL_EVERY);
        }
    }

    /// Whether what answers on our port is a process other than our child. A configuration that
    /// denies INFO gets the benefit of the doubt.
    fn is_stranger(&self, pid: u32) -> bool {
        match self.try_command(&["INFO", "server"]) {
            Ok(Value::Text(info)) => !info.contains(&format!("process_id:{pid}\r\n")),
            _ => false,
        }
    }

    #[track_caller]
    fn relaunch(&self) {
        let end = Instant::now() + READY_WITHIN;
        loop {
            match self.launch() {
                Ok(()) => return,
                Err(Unstarted::PortTaken(_)) if Instant::now() < end => thread::sleep(POLL_EVERY),
                Err(Unstarted::PortTaken(said) | Unstarted::Failed(said)) => panic!("{said}"),
            }
        }
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        let child = self.child();
        let child = child.as_ref().expect("a running server");
        // The child has not been waited for, so its pid is still its own.
        kill_process(Pid::from_child(child), signal).expect("a running server takes a signal");
    }

    fn process_state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()?)).ok()?;
        // The program's name comes before, in parentheses, and may contain anything.
        stat.rsplit(')').next()?.trim_start().chars().next()
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        // A test that panicked with the lock held left a usable child behind.
        self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    #[track_caller]
    fn clock(&self) -> &WallClock {
        self.clock.as_ref().expect("a server started .with_clock_shim()")
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn config_file(&self) -> PathBuf {
        self.dir.path().join("server.conf")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

enum Verdict {
    Ready,
    Died,
    Stranger,
    Silent(String),
}

/// A word of a configuration file, whatever is in it.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
