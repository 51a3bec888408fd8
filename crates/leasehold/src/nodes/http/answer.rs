//! Answers of the lock server as replies of the core. Whatever the bytes are: an answer, a refusal or
//! garbled, never a panic.

use std::time::Duration;

use hyper::StatusCode;
use leasehold_core::{
    Answer, Fence, Fingerprint, Holder, LockName, MemberName, NO_REPLICATION, NodeError, Origin,
    Owner, Record, RecordState, Reply, Sighting, Ttl, WallMicros,
};
use serde_json::Value;

use super::call::lease_id;

/// An HTTP response, read to its end.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

/// A lease as it was asked for.
pub(super) struct Asked<'a> {
    pub(super) lock: &'a LockName,
    pub(super) holder: &'a Holder,
    pub(super) ttl: Ttl,
}

/// What a server says of its nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cluster {
    /// Its kind, for people.
    pub(super) backend: String,
    pub(super) max_ttl: Option<Duration>,
    /// Whether each of its nodes has on disk what it answered.
    pub(super) persists: bool,
}

/// One page of locks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) locks: Vec<Sighting>,
    pub(super) next: Option<String>,
}

/// The token is good, but not for this.
const FORBIDDEN: &str = "urn:leasehold:problem:forbidden";

/// Words of a server are shown up to here.
const WORDS_MAX: usize = 2000;

/// `clock` is ours when the response came, here and below: a server says for how long a lock has been held.
pub(super) fn acquired(asked: &Asked<'_>, response: &Response, clock: WallMicros) -> Answer {
    let document = response.document();
    match response.status.as_u16() {
        201 => granted(asked, &document?),
        423 => {
            let held = document?;
            Ok(Reply::Busy {
                owner: held.owner().unwrap_or_else(unknown),
                expires_in: held.millis("expires_in_ms"),
                fence: held.fence("fence").unwrap_or_default(),
                since: held.since(clock),
            })
        }
        _ => Err(response.refusal()),
    }
}

/// A lease that is not the one that was asked for is none: its deadline would be another.
fn granted(asked: &Asked<'_>, lease: &Document) -> Answer {
    let fence = lease.fence("fence").filter(|fence| *fence > Fence::ZERO);
    let fence = fence.ok_or_else(|| garbled("a lease without a fence"))?;
    if is_as_asked(asked, (fence, fence), lease) {
        Ok(Reply::GrantedWith { fence })
    } else {
        Err(garbled("a lease that was not asked for"))
    }
}

/// Whether all of it is that of the lease that was asked for, whose fence and token are `fences`.
fn is_as_asked(asked: &Asked<'_>, fences: (Fence, Fence), lease: &Document) -> bool {
    let ((fence, token), ttl) = (fences, asked.ttl.get());
    lease.text("name") == Some(asked.lock.as_str())
        && lease.text("holder") == Some(asked.holder.label())
        && lease.fence("fence") == Some(fence)
        && lease.millis("ttl_ms") == Some(ttl)
        && lease.text("lease_id") == Some(&*lease_id(asked.lock, asked.holder, fence, token, ttl))
}

/// `None` if the lease is gone, and the lock itself has to tell how.
pub(super) fn renewed(
    asked: &Asked<'_>,
    fences: (Fence, Fence),
    response: &Response,
    clock: WallMicros,
) -> Option<Answer> {
    match response.status.as_u16() {
        200 => {
            Some(response.document().and_then(|lease| match is_as_asked(asked, fences, &lease) {
                true => Ok(Reply::Extended { clock }),
                false => Err(garbled("an extension that was not asked for")),
            }))
        }
        410 => None,
        _ => Some(Err(response.refusal())),
    }
}

/// What became of a lock whose lease with `token` cannot be renewed any more.
pub(super) fn gone(
    lock: &LockName,
    token: Fence,
    response: &Response,
    clock: WallMicros,
) -> Answer {
    let Sighting { owner, expires_in, fence, since, .. } =
        sighting(&response.found(200)?, lock.clone(), clock);
    Ok(match (fence, owner) {
        (Some(fence), _) if fence > token => Reply::Superseded { fence },
        (fence, Some(owner)) => {
            Reply::Busy { owner, expires_in, fence: fence.unwrap_or_default(), since }
        }
        (_, None) => Reply::NotHeld { owner: None },
    })
}

pub(super) fn released(response: &Response) -> Answer {
    match response.status.as_u16() {
        204 => Ok(Reply::Released),
        // What comes with it is only of interest.
        410 => Ok(Reply::NotHeld { owner: response.document().ok().and_then(|d| d.owner()) }),
        _ => Err(response.refusal()),
    }
}

pub(super) fn force_released(response: &Response) -> Answer {
    match response.status.as_u16() {
        200 => match response.document()?.0.get("released").and_then(Value::as_bool) {
            Some(true) => Ok(Reply::Released),
            Some(false) => Ok(Reply::NotHeld { owner: None }),
            None => Err(garbled("it does not say whether it was released")),
        },
        412 => {
            let fence = response.document()?.fence("fence");
            let fence = fence.ok_or_else(|| garbled("a fence moved on, to nowhere"))?;
            Ok(Reply::Superseded { fence })
        }
        _ => Err(response.refusal()),
    }
}

pub(super) fn seen(lock: &LockName, response: &Response, clock: WallMicros) -> Answer {
    let document = response.found(200)?;
    if document.text("state").is_none() {
        return Err(garbled("a lock without a state"));
    }
    Ok(Reply::Seen(sighting(&document, lock.clone(), clock)))
}

/// Whether a response says that the lock is free.
pub(super) fn is_free(response: &Response) -> bool {
    response.found(200).is_ok_and(|document| document.text("state") == Some("free"))
}

pub(super) fn listed(response: &Response, clock: WallMicros) -> Result<Page, NodeError> {
    let document = response.found(200)?;
    let Some(Value::Array(items)) = document.0.get("locks") else {
        return Err(garbled("a list without locks"));
    };
    let read = |item: &Value| {
        let item = Document(item.clone());
        let lock = item.text("name").and_then(|name| LockName::new(name).ok())?;
        Some(sighting(&item, lock, clock))
    };
    let locks: Option<Vec<_>> = items.iter().map(read).collect();
    let locks = locks.ok_or_else(|| garbled("a lock without a name in a list"))?;
    // A lock that is only listed because somebody waits for it is not held.
    let locks = locks.into_iter().filter(|sighting| sighting.owner.is_some()).collect();
    Ok(Page { locks, next: document.text("next_cursor").map(str::to_owned) })
}

/// A server without a quorum is of no use now, and says why. What its nodes are may be none of our
/// token's business: then nothing is known of them.
pub(super) fn cluster(response: &Response) -> Result<Cluster, NodeError> {
    let is_forbidden = |document: Document| document.text("type") == Some(FORBIDDEN);
    if response.status == StatusCode::FORBIDDEN && response.document().is_ok_and(is_forbidden) {
        let backend = "nodes that this token may not see".to_owned();
        return Ok(Cluster { backend, max_ttl: None, persists: false });
    }
    let document = response.found(200)?;
    let kind = document.text("backend").ok_or_else(|| garbled("a cluster of no kind"))?;
    let nodes = document.0.get("nodes").and_then(Value::as_array);
    let nodes = nodes.map_or(&[][..], Vec::as_slice);
    if document.0.get("ready").and_then(Value::as_bool) == Some(false) {
        return Err(no_quorum(&document, nodes));
    }
    let is_persists = |node: &Value| node.get("persists").and_then(Value::as_bool) == Some(true);
    Ok(Cluster {
        backend: plain(kind),
        max_ttl: document.millis("max_ttl_ms"),
        persists: !nodes.is_empty() && nodes.iter().all(is_persists),
    })
}

fn no_quorum(cluster: &Document, nodes: &[Value]) -> NodeError {
    let number = |name| cluster.0.get(name).and_then(Value::as_u64).unwrap_or(0);
    let text = |node: &Value, name| node.get(name).and_then(Value::as_str).map(str::to_owned);
    let said = nodes.iter().map(|node| {
        let words = ["node", "state", "why"].map(|name| text(node, name));
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    });
    let reason = format!(
        "no quorum: {} of {} nodes available, {} needed: {}",
        number("available"),
        number("configured"),
        number("quorum"),
        said.collect::<Vec<_>>().join(", ")
    );
    NodeError::Rejected { reason: plain(&reason) }
}

/// Name and version of a server: `leasehold 0.1.0`.
pub(super) fn version(response: &Response) -> Result<String, NodeError> {
    let document = response.found(200)?;
    match (document.text("name"), document.text("version")) {
        (Some("leasehold"), Some(version)) => Ok(plain(&format!("leasehold {version}"))),
        _ => Err(garbled("this is no lock server")),
    }
}

/// The identity record of a quorum of one, which a server does not have: its own nodes are judged by
/// the server.
pub(super) fn record(cluster: &Cluster, max_ttl_default: Duration) -> Record {
    Record {
        cluster: Fingerprint::of_one(),
        nodes: 1,
        member: MemberName::of_one(),
        max_ttl: cluster.max_ttl.unwrap_or(max_ttl_default),
        life: 0,
        run_id: RUN_ID.to_owned(),
        replication_id: NO_REPLICATION.to_owned(),
        origin: Origin::First,
        state: RecordState::Admitted,
        floor: Fence::ZERO,
        born: WallMicros(0),
        waits: None,
        clocks: Vec::new(),
    }
}

/// A server has no life of its own: whoever answers at its address speaks for the same nodes.
pub(super) const RUN_ID: &str = "server";

fn sighting(document: &Document, lock: LockName, clock: WallMicros) -> Sighting {
    let owner = document.owner();
    let fence = match owner {
        Some(_) => document.fence("fence").or_else(|| document.fence("highest_fence")),
        None => document.fence("highest_fence"),
    };
    let expires_in = owner.as_ref().and_then(|_| document.millis("expires_in_ms"));
    let since = owner.as_ref().and_then(|_| document.since(clock));
    Sighting { lock, owner, expires_in, fence, since }
}

/// A JSON object, as far as it is one.
struct Document(Value);

impl Document {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    fn fence(&self, name: &str) -> Option<Fence> {
        self.0.get(name).and_then(Value::as_u64).and_then(Fence::new)
    }

    fn millis(&self, name: &str) -> Option<Duration> {
        self.0.get(name).and_then(Value::as_u64).map(Duration::from_millis)
    }

    /// When its holder acquired a lock: the server's own word, which is no fence of its nodes.
    fn since(&self, clock: WallMicros) -> Option<WallMicros> {
        let held_for = u64::try_from(self.millis("held_for_ms")?.as_micros()).ok()?;
        Some(WallMicros(clock.0.saturating_sub(held_for)))
    }

    /// The random part of a holder is a secret; a server shows a digest in its place, which tells
    /// holders apart as well.
    fn owner(&self) -> Option<Owner> {
        let label = self.text("holder")?;
        let holder = self.text("holder_id").map(|id| format!("{label}:{id}"));
        Some(match holder.and_then(|holder| Holder::parse(&holder).ok()) {
            Some(holder) => Owner::Holder(holder),
            None => Owner::OtherLibrary { value: plain(label) },
        })
    }
}

fn unknown() -> Owner {
    Owner::OtherLibrary { value: "?".to_owned() }
}

impl Response {
    fn document(&self) -> Result<Document, NodeError> {
        match serde_json::from_slice(&self.body) {
            Ok(document @ Value::Object(_)) => Ok(Document(document)),
            Ok(_) => Err(garbled("JSON, but no object")),
            Err(error) => Err(garbled(&format!("no JSON: {error}"))),
        }
    }

    /// The document, if the status is the one that goes with it.
    fn found(&self, status: u16) -> Result<Document, NodeError> {
        if self.status.as_u16() == status { self.document() } else { Err(self.refusal()) }
    }

    /// Why nothing came of a request, in the server's own words if it has some.
    pub(super) fn refusal(&self) -> NodeError {
        let problem = self.document().ok().filter(|document| {
            document.text("type").is_some_and(|kind| kind.starts_with("urn:leasehold:problem:"))
        });
        let words = problem.as_ref().and_then(|problem| problem.text("detail"));
        let Some(words) = words.map(plain) else {
            return self.refusal_without_words();
        };
        match self.status.as_u16() {
            401 => NodeError::Denied { reason: format!("{words}; {HOW_TO_SHOW_A_TOKEN}") },
            403 => NodeError::Denied { reason: words },
            // Nothing was done, and nothing will be.
            429 => NodeError::Overloaded { reason: words },
            400..=599 => NodeError::Rejected { reason: words },
            _ => garbled(&format!("{} with a problem: {words}", self.status)),
        }
    }

    /// Something that stands before the server answered, or there is no server.
    fn refusal_without_words(&self) -> NodeError {
        let reason = format!("it answered {}", self.status);
        match self.status.as_u16() {
            401 | 403 | 407 => NodeError::Denied { reason },
            429 => NodeError::Overloaded { reason },
            500..=599 => NodeError::Rejected { reason },
            _ => NodeError::Garbled { reason: format!("{reason}: is this a lock server?") },
        }
    }
}

const HOW_TO_SHOW_A_TOKEN: &str =
    "show one by https://:TOKEN@host, by token_file=PATH or by LEASEHOLD_TOKEN";

fn garbled(reason: &str) -> NodeError {
    NodeError::Garbled { reason: reason.to_owned() }
}

/// Words from elsewhere, as they may be shown on a terminal.
fn plain(words: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    words.chars().map(shown).take(WORDS_MAX).collect()
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
