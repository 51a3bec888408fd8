//! Where Alertmanager delivers: remembers every alert it was told of.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// An alert, and to which path it came.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) path: String,
    pub(crate) alert: Value,
}

/// A receiver of alerts on a port of its own.
pub(crate) struct Webhook {
    addr: String,
    told: Arc<Mutex<Vec<Told>>>,
}

impl Webhook {
    pub(crate) fn start() -> Webhook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address").to_string();
        let told = Arc::new(Mutex::new(Vec::new()));
        let book = told.clone();
        // Ends with the test process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let book = book.clone();
                thread::spawn(move || while take(&stream, &book).is_some() {});
            }
        });
        Webhook { addr, told }
    }

    pub(crate) fn addr(&self) -> &str {
        &self.addr
    }

    /// What came so far of this alert in this state (`firing` or `resolved`).
    pub(crate) fn told(&self, alert: &str, status: &str) -> Vec<Told> {
        let told = self.told.lock().expect("no panic").clone();
        let is_wanted = |told: &Told| {
            told.alert["labels"]["alertname"] == *alert && told.alert["status"] == *status
        };
        told.into_iter().filter(is_wanted).collect()
    }

    /// All that came, for a message.
    pub(crate) fn all(&self) -> String {
        format!("{:#?}", self.told.lock().expect("no panic"))
    }
}

/// One delivery; `None` when the sender is gone, or says what nobody understands.
fn take(stream: &TcpStream, book: &Mutex<Vec<Told>>) -> Option<()> {
    let mut input = BufReader::new(stream);
    let mut first = String::new();
    input.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    let message: Value = serde_json::from_slice(&body).ok()?;
    let alerts = message["alerts"].as_array()?.iter().cloned();
    book.lock().ok()?.extend(alerts.map(|alert| Told { path: path.clone(), alert }));
    let mut output = stream;
    output.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()
}
