//! A question over plain HTTP, for probes and for reading what a server says of itself. A connection
//! per question, and HTTP/1.0, so that the answer ends with the connection.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// As long as a busy machine may need for a page.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// `200` and so on.
    pub status: u16,
    /// The lines before the body, without the status line.
    pub headers: String,
    /// The body.
    pub body: String,
}

/// Asks `addr` (`host:port`) for `path`.
pub fn http_get(addr: &str, path: &str) -> io::Result<HttpAnswer> {
    http_send(addr, "GET", path, "")
}

/// Sends `json` to `path` of `addr` (`host:port`), by the method `POST`, `DELETE` …
pub fn http_send(addr: &str, method: &str, path: &str, json: &str) -> io::Result<HttpAnswer> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    let length = json.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {addr}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{json}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    parse(&answer).ok_or_else(|| io::Error::other(format!("not an HTTP answer: {answer:?}")))
}

fn parse(answer: &str) -> Option<HttpAnswer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = first.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(HttpAnswer { status, headers: headers.to_owned(), body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        let answer = parse("HTTP/1.1 503 Service Unavailable\r\nA: b\r\n\r\nno\r\n\r\nquorum");
        let expected =
            HttpAnswer { status: 503, headers: "A: b".into(), body: "no\r\n\r\nquorum".into() };
        assert_eq!(answer, Some(expected));
    }

    #[test]
    fn what_is_no_answer_is_said_to_be_none() {
        assert_eq!(parse("+PONG\r\n\r\n"), None);
        assert_eq!(parse(""), None);
    }
}
