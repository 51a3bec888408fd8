//! What a client does with a lease: it believes in it until its own deadline, tries again what got no
//! answer, and tells what it sees.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::caller::{Answer, Caller};
use super::tally::Moment;
use super::witness::Inside;
use super::{Lock, Run};

/// Before it asks again what got no answer.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Longer than any answer takes on a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// One of many.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) number: usize,
    run: Arc<Run>,
    caller: Caller,
    /// Stands in the name of each acquire.
    turn: u64,
}

/// What it holds.
#[derive(Debug)]
pub(super) struct Lease {
    lock: Lock,
    id: String,
    fence: u64,
    /// When the client stops to believe in it.
    pub(super) until: Instant,
    /// When it heard of it.
    granted: Moment,
}

impl Client {
    pub(super) fn new(number: usize, run: Arc<Run>) -> Client {
        let caller = Caller::new(run.address.clone());
        Client { number, run, caller, turn: 0 }
    }

    /// Asks for a lock, and comes in if it gets it.
    pub(super) async fn acquire(
        &mut self,
        lock: &Lock,
        ttl: Duration,
        wait: Duration,
    ) -> Option<Lease> {
        self.turn += 1;
        let holder = format!("client-{}-{}", self.number, self.turn);
        let (ttl_ms, wait_ms) = (ttl.as_millis() as u64, wait.as_millis() as u64);
        let wish = json!({"holder": holder, "ttl_ms": ttl_ms, "wait_ms": wait_ms}).to_string();
        let path = format!("/v1/locks/{}/leases", lock.name);
        let sent = Instant::now();
        match self.caller.ask("POST", &path, &wish, ANSWER_WITHIN + wait).await {
            Ok(Answer { status: 201, body }) => self.enter(lock, sent, &body).await,
            Ok(Answer { status: 423, .. }) => {
                self.run.tally().refused += 1;
                None
            }
            other => {
                self.failed("acquire", &other).await;
                // Whatever was granted in vain is there by now: its server is dead, or said that it failed.
                if self.is_holder(lock, &holder).await {
                    self.run.tally().unheard += 1;
                }
                None
            }
        }
    }

    async fn enter(&mut self, lock: &Lock, sent: Instant, body: &Value) -> Option<Lease> {
        let Some((id, fence, until)) = read(sent, body) else {
            self.run.wrong(format!("a grant that says too little: {body}"));
            return None;
        };
        let (lock, granted) = (lock.clone(), self.run.moment());
        let lease = Lease { lock, id, fence, until, granted };
        let now = Instant::now();
        if now >= until {
            self.run.tally().ran_out += 1;
            self.release(lease).await;
            return None;
        }
        self.run.witness.enter(&lease.lock.name, self.inside(&lease), now);
        Some(lease)
    }

    fn inside(&self, lease: &Lease) -> Inside {
        Inside { client: self.number, fence: lease.fence, until: lease.until }
    }

    /// Whether the lock is held in this name.
    async fn is_holder(&mut self, lock: &Lock, holder: &str) -> bool {
        let path = format!("/v1/locks/{}", lock.name);
        let seen = self.caller.ask("GET", &path, "", ANSWER_WITHIN).await;
        seen.is_ok_and(|answer| answer.body["holder"] == holder)
    }

    /// Renews, as often as it takes. Nothing is left if the deadline comes first.
    pub(super) async fn renew(&mut self, mut lease: Lease) -> Option<Lease> {
        let path = format!("/v1/leases/{}/renew", lease.id);
        while Instant::now() < lease.until {
            let (sent, asked) = (Instant::now(), self.run.moment());
            match self.caller.ask("POST", &path, "{}", ANSWER_WITHIN).await {
                Ok(Answer { status: 200, body }) => {
                    let Some((id, _, until)) = read(sent, &body) else {
                        self.run.wrong(format!("a renewal that says too little: {body}"));
                        break;
                    };
                    (lease.id, lease.until) = (id, until);
                    let inside = self.inside(&lease);
                    self.run.witness.extend(&lease.lock.name, inside, Instant::now());
                    let elsewhere = asked.outlives(lease.granted, lease.lock.home);
                    self.run.tally().renewed_elsewhere += u64::from(elsewhere);
                    return Some(lease);
                }
                Ok(Answer { status: 410, body }) => {
                    self.told_lost("renew", &lease, &body);
                    self.run.witness.leave(&lease.lock.name, self.inside(&lease));
                    return None;
                }
                other => self.failed("renew", &other).await,
            }
        }
        self.run.witness.leave(&lease.lock.name, self.inside(&lease));
        self.run.tally().ran_out += 1;
        None
    }

    /// Goes out and gives back, as often as it takes. Whether it was said to be done, or needless.
    pub(super) async fn release(&mut self, lease: Lease) -> bool {
        self.run.witness.leave(&lease.lock.name, self.inside(&lease));
        let path = format!("/v1/leases/{}", lease.id);
        let mut is_repeated = false;
        loop {
            let asked = self.run.moment();
            match self.caller.ask("DELETE", &path, "", ANSWER_WITHIN).await {
                Ok(Answer { status: 204, .. }) => {
                    let elsewhere = asked.outlives(lease.granted, lease.lock.home);
                    self.run.tally().released_elsewhere += u64::from(elsewhere);
                    return true;
                }
                // The first may have been carried out although its answer was lost.
                Ok(Answer { status: 410, .. }) if is_repeated => {
                    self.run.tally().released_before += 1;
                    return true;
                }
                Ok(Answer { status: 410, body }) => {
                    self.told_lost("release", &lease, &body);
                    return false;
                }
                other => self.failed("release", &other).await,
            }
            is_repeated = true;
            if Instant::now() >= lease.until {
                self.run.tally().ran_out += 1;
                return false;
            }
        }
    }

    /// What is lost before its deadline was never safe.
    fn told_lost(&self, what: &str, lease: &Lease, body: &Value) {
        let left = lease.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.run.tally().ran_out += 1;
            return;
        }
        let Lease { lock, fence, .. } = lease;
        self.run.wrong(format!(
            "lock `{}`: client {} with fence {fence} is told by {what} that its lease is lost, {:.3} s \
             before its deadline: {body}",
            lock.name,
            self.number,
            left.as_secs_f64(),
        ));
    }

    /// Counts it, and waits a little.
    async fn failed(&self, what: &'static str, answer: &Result<Answer, &'static str>) {
        let why = match answer {
            Ok(Answer { status: status @ (502..=504), .. }) => status.to_string(),
            Ok(Answer { status, body }) => {
                self.run.wrong(format!("{what} is answered with {status}: {body}"));
                status.to_string()
            }
            Err(why) => (*why).to_owned(),
        };
        *self.run.tally().failed.entry((what, why)).or_default() += 1;
        sleep(AGAIN_AFTER).await;
    }
}

/// The lease's id, its fence, and until when whoever asked at `sent` may believe in it.
fn read(sent: Instant, body: &Value) -> Option<(String, u64, Instant)> {
    let millis = |field: &str| body[field].as_u64().map(Duration::from_millis);
    let until = sent + millis("elapsed_ms")? + millis("expires_in_ms")?;
    Some((body["lease_id"].as_str()?.to_owned(), body["fence"].as_u64()?, until))
}
