//! Who may take part, and in what.

use leasehold_testkit::Need;

use crate::order::Names;

/// A way to take a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) language: Language,
    /// Above this many threads or promises it only gets slower, and takes minutes to say so.
    pub(crate) most: usize,
    /// Knows how to wait for a lock that others hold.
    pub(crate) waits: bool,
    /// How many nodes it can ask.
    pub(crate) nodes: Nodes,
    /// Needs a server with `DELIFEQ`.
    pub(crate) needs_native: bool,
    /// Keeps its locks in a file.
    pub(crate) in_file: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Python,
    Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nodes {
    Any,
    One,
}

const RUST: Contestant = Contestant {
    name: "",
    language: Language::Rust,
    most: usize::MAX,
    waits: true,
    nodes: Nodes::Any,
    needs_native: false,
    in_file: false,
};
const BARE: Contestant = Contestant { waits: false, ..RUST };
const NODE: Contestant = Contestant { language: Language::Node, ..RUST };
const PYTHON: Contestant = Contestant { language: Language::Python, most: 64, ..RUST };

const FILE: Contestant = Contestant { in_file: true, ..RUST };

/// Takes no lock at all: one task that holds, again and again, is the most that is to be had.
pub(crate) const IDEAL: &str = "ideal";

/// All of them, the floor first.
pub(crate) const ALL: &[Contestant] = &[
    Contestant { name: "floor", ..BARE },
    Contestant { name: "floor-native", needs_native: true, ..BARE },
    Contestant { name: "floor-script", ..BARE },
    Contestant { name: "floor-p2", ..BARE },
    Contestant { name: IDEAL, ..RUST },
    Contestant { name: "leasehold", ..RUST },
    Contestant { name: "leasehold-thread", ..RUST },
    Contestant { name: "leasehold-try", waits: false, ..RUST },
    Contestant { name: "leasehold-http", waits: false, ..RUST },
    Contestant { name: "leasehold-http-client", ..RUST },
    Contestant { name: "rslock", ..RUST },
    Contestant { name: "rslock-5ms", ..RUST },
    Contestant { name: "redlock", ..NODE },
    Contestant { name: "redis-semaphore", ..NODE },
    Contestant { name: "pottery", ..PYTHON },
    Contestant { name: "redlock-py", ..PYTHON },
    Contestant { name: "redis-py", nodes: Nodes::One, ..PYTHON },
    Contestant { name: "sqlite-floor", waits: false, ..FILE },
    Contestant { name: "leasehold-sqlite", ..FILE },
    Contestant { name: "leasehold-sqlite-thread", ..FILE },
];

/// The contestants of these names, in the order of [`ALL`].
pub(crate) fn named(names: &[String]) -> Result<Vec<Contestant>, String> {
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|known| known.name != **name)) {
        let known: Vec<_> = ALL.iter().map(|known| known.name).collect();
        return Err(format!("no contestant is called `{unknown}`; there are {}", known.join(", ")));
    }
    Ok(ALL.iter().filter(|known| names.iter().any(|name| name == known.name)).copied().collect())
}

impl Contestant {
    /// Whether its failure is our fault.
    pub(crate) fn is_ours(&self) -> bool {
        ["floor", IDEAL, "leasehold", "sqlite"].iter().any(|ours| self.name.starts_with(ours))
    }

    /// Whether the others are compared with it.
    pub(crate) fn is_floor(&self) -> bool {
        ["floor", IDEAL, "sqlite-floor"].contains(&self.name)
    }

    /// Whether it has to be alone.
    pub(crate) fn is_ideal(&self) -> bool {
        self.name == IDEAL
    }

    /// Whether it can cope with such locks: not everybody waits for what others hold.
    pub(crate) fn can(&self, names: Names) -> bool {
        self.waits || names == Names::Distinct
    }

    /// Whether what it runs on is there.
    pub(crate) fn check(&self) -> Result<(), String> {
        let need = match self.language {
            Language::Rust => return Ok(()),
            Language::Python => Need::PythonPeers,
            Language::Node => Need::NodePeers,
        };
        need.check().map_err(|missing| {
            format!("{} cannot take part: {missing}, or leave it out with --only", self.name)
        })
    }
}
