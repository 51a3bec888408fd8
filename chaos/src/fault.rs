//! The kinds of trouble, and how each is counted and told.

use std::fmt;
use std::time::Duration;

/// What is done to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeFault {
    /// SIGKILL, and a start with what is on disk.
    Kill,
    /// SIGKILL, and a start with an empty disk.
    Empty,
    /// SIGKILL, and a start with the files of another node.
    OthersFiles {
        /// Whose.
        of: usize,
    },
    /// A backup is made; later SIGKILL, and a start with that backup.
    OldFiles,
    /// SIGSTOP and SIGCONT.
    Stop,
    /// FLUSHALL.
    Flush,
    /// CLIENT KILL of every connection.
    KillClients,
    /// SCRIPT FLUSH.
    ForgetScripts,
    /// A replica of the node is promoted; at the end the node takes over its data and is promoted
    /// again. Its process lives all the while.
    Failover {
        /// Whether the address leads to the promoted replica meanwhile.
        moves: bool,
    },
    /// REPLICAOF another node, and NO ONE at the end: a copy, with its connections kept.
    Replica {
        /// Whose data it takes.
        of: usize,
    },
    /// A maxmemory that is used up: every write is refused.
    Full,
    /// DEBUG SLEEP.
    Sleep,
    /// The wall clock goes back, and is slewed forward within the drift allowance.
    ClockBack {
        /// By how much.
        millis: u64,
    },
    /// The wall clock is stepped away from true time, and put right at the end.
    ClockStep {
        /// How far ahead it is meanwhile; negative for behind.
        millis: i64,
        /// How much further off each member of the list is than the one before it: no majority may
        /// agree upon a wrong time.
        apart: u64,
    },
    /// The wall clock runs too fast or too slowly, within the drift allowance; afterwards it comes
    /// back as slowly.
    ClockSlew {
        /// By how many parts of a million it is too fast; negative for too slow.
        ppm: i64,
    },
    /// The wall clocks of a majority jump together, and are put right at the end: breaks the
    /// assumptions.
    ClockJump {
        /// By how much.
        millis: i64,
    },
    /// Keys with a TTL, so locks, are evicted: breaks the assumptions.
    Evict,
}

/// What is done to the ways to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkFault {
    /// Everything comes later.
    Delay {
        /// By how much, each way.
        millis: u64,
    },
    /// Everything comes at once at the end.
    Stall,
    /// Nothing arrives.
    BlackHole,
    /// What is open leads nowhere; who connects anew is served.
    HalfOpen,
    /// Replies are lost.
    LoseReplies,
    /// Requests are lost.
    LoseRequests,
    /// Connections are refused.
    Refuse,
    /// One connection breaks between a request and its reply.
    Cut,
    /// Byte by byte.
    Drip,
}

/// Where new connections to a node are led. Those that are open stay where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteFault {
    /// To the server of another node: two names lead to one server for some holders.
    Move {
        /// To which.
        to: usize,
    },
    /// In turns to its own server and to the spare one, which is empty. Afterwards the operator
    /// deletes the record of its own server.
    Turns,
}

/// Who is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Every holder.
    All,
    /// About half of the holders.
    Half,
    /// The other half.
    OtherHalf,
}

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// With servers.
    Node {
        /// Which.
        nodes: Vec<usize>,
        /// What.
        kind: NodeFault,
    },
    /// With the ways to them.
    Link {
        /// To which.
        nodes: Vec<usize>,
        /// For whom.
        side: Side,
        /// What.
        kind: LinkFault,
    },
    /// With the address of a node.
    Route {
        /// Of which.
        node: usize,
        /// What.
        kind: RouteFault,
    },
    /// A holder is stopped: who holds this lock at that time, or else this one.
    Pause {
        /// Which lock.
        lock: usize,
        /// Who, if nobody holds it.
        holder: usize,
        /// Whether its clocks miss that, as those of a paused machine may.
        missed: bool,
    },
    /// A holder is killed right before a clock goes ahead, and started again right after: it has
    /// no memory of the time before.
    Late {
        /// Who.
        holder: usize,
    },
    /// A client with another `max_ttl` than the others tries to take part.
    Stranger {
        /// Which, in milliseconds.
        max_ttl: u64,
    },
    /// Somebody says once more that the cluster is new.
    Trust,
    /// A holder is killed, and started again at the end.
    Crash {
        /// Which lock.
        lock: usize,
        /// Who, if nobody holds it.
        holder: usize,
    },
    /// Somebody else has the SQLite file to himself.
    Grab,
    /// A lock server is killed, and started again at the end; or stopped.
    Instance {
        /// Which.
        instance: usize,
        /// Whether it is killed.
        killed: bool,
    },
}

impl NodeFault {
    /// How far ahead the clock of member number `node` is while it is stepped, in milliseconds.
    pub fn step_of(self, node: usize) -> i64 {
        match self {
            Self::ClockStep { millis, apart } => {
                millis + millis.signum() * (node as u64 * apart) as i64
            }
            _ => 0,
        }
    }
}

/// A fault and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// When it begins, from the start of the run.
    pub from: Duration,
    /// When it is over.
    pub to: Duration,
    /// What.
    pub fault: Fault,
}

impl Fault {
    /// The lock whose holder it is meant for.
    pub fn aim(&self) -> Option<usize> {
        match self {
            Self::Pause { lock, .. } | Self::Crash { lock, .. } => Some(*lock),
            Self::Node { .. }
            | Self::Link { .. }
            | Self::Route { .. }
            | Self::Late { .. }
            | Self::Stranger { .. }
            | Self::Trust
            | Self::Instance { .. }
            | Self::Grab => None,
        }
    }

    /// Whether servers lose memory by it, or may have.
    pub fn forgets(&self) -> bool {
        use NodeFault as N;
        let Self::Node { kind, .. } = self else { return false };
        match kind {
            N::Kill | N::Empty | N::OthersFiles { .. } | N::OldFiles | N::Flush => true,
            N::Failover { .. } | N::Replica { .. } => true,
            N::Stop | N::KillClients | N::ForgetScripts | N::Full | N::Sleep | N::Evict => false,
            N::ClockBack { .. } | N::ClockStep { .. } => false,
            N::ClockSlew { .. } | N::ClockJump { .. } => false,
        }
    }

    /// As it is counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Node { kind, .. } => match kind {
                NodeFault::Kill => "kill -9",
                NodeFault::Empty => "restart empty",
                NodeFault::OthersFiles { .. } => "restart from another's files",
                NodeFault::OldFiles => "restart from an old backup",
                NodeFault::Stop => "server stopped",
                NodeFault::Flush => "FLUSHALL",
                NodeFault::KillClients => "CLIENT KILL",
                NodeFault::ForgetScripts => "SCRIPT FLUSH",
                NodeFault::Replica { .. } => "REPLICAOF",
                NodeFault::Failover { .. } => "failover and back",
                NodeFault::Full => "maxmemory reached",
                NodeFault::Sleep => "DEBUG SLEEP",
                NodeFault::ClockBack { .. } => "clock back",
                NodeFault::ClockStep { .. } => "clock step",
                NodeFault::ClockSlew { .. } => "clock slew",
                NodeFault::ClockJump { .. } => "clock jump",
                NodeFault::Evict => "eviction",
            },
            Self::Link { kind, .. } => match kind {
                LinkFault::Delay { .. } => "delay",
                LinkFault::Stall => "stall",
                LinkFault::BlackHole => "black hole",
                LinkFault::HalfOpen => "half-open",
                LinkFault::LoseReplies => "lost replies",
                LinkFault::LoseRequests => "lost requests",
                LinkFault::Refuse => "refused connections",
                LinkFault::Cut => "reset after a request",
                LinkFault::Drip => "slow drip",
            },
            Self::Route { kind: RouteFault::Move { .. }, .. } => "address moved",
            Self::Route { kind: RouteFault::Turns, .. } => "servers take turns",
            Self::Pause { missed: true, .. } => "machine paused",
            Self::Pause { missed: false, .. } => "holder stopped",
            Self::Late { .. } => "late holder",
            Self::Stranger { .. } => "another max_ttl",
            Self::Trust => "init again",
            Self::Crash { .. } => "holder killed",
            Self::Grab => "file locked by another",
            Self::Instance { killed: true, .. } => "lock server killed",
            Self::Instance { killed: false, .. } => "lock server stopped",
        }
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault.kind())?;
        match &self.fault {
            Fault::Node { nodes, kind } => match kind {
                NodeFault::Replica { of } | NodeFault::OthersFiles { of } => {
                    write!(f, " (node {of}) on nodes {nodes:?}")?;
                }
                NodeFault::Failover { moves } => {
                    let address = if *moves { "with" } else { "without" };
                    write!(f, ", {address} its address, of nodes {nodes:?}")?;
                }
                NodeFault::ClockBack { millis } => write!(f, " by {millis} ms on nodes {nodes:?}")?,
                NodeFault::ClockStep { millis, apart: 0 } => {
                    write!(f, " by {millis:+} ms on nodes {nodes:?}")?;
                }
                NodeFault::ClockStep { millis, apart } => {
                    write!(f, " by {millis:+} ms, each {apart} ms more, on nodes {nodes:?}")?;
                }
                NodeFault::ClockSlew { ppm } => write!(f, " by {ppm:+} ppm on nodes {nodes:?}")?,
                NodeFault::ClockJump { millis } => {
                    write!(f, " by {millis:+} ms on nodes {nodes:?}")?;
                }
                _ => write!(f, " on nodes {nodes:?}")?,
            },
            Fault::Link { nodes, side, kind } => {
                if let LinkFault::Delay { millis } = kind {
                    write!(f, " of {millis} ms")?;
                }
                let side = match side {
                    Side::All => "all holders",
                    Side::Half => "half of the holders",
                    Side::OtherHalf => "the other half of the holders",
                };
                write!(f, " on the way to nodes {nodes:?} for {side}")?;
            }
            Fault::Route { node, kind: RouteFault::Move { to } } => {
                write!(f, ": new connections to node {node} lead to node {to}")?;
            }
            Fault::Route { node, kind: RouteFault::Turns } => {
                write!(f, " with the spare one at node {node}")?;
            }
            Fault::Late { holder } => write!(f, ": holder {holder}")?,
            Fault::Stranger { max_ttl } => write!(f, ", {max_ttl} ms")?,
            Fault::Instance { instance, .. } => write!(f, ": number {instance}")?,
            Fault::Pause { .. } | Fault::Crash { .. } | Fault::Trust | Fault::Grab => {}
        }
        match self.to - self.from {
            Duration::ZERO => Ok(()),
            time => write!(f, ", {time:?}"),
        }
    }
}
