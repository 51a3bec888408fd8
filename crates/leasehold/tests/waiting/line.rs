//! The line: who leaves it and how, and what is left of it.

use super::real::ms;
use super::woken::Process;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_several_clients_are_served_in_their_order() {
    let cluster = Cluster::of(3);
    let holder = cluster.open().await;
    let guard = holder.lock("l").ttl(LONG).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 1..=4 {
        let locks = cluster.open().await;
        waiters.push((wait_for(&locks, "l", NEVER), locks));
        until_in_line(&cluster, "l", number).await;
    }
    let freed = Instant::now();
    give_back(guard).await;
    for (waiter, _locks) in waiters {
        let (guard, _) = waiter.await.unwrap().unwrap();
        give_back(guard).await;
    }
    // In any other order one of them would have waited for its clock, each time.
    assert!(freed.elapsed() < ms(700), "{:?}", freed.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_waiter_leaves_the_line_and_the_line_goes_away() {
    let cluster = Cluster::of(3);
    let (a, b) = (cluster.open().await, cluster.open().await);
    let _guard = a.lock("l").ttl(LONG).acquire().await.unwrap();
    let waiter = wait_for(&b, "l", NEVER);
    until_in_line(&cluster, "l", 1).await;
    waiter.abort();
    // Sooner than a place that nobody keeps goes away.
    within(secs(2), "it left", || in_line(&cluster, "l") == 0).await;
    let ours = |server: &RedisServer| {
        let keys = server.command(&["KEYS", "leasehold:*:leasehold:lock:*"]).unwrap();
        matches!(&keys, Value::Array(keys) if keys.is_empty())
    };
    assert!(cluster.servers.iter().all(ours), "nothing is left of the line");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_its_place_as_soon_as_somebody_looks() {
    let cluster = Cluster::of(3);
    let (a, b) = (cluster.open().await, cluster.open().await);
    let guard = a.lock("l").ttl(LONG).acquire().await.unwrap();
    let first = Process::start("wait", &cluster.url());
    until_in_line(&cluster, "l", 1).await;
    let second = wait_for(&b, "l", NEVER);
    until_in_line(&cluster, "l", 2).await;
    drop(first);
    // Its entry alone would live for three seconds.
    within(secs(2), "it is out of the line", || in_line(&cluster, "l") == 1).await;
    let freed = Instant::now();
    give_back(guard).await;
    let (_guard, got) = second.await.unwrap().unwrap();
    assert!(got.saturating_duration_since(freed) < ms(700), "{:?}", got - freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_keeps_its_place_for_three_seconds_only() {
    let cluster = Cluster::of(3);
    let (a, b) = (cluster.open().await, cluster.open().await);
    let guard = a.lock("l").ttl(LONG).acquire().await.unwrap();
    let first = Process::start("wait", &cluster.url());
    until_in_line(&cluster, "l", 1).await;
    let signal = |name: &str| {
        let pid = first.0.id().to_string();
        std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap()
    };
    assert!(signal("STOP").success());
    let second = wait_for(&b, "l", NEVER);
    until_in_line(&cluster, "l", 2).await;
    within(secs(6), "it is out of the line", || in_line(&cluster, "l") == 1).await;
    give_back(guard).await;
    drop(second.await.unwrap().unwrap());
    assert!(signal("CONT").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_node_with_the_line_dies_the_next_one_keeps_it() {
    let cluster = Cluster::of(5);
    let clients = [cluster.open().await, cluster.open().await, cluster.open().await];
    let guard = clients[0].lock("l").ttl(LONG).acquire().await.unwrap();
    let waiters = [&clients[1], &clients[2]].map(|locks| wait_for(locks, "l", NEVER));
    until_in_line(&cluster, "l", 2).await;
    let line = "leasehold:line:leasehold:lock:l";
    let keeps_it = |server: &&RedisServer| number(server, &["EXISTS", line]) == 1;
    cluster.servers.iter().find(keeps_it).expect("a node with the line").kill();
    until_in_line(&cluster, "l", 2).await;
    let freed = Instant::now();
    give_back(guard).await;
    // In whichever order: the new line may have them the other way round.
    let served =
        waiters.map(|waiter| tokio::spawn(async move { drop(waiter.await.unwrap().unwrap()) }));
    for waiter in served {
        waiter.await.unwrap();
    }
    assert!(freed.elapsed() < secs(3), "{:?}", freed.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_connection_is_there_while_somebody_waits_and_a_little_longer() {
    let cluster = Cluster::of(3);
    let (a, b) = (cluster.open().await, cluster.open().await);
    let watching = || cluster.servers.iter().map(watching).sum::<usize>();
    for _ in 0..3 {
        let guard = a.lock("l").ttl(LONG).acquire().await.unwrap();
        give_back(guard).await;
    }
    let guard = a.lock("l").ttl(LONG).acquire().await.unwrap();
    assert!(b.lock("l").ttl(LONG).try_acquire().await.unwrap().is_none());
    assert_eq!(watching(), 0, "nobody waits");
    let waiter = wait_for(&b, "l", NEVER);
    within(secs(10), "it watches all nodes", || watching() == 3).await;
    drop(guard);
    drop(waiter.await.unwrap().unwrap());
    assert_eq!(watching(), 3, "somebody may wait again");
    within(secs(15), "they are closed", || watching() == 0).await;
}
