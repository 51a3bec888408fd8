//! `bench`: figures from both kinds of backend, and nothing left behind.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use leasehold_testkit::eventually;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::Desk;
use crate::screen::on_a_screen;

#[track_caller]
fn leaves_nothing(desk: &Desk) {
    let held = desk.run(&["list", "--json"]).expect(0);
    assert!(held.objects().is_empty(), "{held:?}");
}

#[test]
fn figures_for_each_number_of_tasks() {
    for desk in Desk::each() {
        let words = ["bench", "--secs", "0.1", "--concurrency", "1,4", "--names", "2"];
        let ran = desk.run(&[&words[..], &["--json"]].concat()).expect(0);
        assert_eq!(ran.err, "", "no progress where nobody looks");
        let rows = ran.objects();
        let tasks: Vec<_> = rows.iter().map(|row| row["concurrency"].as_u64().unwrap()).collect();
        assert_eq!(tasks, [1, 4]);
        for row in &rows {
            assert_eq!((&row["schema"], &row["failed"]), (&"leasehold/bench/v1".into(), &0.into()));
            let figure = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
            assert!(figure("seconds") >= 0.1 && figure("cycles") >= 1.0, "{row}");
            let speed = figure("cycles") / figure("seconds");
            assert!((speed / figure("cycles_per_s") - 1.0).abs() < 1e-6, "{row}");
            for what in ["acquire", "release"] {
                let at = |share: &str| figure(&format!("{what}_{share}_us"));
                assert!(0.0 < at("p50"), "{row}");
                assert!(at("p50") <= at("p99") && at("p99") <= at("p999"), "{row}");
            }
        }
        leaves_nothing(&desk);
        let text = desk.run(&words).expect(0).out;
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("tasks  cycles/s  acquire p50"), "{text}");
        let bars = lines[1..].iter().map(|line| line.matches('█').count());
        assert_eq!(bars.max(), Some(24), "the best has the longest bar: {text}");
        leaves_nothing(&desk);
    }
}

#[test]
fn what_cannot_be_measured_is_said_with_the_reason() {
    Desk::with("redis://127.0.0.1:1").run(&["bench"]).fails(69, &["0 of 1 nodes answered"]);
    Desk::sqlite().run(&["bench", "--concurrency", "0"]).fails(64, &["0 is not in 1..=10000"]);
    let desk = Desk::sqlite();
    desk.acquire_for("leasehold-bench/0/0", "20s");
    desk.run(&["bench", "--secs", "1s"]).fails(75, &["lock `leasehold-bench/0/0`", "held by ana"]);
}

#[test]
fn an_interrupted_run_gives_everything_back() {
    for desk in Desk::each() {
        let mut bench = desk.command(&["bench", "--secs", "2", "--concurrency", "4,8", "--json"]);
        let mut child = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        // The first row: the second is being measured.
        out.read_line(&mut String::new()).unwrap();
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::INT).unwrap();
        eventually(std::time::Duration::from_secs(10), "it ends", || {
            child.try_wait().unwrap().is_some()
        });
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130));
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.contains("interrupted: everything was given back"), "{said}");
        leaves_nothing(&desk);
    }
}

#[test]
fn a_person_sees_how_far_it_is_and_then_a_chart() {
    let desk = Desk::sqlite();
    let (code, seen) =
        on_a_screen(desk.command(&["bench", "--secs", "0.3", "--concurrency", "1,2"]), "");
    assert_eq!(code, 0, "{seen}");
    for words in ["░ 1 of 2: 1 task(s)", "░ 2 of 2: 2 task(s)", "cycles/s", "████"] {
        assert!(seen.contains(words), "no `{words}` in {seen}");
    }
}
