//! Waiters of several processes: who is woken when, and what becomes of the others.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::Moment;

use super::court::Court;
use super::run::for_seeds;
use super::town::{TTL, Town};
use super::world::World;
use crate::Locks;
use crate::clock::Clock as _;

/// What the tasks of one run write down.
#[derive(Default)]
struct Notes {
    freed: Option<Moment>,
    /// From each release to the next acquisition.
    gaps: Vec<Duration>,
    order: Vec<usize>,
}

/// Wants the lock so many times in a row.
async fn want(
    world: Arc<World>,
    court: Arc<Court>,
    notes: Arc<Mutex<Notes>>,
    (number, locks, times): (usize, Locks, usize),
) {
    for _ in 0..times {
        let began = world.now();
        let request = locks.lock("l").ttl(TTL).wait(Duration::from_secs(60));
        let guard = court.admit(began, request.acquire().await.expect("in turn"));
        {
            let mut notes = notes.lock().expect("no panic");
            let gap = notes.freed.take().map(|freed| world.now().since(freed));
            notes.gaps.extend(gap);
            notes.order.push(number);
        }
        world.sleep(5, 15).await;
        notes.lock().expect("no panic").freed = Some(world.now());
        drop(guard);
    }
}

#[test]
fn a_release_wakes_the_next_process_and_not_its_clock() {
    for_seeds(20, |world| async move {
        let town = Town::of_new_servers(&world, 3);
        let court = Court::of(&town);
        let notes = Arc::new(Mutex::new(Notes::default()));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..4 {
            let locks = town.open_with_hints(&format!("p{number}")).await;
            tasks.spawn(want(world.clone(), court.clone(), notes.clone(), (number, locks, 10)));
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no panic");
        }
        let notes = std::mem::take(&mut *notes.lock().expect("no panic"));
        // A way takes up to 3 ms; a hand-over takes a release, a word, a question and an answer.
        let slow = notes.gaps.iter().filter(|gap| **gap > Duration::from_millis(25)).count();
        world.require(slow <= 4, || format!("{slow} hand-overs were slow: {:?}", notes.gaps));
        // Once all of them are in line, nobody is served twice in a row while others wait.
        let settled = &notes.order[8..notes.order.len() - 10];
        let barged = settled.windows(2).filter(|pair| pair[0] == pair[1]).count();
        world.require(barged <= 1, || format!("they were served like this: {:?}", notes.order));
        town.calm().await;
        court.close();
    });
}

#[test]
fn those_behind_a_process_that_died_in_line_go_on() {
    for_seeds(20, |world| async move {
        let town = Town::of_new_servers(&world, 3);
        let court = Court::of(&town);
        let holder = town.open_with_hints("holder").await;
        let began = world.now();
        let guard = holder.lock("l").ttl(TTL).acquire().await.expect("free");
        let guard = court.admit(began, guard);
        let dying = town.open_with_hints("dying").await;
        let waits = tokio::spawn(async move { dying.lock("l").ttl(TTL).acquire().await.map(drop) });
        world.sleep(100, 300).await;
        let next = town.open_with_hints("next").await;
        let began = world.now();
        let third = tokio::spawn(async move { next.lock("l").ttl(TTL).acquire().await });
        world.sleep(100, 300).await;
        // With the network gone it says goodbye to nobody.
        if world.chance(50) {
            town.sites.iter().for_each(|site| site.cut(false));
        }
        waits.abort();
        world.sleep(0, 100).await;
        let freed = world.now();
        drop(guard);
        let guard = court.admit(began, third.await.expect("no panic").expect("in turn"));
        let waited = world.now().since(freed);
        world.require(waited < Duration::from_secs(3), || format!("it took {waited:?}"));
        drop(guard);
        town.calm().await;
        court.close();
    });
}
