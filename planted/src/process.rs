//! Programs with a time limit, line by line, of which nothing is left behind.
//!
//! Whoever loses its parent becomes our child, whatever process group or session it is in. So all
//! that a program started can be found and killed when it ends, runs out of time, or somebody
//! presses Ctrl-C. They stay in our process group, so that whoever kills us by it kills them, too.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) end: End,
    /// What it wrote, on either output.
    pub(crate) lines: Vec<String>,
    pub(crate) time: Duration,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself.
    Exited(ExitStatus),
    /// It said what was waited for.
    Seen,
    /// It took too long.
    TimedOut,
    /// Somebody wants all of this to stop.
    Interrupted,
}

enum Event {
    Line(String),
    Silent,
    Exited(ExitStatus),
}

/// How soon Ctrl-C is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Has signals end what runs instead of us, and orphans come to us.
pub(crate) fn prepare() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // A second one ends us at once.
        signal_hook::flag::register_conditional_default(signal, flag())?;
        signal_hook::flag::register(signal, flag())?;
    }
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

fn flag() -> Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(Default::default).clone()
}

/// Whether somebody wants all of this to stop.
pub(crate) fn is_interrupted() -> bool {
    flag().load(Ordering::Relaxed)
}

/// Runs `command` in `folder`, until what it said `is_enough`, for at most `limit`.
pub(crate) fn run(
    command: &mut Command,
    folder: &Path,
    limit: Duration,
    is_enough: impl Fn(&[String]) -> bool,
) -> io::Result<Run> {
    let start = Instant::now();
    let mut child = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = Pid::from_child(&child);
    let (events, inbox) = channel();
    listen(child.stdout.take(), &events);
    listen(child.stderr.take(), &events);
    wait(child, events);

    let (mut lines, mut exited, mut silent) = (Vec::new(), None, 0);
    let end = loop {
        let left = limit.saturating_sub(start.elapsed());
        if let (Some(status), true) = (exited, silent == 2 || left.is_zero()) {
            break End::Exited(status);
        }
        if left.is_zero() {
            break End::TimedOut;
        }
        match inbox.recv_timeout(left.min(LOOK_EVERY)) {
            Ok(Event::Line(line)) => {
                lines.push(line);
                if is_enough(&lines) {
                    break End::Seen;
                }
            }
            Ok(Event::Silent) => silent += 1,
            Ok(Event::Exited(status)) => {
                exited = Some(status);
                // Whatever it left behind may keep its outputs open.
                kill_orphans();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break End::TimedOut,
        }
        if is_interrupted() {
            break End::Interrupted;
        }
    };
    if exited.is_none() {
        let _ = kill_process(pid, Signal::KILL);
    }
    // Only when it is buried, its orphans are ours.
    while exited.is_none()
        && let Ok(event) = inbox.recv()
    {
        if let Event::Exited(status) = event {
            exited = Some(status);
        }
    }
    kill_orphans();
    Ok(Run { end, lines, time: start.elapsed() })
}

fn listen(output: Option<impl Read + Send + 'static>, events: &Sender<Event>) {
    let (output, events) = (output.expect("a pipe was asked for"), events.clone());
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut bytes = Vec::new();
        while output.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if events.send(Event::Line(line)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::Silent);
    });
}

fn wait(mut child: Child, events: Sender<Event>) {
    thread::spawn(move || {
        if let Ok(status) = child.wait() {
            let _ = events.send(Event::Exited(status));
        }
    });
}

/// Kills and buries whoever became our child because its parent died, and whoever comes to us by
/// that.
fn kill_orphans() {
    while let Some(orphan) = children().first() {
        let _ = kill_process(*orphan, Signal::KILL);
        if waitpid(Some(*orphan), WaitOptions::empty()).is_err() {
            return;
        }
    }
}

fn children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let text: Vec<String> = lists.collect();
    text.iter()
        .flat_map(|list| list.split_whitespace())
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Run {
        let mut command = Command::new("sh");
        run(command.args(["-c", script]), Path::new("/"), limit, |lines| {
            lines.last().is_some_and(|line| line == "enough")
        })
        .unwrap()
    }

    #[test]
    fn a_program_ends_by_itself_by_a_line_or_by_its_limit() {
        let _alone = alone();
        let long = Duration::from_secs(60);
        let by_itself = shell("echo out; echo err >&2; exit 3", long);
        assert!(matches!(by_itself.end, End::Exited(status) if status.code() == Some(3)));
        assert_eq!(by_itself.lines.len(), 2, "{:?}", by_itself.lines);
        let by_a_line = shell("echo enough; sleep 1000", long);
        assert_eq!(by_a_line.end, End::Seen);
        let by_its_limit = shell("sleep 1000", Duration::from_millis(50));
        assert_eq!(by_its_limit.end, End::TimedOut);
        assert_eq!(children(), []);
    }

    #[test]
    fn nothing_is_left_behind() {
        let _alone = alone();
        // One in the group, one that left it, and one that holds the output open.
        let script = "sleep 1001 & setsid sleep 1002 & setsid sh -c 'sleep 1003 & sleep 1003' & \
                      echo enough; sleep 1004";
        for script in [script.to_owned(), script.replace("sleep 1004", "true")] {
            let run = shell(&script, Duration::from_secs(60));
            assert!(matches!(run.end, End::Seen), "{run:?}");
            assert_eq!(children(), [], "{script}");
        }
        let run = shell("setsid sleep 1005 & exit 0", Duration::from_secs(60));
        assert!(matches!(run.end, End::Exited(_)), "{run:?}");
        assert_eq!(children(), []);
    }

    /// Orphans of all tests become children of the one process that they share.
    fn alone() -> std::sync::MutexGuard<'static, ()> {
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        prepare().unwrap();
        ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
