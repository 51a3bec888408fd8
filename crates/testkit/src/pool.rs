//! A proxy that pools connections to a server, as Envoy's `redis_proxy` and some managed services do:
//! a client's connection outlives the server's process, and a restart passes unnoticed.
//!
//! Each request goes to the server as it is and is never sent again: if the server dies before it has
//! answered, or does not answer for five seconds, the client gets an error instead. A request that comes
//! while nobody listens waits as long for the server.
//!
//! It knows where requests and replies of RESP2 end, and forwards one after the other. It knows no
//! pushed messages, so no RESP3 and no SUBSCRIBE.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::ports::ReservedPort;

/// A restarted server is back in 0.1 s; the rest is for a busy machine. Dropping the proxy may take as
/// long if a server is hung.
const SERVER_WITHIN: Duration = Duration::from_secs(5);
const POLL_EVERY: Duration = Duration::from_millis(2);
const UPSTREAM_FAILURE: &[u8] = b"-ERR upstream failure\r\n";

/// A pooling proxy in front of one server. Dropping it closes its connections and ends its threads.
pub struct PoolingProxy {
    shared: Arc<Shared>,
    port: ReservedPort,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    server_addr: String,
    state: Mutex<State>,
    connections: AtomicU64,
    reopened: AtomicU64,
}

#[derive(Default)]
struct State {
    closing: bool,
    clients: Vec<(TcpStream, JoinHandle<()>)>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the state locked")
    }
}

impl fmt::Debug for PoolingProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolingProxy {} -> {}", self.addr(), self.shared.server_addr)
    }
}

impl PoolingProxy {
    /// Starts a proxy to `addr` (`host:port`) on a free port. The server need not be there yet.
    pub fn to(addr: impl Into<String>) -> PoolingProxy {
        let (port, listener) = ReservedPort::listen();
        let shared = Arc::new(Shared {
            server_addr: addr.into(),
            state: Mutex::default(),
            connections: AtomicU64::new(0),
            reopened: AtomicU64::new(0),
        });
        let for_acceptor = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept_all(&listener, &for_acceptor));
        PoolingProxy { shared, port, acceptor: Some(acceptor) }
    }

    /// Where clients reach the proxy: `127.0.0.1:port`.
    pub fn addr(&self) -> String {
        self.port.addr()
    }

    /// How many connections clients have made.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// How often a client's connection went on with a new connection to the server.
    pub fn reopened(&self) -> u64 {
        self.shared.reopened.load(Ordering::Relaxed)
    }
}

impl Drop for PoolingProxy {
    fn drop(&mut self) {
        let clients = {
            let mut state = self.shared.lock();
            state.closing = true;
            std::mem::take(&mut state.clients)
        };
        // Wakes the acceptor, which sees that it should end.
        let _ = TcpStream::connect(self.addr());
        for (client, _) in &clients {
            let _ = client.shutdown(Shutdown::Both);
        }
        for thread in clients.into_iter().map(|(_, thread)| thread).chain(self.acceptor.take()) {
            let _ = thread.join();
        }
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        let mut state = shared.lock();
        if state.closing {
            return;
        }
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let Ok(to_close) = client.try_clone() else {
            continue;
        };
        let for_client = Arc::clone(shared);
        let thread = thread::spawn(move || {
            let _ = serve(&for_client, &client);
            let _ = client.shutdown(Shutdown::Both);
        });
        state.clients.retain(|(_, thread)| !thread.is_finished());
        state.clients.push((to_close, thread));
    }
}

/// Until the client leaves.
fn serve(shared: &Shared, client: &TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut requests = BufReader::new(client);
    let mut server = None;
    let mut was_connected = false;
    loop {
        let request = read_value(&mut requests)?;
        let reply = loop {
            let is_pooled = server.is_some();
            if !is_pooled {
                server = connect(shared);
                let counted = u64::from(server.is_some() && was_connected);
                shared.reopened.fetch_add(counted, Ordering::Relaxed);
                was_connected |= server.is_some();
            }
            match server.as_mut().map(|server| exchange(server, &request)) {
                Some(Ok(reply)) => break reply,
                // Found out before anything was sent: the server had closed it long ago.
                Some(Err(Unanswered::Closed)) if is_pooled => server = None,
                Some(Err(_)) | None => {
                    server = None;
                    break UPSTREAM_FAILURE.to_vec();
                }
            }
        };
        (&mut &*client).write_all(&reply)?;
    }
}

enum Unanswered {
    /// Nothing of the request was sent.
    Closed,
    /// It may have been carried out.
    Lost,
}

fn exchange(server: &mut BufReader<TcpStream>, request: &[u8]) -> Result<Vec<u8>, Unanswered> {
    let is_open = || -> io::Result<bool> {
        let stream = server.get_ref();
        stream.set_nonblocking(true)?;
        let seen = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        Ok(seen.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
    };
    if !is_open().unwrap_or(false) {
        return Err(Unanswered::Closed);
    }
    server.get_mut().write_all(request).map_err(|_| Unanswered::Lost)?;
    read_value(server).map_err(|_| Unanswered::Lost)
}

fn connect(shared: &Shared) -> Option<BufReader<TcpStream>> {
    let end = Instant::now() + SERVER_WITHIN;
    while Instant::now() < end && !shared.lock().closing {
        if let Ok(stream) = TcpStream::connect(&shared.server_addr) {
            let _ = stream.set_nodelay(true);
            let _ = stream.set_read_timeout(Some(SERVER_WITHIN));
            return Some(BufReader::new(stream));
        }
        thread::sleep(POLL_EVERY);
    }
    None
}

/// The bytes of one request or reply.
fn read_value(stream: &mut BufReader<impl io::Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut values_left = 1;
    while values_left > 0 {
        let start = bytes.len();
        stream.read_until(b'\n', &mut bytes)?;
        if bytes.last() != Some(&b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        values_left -= 1;
        let line = String::from_utf8_lossy(&bytes[start..]).into_owned();
        // -1 stands for nothing, and has no body.
        let count = || line[1..].trim_end().parse::<i64>().unwrap_or(0);
        match line.as_bytes()[0] {
            b'*' => values_left += count().max(0),
            b'$' if count() >= 0 => {
                let body = count() as u64 + 2;
                if stream.take(body).read_to_end(&mut bytes)? as u64 != body {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            _ => {}
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Connection, Need, RedisServer, Value, skip};

    fn run_id(connection: &mut Connection) -> String {
        let info = connection.call(&["INFO", "server"]).unwrap();
        let info = info.as_text().unwrap();
        info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().to_owned()
    }

    #[test]
    fn a_clients_connection_outlives_the_server() {
        if skip(Need::Redis) {
            return;
        }
        let server = RedisServer::redis().start();
        let proxy = PoolingProxy::to(server.addr());
        let mut connection = Connection::to(&proxy.addr()).unwrap();
        let before = run_id(&mut connection);
        assert_eq!((proxy.connections(), proxy.reopened()), (1, 0));
        server.restart();
        assert_ne!(run_id(&mut connection), before, "one connection, two servers");
        assert_eq!((proxy.connections(), proxy.reopened()), (1, 1));
    }

    #[test]
    fn a_request_that_may_have_been_carried_out_is_an_error_and_is_not_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = PoolingProxy::to(listener.local_addr().unwrap().to_string());
        let server = thread::spawn(move || {
            let next = |stream: &mut BufReader<TcpStream>| {
                String::from_utf8(read_value(stream).unwrap()).unwrap()
            };
            let mut dies = BufReader::new(listener.accept().unwrap().0);
            assert!(next(&mut dies).contains("INCR"));
            drop(dies);
            let mut lives = BufReader::new(listener.accept().unwrap().0);
            assert!(next(&mut lives).contains("PING"), "nothing comes before it");
            lives.get_mut().write_all(b"+PONG\r\n").unwrap();
        });
        let mut connection = Connection::to(&proxy.addr()).unwrap();
        assert_eq!(connection.call(&["INCR", "n"]), Err("ERR upstream failure".into()));
        assert_eq!(connection.call(&["PING"]), Ok(Value::Text("PONG".into())));
        server.join().unwrap();
    }

    #[test]
    fn requests_and_replies_end_where_they_end() {
        let text: &[u8] =
            b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n+PONG\r\n$-1\r\n*-1\r\n*2\r\n:1\r\n*1\r\n-no\r\n";
        let mut stream = BufReader::new(text);
        let values: Vec<_> = std::iter::from_fn(|| read_value(&mut stream).ok()).collect();
        let values: Vec<_> = values.iter().map(|value| String::from_utf8_lossy(value)).collect();
        let expected = [
            "*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n",
            "+PONG\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*2\r\n:1\r\n*1\r\n-no\r\n",
        ];
        assert_eq!(values, expected);
    }
}
