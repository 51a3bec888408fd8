//! A program's own clocks, moved while it runs.
//!
//! `clock_shim.c` is compiled once, with the system's `cc`, and preloaded into the program; a small
//! file says by how much its clocks are off. libfaketime would do the same for simpler programs, but
//! it crashes redis-server.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use crate::preload::{library, preload};

const SOURCE: &str = include_str!("clock_shim.c");
/// Valkey reads the wall clock about once a millisecond and follows the processor's counter in
/// between.
const NOTICED_AFTER: Duration = Duration::from_millis(5);

/// The wall clock of a program and of all that it starts: a file that tells how far off it is. Other
/// clocks stay true, as they do when somebody sets the time, unless a pause is [missed](Self::miss).
#[derive(Debug)]
pub struct WallClock {
    path: PathBuf,
    file: File,
    offset_us: Mutex<i64>,
    missed_us: Mutex<i64>,
}

impl WallClock {
    /// A clock that is right for now.
    pub fn new(path: PathBuf) -> io::Result<WallClock> {
        let file = File::create(&path)?;
        file.write_all_at(&[0; 16], 0)?;
        Ok(WallClock { path, file, offset_us: Mutex::new(0), missed_us: Mutex::new(0) })
    }

    /// Has `program` read this clock.
    pub fn preload(&self, program: &mut Command) {
        preload(program, shim());
        program.env("LEASEHOLD_CLOCK_FILE", &self.path);
    }

    /// Sets how far it is ahead of the real one, behind if negative.
    pub fn set(&self, offset_seconds: f64) {
        self.change(|_| offset_seconds);
    }

    /// Moves it by `seconds` from where it stands, backwards if negative.
    pub fn jump(&self, seconds: f64) {
        self.change(|offset| offset + seconds);
    }

    /// Has every clock of the program miss `time`, as those of a machine that is paused do. To be
    /// called while the program is stopped, with no more than it was stopped for: no clock that
    /// nobody can set goes back.
    ///
    /// Whoever asks the system rather than the C library, as rustix does, is told the true time.
    pub fn miss(&self, time: Duration) {
        let mut missed_us = self.missed_us.lock().expect("no panic while the clock is moved");
        *missed_us += time.as_micros() as i64;
        self.file.write_all_at(&missed_us.to_ne_bytes(), 8).expect("the clock file is writable");
    }

    fn change(&self, next: impl FnOnce(f64) -> f64) {
        let mut offset_us = self.offset_us.lock().expect("no panic while the clock is moved");
        *offset_us = (next(*offset_us as f64 / 1e6) * 1e6).round() as i64;
        // One aligned 8-byte write to the mapped page: nobody reads half of it.
        self.file.write_all_at(&offset_us.to_ne_bytes(), 0).expect("the clock file is writable");
        thread::sleep(NOTICED_AFTER);
    }
}

fn shim() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| library("clock-shim", SOURCE))
}

#[cfg(test)]
mod tests {
    use super::WallClock;
    use crate::{Need, RedisServer, ServerBuilder, Value, eventually, skip};
    use std::process::Command;
    use std::time::Duration;

    fn server_seconds(server: &RedisServer) -> f64 {
        let Ok(Value::Array(time)) = server.command(&["TIME"]) else { panic!("no TIME") };
        let part = |i: usize| time[i].as_text().unwrap().parse::<f64>().unwrap();
        part(0) + part(1) / 1e6
    }

    fn real_seconds() -> f64 {
        std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
    }

    fn assert_offset(server: &RedisServer, expected: f64) {
        let before = real_seconds();
        let shown = server_seconds(server);
        let after = real_seconds();
        let (low, high) = (before + expected - 0.001, after + expected + 0.001);
        assert!((low..=high).contains(&shown), "{shown} not in {low}..={high}");
    }

    #[test]
    fn a_program_misses_what_it_is_told_to_miss() {
        let folder = tempfile::tempdir().unwrap();
        let clock = WallClock::new(folder.path().join("clock")).unwrap();
        let shown = || {
            let mut date = Command::new("date");
            clock.preload(date.arg("+%s"));
            let said = date.output().unwrap().stdout;
            String::from_utf8(said).unwrap().trim().parse::<f64>().unwrap()
        };
        assert!((shown() - real_seconds()).abs() < 5.0);
        clock.miss(Duration::from_secs(100));
        clock.miss(Duration::from_secs(200));
        assert!((shown() + 300.0 - real_seconds()).abs() < 5.0);
        clock.set(50.0);
        assert!((shown() + 250.0 - real_seconds()).abs() < 5.0);
    }

    fn moves_the_clock(builder: ServerBuilder) {
        let server = builder.with_clock_shim().start();
        assert_offset(&server, 0.0);

        server.command(&["SETEX", "key", "60", "value"]).unwrap();
        server.jump_clock(3600.0);
        assert_offset(&server, 3600.0);
        assert_eq!(server.get("key"), None);

        server.command(&["SET", "key", "value", "PX", "60000"]).unwrap();
        server.jump_clock(-59.5);
        assert_offset(&server, 3540.5);
        assert!(server.pttl("key") > 60_000, "a clock set back lengthens the lease");

        server.set_clock_offset(-0.25);
        assert_offset(&server, -0.25);
    }

    #[test]
    fn an_hours_jump_expires_a_redis_key() {
        if skip(Need::Redis) {
            return;
        }
        moves_the_clock(RedisServer::redis());
    }

    #[test]
    fn an_hours_jump_expires_a_valkey_key() {
        if skip(Need::Valkey) {
            return;
        }
        moves_the_clock(RedisServer::valkey());
    }

    #[test]
    fn servers_have_clocks_of_their_own_and_keep_them_over_a_restart() {
        if skip(Need::Redis) {
            return;
        }
        let servers = RedisServer::redis().with_clock_shim().start_many(2);
        servers[0].jump_clock(100.0);
        servers[0].restart_empty();
        assert_offset(&servers[0], 100.0);
        assert_offset(&servers[1], 0.0);
    }

    #[test]
    fn a_key_expires_by_itself_under_the_moved_clock() {
        if skip(Need::Redis) {
            return;
        }
        let server = RedisServer::redis().with_clock_shim().start();
        server.command(&["SET", "key", "value", "PX", "60000"]).unwrap();
        server.jump_clock(61.0);
        eventually(Duration::from_secs(5), "active expiry removes the key unasked", || {
            server.command(&["DBSIZE"]) == Ok(Value::Int(0))
        });
    }
}
