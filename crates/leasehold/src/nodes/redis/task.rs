//! The one task that does a node's I/O: connects, serves until something breaks, and connects
//! again. It decides nothing but when to try the next connection.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::NodeError;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

use super::beside::Beside;
use super::exchange::Session;
use super::handshake::shake_hands;
use super::hints::Nudges;
use super::link::{Batch, Link, Received};
use super::queue::{Queue, Replies};
use super::url::RedisConfig;
use crate::nodes::dial::unreachable;

/// The first pause after a failed attempt: a server that restarts is back in no time.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest one: a node that was away for a day is used again within a second.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long an attempt to connect may take at most. Nobody waits for it beyond their own limit; with
/// TLS it takes five round trips, and the limit of a request may be hardly more than one.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// A connection that did not live this long counts as a failed attempt.
const LIFE_MIN: Duration = Duration::from_secs(1);
/// How long a node that is dropped may go on sending releases.
const LINGER: Duration = Duration::from_secs(1);
/// How often a silent server is looked for.
const TICK: Duration = Duration::from_millis(500);

/// What the task needs to connect.
pub(super) struct Dialer {
    pub(super) config: RedisConfig,
    pub(super) prefix: Arc<str>,
    pub(super) limit: Duration,
    pub(super) nudges: Arc<Nudges>,
    pub(super) beside: Arc<Beside>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<crate::nodes::tls::Tls>,
}

/// Answers everybody, however the task ends: also when its runtime goes away.
struct LastWords(Arc<Queue>);

impl Drop for LastWords {
    fn drop(&mut self) {
        let reason = "the node was closed".to_owned();
        self.0.shut(&NodeError::Unreachable { reason });
    }
}

/// Runs until `closing` and a little longer.
pub(super) async fn run(dialer: Dialer, queue: Arc<Queue>, closing: CancellationToken) {
    let last_words = LastWords(Arc::clone(&queue));
    tokio::select! {
        biased;
        never = connect_for_ever(dialer, &queue) => match never {},
        () = settled(&queue, &closing) => {}
    }
    drop(last_words);
}

/// Waits for `closing`, and then until nothing waits any more. Replies are waited for as well: to
/// close a socket with replies unread makes the server throw away requests that it has not read.
async fn settled(queue: &Queue, closing: &CancellationToken) {
    closing.cancelled().await;
    let _ = timeout(LINGER, async {
        while !queue.is_idle() {
            queue.idle.notified().await;
        }
    })
    .await;
}

async fn connect_for_ever(dialer: Dialer, queue: &Arc<Queue>) -> std::convert::Infallible {
    let mut pause = PAUSE_MIN;
    loop {
        let error = match dialer.connect(queue).await {
            Ok(mut link) => {
                let opened = Instant::now();
                let error = serve(&mut link, queue).await;
                tracing::debug!(node = %dialer.config.id(), %error, "connection lost");
                if opened.elapsed() >= LIFE_MIN {
                    pause = PAUSE_MIN;
                    queue.lose(&error);
                    continue;
                }
                error
            }
            Err(error) => error,
        };
        queue.shut(&error);
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Between half of it and all of it, so that clients do not come back all at once.
fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    half + half.mul_f64(f64::from(crate::chance::jitter()) / f64::from(u32::MAX))
}

impl Dialer {
    async fn connect(&self, queue: &Arc<Queue>) -> Result<Link, NodeError> {
        let attempt = async {
            let mut link = Link::open(
                &self.config.address,
                #[cfg(feature = "tls")]
                self.tls.as_ref(),
            )
            .await?;
            let flushed = {
                let queue = Arc::downgrade(queue);
                move || queue.upgrade().iter().for_each(|queue| queue.void_passes())
            };
            let is_told = shake_hands(&mut link, &self.config, &self.nudges, flushed).await?;
            Ok((link, is_told))
        };
        let mut attempt = std::pin::pin!(attempt);
        let too_slow =
            |limit| NodeError::Unreachable { reason: format!("no connection within {limit:?}") };
        let (link, is_told_of_flushes) = match timeout(self.limit, &mut attempt).await {
            Ok(done) => done?,
            Err(_) => {
                // It goes on, but nobody should wait for it any more.
                queue.shut(&too_slow(self.limit));
                let rest = ATTEMPT_MAX.saturating_sub(self.limit);
                timeout(rest, attempt)
                    .await
                    .map_err(|_| too_slow(ATTEMPT_MAX.max(self.limit)))??
            }
        };
        tracing::debug!(node = %self.config.id(), "connected");
        let generation = *queue.generation.borrow() + 1;
        let (prefix, beside) = (Arc::clone(&self.prefix), Arc::clone(&self.beside));
        let session = Session::new(generation, prefix, link.addresses, is_told_of_flushes, beside);
        queue.open(session, link.direct());
        Ok(link)
    }
}

/// Moves bytes until the connection breaks; returns how.
async fn serve(link: &mut Link, queue: &Queue) -> NodeError {
    let Link { incoming, outgoing, .. } = link;
    let mut batch = Batch::default();
    let mut replies = Replies::default();
    let mut heard = Instant::now();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        batch.refill(|out| queue.take_outgoing(out));
        let is_writing = !batch.is_done();
        tokio::select! {
            // As everywhere in this crate, so that a simulated run can be repeated. Reading may go
            // first: a reply needs a request, so it cannot keep writing waiting for ever.
            biased;
            filled = incoming.fill() => {
                if let Err(error) = filled {
                    return error;
                }
                heard = Instant::now();
                let ended = loop {
                    match incoming.next_of_any_kind() {
                        Ok(Some(Received::Reply(value))) => replies.values.push(value),
                        Ok(Some(Received::Push(push))) => {
                            // In the order of the wire: what was examined before a flush must not
                            // pass for examined after it.
                            if let Err(error) = queue.receive(&mut replies) {
                                return error;
                            }
                            incoming.hear(&push);
                        }
                        Ok(None) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                };
                if let Err(error) = queue.receive(&mut replies).and(ended) {
                    return error;
                }
            }
            pushed = batch.push(outgoing), if is_writing => {
                if let Err(error) = pushed {
                    return unreachable(&error);
                }
            }
            () = queue.wake.notified(), if !is_writing => {
                // Whoever else can ask now does so first, and one write carries all of it.
                tokio::task::yield_now().await;
            }
            _ = tick.tick() => {
                if let Some(error) = queue.objection(heard) {
                    return error;
                }
            }
        }
    }
}
