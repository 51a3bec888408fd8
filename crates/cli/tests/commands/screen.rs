//! What differs when a person sits in front: a pseudo-terminal stands for the screen.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::harness::Desk;

/// Runs with a terminal as standard input, output and error, on which `typed` is typed, and returns
/// the exit code and all that was to be seen.
pub(crate) fn on_a_screen(mut command: Command, typed: &str) -> (i32, String) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap().into_string().unwrap();
    let desk_side = || File::options().read(true).write(true).open(&name).unwrap();
    command.stdin(desk_side()).stdout(desk_side()).stderr(desk_side()).env("TERM", "xterm");
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut screen = File::from(screen);
    screen.write_all(typed.as_bytes()).unwrap();
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    // Ends with an error when the last one on the other side is gone.
    while let Ok(count @ 1..) = screen.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..count]);
    }
    let code = child.wait().unwrap().code().expect("it exits by itself");
    (code, String::from_utf8(seen).unwrap())
}

#[test]
fn a_person_confirms_with_the_name_of_the_lock() {
    let desk = Desk::sqlite();
    let token = desk.acquire("job");
    let fence = desk.fence("job").to_string();
    let force = || desk.command(&["force-release", "job", "--fence", &fence, "--reason", "dead"]);
    for wrong in ["y\n", "jo\n", "\n", "\u{4}"] {
        let (code, seen) = on_a_screen(force(), wrong);
        assert_eq!(code, 64, "{seen}");
        assert!(seen.contains("this does not stop the holder"), "told before: {seen}");
        assert!(seen.contains("was left alone"), "{seen}");
        desk.run(&["extend", &token]).expect(0);
    }
    let (code, seen) = on_a_screen(force(), "job\n");
    assert_eq!(code, 0, "{seen}");
    desk.run(&["extend", &token]).fails(79, &["is lost"]);
}

#[test]
fn a_screen_shows_a_chart_and_colors_unless_it_may_not() {
    let desk = Desk::sqlite();
    let (code, seen) = on_a_screen(desk.command(&["plan"]), "");
    assert_eq!(code, 0, "{seen}");
    // Eight nines for five nodes, two blocks each.
    let bar = "█".repeat(16);
    assert!(seen.contains(&format!("{bar}\x1b[0m  8.0 nines")), "{seen}");
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb"), ("LEASEHOLD_COLOR", "never")] {
        let mut command = desk.command(&["plan"]);
        // As a wrapper, because the screen sets TERM itself.
        let mut plain = Command::new("env");
        plain.arg(format!("{name}={value}")).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => plain.env(name, value),
                None => plain.env_remove(name),
            };
        }
        command = plain;
        let (_, seen) = on_a_screen(command, "");
        assert!(seen.contains('█') && !seen.contains('\x1b'), "{name}: {seen}");
    }
}
