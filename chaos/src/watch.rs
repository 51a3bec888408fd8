//! Follows the history while it grows: who holds what, and the figures that are shown meanwhile.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::history::{At, Event, STORE, StoreLine, life_file};

/// A file that is read as it grows.
#[derive(Debug)]
struct Tail {
    path: PathBuf,
    file: Option<File>,
    unread: Vec<u8>,
}

impl Tail {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None, unread: Vec::new() }
    }

    /// The whole lines that are new.
    fn read<T: DeserializeOwned>(&mut self) -> io::Result<Vec<T>> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut self.unread)?;
        }
        let Some(end) = self.unread.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.unread.split_off(end + 1);
        let lines = std::mem::replace(&mut self.unread, rest);
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).map_err(io::Error::other)).collect()
    }
}

/// What is known so far.
#[derive(Debug)]
pub struct Watch {
    folder: PathBuf,
    /// By holder: its present life.
    tails: Vec<(u64, Tail)>,
    store: Tail,
    /// By lock: who was granted it last and did not give it back yet.
    holding: HashMap<String, usize>,
    /// When each holder was last granted a lock.
    granted: Vec<u64>,
    /// Acquisitions.
    pub grants: u64,
    /// Late writes that the store refused.
    pub late: u64,
}

impl Watch {
    /// Follows a run of `holders`.
    pub fn new(folder: &Path, holders: usize) -> Self {
        let tail = |holder| (1, Tail::new(life_file(folder, holder, 1)));
        Self {
            folder: folder.to_owned(),
            tails: (0..holders).map(tail).collect(),
            store: Tail::new(folder.join(STORE)),
            holding: HashMap::new(),
            granted: vec![0; holders],
            grants: 0,
            late: 0,
        }
    }

    /// Takes in what is new. `lives` are the present lives of the holders.
    pub fn read(&mut self, lives: &[u64]) -> io::Result<()> {
        for (holder, life) in lives.iter().enumerate() {
            let new: Vec<At<Event>> = self.tails[holder].1.read()?;
            new.into_iter().for_each(|line| self.take(holder, line));
            if self.tails[holder].0 != *life {
                self.holding.retain(|_, holding| *holding != holder);
                self.granted[holder] = 0;
                self.tails[holder] = (*life, Tail::new(life_file(&self.folder, holder, *life)));
            }
        }
        for line in self.store.read::<StoreLine>()? {
            self.late += u64::from(!line.accepted && line.value.is_some());
        }
        Ok(())
    }

    fn take(&mut self, holder: usize, line: At<Event>) {
        match line.what {
            Event::Granted { lock, .. } => {
                self.grants += 1;
                self.granted[holder] = line.at;
                self.holding.insert(lock, holder);
            }
            Event::GivesBack { .. } => self.holding.retain(|_, holding| *holding != holder),
            _ => {}
        }
    }

    /// Who holds this lock, as far as is known.
    pub fn holder_of(&self, lock: &str) -> Option<usize> {
        self.holding.get(lock).copied()
    }

    /// Whether everybody was granted a lock after this.
    pub fn all_granted_after(&self, at: u64) -> bool {
        self.granted.iter().all(|granted| *granted > at)
    }
}

/// Tells people how far it is: one line that changes on a terminal, a line now and then elsewhere.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    last: Instant,
}

impl Progress {
    /// On the standard error output.
    pub fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), last: Instant::now() }
    }

    /// Shows a line, if it is time for one.
    pub fn show(&mut self, line: impl FnOnce() -> String) {
        let every = if self.is_terminal { 200 } else { 10_000 };
        if self.last.elapsed() >= Duration::from_millis(every) {
            self.last = Instant::now();
            let (before, after) = if self.is_terminal { ("\r\x1b[2K", "") } else { ("", "\n") };
            // Nobody is there to be told that nobody is there.
            let _ = write!(io::stderr(), "{before}{}{after}", line());
        }
    }

    /// Leaves a clean line.
    pub fn end(&self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}
