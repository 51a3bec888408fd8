//! The hands that hurt servers and ways, and that put right what a person would put right.

use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{Connection, Fault as ProxyFault, Proxy, RedisServer, Scope};

use super::server::{Disk, Server};
use super::{Cluster, Detour};
use crate::check::word;
use crate::fault::{LinkFault, NodeFault, RouteFault, Side};
use crate::history::ServerEvent;
use crate::schedule::{MAX_TTL, MOST_OFF};

/// How often the operator looks at the nodes.
const TEND_EVERY: Duration = Duration::from_millis(300);

/// How long a node carries a record that is not its own before the operator has noticed. Clients
/// must refuse it meanwhile.
const NOTICE_AFTER: Duration = Duration::from_millis(600);

/// A server that does not answer at once is hurt, and is not the operator's business now.
const TEND_WITHIN: Duration = Duration::from_millis(20);

/// Why a spare server forgot: its master did not wait for it.
const PROMOTED: &str = "a promoted replica";

impl Cluster {
    /// Begins to hurt servers for `time`. An error is what a server said instead of obeying.
    pub fn hurt(&mut self, nodes: &[usize], kind: NodeFault, time: Duration) -> Result<(), String> {
        for index in nodes {
            self.hurt_one(*index, kind, time)?;
        }
        Ok(())
    }

    fn hurt_one(&mut self, index: usize, kind: NodeFault, time: Duration) -> Result<(), String> {
        let (server, truth) = (&self.servers[index], &mut self.truth);
        match kind {
            // Back at once, before anybody asks: behind a pool nobody notices.
            NodeFault::Kill if time.is_zero() => {
                server.kill(truth)?;
                self.servers[index].begin_life(Disk::Kept, "restart", truth)?;
            }
            NodeFault::Kill | NodeFault::Empty => server.kill(truth)?,
            NodeFault::OthersFiles { of } => {
                let snapshot = self.servers[of].snapshot()?;
                server.kill(truth)?;
                self.snapshots.insert(index, snapshot);
            }
            NodeFault::OldFiles => {
                let snapshot = server.snapshot()?;
                self.snapshots.insert(index, snapshot);
            }
            NodeFault::Stop => server.redis().pause(),
            NodeFault::Flush => server.forget(&["FLUSHALL"], "FLUSHALL", truth)?,
            NodeFault::KillClients => server.command(&["CLIENT", "KILL", "TYPE", "normal"])?,
            NodeFault::ForgetScripts => server.command(&["SCRIPT", "FLUSH"])?,
            NodeFault::Replica { of } => {
                server.follow(self.servers[of].redis().port())?;
            }
            NodeFault::Failover { moves } => self.fail_over(index, moves)?,
            NodeFault::Full => server.command(&["CONFIG", "SET", "maxmemory", "1"])?,
            NodeFault::Sleep => sleep(server.redis(), time),
            NodeFault::ClockBack { millis } => {
                let least = -MOST_OFF.as_secs_f64();
                let back = millis as f64 / 1000.0;
                self.step_clock(index, |clock| clock.slewed = (clock.slewed - back).max(least))?;
            }
            NodeFault::ClockStep { .. } => {
                let to = kind.step_of(index) as f64 / 1000.0;
                self.step_clock(index, |clock| clock.stepped = to)?;
            }
            NodeFault::ClockSlew { ppm } => self.clocks[index].rate = ppm as f64 / 1e6,
            NodeFault::ClockJump { millis } => {
                self.step_clock(index, |clock| clock.stepped = millis as f64 / 1000.0)?;
            }
            NodeFault::Evict => {
                server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"])?;
                server.command(&["CONFIG", "SET", "maxmemory", "1"])?;
            }
        }
        Ok(())
    }

    /// Ends what [`Self::hurt`] began.
    pub fn heal(&mut self, nodes: &[usize], kind: NodeFault) -> Result<(), String> {
        for index in nodes {
            self.heal_one(*index, kind)?;
        }
        Ok(())
    }

    fn heal_one(&mut self, index: usize, kind: NodeFault) -> Result<(), String> {
        let (server, truth) = (&mut self.servers[index], &mut self.truth);
        match kind {
            NodeFault::Kill if server.redis().is_running() => Ok(()),
            NodeFault::Kill => server.begin_life(Disk::Kept, "restart", truth),
            NodeFault::Empty => server.begin_life(Disk::Empty, "restart without files", truth),
            NodeFault::OthersFiles { of } => {
                // A fault that failed to begin has nothing to end.
                let Some(snapshot) = self.snapshots.remove(&index) else { return Ok(()) };
                let why = format!("restart from the files of node {of}");
                server.begin_life(Disk::Snapshot(snapshot), &why, truth)
            }
            NodeFault::OldFiles => {
                let Some(snapshot) = self.snapshots.remove(&index) else { return Ok(()) };
                server.kill(truth)?;
                server.begin_life(Disk::Snapshot(snapshot), "restart from an old backup", truth)
            }
            NodeFault::Stop => {
                server.redis().resume();
                Ok(())
            }
            NodeFault::Replica { of } => {
                server.promote_if_copied(&format!("a copy of node {of}"), truth)
            }
            NodeFault::Failover { .. } => self.fail_back(index),
            NodeFault::Full => server.command(&["CONFIG", "SET", "maxmemory", "0"]),
            NodeFault::Evict => {
                server.command(&["CONFIG", "SET", "maxmemory", "0"])?;
                server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"])
            }
            NodeFault::ClockStep { .. } | NodeFault::ClockJump { .. } => {
                self.step_clock(index, |clock| clock.stepped = 0.0)
            }
            NodeFault::ClockSlew { .. } => {
                self.clocks[index].rate = 0.0;
                Ok(())
            }
            NodeFault::Flush
            | NodeFault::KillClients
            | NodeFault::ForgetScripts
            | NodeFault::Sleep
            | NodeFault::ClockBack { .. } => Ok(()),
        }
    }

    /// The spare server becomes a copy of a node's and is promoted. If the address moves with it, the
    /// old one grants nothing any more: two primaries behind one address are nobody's promise.
    fn fail_over(&mut self, index: usize, moves: bool) -> Result<(), String> {
        let (spare, master) = (self.spare()?, &self.servers[index]);
        spare.copy(master)?;
        if !moves {
            return self.servers[self.members.len()].promote(PROMOTED, &mut self.truth);
        }
        master.command(&["CLIENT", "PAUSE", "60000", "WRITE"])?;
        let target = spare.addr();
        self.servers[self.members.len()].promote(PROMOTED, &mut self.truth)?;
        self.lead(index, &target, vec![self.members.len()])?;
        self.servers[index].close_connections()?;
        self.servers[index].command(&["CLIENT", "UNPAUSE"])
    }

    /// The node's own server takes the data of the promoted one and is in charge again, after
    /// nobody reaches the other any more.
    fn fail_back(&mut self, index: usize) -> Result<(), String> {
        self.servers[index].copy(self.spare()?)?;
        self.lead_home(index)?;
        self.spare()?.close_connections()?;
        self.servers[index].promote("failed over and back", &mut self.truth)?;
        self.servers[self.members.len()].forget(&["FLUSHALL"], "FLUSHALL", &mut self.truth)
    }

    fn spare(&self) -> Result<&Server, String> {
        self.servers.get(self.members.len()).ok_or_else(|| "there is no spare server".into())
    }

    /// Leads the way to a node elsewhere for `time`.
    pub fn divert(&mut self, node: usize, kind: RouteFault, time: Duration) -> Result<(), String> {
        let spare = self.members.len();
        match kind {
            RouteFault::Move { to } => {
                let detour = Proxy::to(self.servers[to].addr());
                self.lead(node, &detour.addr(), vec![to])?;
                self.detours.insert(node, Detour::Open(detour));
                self.close_half(node);
            }
            RouteFault::Turns => {
                self.servers[spare].forget(&["FLUSHALL"], "FLUSHALL", &mut self.truth)?;
                let addrs = [self.front(node), self.servers[spare].addr()];
                let detour = Proxy::to(addrs[0].clone());
                detour.retarget_in_turns(addrs);
                self.lead(node, &detour.addr(), vec![node, spare])?;
                self.close_half(node);
                // A thread ends it in time, however busy this one is: after its quarantine the
                // second server would vote, and a client with one connection cannot tell.
                let limit = thread::spawn(move || {
                    thread::sleep(time);
                    drop(detour);
                });
                self.detours.insert(node, Detour::Limited(limit));
            }
        }
        Ok(())
    }

    /// Ends what [`Self::divert`] began.
    pub fn restore(&mut self, node: usize, kind: RouteFault) -> Result<(), String> {
        self.lead_home(node)?;
        match self.detours.remove(&node) {
            Some(Detour::Limited(limit)) => drop(limit.join()),
            // Dropped here, and its connections with it.
            Some(Detour::Open(_)) | None => {}
        }
        if kind == RouteFault::Turns {
            // A client that saw two lives take turns trusts neither until a third one comes.
            self.distrusted.insert(node);
        }
        Ok(())
    }

    /// New connections to a node's address lead to `target`.
    fn lead(&mut self, node: usize, target: &str, servers: Vec<usize>) -> Result<(), String> {
        self.members[node].proxy.retarget(target);
        self.truth.note(ServerEvent::Leads { node, servers })
    }

    fn lead_home(&mut self, node: usize) -> Result<(), String> {
        let home = self.front(node);
        self.lead(node, &home, vec![node])
    }

    /// Half of the clients must connect anew, and go the new way.
    fn close_half(&self, node: usize) {
        self.members[node].proxy.set_for(Scope::Odd, ProxyFault::Refuse);
        self.members[node].proxy.set(ProxyFault::Pass);
    }

    /// Begins to hurt the ways to servers.
    pub fn cut_off(&self, nodes: &[usize], side: Side, kind: LinkFault) {
        let fault = match kind {
            LinkFault::Delay { millis } => ProxyFault::Delay(Duration::from_millis(millis)),
            LinkFault::Stall => ProxyFault::Stall,
            LinkFault::BlackHole | LinkFault::HalfOpen => ProxyFault::BlackHole,
            LinkFault::LoseReplies => ProxyFault::DropReplies,
            LinkFault::LoseRequests => ProxyFault::DropRequests,
            LinkFault::Refuse => ProxyFault::Refuse,
            LinkFault::Cut => ProxyFault::CutAfterRequest,
            LinkFault::Drip => ProxyFault::OneByteAtATime,
        };
        let scope = match side {
            _ if kind == LinkFault::HalfOpen => Scope::Open,
            Side::All => Scope::All,
            Side::Half => Scope::Odd,
            Side::OtherHalf => Scope::Even,
        };
        nodes.iter().for_each(|node| self.members[*node].proxy.set_for(scope, fault.clone()));
    }

    /// Ends what [`Self::cut_off`] began.
    pub fn reconnect(&self, nodes: &[usize]) {
        nodes.iter().for_each(|node| self.members[*node].proxy.set(ProxyFault::Pass));
    }

    /// Plays the operator, who deletes a record that belongs to another member or to clients with
    /// another `max_ttl`, or that clients do not trust any more. Tells on which nodes that was done, and why. To be called often.
    pub fn tend(&mut self) -> Vec<(usize, &'static str)> {
        let mut done = Vec::new();
        if self.tended.elapsed() < TEND_EVERY {
            return done;
        }
        self.tended = Instant::now();
        for node in 0..self.names.len() {
            let why = match self.distrusted.contains(&node) {
                true => Some("another server had taken turns with it"),
                false => self.is_strange(node).then_some("it carried the record of others"),
            };
            // A copy refuses until it is promoted, and a server that is hurt does not answer.
            if let Some(why) = why.filter(|_| self.servers[node].delete_record(TEND_WITHIN)) {
                self.strange.remove(&node);
                self.distrusted.remove(&node);
                done.push((node, why));
            }
        }
        done
    }

    /// Whether a node has carried the record of others for so long that the operator knows.
    fn is_strange(&mut self, node: usize) -> bool {
        let name = &self.names[node];
        let is_ours = |record: &String| {
            word(record, "member") == Some(name)
                && word(record, "max_ttl") == Some(&MAX_TTL.as_millis().to_string())
        };
        if self.servers[node].record(TEND_WITHIN).as_ref().is_none_or(is_ours) {
            self.strange.remove(&node);
            return false;
        }
        self.strange.entry(node).or_insert_with(Instant::now).elapsed() >= NOTICE_AFTER
    }
}

/// Has the server sleep, and does not wait for it.
fn sleep(server: &RedisServer, time: Duration) {
    if let Ok(mut connection) = Connection::to_within(&server.addr(), Duration::from_millis(1)) {
        let _ = connection.call(&["DEBUG", "SLEEP", &format!("{:.3}", time.as_secs_f64())]);
    }
}
