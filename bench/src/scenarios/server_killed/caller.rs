//! A client's connection to the balancer, kept for as long as it lasts.

use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::clients::http;

/// One request at a time.
#[derive(Debug)]
pub(super) struct Caller {
    address: String,
    stream: Option<TcpStream>,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Null where it is no JSON.
    pub(super) body: Value,
}

impl Caller {
    /// Of whoever listens at `address`.
    pub(super) fn new(address: String) -> Caller {
        Caller { address, stream: None }
    }

    /// An answer, or why there is none.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
        limit: Duration,
    ) -> Result<Answer, &'static str> {
        match timeout(limit, self.exchange(method, path, body)).await {
            Ok(answer) => answer,
            Err(_) => Err("no answer in time"),
        }
    }

    async fn exchange(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<Answer, &'static str> {
        // Put back only behind a whole answer.
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => http::connect(&self.address).await.map_err(|_| "no connection")?,
        };
        let text = http::exchange(&mut stream, method, path, body).await;
        let text = text.map_err(|_| "connection cut")?;
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        if !head.contains("\r\nconnection: close") {
            self.stream = Some(stream);
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = serde_json::from_str(body).unwrap_or_default();
        Ok(Answer { status: status.unwrap_or(0), body })
    }
}
