//! Several servers behind one member's address, as behind a balancer, a Kubernetes Service or a name
//! with several addresses. Each of them was admitted when the address led to it alone.

use std::time::Instant;

use leasehold_testkit::{Need, Proxy, RedisServer, skip};

use crate::stage::{Client, Cluster, Grant};
use crate::support::{code, stderr};

/// Two sets of servers, each of which the addresses led to.
pub(crate) struct Balanced {
    pub(crate) cluster: Cluster,
    pub(crate) others: Vec<RedisServer>,
}

impl Balanced {
    pub(crate) fn of(members: usize) -> Self {
        let cluster = Cluster::new(RedisServer::redis().start_many(members));
        let others = RedisServer::redis().start_many(members);
        for (proxy, other) in cluster.proxies.iter().zip(&others) {
            proxy.retarget(other.addr());
        }
        cluster.client().init();
        Self { cluster, others }
    }

    /// Each member's proxy, with the servers behind it.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&Proxy, [String; 2])> {
        let servers = self.cluster.servers.iter().zip(&self.others);
        let servers = servers.map(|(one, other)| [one.addr(), other.addr()]);
        self.cluster.proxies.iter().zip(servers)
    }

    fn take_turns(&self) {
        self.members().for_each(|(proxy, servers)| proxy.retarget_in_turns(servers));
    }
}

/// Four clients, one after the other; what the refused ones were told.
#[track_caller]
fn one_holder_at_most(client: &Client) -> Vec<String> {
    let mut held: Option<Grant> = None;
    let mut refusals = Vec::new();
    for _ in 0..4 {
        match (client.acquire(&["-n"]), &held) {
            (Err(words), _) => refusals.push(words),
            (Ok(second), Some(first)) if Instant::now() < first.until => {
                panic!("two holders, with the fences {} and {}", first.fence, second.fence)
            }
            (Ok(grant), _) => held = Some(grant),
        }
    }
    refusals
}

fn take_turns(members: usize) {
    let stage = Balanced::of(members);
    stage.take_turns();
    let client = stage.cluster.client();
    let refusals = one_holder_at_most(&client);
    let words = "its address is answered by several servers (run ids ";
    assert!(refusals.iter().any(|said| said.contains(words)), "{refusals:#?}");
    let output = client.run(&["init"]);
    assert_ne!(code(&output), 0);
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
}

#[test]
fn servers_that_take_turns_at_each_members_address_let_in_one_holder_at_most() {
    if skip(Need::Redis) {
        return;
    }
    take_turns(3);
}

#[test]
fn servers_that_take_turns_at_the_only_members_address_let_in_one_holder_at_most() {
    if skip(Need::Redis) {
        return;
    }
    take_turns(1);
}
