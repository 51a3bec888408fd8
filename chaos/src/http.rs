//! Requests to a lock server, each on a connection of its own.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// What a lock server answered.
#[derive(Debug)]
pub struct Answer {
    /// `201` and so on.
    pub status: u16,
    /// The body; `Null` if there is none.
    pub body: Value,
}

/// A question to a lock server.
#[derive(Debug)]
pub struct Question<'a> {
    /// `POST`, `GET` or `DELETE`.
    pub method: &'a str,
    /// From the first slash on.
    pub path: String,
    /// The `Idempotency-Key`, if it has one.
    pub key: Option<&'a str>,
    /// JSON, or nothing.
    pub body: String,
}

impl Question<'_> {
    /// Asks, and waits for so long; an error says that nobody knows what came of it.
    pub fn ask(&self, addr: &str, patience: Duration) -> io::Result<Answer> {
        let addr = addr.parse().map_err(io::Error::other)?;
        let mut stream = TcpStream::connect_timeout(&addr, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let Self { method, path, body, .. } = self;
        let key = self.key.map_or(String::new(), |key| format!("Idempotency-Key: {key}\r\n"));
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: {addr}\r\nContent-Type: application/json\r\n{key}\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        parse(&answer).ok_or_else(|| io::Error::other(format!("half an answer: {answer:?}")))
    }
}

/// An answer that is whole.
fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    if body.is_empty() {
        return Some(Answer { status, body: Value::Null });
    }
    Some(Answer { status, body: serde_json::from_str(body).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_answer_is_none() {
        let whole = "HTTP/1.0 201 Created\r\nA: b\r\n\r\n{\"a\": 1}";
        assert_eq!(
            parse(whole).map(|answer| (answer.status, answer.body["a"] == 1)),
            Some((201, true))
        );
        assert!(
            (1..whole.len()).all(|cut| parse(&whole[..cut]).is_none_or(|answer| {
                answer.body.is_null() && whole[..cut].ends_with("\r\n\r\n")
            }))
        );
    }
}
