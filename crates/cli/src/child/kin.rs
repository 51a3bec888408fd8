//! The command's processes as the supervisor sees them: below the guardian, and once that is dead,
//! below the supervisor itself. Not every child of the supervisor is of the command: a shell that
//! became leasehold by `exec` may have left some, and process 1 inherits anybody's orphans.

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

/// The guardian's descendants, and its orphans.
#[derive(Debug)]
pub(super) struct Kin {
    us: Pid,
    guardian: Pid,
    strangers: Strangers,
    sweep: Sweep,
}

impl Kin {
    pub(super) fn new(guardian: Pid, strangers: Strangers) -> Self {
        Self { us: getpid(), guardian, strangers, sweep: Sweep::default() }
    }

    /// Whoever comes to us while the guardian lives is a stranger: it inherits the command's orphans.
    pub(super) fn heed_strangers(&mut self) {
        if self.strangers.0.is_empty() && !self.us.is_init() {
            return;
        }
        let Ok(children) = children(self.us) else { return };
        // After the list was read: the kernel hands orphans on before it tells of a death.
        if self.is_guardian_dead() {
            return;
        }
        self.strangers.0 = children.into_iter().filter(|pid| *pid != self.guardian).collect();
        self.strangers.0.iter().for_each(|pid| bury(*pid));
    }

    fn is_guardian_dead(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.guardian), options), Ok(None))
    }

    /// Sends SIGKILL to all but the guardian; tells each process that stays in spite of it once.
    pub(super) fn kill(&mut self) -> Vec<Defier> {
        let (us, guardian, strangers) = (self.us, self.guardian, &self.strangers);
        self.sweep.kill(|| roots(us, guardian, strangers).unwrap_or_default())
    }

    /// Those who can still act.
    pub(super) fn alive(&self) -> Vec<Pid> {
        alive(roots(self.us, self.guardian, &self.strangers).unwrap_or_default())
    }

    /// Whether nobody is left and nobody can come any more. For sure only once the guardian is dead:
    /// who is handed from one to the other while we look may be missed.
    pub(super) fn is_gone(&self) -> bool {
        let orphans = || orphans(self.us, self.guardian, &self.strangers);
        orphans().into_iter().flatten().for_each(bury);
        self.is_guardian_dead() && orphans().is_ok_and(|left| left.is_empty())
    }
}

fn roots(us: Pid, guardian: Pid, strangers: &Strangers) -> io::Result<Vec<Pid>> {
    let mut roots = orphans(us, guardian, strangers)?;
    roots.extend(children(guardian)?);
    Ok(roots)
}

fn orphans(us: Pid, guardian: Pid, Strangers(strangers): &Strangers) -> io::Result<Vec<Pid>> {
    let is_orphan = |pid: &Pid| *pid != guardian && !strangers.contains(pid);
    Ok(children(us)?.into_iter().filter(is_orphan).collect())
}

fn bury(pid: Pid) {
    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
}
