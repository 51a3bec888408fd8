//! The task of the second connection: opens it, moves bytes while somebody waits, and closes it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::NodeError;
use tokio::time::{MissedTickBehavior, timeout};

use super::super::answer::examined;
use super::super::handshake::{accepted, ask_who, select};
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
    opener: &'a Opener,
    state: &'a State,
    /// How long it is not tried again; `None` if there is nothing to tell.
    pause: Option<Duration>,
}

impl Drop for LastWords<'_> {
    fn drop(&mut self) {
        self.opener.beside.meet(None);
        if let Some(pause) = self.pause {
            self.state.shut(pause);
        }
    }
}

/// One life of the connection.
pub(super) async fn run(opener: Arc<Opener>, state: Arc<State>) {
    let mut last_words = LastWords { opener: &opener, state: &state, pause: Some(PAUSE) };
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
        () = opener.beside.stale.notified() => {
            let reason = "the other connection met another server".to_owned();
            Err(NodeError::Unreachable { reason })
        }
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
    let mut link = opener.open().await?;
    if !link.incoming.resp3 {
        let reason = "it speaks RESP2 with us, which has no hints".to_owned();
        return Err(NodeError::Rejected { reason });
    }
    let mut out = Vec::new();
    let selects = select(&opener.config, &mut out);
    // What is read is watched, unless we say before a command that it is not.
    encode(&mut out, &[b"CLIENT", b"TRACKING", b"ON", b"OPTOUT"]);
    for script in [&STAND, &LEAVE] {
        encode(&mut out, &[b"SCRIPT", b"LOAD", script.text.as_bytes()]);
    }
    // Is answered by a push, which is no reply, or by an error, which is.
    encode(&mut out, &[b"SUBSCRIBE", state.channel.as_bytes()]);
    ask_who(&mut out);
    let replies = link.call(&out, selects + 4).await?;
    let (chosen, replies) = replies.split_at(selects);
    chosen.iter().try_for_each(|select| accepted(select, "").map(|_| ()))?;
    let [tracking, stand, leave, subscribe_or_who] = replies else {
        return Err(NodeError::Garbled { reason: format!("{} replies", replies.len()) });
    };
    accepted(tracking, "")?;
    accepted(subscribe_or_who, "")?;
    let server = examined(std::slice::from_ref(subscribe_or_who))?.server;
    opener.beside.meet(Some(server.run_id));
    state.open(stand.error().or(leave.error()).is_none());
    Ok(link)
}

/// Moves bytes until nobody needs the connection any more, or it breaks.
async fn serve(link: &mut Link, state: &State) -> Result<(), NodeError> {
    let Link { incoming, outgoing, .. } = link;
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
