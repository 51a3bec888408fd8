//! Acquire: wait if asked to, answer, and leave nothing behind if nobody hears the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue, LOCATION};
use leasehold::{AcquireError, DEFAULT_TTL, ExtendError, Guard, LeaseToken, LockName, LockRequest};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{LeaseAnswer, same_key, typed};
use crate::app::{App, Asked};
use crate::ask::{Ask, Json};
use crate::body::{Body, Response};
use crate::caller::Caller;
use crate::lease_id;
use crate::ledger::{AttemptOutcome, Grant, Key, UnderWay};
use crate::problem::{Kind, Problem};
use crate::view;
use crate::waiting::InLine;

/// What may be said about a lock that is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    holder: Option<String>,
    ttl_ms: Option<u64>,
    #[serde(default)]
    wait_ms: u64,
    reason: Option<String>,
    nonce: Option<String>,
}

/// The longest reason, in characters: a sentence, not an essay.
pub(crate) const REASON_MOST: usize = 500;

pub(crate) async fn acquire(mut ask: Box<Ask>) -> Result<Response, Problem> {
    let (caller, lock) = (ask.caller()?, ask.lock()?);
    let Json { value: wish, bytes } = ask.json::<Wish>().await?;
    let Ask { app, asked, head, body, .. } = *ask;
    caller.may_lock(&app, &lock)?;
    let nonce = check(&app, &wish)?;
    if nonce.is_some_and(|nonce| !app.ledger.is_fresh(nonce)) {
        let detail =
            "this nonce was used a moment ago: a nonce is for one request, which nobody may repeat";
        return Err(Problem::field("nonce", detail));
    }
    let key = match idempotency_key(&head.headers)? {
        Some(_) if nonce.is_some() => {
            let detail = "a nonce and an Idempotency-Key exclude each other: send one of them";
            return Err(Problem::field("nonce", detail));
        }
        Some(key) => {
            let request = [lock.as_str().as_bytes(), b"\0", &bytes].concat();
            match look_up(&app, &caller.name, &key, &request).await? {
                (Key::Granted(token), left) => {
                    let id = lease_id::encode(&token);
                    // It stays: somebody may have renewed it meanwhile.
                    let text = lease_json(&app, &token, &id, &asked, wish.reason.as_deref(), left)
                        .ok_or_else(|| too_late(&token))?;
                    return Ok(created(&id, text.into()));
                }
                (Key::New(under_way), _) => Some(under_way),
            }
        }
        None => None,
    };
    // Whoever waits needs none of it any more, and there may be many.
    drop((head, body, bytes));
    if app.tasks.is_draining() {
        return Err(shutting_down());
    }
    let holder = wish.holder.unwrap_or_else(|| format!("{}@{}", caller.name, asked.from));
    let mut request = app
        .locks
        .lock(lock.as_str())
        .holder(holder)
        .ttl(wish.ttl_ms.map_or(DEFAULT_TTL, Duration::from_millis))
        .manual();
    if let Some(nonce) = nonce {
        request = request.nonce(nonce);
    }
    let mark = key.as_ref().map(UnderWay::mark);
    if let Some(mark) = mark {
        request = request.mark(mark);
    }
    let wait = Duration::from_millis(wish.wait_ms);
    let mut attempt = Attempt::new(&app, &lock, mark);
    let guard = if wait.is_zero() {
        match request.try_acquire_or_tell().await {
            Ok(guard) => guard,
            Err(error) => return Err(attempt.refused(error, None).await),
        }
    } else {
        let place = app.waiting.join(&lock, &caller.name, app.limits().into())?;
        match attempt.wait(request, wait, &caller).await? {
            Ok(guard) => guard,
            Err(error) => return Err(attempt.refused(error, Some(place)).await),
        }
    };
    grant(&app, &asked, attempt, guard, wish.reason, key)
}

/// Tells of a grant. From here on somebody is responsible for it: first the connection that the answer
/// goes out on, then whoever reads it.
fn grant(
    app: &Arc<App>,
    asked: &Asked,
    attempt: Attempt<'_>,
    guard: Guard,
    reason: Option<String>,
    key: Option<UnderWay>,
) -> Result<Response, Problem> {
    let until = Instant::now() + guard.validity();
    let token = guard.detach();
    let id = lease_id::encode(&token);
    let Some(text) = lease_json(app, &token, &id, asked, reason.as_deref(), until) else {
        attempt.ended(AttemptOutcome::Error);
        let (locks, problem) = (app.locks.clone(), too_late(&token));
        app.tasks.spawn(async move { drop(locks.release(&token).await) });
        return Err(problem);
    };
    let waited = attempt.ended(AttemptOutcome::Acquired);
    let answer = app.ledger.granted(&token, Grant { waited, until, reason, key });
    let (owner, undelivered) = (app.clone(), token);
    let give_back = move || {
        if owner.ledger.undelivered(&undelivered, &answer) {
            owner.give_back(undelivered, answer);
        }
    };
    let body = asked.delivery.answer(text, Box::new(give_back));
    Ok(created(&id, Body::Grant(body)))
}

/// It was granted, and is over before anybody can be told.
fn too_late(token: &LeaseToken) -> Problem {
    let (name, fence) = (token.name.as_str(), token.fence);
    let detail = format!(
        "lock `{name}` (fence {fence}): granted, but nothing was left of it when it was to be told"
    );
    Problem::new(Kind::TooSlow, detail).with("name", json!(name))
}

/// What a key stands for by what the nodes say now, and until when.
async fn look_up(
    app: &Arc<App>,
    caller: &Arc<str>,
    key: &str,
    request: &[u8],
) -> Result<(Key, Instant), Problem> {
    loop {
        let token = match app.ledger.look_up_key(caller, key, request)? {
            Key::Granted(token) => token,
            new @ Key::New(_) => return Ok((new, Instant::now())),
        };
        match app.locks.extend_since(&token, Instant::now).await {
            Ok((now, left)) => {
                let until = now + left;
                app.ledger.repeated(&token, until);
                return Ok((Key::Granted(token), until));
            }
            // Released or run out: the key stands for nothing any more.
            Err(ExtendError::Lost(_)) => app.ledger.key_outlived(&token.holder),
            Err(error) => return Err(error.into()),
        }
    }
}

/// What is left is read after the time that passed, of which so much is told as passed at least by the
/// caller's clock: a caller that counts both from when it asked never counts too much. Nothing, where
/// nothing is left.
fn lease_json(
    app: &App,
    token: &LeaseToken,
    id: &str,
    asked: &Asked,
    reason: Option<&str>,
    until: Instant,
) -> Option<String> {
    let elapsed_ms = Some(view::millis(app.locks.drift().passed_at_least(asked.at.elapsed())));
    let left = view::millis(until.saturating_duration_since(Instant::now()));
    let answer = LeaseAnswer {
        expires_in_ms: Some(left),
        elapsed_ms,
        reason: Some(reason),
        ..LeaseAnswer::of(token, id)
    };
    (left > 0).then(|| super::text(&answer))
}

fn created(id: &str, body: Body) -> Response {
    let mut response = typed(StatusCode::CREATED, "application/json", body);
    if let Ok(location) = HeaderValue::try_from(format!("/v1/leases/{id}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// What can be told to be wrong before anybody is asked. Says the nonce, if there is one.
fn check(app: &App, wish: &Wish) -> Result<Option<u128>, Problem> {
    let longest = view::millis(app.limits().max_wait);
    if wish.wait_ms > longest {
        let detail = format!("wait_ms may be at most {longest}; ask again when it is over");
        return Err(Problem::field("wait_ms", detail).with("at_most", json!(longest)));
    }
    check_reason(wish.reason.as_deref().unwrap_or_default())?;
    let Some(text) = &wish.nonce else { return Ok(None) };
    let is_hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    match u128::from_str_radix(text, 16) {
        Ok(_) if wish.wait_ms > 0 => {
            Err(Problem::field("nonce", "a nonce stands for one attempt: wait_ms must be 0"))
        }
        Ok(nonce) if is_hex => Ok(Some(nonce)),
        _ => Err(Problem::field("nonce", "a nonce is 32 fresh random hexadecimal digits")),
    }
}

pub(super) fn check_reason(reason: &str) -> Result<(), Problem> {
    if reason.chars().count() > REASON_MOST {
        let detail = format!("a reason may have at most {REASON_MOST} characters");
        return Err(Problem::field("reason", detail));
    }
    Ok(())
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str() {
        Ok(text) if (1..=255).contains(&text.len()) => Ok(Some(text.to_owned())),
        _ => Err(Problem::field(
            "Idempotency-Key",
            "an Idempotency-Key has 1 to 255 printable ASCII characters",
        )),
    }
}

fn shutting_down() -> Problem {
    Problem::new(
        Kind::ShuttingDown,
        "this server is shutting down: ask another, or again in a second",
    )
}

fn expires_in(error: &AcquireError) -> Option<Duration> {
    match error {
        AcquireError::TimedOut { last: Some(last), .. } => expires_in(last),
        AcquireError::Held { expires_in, .. } => *expires_in,
        _ => None,
    }
}

/// It may be about to take the lease back, because its answer did not arrive: so nobody else hands it out.
fn elsewhere(expires_in: Option<Duration>) -> Problem {
    Problem::new(
        Kind::IdempotencyElsewhere,
        "the lock is held by a lease of this Idempotency-Key that another instance granted, or this one \
         before it was started again: ask that instance, or wait until the lease ends",
    )
    .with("expires_in_ms", json!(expires_in.map(view::millis)))
    .retry_after(Duration::ZERO)
}

/// An attempt under way. If it is dropped, whoever asked has gone.
struct Attempt<'a> {
    app: &'a Arc<App>,
    lock: &'a LockName,
    began: Instant,
    met_holder: Arc<AtomicBool>,
    /// What a lease of the same idempotency key would show.
    mark: Option<u64>,
    is_over: bool,
}

impl<'a> Attempt<'a> {
    fn new(app: &'a Arc<App>, lock: &'a LockName, mark: Option<u64>) -> Self {
        let (began, met_holder) = (Instant::now(), Arc::default());
        Self { app, lock, began, met_holder, mark, is_over: false }
    }

    /// Waits for the lock, unless the server ends first, or the right to take it does.
    async fn wait(
        &mut self,
        request: LockRequest,
        wait: Duration,
        caller: &Caller,
    ) -> Result<Result<Guard, AcquireError>, Problem> {
        let (app, lock, met) = (self.app.clone(), self.lock.clone(), self.met_holder.clone());
        let (mark, met_itself) = (self.mark, Arc::new(Notify::new()));
        let itself = met_itself.clone();
        let request = request.wait(wait).on_refusal(move |error| {
            if same_key::is_named(error, mark) {
                itself.notify_one();
            }
            if error.is_held() && !met.swap(true, Ordering::Relaxed) {
                app.ledger.waits(&lock, app.waiting.count(&lock));
            }
        });
        let mut acquire = std::pin::pin!(request.acquire());
        let mut is_denied = std::pin::pin!(caller.denied(self.app, self.lock));
        loop {
            tokio::select! {
                biased;
                () = &mut is_denied => {
                    let detail = "this token was revoked, or has expired, while the request waited";
                    return Err(Problem::new(Kind::Unauthorized, detail));
                }
                outcome = &mut acquire => return Ok(outcome),
                () = met_itself.notified() => {
                    if same_key::is_held(&self.app.locks, self.lock, mark).await {
                        return Err(elsewhere(None));
                    }
                }
                () = self.app.tasks.draining() => return Err(shutting_down()),
            }
        }
    }

    /// Counts it, and says how long it took.
    fn ended(mut self, outcome: AttemptOutcome) -> Duration {
        self.count(outcome)
    }

    fn count(&mut self, outcome: AttemptOutcome) -> Duration {
        self.is_over = true;
        let took = self.began.elapsed();
        let met_holder = self.met_holder.load(Ordering::Relaxed);
        self.app.ledger.attempted(self.lock, outcome, met_holder, took);
        took
    }

    /// Tells why there is no lock.
    async fn refused(mut self, error: AcquireError, place: Option<InLine>) -> Problem {
        let waits = place.is_some();
        let outcome = match &error {
            AcquireError::Options(_) => AttemptOutcome::Error,
            error if error.is_held() && waits => AttemptOutcome::Timeout,
            error if error.is_held() => AttemptOutcome::Contended,
            AcquireError::NoQuorum { .. } => AttemptOutcome::NoQuorum,
            _ => AttemptOutcome::Error,
        };
        let took = self.count(outcome);
        let is_held = error.is_held();
        if same_key::is_named(&error, self.mark)
            && same_key::is_held(&self.app.locks, self.lock, self.mark).await
        {
            return elsewhere(expires_in(&error));
        }
        let problem = Problem::from(error).with("name", json!(self.lock.as_str()));
        if !is_held {
            return problem;
        }
        let position = place.as_ref().map_or(0, InLine::position);
        drop(place);
        self.app.ledger.refused(self.lock, waits);
        let problem = problem
            .with("queue_position", json!(position))
            .with("waited_ms", json!(if waits { view::millis(took) } else { 0 }));
        self.with_holder(problem).await
    }

    /// Since when and with which fence it is held, which a refusal does not tell, and who holds it if
    /// others were ahead all the time.
    async fn with_holder(&self, problem: Problem) -> Problem {
        let Ok(status) = self.app.locks.inspect(self.lock.as_str()).await else {
            return problem.with("fence", Value::Null).with("held_for_ms", Value::Null);
        };
        let seen = view::lock(&status, std::time::SystemTime::now(), 0);
        ["holder", "holder_id", "fence", "held_for_ms", "expires_in_ms"]
            .into_iter()
            .fold(problem, |problem, key| problem.with(key, seen[key].clone()))
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.count(AttemptOutcome::Cancelled);
        }
    }
}

#[cfg(test)]
#[path = "acquire_tests.rs"]
mod tests;
