//! On a terminal: the line while waiting, Ctrl-C, Ctrl-Z and what follows. `script` of util-linux
//! makes the terminal, and where job control is needed an interactive `bash` sits at it.

mod support;

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_testkit::eventually;
use support::{Place, SOON, is_alive};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// Somebody at a terminal.
struct Session {
    child: Child,
    keys: Option<ChildStdin>,
    screen: Arc<Mutex<String>>,
}

impl Session {
    /// `leasehold` is a name for the binary in `command`.
    fn open(place: &Place, command: &str) -> Self {
        let binary = env!("CARGO_BIN_EXE_leasehold");
        let mut child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command"])
            .arg(command.replace("leasehold ", &format!("{binary} ")))
            .arg("/dev/null")
            .env("LEASEHOLD", binary)
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .env("PS1", "> ")
            .env("XDG_DATA_HOME", place.path())
            .env("XDG_CONFIG_HOME", place.path())
            .env_remove("LEASEHOLD_BACKEND")
            .current_dir(place.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script (util-linux) starts");
        let mut output = child.stdout.take().unwrap();
        let screen: Arc<Mutex<String>> = Arc::default();
        let seen = screen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(bytes @ 1..) = output.read(&mut buffer) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..bytes]));
            }
        });
        let keys = child.stdin.take();
        Self { child, keys, screen }
    }

    fn shell(place: &Place) -> Self {
        let mut session = Self::open(place, "bash --norc --noprofile -i");
        session.enter("echo rea''dy");
        session.sees("ready");
        session
    }

    fn press(&mut self, keys: &str) {
        let input = self.keys.as_mut().unwrap();
        input.write_all(keys.as_bytes()).and_then(|()| input.flush()).expect("it listens");
    }

    fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    #[track_caller]
    fn sees(&self, text: &str) {
        let start = std::time::Instant::now();
        while !self.screen().contains(text) {
            assert!(start.elapsed() < SOON, "{text:?} is not on the screen: {:?}", self.screen());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number after `mark` on the screen.
    fn number_after(&self, mark: &str) -> i32 {
        self.sees(mark);
        let mut number = None;
        eventually(SOON, "a whole number", || {
            let screen = self.screen();
            let rest = screen.split(mark).nth(1).unwrap_or_default();
            number = rest.split_once(['\r', '\n']).and_then(|(digits, _)| digits.parse().ok());
            number.is_some()
        });
        number.unwrap()
    }

    fn end(&mut self) -> i32 {
        let mut code = None;
        eventually(SOON, "the session ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.and_then(|status| status.code()).expect("it exits")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Hanging up ends whoever sits at the terminal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn waiting_shows_who_has_the_lock_and_leaves_no_trace() {
    let place = Place::new();
    let mut holder = place.start(&["hold", "--holder", "ana", "--reason", "lunch", "job"]);
    holder.line();
    let mut session = Session::open(&place, "leasehold run job -- echo mine");
    session.sees("waiting 0.");
    session.sees(" for `job`: held for 0.");
    session.sees("s of its lease left, by ana (lunch)");
    session.sees("waiting 1.");
    holder.close_input();
    session.sees("mine");
    assert_eq!(session.end(), 0);
    let screen = session.screen();
    assert!(screen.contains("\r\x1b[Kmine"), "erased: {screen:?}");
    assert!(!screen.contains("(lunch)\r\n"), "one line only: {screen:?}");

    // And without a terminal, or when told to be quiet, nothing.
    let mut holder = place.start(&["hold", "job"]);
    holder.line();
    let output = place.run(&["run", "-w", "400ms", "job", "--", "true"]);
    assert!(!support::stderr(&output).contains("waiting"), "{output:?}");
    let mut session = Session::open(&place, "leasehold run -q -w 400ms job -- true");
    assert_eq!(session.end(), 75);
    assert_eq!(session.screen(), "");
}

#[test]
fn ctrl_c_while_waiting_ends_the_waiting() {
    let place = Place::new();
    let mut holder = place.start(&["hold", "job"]);
    holder.line();
    let mut session = Session::open(&place, "leasehold run job -- echo mi''ne");
    session.sees("waiting 0.");
    session.press(CTRL_C);
    assert_eq!(session.end(), 130);
    holder.close_input();
    holder.end();
    assert!(place.is_free("job"));
    assert!(!session.screen().contains("mine"));
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    let place = Place::new();
    // Alone at the terminal the command has it; with a pipe behind, we pass it on.
    for pipe in ["", " | cat"] {
        // Into a file: Ctrl-C also ends whoever reads the pipe.
        let script = "trap 'echo ouch >>log' INT; echo $$ >pid; echo start >log; i=0; \
                      while [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done; echo end >>log; exit 5";
        std::fs::write(place.file("job.sh"), script).unwrap();
        let has_terminal = || {
            let pid = std::fs::read_to_string(place.file("pid")).unwrap();
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap();
            stat.split(' ').nth(4) == stat.split(' ').nth(7)
        };
        let log = || std::fs::read_to_string(place.file("log")).unwrap_or_default();
        let mut session = Session::open(&place, &format!("leasehold run job -- sh job.sh{pipe}"));
        eventually(SOON, "the command runs", || log().contains("start"));
        if pipe.is_empty() {
            // It gets the terminal when it runs: a Ctrl-C a moment before also goes to the shell.
            eventually(SOON, "the command has the terminal", has_terminal);
        }
        session.press(CTRL_C);
        let code = session.end();
        assert!(!pipe.is_empty() || code == 5, "{code}");
        eventually(SOON, "the command ends by itself", || log().contains("end"));
        assert_eq!(log(), "start\nouch\nend\n", "{pipe:?}");
        std::fs::remove_file(place.file("log")).unwrap();
    }
}

#[test]
fn the_command_has_the_terminal_from_the_start() {
    let place = Place::new();
    let script = "sleep 0.3; cut -d' ' -f5,8 /proc/$$/stat";
    std::fs::write(place.file("job.sh"), script).unwrap();
    let mut session = Session::open(&place, "leasehold run job -- sh job.sh");
    assert_eq!(session.end(), 0);
    let screen = session.screen();
    let (group, foreground) = screen.trim().split_once(' ').unwrap();
    assert_eq!(group, foreground, "its group and that in the foreground");
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let place = Place::new();
    let mut shell = Session::shell(&place);
    std::fs::write(place.file("job.sh"), "echo pid=$$; read x; echo got-$x; exit 5").unwrap();
    shell.enter("$LEASEHOLD run job -- sh job.sh");
    let command = shell.number_after("pid=");
    shell.press(CTRL_Z);
    shell.sees("Stopped");
    assert_eq!(support::state(command), Some('T'));
    shell.enter("echo back''again");
    shell.sees("backagain");
    shell.enter("fg");
    eventually(SOON, "it goes on", || support::state(command) != Some('T'));
    shell.enter("hello");
    shell.sees("got-hello");
    shell.enter("echo code=$?.");
    shell.sees("code=5.");
}

#[test]
fn a_job_that_is_stopped_for_longer_than_its_lease_does_not_go_on() {
    let place = Place::new();
    let mut shell = Session::shell(&place);
    std::fs::write(place.file("job.sh"), "trap '' TERM; echo pid=$$; read x; echo went on; exit 5")
        .unwrap();
    shell.enter("$LEASEHOLD run --ttl 1s job -- sh job.sh");
    let command = shell.number_after("pid=");
    shell.press(CTRL_Z);
    shell.sees("Stopped");
    eventually(SOON, "it is ended although it is stopped", || !is_alive(command));
    eventually(SOON, "others may have the lock", || place.is_free("job"));
    shell.enter("fg");
    shell.enter("echo code=$?.");
    shell.sees("code=79.");
    assert!(!shell.screen().contains("went on\r\n"), "{:?}", shell.screen());
}

#[test]
fn a_job_in_the_background_does_not_take_the_terminal() {
    let place = Place::new();
    let mut shell = Session::shell(&place);
    shell.enter("$LEASEHOLD run job -- sh -c 'echo p''id=$$; sleep 1; echo do''ne' &");
    shell.number_after("pid=");
    shell.enter("echo st''ill here");
    shell.sees("still here");
    shell.sees("done");
}

#[test]
fn the_terminal_is_given_back_after_the_command() {
    let place = Place::new();
    let mut shell = Session::shell(&place);
    shell.enter("$LEASEHOLD run job -- sh -c 'stty raw -echo; kill -9 $$'");
    // A script that is not interactive does not repair a terminal by itself.
    shell.enter("sh -c '$LEASEHOLD run job -- sh -c \"kill -9 \\$\\$\"; stty -a'");
    shell.sees(" icanon");
    shell.enter(
        "sh -c '$LEASEHOLD run job -- sh -c \"stty raw; kill -9 \\$\\$\"; stty -a; echo e''nd'",
    );
    shell.sees("end");
    let screen = shell.screen();
    assert!(!screen.contains("-icanon"), "{screen:?}");
}
