//! A vote belongs to one life of one server. Here servers restart behind a proxy that tells nobody,
//! copy each other, start from each other's files, and are met under names that are not theirs.
//!
//! Each test was seen red: with the replication id ignored, with text sent upon NOSCRIPT, with the
//! push of a flush ignored, with members and connections not compared.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LockTable;
use tokio::task::JoinSet;

use super::address::Address;
use super::court::Court;
use super::reconnect::{end, work};
use super::run::for_seeds;
use super::site::{Dialing, Site, Sky};
use super::town::{Backend, MAX_TTL, TTL, Town};
use super::world::World;
use crate::Locks;
use crate::clock::Clock as _;

/// How often the clients want the lock.
const ROUNDS: usize = 8;

/// Clients that want one lock, until they have had enough. Things happen to them every so often, by
/// `event`.
async fn among_clients(
    world: &Arc<World>,
    court: &Arc<Court>,
    clients: &[Locks],
    pause: (u64, u64),
    mut event: impl FnMut(),
) {
    let mut tasks = JoinSet::new();
    for locks in clients {
        tasks.spawn(work(world.clone(), court.clone(), locks.clone(), ROUNDS));
    }
    while !tasks.is_empty() {
        event();
        tokio::select! {
            biased;
            ended = tasks.join_next() => if let Some(ended) = ended { ended.expect("no panic") },
            () = world.sleep(pause.0, pause.1) => {}
        }
    }
}

fn one_of<'a, T>(world: &World, things: &'a [T]) -> &'a T {
    &things[world.below(things.len() as u64) as usize]
}

/// What the network does now and then.
fn weather(world: &Arc<World>, site: &Arc<Site>) {
    match world.below(5) {
        0 => site.cut(world.chance(50)),
        1 => site.change(|sky| {
            let is_open = sky.dialing == Dialing::Accepts;
            sky.dialing = if is_open { Dialing::Refuses } else { Dialing::Accepts };
        }),
        // Shorter than the silence for which a client gives its connection up.
        2 => stall(world, site, |sky, stalls| sky.stalls_up = stalls),
        _ => stall(world, site, |sky, stalls| sky.stalls_down = stalls),
    }
}

fn stall(world: &Arc<World>, site: &Arc<Site>, set: fn(&mut Sky, bool)) {
    let (world, site) = (world.clone(), site.clone());
    tokio::spawn(async move {
        site.change(|sky| set(sky, true));
        world.sleep(0, 3000).await;
        site.change(|sky| set(sky, false));
    });
}

#[test]
fn a_restart_that_a_proxy_hides_is_noticed_before_the_next_vote_counts() {
    for_seeds(16, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let _ear = court.hear_ballots();
        let clients = [town.open("a").await, town.open("b").await];
        for site in &town.sites {
            site.redis().flavor.durable = false;
            site.save();
        }
        among_clients(&world, &court, &clients, (1, 4000), || {
            let site = one_of(&world, &town.sites);
            match world.below(8) {
                0..=4 => site.restart_unseen(world.chance(90)),
                5 => site.save(),
                6 => site.forget_scripts(),
                _ => weather(&world, site),
            }
        })
        .await;
        end(&town, &court).await;
    });
}

/// How a server takes the data of another.
type Take = fn(&Site, LockTable);

/// The server follows another with `table`, takes it over, and is a primary again after `lasts`.
async fn follow(world: Arc<World>, site: Arc<Site>, take: Take, table: LockTable, lasts: Duration) {
    let life = site.redis().life;
    site.follow();
    world.sleep(0, 20).await;
    if site.redis().life == life {
        take(&site, table);
        tokio::time::sleep(lasts).await;
    }
    if site.redis().life == life {
        site.promote();
    }
}

/// Somebody reads what the client says of a server with the record of another member, and empties it.
async fn put_right(world: Arc<World>, site: Arc<Site>) {
    world.sleep(0, 3000).await;
    site.flush();
}

/// It is failed over to a replica, which has what it saved last, and back.
fn fail_over(world: &Arc<World>, site: &Arc<Site>, take: Take, lasts: Duration) {
    let table = site.redis().saved.clone();
    tokio::spawn(follow(world.clone(), site.clone(), take, table, lasts));
}

/// It is made a copy of another member for a while.
fn copy_another(world: &Arc<World>, town: &Town, site: &Arc<Site>, lasts: Duration) {
    let table = one_of(world, &town.sites).redis().table.clone();
    let (world, site) = (world.clone(), site.clone());
    tokio::spawn(async move {
        follow(world.clone(), site.clone(), Site::copy, table, lasts).await;
        put_right(world, site).await;
    });
}

#[test]
fn a_server_that_copied_another_says_so_before_its_next_vote() {
    // By RESP3 only: there the server itself tells, in order with its replies.
    for_seeds(16, |world| async move {
        let town = Town::of_new_servers(&world, 3);
        let court = Court::of(&town);
        let _ear = court.hear_ballots();
        let clients = [town.open_with_hints("a").await, town.open_with_hints("b").await];
        town.sites.iter().for_each(|site| site.save());
        among_clients(&world, &court, &clients, (1, 1500), || {
            let site = one_of(&world, &town.sites);
            let lasts = if world.chance(50) { world.millis(0, 5) } else { world.millis(0, 3000) };
            match world.below(10) {
                0..=3 => fail_over(&world, site, Site::copy, lasts),
                4 => copy_another(&world, &town, site, lasts),
                5 => site.flush(),
                6 => site.restart(world.chance(80)),
                7 | 8 => site.save(),
                _ => weather(&world, site),
            }
        })
        .await;
        end(&town, &court).await;
    });
}

#[test]
fn a_server_that_followed_its_replica_for_a_moment_says_so_with_its_next_vote() {
    for_seeds(16, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let _ear = court.hear_ballots();
        for site in &town.sites {
            site.redis().flavor.has_replicas = true;
        }
        let clients = [town.open("a").await, town.open("b").await];
        town.sites.iter().for_each(|site| site.save());
        among_clients(&world, &court, &clients, (1, 1500), || {
            let site = one_of(&world, &town.sites);
            let lasts = if world.chance(50) { world.millis(0, 5) } else { world.millis(0, 3000) };
            match world.below(8) {
                0..=3 if !site.redis().is_replica => {
                    fail_over(&world, site, Site::go_on_with, lasts);
                }
                0..=5 => site.save(),
                6 => site.restart(world.chance(80)),
                _ => weather(&world, site),
            }
        })
        .await;
        end(&town, &court).await;
    });
}

#[test]
fn a_server_that_copied_another_is_not_counted_by_resp2_either() {
    for_seeds(10, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let _ear = court.hear_ballots();
        let clients = [town.open_by("a", true).await, town.open_by("b", true).await];
        town.sites.iter().for_each(|site| site.save());
        among_clients(&world, &court, &clients, (1, 2500), || {
            let site = one_of(&world, &town.sites);
            let lasts = if world.chance(50) { world.millis(0, 5) } else { world.millis(0, 3000) };
            match world.below(6) {
                0 | 1 if !site.redis().is_replica => fail_over(&world, site, Site::copy, lasts),
                2 if !site.redis().is_replica => copy_another(&world, &town, site, lasts),
                3 => site.restart(world.chance(80)),
                4 => site.save(),
                _ => site.cut(world.chance(50)),
            }
        })
        .await;
        end(&town, &court).await;
    });
}

#[test]
fn a_server_that_starts_from_the_files_of_another_is_not_counted() {
    for_seeds(10, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let _ear = court.hear_ballots();
        let clients = [town.open("a").await, town.open("b").await];
        town.sites.iter().for_each(|site| site.save());
        among_clients(&world, &court, &clients, (1, 2500), || {
            let site = one_of(&world, &town.sites);
            let other = one_of(&world, &town.sites).clone();
            match world.below(4) {
                0 => {
                    let table = other.redis().table.clone();
                    site.restart_with(table);
                    tokio::spawn(put_right(world.clone(), site.clone()));
                }
                1 => {
                    let table = other.redis().saved.clone();
                    site.restart_with(table);
                    tokio::spawn(put_right(world.clone(), site.clone()));
                }
                2 => site.save(),
                _ => weather(&world, site),
            }
        })
        .await;
        end(&town, &court).await;
    });
}

#[test]
fn a_server_with_two_names_is_not_counted_twice() {
    for_seeds(10, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let _ear = court.hear_ballots();
        // Each client has a resolver of its own, and any of them may be wrong.
        let resolvers: Vec<Vec<_>> =
            (0..3).map(|_| town.sites.iter().map(Address::of).collect()).collect();
        let mut clients = Vec::new();
        for (label, addresses) in ["a", "b", "c"].into_iter().zip(&resolvers) {
            let resp2 = world.chance(30);
            clients.push(town.open_at(label, resp2, addresses).await);
        }
        among_clients(&world, &court, &clients, (1, 800), || {
            let index = world.below(3) as usize;
            let address = &one_of(&world, &resolvers)[index];
            match world.below(6) {
                0 | 1 => address.lead_to(&[one_of(&world, &town.sites)]),
                2 => address.lead_to(&[]),
                3 => address.lead_to(&[&town.sites[index]]),
                _ => one_of(&world, &town.sites).cut(world.chance(50)),
            }
        })
        .await;
        // Whether a release followed each acquire is not asked: the names of a client's members
        // are mixed up, so one server may hear of one acquire twice.
        town.calm().await;
    });
}

/// Three members and three more servers, which were set up with the same list, so that all six are
/// admitted.
async fn twice(world: &Arc<World>) -> (Town, Vec<Arc<Site>>) {
    let mut town = Town::new(world, Backend::Redis, 3);
    drop(town.open("first").await);
    let names: Vec<_> = town.sites.iter().map(|site| format!("{}b", site.name)).collect();
    let seconds: Vec<_> = names.iter().map(|name| town.add_server(name)).collect();
    let addresses = town.addresses.iter().zip(&seconds);
    addresses.clone().for_each(|(address, second)| address.lead_to(&[second]));
    drop(town.open("second").await);
    town.addresses.iter().zip(&town.sites).for_each(|(address, first)| address.lead_to(&[first]));
    (town, seconds)
}

/// The addresses of one client, behind a balancer of its own: of several that share one, each might
/// meet the same server every time, and none could tell.
fn addresses(town: &Town) -> Vec<Arc<Address>> {
    town.addresses.iter().zip(&town.sites).map(|(_, first)| Address::of(first)).collect()
}

/// From now on two servers take turns behind each of the first so many addresses.
fn balance(town: &Town, seconds: &[Arc<Site>], addresses: &[Arc<Address>], count: usize) {
    let members = addresses.iter().zip(&town.sites).zip(seconds).take(count);
    for ((address, first), second) in members {
        let both = if town.world.chance(50) { [first, second] } else { [second, first] };
        address.lead_to(&both);
    }
}

/// Three clients whose addresses lead to two servers each, from the beginning or only later.
async fn take_turns(world: Arc<World>, from_the_beginning: bool) {
    let (town, seconds) = twice(&world).await;
    let court = Court::of(&town);
    let _ear = court.hear_ballots();
    let count = 1 + world.below(3) as usize;
    let mut clients = Vec::new();
    for label in ["a", "b", "c"] {
        let addresses = addresses(&town);
        if from_the_beginning {
            balance(&town, &seconds, &addresses, count);
        }
        clients.push(town.open_at(label, world.chance(30), &addresses).await);
        balance(&town, &seconds, &addresses, count);
    }
    among_clients(&world, &court, &clients, (1, 2000), || {
        if world.chance(50) {
            one_of(&world, &town.sites).cut(world.chance(50));
        }
    })
    .await;
    end(&town, &court).await;
}

/// The address of a member leads to another server, back, and there again. One client is led to and fro;
/// when the member is back it is granted a lease by it and by a second node, which is still good when the
/// other server could have waited for long enough. Another client stays with that one all the time.
#[test]
fn who_stays_with_a_server_that_waits_does_not_admit_it_too_early() {
    for_seeds(12, |world| async move {
        let mut town = Town::new(&world, Backend::Redis, 3);
        let led = addresses(&town);
        let voter = town.open_at("a", world.chance(30), &led).await;
        let other = town.add_server("other");
        let first = town.sites[0].clone();
        let court = Court::of(&town);
        let _ear = court.hear_ballots();
        let stays = addresses(&town);
        stays[0].lead_to(&[&other]);
        let waiter = town.open_at("b", world.chance(30), &stays).await;
        led[0].lead_to(&[&other]);
        first.cut(false);
        world.sleep(300, 1000).await;
        led[0].lead_to(&[&first]);
        other.cut(false);
        let third = &town.sites[2];
        third.change(|sky| sky.dialing = Dialing::Refuses);
        third.cut(false);
        world.sleep(1800, 2300).await;
        let began = world.now();
        let request = voter.lock("l").ttl(MAX_TTL).manual().wait(Duration::from_millis(300));
        let guard = request.acquire().await.ok().map(|guard| court.admit(began, guard));
        third.change(|sky| sky.dialing = Dialing::Accepts);
        led[0].lead_to(&[&other]);
        first.cut(false);
        while guard.as_ref().is_some_and(|guard| guard.ensure_valid(Duration::ZERO).is_ok()) {
            let began = world.now();
            if let Ok(Some(guard)) = waiter.lock("l").ttl(TTL).try_acquire().await {
                drop(court.admit(began, guard));
            }
            world.sleep(5, 20).await;
        }
        drop(guard);
        end(&town, &court).await;
    });
}

#[test]
fn servers_that_take_turns_behind_one_address_give_no_lock_to_two() {
    for_seeds(4, |world| take_turns(world, true));
}

#[test]
fn servers_that_begin_to_take_turns_give_no_lock_to_two() {
    for_seeds(8, |world| take_turns(world, false));
}
