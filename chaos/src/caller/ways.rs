//! The ways to ask, and what the answers mean.

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use leasehold::LeaseToken;
use serde_json::{Value, json};

use super::Caller;
use crate::clock::boot_nanos;
use crate::http::{self, Question};

/// Where a question goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Way {
    /// To this lock server.
    Server(usize),
    /// To the nodes, by the program.
    Script,
}

/// What a lock is asked for with.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) lock: String,
    pub(super) ttl_ms: u64,
    pub(super) wait_ms: u64,
    pub(super) key: Option<String>,
    pub(super) label: String,
}

/// What was told.
#[derive(Debug)]
pub(super) enum Answer {
    /// There is a lease until then, by the boot clock.
    Held { token: LeaseToken, until: u64, ttl_ms: u64 },
    /// It is lost, or never was.
    Lost,
    /// It was given back.
    Free,
    /// There is no lock to be had.
    Refused(String),
    /// Another time, or elsewhere.
    Later,
    /// Nothing that tells.
    Nothing,
}

/// Beyond the waiting: a lock server may stand still for longer than that.
const PATIENCE: Duration = Duration::from_millis(2_000);

/// The exit codes of the program.
const BUSY: i32 = 75;
const UNAVAILABLE: i32 = 69;
const LOST: i32 = 79;

pub(super) fn id_of(token: &LeaseToken) -> String {
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn token_of(id: &Value) -> Option<LeaseToken> {
    let bytes = URL_SAFE_NO_PAD.decode(id.as_str()?).ok()?;
    String::from_utf8(bytes).ok()?.parse().ok()
}

const MILLI: u64 = 1_000_000;

/// What an answer of 200 or 201 says to a question that was sent then.
fn held(body: &Value, sent: u64) -> io::Result<Answer> {
    let wrong = || io::Error::other(format!("an answer without its lease: {body}"));
    let number = |name: &str| body[name].as_u64();
    let token = token_of(&body["lease_id"]).ok_or_else(wrong)?;
    let (elapsed, left) = (number("elapsed_ms"), number("expires_in_ms"));
    let until = sent + (elapsed.unwrap_or(0) + left.unwrap_or(0)) * MILLI;
    let ttl_ms = number("ttl_ms").ok_or_else(wrong)?;
    Ok(Answer::Held { token, until, ttl_ms })
}

/// What a refused acquire says.
fn refused(answer: &http::Answer) -> Answer {
    match answer.status {
        409 => Answer::Later,
        423 => Answer::Refused("held".into()),
        503 => Answer::Refused("no quorum".into()),
        status => Answer::Refused(format!("{status}")),
    }
}

impl Caller<'_> {
    fn send(&self, server: usize, question: &Question<'_>, wait: Duration) -> Option<http::Answer> {
        question.ask(&self.servers[server], PATIENCE + wait).ok()
    }

    /// Acquires. Who is hasty goes away before there can be an answer, or soon after.
    pub(super) fn ask(&mut self, way: Way, wish: &Wish, is_hasty: bool) -> io::Result<Answer> {
        let Way::Server(server) = way else { return self.ask_as_script(wish) };
        let body = json!({
            "ttl_ms": wish.ttl_ms, "wait_ms": wish.wait_ms, "holder": wish.label,
        });
        let question = Question {
            method: "POST",
            path: format!("/v1/locks/{}/leases", wish.lock),
            key: wish.key.as_deref(),
            body: body.to_string(),
        };
        if is_hasty {
            // Whatever comes of it, nobody reads it.
            let _ = question.ask(&self.servers[server], self.chance.millis(1..12));
            return Ok(Answer::Nothing);
        }
        let sent = boot_nanos();
        match self.send(server, &question, Duration::from_millis(wish.wait_ms)) {
            Some(answer) if answer.status == 201 => held(&answer.body, sent),
            // Without a key nobody can tell whether the nodes have it; a key is asked again.
            Some(answer) if answer.status == 503 && wish.key.is_some() => Ok(Answer::Later),
            Some(answer) => Ok(refused(&answer)),
            None => Ok(Answer::Nothing),
        }
    }

    fn ask_as_script(&mut self, wish: &Wish) -> io::Result<Answer> {
        let [ttl, wait] = [wish.ttl_ms, wish.wait_ms].map(|millis| format!("{millis}ms"));
        let mut arguments = vec!["acquire", "--ttl", &ttl, "--holder", &wish.label];
        match wish.wait_ms {
            0 => arguments.push("-n"),
            _ => arguments.extend(["-w", &wait]),
        }
        arguments.push(&wish.lock);
        let mut patience = 2 * PATIENCE + Duration::from_millis(wish.wait_ms);
        if self.chance.percent(10) {
            patience = self.chance.millis(5..150);
        }
        let ended = self.scripts.call(&arguments, patience)?;
        Ok(match ended.code {
            Some(0) => printed(&ended.said)?,
            Some(BUSY) => Answer::Refused("held".into()),
            Some(UNAVAILABLE) => Answer::Refused("no quorum".into()),
            Some(code) => Answer::Refused(format!("exit code {code}")),
            None => Answer::Nothing,
        })
    }

    /// Renews or extends.
    pub(super) fn extend(
        &mut self,
        way: Way,
        token: &LeaseToken,
        ttl_ms: Option<u64>,
    ) -> io::Result<Answer> {
        let Way::Server(server) = way else {
            let (text, ttl) = (token.to_string(), ttl_ms.map(|millis| format!("{millis}ms")));
            let mut arguments = vec!["extend", &text];
            if let Some(ttl) = &ttl {
                arguments.extend(["--ttl", ttl]);
            }
            let ended = self.scripts.call(&arguments, 2 * PATIENCE)?;
            return match ended.code {
                Some(0) => printed(&ended.said),
                Some(LOST) => Ok(Answer::Lost),
                _ => Ok(Answer::Nothing),
            };
        };
        let body = ttl_ms.map_or(json!({}), |ttl_ms| json!({"ttl_ms": ttl_ms})).to_string();
        let path = format!("/v1/leases/{}/renew", id_of(token));
        let question = Question { method: "POST", path, key: None, body };
        let sent = boot_nanos();
        match self.send(server, &question, Duration::ZERO) {
            Some(answer) if answer.status == 200 => held(&answer.body, sent),
            Some(answer) if answer.status == 410 => Ok(Answer::Lost),
            _ => Ok(Answer::Nothing),
        }
    }

    pub(super) fn give_back(&mut self, way: Way, token: &LeaseToken) -> io::Result<Answer> {
        let Way::Server(server) = way else {
            let text = token.to_string();
            let ended = self.scripts.call(&["release", &text], 2 * PATIENCE)?;
            return Ok(match (ended.code, ended.said["outcome"].as_str()) {
                (Some(0), Some("released")) => Answer::Free,
                (Some(0 | LOST), _) => Answer::Lost,
                _ => Answer::Nothing,
            });
        };
        let path = format!("/v1/leases/{}", id_of(token));
        let question = Question { method: "DELETE", path, key: None, body: String::new() };
        Ok(match self.send(server, &question, Duration::ZERO).map(|answer| answer.status) {
            Some(204) => Answer::Free,
            Some(410) => Answer::Lost,
            _ => Answer::Nothing,
        })
    }

    /// Looks at a lease.
    pub(super) fn see(&mut self, token: &LeaseToken) -> io::Result<Answer> {
        let Way::Server(server) = self.server() else { return Ok(Answer::Nothing) };
        let path = format!("/v1/leases/{}", id_of(token));
        let question = Question { method: "GET", path, key: None, body: String::new() };
        let sent = boot_nanos();
        match self.send(server, &question, Duration::ZERO) {
            Some(answer) if answer.status == 200 => held(&answer.body, sent),
            Some(answer) if answer.status == 410 => Ok(Answer::Lost),
            _ => Ok(Answer::Nothing),
        }
    }

    /// Hands in whatever it is, and says the status.
    pub(super) fn hand_in(&mut self, method: &str, path: String) -> Option<u16> {
        let Way::Server(server) = self.server() else { return None };
        let body = if method == "POST" { "{}".to_owned() } else { String::new() };
        let question = Question { method, path, key: None, body };
        self.send(server, &question, Duration::ZERO).map(|answer| answer.status)
    }
}

/// What the program prints of a lease: its end by the machine's uptime, which is the boot clock.
fn printed(said: &Value) -> io::Result<Answer> {
    let wrong = || io::Error::other(format!("no lease was printed: {said}"));
    let token = said["token"].as_str().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    let number = |name: &str| said[name].as_u64().ok_or_else(wrong);
    let until = number("until_uptime_ms")? * MILLI;
    Ok(Answer::Held { token, until, ttl_ms: number("ttl_ms")? })
}
