//! From an address to a connection on which requests may flow: log in, choose the database, listen.
//! Who the server is, is asked by an examination, and not believed from before.

use std::sync::Arc;

use leasehold_core::NodeError;

use super::answer::examined;
use super::exchange::IDENTITY;
use super::hints::Nudges;
use super::link::Link;
use super::read::rejected;
use super::resp::{Value, encode};
use super::{script, url::RedisConfig};

/// The name under which `CLIENT LIST` shows us.
const CLIENT_NAME: &[u8] = b"leasehold";
/// The name of a connection that is there for those who wait.
pub(super) const WAITING_NAME: &[u8] = b"leasehold-waits";

/// Logs in and listens. `flushed` is called when the server says that it dropped all its data; returns
/// whether it will.
pub(super) async fn shake_hands(
    link: &mut Link,
    config: &RedisConfig,
    nudges: &Arc<Nudges>,
    flushed: impl Fn() + Send + Sync + 'static,
) -> Result<bool, NodeError> {
    log_in(link, config, CLIENT_NAME).await?;
    let mut out = Vec::new();
    let selects = select(config, &mut out);
    let mut replies = selects;
    if link.incoming.resp3 {
        // It tells of a flush, and of nothing else unless we ask for it.
        encode(&mut out, &[b"CLIENT", b"TRACKING", b"ON", b"OPTIN"]);
        replies += 1;
    }
    let channel = nudges.channel.as_deref().filter(|_| link.incoming.resp3);
    if let Some(channel) = channel {
        // Is answered by a push, which is no reply, or by an error, which is: hence the question
        // behind it.
        encode(&mut out, &[b"SUBSCRIBE", channel.as_bytes()]);
        encode(&mut out, &[b"GET", IDENTITY.as_bytes()]);
        replies += 1;
    }
    let nudges = Arc::clone(nudges);
    link.incoming.on_push = Some(Box::new(move |push| match is_flush(push) {
        true => flushed(),
        false => nudges.hear(push),
    }));
    if replies == 0 {
        return Ok(false);
    }
    let replies = link.call(&out, replies).await?;
    let (chosen, replies) = replies.split_at(selects);
    chosen.iter().try_for_each(|select| accepted(select, "").map(|_| ()))?;
    if channel.is_some() && replies.last().is_some_and(is_no_subscription) {
        link.call(&[], 1).await?;
    }
    let is_tracked = replies.first().is_some_and(|tracking| tracking.error().is_none());
    Ok(link.incoming.resp3 && is_tracked)
}

/// Chooses the database, where it is not the one that every connection begins with: a proxy may pass
/// the choice of one client on to all.
pub(super) fn select(config: &RedisConfig, out: &mut Vec<u8>) -> usize {
    if config.db == 0 {
        return 0;
    }
    encode(out, &[b"SELECT", config.db.to_string().as_bytes()]);
    1
}

/// Who answers at the other end: its run id.
pub(super) async fn meet(link: &mut Link) -> Result<String, NodeError> {
    let mut out = Vec::new();
    ask_who(&mut out);
    let replies = link.call(&out, 1).await?;
    Ok(examined(&replies)?.server.run_id)
}

/// The question for [`meet`], to be sent with others.
pub(super) fn ask_who(out: &mut Vec<u8>) {
    encode(out, &[b"EVAL", script::EXAMINE.text.as_bytes(), b"1", IDENTITY.as_bytes()]);
}

/// `invalidate` for all keys at once.
fn is_flush(push: &Value) -> bool {
    let Value::Array(items) = push else { return false };
    matches!(&items[..], [kind, Value::Nil] if kind.str() == Some("invalidate"))
}

/// `HELLO 3`, and by other means where that is unknown.
pub(super) async fn log_in(
    link: &mut Link,
    config: &RedisConfig,
    name: &[u8],
) -> Result<(), NodeError> {
    let user = config.user.as_deref().unwrap_or("default").as_bytes();
    let password = match (&config.user, &config.password) {
        (None, None) => None,
        (_, password) => Some(password.as_deref().unwrap_or("").as_bytes()),
    };
    let mut out = Vec::new();
    if !config.resp2 {
        let mut words: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(password) = password {
            words.extend([b"AUTH".as_slice(), user, password]);
        }
        words.extend([b"SETNAME", name]);
        encode(&mut out, &words);
        let reply = link.call(&out, 1).await.map_err(closed_upon_hello)?;
        let reply = reply.first().unwrap_or(&Value::Nil);
        match reply.error() {
            None => return known_by_name(reply),
            Some(words) if is_no_hello(words) => {}
            Some(words) => return Err(rejected(words)),
        }
        let has_other_versions = reply.error().is_some_and(|words| words.starts_with("NOPROTO"));
        out.clear();
        if has_other_versions {
            encode(&mut out, &[b"HELLO", b"2"]);
            let reply = link.call(&out, 1).await?;
            known_by_name(reply.first().unwrap_or(&Value::Nil))?;
            out.clear();
        }
    }
    link.incoming.resp3 = false;
    let mut replies = 1;
    if let Some(password) = password {
        let mut words: Vec<&[u8]> = vec![b"AUTH"];
        // Before Redis 6 there are no users.
        words.extend(config.user.as_ref().map(|_| user));
        words.push(password);
        encode(&mut out, &words);
        replies += 1;
    }
    encode(&mut out, &[b"CLIENT", b"SETNAME", name]);
    let values = link.call(&out, replies).await?;
    if password.is_some() {
        let login = values.first().unwrap_or(&Value::Nil);
        accepted(login, "")?;
    }
    // A server that may not be told a name does without.
    Ok(())
}

/// Refuses what cannot be a node, by its name in the answer to `HELLO`.
fn known_by_name(hello: &Value) -> Result<(), NodeError> {
    let Value::Array(items) = hello else { return Ok(()) };
    let field = |name: &str| {
        items.chunks(2).find_map(|pair| match pair {
            [key, value] if key.str() == Some(name) => value.str(),
            _ => None,
        })
    };
    let reason = match (field("server"), field("mode")) {
        (Some("envoy-redis-proxy"), _) => {
            "this is Envoy's redis_proxy, which hides restarts and answers TIME by itself: \
             use tcp_proxy, as in deploy/envoy.yaml"
        }
        (_, Some("sentinel")) => {
            "this is a Sentinel, which keeps no locks: give the address of a server it watches"
        }
        _ => return Ok(()),
    };
    Err(NodeError::Denied { reason: reason.to_owned() })
}

/// Some proxies do not answer what they do not know.
fn closed_upon_hello(error: NodeError) -> NodeError {
    match error {
        NodeError::Unreachable { reason } if reason.contains("closed the connection") => {
            let reason = format!(
                "{reason} upon HELLO (as twemproxy does, which cannot be used: see \
                 docs/backends/redis.md)"
            );
            NodeError::Unreachable { reason }
        }
        other => other,
    }
}

/// No right to subscribe, or an unknown command: then nobody can nudge us.
fn is_no_subscription(reply: &Value) -> bool {
    let words = reply.error().unwrap_or_default().to_ascii_lowercase();
    words.contains("subscribe") || words.contains("channel")
}

/// An unknown command, an unknown version, or no right to say HELLO.
fn is_no_hello(words: &str) -> bool {
    words.starts_with("NOPROTO")
        || words.starts_with("NOPERM")
        || words.to_ascii_lowercase().contains("hello")
}

pub(super) fn accepted<'a>(value: &'a Value, why: &str) -> Result<&'a Value, NodeError> {
    match value.error() {
        None => Ok(value),
        Some(words) => Err(match rejected(words) {
            NodeError::Denied { reason } => NodeError::Denied { reason: format!("{why}{reason}") },
            NodeError::Rejected { reason } => {
                NodeError::Rejected { reason: format!("{why}{reason}") }
            }
            other => other,
        }),
    }
}
