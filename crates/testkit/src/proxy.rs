//! A TCP proxy that misbehaves on request, for existing and new connections alike.
//!
//! Each connection has two directions, and each direction two threads: one reads and stamps every
//! chunk, one delivers it. What happens to a chunk is decided at delivery, by the fault in force
//! then; so a fault also governs what is already under way.
//!
//! TCP never loses bytes in the middle of a connection, so neither does the proxy: a connection on
//! which something was swallowed or made up is closed when the fault changes. Otherwise a client
//! would take the reply to its second request for the reply to its first, which no real network
//! makes it do.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use leasehold_judge::Chance;

use crate::ports::ReservedPort;

/// Between two bytes of [`Fault::OneByteAtATime`]: enough for the other side to wake up and read
/// one.
const DRIP_EVERY: Duration = Duration::from_micros(200);
/// How long a change of fault waits for a delivery under the old one to end. Only a peer that reads
/// nothing while a megabyte is sent to it can use this up.
const SETTLE_WITHIN: Duration = Duration::from_secs(1);

/// What the proxy does to the bytes that pass through it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// Delivers every chunk, in either direction, this long after it arrived.
    Delay(Duration),
    /// Delivers nothing, and everything at once and in order when the fault changes: a long delay
    /// whose end the test chooses.
    Stall,
    /// Accepts and reads, but delivers nothing either way, not even the end of a connection.
    BlackHole,
    /// Requests reach the server, its replies are swallowed.
    DropReplies,
    /// Requests are swallowed.
    DropRequests,
    /// Closes all connections, and new ones as soon as they are accepted.
    Refuse,
    /// Delivers the next request chunk, from whichever connection, closes that connection when the
    /// server's reply to it comes, and passes everything from then on: the request has taken
    /// effect, and its sender will not learn it.
    CutAfterRequest,
    /// Answers every request chunk with these bytes; the server sees nothing of it.
    Garbage(Vec<u8>),
    /// Delivers every byte by itself, 0.2 ms apart.
    OneByteAtATime,
}

/// Which connections a fault is for; the others pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All, also those yet to come.
    All,
    /// Those that are open when the fault is put in force: with [`Fault::BlackHole`] the other end
    /// of each is gone, nobody says so, and who connects anew is served.
    Open,
    /// Every other one in the order of their making, beginning with the first: some clients have
    /// lost the server, others have not.
    Odd,
    /// The rest of those.
    Even,
}

/// What has gone through a proxy since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted, also those that were closed at once.
    pub connections: u64,
    /// Bytes read from clients.
    pub from_clients: u64,
    /// Bytes of those that were delivered to the server.
    pub to_server: u64,
    /// Bytes read from the server.
    pub from_server: u64,
    /// Bytes delivered to clients, also those that were made up.
    pub to_clients: u64,
}

/// Which server a new connection is led to. A connection stays with the server that it was led to.
#[derive(Clone, Debug)]
enum Route {
    One(String),
    /// The servers in turn; the number is that of the next one.
    Turns(Vec<String>, usize),
    /// Any of the servers.
    Random(Vec<String>, Chance),
}

impl Route {
    fn next(&mut self) -> String {
        match self {
            Route::One(addr) => addr.clone(),
            Route::Turns(addrs, turn) => {
                let addr = addrs[*turn % addrs.len()].clone();
                *turn += 1;
                addr
            }
            Route::Random(addrs, chance) => addrs[chance.index(addrs.len())].clone(),
        }
    }
}

/// A proxy in front of a server, or of several that it takes for one. Dropping it closes its
/// connections and ends its threads.
pub struct Proxy {
    shared: Arc<Shared>,
    port: ReservedPort,
    acceptor: Option<JoinHandle<()>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy {} -> {:?}", self.addr(), self.shared.lock().route)
    }
}

impl Proxy {
    /// Starts a proxy to `addr` (`host:port`) on a free port. The server need not be there yet.
    pub fn to(addr: impl Into<String>) -> Proxy {
        let (port, listener) = ReservedPort::listen();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                route: Route::One(addr.into()),
                fault: Fault::Pass,
                scope: Scope::All,
                open_until: 0,
                closing: false,
                delivering: 0,
                links: Vec::new(),
                threads: Vec::new(),
            }),
            changed: Condvar::new(),
            connections: AtomicU64::new(0),
            read: [AtomicU64::new(0), AtomicU64::new(0)],
            delivered: [AtomicU64::new(0), AtomicU64::new(0)],
        });
        let for_acceptor = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept_all(&listener, &for_acceptor));
        Proxy { shared, port, acceptor: Some(acceptor) }
    }

    /// Leads new connections to `addr` from now on. Those that are open stay with the server that
    /// they have, as when a name in the DNS changes.
    pub fn retarget(&self, addr: impl Into<String>) {
        self.shared.lock().route = Route::One(addr.into());
    }

    /// Leads the next connection to the first of `addrs`, the second to the second, and so on in
    /// turns: a load balancer where one server is expected.
    pub fn retarget_in_turns(&self, addrs: impl IntoIterator<Item = String>) {
        self.shared.lock().route = Route::Turns(addrs.into_iter().collect(), 0);
    }

    /// The same, but each connection is led to any of them; one seed gives one sequence.
    pub fn retarget_at_random(&self, addrs: impl IntoIterator<Item = String>, seed: u64) {
        let route = Route::Random(addrs.into_iter().collect(), Chance::new(seed));
        self.shared.lock().route = route;
    }

    /// Where clients reach the proxy: `127.0.0.1:port`.
    pub fn addr(&self) -> String {
        self.port.addr()
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// Puts a fault in force. When this returns, nothing is delivered under the former one any
    /// more.
    pub fn set(&self, fault: Fault) {
        self.set_for(Scope::All, fault);
    }

    /// Puts a fault in force for some connections only.
    pub fn set_for(&self, scope: Scope, fault: Fault) {
        let mut state = self.shared.lock();
        if state.fault == fault && state.scope == scope {
            return;
        }
        state.fault = fault;
        state.scope = scope;
        state.open_until = self.shared.connections.load(Ordering::Relaxed);
        for link in &state.links {
            if state.refuses(link.number) || link.spoiled.load(Ordering::Relaxed) {
                link.close();
            }
        }
        self.shared.changed.notify_all();
        let settled = self
            .shared
            .changed
            .wait_timeout_while(state, SETTLE_WITHIN, |state| state.delivering > 0);
        drop(settled.expect(UNPOISONED));
    }

    /// The fault in force.
    pub fn fault(&self) -> Fault {
        self.shared.lock().fault.clone()
    }

    /// What has gone through so far.
    pub fn counts(&self) -> Counts {
        let shared = &self.shared;
        let [from_clients, from_server] = [0, 1].map(|i| shared.read[i].load(Ordering::Relaxed));
        let [to_server, to_clients] = [0, 1].map(|i| shared.delivered[i].load(Ordering::Relaxed));
        let connections = shared.connections.load(Ordering::Relaxed);
        Counts { connections, from_clients, to_server, from_server, to_clients }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let threads = {
            let mut state = self.shared.lock();
            state.closing = true;
            state.links.iter().for_each(|link| link.close());
            std::mem::take(&mut state.threads)
        };
        self.shared.changed.notify_all();
        // Wakes the acceptor, which sees that it should end.
        let _ = TcpStream::connect(self.addr());
        for thread in threads.into_iter().chain(self.acceptor.take()) {
            let _ = thread.join();
        }
    }
}

const UNPOISONED: &str = "no proxy thread panics with the state locked";

struct Shared {
    state: Mutex<State>,
    /// Told when the fault changes, when the proxy closes and when a delivery ends.
    changed: Condvar,
    connections: AtomicU64,
    /// Bytes by [`Direction`].
    read: [AtomicU64; 2],
    delivered: [AtomicU64; 2],
}

struct State {
    route: Route,
    fault: Fault,
    scope: Scope,
    /// The number of the last connection when the fault was put in force.
    open_until: u64,
    closing: bool,
    /// Threads that write to a socket right now.
    delivering: usize,
    links: Vec<Arc<Link>>,
    threads: Vec<JoinHandle<()>>,
}

impl State {
    /// Whether the fault in force is for connection `number`.
    fn concerns(&self, number: u64) -> bool {
        match self.scope {
            Scope::All => true,
            Scope::Open => number <= self.open_until,
            Scope::Odd => number % 2 == 1,
            Scope::Even => number.is_multiple_of(2),
        }
    }

    fn refuses(&self, number: u64) -> bool {
        self.fault == Fault::Refuse && self.concerns(number)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(UNPOISONED)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests = 0,
    Replies = 1,
}

/// One client's connection and the one to the server made for it.
struct Link {
    /// Counted from 1 in the order of their making.
    number: u64,
    client: TcpStream,
    /// None when the server could not be reached: some faults do without.
    server: Option<TcpStream>,
    /// Bytes were swallowed or made up.
    spoiled: AtomicBool,
    /// The next reply closes the link.
    cut: AtomicBool,
    /// Directions that came to their end.
    ended: AtomicU64,
}

impl Link {
    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        if let Some(server) = &self.server {
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    fn source(&self, direction: Direction) -> Option<&TcpStream> {
        match direction {
            Direction::Requests => Some(&self.client),
            Direction::Replies => self.server.as_ref(),
        }
    }

    fn target(&self, direction: Direction) -> Option<&TcpStream> {
        match direction {
            Direction::Requests => self.server.as_ref(),
            Direction::Replies => Some(&self.client),
        }
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        if shared.lock().closing {
            return;
        }
        let number = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let server_addr = {
            let mut state = shared.lock();
            if state.refuses(number) {
                continue;
            }
            state.route.next()
        };
        let server = TcpStream::connect(server_addr).ok();
        for stream in [Some(&client), server.as_ref()].into_iter().flatten() {
            let _ = stream.set_nodelay(true);
        }
        let link = Arc::new(Link {
            number,
            client,
            server,
            spoiled: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            ended: AtomicU64::new(0),
        });

        let mut state = shared.lock();
        if state.closing {
            return;
        }
        if state.refuses(number) {
            continue;
        }
        state.links.retain(|link| {
            link.ended.load(Ordering::Relaxed) < 2 || link.spoiled.load(Ordering::Relaxed)
        });
        state.threads.retain(|thread| !thread.is_finished());
        state.links.push(Arc::clone(&link));
        for direction in [Direction::Requests, Direction::Replies] {
            let (chunks, to_deliver) = channel();
            let reader = (Arc::clone(shared), Arc::clone(&link));
            let deliverer = (Arc::clone(shared), Arc::clone(&link));
            state.threads.push(thread::spawn(move || {
                let (shared, link) = reader;
                read_all(&shared, &link, direction, &chunks);
            }));
            state.threads.push(thread::spawn(move || {
                let (shared, link) = deliverer;
                deliver_all(&shared, &link, direction, &to_deliver);
                link.ended.fetch_add(1, Ordering::Relaxed);
            }));
        }
    }
}

struct Chunk {
    arrived: Instant,
    /// Empty at the end of the stream.
    bytes: Vec<u8>,
}

fn read_all(shared: &Shared, link: &Link, direction: Direction, chunks: &Sender<Chunk>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = match link.source(direction) {
            Some(mut source) => source.read(&mut buffer).unwrap_or(0),
            None => return,
        };
        shared.read[direction as usize].fetch_add(length as u64, Ordering::Relaxed);
        let chunk = Chunk { arrived: Instant::now(), bytes: buffer[..length].to_vec() };
        if chunks.send(chunk).is_err() || length == 0 {
            return;
        }
    }
}

/// What to do with a chunk under the fault in force.
enum Treatment {
    Deliver,
    DeliverOneByte,
    Swallow,
    Answer(Vec<u8>),
    Close,
}

fn deliver_all(shared: &Shared, link: &Link, direction: Direction, chunks: &Receiver<Chunk>) {
    for chunk in chunks {
        let mut rest = chunk.bytes.as_slice();
        let is_end = rest.is_empty();
        loop {
            let treatment = treat(shared, link, direction, &chunk);
            let done = match &treatment {
                Treatment::Deliver if is_end => {
                    if let Some(target) = link.target(direction) {
                        let _ = target.shutdown(Shutdown::Write);
                    }
                    Ok(rest.len())
                }
                Treatment::Deliver => write(shared, link, direction, rest),
                Treatment::DeliverOneByte => write(shared, link, direction, &rest[..1]),
                Treatment::Answer(bytes) => {
                    write(shared, link, Direction::Replies, bytes).map(|_| rest.len())
                }
                Treatment::Swallow => Ok(rest.len()),
                Treatment::Close => Err(()),
            };
            settle(shared);
            let Ok(done) = done else {
                link.close();
                return;
            };
            rest = &rest[done..];
            if rest.is_empty() {
                break;
            }
            thread::sleep(DRIP_EVERY);
        }
    }
}

fn write(shared: &Shared, link: &Link, direction: Direction, bytes: &[u8]) -> Result<usize, ()> {
    let mut target = link.target(direction).ok_or(())?;
    // Counted before it is sent: who has seen the bytes also sees them counted.
    shared.delivered[direction as usize].fetch_add(bytes.len() as u64, Ordering::Relaxed);
    target.write_all(bytes).map_err(drop)?;
    Ok(bytes.len())
}

/// Decides, once the fault in force lets this chunk go, and opens a delivery that [`settle`] ends.
fn treat(shared: &Shared, link: &Link, direction: Direction, chunk: &Chunk) -> Treatment {
    let mut state = shared.lock();
    let treatment = loop {
        if state.closing {
            break Treatment::Close;
        }
        let requests = direction == Direction::Requests;
        let is_end = chunk.bytes.is_empty();
        match &state.fault {
            _ if !requests && link.cut.load(Ordering::Relaxed) => break Treatment::Close,
            _ if !state.concerns(link.number) => break Treatment::Deliver,
            Fault::Refuse => break Treatment::Close,
            Fault::Pass => break Treatment::Deliver,
            Fault::Delay(delay) => {
                let wait = (chunk.arrived + *delay).saturating_duration_since(Instant::now());
                if wait.is_zero() {
                    break Treatment::Deliver;
                }
                state = shared.changed.wait_timeout(state, wait).expect(UNPOISONED).0;
            }
            Fault::Stall => state = shared.changed.wait(state).expect(UNPOISONED),
            Fault::BlackHole => break Treatment::Swallow,
            Fault::DropReplies if requests => break Treatment::Deliver,
            Fault::DropReplies => break Treatment::Swallow,
            Fault::DropRequests if requests => break Treatment::Swallow,
            Fault::DropRequests => break Treatment::Deliver,
            Fault::CutAfterRequest => {
                if requests && !is_end {
                    state.fault = Fault::Pass;
                    link.cut.store(true, Ordering::Relaxed);
                }
                break Treatment::Deliver;
            }
            Fault::Garbage(_) if is_end => break Treatment::Deliver,
            Fault::Garbage(bytes) if requests => break Treatment::Answer(bytes.clone()),
            Fault::Garbage(_) => break Treatment::Swallow,
            Fault::OneByteAtATime if is_end => break Treatment::Deliver,
            Fault::OneByteAtATime => break Treatment::DeliverOneByte,
        }
    };
    if matches!(treatment, Treatment::Swallow | Treatment::Answer(_)) {
        link.spoiled.store(true, Ordering::Relaxed);
    }
    state.delivering += 1;
    treatment
}

fn settle(shared: &Shared) {
    shared.lock().delivering -= 1;
    shared.changed.notify_all();
}

#[cfg(test)]
mod tests;
