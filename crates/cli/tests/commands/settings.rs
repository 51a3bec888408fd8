//! Where settings come from, as the binary sees it.

use std::fs;

use crate::harness::{Desk, Ran};

fn write(desk: &Desk, text: &str) -> String {
    let folder = desk.home().join("config/leasehold");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("leasehold.toml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn config_prints_what_is_in_force_and_where_it_came_from() {
    let desk = Desk::sqlite();
    let path = write(
        &desk,
        "# mine\nttl = \"20s\"\nholder = \"bob\"\nbackend = \"memory:\"\n[serve]\ninsecure = true\n\
         max-waiters = 7\nmetrics-lock = [\"a\", \"b\"]\n",
    );
    let ran = desk
        .command(&["config", "--json", "--color", "never"])
        .env("LEASEHOLD_BACKEND", "redis://u:hunter2@a,b")
        .output();
    let objects = Ran::of(ran.unwrap()).expect(0).objects();
    let found: Vec<_> = objects
        .iter()
        .map(|o| [&o["name"], &o["value"], &o["source"]].map(|v| v.as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(objects[0]["schema"], "leasehold/setting/v1");
    let line = |n: u32| format!("{path}, line {n}");
    let expected = [
        ["backend", "redis://u:***@a,b", "environment LEASEHOLD_BACKEND"],
        ["ttl", "20.0s", &line(2)],
        ["wait", "forever", "default"],
        ["holder", "bob", &line(3)],
        ["token", "none", "default"],
        ["color", "never", "flag"],
        ["log", "off", "default"],
        ["serve.listen", "127.0.0.1:7717", "default"],
        ["serve.tokens", "none", "default"],
        ["serve.tls-cert", "none", "default"],
        ["serve.tls-key", "none", "default"],
        ["serve.client-ca", "none", "default"],
        ["serve.insecure", "true", &line(6)],
        ["serve.log-format", "text", "default"],
        ["serve.max-wait", "1m", "default"],
        ["serve.max-connections", "12000", "default"],
        ["serve.max-waiters", "7", &line(7)],
        ["serve.max-waiters-per-token", "6000", "default"],
        ["serve.max-requests-per-token", "8000", "default"],
        ["serve.metrics-lock", "a, b", &line(8)],
        ["serve.trusted-proxies", "none", "default"],
        ["serve.drain-notice", "5.0s", "default"],
        ["serve.drain", "10.0s", "default"],
    ];
    assert_eq!(found, expected.map(|row| row.map(str::to_owned)));
    let text = desk.run(&["config"]).expect(0);
    assert!(
        text.out.lines().any(|line| line.split_whitespace().take(2).eq(["backend", "memory:"])),
        "{text:?}"
    );
    assert!(text.err.contains(&path), "{text:?}");
}

#[test]
fn what_the_file_says_is_done() {
    let desk = Desk::sqlite();
    write(&desk, "ttl = 7\nholder = \"bob\"\nwait = \"0s\"\n");
    let lease = desk.run(&["acquire", "job", "--json"]).expect(0).object();
    assert_eq!((&lease["ttl_ms"], &lease["holder"]), (&7000.into(), &"bob".into()));
    desk.run(&["acquire", "job"]).fails(75, &["held by bob"]);
}

#[test]
fn a_typo_is_named_with_key_line_and_remedy_by_every_command() {
    let desk = Desk::sqlite();
    let path = write(&desk, "ttl = \"20s\"\nbakend = \"redis://a\"\n");
    for command in [&["config"][..], &["list"], &["run", "x", "--", "true"]] {
        desk.run(command).fails(78, &[&path, "line 2", "`bakend`", "did you mean `backend`?"]);
    }
    let json = desk.run(&["list", "--json"]).expect(78);
    let error: serde_json::Value = serde_json::from_str(json.err.trim()).unwrap();
    assert_eq!((&error["schema"], &error["exit_code"]), (&"leasehold/error/v1".into(), &78.into()));

    // What is wrong with a value for servers is a matter for them alone.
    fs::write(&path, "[serve]\nmax-wait = \"soon\"").unwrap();
    desk.run(&["list"]).expect(0);
    desk.run(&["config"]).fails(78, &["line 2", "`serve.max-wait`", "`soon` is not a duration"]);
    desk.run(&["serve"]).fails(78, &["line 2", "`serve.max-wait`", "`soon` is not a duration"]);
    fs::write(&path, "ttl = \"20s").unwrap();
    desk.run(&["config"]).fails(78, &["line 1"]);
    let elsewhere = desk.home().join("mine.toml");
    desk.run(&["--config", elsewhere.to_str().unwrap(), "config"]).fails(78, &["cannot read"]);
    fs::write(&elsewhere, "ttl = \"3s\"").unwrap();
    let found = desk.run(&["--config", elsewhere.to_str().unwrap(), "config"]).expect(0);
    assert!(found.out.contains("3.0s"), "a named file goes before the usual one: {found:?}");
    let ran = desk.command(&["config"]).env("LEASEHOLD_CONFIG", &elsewhere).output().unwrap();
    assert!(Ran::of(ran).expect(0).out.contains("mine.toml, line 1"));
}

#[test]
fn colors_are_for_terminals_unless_asked() {
    let desk = Desk::sqlite();
    desk.acquire("job");
    assert!(desk.run(&["list", "--color", "always"]).expect(0).out.contains("\x1b["));
    let ran = desk.command(&["list"]).env("LEASEHOLD_COLOR", "always").output().unwrap();
    assert!(Ran::of(ran).out.contains("\x1b["));
    assert!(!desk.run(&["list"]).expect(0).out.contains('\x1b'));
    desk.run(&["list", "--color", "pink"]).fails(64, &["pink"]);
}

#[test]
fn traces_go_to_stderr_when_asked_and_quiet_leaves_data_only() {
    let desk = Desk::sqlite();
    let ran = desk.run(&["-vv", "acquire", "job", "--ttl", "5s"]).expect(0);
    assert!(ran.err.contains("DEBUG") && !ran.out.contains("DEBUG"), "{ran:?}");
    let ran = desk.command(&["list"]).env("LEASEHOLD_LOG", "leasehold=trace").output().unwrap();
    assert!(!Ran::of(ran).expect(0).out.contains("TRACE"));
    let ran = desk.command(&["list"]).env("LEASEHOLD_LOG", "a=b=c").output().unwrap();
    Ran::of(ran).fails(78, &["log filter", "leasehold=debug"]);
    let quiet = desk.run(&["-q", "acquire", "other", "--ttl", "5s"]).expect(0);
    assert!(quiet.err.is_empty() && quiet.out.starts_with("lease1:"), "{quiet:?}");
}
