//! The commands with a lock server as their backend: real processes on both sides, and a server that
//! is killed under them.

mod support;

use std::process::{Command, Output};
use std::time::Duration;

use leasehold_testkit::eventually;
use support::{Place, Running, SOON, Signal, code, stderr};

/// A lock server on the file of its place.
struct Served {
    place: Place,
    running: Running,
    url: String,
}

impl Served {
    fn new(more: &[&str]) -> Self {
        let place = Place::new();
        let (running, url) = start(&place, "127.0.0.1:0", more);
        Self { place, running, url }
    }

    /// Ends it as a power cut would.
    fn kill(&mut self) {
        self.running.signal(Signal::KILL);
        assert_eq!(self.running.end(), None);
    }

    /// What it wrote, up to its end.
    fn log(&mut self) -> String {
        self.running.signal(Signal::TERM);
        assert_eq!(self.running.end(), Some(0));
        self.running.complaints()
    }

    /// Starts it again, at the same address.
    fn start_again(&mut self) {
        let address = self.url.strip_prefix("http://").expect("http").to_owned();
        (self.running, self.url) = start(&self.place, &address, &[]);
    }

    /// A command of another user, who knows nothing but the URL.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.leasehold();
        command.env("XDG_DATA_HOME", "/nowhere").env("LEASEHOLD_BACKEND", &self.url);
        command.env_remove("LEASEHOLD_TOKEN").args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("leasehold runs")
    }

    #[track_caller]
    fn says(&self, arguments: &[&str], expected: i32) -> String {
        let output = self.run(arguments);
        assert_eq!(code(&output), expected, "{arguments:?}: {}", stderr(&output));
        stdout(&output) + &stderr(&output)
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn start(place: &Place, address: &str, more: &[&str]) -> (Running, String) {
    let mut running = place.start(&[&["serve", "--listen", address], more].concat());
    let line = running.line();
    let (_, url) = line.rsplit_once(" at ").expect("it says where");
    (running, url.to_owned())
}

#[test]
fn a_command_runs_under_a_lock_of_the_server() {
    let served = Served::new(&[]);
    let script = "echo $LEASEHOLD_FENCE; echo $LEASEHOLD_BACKEND; exit 7";
    let output = served.run(&["run", "job", "-c", script]);
    assert_eq!(code(&output), 7, "{}", stderr(&output));
    let said = stdout(&output);
    let [fence, backend] = <[&str; 2]>::try_from(said.lines().collect::<Vec<_>>()).unwrap();
    assert!(fence.parse::<u64>().unwrap() > 1_000_000_000_000_000, "{fence}");
    assert_eq!(backend, served.url);
    // Held against everybody, also those who use the file itself.
    let inner = served.place.run(&["acquire", "job", "--ttl", "20s", "-n"]);
    assert_eq!(code(&inner), 0, "it was given back: {}", stderr(&inner));
    let said = served.says(&["run", "-n", "job", "--", "true"], 75);
    assert!(said.contains("lock `job` is held by another"), "{said}");
}

#[test]
fn every_command_makes_sense_with_a_server() {
    let served = Served::new(&[]);
    let token = served.says(&["acquire", "job", "--ttl", "20s", "-n", "-q"], 0);
    let token = token.trim();
    served.says(&["extend", token], 0);
    let status = served.says(&["status", "job", "--json"], 0);
    let status: serde_json::Value = serde_json::from_str(status.trim()).unwrap();
    assert_eq!((&status["state"], &status["votes"]), (&"held".into(), &1.into()));
    assert!(served.says(&["list"], 0).contains("job"));
    assert!(served.says(&["nodes"], 0).contains("leasehold 0.1.0 at sqlite"));
    assert!(served.says(&["doctor", "--watch", "10ms"], 0).contains("0 error(s), 0 warning(s)"));
    served.says(&["plan"], 0);
    served.says(&["bench", "--secs", "100ms", "--concurrency", "2"], 0);
    let init = served.says(&["init"], 64);
    assert!(init.contains("is a lock server") && init.contains("--trust-new-nodes"), "{init}");
    let fence = status["fence"].to_string();
    let force = ["force-release", "job", "--reason", "x", "--yes", "--fence"];
    let said = served.says(&[&force[..], &["5"]].concat(), 77);
    assert!(said.contains(&format!("its fence is {fence}, not 5")), "{said}");
    served.says(&[&force[..], &[&fence]].concat(), 0);
    assert!(served.says(&["extend", token], 79).contains("superseded by fence"));
    assert!(served.says(&["release", token], 79).contains("been taken away before"));
}

#[test]
fn a_token_opens_the_server_and_is_not_the_commands() {
    let place = Place::new();
    let file = place.file("tokens.toml").display().to_string();
    let new = ["token", "new", "--file", &file, "--name", "me", "--scope", "lock:job"];
    let token = stdout(&place.run(&new)).trim().to_owned();
    let served = Served::new(&["--tokens", &file]);
    let said = served.says(&["run", "-n", "job", "--", "true"], 77);
    assert!(said.contains("LEASEHOLD_TOKEN"), "{said}");
    let script = "echo \"[$LEASEHOLD_TOKEN] $LEASEHOLD_BACKEND\"";
    let with_token = served.url.replace("://", &format!("://:{token}@"));
    for (variable, value) in [("LEASEHOLD_TOKEN", &token), ("LEASEHOLD_BACKEND", &with_token)] {
        let mut command = served.command(&["-vv", "run", "job", "-c", script]);
        let output = command.env(variable, value).output().unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert_eq!(stdout(&output).trim(), format!("[] {}", served.url));
        assert!(!stderr(&output).contains(&token), "{}", stderr(&output));
    }
    let mut other = served.command(&["run", "-n", "other", "--", "true"]);
    let output = other.env("LEASEHOLD_TOKEN", &token).output().unwrap();
    assert_eq!(code(&output), 77, "{}", stderr(&output));
    assert!(stderr(&output).contains("lacks the scope"), "{}", stderr(&output));
}

#[test]
fn who_is_not_let_in_does_not_wait() {
    let place = Place::new();
    let file = place.file("tokens.toml").display().to_string();
    let new = ["token", "new", "--file", &file, "--name", "me", "--scope", "lock:job"];
    let token = stdout(&place.run(&new)).trim().to_owned();
    let served = Served::new(&["--tokens", &file]);
    for (token, lock, expected) in [
        ("lh_wrong", "job", "this token is not known here"),
        ("", "job", "send a token"),
        (&token, "other", "lacks the scope"),
    ] {
        // As long as it takes, which is for ever: the end of the test would come first.
        let mut command = served.command(&["run", lock, "--", "true"]);
        let mut run = Running::new(command.env("LEASEHOLD_TOKEN", token));
        assert_eq!(run.end(), Some(77), "{lock}");
        let said = run.complaints();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn the_reason_of_a_forced_release_stands_in_the_servers_log() {
    let mut served = Served::new(&["--log-format", "json"]);
    served.says(&["acquire", "job", "--ttl", "20s", "-n", "-q"], 0);
    let status = served.says(&["status", "job", "--json"], 0);
    let status: serde_json::Value = serde_json::from_str(status.trim()).unwrap();
    let fence = status["fence"].to_string();
    let why = "db1 is dead, see \"INC-7\"";
    served.says(&["force-release", "job", "--fence", &fence, "--reason", why, "--yes"], 0);
    let log = served.log();
    let lines = log.lines().filter(|line| line.contains("leasehold::audit"));
    let audits: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    // Before it is done, and when it is.
    let what: Vec<_> = audits.iter().map(|audit| audit["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["force-release asked", "force-release"], "{log}");
    for audit in audits {
        assert_eq!(audit["lock"], "job", "{audit}");
        let said = audit["why"].as_str().unwrap();
        assert!(said.starts_with(&format!("{why} (by ")), "{said}");
    }
}

#[test]
fn a_command_goes_on_while_its_server_is_killed_and_started_again() {
    let mut served = Served::new(&[]);
    let script = "echo started; while [ ! -e stop ]; do sleep 0.05; done; echo finished";
    let mut run = Running::new(&mut served.command(&["run", "--ttl", "6s", "job", "-c", script]));
    assert_eq!(run.line(), "started");
    for _ in 0..2 {
        served.kill();
        std::thread::sleep(Duration::from_millis(500));
        served.start_again();
        assert!(!run.has_ended());
        assert_eq!(code(&served.run(&["run", "-n", "job", "--", "true"])), 75, "it is still held");
    }
    // Longer than the ttl: it was extended through the new one.
    std::thread::sleep(Duration::from_secs(6));
    assert!(!run.has_ended());
    std::fs::write(served.place.file("stop"), "").unwrap();
    assert_eq!(run.line(), "finished");
    assert_eq!(run.end(), Some(0), "{}", run.complaints());
    let is_free = || code(&served.run(&["run", "-n", "job", "--", "true"])) == 0;
    eventually(SOON, "it is given back", is_free);
}

#[test]
fn a_command_is_stopped_if_its_server_stays_away() {
    let mut served = Served::new(&[]);
    let arguments = ["run", "--ttl", "2s", "job", "-c", "echo started; sleep 60"];
    let mut run = Running::new(&mut served.command(&arguments));
    assert_eq!(run.line(), "started");
    served.kill();
    assert_eq!(run.end(), Some(79), "{}", run.complaints());
    served.start_again();
    let is_free = || code(&served.run(&["run", "-n", "job", "--", "true"])) == 0;
    eventually(SOON, "it is free again", is_free);
}
