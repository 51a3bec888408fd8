//! What a server's replies mean for a request: its answer, or the next stage. How single values
//! are read is in `read`.

use std::collections::BTreeMap;

use std::sync::Arc;

use leasehold_core::{
    Answer, Facts, Fence, LockName, NodeError, Owner, Reply, Request, ServerFacts, Sighting,
    WallMicros,
};

use super::exchange::{
    Drop, Exchange, FORGET_PAGE, LIST_PAGE, LOADS_MAX, Look, Scan, Session, Stage, fences_of,
};
use super::info::{self, Edition};
use super::read::{
    Read, accepted, clock, expires_in, fence, foreign, garbled, is_forgotten, is_of_a_cluster,
    is_unusable, is_wrong_type, looked, only, owner, record, tagged,
};
use super::resp::Value;
use super::script::{Bound, CallBy, Doubts};

/// What comes after the replies to one stage.
#[derive(Debug)]
pub(super) enum Step {
    /// The answer.
    Answer(Answer),
    /// Another stage.
    Again(Exchange),
}

impl Exchange {
    /// Takes the replies to what [`Exchange::send`] wrote.
    pub(super) fn receive(mut self, replies: &[Value], session: &mut Session) -> Step {
        let forgotten = replies.first().is_some_and(is_forgotten);
        if forgotten && self.is_bound() {
            // It restarted, or is another server, or somebody flushed its scripts.
            session.lose_scripts();
            return Step::Answer(Ok(Reply::Stranger { record: None }));
        }
        let is_load = matches!(self.stage, Stage::Load { .. });
        if forgotten && self.by == CallBy::Sha && !is_load {
            self.by = CallBy::Text;
            return Step::Again(self);
        }
        self.by = CallBy::Sha;
        if self.pass.as_ref().is_some_and(|pass| pass.generation != session.generation) {
            // Since it was asked, the server turned out to be another, or to have lost its memory.
            return Step::Answer(Ok(Reply::Stranger { record: None }));
        }
        self.read(replies, session).unwrap_or_else(|error| Step::Answer(Err(error)))
    }

    fn read(mut self, replies: &[Value], session: &mut Session) -> Read<Step> {
        let stage = std::mem::replace(&mut self.stage, Stage::Only);
        let reply = match (stage, &*self.request) {
            (Stage::Identify, _) => Reply::Stranger { record: record(only(replies)?)? },
            (Stage::Unexamined, _) => only(replies).map(|_| Reply::Stranger { record: None })?,
            (Stage::Load { scripts, tries }, _) => {
                let (loads, last) = replies.split_at(replies.len().saturating_sub(1));
                // One that finds itself at another server says so.
                let mut loads = loads.iter().filter(|load| !is_forgotten(load));
                loads.try_for_each(|load| accepted(load).map(|_| ()))?;
                let examined = examined(last)?;
                session.meet(&examined.server);
                if !scripts.is_to(&examined.server, session.doubts(&examined)) {
                    return self.load(&examined, session, tries);
                }
                session.scripts = Some(scripts);
                session.answer_probe(examined)
            }
            (Stage::Only, Request::Probe) if replies.first().is_some_and(is_of_a_cluster) => {
                return Ok(self.again(Stage::Keyless));
            }
            (Stage::Keyless, _) => session.answer_probe(examined(replies)?),
            (Stage::Only, Request::Probe) => {
                let examined = examined(replies)?;
                session.meet(&examined.server);
                let doubts = session.doubts(&examined);
                let is_known = |scripts: &Arc<Bound>| scripts.is_to(&examined.server, doubts);
                if !session.scripts.as_ref().is_some_and(is_known) {
                    return self.load(&examined, session, 0);
                }
                session.answer_probe(examined)
            }
            (Stage::CompareAndDelete(_), _) => match only(replies) {
                Ok(Value::Int(1)) => Reply::Released,
                Ok(Value::Int(0)) => return Ok(self.again(Stage::WhoHolds)),
                Ok(other) => return Err(garbled(std::slice::from_ref(other))),
                Err(_) if replies.first().is_some_and(is_wrong_type) => {
                    return Ok(self.again(Stage::WhoHolds));
                }
                Err(_) if replies.first().is_some_and(is_unusable) => {
                    session.compare_and_delete = None;
                    return Ok(self.again(Stage::Only));
                }
                Err(error) => return Err(error),
            },
            (Stage::WhoHolds, _) => Reply::NotHeld { owner: looked(replies)?.0 },
            (Stage::Whose, _) => match record(only(replies)?)? {
                Some(record) => {
                    let fences = fences_of(&record);
                    let (cursor, found) = (b"0".into(), BTreeMap::new());
                    return Ok(self.again(Stage::Scan(Box::new(Scan { fences, cursor, found }))));
                }
                None => Reply::Locks(Vec::new()),
            },
            (Stage::Scan(mut scan), Request::List { prefix }) => {
                scan.cursor = scanned(replies, &session.prefix, prefix, &mut scan.found)?;
                if scan.cursor != b"0" {
                    return Ok(self.again(Stage::Scan(scan)));
                }
                let todo: Vec<_> = scan.found.into_iter().rev().collect();
                return Ok(self.look_on(todo, Vec::new()));
            }
            (Stage::Look(look), _) => {
                let Look { mut todo, batch, mut seen } = *look;
                let asked = todo.split_off(todo.len().saturating_sub(batch));
                // `todo` is sorted downwards, so that its end comes next.
                for ((lock, fence), replies) in asked.into_iter().rev().zip(replies.rchunks(3)) {
                    let (owner, expires_in) = looked(replies)?;
                    if owner.is_some() {
                        seen.push(Sighting::by_voter(lock, owner, expires_in, Some(fence)));
                    }
                }
                return Ok(self.look_on(todo, seen));
            }
            (Stage::Page { skipped, gone }, _) => {
                let Value::Array(members) = only(replies)? else {
                    return Err(garbled(replies));
                };
                let is_last = members.len() < FORGET_PAGE;
                // Keys of another prefix are not ours to look at.
                let ours = members.iter().filter_map(Value::text);
                let keys: Vec<Vec<u8>> = ours
                    .filter(|key| key.starts_with(session.prefix.as_bytes()))
                    .map(<[u8]>::to_vec)
                    .collect();
                let others = members.len() - keys.len();
                let page = Drop { keys, is_last, others, skipped, gone };
                return Ok(self.again(Stage::Drop(Box::new(page))));
            }
            (Stage::Drop(page), _) => match only(replies)? {
                Value::Int(dropped @ 0..) => {
                    let gone = page.gone + *dropped as u64;
                    if !page.is_last {
                        let kept = page.keys.len().saturating_sub(*dropped as usize);
                        let skipped = page.skipped + page.others + kept;
                        return Ok(self.again(Stage::Page { skipped, gone }));
                    }
                    Reply::Forgot { fences: gone }
                }
                other => stranger(other)?,
            },
            (_, Request::Acquire { .. }) => acquired(only(replies)?, self.floor())?,
            (_, Request::Extend { .. }) => extended(only(replies)?)?,
            (_, Request::Release { .. } | Request::ForceRelease { .. }) => {
                released(&self.request, only(replies)?)?
            }
            (_, Request::Inspect { lock }) => {
                let Value::Array(seen) = only(replies)? else {
                    return Err(garbled(replies));
                };
                let (look, score) = seen.split_at(seen.len().min(3));
                let (owner, expires_in) = looked(look)?;
                let fence = match only(score)? {
                    Value::Nil => None,
                    score => Some(fence(score)?),
                };
                Reply::Seen(Sighting::by_voter(lock.clone(), owner, expires_in, fence))
            }
            (_, Request::ReplaceRecord { .. }) => match only(replies)? {
                Value::Int(done @ 0..=1) => Reply::Record { replaced: *done == 1 },
                _ => return Err(garbled(replies)),
            },
            (_, Request::Probe | Request::List { .. } | Request::ForgetIdle { .. }) => {
                return Err(garbled(replies));
            }
        };
        Ok(Step::Answer(Ok(reply)))
    }

    /// The server is to know the scripts that are bound to it. What was examined is not the answer: by
    /// the time they are there it may be another server that knows them.
    fn load(self, examined: &Examined, session: &Session, tries: usize) -> Read<Step> {
        if examined.edition.is_too_old() {
            let reason = format!("{} is too old: it must be 6.2 or later", examined.server.version);
            return Err(NodeError::Rejected { reason });
        }
        if tries >= LOADS_MAX {
            let reason = "several servers take turns at its address: give each its own".to_owned();
            return Err(NodeError::Rejected { reason });
        }
        let scripts = Bound::to(&examined.server, session.doubts(examined));
        Ok(self.again(Stage::Load { scripts: Arc::new(scripts), tries: tries + 1 }))
    }

    /// What an absent fence counts as.
    fn floor(&self) -> Fence {
        self.pass.as_ref().map_or(Fence::ZERO, |pass| pass.floor)
    }

    fn again(mut self, stage: Stage) -> Step {
        self.stage = stage;
        Step::Again(self)
    }

    fn look_on(self, todo: Vec<(LockName, Fence)>, seen: Vec<Sighting>) -> Step {
        if todo.is_empty() {
            return Step::Answer(Ok(Reply::Locks(seen)));
        }
        let batch = todo.len().min(LIST_PAGE);
        self.again(Stage::Look(Box::new(Look { todo, batch, seen })))
    }
}

fn acquired(value: &Value, floor: Fence) -> Read<Reply> {
    if *value == Value::Int(1) {
        return Ok(Reply::Granted);
    }
    match tagged(value)? {
        ("BEHIND", [at]) => Ok(Reply::Behind { fence: fence(at)? }),
        ("BUSY" | "FOREIGN", _) => busy(value, floor),
        _ => stranger(value),
    }
}

fn extended(value: &Value) -> Read<Reply> {
    match tagged(value)? {
        ("EXTENDED", time) => Ok(Reply::Extended { clock: clock(time)? }),
        ("HEALED", time) => Ok(Reply::Healed { clock: clock(time)? }),
        ("SUPERSEDED", [at]) => Ok(Reply::Superseded { fence: fence(at)? }),
        ("BUSY" | "FOREIGN", _) => busy(value, Fence::ZERO),
        ("NOT_HELD", [value, kind]) => Ok(Reply::NotHeld { owner: owner(value, kind)? }),
        _ => stranger(value),
    }
}

fn released(request: &Request, value: &Value) -> Read<Reply> {
    if *value == Value::Int(1) {
        return Ok(Reply::Released);
    }
    match (tagged(value)?, request) {
        (("NOT_HELD", [value, kind]), _) => Ok(Reply::NotHeld { owner: owner(value, kind)? }),
        (("SUPERSEDED", [at]), Request::ForceRelease { .. }) => {
            Ok(Reply::Superseded { fence: fence(at)? })
        }
        (_, Request::ForceRelease { .. }) => stranger(value),
        _ => Err(garbled(std::slice::from_ref(value))),
    }
}

fn busy(value: &Value, floor: Fence) -> Read<Reply> {
    let (owner, left, at) = match tagged(value)? {
        ("BUSY", [Value::Text(owner), left, at]) => (Owner::from_value(owner), left, at),
        ("FOREIGN", [kind, left, at]) => (foreign(kind)?, left, at),
        _ => return Err(garbled(std::slice::from_ref(value))),
    };
    let fence = if *at == Value::Nil { floor } else { fence(at)? };
    Ok(Reply::busy(owner, expires_in(left)?, fence))
}

fn stranger(value: &Value) -> Read<Reply> {
    match tagged(value)? {
        ("STRANGER", [found]) => Ok(Reply::Stranger { record: record(found)? }),
        _ => Err(garbled(std::slice::from_ref(value))),
    }
}

/// What a server said of itself, all of it at once.
pub(super) struct Examined {
    clock: WallMicros,
    record: Option<String>,
    highest: Fence,
    has_spent: bool,
    pub(super) server: ServerFacts,
    edition: Edition,
    /// Whether it has, or had, a replica.
    has_backlog: bool,
}

/// Reads what the script `examine` returns.
pub(super) fn examined(replies: &[Value]) -> Read<Examined> {
    let Value::Array(parts) = only(replies)? else {
        return Err(garbled(replies));
    };
    // The last is nothing, which the two versions of the protocol write differently: on a connection
    // that something in between opened anew it cannot be read.
    let [seconds, micros, identity, info, highest, top, Value::Nil] = parts.as_slice() else {
        return Err(garbled(replies));
    };
    let clock = clock(&[seconds.clone(), micros.clone()])?;
    let (server, edition, has_backlog) =
        info.str().and_then(info::read).ok_or_else(|| NodeError::Garbled {
            reason: "INFO is not that of a Redis: is there a proxy that answers it?".to_owned(),
        })?;
    let (record, highest, has_spent) = (record(identity)?, fence(highest)?, fence(top)?.is_spent());
    Ok(Examined { clock, record, highest, has_spent, server, edition, has_backlog })
}

impl Session {
    /// Another server on this connection, behind a proxy that keeps it, was never asked to tell us
    /// when it drops its data.
    fn meet(&mut self, server: &ServerFacts) {
        if self.facts.as_ref().is_some_and(|known| known.run_id != server.run_id) {
            self.is_told_of_flushes = false;
        }
    }

    fn doubts(&self, examined: &Examined) -> Doubts {
        let restart = examined.edition.keeps_scripts();
        Doubts { restart, copy: !self.is_told_of_flushes || examined.has_backlog }
    }

    fn answer_probe(&mut self, examined: Examined) -> Reply {
        let Examined { clock, record, highest, has_spent, server, edition, .. } = examined;
        let is_same = |known: &ServerFacts| {
            (&known.run_id, &known.replication_id) == (&server.run_id, &server.replication_id)
        };
        if self.facts.as_ref().is_some_and(|known| !is_same(known)) {
            self.void_passes();
        }
        self.compare_and_delete = edition.compare_and_delete();
        self.facts = Some(server.clone());
        let others = self.beside.other_than(&server.run_id).into_iter().collect();
        let (generation, unmet, addresses) = (self.generation, 0, self.addresses);
        Reply::Facts(Box::new(Facts {
            generation,
            clock,
            record,
            highest,
            has_spent,
            server,
            others,
            unmet,
            addresses,
        }))
    }
}

/// One page of a scan: where the next one starts. What it shows is added to `found`.
fn scanned(
    replies: &[Value],
    prefix: &str,
    name_prefix: &str,
    found: &mut BTreeMap<LockName, Fence>,
) -> Read<Vec<u8>> {
    let Value::Array(page) = only(replies)? else {
        return Err(garbled(replies));
    };
    let [Value::Text(cursor), Value::Array(members)] = page.as_slice() else {
        return Err(garbled(replies));
    };
    for pair in members.chunks(2) {
        let [member, score] = pair else {
            return Err(garbled(replies));
        };
        let name = member.str().and_then(|member| member.strip_prefix(prefix));
        let Some(name) = name.filter(|name| name.starts_with(name_prefix)) else {
            continue;
        };
        if let Ok(name) = LockName::new(name) {
            found.insert(name, fence(score)?);
        }
    }
    Ok(cursor.clone())
}

#[cfg(test)]
mod tests {
    use leasehold_core::NodeError;

    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn only_one_shape_is_a_grant() {
        assert_eq!(acquired(&Value::Int(1), Fence::ZERO), Ok(Reply::Granted));
        let shapes = [
            Value::Nil,
            Value::Int(0),
            Value::Int(2),
            Value::Double(1.0),
            text("1"),
            text("OK"),
            text("GRANTED"),
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![text("BUSY")]),
            Value::Array(vec![text("BUSY"), text("x"), Value::Int(-3), text("5")]),
            Value::Array(vec![text("BEHIND"), text("-1")]),
            Value::Array(vec![text("BEHIND"), text("1.5")]),
            Value::Array(vec![text("BEHIND"), text("9007199254740992")]),
            Value::Array(vec![text("EXTENDED"), text("1"), text("2")]),
        ];
        for shape in shapes {
            let read = acquired(&shape, Fence::ZERO);
            assert!(matches!(read, Err(NodeError::Garbled { .. })), "{shape:?} -> {read:?}");
        }
    }
}
