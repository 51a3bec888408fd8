//! Two lock servers on the same nodes, and HAProxy before them as it is deployed.

use std::time::{Duration, Instant};

use leasehold_testkit::{Daemon, HttpAnswer, ReservedPort, balancer, http_get, http_send};
use serde_json::Value;

use crate::interrupt;
use crate::lock_server::LockServer;

/// A check a second; the rest is for a machine that is busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// So many names are tried at most until each server has its share.
const NAMES: usize = 10_000;

/// What clients talk to.
#[derive(Debug)]
pub(super) struct Site {
    nodes: Vec<String>,
    ports: [ReservedPort; 2],
    servers: [Option<LockServer>; 2],
    balancer: Daemon,
}

impl Site {
    /// Starts servers for these nodes, and a balancer for so many connections.
    pub(super) fn start(nodes: Vec<String>, connections: usize) -> Result<Site, String> {
        let ports = [ReservedPort::take(), ReservedPort::take()];
        let start = |port: &ReservedPort| LockServer::start_at(&port.addr(), &nodes);
        let servers = [Some(start(&ports[0])?), Some(start(&ports[1])?)];
        let [one, two] = ports.each_ref().map(ReservedPort::addr);
        let balancer = balancer([&one, &two], connections);
        let site = Site { nodes, ports, servers, balancer };
        until(PATIENCE, "the balancer finds no server that is ready", || {
            Ok(http_get(&site.address(), "/readyz").is_ok_and(|answer| answer.status == 200))
        })?;
        Ok(site)
    }

    /// Where clients ask.
    pub(super) fn address(&self) -> String {
        self.balancer.addr()
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self, server: usize) {
        self.servers[server] = None;
    }

    /// Starts it again, at its old address.
    pub(super) fn restart(&mut self, server: usize) -> Result<(), String> {
        let listen = self.ports[server].addr();
        self.servers[server] = Some(LockServer::start_at(&listen, &self.nodes)?);
        Ok(())
    }

    /// How many leases a server has granted since it was started.
    pub(super) fn granted_by(&self, server: usize) -> Result<f64, String> {
        let answer = http_get(&self.ports[server].addr(), "/metrics");
        let text = answer.map_err(|error| error.to_string())?.body;
        let lines = text.lines().filter(|line| {
            line.starts_with("redlock_acquire_attempts_total")
                && line.contains(r#"outcome="acquired""#)
        });
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(counts.sum())
    }

    /// Names of `each` locks that the balancer gives to the first server, and of as many that it gives to
    /// the second: it goes by the name.
    pub(super) fn locks(&self, each: usize) -> Result<[Vec<String>; 2], String> {
        let mut locks = [Vec::new(), Vec::new()];
        for name in (0..NAMES).map(|number| format!("job-{number}")) {
            interrupt::check()?;
            let home = self.home_of(&name)?;
            if locks[home].len() < each {
                locks[home].push(name);
            }
            if locks.iter().all(|names| names.len() == each) {
                return Ok(locks);
            }
        }
        Err(format!("of {NAMES} locks fewer than {each} are given to one of the servers"))
    }

    /// Which server grants this lock.
    fn home_of(&self, name: &str) -> Result<usize, String> {
        let lock = format!("/v1/locks/{name}");
        let balancer = self.address();
        let granted = insist(&balancer, "POST", &format!("{lock}/leases"), &[201])?;
        let mut home = None;
        for (server, port) in self.ports.iter().enumerate() {
            let history = insist(&port.addr(), "GET", &lock, &[200])?["history"].take();
            let of_its_own = |event: &Value| event["type"] == "acquired" && event["seen"].is_null();
            if history.as_array().is_some_and(|events| events.iter().any(of_its_own)) {
                home = Some(server);
            }
        }
        let id = granted["lease_id"].as_str().ok_or("a grant without lease_id")?;
        // Lost, if it was given back before and nobody could tell.
        insist(&balancer, "DELETE", &format!("/v1/leases/{id}"), &[204, 410])?;
        home.ok_or_else(|| format!("neither server says that it granted `{name}`"))
    }

    /// Waits until no node has an owner of `lock`, at most until `ends`; says how often that was not so.
    pub(super) fn free(&self, lock: &str, ends: Instant) -> Result<usize, String> {
        let path = format!("/v1/locks/{lock}");
        let (start, mut looks) = (Instant::now(), 0);
        loop {
            // Nodes do the expiring, so a busy machine is no excuse for a look after that.
            let is_over = Instant::now() > ends;
            let why = match ask(&self.address(), "GET", &path, &[200]) {
                Ok(state) if state["state"] == "free" => return Ok(looks),
                Ok(state) if is_over => {
                    return Err(format!("lock `{lock}` is held after everybody left: {state}"));
                }
                Ok(state) => state.to_string(),
                Err(why) => why,
            };
            if start.elapsed() > PATIENCE {
                return Err(format!("nobody says that lock `{lock}` is free: {why}"));
            }
            looks += 1;
            interrupt::sleep(interrupt::LOOK_EVERY)?;
        }
    }
}

/// What is said at `addr`, if it is with one of these statuses.
fn ask(addr: &str, method: &str, path: &str, want: &[u16]) -> Result<Value, String> {
    let body = if method == "POST" { "{}" } else { "" };
    let answer = http_send(addr, method, path, body);
    let HttpAnswer { status, body, .. } =
        answer.map_err(|why| format!("{method} {path}: {why}"))?;
    match want.contains(&status) {
        true => Ok(serde_json::from_str(&body).unwrap_or_default()),
        false => Err(format!("{method} {path}: {status} {body}")),
    }
}

/// The same, again and again: on a busy machine nodes may be too late.
fn insist(addr: &str, method: &str, path: &str, want: &[u16]) -> Result<Value, String> {
    let start = Instant::now();
    loop {
        match ask(addr, method, path, want) {
            Err(why) if start.elapsed() > PATIENCE => return Err(why),
            Err(_) => interrupt::sleep(interrupt::LOOK_EVERY)?,
            answer => return answer,
        }
    }
}

/// Waits until `condition` holds; an error says `what` is the matter.
pub(super) fn until(
    limit: Duration,
    what: &str,
    mut condition: impl FnMut() -> Result<bool, String>,
) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let is_last = start.elapsed() > limit;
        if condition()? {
            return Ok(());
        }
        if is_last {
            return Err(format!("{what}, for {} s", limit.as_secs()));
        }
        interrupt::sleep(interrupt::LOOK_EVERY)?;
    }
}
