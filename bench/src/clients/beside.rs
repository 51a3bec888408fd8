//! What a Leasehold process can do besides: keep many leases, and let many tasks wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold::{Guard, Locks};
use tokio::task::JoinHandle;

use crate::order::{Outcome, Role};

/// The longest that a new cluster allows.
const TTL: Duration = Duration::from_secs(30);
/// How many acquires are under way at once while leases are taken.
const AT_ONCE: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Company {
    leases: Vec<Guard>,
    /// The locks that are waited for.
    awaited: Vec<Guard>,
    waiters: Vec<JoinHandle<Served>>,
    /// Per lock, how many were served so far.
    turns: Arc<Vec<Mutex<usize>>>,
}

/// How one waiter fared.
#[derive(Debug)]
struct Served {
    at: Instant,
    in_order: bool,
}

impl Company {
    /// Takes all leases, and has everybody wait.
    pub(crate) async fn gather(locks: &Locks, role: &Role) -> Result<Company, String> {
        let beside = role.beside;
        let name = |what: &str, i: usize| format!("{}/{}/{what}/{i}", role.realm, role.process);
        let kept = (0..beside.leases).map(|i| name("kept", i)).collect();
        let awaited = (0..beside.waited_for).map(|i| name("awaited", i)).collect();
        let leases = take(locks, kept).await?;
        let awaited = take(locks, awaited).await?;
        let turns: Arc<Vec<Mutex<usize>>> =
            Arc::new(awaited.iter().map(|_| Mutex::new(0)).collect());
        let waiter = |i: usize| {
            let (locks, turns, lock) = (locks.clone(), turns.clone(), i % awaited.len());
            let (name, place) = (name("awaited", lock), i / awaited.len());
            tokio::spawn(async move {
                let guard = locks.lock(name).wait_forever().acquire().await;
                let at = Instant::now();
                let mut turn = turns[lock].lock().unwrap_or_else(PoisonError::into_inner);
                let in_order = guard.is_ok() && *turn == place;
                *turn += 1;
                Served { at, in_order }
            })
        };
        let waiters = (0..beside.waiters).map(waiter).collect();
        // Everybody has asked once before anything is measured.
        tokio::task::yield_now().await;
        Ok(Company { leases, awaited, waiters, turns })
    }

    /// How many leases are lost, and what the first of them was told.
    pub(crate) fn lost(&self) -> (u64, Option<String>) {
        let lost = |guard: &Guard| guard.ensure_valid(Duration::ZERO).err();
        let mut losses = self.leases.iter().filter_map(lost);
        let first = losses.next().map(|loss| loss.to_string());
        (u64::from(first.is_some()) + losses.count() as u64, first)
    }

    /// Gives free what is waited for, and waits until everybody had a turn.
    pub(crate) async fn serve(&mut self) -> Outcome {
        let start = Instant::now();
        self.awaited.clear();
        let mut outcome = Outcome::default();
        for waiter in self.waiters.drain(..) {
            match waiter.await {
                Ok(Served { at, in_order }) => {
                    outcome.acquire_ns.push(at.duration_since(start).as_nanos() as u64);
                    outcome.out_of_order += u64::from(!in_order);
                }
                Err(error) => outcome.fail(error.to_string()),
            }
        }
        let served = |turn: &Mutex<usize>| *turn.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.per_worker = self.turns.iter().map(|turn| served(turn) as u64).collect();
        outcome.elapsed_s = start.elapsed().as_secs_f64();
        outcome
    }
}

async fn take(locks: &Locks, names: Vec<String>) -> Result<Vec<Guard>, String> {
    let mut tasks = Vec::new();
    for share in names.chunks(names.len().div_ceil(AT_ONCE).max(1)) {
        let (locks, share) = (locks.clone(), share.to_vec());
        tasks.push(tokio::spawn(async move {
            let mut guards = Vec::with_capacity(share.len());
            for name in share {
                let guard = locks.lock(name).ttl(TTL).acquire().await;
                guards.push(guard.map_err(|error| error.to_string())?);
            }
            Ok::<_, String>(guards)
        }));
    }
    let mut guards = Vec::with_capacity(names.len());
    for task in tasks {
        guards.extend(task.await.map_err(|error| error.to_string())??);
    }
    Ok(guards)
}
