//! Every fault, seen from a client through the proxy and from the server behind it.

use super::*;
use crate::{Connection, Need, RedisServer, Value, eventually, skip};

const SHORT: Duration = Duration::from_millis(250);
const LONG: Duration = Duration::from_secs(10);

fn pong() -> Result<Value, String> {
    Ok(Value::Text("PONG".into()))
}

fn connect(proxy: &Proxy) -> Connection {
    Connection::to(&proxy.addr()).unwrap()
}

fn connect_impatiently(proxy: &Proxy) -> Connection {
    Connection::to_within(&proxy.addr(), SHORT).unwrap()
}

fn server_and_proxy() -> Option<(RedisServer, Proxy)> {
    if skip(Need::Redis) {
        return None;
    }
    let server = RedisServer::redis().start();
    let proxy = Proxy::to(server.addr());
    Some((server, proxy))
}

/// A connection that the proxy has already carried something over, to be hurt afterwards.
fn established(proxy: &Proxy) -> Connection {
    let mut connection = connect_impatiently(proxy);
    assert_eq!(connection.call(&["PING"]), pong());
    connection
}

#[test]
fn passes_both_ways_and_counts() {
    let Some((_server, proxy)) = server_and_proxy() else {
        return;
    };
    assert_eq!(connect(&proxy).call(&["PING"]), pong());
    assert_eq!(connect(&proxy).call(&["PING"]), pong());
    let [asked, answered] = ["*1\r\n$4\r\nPING\r\n", "+PONG\r\n"].map(|text| 2 * text.len() as u64);
    let expected = Counts {
        connections: 2,
        from_clients: asked,
        to_server: asked,
        from_server: answered,
        to_clients: answered,
    };
    assert_eq!(proxy.counts(), expected);
}

#[test]
fn a_delay_holds_each_way_and_does_not_add_up() {
    let Some((_server, proxy)) = server_and_proxy() else {
        return;
    };
    proxy.set(Fault::Delay(Duration::from_millis(200)));
    let start = Instant::now();
    assert_eq!(connect(&proxy).call(&["PING"]), pong());
    assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());

    let mut stream = TcpStream::connect(proxy.addr()).unwrap();
    stream.set_nodelay(true).unwrap();
    let start = Instant::now();
    for _ in 0..6 {
        let before = proxy.counts().from_clients;
        stream.write_all(b"PING\r\n").unwrap();
        eventually(LONG, "each PING is a chunk of its own", || {
            proxy.counts().from_clients == before + 6
        });
    }
    let mut replies = [0; 6 * 7];
    stream.read_exact(&mut replies).unwrap();
    // One after the other they would need 6 x 400 ms.
    assert!(start.elapsed() < Duration::from_millis(2000), "{:?}", start.elapsed());
}

#[test]
fn a_delay_ends_with_the_fault() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    proxy.set(Fault::Delay(Duration::from_secs(3600)));
    let mut connection = connect_impatiently(&proxy);
    assert!(connection.call(&["SET", "key", "value"]).is_err());
    assert!(!server.exists("key"));
    proxy.set(Fault::Pass);
    eventually(LONG, "the request is delivered", || server.exists("key"));
}

#[test]
fn a_stalled_request_arrives_late_even_when_its_sender_is_gone() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut connection = established(&proxy);
    proxy.set(Fault::Stall);
    assert!(connection.call(&["SET", "key", "late"]).is_err());
    drop(connection);
    assert!(!server.exists("key"));
    proxy.set(Fault::Pass);
    eventually(LONG, "the late request takes effect", || {
        server.get("key").as_deref() == Some("late")
    });
}

#[test]
fn a_black_hole_takes_everything_and_gives_nothing() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut old = established(&proxy);
    proxy.set(Fault::BlackHole);
    let mut new = connect_impatiently(&proxy);
    assert!(old.call(&["SET", "old", "1"]).is_err());
    assert!(new.call(&["SET", "new", "1"]).is_err());
    eventually(LONG, "both requests were read", || {
        let counts = proxy.counts();
        counts.from_clients > counts.to_server + 50
    });
    assert!(!server.exists("old") && !server.exists("new"));

    server.kill();
    assert!(new.call(&["PING"]).unwrap_err().contains("unavailable"), "not closed either");
}

#[test]
fn a_connection_that_lost_bytes_is_closed_when_the_fault_changes() {
    let Some((_server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut spoiled = established(&proxy);
    let mut untouched = established(&proxy);
    proxy.set(Fault::DropReplies);
    assert!(spoiled.call(&["ECHO", "first"]).is_err());
    eventually(LONG, "the reply was swallowed", || {
        let counts = proxy.counts();
        counts.from_server > counts.to_clients
    });
    proxy.set(Fault::Pass);
    assert!(spoiled.call(&["ECHO", "second"]).is_err());
    assert_eq!(untouched.call(&["PING"]), pong());
}

#[test]
fn dropped_replies_leave_the_requests_done() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut connection = established(&proxy);
    proxy.set(Fault::DropReplies);
    assert!(connection.call(&["SET", "key", "value"]).is_err());
    eventually(LONG, "the request took effect", || server.exists("key"));
}

#[test]
fn dropped_requests_never_reach_the_server() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut connection = established(&proxy);
    let before = proxy.counts().to_server;
    proxy.set(Fault::DropRequests);
    assert!(connection.call(&["SET", "key", "value"]).is_err());
    assert!(connect_impatiently(&proxy).call(&["SET", "key", "value"]).is_err());
    assert_eq!(proxy.counts().to_server, before);
    assert!(!server.exists("key"));
}

#[test]
fn refusing_closes_old_and_new_connections_at_once() {
    let Some((_server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut old = connect(&proxy);
    assert_eq!(old.call(&["PING"]), pong());
    proxy.set(Fault::Refuse);
    let start = Instant::now();
    assert!(old.call(&["PING"]).is_err());
    assert!(connect(&proxy).call(&["PING"]).is_err());
    assert!(start.elapsed() < Duration::from_secs(4), "closed, not timed out");
    assert_eq!(proxy.counts().connections, 2);
    proxy.set(Fault::Pass);
    assert_eq!(connect(&proxy).call(&["PING"]), pong());
}

#[test]
fn a_cut_request_has_taken_effect_when_its_sender_learns_nothing() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut cut = connect(&proxy);
    let mut other = connect(&proxy);
    proxy.set(Fault::CutAfterRequest);
    assert!(cut.call(&["SET", "key", "value"]).is_err());
    assert_eq!(server.get("key").as_deref(), Some("value"));
    assert_eq!(proxy.counts().to_clients, 0);

    assert_eq!(proxy.fault(), Fault::Pass);
    assert_eq!(other.call(&["PING"]), pong(), "one connection is cut, once");
    assert!(cut.call(&["PING"]).is_err());
}

#[test]
fn garbage_answers_in_the_servers_place() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    proxy.set(Fault::Garbage(b"HTTP/1.1 400 Bad Request\r\n".to_vec()));
    let answer = connect(&proxy).call(&["SET", "key", "value"]);
    assert_eq!(answer, Err("not a reply: \"HTTP/1.1 400 Bad Request\"".into()));
    assert!(!server.exists("key"));
    server.kill();
    assert!(connect(&proxy).call(&["PING"]).unwrap_err().contains("HTTP"), "without a server too");
}

#[test]
fn a_slow_drip_arrives_whole() {
    let Some((_server, proxy)) = server_and_proxy() else {
        return;
    };
    proxy.set(Fault::OneByteAtATime);
    let text = "x".repeat(250);
    let start = Instant::now();
    let answer = connect(&proxy).call(&["ECHO", &text]);
    assert_eq!(answer, Ok(Value::Text(text)));
    // 250 bytes each way, at least 0.2 ms apart.
    assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
}

#[test]
fn a_server_that_dies_closes_its_clients() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut connection = connect(&proxy);
    assert_eq!(connection.call(&["PING"]), pong());
    server.kill();
    let start = Instant::now();
    assert!(connection.call(&["PING"]).is_err());
    assert!(connect(&proxy).call(&["PING"]).is_err());
    assert!(start.elapsed() < Duration::from_secs(4), "closed, not timed out");
    server.restart_empty();
    assert_eq!(connect(&proxy).call(&["PING"]), pong());
}

#[test]
fn dropping_a_proxy_ends_it_under_any_fault() {
    let Some((server, _)) = server_and_proxy() else {
        return;
    };
    let faults = [
        Fault::Pass,
        Fault::Delay(Duration::from_secs(3600)),
        Fault::Stall,
        Fault::BlackHole,
        Fault::OneByteAtATime,
    ];
    for fault in faults {
        let proxy = Proxy::to(server.addr());
        let addr = proxy.addr();
        let mut stream = TcpStream::connect(&addr).unwrap();
        proxy.set(fault.clone());
        stream.write_all(b"PING\r\n").unwrap();
        eventually(LONG, "the request was read", || proxy.counts().from_clients == 6);
        let shared = Arc::downgrade(&proxy.shared);
        drop(proxy);
        assert!(shared.upgrade().is_none(), "every thread ended: {fault:?}");
        // A child that another test starts at this moment holds the listener until its exec.
        eventually(LONG, "nobody listens any more", || TcpStream::connect(&addr).is_err());
    }
}

#[test]
fn a_fault_for_open_connections_spares_new_ones() {
    let Some((_server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut open = established(&proxy);
    proxy.set_for(Scope::Open, Fault::BlackHole);
    assert!(open.call(&["PING"]).is_err());
    assert_eq!(connect(&proxy).call(&["PING"]), pong());
}

#[test]
fn a_fault_for_every_other_connection_spares_the_rest() {
    let Some((_server, proxy)) = server_and_proxy() else {
        return;
    };
    let [mut first, mut second] = [established(&proxy), established(&proxy)];
    proxy.set_for(Scope::Even, Fault::BlackHole);
    assert_eq!(first.call(&["PING"]), pong());
    assert!(second.call(&["PING"]).is_err());
    proxy.set_for(Scope::Odd, Fault::Refuse);
    assert!(first.call(&["PING"]).is_err());
    assert!(connect_impatiently(&proxy).call(&["PING"]).is_err(), "the third is refused");
    assert_eq!(connect(&proxy).call(&["PING"]), pong(), "the fourth is not");
}

/// Two servers that tell their number.
fn two_servers() -> Option<[RedisServer; 2]> {
    if skip(Need::Redis) {
        return None;
    }
    Some([1, 2].map(|number| {
        let server = RedisServer::redis().start();
        server.command(&["SET", "number", &number.to_string()]).unwrap();
        server
    }))
}

fn number_behind(connection: &mut Connection) -> u8 {
    let answer = connection.call(&["GET", "number"]).unwrap();
    answer.as_text().unwrap().parse().unwrap()
}

#[test]
fn a_retargeted_proxy_leads_new_connections_elsewhere_and_leaves_the_others() {
    let Some([one, two]) = two_servers() else {
        return;
    };
    let proxy = Proxy::to(one.addr());
    let mut before = connect(&proxy);
    assert_eq!(number_behind(&mut before), 1);
    proxy.retarget(two.addr());
    assert_eq!(number_behind(&mut connect(&proxy)), 2);
    assert_eq!(number_behind(&mut before), 1);
}

#[test]
fn in_turns_means_one_server_after_the_other() {
    let Some(servers) = two_servers() else {
        return;
    };
    let proxy = Proxy::to(servers[1].addr());
    proxy.retarget_in_turns(servers.iter().map(RedisServer::addr));
    let mut connections: Vec<_> = (0..5).map(|_| established(&proxy)).collect();
    let numbers: Vec<_> = connections.iter_mut().map(number_behind).collect();
    assert_eq!(numbers, [1, 2, 1, 2, 1]);
}

#[test]
fn one_seed_gives_one_sequence_and_each_server_has_its_share() {
    let sequence = |seed| {
        let proxy = Proxy::to("nobody");
        proxy.retarget_at_random(["one", "two"].map(str::to_owned), seed);
        let mut state = proxy.shared.lock();
        (0..100).map(|_| state.route.next()).collect::<Vec<_>>()
    };
    for seed in 0..20 {
        let first = sequence(seed);
        assert_eq!(first, sequence(seed));
        let ones = first.iter().filter(|addr| *addr == "one").count();
        assert!((30..=70).contains(&ones), "seed {seed}: {ones} of 100");
    }
    assert_ne!(sequence(0), sequence(1));
}
