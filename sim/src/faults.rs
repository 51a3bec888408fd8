//! What is done to the world, drawn from the seed.

use std::fmt;
use std::time::Duration;

use leasehold_judge::Chance;

use crate::clock::{MILLIS, SECOND, Time};
use crate::network::Way;
use crate::scenario::{Assumption, Plot, Scenario};

/// How many millionths the clock of a node may be too fast or too slow. Together with a client's it
/// stays within the allowance of one per cent.
pub const NODE_RATE: u64 = 2_000;

/// One thing that goes wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// A server dies and comes back with what it finds.
    Kill {
        /// Which.
        node: usize,
        /// For how long.
        down_for: Time,
        /// How many of the last savings are not on disk.
        loses: usize,
    },
    /// A server is emptied.
    Flush {
        /// Which.
        node: usize,
    },
    /// A server stands still.
    Hang {
        /// Which.
        node: usize,
        /// For how long.
        time: Time,
    },
    /// The way to a server becomes longer, or short again.
    Slow {
        /// Which.
        node: usize,
        /// By how much.
        by: Time,
    },
    /// A connection breaks.
    Cut {
        /// Whose.
        client: usize,
        /// To whom.
        node: usize,
    },
    /// Nothing passes between two groups.
    Partition {
        /// These processes, as bits.
        clients: u64,
        /// These nodes, as bits.
        nodes: u64,
        /// In one direction, or both.
        way: Option<Way>,
        /// For how long.
        time: Time,
    },
    /// One end of a connection is gone and the other does not know.
    HalfOpen {
        /// Whose.
        client: usize,
        /// To whom.
        node: usize,
        /// Until it finds out.
        time: Time,
    },
    /// A process stands still: stopped, swapped out, suspended.
    Pause {
        /// Which.
        client: usize,
        /// For how long.
        time: Time,
    },
    /// A process dies and is started again.
    Crash {
        /// Which.
        client: usize,
        /// After this time.
        time: Time,
    },
    /// A server throws a lock away for want of memory.
    Evict {
        /// Which.
        node: usize,
        /// Which lock.
        lock: usize,
    },
    /// A server becomes a replica of another for a while: it knows what that one knew, and its
    /// process and its connections live on.
    Copy {
        /// The number of the server that is copied.
        from: usize,
        /// The number of the server that loses what it knew.
        to: usize,
        /// Until it is a primary again.
        time: Time,
    },
    /// A member has a replica, is replaced by it for a while, and takes over from it again.
    Failover {
        /// Which member.
        node: usize,
        /// Which of the spare servers is the replica.
        spare: usize,
        /// Whether the address follows; otherwise nobody meets the replica.
        moves: bool,
        /// Until the member copies the replica.
        time: Time,
    },
    /// A member's address leads to another machine from now on.
    Move {
        /// Which member.
        node: usize,
        /// Which of the spare servers it is.
        spare: usize,
    },
    /// A server restarts behind a proxy that keeps the connections of its clients.
    RestartUnseen {
        /// Which.
        node: usize,
        /// Until it answers again.
        down_for: Time,
        /// How many of the last savings are not on disk.
        loses: usize,
    },
    /// A server is started from other files than those it had.
    Restore {
        /// Which.
        node: usize,
        /// For how long it is down.
        down_for: Time,
        /// The number of the server whose files they are; `None` for an old backup of its own.
        of: Option<usize>,
    },
    /// For one process, the name of a member leads to the server of another member.
    Mislead {
        /// Which process.
        client: usize,
        /// The name of which member.
        node: usize,
        /// Whose server it is.
        to: usize,
        /// For how long.
        time: Time,
    },
    /// Two servers take turns at a member's address: every other connection meets the second.
    Turns {
        /// A process whose connection breaks then.
        client: usize,
        /// Which member.
        node: usize,
        /// Which of the spare servers is the second.
        spare: usize,
        /// Whether the second has been admitted as that member, too.
        is_admitted: bool,
        /// For how long.
        time: Time,
    },
    /// A server's wall clock is set forward or back.
    Step {
        /// Which.
        node: usize,
        /// By how many nanoseconds.
        by: i64,
    },
    /// The wall clocks of all servers are set alike, as by one source of time that is wrong.
    StepAll {
        /// By how many nanoseconds.
        by: i64,
    },
    /// All servers die at once and come back.
    Blackout {
        /// For how long they are down.
        down_for: Time,
    },
    /// A server's wall clock is set right.
    PutRight {
        /// Which.
        node: usize,
    },
    /// A server's wall clock runs at another rate.
    Slew {
        /// Which.
        node: usize,
        /// By how many millionths it is too fast.
        rate: i64,
    },
    /// NTP looks at a server's clock: it lets it run faster or slower, or sets it by some milliseconds.
    Discipline {
        /// Which.
        node: usize,
        /// How wrong it takes the clock for, beside how wrong it is, in microseconds.
        noise: i64,
        /// Whether it sets the clock.
        steps: bool,
    },
    /// A server dies and comes back with a clock that is behind, and is put right later.
    BadClock {
        /// Which.
        node: usize,
        /// For how long it is down.
        down_for: Time,
        /// By how much it is behind.
        behind: Time,
        /// Until its clock is put right.
        time: Time,
    },
    /// A process stands still, and its clock with it.
    Freeze {
        /// Which.
        client: usize,
        /// For how long.
        time: Time,
    },
    /// A person sets the cluster up, whatever became of it since it was.
    Init,
    /// Several things in a certain order.
    Plot {
        /// Which.
        plot: Plot,
        /// The node that it is about.
        node: usize,
        /// The process that lives through it.
        client: usize,
    },
}

impl Fault {
    /// The next one.
    pub fn draw(chance: &mut Chance, scenario: &Scenario) -> Self {
        let node = chance.index(scenario.addresses());
        if scenario.is_day_of_ntp {
            let steps = chance.percent(10);
            return Self::Discipline { node, noise: chance.around(5_000), steps };
        }
        let client = chance.index(scenario.clients);
        if let Some(plot) = scenario.plot {
            return Self::Plot { plot, node, client };
        }
        let mut time = |most: u64| {
            chance.duration(Duration::ZERO..Duration::from_millis(most)).as_nanos() as Time
        };
        let (short, long) = (time(500), time(6_000));
        let bits = chance.bits();
        if scenario.breaks(Assumption::Eviction) && bits.is_multiple_of(4) {
            return Self::Evict { node, lock: chance.index(scenario.locks) };
        }
        if scenario.clocks.faults > 0 && chance.percent(scenario.clocks.faults) {
            return Self::draw_clock(chance, node, client, (short, long));
        }
        if scenario.inits > 0 && chance.percent(scenario.inits) {
            return Self::Init;
        }
        // A single node that forgets has nobody to ask.
        let may_forget = scenario.nodes > 1;
        let kinds = if scenario.changes_servers() { 26 } else { 16 };
        match chance.within(0..kinds) {
            0 | 1 if may_forget => Self::Kill { node, down_for: long, loses: chance.index(5) },
            2 if may_forget => Self::Flush { node },
            3 => Self::Hang { node, time: long },
            4 => {
                let slow = chance.percent(50);
                Self::Slow { node, by: if slow { short / 10 } else { 0 } }
            }
            5..=7 => Self::Cut { client, node },
            8 | 9 => {
                let way = [None, Some(Way::There), Some(Way::Back)][chance.index(3)];
                Self::Partition { clients: bits, nodes: chance.bits(), way, time: long }
            }
            10 => Self::HalfOpen { client, node, time: long },
            11..=13 => Self::Pause { client, time: long },
            16.. => Self::draw_change(chance, scenario, node, client, (short, long)),
            _ => Self::Crash { client, time: short + SECOND / 10 },
        }
    }

    /// Something that is done to a clock.
    fn draw_clock(
        chance: &mut Chance,
        node: usize,
        client: usize,
        (short, long): (Time, Time),
    ) -> Self {
        match chance.within(0..16) {
            12..14 => {
                // Ahead by little beside a quarantine: all clocks together can end it. Back by anything,
                // so that fences are ahead of all clocks.
                let most = [50, 300, 900, 600_000][chance.index(4)];
                let by = chance.around(most) * MILLIS as i64;
                Self::StepAll { by: if most > 900 { -by.abs() } else { by } }
            }
            14 => Self::Blackout { down_for: short },
            0 | 1 => Self::Slew { node, rate: chance.around(NODE_RATE) },
            2 | 3 => Self::PutRight { node },
            4 => {
                let behind = chance.within(1..600) * SECOND;
                Self::BadClock { node, down_for: short, behind, time: long }
            }
            5 | 6 => Self::Freeze { client, time: long },
            _ => {
                // What NTP does, what is within the skew, what is not, and what people do.
                let most = [5, 50, 900, 3_000, 600_000, 31_536_000_000][chance.index(6)];
                Self::Step { node, by: chance.around(most) * MILLIS as i64 }
            }
        }
    }

    /// Something that changes which server is behind a member's address, or what it knows.
    fn draw_change(
        chance: &mut Chance,
        scenario: &Scenario,
        node: usize,
        client: usize,
        (short, long): (Time, Time),
    ) -> Self {
        let spare = chance.index(scenario.spares);
        let mut any = || chance.index(scenario.nodes + scenario.spares);
        let (from, to) = (any(), any());
        match chance.within(0..10) {
            0..=2 if scenario.replicates => {
                Self::Failover { node, spare, moves: chance.percent(50), time: long }
            }
            3 if scenario.replicates => Self::Copy { from, to, time: short },
            4 => Self::Move { node, spare },
            5 | 6 => {
                let to = chance.index(scenario.nodes);
                Self::Mislead { client, node, to, time: 2 * long + SECOND }
            }
            7 => {
                let is_admitted = chance.percent(70);
                Self::Turns { client, node, spare, is_admitted, time: long }
            }
            8 => Self::Restore { node, down_for: short, of: chance.percent(50).then_some(from) },
            _ => Self::RestartUnseen { node, down_for: short / 5, loses: chance.index(5) },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |time: &Time| Duration::from_millis(time / MILLIS);
        match self {
            Self::Kill { node, down_for, .. } => {
                write!(f, "node {node} dies for {:?}", shown(down_for))
            }
            Self::Flush { node } => write!(f, "node {node} is emptied"),
            Self::Hang { node, time } => write!(f, "node {node} hangs for {:?}", shown(time)),
            Self::Slow { node, by } => write!(f, "node {node} is slower by {:?}", shown(by)),
            Self::Cut { client, node } => {
                write!(f, "the connection of process {client} to node {node} breaks")
            }
            Self::Partition { clients, nodes, way, time } => {
                let which = |bits: u64| {
                    let set: Vec<_> = (0..8).filter(|i| bits >> i & 1 == 1).collect();
                    format!("{set:?}")
                };
                let way = match way {
                    None => "between",
                    Some(Way::There) => "there, from",
                    Some(Way::Back) => "back, to",
                };
                let (clients, nodes) = (which(*clients), which(*nodes));
                write!(
                    f,
                    "nothing passes {way} processes {clients} and nodes {nodes} for {:?}",
                    shown(time)
                )
            }
            Self::HalfOpen { client, node, time } => write!(
                f,
                "process {client} talks to nobody instead of node {node} for {:?}",
                shown(time)
            ),
            Self::Pause { client, time } => {
                write!(f, "process {client} stands still for {:?}", shown(time))
            }
            Self::Crash { client, .. } => write!(f, "process {client} is killed"),
            Self::Evict { node, lock } => {
                write!(f, "node {node} throws lock {lock} away for want of memory")
            }
            Self::Copy { from, to, time } => {
                write!(f, "server {to} copies server {from} for {:?}", shown(time))
            }
            Self::Failover { node, spare, moves, time } => {
                let how = if *moves { "takes its place" } else { "is met by nobody" };
                let time = shown(time);
                write!(f, "spare {spare} copies node {node}, {how}, and is copied after {time:?}")
            }
            Self::Move { node, spare } => {
                write!(f, "node {node} is to be spare {spare} from now on")
            }
            Self::RestartUnseen { node, down_for, .. } => {
                write!(f, "node {node} restarts unseen within {:?}", shown(down_for))
            }
            Self::Restore { node, of: Some(of), .. } => {
                write!(f, "node {node} is started with the files of server {of}")
            }
            Self::Restore { node, of: None, .. } => {
                write!(f, "node {node} is started from an old backup")
            }
            Self::Mislead { client, node, to, time } => write!(
                f,
                "the name of node {node} leads process {client} to node {to} for {:?}",
                shown(time)
            ),
            Self::Turns { node, spare, time, .. } => {
                let time = shown(time);
                write!(
                    f,
                    "spare {spare} answers at the address of node {node} as well for {time:?}"
                )
            }
            Self::Step { node, by } => {
                let seconds = *by as f64 / SECOND as f64;
                write!(f, "the clock of node {node} is set by {seconds:+.3} s")
            }
            Self::StepAll { by } => {
                let seconds = *by as f64 / SECOND as f64;
                write!(f, "all clocks are set by {seconds:+.3} s")
            }
            Self::Blackout { down_for } => {
                write!(f, "all nodes die for {:?}", shown(down_for))
            }
            Self::PutRight { node } => write!(f, "the clock of node {node} is put right"),
            Self::Slew { node, rate } => {
                write!(f, "the clock of node {node} runs {rate} millionths too fast")
            }
            Self::Discipline { node, .. } => write!(f, "NTP looks at the clock of node {node}"),
            Self::BadClock { node, behind, .. } => {
                let behind = shown(behind);
                write!(f, "node {node} dies and comes back with a clock {behind:?} behind")
            }
            Self::Freeze { client, time } => {
                write!(f, "process {client} and its clock stand still for {:?}", shown(time))
            }
            Self::Init => f.write_str("a person sets the cluster up"),
            Self::Plot { plot: Plot::Forgotten, node, .. } => {
                write!(f, "node {node} forgets, and those who remember go away")
            }
            Self::Plot { plot: Plot::Behind, node, client } => {
                write!(f, "node {node} is behind, and put right unseen by process {client}")
            }
        }
    }
}
