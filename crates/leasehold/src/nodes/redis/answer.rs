//! What a server's replies mean. Whatever does not have the one shape that the request can get is
//! `Garbled`; nothing here guesses.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use leasehold_core::{
    Answer, Facts, Fence, LockName, NodeError, Owner, Reply, Request, Role, Sighting, WallMicros,
};

use super::exchange::{Exchange, FORGET_PAGE, LIST_PAGE, Session, Stage};
use super::info;
use super::resp::{Value, excerpt};
use super::script::CallBy;

/// What comes after the replies to one stage.
#[derive(Debug)]
pub(super) enum Step {
    /// The answer.
    Answer(Answer),
    /// Another stage.
    Again(Exchange),
}

type Read<T> = Result<T, NodeError>;

impl Exchange {
    /// Takes the replies to what [`Exchange::send`] wrote.
    pub(super) fn receive(mut self, replies: Vec<Value>, session: &mut Session) -> Step {
        let forgotten =
            replies.first().and_then(Value::error).is_some_and(|e| e.starts_with("NOSCRIPT"));
        if forgotten && self.by == CallBy::Sha {
            self.by = CallBy::Text;
            return Step::Again(self);
        }
        self.by = CallBy::Sha;
        self.read(replies, session).unwrap_or_else(|error| Step::Answer(Err(error)))
    }

    fn read(mut self, replies: Vec<Value>, session: &mut Session) -> Read<Step> {
        let stage = std::mem::replace(&mut self.stage, Stage::Only);
        let reply = match (stage, &*self.request) {
            (Stage::Identify, _) => Reply::Stranger { record: record(only(&replies)?)? },
            (Stage::CompareAndDelete(_), _) => match only(&replies) {
                Ok(Value::Int(1)) => Reply::Released,
                Ok(Value::Int(0)) => return Ok(self.again(Stage::WhoHolds)),
                Ok(other) => return Err(garbled(std::slice::from_ref(other))),
                Err(_) if is_wrong_type(&replies[0]) => return Ok(self.again(Stage::WhoHolds)),
                Err(_) if is_forbidden(&replies[0]) => {
                    session.compare_and_delete = None;
                    return Ok(self.again(Stage::Only));
                }
                Err(error) => return Err(error),
            },
            (Stage::WhoHolds, _) => Reply::NotHeld { owner: looked(&replies)?.0 },
            (Stage::Scan { found, .. }, Request::List { prefix }) => {
                let (cursor, found) = scanned(&replies, &session.prefix, prefix, found)?;
                if cursor != b"0" {
                    return Ok(self.again(Stage::Scan { cursor, found }));
                }
                let todo: Vec<_> = found.into_iter().rev().collect();
                return Ok(self.look_on(todo, Vec::new()));
            }
            (Stage::Look { mut todo, batch, mut seen }, _) => {
                let asked = todo.split_off(todo.len().saturating_sub(batch));
                // `todo` is sorted downwards, so that its end comes next.
                for ((lock, fence), replies) in asked.into_iter().rev().zip(replies.rchunks(3)) {
                    let (owner, expires_in) = looked(replies)?;
                    if owner.is_some() {
                        seen.push(Sighting { lock, owner, expires_in, fence: Some(fence) });
                    }
                }
                return Ok(self.look_on(todo, seen));
            }
            (Stage::Page { skipped, gone }, _) => {
                let Value::Array(members) = only(&replies)? else {
                    return Err(garbled(&replies));
                };
                let is_last = members.len() < FORGET_PAGE;
                // Keys of another prefix are not ours to look at.
                let ours = members.iter().filter_map(Value::text);
                let keys: Vec<Vec<u8>> = ours
                    .filter(|key| key.starts_with(session.prefix.as_bytes()))
                    .map(<[u8]>::to_vec)
                    .collect();
                let others = members.len() - keys.len();
                return Ok(self.again(Stage::Drop { keys, is_last, others, skipped, gone }));
            }
            (Stage::Drop { keys, is_last, others, skipped, gone }, _) => match only(&replies)? {
                Value::Int(dropped @ 0..) => {
                    let gone = gone + *dropped as u64;
                    if !is_last {
                        let kept = keys.len().saturating_sub(*dropped as usize);
                        let skipped = skipped + others + kept;
                        return Ok(self.again(Stage::Page { skipped, gone }));
                    }
                    Reply::Forgot { fences: gone }
                }
                other => stranger(other)?,
            },
            (_, Request::Acquire { .. }) => acquired(only(&replies)?)?,
            (_, Request::Extend { .. }) => extended(only(&replies)?)?,
            (_, Request::Release { .. } | Request::ForceRelease { .. }) => {
                released(&self.request, only(&replies)?)?
            }
            (_, Request::Inspect { lock }) => {
                let (look, score) = replies.split_at(replies.len().min(3));
                let (owner, expires_in) = looked(look)?;
                let fence = match only(score)? {
                    Value::Nil => None,
                    score => Some(fence(score)?),
                };
                Reply::Seen(Sighting { lock: lock.clone(), owner, expires_in, fence })
            }
            (_, Request::ReplaceRecord { .. }) => match only(&replies)? {
                Value::Int(done @ 0..=1) => Reply::Record { replaced: *done == 1 },
                _ => return Err(garbled(&replies)),
            },
            (_, Request::Probe) => probed(&replies, session)?,
            (_, Request::List { .. } | Request::ForgetIdle { .. }) => {
                return Err(garbled(&replies));
            }
        };
        Ok(Step::Answer(Ok(reply)))
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
        self.again(Stage::Look { todo, batch, seen })
    }
}

fn acquired(value: &Value) -> Read<Reply> {
    if *value == Value::Int(1) {
        return Ok(Reply::Granted);
    }
    match tagged(value)? {
        ("BEHIND", [at]) => Ok(Reply::Behind { fence: fence(at)? }),
        ("BUSY" | "FOREIGN", _) => busy(value),
        _ => stranger(value),
    }
}

fn extended(value: &Value) -> Read<Reply> {
    match tagged(value)? {
        ("EXTENDED", time) => Ok(Reply::Extended { clock: clock(time)? }),
        ("HEALED", time) => Ok(Reply::Healed { clock: clock(time)? }),
        ("SUPERSEDED", [at]) => Ok(Reply::Superseded { fence: fence(at)? }),
        ("BUSY" | "FOREIGN", _) => busy(value),
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

fn busy(value: &Value) -> Read<Reply> {
    let (owner, left, at) = match tagged(value)? {
        ("BUSY", [Value::Text(owner), left, at]) => (Owner::from_value(owner), left, at),
        ("FOREIGN", [kind, left, at]) => (foreign(kind)?, left, at),
        _ => return Err(garbled(std::slice::from_ref(value))),
    };
    Ok(Reply::Busy { owner, expires_in: expires_in(left)?, fence: fence(at)? })
}

fn stranger(value: &Value) -> Read<Reply> {
    match tagged(value)? {
        ("STRANGER", [found]) => Ok(Reply::Stranger { record: record(found)? }),
        _ => Err(garbled(std::slice::from_ref(value))),
    }
}

fn probed(replies: &[Value], session: &mut Session) -> Read<Reply> {
    let [time, identity, news @ ..] = replies else {
        return Err(garbled(replies));
    };
    let Value::Array(time) = accepted(time)? else {
        return Err(garbled(replies));
    };
    if let [info, config @ ..] = news {
        let info = accepted(info)?.str().ok_or_else(|| garbled(news))?;
        let (facts, _) =
            info::read(info, config.first().and_then(setting)).ok_or_else(|| garbled(news))?;
        session.facts = facts;
        session.facts_read = Instant::now();
    }
    let record = match accepted(identity) {
        // CLUSTERDOWN, MOVED …: what matters is that it is a cluster.
        Err(_) if session.facts.role == Role::ClusterMember => None,
        identity => record(identity?)?,
    };
    Ok(Reply::Facts(Box::new(Facts {
        generation: session.generation,
        clock: clock(time)?,
        record,
        server: session.facts.clone(),
    })))
}

/// One page of a scan: where the next one starts, and everything found so far.
fn scanned(
    replies: &[Value],
    prefix: &str,
    name_prefix: &str,
    mut found: BTreeMap<LockName, Fence>,
) -> Read<(Vec<u8>, BTreeMap<LockName, Fence>)> {
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
    Ok((cursor.clone(), found))
}

/// The replies to GET, PTTL and TYPE of a lock's key.
fn looked(replies: &[Value]) -> Read<(Option<Owner>, Option<Duration>)> {
    let [value, left, kind] = replies else {
        return Err(garbled(replies));
    };
    let value = if is_wrong_type(value) { &Value::Nil } else { accepted(value)? };
    let owner = owner(value, accepted(kind)?)?;
    // It may have expired in between.
    if owner.is_none() || *left == Value::Int(-2) {
        return Ok((None, None));
    }
    Ok((owner, expires_in(accepted(left)?)?))
}

fn owner(value: &Value, kind: &Value) -> Read<Option<Owner>> {
    match (value, kind.str()) {
        (Value::Text(value), _) => Ok(Some(Owner::from_value(value))),
        // `string`: it was written in between.
        (Value::Nil, Some("none" | "string")) => Ok(None),
        (Value::Nil, Some(_)) => foreign(kind).map(Some),
        _ => Err(garbled(&[value.clone(), kind.clone()])),
    }
}

fn foreign(kind: &Value) -> Read<Owner> {
    let kind = kind.str().ok_or_else(|| garbled(std::slice::from_ref(kind)))?;
    Ok(Owner::ForeignKey { kind: kind.to_owned() })
}

/// What PTTL says.
fn expires_in(left: &Value) -> Read<Option<Duration>> {
    match left {
        Value::Int(-1) => Ok(None),
        Value::Int(-2) => Ok(Some(Duration::ZERO)),
        Value::Int(millis @ 0..) => Ok(Some(Duration::from_millis(*millis as u64))),
        other => Err(garbled(std::slice::from_ref(other))),
    }
}

/// A score. Some servers print large ones with an exponent.
fn fence(score: &Value) -> Read<Fence> {
    let number = match score {
        Value::Double(number) => Some(*number),
        other => other.str().and_then(|text| text.parse().ok()),
    };
    let whole = number.filter(|n| (0.0..=Fence::MAX.get() as f64).contains(n) && n.fract() == 0.0);
    whole
        .and_then(|number| Fence::new(number as u64))
        .ok_or_else(|| garbled(std::slice::from_ref(score)))
}

/// What TIME says: seconds and microseconds.
fn clock(time: &[Value]) -> Read<WallMicros> {
    let number = |value: &Value| value.str()?.parse::<u64>().ok();
    let micros = match time {
        [seconds, micros] => number(seconds).zip(number(micros)),
        _ => None,
    };
    let (seconds, micros) = micros.ok_or_else(|| garbled(time))?;
    Ok(WallMicros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
}

fn record(value: &Value) -> Read<Option<String>> {
    match value {
        Value::Nil => Ok(None),
        // One that is no text at all is no record of ours, and is then refused as such.
        Value::Text(text) => Ok(Some(String::from_utf8_lossy(text).into_owned())),
        other => Err(garbled(std::slice::from_ref(other))),
    }
}

/// The value of the one setting that CONFIG GET was asked for.
pub(super) fn setting(value: &Value) -> Option<&str> {
    match value {
        Value::Array(pair) => pair.get(1)?.str(),
        _ => None,
    }
}

fn tagged(value: &Value) -> Read<(&str, &[Value])> {
    match value {
        Value::Array(items) => match items.split_first() {
            Some((tag, rest)) => Ok((tag.str().unwrap_or_default(), rest)),
            None => Err(garbled(std::slice::from_ref(value))),
        },
        other => Err(garbled(std::slice::from_ref(other))),
    }
}

fn only(replies: &[Value]) -> Read<&Value> {
    match replies {
        [value] => accepted(value),
        _ => Err(garbled(replies)),
    }
}

fn accepted(value: &Value) -> Read<&Value> {
    value.error().map_or(Ok(value), |words| Err(rejected(words)))
}

fn is_wrong_type(value: &Value) -> bool {
    value.error().is_some_and(|words| words.starts_with("WRONGTYPE"))
}

fn is_forbidden(value: &Value) -> bool {
    let words = value.error().unwrap_or_default();
    words.starts_with("NOPERM") || words.starts_with("ERR unknown command")
}

/// The server's own words, and what to do where they do not say it.
pub(super) fn rejected(words: &str) -> NodeError {
    // Scripts append their name and line: ` script: <sha>, on @user_script:36.`
    let words = match words.rsplit_once(" script: ") {
        Some((words, place)) if place.contains("@user_script") => words,
        _ => words,
    };
    let hint = match words.split(' ').next().unwrap_or_default() {
        "NOAUTH" => "; give a password in the URL",
        "NOPERM" => "; the rights that are needed stand in docs/backends/redis.md",
        "READONLY" => "; a replica cannot vote",
        "WRONGTYPE" => "; `leasehold:node` and `leasehold:fences` must be left to leasehold",
        _ if words.contains("ACL failure") || words.contains("executing the script can't") => {
            "; the rights that are needed stand in docs/backends/redis.md"
        }
        _ => "",
    };
    NodeError::Rejected { reason: format!("{words}{hint}") }
}

fn garbled(replies: &[Value]) -> NodeError {
    NodeError::Garbled { reason: excerpt(format!("{replies:?}").as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn only_one_shape_is_a_grant() {
        assert_eq!(acquired(&Value::Int(1)), Ok(Reply::Granted));
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
            let read = acquired(&shape);
            assert!(matches!(read, Err(NodeError::Garbled { .. })), "{shape:?} -> {read:?}");
        }
    }

    #[test]
    fn scores_are_read_exactly_in_every_notation() {
        let max = Fence::MAX;
        for score in [text("9007199254740991"), text("9.007199254740991e15")] {
            assert_eq!(fence(&score), Ok(max));
        }
        assert_eq!(fence(&Value::Double(9_007_199_254_740_991.0)), Ok(max));
        assert!(fence(&Value::Double(f64::NAN)).is_err() && fence(&text("inf")).is_err());
    }

    #[test]
    fn an_error_keeps_the_servers_words() {
        let words = "OOM command not allowed. script: f00, on @user_script:1.";
        assert_eq!(
            rejected(words),
            NodeError::Rejected { reason: "OOM command not allowed.".into() }
        );
    }
}
