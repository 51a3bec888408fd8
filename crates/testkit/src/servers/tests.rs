//! The life of a server, and what can be asked of it.

use super::*;
use crate::skip;

fn obeys_its_life_cycle(builder: ServerBuilder) {
    let server = builder.start();
    let first_pid = server.pid().unwrap();
    server.command(&["SET", "key", "value", "PX", "60000"]).unwrap();
    assert_eq!(server.get("key").as_deref(), Some("value"));
    assert!((1..=60_000).contains(&server.pttl("key")));
    assert!(server.exists("key"));
    assert_eq!(server.pttl("none"), -2);

    server.kill();
    assert!(!server.is_running());
    assert!(server.command(&["PING"]).unwrap_err().contains("refused"));

    server.restart_empty();
    assert!(server.is_running());
    assert_ne!(server.pid().unwrap(), first_pid);
    assert_eq!(server.get("key"), None);

    server.command(&["SET", "key", "again"]).unwrap();
    server.flush_all();
    assert!(!server.exists("key"));
}

#[test]
fn redis_starts_dies_and_comes_back_empty_on_its_port() {
    if skip(Need::Redis) {
        return;
    }
    obeys_its_life_cycle(RedisServer::redis());
}

#[test]
fn valkey_starts_dies_and_comes_back_empty_on_its_port() {
    if skip(Need::Valkey) {
        return;
    }
    obeys_its_life_cycle(RedisServer::valkey());
}

#[test]
fn a_paused_server_answers_only_after_it_is_resumed() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().start();
    server.pause();
    assert!(server.is_running());
    let short = Duration::from_millis(100);
    let mut held_up = Connection::to_within(&server.addr(), short).unwrap();
    assert!(held_up.call(&["SET", "key", "late"]).is_err());
    server.resume();
    assert!(
        holds_within(Duration::from_secs(5), || server.get("key").as_deref() == Some("late")),
        "what was sent during the pause is carried out after it"
    );
}

#[test]
fn a_paused_server_can_be_killed() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().start();
    server.pause();
    server.kill();
    assert!(!server.is_running());
}

#[test]
fn an_append_only_file_survives_a_kill_and_not_a_wipe() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().append_fsync("always").start();
    server.command(&["SET", "key", "value"]).unwrap();
    server.restart();
    assert_eq!(server.get("key").as_deref(), Some("value"));
    server.restart_empty();
    assert_eq!(server.get("key"), None);
}

#[test]
fn a_server_starts_from_an_old_backup_and_from_anothers_files() {
    if skip(Need::Redis) {
        return;
    }
    let [one, two] = [1, 2].map(|number| {
        let server = RedisServer::redis().append_fsync("always").start();
        server.command(&["SET", "number", &number.to_string()]).unwrap();
        server
    });
    let backup = one.backup();
    one.command(&["SET", "number", "3"]).unwrap();
    one.restart_from(backup.path());
    assert_eq!(one.get("number").as_deref(), Some("1"));
    one.restart_from(two.backup().path());
    assert_eq!(one.get("number").as_deref(), Some("2"));
}

#[test]
fn without_persistence_a_restart_forgets() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().start();
    server.command(&["SET", "key", "value"]).unwrap();
    server.restart();
    assert_eq!(server.get("key"), None);
}

#[test]
fn a_start_waits_out_the_loading_unless_told_otherwise() {
    if skip(Need::Redis) {
        return;
    }
    // 60 keys at 20 ms each: loading takes over a second, and PING is answered all along.
    let slow = RedisServer::redis()
        .append_fsync("no")
        .config("key-load-delay", "20000")
        .config("loading-process-events-interval-bytes", "1024");
    let fill = |server: &RedisServer| {
        let value = "x".repeat(4096);
        for i in 0..60 {
            server.command(&["SET", &format!("key{i}"), &value]).unwrap();
        }
        server.command(&["BGREWRITEAOF"]).unwrap();
        let rewritten = || {
            let info = server.command(&["INFO", "persistence"]).unwrap();
            let info = info.as_text().unwrap();
            info.contains("aof_rewrite_in_progress:0")
                && info.contains("aof_rewrite_scheduled:0")
                && info.contains("aof_last_bgrewrite_status:ok")
        };
        assert!(holds_within(Duration::from_secs(20), rewritten), "{}", server.log());
    };

    let patient = slow.clone().start();
    fill(&patient);
    patient.restart();
    assert_eq!(patient.command(&["DBSIZE"]), Ok(Value::Int(60)));

    let hasty = slow.accept_loading().start();
    fill(&hasty);
    hasty.restart();
    let refused = hasty.command(&["GET", "key1"]).unwrap_err();
    assert!(refused.starts_with("LOADING"), "{refused}");
}

#[test]
fn a_password_is_demanded_and_goes_into_the_url() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().password("s3cret \"/@").start();
    server.command(&["SET", "key", "value"]).unwrap();
    let unknown = Connection::to(&server.addr()).unwrap().call(&["GET", "key"]);
    assert!(unknown.unwrap_err().starts_with("NOAUTH"));
    let expected = format!("redis://:s3cret%20%22%2F%40@127.0.0.1:{}", server.port());
    assert_eq!(server.url(), expected);
}

#[test]
fn a_unix_socket_reaches_the_same_keys() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().unix_socket().start();
    server.command(&["SET", "key", "value"]).unwrap();
    let mut by_socket = Connection::to_socket(server.socket_path()).unwrap();
    assert_eq!(by_socket.call(&["GET", "key"]), Ok(Value::Text("value".into())));
}

#[test]
fn configuration_lines_reach_the_server() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis()
        .config("maxmemory", "50mb")
        .config("user", "alice on >secret ~locks:* +@all")
        .start();
    let value = server.command(&["CONFIG", "GET", "maxmemory"]).unwrap();
    let expected = ["maxmemory", "52428800"].map(|text| Value::Text(text.into()));
    assert_eq!(value, Value::Array(expected.into()));
    let mut alice = Connection::to(&server.addr()).unwrap();
    alice.call(&["AUTH", "alice", "secret"]).unwrap();
    assert!(alice.call(&["GET", "other"]).unwrap_err().starts_with("NOPERM"));
}

#[test]
#[should_panic(expected = "Bad directive")]
fn a_server_that_does_not_start_says_why() {
    if skip(Need::Redis) {
        panic!("Bad directive");
    }
    let _ = RedisServer::redis().config("no-such-setting", "1").start();
}

#[test]
fn dropping_a_server_ends_its_process_and_removes_its_folder() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().start();
    let process = PathBuf::from(format!("/proc/{}", server.pid().unwrap()));
    let folder = server.dir.path().to_owned();
    assert!(process.exists());
    drop(server);
    assert!(!process.exists());
    assert!(!folder.exists());
}
