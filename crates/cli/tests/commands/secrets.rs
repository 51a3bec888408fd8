//! No password in any output of any command, whoever gave it and whatever is wrong with it.

use leasehold_testkit::{Need, RedisServer, skip};

use crate::harness::{Desk, Ran};

const COMMANDS: &[&[&str]] = &[
    &["init"],
    &["acquire", "job", "--ttl", "20s", "-n"],
    &["status", "job"],
    &["list"],
    &["watch", "job", "--count", "1", "--for", "1s"],
    &["extend", "lease1:5:20000:ana@h:1:00000000000000000000000000000000/job"],
    &["release", "lease1:5:20000:ana@h:1:00000000000000000000000000000000/job"],
    &["force-release", "job", "--fence", "1", "--reason", "x", "--yes"],
    &["nodes"],
    &["doctor", "--watch", "10ms"],
    &["plan"],
    &["config"],
    &["completions", "bash"],
    &["man"],
    &["__names", ""],
    &["run", "-n", "other", "--", "true"],
];

fn check(ran: &Ran, arguments: &[&str], backend: &str) {
    assert!(!ran.all().contains("hunter"), "{arguments:?} with {backend}: {ran:?}");
}

#[test]
fn passwords_are_in_no_output() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().password("hunter2").start();
    let addr = server.addr();
    for backend in [
        format!("redis://:hunter2@{addr}"),
        format!("redis://default:hunter2@{addr}"),
        format!("redis://:hunter3@{addr}"),
        format!("redis://default:hunter2@{addr},redis://default:hunter2@127.0.0.1:1"),
        format!("redis://127.0.0.1:1,redis://:hunter2@{addr}"),
        format!("redis://:hunter2@{addr}?nonsense=1"),
        format!("redis://:hun/ter2hunter@{addr}"),
        format!("redis://:hunter2@{addr}:x"),
        format!("redys://:hunter2@{addr}"),
        "redis://u:hunter2@127.0.0.1:1,127.0.0.1:1".to_owned(),
        "https://:hunter2@127.0.0.1:1".to_owned(),
        "https://hunter2@127.0.0.1:1".to_owned(),
        "http://:hunter2@127.0.0.1:1?nonsense=1".to_owned(),
        "http://:hun/ter2hunter@127.0.0.1:1".to_owned(),
    ] {
        let by_variable = Desk::with(&backend);
        let by_flag = Desk::sqlite();
        for command in COMMANDS {
            for more in [&["-vvv"][..], &["--json", "-vv"]] {
                check(&by_variable.run(&[more, command].concat()), command, &backend);
            }
            let ran = by_flag.run(&[&["--backend", &backend], *command].concat());
            check(&ran, command, &backend);
        }
        let folder = by_flag.home().join("config/leasehold");
        std::fs::create_dir_all(&folder).unwrap();
        for text in [format!("backend = \"{backend}\""), format!("backend = {backend}")] {
            std::fs::write(folder.join("leasehold.toml"), text).unwrap();
            for command in [&["config"][..], &["nodes", "--json"]] {
                check(&by_flag.run(command), command, &backend);
            }
        }
    }
}

#[test]
fn a_password_on_the_command_line_is_warned_of() {
    let desk = Desk::sqlite();
    let arguments = ["--backend", "redis://:hunter2@127.0.0.1:1", "config"];
    let ran = desk.run(&arguments).expect(0);
    assert!(ran.err.contains("everybody on this machine can read the password"), "{ran:?}");
    assert!(desk.run(&[&["-q"], &arguments[..]].concat()).err.is_empty());
    let ran = desk.run(&["--backend", "redis://127.0.0.1:1", "config"]).expect(0);
    assert!(!ran.err.contains("password"), "{ran:?}");
}

#[test]
fn a_lease_token_on_the_command_line_is_warned_of() {
    let desk = Desk::sqlite();
    let warning =
        "everybody on this machine can read the lease token with ps, and release the lease";
    for command in ["extend", "release"] {
        let token = desk.acquire("job");
        let file = desk.home().join("token");
        std::fs::write(&file, &token).unwrap();
        let quiet = desk.run(&["-q", "extend", &token]).expect(0);
        assert!(quiet.err.is_empty(), "{quiet:?}");
        let by_file = desk.run(&["extend", &format!("@{}", file.display())]).expect(0);
        let mut by_input = desk.command(&["extend", "-"]);
        let input = by_input.stdin(std::fs::File::open(&file).unwrap()).output().unwrap();
        for ran in [by_file, Ran::of(input).expect(0)] {
            assert!(!ran.err.contains("warning"), "{ran:?}");
        }
        let ran = desk.run(&[command, &token]).expect(0);
        assert_eq!(ran.err.matches(warning).count(), 1, "{ran:?}");
        assert!(ran.err.contains("`-`") && ran.err.contains("`@FILE`"), "{ran:?}");
        assert!(!ran.err.contains(&token), "{ran:?}");
        desk.run(&["release", &token]);
    }
}

#[test]
fn a_token_of_the_environment_or_the_file_is_in_no_output() {
    let desk = Desk::with("http://127.0.0.1:1");
    let in_file = Desk::with("http://127.0.0.1:1");
    let folder = in_file.home().join("config/leasehold");
    std::fs::create_dir_all(&folder).unwrap();
    for token in ["hunter2", "hunter 2"] {
        std::fs::write(folder.join("leasehold.toml"), format!("token = \"{token}\"")).unwrap();
        for command in COMMANDS {
            let arguments = [&["-vvv"], *command].concat();
            let mut by_variable = desk.command(&arguments);
            let ran = Ran::of(by_variable.env("LEASEHOLD_TOKEN", token).output().unwrap());
            check(&ran, command, token);
            check(&in_file.run(&arguments), command, token);
        }
    }
    let shown = in_file.run(&["config"]).expect(0).out;
    assert!(shown.contains("***"), "{shown}");
}
