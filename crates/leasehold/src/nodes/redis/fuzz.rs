//! Odd replies: any bytes in any pieces, and any values to any of our requests. Nothing but the one
//! shape that means so is ever a grant, an extension or a release.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use leasehold_core::{Fence, Holder, LockName, Pass, Reply, Request, Ttl};
use leasehold_testkit::{Input, fuzz};

use super::answer::Step;
use super::exchange::{Exchange, Session};
use super::info::{self, CompareAndDelete};
use super::resp::{Decoded, Value, decode};
use super::script::CallBy;

const REPLIES: [&[u8]; 9] = [
    b"*4\r\n$4\r\nBUSY\r\n$35\r\nme:00000000000000000000000000000001\r\n:1500\r\n$2\r\n17\r\n",
    b"*3\r\n$8\r\nEXTENDED\r\n$10\r\n1800000000\r\n$6\r\n123456\r\n:1\r\n+OK\r\n",
    b"%2\r\n+a\r\n*2\r\n,1.5\r\n#t\r\n$3\r\nx\r\n\r\n|1\r\n+k\r\n+v\r\n=5\r\ntxt:y\r\n",
    b"-NOSCRIPT No matching script.\r\n_\r\n$-1\r\n*-1\r\n(123456789012345678901\r\n",
    b">2\r\n+invalidate\r\n*0\r\n~2\r\n:1\r\n:2\r\n!5\r\nERR x\r\n",
    b"*99999999\r\n",
    b"$67108865\r\n",
    b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    b"%1048576\r\n~1048576\r\n",
];

/// Reads all that is there, as a connection does.
fn take(buffer: &mut BytesMut, resp3: bool, values: &mut Vec<Value>) -> Result<(), String> {
    loop {
        let before = buffer.len();
        match decode(buffer, resp3)? {
            Decoded::Reply(value, used) => {
                assert!((1..=before).contains(&used));
                values.push(value);
                buffer.advance(used);
            }
            Decoded::Push(_, used) => {
                assert!((1..=before).contains(&used));
                buffer.advance(used);
            }
            Decoded::Incomplete => return Ok(()),
        }
    }
}

/// Sets and maps have no order, and none of our replies is one.
fn sorted(values: &[Value]) -> String {
    let text = |value: &Value| match value {
        Value::Array(items) => {
            let mut items: Vec<_> =
                items.iter().map(|item| sorted(std::slice::from_ref(item))).collect();
            items.sort_unstable();
            format!("{items:?}")
        }
        other => format!("{other:?}"),
    };
    values.iter().map(text).collect()
}

/// Bytes that a value keeps reserved.
fn room(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.capacity(),
        Value::Error(words) => words.capacity(),
        Value::Array(items) => {
            items.capacity() * size_of::<Value>() + items.iter().map(room).sum::<usize>()
        }
        _ => 0,
    }
}

#[test]
fn any_bytes_in_any_pieces_are_read_like_the_whole() {
    fuzz(6000, &REPLIES, |input| {
        let resp3 = input.byte() % 4 != 0;
        let pieces: Vec<usize> = (0..3).map(|_| usize::from(input.byte())).collect();
        let bytes = input.rest();
        let (mut whole, mut at_once) = (BytesMut::from(bytes), Vec::new());
        let verdict = take(&mut whole, resp3, &mut at_once);
        let reserved: usize = at_once.iter().map(room).sum();
        assert!(reserved <= 256 * bytes.len(), "{reserved} bytes for {}", bytes.len());
        let (mut buffer, mut by_pieces, mut rest) = (BytesMut::new(), Vec::new(), bytes);
        let mut ended = Ok(());
        for piece in pieces.into_iter().chain([usize::MAX]) {
            let (some, more) = rest.split_at(piece.min(rest.len()));
            buffer.extend_from_slice(some);
            rest = more;
            ended = take(&mut buffer, resp3, &mut by_pieces);
            if ended.is_err() {
                break;
            }
        }
        assert_eq!(sorted(&by_pieces), sorted(&at_once));
        assert_eq!(ended.is_err(), verdict.is_err());
        if ended.is_ok() {
            assert_eq!(buffer, whole);
        }
    });
}

/// Writes a value as a server does.
fn encode(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Nil => out.extend(b"_\r\n"),
        Value::Int(number) => out.extend(format!(":{number}\r\n").bytes()),
        Value::Double(number) => out.extend(format!(",{number}\r\n").bytes()),
        Value::Text(text) => {
            out.extend(format!("${}\r\n", text.len()).bytes());
            out.extend(text);
            out.extend(b"\r\n");
        }
        Value::Error(words) => {
            out.extend(format!("!{}\r\n{words}\r\n", words.len()).bytes());
        }
        Value::Array(items) => {
            out.extend(format!("*{}\r\n", items.len()).bytes());
            items.iter().for_each(|item| encode(item, out));
        }
    }
}

const TAGS: [&str; 10] = [
    "EXTENDED",
    "HEALED",
    "BUSY",
    "FOREIGN",
    "BEHIND",
    "SUPERSEDED",
    "STRANGER",
    "NOT_HELD",
    "GRANTED",
    "OK",
];

fn value(input: &mut Input<'_>, depth: usize) -> Value {
    let number = |input: &mut Input<'_>| input.number() as i64;
    match input.below(if depth == 0 { 7 } else { 11 }) {
        0 => Value::Nil,
        1 => Value::Int(input.pick(&[1, 0, -1, -2, 2, i64::MAX, i64::MIN])),
        2 => Value::Int(number(input)),
        3 => Value::Double(input.pick(&[1.0, 0.0, -0.5, 1e300, 9_007_199_254_740_992.0])),
        4 => Value::Text(input.pick(&TAGS).into()),
        5 => Value::Text(match input.below(3) {
            0 => input.number().to_string().into_bytes(),
            1 => input.bytes().to_vec(),
            _ => b"me:00000000000000000000000000000001".to_vec(),
        }),
        6 => Value::Error(format!(
            "{} {}",
            input.pick(&["NOSCRIPT", "ERR", "WRONGTYPE"]),
            input.text()
        )),
        _ => {
            let count = input.below(5);
            let mut items: Vec<_> = (0..count).map(|_| value(input, depth - 1)).collect();
            // Mostly with a tag in front, as our scripts answer.
            if input.below(4) != 0 {
                items.insert(0, Value::Text(input.pick(&TAGS).into()));
            }
            Value::Array(items)
        }
    }
}

#[test]
fn any_value_is_read_back_as_it_was_sent() {
    fuzz(4000, &[], |input| {
        let (sent, mut bytes) = (value(input, 3), Vec::new());
        encode(&sent, &mut bytes);
        let length = bytes.len();
        assert_eq!(decode(&bytes, true), Ok(Decoded::Reply(sent, length)));
    });
}

fn requests() -> Vec<Request> {
    let (lock, holder) = (LockName::new("l").unwrap(), Holder::new("me", 1).unwrap());
    let (low, high) = (Fence::new(7).unwrap(), Fence::new(9).unwrap());
    let ttl = Ttl::new(Duration::from_secs(1)).unwrap();
    vec![
        Request::Acquire { lock: lock.clone(), holder: holder.clone(), proposal: low, ttl },
        Request::Extend {
            lock: lock.clone(),
            holder: holder.clone(),
            token: low,
            next: high,
            unbroken: false,
            ttl,
        },
        Request::Release { lock: lock.clone(), holder: holder.clone() },
        Request::ForceRelease { lock: lock.clone(), holder, fence: low, reason: None },
        Request::Inspect { lock },
        Request::List { prefix: String::new() },
        Request::Probe,
        Request::ReplaceRecord { expected: None, record: "r".into() },
        Request::ForgetIdle { below: low },
    ]
}

/// Whether these replies mean what a reply claims; for replies that claim something.
fn is_earned(request: &Request, replies: &[Value], reply: &Reply) -> bool {
    let is_number = |value: &Value| value.str().is_some_and(|text| text.parse::<u64>().is_ok());
    let tagged = |tag: &str| match replies {
        [Value::Array(items)] => {
            matches!(items.as_slice(), [Value::Text(text), a, b]
                if text == tag.as_bytes() && is_number(a) && is_number(b))
        }
        _ => false,
    };
    match reply {
        Reply::Granted => matches!(request, Request::Acquire { .. }) && replies == [Value::Int(1)],
        Reply::Released => {
            matches!(request, Request::Release { .. } | Request::ForceRelease { .. })
                && replies == [Value::Int(1)]
        }
        Reply::Extended { .. } => matches!(request, Request::Extend { .. }) && tagged("EXTENDED"),
        Reply::Healed { .. } => matches!(request, Request::Extend { .. }) && tagged("HEALED"),
        Reply::Record { replaced: true } => {
            matches!(request, Request::ReplaceRecord { .. }) && replies == [Value::Int(1)]
        }
        _ => true,
    }
}

#[test]
fn any_values_to_any_request_grant_nothing_that_they_do_not_say() {
    fuzz(8000, &[], |input| {
        let mut session = Session::of_connection(1);
        session.compare_and_delete =
            input.pick(&[None, Some(CompareAndDelete::DelIfEq), Some(CompareAndDelete::DelEx)]);
        let all = requests();
        let request = Arc::new(all[input.below(all.len())].clone());
        let pass = (input.below(5) != 0).then(|| Pass {
            record: "r".into(),
            generation: 1,
            floor: Fence::ZERO,
            max_ttl: Duration::from_secs(30),
            has_waited: true,
        });
        let mut exchange = Exchange::new(request.clone(), pass.clone().map(Arc::new), &session);
        for _ in 0..6 {
            let expected = exchange.send(&mut session, &mut Vec::new());
            // As many as are waited for, or, from a caller that counts wrongly, any number.
            let count = if input.below(8) == 0 { input.below(9) } else { expected };
            let replies: Vec<_> = (0..count).map(|_| value(input, 3)).collect();
            let by_sha = exchange.by == CallBy::Sha;
            match exchange.receive(&replies, &mut session) {
                Step::Answer(Ok(reply)) => {
                    assert!(is_earned(&request, &replies, &reply), "{replies:?} -> {reply:?}");
                    let claims = matches!(reply, Reply::Granted | Reply::Extended { .. });
                    assert!(pass.is_some() || !claims, "without a pass there is no vote");
                    return;
                }
                Step::Answer(Err(error)) => {
                    assert!(error.to_string().len() < 2000);
                    return;
                }
                Step::Again(next) => {
                    assert!(by_sha || next.by == CallBy::Sha, "a script is sent whole once");
                    exchange = next;
                }
            }
        }
    });
}

#[test]
fn any_text_is_an_info_or_is_not() {
    let good = b"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:f00\r\n\
        maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\nrole:master\r\n\
        master_replid:ba5\r\n";
    let other = b"valkey_version:9.0.0\r\nrole:slave\r\nrun_id:x\r\nmaster_replid:y\r\n";
    fuzz(4000, &[good, other], |input| {
        if let Some((facts, ..)) = info::read(&input.rest_as_text()) {
            // They become words of the identity record, and of scripts.
            for id in [&facts.run_id, &facts.replication_id] {
                assert!(!id.contains(|c: char| c.is_whitespace() || c == '\''), "{id:?}");
            }
        }
    });
}
