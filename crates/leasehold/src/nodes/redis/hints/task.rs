//! The task of the second connection: opens it, moves bytes while somebody waits, and closes it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::NodeError;
use tokio::time::{MissedTickBehavior, timeout};

use super::super::handshake::{accepted, log_in};
use super::super::link::{Batch, Link, Received};
use super::super::resp::encode;
use super::state::State;
use super::{LEAVE, Opener, STAND};
use crate::nodes::dial::unreachable;

/// Somebody waits for it, but not only for it.
const OPEN_WITHIN: Duration = Duration::from_secs(1);
/// How often the server hears that we are still there: three of these may fail to come.
const BEAT: Duration = Duration::from_millis(750);
/// After a failure of the network.
const PAUSE: Duration = Duration::from_secs(1);
/// After the server said that it cannot, or that we may not.
const PAUSE_REFUSED: Duration = Duration::from_secs(60);
/// A node that is dropped still leaves its lines.
const LINGER: Duration = Duration::from_millis(100);

/// Tells everybody, however the task ends: also when its runtime goes away.
struct LastWords<'a> {
    state: &'a State,
    /// How long it is not tried again; `None` if there is nothing to tell.
    pause: Option<Duration>,
}

impl Drop for LastWords<'_> {
    fn drop(&mut self) {
        if let Some(pause) = self.pause {
            self.state.shut(pause);
        }
    }
}

/// One life of the connection.
pub(super) async fn run(opener: Arc<Opener>, state: Arc<State>) {
    let mut last_words = LastWords { state: &state, pause: Some(PAUSE) };
    let node = opener.config.id();
    let too_slow = || NodeError::Unreachable { reason: format!("not within {OPEN_WITHIN:?}") };
    let opened = timeout(OPEN_WITHIN, open(&opener, &state)).await;
    let mut link = match opened.unwrap_or_else(|_| Err(too_slow())) {
        Ok(link) => link,
        Err(error @ NodeError::Unreachable { .. }) => {
            return tracing::debug!(%node, %error, "no connection for hints");
        }
        Err(error) => {
            last_words.pause = Some(PAUSE_REFUSED);
            return tracing::info!(%node, "waiters ask again by the clock, without hints: {error}");
        }
    };
    let ended = tokio::select! {
        biased;
        ended = serve(&mut link, &state) => ended,
        () = opener.closing.cancelled() => {
            let mut out = Vec::new();
            state.take_outgoing(&mut out);
            let _ = timeout(LINGER, link.send(&out)).await;
            return;
        }
    };
    match ended {
        // Closed already, and perhaps opened again.
        Ok(()) => last_words.pause = None,
        Err(error) => tracing::debug!(%node, %error, "connection for hints lost"),
    }
}

async fn open(opener: &Opener, state: &State) -> Result<Link, NodeError> {
    let config = &opener.config;
    let mut link = Link::open(
        &config.address,
        #[cfg(feature = "tls")]
        opener.tls.as_ref(),
    )
    .await?;
    log_in(&mut link, config).await?;
    if !link.incoming.resp3 {
        let reason = "it speaks RESP2 with us, which has no hints".to_owned();
        return Err(NodeError::Rejected { reason });
    }
    let mut out = Vec::new();
    let db = config.db.to_string();
    encode(&mut out, &[b"SELECT", db.as_bytes()]);
    // What is read is watched, unless we say before a command that it is not.
    encode(&mut out, &[b"CLIENT", b"TRACKING", b"ON", b"OPTOUT"]);
    for script in [&STAND, &LEAVE] {
        encode(&mut out, &[b"SCRIPT", b"LOAD", script.text.as_bytes()]);
    }
    // Is answered by a push, which is no reply, or by an error, which is.
    encode(&mut out, &[b"SUBSCRIBE", state.channel.as_bytes()]);
    encode(&mut out, &[b"TIME"]);
    let replies = link.call(&out, 5).await?;
    let [select, tracking, stand, leave, subscribe_or_time] = replies.as_slice() else {
        return Err(NodeError::Garbled { reason: format!("{} replies", replies.len()) });
    };
    if config.db != 0 {
        accepted(select, "")?;
    }
    accepted(tracking, "")?;
    accepted(subscribe_or_time, "")?;
    state.open(stand.error().or(leave.error()).is_none());
    Ok(link)
}

/// Moves bytes until nobody needs the connection any more, or it breaks.
async fn serve(link: &mut Link, state: &State) -> Result<(), NodeError> {
    let Link { incoming, outgoing } = link;
    let mut batch = Batch::default();
    let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + BEAT, BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        batch.refill(|out| state.take_outgoing(out));
        let is_writing = !batch.is_done();
        tokio::select! {
            biased;
            filled = incoming.fill() => {
                filled?;
                while let Some(received) = incoming.next_of_any_kind()? {
                    match received {
                        Received::Reply(reply) => state.receive(&reply)?,
                        Received::Push(push) => state.hear(&push),
                    }
                }
            }
            pushed = batch.push(outgoing), if is_writing => {
                pushed.map_err(|error| unreachable(&error))?;
            }
            () = state.wake.notified(), if !is_writing => {}
            _ = beat.tick() => {
                if state.closes() {
                    return Ok(());
                }
                state.beat()?;
            }
        }
    }
}
