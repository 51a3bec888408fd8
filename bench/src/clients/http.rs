//! A caller of a lock server that does the least: a connection per task, requests by hand.

use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::lock_server::LockServer;

/// Callers of one server.
#[derive(Debug)]
pub(crate) struct Http {
    server: LockServer,
    /// Each used by one task at a time.
    idle: Mutex<Vec<TcpStream>>,
}

impl Http {
    /// Starts a server for these nodes.
    pub(crate) fn open(addrs: &[String]) -> Result<Self, String> {
        Ok(Self { server: LockServer::start(addrs)?, idle: Mutex::default() })
    }

    /// Acquires and says the lease's id.
    pub(crate) async fn acquire(&self, name: &str) -> Result<String, String> {
        let path = format!("/v1/locks/{}/leases", name.replace('/', "%2F"));
        let answer = self.ask("POST", &path, "{}").await?;
        let id = answer.split_once("\"lease_id\":\"").and_then(|(_, rest)| rest.split_once('"'));
        match id {
            Some((id, _)) if answer.starts_with("HTTP/1.1 201") => Ok(id.to_owned()),
            _ => Err(answer),
        }
    }

    /// Gives it back.
    pub(crate) async fn release(&self, id: &str) -> Result<(), String> {
        let answer = self.ask("DELETE", &format!("/v1/leases/{id}"), "").await?;
        if answer.starts_with("HTTP/1.1 204") { Ok(()) } else { Err(answer) }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, String> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut stream = match idle {
            Some(stream) => stream,
            None => connect(&self.server.address).await?,
        };
        let answer = exchange(&mut stream, method, path, body).await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        Ok(answer)
    }
}

/// Connects as whoever wants its request out at once.
pub(crate) async fn connect(address: &str) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(stream)
}

/// Sends a request.
pub(crate) async fn send(
    stream: &mut TcpStream,
    method: &str,
    path: &str,
    body: &str,
) -> Result<(), String> {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())
}

/// Sends a request and reads its answer to the end.
pub(crate) async fn exchange(
    stream: &mut TcpStream,
    method: &str,
    path: &str,
    body: &str,
) -> Result<String, String> {
    send(stream, method, path, body).await?;
    let mut answer = Vec::with_capacity(1024);
    loop {
        let read = stream.read_buf(&mut answer).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("the server closed the connection".to_owned());
        }
        if is_whole(&answer)? {
            return String::from_utf8(answer).map_err(|error| error.to_string());
        }
    }
}

/// Whether the head is there, and as much as it promises.
fn is_whole(answer: &[u8]) -> Result<bool, String> {
    let text = std::str::from_utf8(answer).map_err(|error| error.to_string())?;
    let Some((head, rest)) = text.split_once("\r\n\r\n") else { return Ok(false) };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(Ok(0), str::parse).map_err(|_| "no length".to_owned())?;
    Ok(rest.len() >= length)
}
