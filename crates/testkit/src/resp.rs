//! A blocking RESP2 connection, just enough to ask a server what happened. It shares no code with
//! the client under test, so it cannot share its mistakes.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A paused server must fail a test, not hang it.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No such thing.
    Nil,
    /// An integer.
    Int(i64),
    /// A status or a bulk string; bytes that are not UTF-8 are replaced.
    Text(String),
    /// A list.
    Array(Vec<Value>),
}

impl Value {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(int) => Some(*int),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum CallError {
    /// The server answered with an error.
    Refused(String),
    /// There was no usable answer.
    Broken(io::Error),
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> CallError {
        CallError::Broken(error)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Refused(text) => f.write_str(text),
            CallError::Broken(error) => write!(f, "{error}"),
        }
    }
}

trait Stream: Read + Write + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// One connection to a server, or to a proxy in front of one.
pub struct Connection {
    stream: BufReader<Box<dyn Stream>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects to `host:port`. Calls on it give up after 5 seconds.
    pub fn to(addr: &str) -> io::Result<Connection> {
        Connection::to_within(addr, ANSWER_WITHIN)
    }

    /// Connects to `host:port`; calls on it give up after `limit`.
    pub fn to_within(addr: &str, limit: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Connection { stream: BufReader::new(Box::new(stream)) })
    }

    pub(crate) fn to_socket(path: &Path) -> io::Result<Connection> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(Connection { stream: BufReader::new(Box::new(stream)) })
    }

    /// Sends one command and waits for its answer. An error is the server's own text, or what
    /// became of the connection.
    pub fn call(&mut self, command: &[&str]) -> Result<Value, String> {
        self.try_call(command).map_err(|error| error.to_string())
    }

    pub(crate) fn try_call(&mut self, command: &[&str]) -> Result<Value, CallError> {
        let mut request = format!("*{}\r\n", command.len()).into_bytes();
        for part in command {
            request.extend_from_slice(format!("${}\r\n{part}\r\n", part.len()).as_bytes());
        }
        self.stream.get_mut().write_all(&request)?;
        self.read_value()
    }

    fn read_value(&mut self) -> Result<Value, CallError> {
        let line = self.read_line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| unreadable(&line))?;
        let number = || rest.parse::<i64>().map_err(|_| unreadable(&line));
        match kind {
            "+" => Ok(Value::Text(rest.to_owned())),
            "-" => Err(CallError::Refused(rest.to_owned())),
            ":" => Ok(Value::Int(number()?)),
            "$" => match usize::try_from(number()?) {
                Err(_) => Ok(Value::Nil),
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Ok(Value::Text(String::from_utf8_lossy(&bytes).into_owned()))
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Ok(Value::Nil),
                Ok(length) => {
                    let items: Result<_, _> = (0..length).map(|_| self.read_value()).collect();
                    Ok(Value::Array(items?))
                }
            },
            _ => Err(unreadable(&line)),
        }
    }

    fn read_line(&mut self) -> Result<String, CallError> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            let closed = io::Error::new(io::ErrorKind::UnexpectedEof, "connection closed");
            return Err(CallError::Broken(closed));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }
}

fn unreadable(line: &str) -> CallError {
    CallError::Broken(io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {line:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answer_to_ping(reply: &'static [u8]) -> Result<Value, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 14];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(&request, b"*1\r\n$4\r\nPING\r\n");
            stream.write_all(reply).unwrap();
        });
        let answer = Connection::to(&addr).unwrap().call(&["PING"]);
        server.join().unwrap();
        answer
    }

    #[test]
    fn reads_every_kind_of_reply() {
        let text = |text: &str| Ok(Value::Text(text.into()));
        assert_eq!(answer_to_ping(b"+PONG\r\n"), text("PONG"));
        assert_eq!(answer_to_ping(b"$4\r\na\r\nb\r\n"), text("a\r\nb"));
        assert_eq!(answer_to_ping(b":-2\r\n"), Ok(Value::Int(-2)));
        assert_eq!(answer_to_ping(b"$-1\r\n"), Ok(Value::Nil));
        assert_eq!(
            answer_to_ping(b"*2\r\n:1\r\n*1\r\n+x\r\n"),
            Ok(Value::Array(vec![Value::Int(1), Value::Array(vec![Value::Text("x".into())])]))
        );
    }

    #[test]
    fn an_error_is_the_servers_text_and_nonsense_is_an_error() {
        assert_eq!(answer_to_ping(b"-LOADING soon\r\n"), Err("LOADING soon".into()));
        assert_eq!(answer_to_ping(b"HTTP/1.1\r\n"), Err("not a reply: \"HTTP/1.1\"".into()));
        assert_eq!(answer_to_ping(b"+PO"), Err("connection closed".into()));
    }
}
