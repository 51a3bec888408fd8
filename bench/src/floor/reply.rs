//! Just enough RESP2 to know where a reply ends and whether it is a yes.

/// What makes a reply a yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Yes {
    /// `+OK`.
    Ok,
    /// `:1`.
    One,
    /// The lock was set, its fence went up, and the node is who it should be: the answer to the
    /// `EXEC` of a transaction of SET, ZADD, ZSCORE and GET.
    Transaction,
}

/// The length of the first reply in `bytes`, if all of it is there.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let after_line = line_end + 2;
    let number = || number(&bytes[1..line_end]);
    match bytes[0] {
        b'$' => match number() {
            Some(length) => {
                let end = after_line + length + 2;
                (bytes.len() >= end).then_some(end)
            }
            None => Some(after_line),
        },
        b'*' => {
            let mut end = after_line;
            for _ in 0..number().unwrap_or(0) {
                end += length(&bytes[end..])?;
            }
            Some(end)
        }
        _ => Some(after_line),
    }
}

/// Whether `reply` is the yes that was hoped for. `identity` is what the node should call itself.
pub(super) fn is(reply: &[u8], yes: Yes, identity: &[u8]) -> bool {
    match yes {
        Yes::Ok => reply == b"+OK\r\n",
        Yes::One => reply == b":1\r\n",
        Yes::Transaction => {
            reply.starts_with(b"*4\r\n+OK\r\n:1\r\n")
                && reply.strip_suffix(b"\r\n").is_some_and(|rest| rest.ends_with(identity))
        }
    }
}

/// `None` for the -1 of something absent.
fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_it_ends() {
        for whole in [
            &b"+OK\r\n"[..],
            b":1\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"-ERR no\r\n",
            b"$4\r\na\r\nb\r\n",
            b"*0\r\n",
            b"*3\r\n+OK\r\n$2\r\nab\r\n*1\r\n:7\r\n",
        ] {
            let followed = [whole, b":5\r\n"].concat();
            assert_eq!(length(&followed), Some(whole.len()));
            for cut in 0..whole.len() {
                assert_eq!(length(&whole[..cut]), None, "{cut} bytes of {whole:?}");
            }
        }
    }

    #[test]
    fn only_the_right_answer_is_a_yes() {
        assert!(is(b"+OK\r\n", Yes::Ok, b""));
        assert!(!is(b"$-1\r\n", Yes::Ok, b""));
        assert!(is(b":1\r\n", Yes::One, b""));
        assert!(!is(b":0\r\n", Yes::One, b""));
        let exec = b"*4\r\n+OK\r\n:1\r\n$1\r\n7\r\n$2\r\nme\r\n";
        assert!(is(exec, Yes::Transaction, b"me"));
        assert!(!is(exec, Yes::Transaction, b"you"));
        let behind = b"*4\r\n+OK\r\n:0\r\n$1\r\n9\r\n$2\r\nme\r\n";
        assert!(!is(behind, Yes::Transaction, b"me"));
        let busy = b"*4\r\n$-1\r\n:1\r\n$1\r\n7\r\n$2\r\nme\r\n";
        assert!(!is(busy, Yes::Transaction, b"me"));
    }
}
