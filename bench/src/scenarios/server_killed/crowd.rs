//! Everybody who wants a lock: most take turns, some keep one all the while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::client::Client;
use super::{KEPT_TTL, Lock, Run, TTL};

/// Longer than a lease that nobody heard of lasts.
const WAIT: Duration = Duration::from_secs(5);
const HOLD: Duration = Duration::from_millis(2);
/// Whoever keeps a lock renews it so often: many renewals may fail before the deadline is near.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// One cycle in so many renews its lease.
const RENEW_ONE_IN: usize = 4;
/// One cycle in so many is a try of a lock that somebody keeps.
const TRY_ONE_IN: usize = 16;

/// What the crowd is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Go,
    /// Give back what you hold.
    Finish,
    /// Drop everything.
    Abort,
}

/// Goes on until told otherwise.
pub(super) async fn crowd(run: Arc<Run>, word: watch::Receiver<Word>) {
    let mut tasks = JoinSet::new();
    for (number, lock) in run.kept.iter().enumerate() {
        tasks.spawn(keep(
            Client::new(number, run.clone()),
            lock.clone(),
            run.clone(),
            word.clone(),
        ));
    }
    for number in run.kept.len()..run.clients {
        tasks.spawn(take_turns(Client::new(number, run.clone()), run.clone(), word.clone()));
    }
    let mut aborted = word;
    tokio::select! {
        () = async { while tasks.join_next().await.is_some() {} } => {}
        _ = aborted.wait_for(|word| *word == Word::Abort) => {}
    }
}

/// Acquire, hold, sometimes renew, release.
async fn take_turns(mut client: Client, run: Arc<Run>, word: watch::Receiver<Word>) {
    let mut turn = client.number;
    while *word.borrow() == Word::Go {
        turn += 1;
        if turn.is_multiple_of(TRY_ONE_IN) {
            let kept = &run.kept[turn / TRY_ONE_IN % run.kept.len()];
            if let Some(lease) = client.acquire(kept, TTL, Duration::ZERO).await {
                client.release(lease).await;
            }
        } else {
            cycle(&mut client, &run, turn).await;
        }
    }
}

async fn cycle(client: &mut Client, run: &Run, turn: usize) {
    let (began, start) = (run.moment(), Instant::now());
    let lock = &run.shared[turn % run.shared.len()];
    let Some(mut lease) = client.acquire(lock, TTL, WAIT).await else { return };
    let waited = start.elapsed();
    sleep(HOLD).await;
    if (turn / run.shared.len()).is_multiple_of(RENEW_ONE_IN) {
        let Some(renewed) = client.renew(lease).await else { return };
        lease = renewed;
    }
    if client.release(lease).await {
        let mut tally = run.tally();
        let now = tally.now;
        tally.waits.entry(now).or_default().push(waited.as_nanos() as u64);
        tally.turn(client.number, began, lock.home, Instant::now());
    }
}

/// Takes a lock once, and lives on renewals.
async fn keep(mut client: Client, lock: Lock, run: Arc<Run>, mut word: watch::Receiver<Word>) {
    while *word.borrow() == Word::Go {
        let Some(mut lease) = client.acquire(&lock, KEPT_TTL, WAIT).await else { continue };
        while timeout(RENEW_EVERY, word.wait_for(|word| *word != Word::Go)).await.is_err() {
            let began = run.moment();
            let Some(renewed) = client.renew(lease).await else {
                let name = &lock.name;
                run.wrong(format!("lock `{name}`: its keeper lost the lease, see what failed"));
                return;
            };
            lease = renewed;
            run.tally().renewed(client.number, began);
        }
        client.release(lease).await;
    }
}
