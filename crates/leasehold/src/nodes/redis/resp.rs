//! Bytes to values and commands to bytes. The parsing is the `redis-protocol` crate's; this file
//! adds what it lacks against a hostile or broken server: a bound on size and on nesting.

use redis_protocol::resp2::types::OwnedFrame as Frame2;
use redis_protocol::resp3::types::{OwnedFrame as Frame3, Resp3Frame as _};

/// The longest reply. The longest legitimate one is a page of a list: some hundred keys of at most
/// a kilobyte; a foreign value at a lock's key may be longer, but nobody needs to see it.
pub(super) const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The longest line: a header, a number, a status or an error.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// How deep replies nest. Ours need three levels; the parser recurses, and would exhaust the stack.
const NESTING_MAX: usize = 16;

/// A reply of the server, whichever version of the protocol it came by.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Nil,
    Int(i64),
    Double(f64),
    Text(Vec<u8>),
    Error(String),
    Array(Vec<Value>),
}

impl Value {
    pub(super) fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn str(&self) -> Option<&str> {
        std::str::from_utf8(self.text()?).ok()
    }

    /// The server's words, if it is an error.
    pub(super) fn error(&self) -> Option<&str> {
        match self {
            Self::Error(words) => Some(words),
            _ => None,
        }
    }
}

/// What the next bytes are.
#[derive(Debug, PartialEq)]
pub(super) enum Decoded {
    /// A reply, and how many bytes it took.
    Reply(Value, usize),
    /// A message that nobody asked for, and how many bytes it took.
    Push(Value, usize),
    /// More bytes are needed.
    Incomplete,
}

/// Reads one reply. The error says how the server broke the protocol.
pub(super) fn decode(bytes: &[u8], resp3: bool) -> Result<Decoded, String> {
    // What a healthy server says to almost everything.
    if let [b':', digit @ b'0'..=b'9', b'\r', b'\n', ..] = bytes {
        return Ok(Decoded::Reply(Value::Int(i64::from(digit - b'0')), 4));
    }
    let Some(length) = measure(bytes)? else {
        if bytes.len() > REPLY_BYTES_MAX {
            return Err(format!("a reply of more than {REPLY_BYTES_MAX} bytes"));
        }
        return Ok(Decoded::Incomplete);
    };
    let frame = &bytes[..length];
    let broken = || match resp3 && [b"$-1\r\n", b"*-1\r\n"].iter().any(|nil| contains(frame, *nil))
    {
        true => "a reply of RESP2 on a connection that spoke RESP3: something between us and the \
                 server opened it anew"
            .to_owned(),
        false => format!("no reply at all: `{}`", excerpt(frame)),
    };
    let whole = |used: usize| {
        if used == length { Ok(used) } else { Err(broken()) }
    };
    if !resp3 {
        let read = redis_protocol::resp2::decode::decode(frame).ok().flatten();
        let (frame, used) = read.ok_or_else(broken)?;
        return Ok(Decoded::Reply(from_resp2(frame), whole(used)?));
    }
    let read = redis_protocol::resp3::decode::complete::decode(frame).ok().flatten();
    match read.ok_or_else(broken)? {
        // Nobody waits for it: one that cannot be read is none.
        (Frame3::Push { data, .. }, used) => {
            let items = data.into_iter().map(from_resp3).collect::<Result<_, _>>();
            Ok(Decoded::Push(items.map_or(Value::Nil, Value::Array), whole(used)?))
        }
        (frame, used) => Ok(Decoded::Reply(from_resp3(frame)?, whole(used)?)),
    }
}

/// Whether `part` stands anywhere in `bytes`.
fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The beginning of some bytes, printable.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(60)];
    shown.escape_ascii().to_string()
}

/// How long the first reply is, if all of it has arrived. Looks at the frames' headers only.
fn measure(bytes: &[u8]) -> Result<Option<usize>, String> {
    // How many more frames each open aggregate waits for.
    let mut open: Vec<usize> = vec![1];
    let mut at = 0;
    while let Some(left) = open.last_mut() {
        if *left == 0 {
            open.pop();
            continue;
        }
        *left -= 1;
        let Some(&kind) = bytes.get(at) else {
            return Ok(None);
        };
        if !b"+-:_,#($!=*~>%|".contains(&kind) {
            return Err(format!("no reply at all: `{}`", excerpt(&bytes[at..])));
        }
        let line = bytes[at..].windows(2).take(LINE_BYTES_MAX).position(|pair| pair == b"\r\n");
        let Some(line) = line else {
            if bytes.len() - at > LINE_BYTES_MAX {
                return Err(format!("a line of more than {LINE_BYTES_MAX} bytes"));
            }
            return Ok(None);
        };
        let header = &bytes[at + 1..at + line];
        at += line + 2;
        if b"+-:_,#(".contains(&kind) {
            continue;
        }
        let count: Option<i64> = std::str::from_utf8(header).ok().and_then(|n| n.parse().ok());
        let count = match count {
            // Null, as RESP2 writes it.
            Some(-1) => continue,
            Some(count @ 0..) => count as usize,
            _ => return Err(format!("a length of `{}`", excerpt(header))),
        };
        if count > REPLY_BYTES_MAX {
            return Err(format!("a reply of more than {REPLY_BYTES_MAX} bytes"));
        }
        match kind {
            b'$' | b'!' | b'=' => {
                at += count + 2;
                if at > bytes.len() {
                    return Ok(None);
                }
            }
            b'%' => open.push(count * 2),
            // Attributes stand before the frame that they are about.
            b'|' => open.push(count * 2 + 1),
            _ => open.push(count),
        }
        if open.len() > NESTING_MAX {
            return Err(format!("a reply that nests deeper than {NESTING_MAX} levels"));
        }
    }
    Ok(Some(at))
}

fn from_resp2(frame: Frame2) -> Value {
    match frame {
        Frame2::SimpleString(text) | Frame2::BulkString(text) => Value::Text(text),
        Frame2::Error(words) => Value::Error(words),
        Frame2::Integer(number) => Value::Int(number),
        Frame2::Array(items) => Value::Array(items.into_iter().map(from_resp2).collect()),
        Frame2::Null => Value::Nil,
    }
}

fn from_resp3(frame: Frame3) -> Result<Value, String> {
    let all = |items: Vec<Frame3>| -> Result<Value, String> {
        Ok(Value::Array(items.into_iter().map(from_resp3).collect::<Result<_, _>>()?))
    };
    Ok(match frame {
        Frame3::BlobString { data, .. }
        | Frame3::SimpleString { data, .. }
        | Frame3::VerbatimString { data, .. } => Value::Text(data),
        Frame3::SimpleError { data, .. } => Value::Error(data),
        Frame3::BlobError { data, .. } => Value::Error(String::from_utf8_lossy(&data).into_owned()),
        Frame3::Boolean { data, .. } => Value::Int(data.into()),
        Frame3::Number { data, .. } => Value::Int(data),
        Frame3::Double { data, .. } => Value::Double(data),
        Frame3::Null => Value::Nil,
        Frame3::Array { data, .. } => all(data)?,
        Frame3::Set { data, .. } => all(data.into_iter().collect())?,
        Frame3::Map { data, .. } => all(data.into_iter().flat_map(|(k, v)| [k, v]).collect())?,
        other => return Err(format!("a frame of the kind {:?}", other.kind())),
    })
}

/// Writes one command.
pub(super) fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    count(out, b'*', words.len());
    words.iter().for_each(|bytes| word(out, bytes));
}

/// Writes one word of a command.
pub(super) fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    count(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Writes how many words or bytes follow.
pub(super) fn count(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    out.extend_from_slice(digits(number as u64, &mut [0; 20]));
    out.extend_from_slice(b"\r\n");
}

/// The digits of a number.
pub(super) fn digits(mut number: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut from = room.len();
    loop {
        from -= 1;
        room[from] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &room[from..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn a_null_of_resp2_tells_that_the_connection_was_opened_anew() {
        let bytes = b"*2\r\n$1\r\na\r\n$-1\r\n";
        assert!(matches!(decode(bytes, false), Ok(Decoded::Reply(..))));
        let error = decode(bytes, true).unwrap_err();
        assert!(error.contains("opened it anew"), "{error}");
    }

    #[test]
    fn a_command_is_an_array_of_strings() {
        let mut out = Vec::new();
        encode(&mut out, &[b"GET", b"", b"0123456789"]);
        assert_eq!(&out[..], b"*3\r\n$3\r\nGET\r\n$0\r\n\r\n$10\r\n0123456789\r\n");
    }

    #[test]
    fn both_versions_read_alike() {
        let resp2: &[u8] = b"*4\r\n$4\r\nBUSY\r\n:-1\r\n$-1\r\n+OK\r\n";
        let resp3: &[u8] = b"*4\r\n$4\r\nBUSY\r\n:-1\r\n_\r\n+OK\r\n";
        let value = Value::Array(vec![text("BUSY"), Value::Int(-1), Value::Nil, text("OK")]);
        assert_eq!(decode(resp2, false), Ok(Decoded::Reply(value.clone(), resp2.len())));
        assert_eq!(decode(resp3, true), Ok(Decoded::Reply(value, resp3.len())));
        assert_eq!(decode(b"*-1\r\n", false), Ok(Decoded::Reply(Value::Nil, 5)));
    }

    #[test]
    fn every_beginning_of_a_reply_waits_for_the_rest() {
        let whole: &[u8] =
            b"%2\r\n+a\r\n*2\r\n,1.5\r\n#t\r\n$3\r\nx\r\n\r\n|1\r\n+k\r\n+v\r\n=5\r\ntxt:y\r\n";
        for cut in 0..whole.len() {
            assert_eq!(decode(&whole[..cut], true), Ok(Decoded::Incomplete), "{cut}");
        }
        let mut more = whole.to_vec();
        more.extend_from_slice(b"+next");
        let Ok(Decoded::Reply(Value::Array(items), used)) = decode(&more, true) else { panic!() };
        assert_eq!((items.len(), used), (4, whole.len()));
    }

    #[test]
    fn pushes_are_told_apart() {
        let push = Decoded::Push(Value::Array(vec![text("x")]), 8);
        assert_eq!(decode(b">1\r\n+x\r\n:1\r\n", true), Ok(push));
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic() {
        let deep = b"*1\r\n".repeat(1_000_000);
        let endless = b"+".repeat(100_000);
        let bad: [&[u8]; 11] = [
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"\0\0\0\0",
            b"$-2\r\n",
            b"*99999999999\r\n",
            b"$99999999999999999999\r\n",
            b"*?\r\n",
            b":one\r\n",
            b"#maybe\r\n",
            b"=1\r\nx\r\n",
            &deep,
            &endless,
        ];
        for bytes in bad {
            for resp3 in [false, true] {
                // RESP2 has no booleans and no verbatim strings, so it objects to these as well.
                let got = decode(bytes, resp3);
                assert!(got.is_err(), "{} -> {got:?}", excerpt(bytes));
            }
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut chance = leasehold_judge::Chance::new(1);
        let alphabet = b"+-:_,#($!=*~>%|0123459\r\n\r\n?tfxyz ";
        for _ in 0..100_000 {
            let length = chance.below(40);
            let bytes: Vec<u8> = (0..length).map(|_| *chance.pick(alphabet)).collect();
            for resp3 in [false, true] {
                if let Ok(Decoded::Reply(_, used) | Decoded::Push(_, used)) = decode(&bytes, resp3)
                {
                    assert!(used > 0 && used <= bytes.len());
                }
            }
        }
    }
}
