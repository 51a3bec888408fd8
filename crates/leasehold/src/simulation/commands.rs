//! The commands that the library sends, as a Redis understands them. What it remembers is the core's
//! `LockTable`; the scripts are known by their names, not run.

use std::time::Duration;

use leasehold_core::{Fence, Holder, LockName, Owner, Reply, Request, Sighting, Ttl};

use super::site::{Site, Wire};
use crate::nodes::redis::{DEFAULT_PREFIX, fences_of, hint_script_name, script_name, sha1};

type Words = Vec<Vec<u8>>;

const READONLY: &[u8] = b"-READONLY You can't write against a read only replica.\r\n";

/// One connection, as the server sees it.
pub(super) struct Session {
    number: u64,
    resp3: bool,
}

/// The next command, if all of it is there.
pub(super) fn take_command(bytes: &mut Vec<u8>) -> Option<Words> {
    let mut at = 0;
    let mut number = |kind: u8| {
        let line = bytes[at..].windows(2).position(|pair| pair == b"\r\n")?;
        let text = std::str::from_utf8(&bytes[at..at + line]).ok()?;
        assert_eq!(text.as_bytes().first(), Some(&kind), "a command begins like this: {text}");
        at += line + 2;
        let count: usize = text[1..].parse().expect("a length");
        let start = at;
        if kind == b'$' {
            at += count + 2;
        }
        (at <= bytes.len()).then_some((count, start))
    };
    let (count, _) = number(b'*')?;
    let spans: Option<Vec<_>> = (0..count).map(|_| number(b'$')).collect();
    let words =
        spans?.into_iter().map(|(count, from)| bytes[from..from + count].to_vec()).collect();
    bytes.drain(..at);
    Some(words)
}

impl Session {
    pub(super) fn new(wire: &Wire) -> Self {
        Self { number: wire.number, resp3: false }
    }

    /// Carries a command out and returns the bytes of its reply.
    pub(super) fn carry_out(&mut self, site: &Site, words: &Words) -> Vec<u8> {
        let texts: Vec<&str> =
            words.iter().map(|word| std::str::from_utf8(word).expect("UTF-8")).collect();
        match texts.as_slice() {
            ["DELIFEQ", key, holder] | ["DELEX", key, "IFEQ", holder]
                if site.redis().is_replica =>
            {
                self.refuse(site, &Request::Release { lock: lock(key), holder: who(holder) })
            }
            ["HELLO", "3", ..] if site.redis().flavor.knows_hello => {
                self.resp3 = true;
                b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n".to_vec()
            }
            ["CLIENT", "TRACKING", ..] => {
                site.redis().bystanders.track(self.number);
                b"+OK\r\n".to_vec()
            }
            ["CLIENT", ..] | ["SELECT", _] => b"+OK\r\n".to_vec(),
            ["SUBSCRIBE", channel] => site.redis().bystanders.subscribe(self.number, channel),
            ["PUBLISH", channel, text] => int(site.redis().bystanders.publish(channel, text)),
            ["SCRIPT", "LOAD", text] => bulk(&load(site, text)),
            ["EVAL", text, rest @ ..] => {
                let sha = load(site, text);
                self.script(site, &sha, rest)
            }
            ["EVALSHA", sha, rest @ ..] => self.script(site, sha, rest),
            ["GET", "leasehold:node"] => {
                let record = site.redis().table.record().map(str::to_owned);
                self.maybe(record.as_deref())
            }
            ["GET", key] => {
                site.redis().bystanders.read(self.number, key);
                let owner = self.look(site, key).owner;
                self.maybe(owner.as_ref().map(owner_text).as_deref())
            }
            ["PTTL", key] => match self.look(site, key).expires_in {
                Some(left) => int(left.as_millis() as i64),
                None => int(-2),
            },
            ["TYPE", key] => match self.look(site, key).owner {
                Some(_) => b"+string\r\n".to_vec(),
                None => b"+none\r\n".to_vec(),
            },
            ["DELIFEQ", key, holder] | ["DELEX", key, "IFEQ", holder] => {
                let request = Request::Release { lock: lock(key), holder: who(holder) };
                match self.apply(site, None, &request) {
                    Reply::Released => int(1),
                    _ => int(0),
                }
            }
            [command, ..] => format!("-ERR unknown command '{command}'\r\n").into_bytes(),
            [] => b"-ERR no command\r\n".to_vec(),
        }
    }

    fn script(&self, site: &Site, sha: &str, rest: &[&str]) -> Vec<u8> {
        let Some((word, asks)) = site.redis().scripts.get(sha).cloned() else {
            return b"-NOSCRIPT No matching script. Please use EVAL.\r\n".to_vec();
        };
        let info = info(site);
        if !asks.iter().all(|asked| info.lines().any(|line| line == asked)) {
            return b"-NOSCRIPT not the server that was examined\r\n".to_vec();
        }
        let keys: usize = rest[0].parse().expect("a number of keys");
        let (keys, args) = rest[1..].split_at(keys);
        let now = site.wall().0;
        match (word, keys, args) {
            ("examine", ..) => return self.examine(site),
            (_, ["leasehold:node"], []) => return bulk("LOADED"),
            ("stand" | "leave", ..) if site.redis().is_replica => return READONLY.to_vec(),
            ("stand", [line, _], args) => return site.redis().bystanders.stand(line, args, now),
            ("leave", [line, _], [waiter]) => return site.redis().bystanders.leave(line, waiter),
            _ => {}
        }
        let (fences, request) = match (word, keys, args) {
            ("acquire", [key, fences], [holder, ttl, proposal, ..]) => {
                let (lock, holder) = (lock(key), who(holder));
                let request =
                    Request::Acquire { lock, holder, proposal: fence(proposal), ttl: millis(ttl) };
                (Some(*fences), request)
            }
            ("extend", [key, fences], [holder, ttl, _, token, next @ ..]) => {
                let (lock, holder) = (lock(key), who(holder));
                let next = fence(next.first().unwrap_or(token));
                let (token, unbroken, ttl) = (fence(token), false, millis(ttl));
                (Some(*fences), Request::Extend { lock, holder, token, next, unbroken, ttl })
            }
            ("keep", [key, fences], [holder, ttl, token, next]) => {
                let (lock, holder) = (lock(key), who(holder));
                let (token, next, ttl) = (fence(token), fence(next), millis(ttl));
                let unbroken = true;
                (Some(*fences), Request::Extend { lock, holder, token, next, unbroken, ttl })
            }
            ("release", [key], [holder]) => {
                (None, Request::Release { lock: lock(key), holder: who(holder) })
            }
            ("force_release", [key, fences], [holder, seen, ..]) => {
                let (lock, holder, fence) = (lock(key), who(holder), fence(seen));
                (Some(*fences), Request::ForceRelease { lock, holder, fence, reason: None })
            }
            ("inspect", [key], _) => return self.seen(&self.look(site, key)),
            ("replace_record", _, [record, expected @ ..]) => {
                let expected = expected.first().map(|text| (*text).into());
                (None, Request::ReplaceRecord { expected, record: (*record).into() })
            }
            _ => return format!("-ERR no simulated script {word}\r\n").into_bytes(),
        };
        if site.redis().is_replica {
            return self.refuse(site, &request);
        }
        // The record that they are the fences of, if it is still there.
        let record = site.redis().table.record().map(str::to_owned);
        let is_same = fences == record.as_deref().map(fences_of).as_deref();
        let another = || "another".to_owned();
        let identity = fences.map(|_| record.filter(|_| is_same).unwrap_or_else(another));
        self.reply(&self.apply(site, identity.as_deref(), &request))
    }

    /// A replica takes no writes. That it was asked to release is noted all the same.
    fn refuse(&self, site: &Site, request: &Request) -> Vec<u8> {
        if let Request::Release { .. } = request {
            site.carried_out(self.number, request, &Reply::NotHeld { owner: None });
        }
        READONLY.to_vec()
    }

    fn examine(&self, site: &Site) -> Vec<u8> {
        site.was_read(self.number);
        let micros = site.wall().0;
        let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
        let record = site.redis().table.record().map(str::to_owned);
        let (seconds, rest) = (bulk(&seconds.to_string()), bulk(&rest.to_string()));
        let highest = bulk(&site.redis().table.highest().to_string());
        let top = if site.redis().table.has_spent() { Fence::MAX } else { Fence::ZERO };
        let top = bulk(&top.to_string());
        let (record, info) = (self.maybe(record.as_deref()), bulk(&info(site)));
        array(&[seconds, rest, record, info, highest, top, self.maybe(None)])
    }

    fn apply(&self, site: &Site, identity: Option<&str>, request: &Request) -> Reply {
        let (now, wall) = (site.expires_by(), site.wall());
        let reply = site.redis().table.apply(now, wall, identity, request);
        if let (Reply::Granted | Reply::Released | Reply::Extended { .. }, Some(lock)) =
            (&reply, request.lock())
        {
            site.redis().bystanders.changed(&format!("{DEFAULT_PREFIX}{lock}"));
        }
        site.carried_out(self.number, request, &reply);
        reply
    }

    fn look(&self, site: &Site, key: &str) -> Sighting {
        match self.apply(site, None, &Request::Inspect { lock: lock(key) }) {
            Reply::Seen(sighting) => sighting,
            other => panic!("a look was answered with {other:?}"),
        }
    }

    fn seen(&self, seen: &Sighting) -> Vec<u8> {
        let owner = seen.owner.as_ref().map(owner_text);
        let left = seen.expires_in.map_or(-2, |left| left.as_millis() as i64);
        let kind = if owner.is_some() { "string" } else { "none" };
        let fence = seen.fence.map(|fence| fence.to_string());
        let (owner, fence) = (self.maybe(owner.as_deref()), self.maybe(fence.as_deref()));
        array(&[owner, int(left), bulk(kind), fence])
    }

    fn reply(&self, reply: &Reply) -> Vec<u8> {
        let words = |tag: &str, rest: &[Vec<u8>]| array(&[&[bulk(tag)], rest].concat());
        let clock = |micros: u64| {
            let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
            [bulk(&seconds.to_string()), bulk(&rest.to_string())]
        };
        match reply {
            Reply::Granted | Reply::Released => int(1),
            Reply::Behind { fence } => words("BEHIND", &[bulk(&fence.to_string())]),
            Reply::Superseded { fence } => words("SUPERSEDED", &[bulk(&fence.to_string())]),
            Reply::Busy { owner, expires_in, fence, .. } => {
                let left = expires_in.map_or(-1, |left| left.as_millis() as i64);
                let fence = bulk(&fence.to_string());
                words("BUSY", &[bulk(&owner_text(owner)), int(left), fence])
            }
            Reply::Extended { clock: at } => words("EXTENDED", &clock(at.0)),
            Reply::Healed { clock: at } => words("HEALED", &clock(at.0)),
            Reply::NotHeld { owner } => {
                let kind = if owner.is_some() { "string" } else { "none" };
                let owner = owner.as_ref().map(owner_text);
                words("NOT_HELD", &[self.maybe(owner.as_deref()), bulk(kind)])
            }
            Reply::Stranger { record } => words("STRANGER", &[self.maybe(record.as_deref())]),
            Reply::Record { replaced } => int(i64::from(*replaced)),
            other => panic!("no script answers {other:?}"),
        }
    }

    fn maybe(&self, text: Option<&str>) -> Vec<u8> {
        match text {
            Some(text) => bulk(text),
            None if self.resp3 => b"_\r\n".to_vec(),
            None => b"$-1\r\n".to_vec(),
        }
    }
}

fn load(site: &Site, text: &str) -> String {
    let hint = || hint_script_name(text).map(|word| (word, Vec::new()));
    let script = script_name(text).or_else(hint).expect("our script");
    let sha = sha1(text);
    site.redis().scripts.insert(sha.clone(), script);
    sha
}

fn run_id(site: &Site) -> String {
    format!("{}-{}", site.name, site.redis().life)
}

fn info(site: &Site) -> String {
    let run_id = run_id(site);
    let redis = site.redis();
    let role = if redis.is_replica { "slave" } else { "master" };
    format!(
        "{}\r\nrun_id:{run_id}\r\nrole:{role}\r\nredis_mode:standalone\r\ncluster_enabled:0\r\n\
         master_replid:{}\r\nrepl_backlog_active:{}\r\nmaxmemory:0\r\n\
         maxmemory_policy:noeviction\r\naof_enabled:{}\r\n",
        redis.flavor.version,
        redis.replication_id,
        u8::from(redis.flavor.has_replicas),
        u8::from(redis.flavor.durable),
    )
}

fn lock(key: &str) -> LockName {
    LockName::new(key.strip_prefix(DEFAULT_PREFIX).expect("our prefix")).expect("a name")
}

fn who(holder: &str) -> Holder {
    Holder::parse(holder).expect("a holder")
}

fn fence(number: &str) -> Fence {
    Fence::new(number.parse().expect("a number")).expect("a fence")
}

fn millis(number: &str) -> Ttl {
    Ttl::new(Duration::from_millis(number.parse().expect("a number"))).expect("a ttl")
}

fn owner_text(owner: &Owner) -> String {
    match owner {
        Owner::Holder(holder) => holder.as_str().to_owned(),
        other => panic!("only ours are here: {other}"),
    }
}

pub(super) fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

pub(super) fn int(number: i64) -> Vec<u8> {
    format!(":{number}\r\n").into_bytes()
}

pub(super) fn array(items: &[Vec<u8>]) -> Vec<u8> {
    [format!("*{}\r\n", items.len()).into_bytes(), items.concat()].concat()
}
