//! The dashboard in a real headless Chromium, on five real Redis nodes and a real `leasehold serve`. What the page
//! is asked to do stands in `tests/browser/*.mjs`, one file per test here; this file starts what each needs.
//!
//! `LEASEHOLD_DASHBOARD_SHOTS=folder` keeps the pictures that the tests take.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_testkit::{Need, RedisServer, bound_command, skip, spawn};
use serde_json::json;
use support::{Place, Running, Signal, stderr};

/// Browsers one after the other: several at once on a small machine make "within two seconds" a matter of luck.
static BROWSER: Mutex<()> = Mutex::new(());

/// Five nodes, a server on them and a browser's place to be.
struct Dashboard {
    place: Place,
    nodes: Vec<RedisServer>,
    backend: String,
    tokens: Option<Tokens>,
    server: Running,
    url: String,
    _browser: MutexGuard<'static, ()>,
}

struct Tokens {
    read: String,
    admin: String,
    app: String,
}

impl Dashboard {
    fn with_tokens() -> Self {
        let place = Place::new();
        let tokens = Tokens {
            read: new_token(&place, "reader", "read"),
            admin: new_token(&place, "ana", "admin"),
            app: new_token(&place, "app", "lock:*"),
        };
        Self::start(place, Some(tokens))
    }

    fn open() -> Self {
        Self::start(Place::new(), None)
    }

    fn start(place: Place, tokens: Option<Tokens>) -> Self {
        let browser = BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = RedisServer::redis().start_many(5);
        let addresses: Vec<_> = nodes.iter().map(RedisServer::addr).collect();
        // Leases that outlast the slowest case: nobody extends what a script acquired.
        let backend = format!("redis://{}?timeout=200ms&max_ttl=10m", addresses.join(","));
        let admitted = place.run(&["--backend", &backend, "init"]);
        assert!(admitted.status.success(), "{}", stderr(&admitted));
        let (server, url) = serve(&place, &backend, "127.0.0.1:0", tokens.is_some());
        Self { place, nodes, backend, tokens, server, url, _browser: browser }
    }

    /// Another server in the place of the first, which gets no chance to say farewell.
    fn restart(&mut self) {
        self.server.signal(Signal::KILL);
        self.server.end();
        let address = self.url.trim_start_matches("http://");
        (self.server, _) = serve(&self.place, &self.backend, address, self.tokens.is_some());
    }

    /// Runs a case, and restarts the server when it says `restart`; panics with its error if it fails.
    #[track_caller]
    fn shows(&mut self, case: &str) {
        let mut node = spawn(self.command(case)).expect("node runs");
        let said = BufReader::new(node.stdout.take().expect("a pipe"));
        for line in said.lines() {
            assert_eq!(line.expect("text"), "restart", "the only word that a case says");
            self.restart();
        }
        let output = node.wait_with_output().expect("node runs");
        assert!(output.status.success(), "{case}: {}", stderr(&output));
    }

    fn command(&self, case: &str) -> Command {
        let mut command = bound_command("node");
        command
            .arg(repository().join("tests/browser").join(case))
            .env("LEASEHOLD_DASHBOARD", self.description().to_string())
            .env("XDG_DATA_HOME", self.place.path())
            .env("XDG_CONFIG_HOME", self.place.path())
            // The browser's profile goes with the rest of the place.
            .env("TMPDIR", self.place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn description(&self) -> serde_json::Value {
        let node = |node: &RedisServer| json!({ "addr": node.addr(), "pid": node.pid() });
        let tokens = self.tokens.as_ref();
        json!({
            "url": self.url,
            "tokens": tokens.map(|Tokens { read, admin, app }| {
                json!({ "read": read, "admin": admin, "app": app })
            }),
            "leasehold": env!("CARGO_BIN_EXE_leasehold"),
            "backend": self.backend,
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "server_pid": self.server.pid(),
            "tokens_file": self.place.file("tokens"),
            "chromium": absolute(Need::Browser.path()),
            "playwright": absolute(Need::Playwright.path()),
            "shots": std::env::var("LEASEHOLD_DASHBOARD_SHOTS").ok(),
        })
    }
}

/// A server that listens, and its address.
fn serve(place: &Place, backend: &str, listen: &str, has_tokens: bool) -> (Running, String) {
    let mut command = place.leasehold();
    command.args(["--backend", backend, "serve", "--listen", listen]);
    if has_tokens {
        command.arg("--tokens").arg(place.file("tokens"));
    }
    let mut server = Running::new(&mut command);
    let line = server.line();
    let url = line.split_whitespace().find(|word| word.starts_with("http://"));
    let url = url.unwrap_or_else(|| panic!("no address in {line:?}: {}", server.complaints()));
    (server, url.to_owned())
}

fn new_token(place: &Place, name: &str, scope: &str) -> String {
    let file = place.file("tokens");
    let file = file.to_str().expect("a folder with a readable name");
    let output = place.run(&["token", "new", "--file", file, "--name", name, "--scope", scope]);
    let token = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(token.starts_with("lh_"), "{token:?}: {}", stderr(&output));
    token
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn absolute(path: PathBuf) -> PathBuf {
    fs::canonicalize(path).expect("just found")
}

fn skipped() -> bool {
    skip(Need::Redis) || skip(Need::Browser) || skip(Need::Playwright)
}

#[test]
fn it_asks_for_a_token_and_keeps_it_in_the_tab() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("log_in.mjs");
}

#[test]
fn a_server_without_tokens_asks_for_none() {
    if skipped() {
        return;
    }
    Dashboard::open().shows("open_server.mjs");
}

#[test]
fn a_row_has_a_mark_where_something_is_off_and_the_quorum_a_sentence() {
    if skipped() {
        return;
    }
    Dashboard::open().shows("rules.mjs");
}

#[test]
fn a_lock_taken_by_the_command_line_comes_and_goes_by_itself() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("live_update.mjs");
}

#[test]
fn the_first_lock_is_on_the_first_screen_and_its_bar_shows_what_is_left() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("first_screen.mjs");
}

#[test]
fn a_search_finds_the_last_of_two_thousand_locks() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("many_locks.mjs");
}

#[test]
fn a_dead_node_and_a_lost_quorum_are_shown_within_two_seconds() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("node_loss.mjs");
}

#[test]
fn while_a_server_is_stopped_nothing_is_called_healthy_or_held() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("stream_cut.mjs");
}

#[test]
fn a_node_that_sits_out_is_shown_with_a_countdown() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("quarantine.mjs");
}

#[test]
fn a_tab_that_nobody_sees_keeps_no_stream() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("hidden.mjs");
}

#[test]
fn a_restarted_server_is_met_again() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("restart.mjs");
}

#[test]
fn a_lock_is_released_by_force_with_the_keyboard_alone() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("force_release.mjs");
}

#[test]
fn what_may_not_be_released_by_force_says_so_and_is_not() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("refusals.mjs");
}

#[test]
fn hostile_names_are_text_and_nothing_else() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("hostile_names.mjs");
}

#[test]
fn it_is_usable_in_light_and_dark_and_on_a_phone() {
    if skipped() {
        return;
    }
    Dashboard::with_tokens().shows("looks.mjs");
}
