//! Descendants of the command that leave its process group, session or user: the lock goes to nobody
//! while one of them lives within the lease.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{Namespace, eventually};
use support::{
    Place, Running, SOON, Signal, boot_nanos, can_act, code, is_alive, send, send_if_there, stderr,
};

const MS: u64 = 1_000_000;

/// What is to be ended: it says its pid, as this machine has it, and is deaf to SIGTERM.
const WORK: &str = "trap '' TERM; read -r pid rest < /proc/self/stat; echo $pid; \
                    while :; do sleep 0.02; done";

/// How a command gets away from its process group.
const ESCAPES: [(&str, &str); 4] = [
    ("timeout", "timeout 60 sh -c \"$WORK\"; true"),
    ("set -m", "set -m; sh -c \"$WORK\" & wait"),
    ("setsid", "setsid -w sh -c \"$WORK\"; true"),
    ("a double fork", "(setsid sh -c \"$WORK\" &); sleep 60"),
];

/// Where the machine allows it: a first process of its own, which the command's user may not signal by
/// the number that it knows.
const NAMESPACE: (&str, &str) = ("unshare -Urpf", "unshare -Urpf sh -c \"$WORK\"; true");

fn escapes() -> Vec<(&'static str, &'static str)> {
    let is_allowed = !Namespace::Processes.skip();
    ESCAPES.into_iter().chain(is_allowed.then_some(NAMESPACE)).collect()
}

fn escaping(place: &Place, options: &[&str], script: &str) -> (Running, i32) {
    let mut command = place.leasehold();
    command.env("WORK", WORK).arg("run").args(options);
    command.args(["l", "--", "bash", "-c", script]);
    let mut run = Running::new(&mut command);
    let work = run.pid_line();
    (run, work)
}

#[test]
fn the_lock_is_given_back_when_nobody_is_left_whatever_they_did_to_their_group() {
    let place = Place::new();
    for (escape, script) in escapes() {
        let (mut run, work) = escaping(&place, &["--ttl", "3s", "--grace", "200ms"], script);
        run.signal(Signal::TERM);
        run.end();
        assert!(!is_alive(work), "{escape}: the command outlives its lock");
        assert!(place.is_free("l"), "{escape}");
    }
}

#[test]
fn a_command_that_left_its_group_is_gone_when_the_lease_of_a_stopped_supervisor_ends() {
    let place = Place::new();
    for (escape, script) in escapes() {
        let (mut run, work) = escaping(&place, &["--ttl", "700ms"], script);
        run.signal(Signal::STOP);
        let end = boot_nanos() + 700 * MS;
        eventually(SOON, "the work is gone", || !can_act(work));
        let late = boot_nanos().saturating_sub(end);
        assert!(late == 0, "{escape}: {} ms late", late / MS);
        run.signal(Signal::CONT);
        assert_eq!(run.end(), Some(79), "{escape}");
    }
}

#[test]
fn a_stopped_guardian_does_not_save_a_command_that_left_its_group() {
    let place = Place::new();
    for (escape, script) in escapes() {
        let options = ["--ttl", "500ms", "--max-hold", "500ms"];
        let (mut run, work) = escaping(&place, &options, script);
        let guardian = run.guardian();
        send(guardian, Signal::STOP);
        eventually(Duration::from_secs(2), "the work is gone", || !is_alive(work));
        assert_eq!(run.end(), Some(79), "{escape}");
        eventually(SOON, "the guardian is gone", || !is_alive(guardian));
    }
}

#[test]
fn a_killed_supervisor_or_guardian_leaves_nobody_who_left_the_group() {
    let place = Place::new();
    for (escape, script) in escapes() {
        let (run, work) = escaping(&place, &["--ttl", "300ms"], script);
        run.signal(Signal::KILL);
        eventually(Duration::from_secs(1), escape, || !is_alive(work));
        eventually(SOON, "the lease is over", || place.is_free("l"));

        let (mut run, work) = escaping(&place, &[], script);
        send(run.guardian(), Signal::KILL);
        assert_eq!(run.end(), Some(137), "{escape}");
        assert!(!is_alive(work), "{escape}: given back while the work goes on");
        assert!(place.is_free("l"), "{escape}");
    }
}

#[test]
fn two_of_the_three_may_be_killed_or_stopped_at_once() {
    let place = Place::new();
    // Or a supervisor that is spared keeps the lease for ever.
    let options = ["--ttl", "1s", "--max-hold", "1s"];
    let escapes = escapes();
    let mut escapes = escapes.iter().cycle();
    for spared in ["the supervisor", "the warden", "the guardian"] {
        for signals in [Signal::KILL, Signal::STOP]
            .map(|a| [Signal::KILL, Signal::STOP].map(|b| [a, b]))
            .concat()
        {
            let (escape, script) = escapes.next().unwrap();
            let (mut run, work) = escaping(&place, &options, script);
            let three = [
                ("the supervisor", run.pid()),
                ("the warden", run.warden()),
                ("the guardian", run.guardian()),
            ];
            let two = three.iter().filter(|(who, _)| *who != spared).map(|(_, pid)| *pid);
            let mut two: Vec<_> = two.zip(signals).collect();
            // Stops first: who is killed is noticed at once.
            two.sort_by_key(|(_, signal)| *signal == Signal::KILL);
            two.iter().for_each(|(pid, signal)| send_if_there(*pid, *signal));
            let end = boot_nanos() + 1000 * MS;
            let case = format!("{escape}, {spared} spared, {signals:?}");
            eventually(SOON, &case, || !can_act(work));
            let late = boot_nanos().saturating_sub(end);
            assert!(late == 0, "{case}: {} ms late", late / MS);
            // Whoever is stopped cannot end.
            two.iter().for_each(|(pid, _)| send_if_there(*pid, Signal::CONT));
            let code = run.end();
            assert!([None, Some(79), Some(137)].contains(&code), "{code:?}");
            let left = || three.iter().all(|(_, pid)| !is_alive(*pid));
            eventually(SOON, "nobody of the three is left", left);
            eventually(SOON, "the lease is over", || place.is_free("l"));
        }
    }
}

#[test]
fn a_guardian_killed_while_it_starts_the_command_leaves_no_orphan() {
    let place = Place::new();
    let started = place.file("started");
    let script = format!("echo $$ >>{}; exec sleep 60", started.display());
    let mut after_the_fork = 0;
    for _ in 0..30 {
        let mut run = place.start(&["run", "l", "-c", &script]);
        let guardian = run.guardian();
        let children = format!("/proc/{guardian}/task/{guardian}/children");
        let child = loop {
            // Between the fork and the guardian's word of it.
            match fs::read_to_string(&children).unwrap_or_default().split_whitespace().next() {
                Some(child) => break child.parse().unwrap(),
                None if run.has_ended() => panic!("{}", run.complaints()),
                None => {}
            }
        };
        send(guardian, Signal::KILL);
        run.end();
        assert!(!is_alive(child), "an orphan is left");
        after_the_fork += 1;
        assert!(place.is_free("l"));
    }
    assert_eq!(after_the_fork, 30);
    let pids = fs::read_to_string(&started).unwrap_or_default();
    assert!(pids.lines().all(|pid| !is_alive(pid.parse().unwrap())), "{pids}");
}

#[test]
fn what_the_command_leaves_is_asked_and_ended_and_told() {
    let place = Place::new();
    let script = "setsid sh -c 'trap \"echo asked; exit\" TERM; echo $$; while :; do sleep 0.02; \
                  done' & setsid sh -c \"$WORK\" & sleep 0.3; exit 6";
    let mut command = place.leasehold();
    command.env("WORK", WORK).args(["run", "--ttl", "3s", "--grace", "200ms", "l", "-c", script]);
    let mut run = Running::new(&mut command);
    let left = [run.pid_line(), run.pid_line()];
    assert_eq!(run.line(), "asked");
    assert_eq!(run.end(), Some(6));
    assert!(left.iter().all(|pid| !is_alive(*pid)), "{left:?}");
    assert!(place.is_free("l"));
    let text = run.complaints();
    assert!(text.contains("SIGTERM sent to what the command left running: "), "{text}");
    assert!(left.iter().all(|pid| text.contains(&format!("{pid} (sh)"))), "{text}");
}

#[test]
fn what_ends_by_itself_right_after_the_command_is_not_asked() {
    let place = Place::new();
    let script = "(trap 'echo asked' TERM; sleep 0.01) & exit 3";
    let output = place.run(&["run", "l", "-c", script]);
    assert_eq!((code(&output), stderr(&output).as_str()), (3, ""), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn a_command_that_forks_without_end_is_ended() {
    let place = Place::new();
    // Each life is a new process in a new session, and its parent is gone.
    let (script, stamps) = (place.file("hop"), place.file("stamps"));
    let hop = format!("echo $$ >>{}; setsid sh $0 & exit", stamps.display());
    fs::write(&script, hop).unwrap();
    let command = format!("sh {}; sleep 60", script.display());
    let mut run = place.start(&["run", "--ttl", "3s", "--grace", "50ms", "l", "-c", &command]);
    eventually(SOON, "some lives", || {
        fs::read_to_string(&stamps).is_ok_and(|text| text.lines().count() > 20)
    });
    run.signal(Signal::TERM);
    run.end();
    let lives = || fs::read_to_string(&stamps).unwrap().lines().count();
    let before = lives();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(lives(), before, "it goes on after the lock was given back");
}

#[test]
fn children_from_before_and_their_orphans_are_left_alone() {
    let place = Place::new();
    // The shell has two children and becomes leasehold; one of them ends and leaves an orphan.
    let script = format!(
        "sleep 60 & echo $! >mine; (sleep 60 & echo $! >orphan; sleep 0.2) & \
         exec {} run l -c 'echo $$ >command; sleep 60'",
        place.leasehold().get_program().display()
    );
    let mut shell = place.leasehold_shell(&script);
    let mut run = Running::new(&mut shell);
    let pid = |name: &str| {
        let mut pid = None;
        eventually(SOON, name, || {
            pid =
                fs::read_to_string(place.file(name)).ok().and_then(|text| text.trim().parse().ok());
            pid.is_some()
        });
        pid.unwrap()
    };
    let (mine, orphan, command) = (pid("mine"), pid("orphan"), pid("command"));
    let parent = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let above = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
        above.parse::<i32>().unwrap()
    };
    eventually(SOON, "leasehold inherits the orphan", || parent(orphan) == run.pid());
    thread::sleep(Duration::from_millis(600));
    send(parent(command), Signal::KILL);
    assert_eq!(run.end(), Some(137));
    assert!(!is_alive(command));
    assert!(is_alive(mine) && is_alive(orphan), "they have nothing to do with the command");
    [mine, orphan].iter().for_each(|pid| send(*pid, Signal::KILL));
}

/// A program that becomes root and runs its arguments, and a leasehold that may not end it.
struct Root {
    place: Place,
    become_root: PathBuf,
}

const NOBODY: u32 = 65534;

impl Root {
    fn new() -> Option<Self> {
        // The usual place for temporary files may be ours alone, or know no setuid.
        let folders = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()];
        let found = folders.iter().find_map(|folder| Self::within(folder));
        if found.is_none() {
            // As `./test` counts them.
            let test = thread::current().name().unwrap_or("a test").to_owned();
            let line = format!("SKIPPED: {test}: a way from nobody to root not found\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        }
        found
    }

    fn within(folder: &Path) -> Option<Self> {
        if !rustix::process::getuid().is_root() {
            return None;
        }
        let place = Place::within(folder)?;
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let become_root = place.file("become-root");
        fs::copy("/usr/bin/setpriv", &become_root).ok()?;
        fs::set_permissions(&become_root, fs::Permissions::from_mode(0o4755)).unwrap();
        fs::copy(place.leasehold().get_program(), place.file("leasehold-copy")).ok()?;
        let root = Self { place, become_root };
        let id = root.leashed("id -ru").output().ok()?;
        (id.stdout == b"0\n").then_some(root)
    }

    /// `script` as root, by nobody.
    fn leashed(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &self.rooted(script)]).current_dir(self.place.path());
        command.uid(NOBODY).gid(NOBODY);
        command
    }

    fn rooted(&self, script: &str) -> String {
        format!("{} --reuid 0 --regid 0 --clear-groups {script}", self.become_root.display())
    }

    /// By nobody, who may not see the folder that it was built in.
    fn leasehold(&self) -> Command {
        let like = self.place.leasehold();
        let mut command = Command::new(self.place.file("leasehold-copy"));
        for (name, value) in like.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.place.path()).uid(NOBODY).gid(NOBODY);
        command
    }

    fn is_free(&self) -> bool {
        let output = self.leasehold().args(["run", "-n", "l", "--", "true"]).output().unwrap();
        assert!([0, 75].contains(&code(&output)), "{output:?}");
        code(&output) == 0
    }
}

#[test]
fn the_lock_is_kept_until_the_end_of_what_may_not_be_ended() {
    let Some(root) = Root::new() else { return };
    let script = format!("{} & echo $!; exit 4", root.rooted("sleep 2"));
    let mut command = root.leasehold();
    command.args(["run", "--ttl", "1s", "--grace", "100ms", "l", "-c", &script]);
    let mut run = Running::new(&mut command);
    let sleep = run.pid_line();
    run.remarks(&format!("process {sleep} (sleep) cannot be ended: it belongs to another user"));
    while is_alive(sleep) {
        assert!(!root.is_free() || !is_alive(sleep), "given back while root's process runs");
    }
    assert_eq!(run.end(), Some(4));
    assert!(root.is_free());
}

#[test]
fn the_code_tells_that_what_may_not_be_ended_outlives_the_lease() {
    let Some(root) = Root::new() else { return };
    let mut command = root.leasehold();
    command.args(["run", "--ttl", "1s", "--max-hold", "1s", "l", "-c"]);
    let sleep = "sh -c 'echo $$; exec sleep 60'";
    command.arg(format!("exec {}", root.rooted(sleep)));
    let mut run = Running::new(&mut command);
    let sleep = run.pid_line();
    run.signal(Signal::TERM);
    run.remarks("SIGTERM does not reach the command: it belongs to another user");
    let start = Instant::now();
    assert_eq!(run.end(), Some(79), "after {:?}", start.elapsed());
    assert!(is_alive(sleep));
    // The guardian stays with it, and holds our pipe.
    send(sleep, Signal::KILL);
    let text = run.complaints();
    assert!(text.contains("cannot be ended"), "{text}");
    assert!(text.contains(&format!("these processes of the command still run: {sleep}")), "{text}");
}
