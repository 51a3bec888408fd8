//! Who descends from a process, and how all of them are ended, as the kernel tells it in `/proc`.
//!
//! Process groups and sessions do not matter here: `timeout`, `set -m`, `setsid` and a double fork
//! leave a group, but nobody leaves the tree of a subreaper. What ends hands its children to the
//! next subreaper above it, so a process that one pass misses is found by a later one.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, io};

use leasehold::clock::{Clock, SystemClock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgid, getpid, kill_process, test_kill_process};

/// What SIGKILL does not end within this time hangs in the kernel, in state D for instance.
const BURIAL: Duration = Duration::from_secs(1);

/// Passes in a row, so that a command which forks without end cannot keep us from the clock.
const PASSES_MAX: usize = 64;

/// How many processes a message names.
const NAMES_MAX: usize = 5;

/// How to find the children of a process here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The kernel lists them.
    Children,
    /// It does not (it was built without CONFIG_PROC_CHILDREN), so all processes are looked at.
    Scan,
    /// `/proc` is missing, or shows another pid namespace: its numbers would hit strangers.
    Nothing,
}

fn source() -> Source {
    static SOURCE: OnceLock<Source> = OnceLock::new();
    *SOURCE.get_or_init(|| {
        let us = fs::read_link("/proc/self").ok();
        let is_ours = us.is_some_and(|us| us.as_os_str() == getpid().to_string().as_str());
        match fs::exists("/proc/thread-self/children") {
            _ if !is_ours => Source::Nothing,
            Ok(true) => Source::Children,
            _ => Source::Scan,
        }
    })
}

/// The children of a process, zombies included.
pub(super) fn children(parent: Pid) -> io::Result<Vec<Pid>> {
    match source() {
        Source::Children => listed_children(parent),
        Source::Scan => scanned_children(parent),
        Source::Nothing => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn listed_children(parent: Pid) -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    let threads = unless_gone(fs::read_dir(format!("/proc/{parent}/task")))?;
    // Each thread has children of its own.
    for thread in threads.into_iter().flatten() {
        let list = unless_gone(fs::read_to_string(thread?.path().join("children")))?;
        children.extend(list.unwrap_or_default().split_whitespace().filter_map(to_pid));
    }
    Ok(children)
}

fn scanned_children(parent: Pid) -> io::Result<Vec<Pid>> {
    let parent = parent.to_string();
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(to_pid);
        let is_child = |pid: &Pid| stat(*pid).is_some_and(|(_, above)| above == parent);
        children.extend(pid.filter(is_child));
    }
    Ok(children)
}

/// A process that has ended while we look is no error.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

fn to_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

/// The state and the parent of a process.
fn stat(pid: Pid) -> Option<(char, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold any character.
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.to_owned()))
}

/// Whether a process can still act. A zombie cannot, unless only its first thread has ended.
fn can_act(pid: Pid) -> bool {
    match stat(pid) {
        Some(('Z' | 'X', _)) => {
            fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1)
        }
        Some(_) => true,
        // Gone, or hidden from us (hidepid) as another user's.
        None => test_kill_process(pid) == Err(Errno::PERM),
    }
}

/// `4711 (nginx), 4712 (sh)`, and no more than five of them.
pub(super) fn names(pids: &[Pid]) -> String {
    let names: Vec<_> = pids.iter().take(NAMES_MAX).map(|pid| name(*pid)).collect();
    names.join(", ") + if pids.len() > NAMES_MAX { ", …" } else { "" }
}

/// `4711 (nginx)`.
pub(super) fn name(pid: Pid) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(comm) => format!("{pid} ({})", comm.trim_end()),
        Err(_) => pid.to_string(),
    }
}

/// A process that no signal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Defier {
    pub(super) pid: Pid,
    /// It belongs to another user; otherwise it hangs in the kernel.
    pub(super) is_forbidden: bool,
}

/// Ends the descendants of somebody, and remembers whom it met.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    asked: HashSet<Pid>,
    /// Since when, in nanoseconds.
    killed: HashMap<Pid, u64>,
    defiers: HashSet<Pid>,
}

impl Sweep {
    /// Sends a signal once to all who have not had it from us, and wakes those who are stopped:
    /// they cannot even end. `roots` are the first to be met, their descendants come after them.
    /// Members of `group` have had the signal with it.
    pub(super) fn ask(
        &mut self,
        roots: Vec<Pid>,
        signal: Signal,
        group: Option<Pid>,
    ) -> Vec<Defier> {
        let mut defiers = Vec::new();
        for pid in with_descendants(roots) {
            if !self.asked.insert(pid) {
                continue;
            }
            let has_it = group.is_some() && getpgid(Some(pid)).ok() == group;
            let sent = if has_it { test_kill_process(pid) } else { kill_process(pid, signal) };
            if !has_it && sent.is_ok() {
                let _ = kill_process(pid, Signal::CONT);
            }
            self.note_refusal(pid, sent, &mut defiers);
        }
        defiers
    }

    /// Sends SIGKILL to the roots and their descendants, until a pass meets nobody new. Tells each
    /// process that stays in spite of it once.
    pub(super) fn kill(&mut self, roots: impl Fn() -> Vec<Pid>) -> Vec<Defier> {
        let now = SystemClock.now().as_nanos();
        let mut defiers = Vec::new();
        for _ in 0..PASSES_MAX {
            let mut is_new = false;
            let mut found = roots();
            while let Some(pid) = found.pop() {
                // Before it ends and hands them on.
                found.extend(children(pid).unwrap_or_default());
                let sent = kill_process(pid, Signal::KILL);
                is_new |= !self.killed.contains_key(&pid);
                let since = *self.killed.entry(pid).or_insert(now);
                self.note_refusal(pid, sent, &mut defiers);
                let is_long = now.saturating_sub(since) > BURIAL.as_nanos() as u64;
                if is_long && can_act(pid) && self.defiers.insert(pid) {
                    defiers.push(Defier { pid, is_forbidden: false });
                }
            }
            if !is_new {
                break;
            }
        }
        defiers
    }

    fn note_refusal(&mut self, pid: Pid, sent: rustix::io::Result<()>, to: &mut Vec<Defier>) {
        if sent == Err(Errno::PERM) && can_act(pid) && self.defiers.insert(pid) {
            to.push(Defier { pid, is_forbidden: true });
        }
    }
}

/// Those who can still act, of these and all who descend from them.
pub(super) fn alive(roots: Vec<Pid>) -> Vec<Pid> {
    with_descendants(roots).filter(|pid| can_act(*pid)).collect()
}

fn with_descendants(mut found: Vec<Pid>) -> impl Iterator<Item = Pid> {
    std::iter::from_fn(move || {
        let pid = found.pop()?;
        found.extend(children(pid).unwrap_or_default());
        Some(pid)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn descendants_are_found_by_list_and_by_scan_whatever_they_did_to_their_session() {
        let script = "setsid sh -c 'sleep 60 & echo; wait' & wait";
        let mut shell =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        shell.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let root = Pid::from_child(&shell);
        assert_eq!(listed_children(root).unwrap().len(), 1);
        assert_eq!(listed_children(root).unwrap(), scanned_children(root).unwrap());
        let below = alive(children(root).unwrap());
        assert_eq!(below.len(), 2, "{below:?}");
        let is_named = || name(below[1]).ends_with(" (sleep)");
        leasehold_testkit::eventually(Duration::from_secs(10), "it is sleep by now", is_named);
        // Everybody but the shell, which ends by itself then.
        assert_eq!(Sweep::default().kill(|| children(root).unwrap()), []);
        assert!(shell.wait().is_ok());
        let is_gone = || below.iter().all(|pid| !can_act(*pid));
        leasehold_testkit::eventually(Duration::from_secs(10), "all are gone", is_gone);
    }
}
