//! A Redis at the far end of a pipe: connections that open late or never, bytes that take their
//! time, replies that arrive in pieces, and cuts at any point.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

use super::address::Address;
use super::bystanders::Deliver;
use super::commands::{Session, take_command};
use super::site::{Dialing, Site, Wire};
use crate::nodes::redis::{Dial, Opening};

/// As much as a socket's buffer holds.
const PIPE_BYTES: usize = 64 * 1024;

/// How a client reaches the server behind an address.
pub(super) fn dial(address: &Arc<Address>) -> Dial {
    let (name, address) = (address.name.as_str().into(), address.clone());
    Dial { name, open: Arc::new(move || -> Opening { Box::pin(open(address.clone())) }) }
}

async fn open(
    address: Arc<Address>,
) -> io::Result<(crate::nodes::redis::Reader, crate::nodes::redis::Writer)> {
    let Some(site) = address.next() else {
        return Err(io::ErrorKind::HostUnreachable.into());
    };
    let (from, to) = site.sky().up;
    site.world.sleep(from, to).await;
    let dialing = site.sky().dialing;
    match dialing {
        Dialing::Refuses => return Err(io::ErrorKind::ConnectionRefused.into()),
        Dialing::Hangs => std::future::pending().await,
        Dialing::Accepts => site.way_up().await,
    }
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let wire = site.accept();
    tokio::spawn(serve(site, far, wire));
    let (reader, writer) = tokio::io::split(near);
    Ok((Box::new(reader), Box::new(writer)))
}

/// Some bytes, and when they arrive.
type Chunk = (Instant, Vec<u8>);

/// What becomes of a connection with one command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lives,
    BreaksBefore,
    BreaksAfter,
    BreaksInside,
}

async fn serve(site: Arc<Site>, far: DuplexStream, wire: Arc<Wire>) {
    let (from_client, to_client) = tokio::io::split(far);
    let (up, arriving) = unbounded_channel();
    let (down, leaving) = unbounded_channel();
    // Of its own: what is on its way may arrive after the client was told that all is over.
    tokio::spawn(carry_out(site.clone(), wire.clone(), arriving, down));
    tokio::select! {
        biased;
        () = wire.cut.cancelled() => {}
        () = bring(&site, &wire, from_client, up) => {}
        () = send(&site, &wire, to_client, leaving) => {}
    }
}

async fn bring(
    site: &Site,
    wire: &Wire,
    mut from_client: ReadHalf<DuplexStream>,
    up: UnboundedSender<Chunk>,
) {
    let mut last = Instant::now();
    let mut bytes = vec![0; 4096];
    while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
        let (from, to) = site.sky().up;
        last = last.max(Instant::now() + site.world.millis(from, to));
        if up.send((last, bytes[..count].to_vec())).is_err() {
            break;
        }
    }
    site.redis().bystanders.part(wire.number);
    // The client is gone; what it sent is still carried out.
    up.closed().await;
}

async fn carry_out(
    site: Arc<Site>,
    wire: Arc<Wire>,
    mut arriving: UnboundedReceiver<Chunk>,
    down: UnboundedSender<(Chunk, Fate)>,
) {
    let mut session = Session::new(&wire);
    let mut life = wire.life;
    site.redis().bystanders.join(wire.clone(), deliverer(&site, &down));
    let mut bytes = Vec::new();
    let mut last = Instant::now();
    while let Some((at, chunk)) = arriving.recv().await {
        sleep_until(at).await;
        site.way_up().await;
        bytes.extend(chunk);
        while let Some(words) = take_command(&mut bytes) {
            let is_gone = wire.cut.is_cancelled() && !wire.haunts.load(Ordering::SeqCst);
            let is_reborn = site.redis().life != life;
            if is_gone || is_reborn && !wire.is_pooled.load(Ordering::SeqCst) {
                return;
            }
            if is_reborn {
                // The proxy has another connection to the server, on which nothing was agreed yet.
                life = site.redis().life;
                session = Session::new(&wire);
                site.redis().bystanders.join(wire.clone(), deliverer(&site, &down));
            }
            let fate = fate(&site);
            if fate == Fate::BreaksBefore {
                return wire.cut.cancel();
            }
            let reply = session.carry_out(&site, &words);
            if fate == Fate::BreaksAfter {
                return wire.cut.cancel();
            }
            let (from, to) = site.sky().down;
            last = last.max(Instant::now() + site.world.millis(from, to));
            let _ = down.send(((last, reply), fate));
        }
    }
}

/// How a connection is told what it did not ask for.
fn deliverer(site: &Arc<Site>, down: &UnboundedSender<(Chunk, Fate)>) -> Deliver {
    let (site, down) = (Arc::downgrade(site), down.clone());
    Arc::new(move |bytes| {
        let Some(site) = site.upgrade() else { return };
        let (from, to) = site.sky().down;
        let at = Instant::now() + site.world.millis(from, to);
        let _ = down.send(((at, bytes), Fate::Lives));
    })
}

fn fate(site: &Site) -> Fate {
    let breaks = site.sky().breaks;
    if breaks == 0 || !site.world.chance(breaks) {
        return Fate::Lives;
    }
    match site.world.below(3) {
        0 => Fate::BreaksBefore,
        1 => Fate::BreaksAfter,
        _ => Fate::BreaksInside,
    }
}

async fn send(
    site: &Site,
    wire: &Wire,
    mut to_client: WriteHalf<DuplexStream>,
    mut leaving: UnboundedReceiver<(Chunk, Fate)>,
) {
    while let Some(((at, reply), fate)) = leaving.recv().await {
        sleep_until(at).await;
        site.way_down().await;
        // In two pieces now and then, as networks do.
        let middle = match fate {
            Fate::BreaksInside => site.world.below(reply.len() as u64) as usize,
            _ if site.world.chance(20) => site.world.below(reply.len() as u64) as usize,
            _ => 0,
        };
        let (first, rest) = reply.split_at(middle);
        if to_client.write_all(first).await.is_err() {
            return;
        }
        if fate == Fate::BreaksInside {
            return wire.cut.cancel();
        }
        if middle > 0 {
            site.world.sleep(0, 2).await;
        }
        if to_client.write_all(rest).await.is_err() {
            return;
        }
    }
}
