//! The fenced store: a process of its own, asked over a Unix socket. Per lock it keeps a number and
//! the highest fence that it has seen, and takes nothing from a lower one. Its journal tells what it
//! decided, in that order.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};

use crate::clock::boot_nanos;
use crate::history::{Log, StoreLine};

/// A question: to write, or to show the fence and read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Question {
    /// Which lock guards it.
    pub lock: String,
    /// The asker's fence.
    pub fence: u64,
    /// The asker.
    pub holder: String,
    /// What to write; nothing to read.
    pub value: Option<u64>,
}

/// What the store says to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the asker was in time.
    pub accepted: bool,
    /// The number as it stands.
    pub value: u64,
}

#[derive(Debug, Default)]
struct Cell {
    fence: u64,
    holder: String,
    value: u64,
}

struct Store {
    cells: HashMap<String, Cell>,
    journal: Log,
}

impl Store {
    /// Compares, writes and notes it in one step: the caller has the store to itself.
    fn decide(&mut self, question: Question) -> io::Result<Verdict> {
        let cell = self.cells.entry(question.lock.clone()).or_default();
        // Two holders with one fence cannot be, and if they are, the second is refused.
        let is_same = question.fence == cell.fence && question.holder == cell.holder;
        let accepted = question.fence > cell.fence || is_same;
        if accepted {
            cell.fence = question.fence;
            cell.holder.clone_from(&question.holder);
            cell.value = question.value.unwrap_or(cell.value);
        }
        let value = cell.value;
        let Question { lock, fence, holder, value: written } = question;
        let at = boot_nanos();
        self.journal.line(&StoreLine { at, lock, fence, holder, value: written, accepted })?;
        Ok(Verdict { accepted, value })
    }
}

/// Serves until the process ends.
pub fn serve(socket: &Path, journal: &Path) -> io::Result<()> {
    let store = Store { cells: HashMap::new(), journal: Log::open(journal)? };
    let store = Arc::new(Mutex::new(store));
    let listener = UnixListener::bind(socket)?;
    for stream in listener.incoming() {
        let (stream, store) = (stream?, store.clone());
        // Ends with its client, and nobody minds how.
        thread::spawn(move || answer(&stream, &store));
    }
    Ok(())
}

fn answer(stream: &UnixStream, store: &Mutex<Store>) -> io::Result<()> {
    let mut out = stream;
    for line in BufReader::new(stream).lines() {
        let question = serde_json::from_str(&line?).map_err(io::Error::other)?;
        let verdict = store.lock().unwrap_or_else(PoisonError::into_inner).decide(question)?;
        let mut line = serde_json::to_vec(&verdict).map_err(io::Error::other)?;
        line.push(b'\n');
        out.write_all(&line)?;
    }
    Ok(())
}

/// A connection to the store.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        Ok(Self { stream: BufReader::new(UnixStream::connect(socket)?) })
    }

    /// Asks and waits for the answer.
    pub fn ask(&mut self, question: &Question) -> io::Result<Verdict> {
        let mut line = serde_json::to_vec(question).map_err(io::Error::other)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer)?;
        serde_json::from_str(&answer).map_err(io::Error::other)
    }
}
