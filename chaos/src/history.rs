//! What is written down while a run goes on, one JSON object a line, and read back by the checks.
//!
//! A line is one `write` to a file of its own process, so a process that is killed leaves whole
//! lines and at most one torn one at the end.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::boot_nanos;

/// What a holder did or saw. `op` numbers the acquires of one process; times are boot nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Event {
    /// It is about to ask for a lock.
    Asks {
        /// Which acquire of this process.
        op: u64,
        /// For which lock.
        lock: String,
    },
    /// It did not get it.
    Refused {
        /// Which acquire.
        op: u64,
        /// The kind of refusal.
        why: String,
    },
    /// It stopped waiting; nobody can tell whether the nodes had granted it.
    Abandons {
        /// Which acquire.
        op: u64,
    },
    /// It holds the lock.
    Granted {
        /// Which acquire.
        op: u64,
        /// Which lock.
        lock: String,
        /// The fencing token.
        fence: u64,
        /// The value that stands for this acquisition on the nodes.
        holder: String,
        /// What it may believe now: valid until then; nothing if it was too late already.
        until: Option<u64>,
    },
    /// What it may believe has changed.
    Believes {
        /// Which acquire.
        op: u64,
        /// Valid until then; nothing once it is lost.
        until: Option<u64>,
        /// When it looked before this and still believed what it wrote then.
        before: u64,
    },
    /// It wrote to the fenced store.
    Wrote {
        /// Which acquire.
        op: u64,
        /// What.
        value: u64,
        /// Whether the store took it.
        accepted: bool,
    },
    /// It noticed that the lease was lost.
    Lost {
        /// Which acquire.
        op: u64,
        /// Why.
        why: String,
    },
    /// It is about to give the lock back.
    GivesBack {
        /// Which acquire.
        op: u64,
        /// Whether it waits for the outcome; otherwise the guard was dropped.
        waits: bool,
    },
    /// It learned what became of that.
    GaveBack {
        /// Which acquire.
        op: u64,
        /// The outcome.
        outcome: String,
    },
    /// A caller of a lock server or of the command line was told that it has a lease.
    Told {
        /// Which acquire.
        op: u64,
        /// Which lock.
        lock: String,
        /// The fencing token.
        fence: u64,
        /// For how long the nodes keep it, in milliseconds.
        ttl_ms: u64,
        /// Until when, by its own count from when it asked.
        until: u64,
    },
    /// A caller looked at its lease.
    Looked {
        /// Which acquire.
        op: u64,
        /// Which lock.
        lock: String,
        /// The fencing token.
        fence: u64,
        /// When it asked.
        sent: u64,
        /// Whether it was told that a quorum has it.
        held: bool,
        /// Until when, by its own count from when it asked. Histories of before have none.
        #[serde(default)]
        until: Option<u64>,
    },
    /// A caller handed in a lease that it does not have.
    Lied {
        /// What was wrong with it.
        lie: String,
        /// Which lock.
        lock: String,
        /// The fence that it made up.
        fence: u64,
        /// What it was told.
        answer: String,
        /// Whether that was a yes.
        believed: bool,
    },
    /// It stood still, and its clock missed that. Its other times are told in true time.
    Missed {
        /// For how many nanoseconds of true time.
        nanos: u64,
        /// When it stood, at the latest.
        from: u64,
        /// When it went on, at the latest.
        to: u64,
    },
    /// The library read the clock of a node, and did whatever follows from that for its leases.
    Reading {
        /// Which node, as the library calls it.
        node: String,
        /// When it asked.
        sent: u64,
        /// How many nanoseconds later it had the answer, by its own clock.
        took: u64,
    },
    /// The library won a ballot, in its own words.
    Ballot(Ballot),
    /// The library changed the identity record of a node, or tried to.
    Record {
        /// Which node, as the library calls it.
        node: String,
        /// What it wrote.
        record: String,
        /// What stood there before; empty if nothing did.
        expected: String,
        /// Whether the node took it: another client may have been faster.
        replaced: bool,
    },
}

/// A ballot that was won, with the votes that were counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ballot {
    /// `acquire` or `extend`.
    pub kind: String,
    /// Which lock.
    pub lock: String,
    /// The value that stands for this acquisition on the nodes.
    pub holder: String,
    /// The fencing token.
    pub fence: u64,
    /// No vote was given before this.
    pub asked_at: u64,
    /// Who gave it.
    pub votes: Vec<Vote>,
}

/// A vote that was counted. It belongs to one life of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vote {
    /// The node, as the library calls it.
    pub node: String,
    /// The life that gave it, 32 hexadecimal digits.
    pub life: String,
    /// The process that gave it, as far as the client knew.
    pub run: String,
    /// `granted`, `extended` or `healed`.
    pub word: String,
}

/// What really became of the servers, as the run knows that starts, kills and copies them. `server`
/// is the number of a node; the spare server comes after them. Each took place between `from` and
/// the time of its line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum ServerEvent {
    /// A process began to answer.
    Started {
        /// Which server.
        server: usize,
        /// The run id that the process gave itself.
        run: String,
        /// When it was launched.
        from: u64,
    },
    /// A process is gone.
    Ended {
        /// Which server.
        server: usize,
        /// The process.
        run: String,
        /// When it was still there.
        from: u64,
    },
    /// Its memory is gone, or nobody can tell whether it is whole: what it says from now on, a new
    /// life says.
    Forgot {
        /// Which server.
        server: usize,
        /// The process that answers from now on.
        run: String,
        /// When it had not forgotten yet.
        from: u64,
        /// What made it forget.
        why: String,
    },
    /// Its wall clock was stepped.
    Clock {
        /// Which server.
        server: usize,
        /// When it had not been stepped yet.
        from: u64,
        /// By how many microseconds; negative for back.
        micros: i64,
        /// How far it is ahead of true time now, in microseconds; negative for behind.
        ahead: i64,
    },
    /// New connections to the address of a node lead to these servers from now on.
    Leads {
        /// Whose address.
        node: usize,
        /// Where to.
        servers: Vec<usize>,
    },
}

/// Something with the time at which it was written down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct At<T> {
    /// Boot nanoseconds.
    pub at: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: T,
}

/// What the fenced store was asked, in the order in which it decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreLine {
    /// Boot nanoseconds.
    pub at: u64,
    /// Which lock guards it.
    pub lock: String,
    /// The writer's fence.
    pub fence: u64,
    /// The writer.
    pub holder: String,
    /// What was written; nothing if the writer only showed its fence, to read.
    pub value: Option<u64>,
    /// Whether the store took it.
    pub accepted: bool,
}

/// What somebody wrote where nobody checks, in the order of arrival.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnfencedLine {
    /// Which lock should have guarded it.
    pub lock: String,
    /// The writer's fence, which nobody looked at.
    pub fence: u64,
    /// What was written.
    pub value: u64,
}

/// A fault as it was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultLine {
    /// Its kind, as counted in the report.
    pub kind: String,
    /// To whom and how.
    pub story: String,
}

/// What the run itself knows and the checks need.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// The seed of the schedule.
    pub seed: u64,
    /// `redis`, `valkey` or `sqlite`.
    pub backend: String,
    /// For how long faults were made.
    pub seconds: u64,
    /// How many nodes.
    pub nodes: usize,
    /// How many holder processes at a time.
    pub holders: usize,
    /// How many locks.
    pub locks: usize,
    /// Whether assumptions of the protocol were broken on purpose.
    pub beyond: bool,
    /// The kinds of faults that were made, if not all.
    pub only: Vec<String>,
    /// What took part.
    pub versions: Vec<String>,
    /// When it began.
    pub started: u64,
    /// When the last fault was over.
    pub calm_from: u64,
    /// Within this after it, everybody must have had a lock.
    pub calm_within_seconds: u64,
    /// The fewest critical sections that mean anything.
    pub sections_floor: u64,
    /// The last life of each holder.
    pub last_lives: Vec<u64>,
    /// Whether some of the holders are callers of lock servers.
    #[serde(default)]
    pub through_servers: bool,
    /// How many busy loops ran beside it for half of the time.
    #[serde(default)]
    pub hogs: usize,
    /// The longest lease of the cluster, in nanoseconds.
    pub max_ttl: u64,
    /// How far clocks may be apart, in nanoseconds.
    #[serde(default)]
    pub max_skew: u64,
    /// How long a server that forgot must not vote, in nanoseconds; 0 in a history that does not say so.
    #[serde(default)]
    pub quarantine: u64,
    /// By node: what the library calls it; empty for a file.
    pub names: Vec<String>,
}

/// One life of one holder process.
#[derive(Debug, Clone, PartialEq)]
pub struct Life {
    /// Which holder.
    pub holder: usize,
    /// Which of its lives.
    pub life: u64,
    /// What it wrote down.
    pub events: Vec<At<Event>>,
}

/// All that was written down.
#[derive(Debug, Clone)]
pub struct History {
    /// About the run.
    pub meta: Meta,
    /// By the holders.
    pub lives: Vec<Life>,
    /// By the store.
    pub store: Vec<StoreLine>,
    /// Where nobody checks.
    pub unfenced: Vec<UnfencedLine>,
    /// By whoever made trouble.
    pub faults: Vec<At<FaultLine>>,
    /// Written by the process that started the servers.
    pub servers: Vec<At<ServerEvent>>,
}

impl History {
    /// Reads a folder that a run left.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let meta = fs::read_to_string(folder.join(META))
            .map_err(|error| because(error, &folder.join(META)))?;
        let meta = serde_json::from_str(&meta).map_err(io::Error::other)?;
        let mut lives = Vec::new();
        for entry in fs::read_dir(folder.join(HOLDERS))? {
            let path = entry?.path();
            let Some((holder, life)) = life_of(&path) else { continue };
            lives.push(Life { holder, life, events: read_lines(&path)? });
        }
        lives.sort_by_key(|life| (life.holder, life.life));
        Ok(Self {
            meta,
            lives,
            store: read_lines(&folder.join(STORE))?,
            unfenced: read_lines(&folder.join(UNFENCED))?,
            faults: read_lines(&folder.join(FAULTS))?,
            servers: read_lines(&folder.join(SERVERS))?,
        })
    }
}

/// About the run.
pub const META: &str = "meta.json";
/// One file per life of a holder.
pub const HOLDERS: &str = "holders";
/// The store's journal.
pub const STORE: &str = "store.jsonl";
/// The log that nobody checks.
pub const UNFENCED: &str = "unfenced.jsonl";
/// The faults as they were done.
pub const FAULTS: &str = "faults.jsonl";

/// What is written among the faults if a cluster with a wrong clock was taken for a new one.
pub const MISLED: &str = "init misled";

/// What the lock servers wrote besides their ballots.
pub const INSTANCES_LOG: &str = "lock-servers.log";

/// What became of the servers.
pub const SERVERS: &str = "servers.jsonl";

/// The file of one life of one holder.
pub fn life_file(folder: &Path, holder: usize, life: u64) -> PathBuf {
    folder.join(HOLDERS).join(format!("{holder}.{life}.jsonl"))
}

fn life_of(path: &Path) -> Option<(usize, u64)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
    let (holder, life) = name.split_once('.')?;
    Some((holder.parse().ok()?, life.parse().ok()?))
}

/// Writes lines to a file that may have other writers.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// Appends to `path`, which may be new.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path);
        file.map(Self).map_err(|error| because(error, path))
    }

    /// One line, by one `write`: what other processes append does not get between.
    pub fn line(&mut self, what: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(what).map_err(io::Error::other)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }

    /// One line with the time of now.
    pub fn now(&mut self, what: impl Serialize) -> io::Result<u64> {
        let at = boot_nanos();
        self.line(&At { at, what })?;
        Ok(at)
    }
}

/// The lines of a file. A torn last one, left by a killed process, is not there.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let text = fs::read_to_string(path).map_err(|error| because(error, path))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            io::Error::other(format!("{}, line {}: {error}", path.display(), number + 1))
        })
    };
    whole.lines().enumerate().map(parse).collect()
}

fn because(error: io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
