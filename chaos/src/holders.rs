//! The processes of a run: the holders, and the store. None of them outlives the run: each is bound
//! to die with it, stopped or not, and is killed when this is dropped.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_judge::Chance;
use leasehold_testkit::{WallClock, bound_command, eventually, spawn};
use rustix::process::{Pid, Signal, kill_process};

use crate::history::life_file;
use crate::holder::{Part, Setup};
use crate::store::Client;

/// How long a holder has to finish what it does. It waits for a lock for 5 s at most.
const FINISH_WITHIN: Duration = Duration::from_secs(30);

/// A process that is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts this program again, in another role.
    pub(crate) fn start(
        role: &str,
        arguments: &[&str],
        stdin: Stdio,
        clock: Option<&WallClock>,
    ) -> io::Result<Self> {
        let mut command: Command = bound_command(std::env::current_exe()?);
        if let Some(clock) = clock {
            clock.preload(&mut command);
        }
        // Of a group of its own: a terminal's Ctrl-C is for the run, which ends the others in order.
        command.arg(role).args(arguments).stdin(stdin).stdout(Stdio::null()).process_group(0);
        spawn(command).map(Self)
    }

    fn signal(&self, signal: Signal) {
        // It has not been waited for, so its pid is still its own. A zombie needs no signal.
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The store's process.
#[derive(Debug)]
pub struct StoreProcess(#[expect(dead_code, reason = "kept for its drop")] Process);

impl StoreProcess {
    /// Starts it and waits until it answers.
    pub fn start(socket: &Path, journal: &Path) -> io::Result<Self> {
        let [socket_text, journal] = [socket, journal].map(|path| path.to_string_lossy());
        let process = Process::start("store", &[&socket_text, &journal], Stdio::null(), None)?;
        eventually(Duration::from_secs(30), "the store answers", || {
            Client::connect(socket).is_ok()
        });
        Ok(Self(process))
    }
}

/// All holders.
#[derive(Debug)]
pub struct Holders {
    folder: PathBuf,
    pattern: Setup,
    running: Vec<Option<Process>>,
    lives: Vec<u64>,
    /// Since when a holder is stopped.
    stopped: Vec<Option<Instant>>,
    /// Where their clock files are.
    clock_files: PathBuf,
    clocks: Vec<Option<WallClock>>,
    /// Clients that take part as something else, by the number of their life.
    guests: HashMap<u64, Process>,
    guest_lives: u64,
}

/// A holder that is stopped counts the first moments itself: the signal takes a while to arrive, and
/// its clock must not go back.
const MISSED_LESS: Duration = Duration::from_millis(50);

impl Holders {
    /// Starts `count` holders. `pattern` says what they have in common; in `clock_files` there is room
    /// for files that are gone after the run.
    pub fn start(
        count: usize,
        folder: &Path,
        clock_files: &Path,
        pattern: Setup,
    ) -> io::Result<Self> {
        let mut holders = Self {
            folder: folder.to_owned(),
            pattern,
            running: (0..count).map(|_| None).collect(),
            lives: vec![0; count],
            stopped: vec![None; count],
            clock_files: clock_files.to_owned(),
            clocks: (0..count).map(|_| None).collect(),
            guests: HashMap::new(),
            guest_lives: 0,
        };
        for holder in 0..count {
            holders.begin_life(holder)?;
        }
        Ok(holders)
    }

    /// The present life of each.
    pub fn lives(&self) -> &[u64] {
        &self.lives
    }

    /// Starts a holder again that was killed.
    pub fn begin_life(&mut self, holder: usize) -> io::Result<()> {
        self.lives[holder] += 1;
        let life = self.lives[holder];
        self.stopped[holder] = None;
        let part = self.part_of(holder);
        if !self.pattern.is_file && part == Part::Holder {
            let file = self.clock_files.join(format!("clock-{holder}.{life}"));
            self.clocks[holder] = Some(WallClock::new(file)?);
        }
        let process = self.launch(holder, life, part, self.clocks[holder].as_ref())?;
        self.running[holder] = Some(process);
        Ok(())
    }

    /// One in four has guards, if there are lock servers; everybody, if there are none.
    fn part_of(&self, holder: usize) -> Part {
        let is_caller = self.pattern.through.is_some() && !holder.is_multiple_of(4);
        if is_caller { Part::Caller } else { Part::Holder }
    }

    fn launch(
        &self,
        holder: usize,
        life: u64,
        part: Part,
        clock: Option<&WallClock>,
    ) -> io::Result<Process> {
        let mut chance = Chance::new(self.pattern.seed);
        let seed = chance.bits() ^ (holder as u64) << 32 ^ life;
        let history = life_file(&self.folder, holder, life);
        let mut setup = Setup { holder, life, seed, history, part, ..self.pattern.clone() };
        if let Some(through) = &mut setup.through {
            through.scripts += holder;
        }
        let setup = serde_json::to_string(&setup).map_err(io::Error::other)?;
        Process::start("holder", &[&setup], Stdio::piped(), clock)
    }

    /// Starts a client that takes part as something else than a holder, and says which it is.
    pub fn invite(&mut self, part: Part) -> io::Result<u64> {
        self.guest_lives += 1;
        let guest = self.launch(self.lives.len(), self.guest_lives, part, None)?;
        self.guests.insert(self.guest_lives, guest);
        Ok(self.guest_lives)
    }

    /// Ends such a client.
    pub fn dismiss(&mut self, guest: u64) {
        self.guests.remove(&guest);
    }

    /// Kills a holder like a power cut, unless it is dead already. Says whether it was not.
    pub fn kill(&mut self, holder: usize) -> bool {
        self.running[holder].take().is_some()
    }

    /// Stops a holder where it stands, unless it is stopped already or dead. Says whether it did.
    pub fn pause(&mut self, holder: usize) -> bool {
        match &self.running[holder] {
            Some(process) if self.stopped[holder].is_none() => {
                process.signal(Signal::STOP);
                self.stopped[holder] = Some(Instant::now());
                true
            }
            _ => false,
        }
    }

    /// Lets it go on. If its clocks `miss` that it was stopped, they show what they showed then.
    pub fn resume(&mut self, holder: usize, miss: bool) {
        let Some(since) = self.stopped[holder].take() else { return };
        if let (true, Some(clock)) = (miss, &self.clocks[holder]) {
            clock.miss(since.elapsed().saturating_sub(MISSED_LESS));
        }
        if let Some(process) = &self.running[holder] {
            process.signal(Signal::CONT);
        }
    }

    /// Holders that ended though nobody killed them.
    pub fn ended(&mut self) -> Vec<usize> {
        let ended =
            |process: &mut Option<Process>| process.as_mut().is_some_and(Process::has_ended);
        let all = self.running.iter_mut().enumerate();
        all.filter_map(|(holder, process)| ended(process).then_some(holder)).collect()
    }

    /// Has all of them finish what they do, and waits for it; who does not is killed.
    pub fn finish(mut self) {
        for process in self.running.iter_mut().flatten() {
            if let Some(stdin) = &mut process.0.stdin {
                let _ = stdin.write_all(b"stop\n");
            }
        }
        let end = Instant::now() + FINISH_WITHIN;
        while self.running.iter_mut().flatten().any(|process| !process.has_ended())
            && Instant::now() < end
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
