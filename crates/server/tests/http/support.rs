//! A server of one's own, and a client that can do what well-behaved ones do not.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use leasehold::Locks;
use leasehold_server::{Limits, Server, ServerError, Settings};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A server over locks in memory, which a test can also reach directly.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) locks: Locks,
    pub(crate) settings: Settings,
}

impl Running {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// With settings of its own.
    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let locks = Locks::open("memory:").await.unwrap();
        let mut settings = Settings::default();
        settings.backend = "memory".into();
        settings.limits = Limits::default();
        change(&mut settings);
        Self::on(locks, settings)
    }

    /// Over these locks.
    pub(crate) fn on(locks: Locks, settings: Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(locks.clone(), settings.clone(), listener).unwrap();
        Self { server, locks, settings }
    }

    /// Takes the settings as they are now, and reads their files.
    pub(crate) fn reload(&self) -> Result<(), ServerError> {
        self.server.reload(&self.settings)
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection::to(self.server.address()).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        self.connect().await.ask(method, path, &[], body).await
    }

    /// Acquires and says the lease's id and fence.
    pub(crate) async fn acquire(&self, name: &str, body: &str) -> (String, u64) {
        let answer = self.ask("POST", &format!("/v1/locks/{name}/leases"), body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let id = answer.json["lease_id"].as_str().unwrap().to_owned();
        (id, answer.json["fence"].as_u64().unwrap())
    }

    /// Whether nobody holds the lock.
    pub(crate) async fn is_free(&self, name: &str) -> bool {
        self.locks.inspect_as_answered(name).await.unwrap().owner().is_none()
    }

    /// A figure of `/metrics`: the line that begins like this.
    pub(crate) async fn metric(&self, line: &str) -> f64 {
        let text = self.ask("GET", "/metrics", "").await.text;
        let found = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {line} in {text}")).parse().unwrap()
    }
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
    /// The body, if it is JSON.
    pub(crate) json: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// The last word of a problem's type.
    pub(crate) fn problem(&self) -> &str {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.json["status"], self.status, "{self:?}");
        self.json["type"].as_str().unwrap().rsplit(':').next().unwrap()
    }
}

/// A connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n");
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            text += "Content-Type: application/json\r\n";
        }
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads one answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        let head = self.until(b"\r\n\r\n").await.expect("an answer");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, text: String::new(), json: Value::Null };
        let length = answer.header("content-length").map_or(0, |text| text.parse().unwrap());
        while self.read.len() < length {
            assert!(self.fill().await, "the body was cut off");
        }
        let body: Vec<u8> = self.read.drain(..length).collect();
        answer.text = String::from_utf8(body).unwrap();
        answer.json = serde_json::from_str(&answer.text).unwrap_or(Value::Null);
        answer
    }

    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.send(method, path, headers, body).await;
        self.answer().await
    }

    /// Reads up to and including `end`; `None` if the connection ends before.
    pub(crate) async fn until(&mut self, end: &[u8]) -> Option<String> {
        let start = Instant::now();
        loop {
            let wanted = String::from_utf8_lossy(end);
            assert!(start.elapsed() < Duration::from_secs(30), "all but `{wanted}` came");
            let found = self.read.windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                let text = self.read.drain(..at + end.len()).collect();
                return Some(String::from_utf8(text).unwrap());
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Reads what is there; false at the end.
    pub(crate) async fn fill(&mut self) -> bool {
        let reading = self.stream.read_buf(&mut self.read);
        match tokio::time::timeout(Duration::from_secs(30), reading).await.expect("some bytes") {
            Ok(read) => read > 0,
            Err(_) => false,
        }
    }
}

/// Waits until `is_so`, for as long as a busy machine may take.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < Duration::from_secs(20), "not so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
