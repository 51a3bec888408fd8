//! The command's processes as supervisor and warden see them: below the guardian, and once that is
//! dead, below the next one above it. Not every child of the supervisor is of the command: a shell
//! that became leasehold by `exec` may have left some, and process 1 inherits anybody's orphans.

use std::collections::HashSet;
use std::io;

use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitOptions, getpid, set_child_subreaper, waitid, waitpid,
};

use super::descendants::{Defier, Sweep, alive, children};

/// Children of this process that have nothing to do with the command.
#[derive(Debug, Clone, Default)]
pub(super) struct Strangers(HashSet<Pid>);

impl Strangers {
    /// Notes those who are there already, and makes this process inherit the command's orphans. To
    /// be called before the guardian is started.
    pub(super) fn note() -> io::Result<Self> {
        let us = getpid();
        // Where they cannot be listed, nobody of them can be found and hit by mistake, either.
        let strangers = children(us).unwrap_or_default();
        set_child_subreaper(Some(us))?;
        Ok(Self(strangers.into_iter().collect()))
    }
}

/// All below us but the strangers.
#[derive(Debug)]
pub(super) struct Kin {
    us: Pid,
    strangers: Strangers,
    /// Warden and guardian: what is below them is of the command, and they are not. The first is
    /// our child.
    spared: Vec<Pid>,
    sweep: Sweep,
}

impl Kin {
    pub(super) fn new(strangers: Strangers) -> Self {
        Self { us: getpid(), strangers, spared: Vec::new(), sweep: Sweep::default() }
    }

    /// To be called with our child before it has any.
    pub(super) fn spare(&mut self, child: Pid) {
        self.spared = vec![child];
    }

    pub(super) fn spare_guardian(&mut self, guardian: Option<Pid>) {
        self.spared.extend(guardian);
    }

    pub(super) fn spare_nobody(&mut self) {
        self.spared.clear();
    }

    pub(super) fn spare_only_the_child(&mut self) {
        self.spared.truncate(1);
    }

    /// A process that comes to us while our child lives is a stranger: it inherits the command's orphans.
    pub(super) fn heed_strangers(&mut self) {
        if self.strangers.0.is_empty() && !self.us.is_init() {
            return;
        }
        let Ok(children) = children(self.us) else { return };
        // After the list was read: the kernel hands orphans on before it tells of a death.
        if self.is_child_dead() {
            return;
        }
        self.strangers.0 = children.into_iter().filter(|pid| !self.spared.contains(pid)).collect();
        self.strangers.0.iter().for_each(|pid| bury(*pid));
    }

    fn is_child_dead(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let lives = |pid: &Pid| matches!(waitid(WaitId::Pid(*pid), options), Ok(None));
        !self.spared.first().is_some_and(lives)
    }

    /// Sends SIGKILL to all but the spared; tells each process that stays in spite of it once.
    pub(super) fn kill(&mut self) -> Vec<Defier> {
        let (us, strangers, spared) = (self.us, &self.strangers, &self.spared);
        self.sweep.kill(|| roots(us, strangers, spared).unwrap_or_default())
    }

    /// Those who can still act.
    pub(super) fn alive(&self) -> Vec<Pid> {
        alive(roots(self.us, &self.strangers, &self.spared).unwrap_or_default())
    }

    /// Whether nobody is left and nobody can come any more. For sure only once our child is dead:
    /// who is handed from one to the other while we look may be missed.
    pub(super) fn is_gone(&self) -> bool {
        let child = &self.spared[..self.spared.len().min(1)];
        let left = || orphans(self.us, &self.strangers, child);
        left().into_iter().flatten().for_each(bury);
        self.is_child_dead() && left().is_ok_and(|left| left.is_empty())
    }
}

/// Where the command's processes begin.
fn roots(us: Pid, strangers: &Strangers, spared: &[Pid]) -> io::Result<Vec<Pid>> {
    let mut roots = orphans(us, strangers, spared)?;
    for pid in spared {
        roots.extend(children(*pid)?.into_iter().filter(|pid| !spared.contains(pid)));
    }
    Ok(roots)
}

fn orphans(us: Pid, Strangers(strangers): &Strangers, spared: &[Pid]) -> io::Result<Vec<Pid>> {
    let is_orphan = |pid: &Pid| !spared.contains(pid) && !strangers.contains(pid);
    Ok(children(us)?.into_iter().filter(is_orphan).collect())
}

fn bury(pid: Pid) {
    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
}
