//! Whatever frees a lock wakes whoever waits for it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use leasehold::clock::{Clock as _, SystemClock};
use leasehold::node::{Node, NodeId};
use leasehold::nodes::memory::MemoryNode;
use leasehold_testkit::{Answer, Need, Peer, eventually, skip};

use super::real::{Cluster, LONG, PATIENCE, ms, secs};
use super::*;

/// By the clock each of these rounds would take at least 0.75 s.
const FAR_LESS: Duration = ms(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_a_waiter_of_another_client() {
    let cluster = Cluster::of(5);
    let (a, b) = (cluster.open().await, cluster.open().await);
    let held = std::cell::RefCell::new(None);
    let hold = async |name: &str| {
        *held.borrow_mut() = Some(a.lock(name).ttl(LONG).acquire().await.unwrap());
    };
    let free = async |_: &str| {
        let guard = held.borrow_mut().take().unwrap();
        give_back(guard).await;
    };
    let took = rounds(&cluster, &b, 10, hold, free).await;
    assert!(took < 10 * FAR_LESS, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_key_and_a_forced_release_wake_as_well() {
    let cluster = Cluster::of(3);
    let (a, b) = (cluster.open().await, cluster.open().await);
    let hold = async |name: &str| {
        a.lock(name).ttl(LONG).acquire().await.unwrap().detach();
    };
    let free = async |name: &str| {
        for server in &cluster.servers {
            number(server, &["DEL", &format!("leasehold:lock:{name}")]);
        }
    };
    let took = rounds(&cluster, &b, 5, hold, free).await;
    assert!(took < 5 * FAR_LESS, "{took:?}");

    let fence = std::cell::Cell::new(None);
    let hold = async |name: &str| {
        let guard = a.lock(name).ttl(LONG).acquire().await.unwrap();
        fence.set(Some(guard.fence()));
        guard.detach();
    };
    let free = async |name: &str| {
        assert!(a.force_release(name, fence.get().unwrap()).await.unwrap());
    };
    let took = rounds(&cluster, &b, 5, hold, free).await;
    assert!(took < 5 * FAR_LESS, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_by_node_redlock_wakes_as_well() {
    if skip(Need::NodePeers) {
        return;
    }
    let cluster = Cluster::of(5);
    let peer = std::cell::RefCell::new(Peer::node("redlock", &cluster.addrs()));
    let url = format!("{}?prefix=", cluster.url());
    let locks = Locks::builder().url(url).timeout(PATIENCE).trust_new_nodes().open().await.unwrap();
    super::real::votes(&locks, 5).await;
    let mut took = Duration::ZERO;
    for round in 0..4 {
        let name = format!("job-{round}");
        let answer = tokio::task::block_in_place(|| peer.borrow_mut().acquire(&name, LONG));
        assert_eq!(answer, Answer::Ok);
        let waiter = wait_for(&locks, &name, NEVER);
        let line = format!("leasehold:line:{name}");
        let stands = || cluster.servers.iter().map(|s| number(s, &["ZCARD", &line])).sum::<i64>();
        within(secs(10), "it stands in line", || stands() == 1).await;
        until_watched(&cluster).await;
        tokio::task::block_in_place(|| peer.borrow_mut().release(&name)).unwrap();
        let freed = Instant::now();
        let (guard, got) = waiter.await.unwrap().unwrap();
        took += got.saturating_duration_since(freed);
        let _ = guard.release().await;
    }
    assert!(took < 4 * FAR_LESS, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_in_line_asks_when_the_holder_expires() {
    // A memory table says nothing when an owner expires, so this is the clock's doing.
    let node = MemoryNode::new(NodeId::new("memory"), Arc::new(SystemClock));
    let node: Arc<dyn Node> = Arc::new(node);
    let open = || Locks::builder().nodes(vec![node.clone()]).open();
    let (a, b) = (open().await.unwrap(), open().await.unwrap());
    // Nobody extends it.
    a.lock("l").ttl(ms(400)).acquire().await.unwrap().detach();
    let start = Instant::now();
    let (_guard, got) = wait_for(&b, "l", NEVER).await.unwrap().unwrap();
    let waited = got - start;
    assert!(waited > ms(300) && waited < ms(740), "{waited:?}");
}

/// What the other process does. Does nothing unless the environment says so.
#[tokio::test]
async fn as_another_process() {
    let Ok(role) = std::env::var("LEASEHOLD_TEST_ROLE") else { return };
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let locks = Locks::builder().url(url).timeout(PATIENCE).open().await.unwrap();
    match role.as_str() {
        "take turns" => take_turns(&locks).await,
        "wait" => drop(wait_for(&locks, "l", NEVER).await),
        other => panic!("{other}"),
    }
}

/// Acquires again and again until its standard input ends, and says when.
async fn take_turns(locks: &Locks) {
    let ended = tokio::task::spawn_blocking(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    });
    while !ended.is_finished() {
        let request = locks.lock("l").ttl(LONG).wait(secs(60)).retry(NEVER);
        let guard = request.acquire().await.unwrap();
        println!("got {}", SystemClock.now().as_nanos());
        std::io::stdout().flush().unwrap();
        give_back(guard).await;
    }
}

pub(super) struct Process(pub(super) Child);

impl Process {
    pub(super) fn start(role: &str, url: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "woken::as_another_process", "--nocapture"])
            .env("LEASEHOLD_TEST_ROLE", role)
            .env("LEASEHOLD_TEST_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// When it got the lock, as far as it has said so.
    fn turns(&mut self) -> Arc<Mutex<Vec<u64>>> {
        let turns = Arc::<Mutex<Vec<u64>>>::default();
        let (stdout, heard) = (self.0.stdout.take().unwrap(), turns.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                heard
                    .lock()
                    .unwrap()
                    .extend(line.strip_prefix("got ").map(|at| at.parse::<u64>().unwrap()));
            }
        });
        turns
    }

    /// Lets it end.
    fn finish(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_take_turns_and_neither_goes_by_the_clock() {
    let cluster = Cluster::of(5);
    let locks = cluster.open().await;
    let mut processes = [(); 2].map(|()| Process::start("take turns", &cluster.url()));
    let turns = processes.each_mut().map(Process::turns);
    let each_took = |count| turns.iter().all(|turns| turns.lock().unwrap().len() >= count);
    eventually(secs(20), "both are at work", || each_took(1));
    // By the clock both together would take one or two turns in a second.
    eventually(secs(20), "they take turns", || each_took(300));
    drop(locks);
    processes.into_iter().for_each(Process::finish);
    let [a, b] = turns.map(|turns| turns.lock().unwrap().clone());
    let both = a[0].max(b[0])..=a[a.len() - 1].min(b[b.len() - 1]);
    let mut turns: Vec<_> =
        a.iter().map(|at| (at, 'a')).chain(b.iter().map(|at| (at, 'b'))).collect();
    turns.retain(|(at, _)| both.contains(at));
    turns.sort_unstable();
    let alternations = turns.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    // All but a few where both have a processor; on a busy machine a process may miss its turn.
    assert!(alternations * 2 > turns.len(), "{alternations} of {} turns", turns.len());
}
