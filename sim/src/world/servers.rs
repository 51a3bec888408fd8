//! What becomes of the servers behind the members' addresses: stopped and started, copied over one
//! another, replaced by others, met under a wrong name or by turns.

use std::sync::Arc;

use leasehold_core::{Fence, LockTable, Origin, Record, RecordState, Request, Role};

use super::lists::ListChange;
use super::{Event, World, member_name};
use crate::client::Client;
use crate::clock::{SECOND, Time};
use crate::faults::Fault;
use crate::history::Happening;
use crate::network::Way;
use crate::scenario::{Assumption, MAX_TTL};
use crate::server::Files;

/// From what a server starts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start {
    /// Its own files.
    Own {
        /// How many of the last savings are not there.
        loses: usize,
    },
    /// An old backup of its own.
    Backup,
    /// The files of the server of this number, as they are then.
    Copy(usize),
}

/// The later part of something that was begun.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// A server follows nobody any more.
    Promote { server: usize },
    /// A member's address leads to a server, if nothing else was made of it meanwhile.
    Lead { node: usize, from: usize, to: usize },
    /// An operator puts right what a server must not vote with.
    Repair { server: usize },
    /// The name of a member leads a process to it again.
    Correct { client: usize, node: usize },
    /// No second server answers at the member's address any more.
    Dismiss { node: usize },
    /// Processes that ask for it are restarted: those that met a second server under the name of a
    /// member trust neither any more.
    RestartStuck,
    /// A person who sets the cluster up writes the record of a member.
    SetUp { node: usize, run: String, expected: Option<Arc<str>>, record: Arc<str>, tries: usize },
    /// A person frees what would be owned for longer than any lease lasts: a clock was set back.
    FreeTheOwned,
    /// That person is done.
    IsSetUp,
    /// Whoever changes the member list goes on.
    Lists(ListChange),
}

impl World {
    pub(super) fn change_servers(&mut self, fault: Fault) {
        self.outcome.figures.changes += 1;
        match fault {
            Fault::Copy { from, to, time } => self.copy(from, to, time),
            Fault::Failover { node, spare, moves, time } => {
                let spare = self.spare(spare);
                self.fail_over(node, spare, moves, time);
            }
            Fault::Move { node, spare } => {
                let (from, to) = (self.addresses.home(node), self.spare(spare));
                self.change(Change::Lead { node, from, to });
            }
            Fault::RestartUnseen { node, down_for, loses } => {
                let home = self.addresses.home(node);
                if !self.servers[home].is_down {
                    self.start_server(home, Start::Own { loses });
                    self.servers[home].hangs_until = self.now + down_for;
                }
            }
            Fault::Mislead { client, node, to, time } => {
                self.addresses.mislead(client, node, self.addresses.home(to));
                self.cut_if_alive(client, node);
                self.after(time, Event::Change(Change::Correct { client, node }));
            }
            Fault::Turns { client, node, spare, is_admitted, time } => {
                self.take_turns(node, self.spare(spare), is_admitted, time);
                self.cut_if_alive(client, node);
            }
            _ => unreachable!("done to something else than the servers"),
        }
    }

    /// One of the servers that are no member's.
    fn spare(&self, which: usize) -> usize {
        let is_spare = |server: &usize| self.addresses.member(*server).is_none();
        let spares: Vec<usize> = (0..self.servers.len()).filter(is_spare).collect();
        spares[which % spares.len()]
    }

    pub(super) fn change(&mut self, change: Change) {
        match change {
            Change::Promote { server } => self.promote(server),
            Change::Lead { node, from, to } => self.lead(node, from, to),
            Change::Repair { server } => self.repair(server),
            Change::Correct { client, node } => {
                if self.addresses.correct(client, node) {
                    self.cut_if_alive(client, node);
                }
            }
            Change::Dismiss { node } => {
                if let Some(guest) = self.addresses.dismiss(node) {
                    self.cut_all(guest);
                }
            }
            Change::RestartStuck => self.restart_stuck(),
            Change::SetUp { node, run, expected, record, tries } => {
                self.write_set_up((node, run), expected, record, tries);
            }
            Change::FreeTheOwned => {
                let longest = self.scenario.longest_ttl().as_nanos() as Time;
                for server in &mut self.servers {
                    self.locks
                        .iter()
                        .for_each(|lock| server.free_if_later(self.now, lock, longest));
                }
            }
            Change::IsSetUp => self.setting_up = None,
            Change::Lists(change) => self.change_list(change),
        }
    }

    fn restart_stuck(&mut self) {
        let asks = |it: &Client, now| {
            it.objections(now).iter().any(|objection| objection.ends_with("restart this program"))
        };
        for client in 0..self.clients.len() {
            if asks(&self.clients[client], self.now) {
                self.tell(Happening::Fault(format!("process {client} is restarted, as it asks")));
                self.inflict(Fault::Crash { client, time: SECOND / 10 });
            }
        }
    }

    /// A server dies for a while.
    pub(super) fn kill(&mut self, server: usize, down_for: Time, start: Start) {
        if !self.servers[server].is_down {
            self.servers[server].stop();
            self.cut_all(server);
            self.after(down_for, Event::StartServer { server, start });
        }
    }

    pub(super) fn start_server(&mut self, server: usize, start: Start) {
        let files = match start {
            Start::Own { loses } => Files::Own { loses },
            Start::Backup => Files::Backup,
            Start::Copy(of) => Files::Another(self.servers[of].table.clone()),
        };
        self.servers[server].start(self.now, files);
        let boots = self.servers[server].boots;
        self.tell(Happening::Fault(format!("server {server} is up again ({boots} starts)")));
        self.repair_later(server);
    }

    fn cut_all(&mut self, server: usize) {
        for (client, node) in self.links.of_server(server) {
            self.cut_if_alive(client, node);
        }
    }

    /// `to` becomes a replica of `from`, and a primary again after a time.
    fn copy(&mut self, from: usize, to: usize, time: Time) {
        if from == to || self.servers[from].is_down || self.servers[to].is_down {
            return;
        }
        let source = &self.servers[from];
        let (table, history) = (source.table.clone(), source.replication_id().to_owned());
        self.servers[to].copy(self.now, table, history);
        self.tell(Happening::Fault(format!("server {to} has the data of server {from}")));
        if !self.scenario.breaks(Assumption::Pushes) {
            self.push_replaced(to);
        }
        self.after(time, Event::Change(Change::Promote { server: to }));
    }

    /// Every connected client is told that all data was replaced, before any later answer.
    fn push_replaced(&mut self, server: usize) {
        for (client, node) in self.links.of_server(server) {
            let (on, delay) = (self.connection(client, node), self.delay(server));
            if let Some(at) = self.links.pass(client, node, Way::Back, self.now, delay) {
                self.at(at, Event::Replaced { on });
            }
        }
    }

    fn promote(&mut self, server: usize) {
        if self.servers[server].role == Role::Replica {
            self.servers[server].promote();
            self.tell(Happening::Fault(format!("server {server} is a primary again")));
            self.repair_later(server);
        }
    }

    /// A replica copies a member and stops following it; later the member copies the replica.
    fn fail_over(&mut self, node: usize, spare: usize, moves: bool, time: Time) {
        let home = self.addresses.home(node);
        if self.addresses.lead_to(spare) {
            return;
        }
        self.copy(home, spare, 0);
        let away = if moves { time / 2 + 1 } else { 0 };
        if moves {
            self.after(away, Event::Change(Change::Lead { node, from: home, to: spare }));
        }
        let promoted = self.chance.within(0..SECOND / 2);
        let back = Fault::Copy { from: spare, to: home, time: promoted };
        self.after(time + 2, Event::Inflict(back));
        if moves {
            let lead = Change::Lead { node, from: spare, to: home };
            self.after(time + 2 + promoted + 1, Event::Change(lead));
        }
    }

    /// A member's address leads to another server. Processes may stay connected to the former one
    /// for a second, and then it answers nobody as that member any more: two servers that were both
    /// admitted as one member, each met by some processes only, are beyond what anybody can notice.
    fn lead(&mut self, node: usize, from: usize, to: usize) {
        if self.is_calm
            || self.addresses.home(node) != from
            || self.addresses.is_shared(node)
            || self.addresses.lead_to(to)
            || self.servers[to].is_down
        {
            return;
        }
        if self.servers[to].has_a_life() {
            // As it is it would be a member that forgot what others did in its place since, and the
            // quarantine of a life runs on while nobody meets it. So it starts empty.
            self.servers[to].flush(self.now);
        }
        self.tell(Happening::Fault(format!("node {node} is server {to} instead of {from}")));
        // It knows nothing of what the member did since it was copied.
        self.servers[to].forgot = self.now;
        self.addresses.lead(node, to);
        if !self.scenario.breaks(Assumption::Replaced) {
            self.retire(from, node);
        }
        self.repair_later(to);
    }

    fn retire(&mut self, server: usize, node: usize) {
        let mut gone = self.links.of_server(server);
        for (client, member) in self.addresses.misled() {
            if member == node && self.addresses.correct(client, member) {
                gone.push((client, member));
            }
        }
        for (client, member) in gone {
            let (on, stays) = (self.connection(client, member), self.chance.within(0..SECOND));
            self.after(stays, Event::Disconnect { on });
        }
    }

    /// A second server answers every other connection.
    fn take_turns(&mut self, node: usize, guest: usize, is_admitted: bool, time: Time) {
        let server = &self.servers[guest];
        if self.addresses.lead_to(guest) || self.addresses.is_shared(node) || server.is_down {
            return;
        }
        // A machine of its own, to which nobody is connected.
        self.servers[guest].stop();
        self.cut_all(guest);
        self.servers[guest].start(self.now, Files::Another(LockTable::new()));
        if is_admitted {
            self.admit(guest, node);
        }
        self.addresses.invite(node, guest);
        self.after(time, Event::Change(Change::Dismiss { node }));
    }

    /// Somebody set up a second server as a member, long ago.
    fn admit(&mut self, guest: usize, node: usize) {
        let policy = self.policy();
        let life = self.chance.nonce();
        let server = &mut self.servers[guest];
        let born = server.wall(self.now);
        let record = Record {
            cluster: policy.cluster,
            nodes: policy.nodes,
            member: policy.member(&member_name(node)),
            max_ttl: MAX_TTL,
            life,
            run_id: server.run_id(),
            replication_id: server.replication_id().to_owned(),
            origin: Origin::First,
            state: RecordState::Admitted,
            floor: Fence::from_clock(born),
            waits: None,
            clocks: Vec::new(),
            born,
        };
        let record = record.to_string().into();
        let request = Request::ReplaceRecord { expected: None, record };
        // It cannot fail: the server is empty, up, and a primary.
        let _ = server.apply(self.now, 0, None, None, &request);
    }

    pub(super) fn repair_later(&mut self, server: usize) {
        let pause = self.chance.within(0..4 * SECOND);
        self.after(pause, Event::Change(Change::Repair { server }));
    }

    /// A member that has the record of another one, or one with another longest lease, is refused until
    /// an operator empties it.
    fn repair(&mut self, server: usize) {
        let Some(member) = self.addresses.member(server) else { return };
        if self.scenario.lists.is_some() {
            return;
        }
        let name = self.policy().member(&member_name(member));
        let record = self.servers[server].table.record().map(Record::parse);
        let is_anothers = record.is_some_and(|record| {
            record.is_ok_and(|it| it.member != name || it.max_ttl != MAX_TTL)
        });
        if is_anothers && self.servers[server].role == Role::Primary {
            self.servers[server].flush(self.now);
            self.tell(Happening::Fault(format!("server {server} is emptied by an operator")));
        }
    }

    /// After the last fault every member is one server that takes writes, and everybody finds it.
    pub(super) fn put_servers_right(&mut self) {
        for (client, node) in self.addresses.misled() {
            self.change(Change::Correct { client, node });
        }
        for node in 0..self.scenario.addresses() {
            self.change(Change::Dismiss { node });
            let home = self.addresses.home(node);
            self.promote(home);
            self.repair(home);
        }
        // Whoever stands still asks for it later.
        for later in [3, 8, 12] {
            self.after(later * SECOND, Event::Change(Change::RestartStuck));
        }
    }
}
