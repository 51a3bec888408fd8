//! Single values: what a score, a time, an owner or an error looks like on the wire. Whatever does
//! not have the one shape that it can have is `Garbled`; nothing here guesses.

use std::time::Duration;

use leasehold_core::{Fence, NodeError, Owner, WallMicros};

use super::resp::{Value, excerpt};

/// What was read, or why the reply counts for nothing.
pub(super) type Read<T> = Result<T, NodeError>;

/// The replies to GET, PTTL and TYPE of a lock's key.
pub(super) fn looked(replies: &[Value]) -> Read<(Option<Owner>, Option<Duration>)> {
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

pub(super) fn owner(value: &Value, kind: &Value) -> Read<Option<Owner>> {
    match (value, kind.str()) {
        (Value::Text(value), _) => Ok(Some(Owner::from_value(value))),
        // `string`: it was written in between.
        (Value::Nil, Some("none" | "string")) => Ok(None),
        (Value::Nil, Some(_)) => foreign(kind).map(Some),
        _ => Err(garbled(&[value.clone(), kind.clone()])),
    }
}

pub(super) fn foreign(kind: &Value) -> Read<Owner> {
    let kind = kind.str().ok_or_else(|| garbled(std::slice::from_ref(kind)))?;
    Ok(Owner::ForeignKey { kind: kind.to_owned() })
}

/// What PTTL says.
pub(super) fn expires_in(left: &Value) -> Read<Option<Duration>> {
    match left {
        Value::Int(-1) => Ok(None),
        Value::Int(-2) => Ok(Some(Duration::ZERO)),
        Value::Int(millis @ 0..) => Ok(Some(Duration::from_millis(*millis as u64))),
        other => Err(garbled(std::slice::from_ref(other))),
    }
}

/// A score. Some servers print large ones with an exponent.
pub(super) fn fence(score: &Value) -> Read<Fence> {
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
pub(super) fn clock(time: &[Value]) -> Read<WallMicros> {
    let number = |value: &Value| value.str()?.parse::<u64>().ok();
    let micros = match time {
        [seconds, micros] => number(seconds).zip(number(micros)),
        _ => None,
    };
    let (seconds, micros) = micros.ok_or_else(|| garbled(time))?;
    Ok(WallMicros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
}

pub(super) fn record(value: &Value) -> Read<Option<String>> {
    match value {
        Value::Nil => Ok(None),
        // One that is no text at all is no record of ours, and is then refused as such.
        Value::Text(text) => Ok(Some(String::from_utf8_lossy(text).into_owned())),
        other => Err(garbled(std::slice::from_ref(other))),
    }
}

pub(super) fn tagged(value: &Value) -> Read<(&str, &[Value])> {
    match value {
        Value::Array(items) => match items.split_first() {
            Some((tag, rest)) => Ok((tag.str().unwrap_or_default(), rest)),
            None => Err(garbled(std::slice::from_ref(value))),
        },
        other => Err(garbled(std::slice::from_ref(other))),
    }
}

pub(super) fn only(replies: &[Value]) -> Read<&Value> {
    match replies {
        [value] => accepted(value),
        _ => Err(garbled(replies)),
    }
}

pub(super) fn accepted(value: &Value) -> Read<&Value> {
    value.error().map_or(Ok(value), |words| Err(rejected(words)))
}

pub(super) fn is_wrong_type(value: &Value) -> bool {
    value.error().is_some_and(|words| without_place(words).starts_with("WRONGTYPE"))
}

/// The server does not know the script that was named.
pub(super) fn is_forgotten(value: &Value) -> bool {
    value.error().is_some_and(|words| words.contains("NOSCRIPT"))
}

/// The key is, or should be, on another server of its cluster.
pub(super) fn is_of_a_cluster(value: &Value) -> bool {
    let words = value.error().unwrap_or_default();
    ["MOVED ", "ASK ", "CLUSTERDOWN "].iter().any(|word| words.starts_with(word))
}

/// No such command, no right to it, or another version's idea of it.
pub(super) fn is_unusable(value: &Value) -> bool {
    value.error().is_some_and(|words| words.starts_with("NOPERM") || words.starts_with("ERR "))
}

/// The server's own words, and what to do where they do not say it.
pub(super) fn rejected(words: &str) -> NodeError {
    let words = without_place(words);
    let with = |hint: &str| format!("{words}{hint}");
    match words.split(' ').next().unwrap_or_default() {
        "NOAUTH" => NodeError::Denied { reason: with("; give a password in the URL") },
        "WRONGPASS" => NodeError::Denied { reason: with("") },
        "NOPERM" => NodeError::Denied { reason: with(RIGHTS) },
        // The first word of an error is part of the protocol; scripts put it otherwise.
        _ if words.contains("ACL failure") || words.contains("executing the script can't") => {
            NodeError::Denied { reason: with(RIGHTS) }
        }
        "READONLY" => NodeError::Rejected { reason: with("; a replica cannot vote") },
        "WRONGTYPE" => NodeError::Rejected {
            reason: with("; `leasehold:node` and `leasehold:fences:…` must be left to leasehold"),
        },
        _ => NodeError::Rejected { reason: with("") },
    }
}

/// Scripts tell their name and line: ` script: <sha>, on @user_script:36.` at the end, and before
/// Redis 7 `ERR Error running script (call to f_<sha>): @user_script:36: ` at the beginning.
fn without_place(words: &str) -> &str {
    let old = words.strip_prefix("ERR Error running script").and_then(|rest| {
        let (_, line_and_words) = rest.split_once("@user_script:")?;
        Some(line_and_words.split_once(": ")?.1)
    });
    match words.rsplit_once(" script: ") {
        Some((words, place)) if place.contains("@user_script") => words,
        _ => old.unwrap_or(words),
    }
}

const RIGHTS: &str = "; the rights that are needed stand in docs/backends/redis.md";

pub(super) fn garbled(replies: &[Value]) -> NodeError {
    NodeError::Garbled { reason: excerpt(format!("{replies:?}").as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.into())
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
    fn a_denial_is_told_apart_from_other_errors() {
        for words in [
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOPERM this user has no permissions to run the 'zadd' command",
            "ERR The user executing the script can't run this command or subcommand",
            "ERR ACL failure in script: this user has no permissions",
        ] {
            assert!(matches!(rejected(words), NodeError::Denied { .. }), "{words}");
        }
        for words in ["LOADING the dataset", "READONLY can't write", "ERR NOAUTH is no command"] {
            assert!(matches!(rejected(words), NodeError::Rejected { .. }), "{words}");
        }
    }

    #[test]
    fn an_error_keeps_the_servers_words() {
        let old =
            "ERR Error running script (call to f_f00): @user_script:9: WRONGTYPE Operation: no";
        assert_eq!(without_place(old), "WRONGTYPE Operation: no");
        let words = "OOM command not allowed. script: f00, on @user_script:1.";
        assert_eq!(
            rejected(words),
            NodeError::Rejected { reason: "OOM command not allowed.".into() }
        );
    }
}
