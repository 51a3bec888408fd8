//! From an address to a connection on which requests may flow: log in, choose the database, learn
//! what the server is, leave the scripts there.

use std::sync::Arc;

use leasehold_core::{NodeError, Role};
use tokio::time::Instant;

use super::exchange::{IDENTITY, Session};
use super::hints::Knocks;
use super::link::Link;
use super::read::{rejected, setting};
use super::resp::{Value, encode};
use super::{info, script, url::RedisConfig};

/// The name under which `CLIENT LIST` shows us.
const CLIENT_NAME: &[u8] = b"leasehold";

/// Logs in and asks around. `generation` is the number that this connection will have.
pub(super) async fn shake_hands(
    link: &mut Link,
    config: &RedisConfig,
    prefix: &Arc<str>,
    knocks: &Arc<Knocks>,
    generation: u64,
) -> Result<Session, NodeError> {
    log_in(link, config).await?;
    let knocks_at = knocks.channel.as_deref().filter(|_| link.incoming.resp3);

    let mut out = Vec::new();
    let db = config.db.to_string();
    // Also where it is the usual one: a proxy may have left another.
    encode(&mut out, &[b"SELECT", db.as_bytes()]);
    encode(&mut out, &[b"INFO"]);
    encode(&mut out, &[b"CONFIG", b"GET", b"appendfsync"]);
    encode(&mut out, &[b"GET", IDENTITY.as_bytes()]);
    let scripts = script::all();
    for script in scripts {
        encode(&mut out, &[b"SCRIPT", b"LOAD", script.text.as_bytes()]);
    }
    if let Some(channel) = knocks_at {
        // Is answered by a push, which is no reply, or by an error, which is: hence the question
        // behind it.
        encode(&mut out, &[b"SUBSCRIBE", channel.as_bytes()]);
        encode(&mut out, &[b"TIME"]);
        let knocks = Arc::clone(knocks);
        link.incoming.on_push = Some(Box::new(move |push| knocks.hear(push)));
    }
    let mut replies = link.call(&out, 4 + scripts.len() + usize::from(knocks_at.is_some())).await?;
    if knocks_at.is_some()
        && let Some(last) = replies.pop()
        && is_no_subscription(&last)
    {
        link.call(&[], 1).await?;
    }
    let [select, info, fsync, identity, loads @ ..] = replies.as_slice() else {
        return Err(NodeError::Garbled { reason: format!("{} replies", replies.len()) });
    };
    // Redis forbids SELECT in cluster mode, where there is no other database anyway.
    if config.db != 0 {
        accepted(select, "")?;
    }
    let info = accepted(info, "INFO is needed to tell what the server is: ")?;
    for load in loads {
        // Scripts that cannot be loaded can still be sent whole.
        if let Some(words) = load.error().filter(|words| words.starts_with("LOADING")) {
            return Err(rejected(words));
        }
    }
    let (facts, edition) = info
        .str()
        .and_then(|info| info::read(info, setting(fsync)))
        .ok_or_else(|| NodeError::Garbled { reason: "INFO is not that of a Redis".to_owned() })?;
    // LOADING, MASTERDOWN, no right to read: it could serve nobody. A member of a cluster never
    // does, and is to say so itself.
    if facts.role != Role::ClusterMember {
        accepted(identity, "")?;
    }
    if edition.is_too_old() {
        let reason = format!("{} is too old: it must be 6.2 or later", facts.version);
        return Err(NodeError::Rejected { reason });
    }
    Ok(Session {
        generation,
        prefix: Arc::clone(prefix),
        facts,
        facts_read: Instant::now(),
        compare_and_delete: edition.compare_and_delete(),
        reads_config: fsync.error().is_none(),
        fences: ("".into(), String::new()),
    })
}

/// `HELLO 3`, and by other means where that is unknown.
pub(super) async fn log_in(link: &mut Link, config: &RedisConfig) -> Result<(), NodeError> {
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
        words.extend([b"SETNAME", CLIENT_NAME]);
        encode(&mut out, &words);
        let reply = link.call(&out, 1).await?;
        match reply.first().and_then(Value::error) {
            None => return Ok(()),
            Some(words) if is_no_hello(words) => {}
            Some(words) => return Err(rejected(words)),
        }
        out.clear();
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
    encode(&mut out, &[b"CLIENT", b"SETNAME", CLIENT_NAME]);
    let values = link.call(&out, replies).await?;
    if password.is_some() {
        let login = values.first().unwrap_or(&Value::Nil);
        accepted(login, "")?;
    }
    // A server that may not be told a name does without.
    Ok(())
}

/// No right to subscribe, or an unknown command: then nobody can knock.
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
