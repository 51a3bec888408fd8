//! What happened, as somebody who sees everything would tell it.

use std::fmt;

use leasehold_core::{Fence, Holder, LockName, Reply, Request};

use crate::clock::{MILLIS, SECOND, Time};

/// A yes that a process counted, as it was in truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// The server that said it, whomever the process took it for.
    pub server: usize,
    /// When.
    pub at: Time,
    /// When that server had last lost something that it knew.
    pub forgot: Time,
}

/// Something worth telling, at a moment of true time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// An attempt to acquire begins.
    Started {
        /// Whose.
        who: Holder,
        /// Of what.
        lock: LockName,
    },
    /// An attempt succeeded.
    Acquired {
        /// Whose.
        who: Holder,
        /// By what the nodes know it: the same, or what it was handed over with.
        value: Holder,
        /// Of what.
        lock: LockName,
        /// The fence.
        fence: Fence,
        /// Whether the fence was reserved for it, so that it asked nobody.
        reserved: bool,
        /// When the attempt began; where the fence was reserved, when the question was sent that the
        /// lease counts from, which is later than that.
        started: Time,
        /// Until when the holder believes to hold, in true time.
        until: Time,
        /// What it counted, beside what was counted before the lease was handed to it.
        votes: Vec<Given>,
    },
    /// A lease was extended.
    Extended {
        /// Whose.
        who: Holder,
        /// When the question was sent.
        started: Time,
        /// Whether its token was raised.
        refreshed: bool,
        /// Until when the holder believes to hold now, in true time.
        until: Time,
        /// What it counted.
        votes: Vec<Given>,
    },
    /// The deadline of a lease moved: clocks were found to have gone ahead, or its own stood still.
    Moved {
        /// Whose.
        who: Holder,
        /// Until when the holder believes to hold now, in true time.
        until: Time,
    },
    /// A holder was told that it lost.
    Lost {
        /// Which.
        who: Holder,
    },
    /// A holder is done and gives back.
    Done {
        /// Which.
        who: Holder,
    },
    /// A process tells a caller that it has a lease.
    Confirmed {
        /// Whose.
        who: Holder,
        /// When the question was sent to the nodes that it counts from.
        started: Time,
    },
    /// A caller was told that a quorum has its lease no more.
    Released {
        /// Whose.
        who: Holder,
        /// The servers that still have it, and when each had last lost something that it knew.
        kept: Vec<(usize, Time)>,
    },
    /// An attempt failed or was dropped, and is given back.
    GaveUp {
        /// Whose.
        who: Holder,
    },
    /// A node did what it was asked.
    Applied {
        /// Which server.
        node: usize,
        /// What.
        request: std::sync::Arc<Request>,
        /// What it answered, if it did.
        reply: Reply,
        /// Who owned the lock there before.
        before: Option<Holder>,
        /// And after.
        after: Option<Holder>,
    },
    /// A process stands still.
    Paused {
        /// Which.
        client: usize,
        /// Until then.
        until: Time,
    },
    /// A process and its clock stand still, and the clock does not know.
    StoodStill {
        /// Which.
        client: usize,
        /// Until then.
        until: Time,
        /// By how much its clock is behind afterwards.
        by: Time,
    },
    /// The clock of a server was set.
    Stepped {
        /// Which.
        server: usize,
        /// By how many nanoseconds.
        by: i64,
    },
    /// Fewer members than a quorum have clocks that are right.
    ClocksAreWrong,
    /// A process read the clock of a server.
    Read {
        /// Which process.
        client: usize,
        /// Which life of it.
        life: u64,
        /// Whose clock, and when it was read.
        given: Given,
        /// How long it took, by the clock of the process: it does not know better when that was.
        blur: Time,
        /// Whether the server told its highest fence as well.
        is_probe: bool,
    },
    /// A server that had no vote was given one.
    Admitted {
        /// Which.
        server: usize,
        /// The process that did it, and which life of it; nobody for a person.
        by: Option<(usize, u64)>,
        /// When it had last lost something that it knew.
        forgot: Time,
        /// The other members that had a vote then.
        others: Vec<usize>,
        /// Its floor.
        floor: Fence,
        /// Whether what others remember was carried over to it by a change of the member list.
        is_carried: bool,
        /// Whether no server of this member had a vote before.
        is_first: bool,
    },
    /// A process died with all its holders.
    Crashed {
        /// Which.
        client: usize,
    },
    /// Two changes of the member list were in each other's way: no list is served by its nodes.
    NoList,
    /// Something was done to the world.
    Fault(String),
    /// Nothing more will be done to it.
    FaultsOver,
    /// All holders have had their turn since, and what was under way has arrived.
    Rest {
        /// Owners that stand on nodes though everybody is gone.
        owners: Vec<(usize, Holder)>,
    },
}

/// What broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Of which promise.
    pub promise: &'static str,
    /// How.
    pub story: String,
}

/// Something that must be so, whatever happens.
pub trait Invariant {
    /// Its name: the promise.
    fn promise(&self) -> &'static str;

    /// Looks at what happens. An `Err` is the story of how it broke.
    fn watch(&mut self, now: Time, happening: &Happening) -> Result<(), String>;
}

/// Time, to be read by people.
pub struct Shown(pub Time);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0 % MILLIS / 1000;
        write!(f, "{:3}.{:03}.{micros:03}", self.0 / SECOND, self.0 % SECOND / MILLIS)
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { who, lock } => write!(f, "{} asks for {lock}", short(who)),
            Self::Acquired { who, value, lock, fence, reserved, until, .. } => {
                let with = match value == who {
                    true => String::new(),
                    false if *reserved => format!(", handed over as {}, reserved", short(value)),
                    false => format!(", handed over as {}", short(value)),
                };
                let (who, until) = (short(who), Shown(*until));
                write!(f, "{who} ACQUIRED {lock} with fence {fence}, good until {until}{with}")
            }
            Self::Extended { who, until, refreshed, .. } => {
                let what = if *refreshed { "refreshed" } else { "extended" };
                write!(f, "{} {what}, good until {}", short(who), Shown(*until))
            }
            Self::Moved { who, until } => {
                write!(f, "the deadline of {} moves, good until {}", short(who), Shown(*until))
            }
            Self::Lost { who } => write!(f, "{} is told that it LOST", short(who)),
            Self::Done { who } => write!(f, "{} is done and gives back", short(who)),
            Self::Confirmed { who, .. } => {
                write!(f, "    a process tells of a lease of {}", short(who))
            }
            Self::Released { who, kept } => {
                write!(
                    f,
                    "{} is told that it is RELEASED, {} servers have it",
                    short(who),
                    kept.len()
                )
            }
            Self::GaveUp { who } => write!(f, "{} gives up", short(who)),
            Self::Applied { node, request, reply, .. } => {
                write!(f, "    server {node}: {} → {reply}", asked(request))
            }
            Self::Paused { client, until } => {
                write!(f, "  ! process {client} stands still until {}", Shown(*until))
            }
            Self::StoodStill { client, until, by } => write!(
                f,
                "  ! process {client} and its clock stand still until {}, and it misses {}",
                Shown(*until),
                Shown(*by)
            ),
            Self::Stepped { server, by } => {
                let seconds = *by as f64 / SECOND as f64;
                write!(f, "  ! the clock of server {server} is set by {seconds:+.3} s")
            }
            Self::ClocksAreWrong => f.write_str("  ! fewer than a quorum of clocks are right"),
            Self::Read { client, given, .. } => {
                write!(f, "    process {client} reads the clock of server {}", given.server)
            }
            Self::Admitted { server, by: Some((client, _)), others, .. } => {
                write!(f, "  ! server {server} is admitted by process {client} beside {others:?}")
            }
            Self::Admitted { server, by: None, .. } => {
                write!(f, "  ! server {server} is admitted by a person")
            }
            Self::Crashed { client } => write!(f, "  ! process {client} dies"),
            Self::NoList => f.write_str("  ! no list is served by its nodes"),
            Self::Fault(what) => write!(f, "  ! {what}"),
            Self::FaultsOver => f.write_str("  ! nothing more happens to the world"),
            Self::Rest { .. } => f.write_str("  ! everybody is gone"),
        }
    }
}

/// A holder without most of its random part.
pub fn short(who: &Holder) -> String {
    let nonce = &who.as_str()[who.label().len() + 1..];
    format!("{}:{}", who.label(), &nonce[..4])
}

fn asked(request: &Request) -> String {
    match request {
        Request::Acquire { holder, proposal, .. } => {
            format!("acquire by {} with {proposal}", short(holder))
        }
        Request::Extend { holder, token, next, .. } if token == next => {
            format!("extend by {} with {token}", short(holder))
        }
        Request::Extend { holder, token, next, .. } => {
            format!("refresh by {} from {token} to {next}", short(holder))
        }
        Request::Release { holder, .. } => format!("release by {}", short(holder)),
        Request::Probe => "probe".into(),
        Request::ReplaceRecord { record, .. } => format!("record := {record}"),
        Request::ForgetIdle { below } => format!("forget below {below}"),
        other => format!("{other:?}"),
    }
}
