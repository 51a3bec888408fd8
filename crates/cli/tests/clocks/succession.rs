//! A member list becomes another. The command line has no command for it, so the library does it here;
//! holders and those who ask are the binary.

use std::time::Duration;

use leasehold::Locks;
use leasehold_testkit::{RedisServer, ServerBuilder};

use crate::stage::{
    Client, Cluster, Grant, LOCK, key, nobody_is_granted, on_each_server, stays_kept, url,
};

/// Makes one list the successor of another.
pub(crate) fn succeed(old: &str, new: &str) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let open = async |url: &str| {
            Locks::builder().url(url).open().await.map_err(|error| error.to_string())
        };
        let (old, new) = (open(old).await?, open(new).await?);
        new.succeed(&old).await.map_err(|error| error.to_string())
    })
}

/// One node that voted, and two more, which are a majority without it.
pub(crate) struct Growth {
    pub(crate) old: Cluster,
    pub(crate) new: Vec<RedisServer>,
}

impl Growth {
    pub(crate) fn of(server: ServerBuilder, parameters: &str) -> Self {
        let old = Cluster::new(server.clone(), 1, parameters);
        Self { old, new: server.start_many(2) }
    }

    pub(crate) fn client(&self, parameters: &str) -> Client<'_> {
        let servers = self.old.servers.iter().chain(&self.new);
        Client { place: &self.old.place, backend: url(servers, parameters) }
    }
}

/// None of these nodes votes before the end of the lease.
#[track_caller]
pub(crate) fn wait_for_long_enough(client: &Client, members: &[usize], held: &Grant) {
    let nodes = client.nodes();
    let left = held.left();
    assert!(!left.is_zero(), "too slow: the lease was over before anybody looked");
    for member in members {
        let node = &nodes[*member];
        assert_eq!(node["state"], "quarantined", "{node}");
        let votes_in = Duration::from_millis(node["votes_in_ms"].as_u64().unwrap());
        assert!(votes_in > left, "it votes in {votes_in:?}, the lease has {left:?}: {node}");
    }
}

#[test]
fn a_new_list_with_a_shorter_max_ttl_waits_for_the_leases_of_the_old_one() {
    on_each_server(|server| {
        let growth = Growth::of(server, "&max_clock_skew=200ms&max_ttl=8s");
        let held = growth.old.client().acquire(LOCK, "8s");
        let client = growth.client("&max_clock_skew=200ms&max_ttl=1s");
        succeed(&growth.old.client().backend, &client.backend).unwrap();
        nobody_is_granted(&held, &[&client]);
        let next = client.acquire(LOCK, "1s");
        assert!(next.fence > held.fence, "fence {} after {}", next.fence, held.fence);
    });
}

/// A single node's longest ttl is a day, that of three is half a minute.
#[test]
fn a_single_node_that_becomes_three_waits_for_its_leases_where_nobody_gives_max_ttl() {
    on_each_server(|server| {
        let growth = Growth::of(server, "");
        let held = growth.old.client().acquire(LOCK, "300s");
        let client = growth.client("");
        succeed(&growth.old.client().backend, &client.backend).unwrap();
        wait_for_long_enough(&client, &[0, 1, 2], &held);
    });
}

/// Somebody who leaves `max_ttl` out adds a node first, or tries to.
#[test]
fn a_node_that_is_added_to_three_waits_for_the_longest_lease() {
    on_each_server(|server| {
        let left_out = "&max_clock_skew=200ms";
        let mut cluster = Cluster::new(server.clone(), 3, "&max_clock_skew=200ms&max_ttl=100s");
        let held = cluster.client().acquire(LOCK, "90s");
        let old = cluster.client().backend;
        let old_left_out = cluster.client_with(left_out).backend;
        cluster.servers.push(server.start());
        let _ = succeed(&old_left_out, &cluster.client_with(left_out).backend);
        succeed(&old, &cluster.client().backend).unwrap();
        wait_for_long_enough(&cluster.client(), &[3], &held);
    });
}

/// What clients of the lists below have in their URL.
pub(crate) const BRIEF: &str = "&max_clock_skew=200ms&max_ttl=4s";

/// Three members of which only the first stays in the next list, which has others beside it.
pub(crate) struct Replacement {
    pub(crate) old: Cluster,
    pub(crate) joining: Vec<RedisServer>,
}

impl Replacement {
    pub(crate) fn of(server: ServerBuilder, joining: usize) -> Self {
        let old = Cluster::new(server.clone(), 3, BRIEF);
        Self { old, joining: server.start_many(joining) }
    }

    /// A client of the next list.
    pub(crate) fn next(&self) -> Client<'_> {
        let members = self.old.servers[..1].iter().chain(&self.joining);
        Client { place: &self.old.place, backend: url(members, BRIEF) }
    }

    pub(crate) fn change(&self) -> Result<(), String> {
        succeed(&self.old.client().backend, &self.next().backend)
    }

    /// The change fails when its first member has left the old list: the second may not do what it takes,
    /// and everybody goes home.
    pub(crate) fn fail_half_way(&self) {
        let second = &self.old.servers[1];
        second.command(&["ACL", "SETUSER", "default", "-rename"]).unwrap();
        self.change().unwrap_err();
        let first = self.old.servers[0].get("leasehold:node").unwrap();
        assert!(first.contains(" state=barred "), "{first}");
    }

    pub(crate) fn finish(&self) {
        let second = &self.old.servers[1];
        second.command(&["ACL", "SETUSER", "default", "+rename"]).unwrap();
        self.change().unwrap();
    }
}

/// Longer than the members of the next list would have to wait.
pub(crate) const LONG_ENOUGH: Duration = Duration::from_secs(8);

#[test]
fn a_change_that_failed_half_way_lets_no_second_holder_in() {
    on_each_server(|server| {
        let lists = Replacement::of(server, 2);
        let mut kept = lists.old.client().keep("4s");
        lists.fail_half_way();
        stays_kept(LONG_ENOUGH, &mut kept, &[&lists.next()]);
        lists.finish();
        lists.next().acquire(LOCK, "1s");
    });
}

/// Members that joined wait for the end of the change also if they are restarted meanwhile.
#[test]
fn a_change_that_failed_half_way_lets_no_second_holder_in_when_its_members_restart() {
    on_each_server(|server| {
        let lists = Replacement::of(server, 2);
        let mut kept = lists.old.client().keep("4s");
        lists.fail_half_way();
        for member in lists.old.servers[..1].iter().chain(&lists.joining) {
            member.command(&["SAVE"]).unwrap();
            member.restart();
        }
        stays_kept(LONG_ENOUGH, &mut kept, &[&lists.next()]);
        lists.finish();
        lists.next().acquire(LOCK, "1s");
    });
}

/// A single node has no quarantine of its own, but waits for what the others granted.
#[test]
fn three_nodes_that_become_one_wait_for_the_leases_of_the_others() {
    on_each_server(|server| {
        let lists = Replacement::of(server, 0);
        let first = &lists.old.servers[0];
        first.pause();
        let held = lists.old.client().acquire(LOCK, "4s");
        first.resume();
        assert!(!first.exists(&key(LOCK)), "the others granted it");
        lists.change().unwrap();
        nobody_is_granted(&held, &[&lists.next()]);
        let next = lists.next().acquire(LOCK, "1s");
        assert!(next.fence > held.fence, "fence {} after {}", next.fence, held.fence);
    });
}
