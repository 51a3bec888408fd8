//! What people do to servers that hold locks: copy one over another, put a replica in a primary's
//! place, restore a backup, delete keys, list one server twice.

mod real;

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use leasehold::{Builder, Locks, NodeState};
use leasehold_testkit::RedisServer;
use real::{Cluster, LONG, PATIENCE, ms, secs, votes, within};

/// The longest Ttl in these tests, and so the quarantine: 2 s + 1 % + 2 ms + twice 50 ms.
const MAX_TTL: Duration = secs(2);
const QUARANTINE: Duration = ms(2122);

fn of_short_leases(client: Builder) -> Builder {
    client.max_ttl(MAX_TTL).max_clock_skew(ms(50))
}

fn is_quarantined(locks: &Locks, node: usize) -> bool {
    matches!(locks.nodes()[node].state, NodeState::Quarantined { .. })
}

fn command(server: &RedisServer, words: &[&str]) {
    server.command(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

/// Makes `server` a copy of `other` and waits until it is one.
async fn copy(server: &RedisServer, other: &RedisServer) {
    command(other, &["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    command(server, &["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    within(secs(20), "the copy is complete", || {
        let info = server.command(&["INFO", "replication"]).unwrap();
        info.as_text().unwrap().contains("master_link_status:up")
    })
    .await;
}

/// Redis keeps its process and its connections when it throws its data away for another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_made_a_copy_of_another_server_forgot() {
    let cluster = Cluster::of(3);
    let (stranger, bystander) = (RedisServer::redis().start(), RedisServer::redis().start());
    // A server's first replica gives it a new replication id, which looks like a loss of memory.
    copy(&bystander, &cluster.servers[2]).await;
    let locks = of_short_leases(cluster.client()).open().await.unwrap();
    votes(&locks, 3).await;
    let held = locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    // An empty one, and one of our own list, which brings its identity record along.
    for other in [&stranger, &cluster.servers[2]] {
        copy(&cluster.servers[0], other).await;
        within(secs(5), "a copy has no vote", || locks.nodes()[0].state != NodeState::Up).await;
        command(&cluster.servers[0], &["REPLICAOF", "NO", "ONE"]);
        if cluster.servers[0].exists("leasehold:node") {
            // Nobody can tell whether the address or the data are wrong, so a person has to.
            let named = format!("it is {}/0, not {}/0", other.addr(), cluster.servers[0].addr());
            within(secs(5), "it is named", || {
                let state = &locks.nodes()[0].state;
                matches!(state, NodeState::Refused { why } if why.contains(&named))
            })
            .await;
            command(&cluster.servers[0], &["DEL", "leasehold:node"]);
        }
        let alone = Instant::now();
        within(secs(10), "it is found out", || is_quarantined(&locks, 0)).await;
        votes(&locks, 3).await;
        assert!(alone.elapsed() >= QUARANTINE, "{:?}", alone.elapsed());
    }
    held.ensure_valid(Duration::ZERO).expect("two of three kept it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_in_its_primarys_place_begins_a_new_life() {
    let servers = RedisServer::redis().unix_socket().start_many(4);
    let (primary, replica) = (&servers[2], &servers[3]);
    let folder = tempfile::tempdir().unwrap();
    // What a virtual address is to a fail-over: a name that leads to another server from now on.
    let place = folder.path().join("node.sock");
    symlink(primary.socket_path(), &place).unwrap();
    let list = format!("redis://{},{}", servers[0].addr(), servers[1].addr());
    let client = Locks::builder().url(list).url(format!("unix://{}", place.display()));
    let client = of_short_leases(client).timeout(PATIENCE).trust_new_nodes();
    copy(replica, primary).await;
    let (locks, rival) = (client.clone().open().await.unwrap(), client.open().await.unwrap());
    votes(&locks, 3).await;
    votes(&rival, 3).await;
    within(secs(5), "the replica has the record", || {
        replica.get("leasehold:node") == primary.get("leasehold:node")
    })
    .await;
    // What is granted from now on, the replica never hears of.
    command(replica, &["REPLICAOF", "NO", "ONE"]);
    let held = locks.lock("l").ttl(MAX_TTL).manual().acquire().await.unwrap();
    within(PATIENCE, "all have it", || {
        servers[..3].iter().all(|server| server.exists("leasehold:lock:l"))
    })
    .await;
    assert!(!replica.exists("leasehold:lock:l"));
    // As if one of three had missed it: with the replica there would be a majority for another.
    command(&servers[1], &["DEL", "leasehold:lock:l"]);
    std::fs::remove_file(&place).unwrap();
    symlink(replica.socket_path(), &place).unwrap();
    primary.kill();
    let mut was_found_out = false;
    while held.ensure_valid(Duration::ZERO).is_ok() {
        let refused = rival.lock("l").ttl(MAX_TTL).try_acquire().await;
        assert!(!matches!(refused, Ok(Some(_))), "a second holder: {refused:?}");
        was_found_out |= is_quarantined(&rival, 2);
    }
    assert!(was_found_out, "{:?}", rival.nodes()[2]);
    let next = rival.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    assert!(next.fence() > held.fence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_every_node_brings_no_fence_back() {
    let cluster = Cluster::of(3);
    let locks = of_short_leases(cluster.client()).open().await.unwrap();
    votes(&locks, 3).await;
    drop(locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap());
    cluster.servers.iter().for_each(|server| command(server, &["SAVE"]));
    let score = |server: &RedisServer| {
        let score = server.command(&["ZSCORE", &server.fences_key(), "leasehold:lock:l"]).unwrap();
        score.as_text().unwrap().parse::<f64>().unwrap() as u64
    };
    let saved = score(&cluster.servers[0]);
    let guard = locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    let fence = guard.fence();
    assert!(fence.get() > saved);
    assert_eq!(guard.release().await, leasehold::ReleaseOutcome::Released);
    drop(locks);
    cluster.servers.iter().for_each(RedisServer::restart);
    assert_eq!(score(&cluster.servers[0]), saved, "the last fence is gone");
    let fresh = of_short_leases(cluster.client()).open().await.unwrap();
    let later = fresh.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    assert!(later.fence() > fence, "{} after {fence}", later.fence());
}

/// Nobody can notice this before the holder's next extension: the node is what it was, less a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_lock_lets_a_second_holder_in_and_the_fence_tells_them_apart() {
    let cluster = Cluster::of(5);
    let (ours, theirs) = (cluster.open().await, cluster.open().await);
    votes(&ours, 5).await;
    votes(&theirs, 5).await;
    let held = ours.lock("l").ttl(LONG).manual().acquire().await.unwrap();
    let delete = |node: usize| command(&cluster.servers[node], &["DEL", "leasehold:lock:l"]);
    let is_everywhere = || cluster.servers.iter().all(|server| server.exists("leasehold:lock:l"));
    within(PATIENCE, "all have it", is_everywhere).await;
    // On a minority it does not matter, and the next extension mends it.
    (0..2).for_each(delete);
    held.extend().await.unwrap();
    within(PATIENCE, "all have it again", is_everywhere).await;
    // Also if another asked in between, and left its fence where it was granted.
    (0..2).for_each(delete);
    assert!(theirs.lock("l").ttl(LONG).try_acquire().await.unwrap().is_none());
    let began = Instant::now();
    while !is_everywhere() {
        assert!(began.elapsed() < LONG / 2, "further extensions mend that");
        held.extend().await.unwrap();
        tokio::time::sleep(ms(5)).await;
    }

    (0..3).for_each(delete);
    let second = theirs.lock("l").ttl(LONG).try_acquire().await.unwrap().expect("not prevented");
    held.ensure_valid(Duration::ZERO).expect("and not noticed");
    assert!(second.fence() > held.fence(), "but storage can tell");
    let refused = held.extend().await.unwrap_err().to_string();
    assert!(refused.contains("superseded"), "the first holder learns of it here: {refused}");
    second.extend().await.expect("the second one is not disturbed");
}

/// A node gives each number once, so a server that is listed twice grants only one of the two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_under_two_names_has_no_vote() {
    let servers = RedisServer::redis().unix_socket().start_many(2);
    let (twice, once) = (&servers[0], &servers[1]);
    let client = Locks::builder()
        .url(format!("redis://{},{}", twice.addr(), once.addr()))
        .url(format!("unix://{}", twice.socket_path().display()))
        .timeout(PATIENCE);
    let locks = of_short_leases(client).open().await.unwrap();
    let is_refused = |node: usize| {
        let state = &locks.nodes()[node].state;
        matches!(state, NodeState::Refused { why } if why.contains("are one server"))
    };
    within(secs(5), "both names are named", || is_refused(0) && is_refused(2)).await;
    let refused = locks.lock("l").ttl(MAX_TTL).try_acquire().await.unwrap_err().to_string();
    assert!(refused.contains("are one server") && refused.contains(&once.addr()), "{refused}");
    let refused = locks.init().await.unwrap_err().to_string();
    assert!(refused.contains("are one server"), "{refused}");
}

/// As the version before wrote it: no member, no replication id, no origin.
fn of_the_format_before(record: &str) -> String {
    let is_new =
        |word: &&str| ["member=", "replid=", "origin="].iter().any(|field| word.starts_with(field));
    let words: Vec<_> = record.split(' ').filter(|word| !is_new(word)).collect();
    words.join(" ").replace("leasehold2", "leasehold1")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_record_of_the_format_before_keeps_its_locks_its_fences_and_its_vote() {
    let cluster = Cluster::of(3);
    let token = {
        let locks = cluster.open().await;
        votes(&locks, 3).await;
        locks.lock("l").ttl(LONG).acquire().await.unwrap().detach()
    };
    let mut before = Vec::new();
    for server in &cluster.servers {
        let (record, fences) = (server.get("leasehold:node").unwrap(), server.fences_key());
        before.push(of_the_format_before(&record));
        command(server, &["SET", "leasehold:node", before.last().unwrap()]);
        command(server, &["RENAME", &fences, &server.fences_key()]);
    }
    let locks = cluster.client().open().await.unwrap();
    votes(&locks, 3).await;
    for (server, before) in cluster.servers.iter().zip(&before) {
        let record = server.get("leasehold:node").unwrap();
        assert!(record.contains(&format!(" member={}/0 ", server.addr())), "{record}");
        assert_eq!(of_the_format_before(&record), *before, "nothing else has changed");
    }
    assert!(locks.lock("l").ttl(LONG).try_acquire().await.unwrap().is_none(), "still held");
    locks.extend(&token).await.expect("its holder is known");
    assert_eq!(locks.release(&token).await, leasehold::ReleaseOutcome::Released);
    let next = locks.lock("l").ttl(LONG).acquire().await.unwrap();
    assert!(next.fence() > token.fence);
}
