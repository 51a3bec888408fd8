//! One file, several clocks: processes in time namespaces, with other boot ids, and with none.

#![cfg(all(feature = "sqlite", target_os = "linux"))]

mod asking;
mod lock_file;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use asking::ask;
use leasehold::clock::{Clock, SystemClock};
use leasehold_core::Reply;
use leasehold_testkit::Namespace;
use lock_file::{MINUTE, acquire, admitted, open, record, release};

/// Far above what the processes of these tests take together.
const SOON: Duration = Duration::from_secs(20);

/// What another process is told that asks for the lock `l`.
fn asker(path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "as_a_child", "--nocapture", "--test-threads=1"]);
    command.env("LEASEHOLD_CHILD", "1").env("LOCK_FILE", path);
    command
}

fn said(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let answer = text.lines().find_map(|line| line.split_once("answer: "));
    answer.unwrap_or_else(|| panic!("{text}")).1.to_owned()
}

/// Nothing, unless it is a child that runs it.
#[test]
fn as_a_child() {
    if std::env::var("LEASEHOLD_CHILD").is_err() {
        return;
    }
    let node = match open(&PathBuf::from(std::env::var_os("LOCK_FILE").unwrap())) {
        Ok(node) => node,
        Err(error) => return println!("\nanswer: {error}"),
    };
    let answer = ask(&node, Some(&record()), acquire("l", 2, SystemClock.wall().0, MINUTE));
    match answer {
        Ok(Reply::Granted) => println!("\nanswer: granted"),
        Ok(Reply::Busy { expires_in: Some(left), .. }) => {
            println!("\nanswer: busy {}", left.as_millis());
        }
        other => panic!("{other:?}"),
    }
}

/// A boot clock that runs before or behind the machine's by about an hour, or as far back as it goes.
fn other_boot_clocks() -> [Namespace; 2] {
    let up = i64::try_from(SystemClock.now().as_nanos() / 1_000_000_000).unwrap();
    [Namespace::BootClock(3600), Namespace::BootClock(-(up / 2).min(3600))]
}

#[test]
fn a_process_in_a_time_namespace_does_not_take_a_live_lock() {
    if Namespace::BootClock(1).skip() {
        return;
    }
    for namespace in other_boot_clocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let node = admitted(&path);
        let request = acquire("l", 1, SystemClock.wall().0, MINUTE);
        assert_eq!(ask(&node, Some(&record()), request), Ok(Reply::Granted));
        let answer = said(namespace.enter("", &asker(&path)));
        let left: u128 = answer.strip_prefix("busy ").expect(&answer).parse().unwrap();
        assert!((30_000..=60_000).contains(&left), "{namespace:?}: {left} ms");
        assert_eq!(ask(&node, None, release("l", 1)), Ok(Reply::Released));

        // And the other way round.
        assert_eq!(said(namespace.enter("", &asker(&path))), "granted");
        let request = acquire("l", 1, SystemClock.wall().0, MINUTE);
        let answer = ask(&node, Some(&record()), request);
        let Ok(Reply::Busy { expires_in: Some(left), .. }) = answer else {
            panic!("{namespace:?}: {answer:?}");
        };
        assert!((Duration::from_secs(30)..=MINUTE).contains(&left), "{namespace:?}: {left:?}");
    }
}

#[test]
fn a_process_that_cannot_tell_which_boot_clock_it_has_is_refused() {
    if Namespace::Mounts.skip() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    drop(admitted(&path));
    let answer = said(Namespace::Mounts.enter("mount -t tmpfs none /proc", &asker(&path)));
    assert!(answer.contains("nobody can tell in which time namespace"), "{answer}");
    assert!(answer.contains("mount /proc"), "{answer}");
}

#[test]
fn a_killed_holders_lease_ends_although_processes_with_other_boot_ids_open_the_file() {
    if Namespace::Mounts.skip() {
        return;
    }
    for has_boot_id in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (path, id) = (folder.path().join("locks.db"), folder.path().join("boot_id"));
        let ttl = Duration::from_secs(3);
        let node = admitted(&path);
        let begun = Instant::now();
        let request = acquire("l", 1, SystemClock.wall().0, ttl);
        assert_eq!(ask(&node, Some(&record()), request), Ok(Reply::Granted));
        drop(node);
        let mount = format!("mount --bind {} /proc/sys/kernel/random/boot_id", id.display());
        for number in 0.. {
            fs::write(&id, if has_boot_id { format!("boot-{number}") } else { String::new() })
                .unwrap();
            let answer = said(Namespace::Mounts.enter(&mount, &asker(&path)));
            if answer == "granted" {
                break;
            }
            assert!(begun.elapsed() < SOON, "after process {number} it still is {answer}");
        }
        assert!(begun.elapsed() >= ttl, "it was given away after {:?}", begun.elapsed());
    }
}
