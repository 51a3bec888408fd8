//! What stands beside a lock server in production: Prometheus, Alertmanager and HAProxy, each on a
//! port and in a folder of its own. Dropping one kills it and removes the folder.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::http::http_get;
use crate::locate::Need;
use crate::ports::ReservedPort;
use crate::spawn::{bound_command, spawn};

/// They start in half a second; the rest is for a machine that compiles on every core meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(10);
/// Someone outside these tests may take a port between our look and the program's bind.
const PORTS_TO_TRY: usize = 5;

/// A path to ask for, and which status is a sign of readiness.
type Probe = (&'static str, fn(u16) -> bool);
const READY: Probe = ("/-/ready", |status| status == 200);
const ANSWERS: Probe = ("/", |_| true);

/// A running Prometheus, Alertmanager or HAProxy.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    port: ReservedPort,
    dir: TempDir,
}

impl Daemon {
    /// A Prometheus with these files (name, text) in its folder, of which `prometheus.yml` is its
    /// configuration. Ready when it has replayed its storage.
    #[track_caller]
    pub fn prometheus(files: &[(&str, &str)]) -> Daemon {
        Daemon::start(Need::Prometheus, READY, |program, dir, addr| {
            for (name, text) in files {
                let file = dir.join(name);
                fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
                fs::write(file, text).expect("a file");
            }
            let mut command = bound_command(program);
            command
                .arg(option("config.file", dir.join("prometheus.yml")))
                .arg(option("storage.tsdb.path", dir.join("data")))
                .arg(format!("--web.listen-address={addr}"));
            command
        })
    }

    /// An Alertmanager on its own, without peers, with this `alertmanager.yml`.
    #[track_caller]
    pub fn alertmanager(config: &str) -> Daemon {
        Daemon::start(Need::Alertmanager, READY, |program, dir, addr| {
            fs::write(dir.join("alertmanager.yml"), config).expect("a file");
            let mut command = bound_command(program);
            command
                .arg(option("config.file", dir.join("alertmanager.yml")))
                .arg(option("storage.path", dir.join("data")))
                .arg(format!("--web.listen-address={addr}"))
                .arg("--cluster.listen-address=");
            command
        })
    }

    /// A HAProxy with the configuration that is made for the address (`127.0.0.1:port`) on which it
    /// should listen. Ready when it answers anything there, be it that no server is up yet.
    #[track_caller]
    pub fn haproxy(config: impl Fn(&str) -> String) -> Daemon {
        Daemon::start(Need::Haproxy, ANSWERS, |program, dir, addr| {
            let file = dir.join("haproxy.cfg");
            fs::write(&file, config(addr)).expect("a file");
            let mut command = bound_command(program);
            // -db: in the foreground, so that its pid is the child's.
            command.arg("-db").arg("-f").arg(file);
            command
        })
    }

    /// `127.0.0.1:port`.
    pub fn addr(&self) -> String {
        self.port.addr()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        log_in(self.dir.path())
    }

    #[track_caller]
    fn start(need: Need, probe: Probe, prepare: impl Fn(&Path, &Path, &str) -> Command) -> Daemon {
        let mut said = String::new();
        for _ in 0..PORTS_TO_TRY {
            let dir = tempfile::Builder::new().prefix("leasehold-").tempdir().expect("a folder");
            let port = ReservedPort::take();
            let mut command = prepare(&need.path(), dir.path(), &port.addr());
            let log = File::create(dir.path().join("log")).expect("a log");
            command
                .current_dir(dir.path())
                .stdin(Stdio::null())
                .stdout(log.try_clone().expect("the same log"))
                .stderr(log);
            let child = spawn(command).unwrap_or_else(|error| panic!("{need:?}: {error}"));
            let mut daemon = Daemon { child, port, dir };
            match daemon.await_answer(probe) {
                Ok(()) => return daemon,
                Err(why) => said = format!("{need:?} {why}:\n{}", daemon.log()),
            }
            assert!(said.contains("in use"), "{said}");
        }
        panic!("{PORTS_TO_TRY} ports in a row were taken: {said}");
    }

    fn await_answer(&mut self, (path, is_ready): Probe) -> Result<(), String> {
        let end = Instant::now() + READY_WITHIN;
        loop {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Err("ended".into());
            }
            let why = match http_get(&self.addr(), path) {
                Ok(answer) if is_ready(answer.status) => return Ok(()),
                Ok(answer) => format!("answers {}", answer.status),
                Err(error) => error.to_string(),
            };
            if Instant::now() > end {
                return Err(format!("is not ready in {READY_WITHIN:?} ({why})"));
            }
            thread::sleep(POLL_EVERY);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn option(name: &str, path: impl AsRef<Path>) -> String {
    format!("--{name}={}", path.as_ref().display())
}

fn log_in(dir: &Path) -> String {
    fs::read_to_string(dir.join("log")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip;

    #[test]
    fn prometheus_is_ready_and_gone_with_its_folder_when_dropped() {
        if skip(Need::Prometheus) {
            return;
        }
        let prometheus = Daemon::prometheus(&[("prometheus.yml", "global: {}\n")]);
        let addr = prometheus.addr();
        let folder = prometheus.dir.path().to_owned();
        assert_eq!(http_get(&addr, "/-/healthy").unwrap().status, 200, "{}", prometheus.log());
        drop(prometheus);
        assert!(http_get(&addr, "/-/healthy").is_err());
        assert!(!folder.exists());
    }

    #[test]
    fn an_alertmanager_that_ends_is_told_with_its_log() {
        if skip(Need::Alertmanager) {
            return;
        }
        let panic = std::panic::catch_unwind(|| Daemon::alertmanager("receivers: []\n"));
        let panic = panic.expect_err("a configuration without a route is refused");
        let said = panic.downcast_ref::<String>().expect("a sentence");
        assert!(said.contains("Alertmanager ended") && said.contains("no routes"), "{said}");
    }

    #[test]
    fn haproxy_answers_before_any_server_is_up() {
        if skip(Need::Haproxy) {
            return;
        }
        let haproxy = Daemon::haproxy(|addr| {
            format!(
                "defaults\n  mode http\n  timeout connect 1s\n  timeout client 5s\n  \
                 timeout server 5s\nfrontend all\n  bind {addr}\n  default_backend none\n\
                 backend none\n"
            )
        });
        assert_eq!(http_get(&haproxy.addr(), "/").unwrap().status, 503, "{}", haproxy.log());
    }
}
