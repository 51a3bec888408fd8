//! The bytes of a connection, between the socket or TLS and HTTP.
//!
//! HTTP stops reading while a request is under way and bytes behind it stand in its buffer. Nobody would
//! notice then that the peer left, and a waiter that is gone would get the lock. So this reads ahead.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

use crate::delivery::Delivery;

/// So much is read ahead. What comes behind that stays in the socket, which is asked now and then.
const AHEAD_MOST: usize = 16 * 1024;
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long, and how much, is read of a body that nobody wants: a connection that is closed earlier is
/// reset, and the peer never reads the answer.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_MOST: usize = 16 * 1024 * 1024;
/// So much is read at once.
const PIECE: usize = 4096;

/// What a connection tells of its peer. It changes only while the connection is polled.
#[derive(Default)]
pub(crate) struct Peer {
    gone: AtomicBool,
    sends_on: AtomicBool,
}

impl Peer {
    /// It closed its side, or the connection broke.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Its request is answered: whether it may go on to send a body that nobody reads.
    pub(crate) fn may_send_on(&self, may: bool) {
        self.sends_on.store(may, Ordering::Relaxed);
    }
}

/// A connection that tells when everything went out, and when its peer left.
pub(crate) struct Wire<S> {
    stream: S,
    delivery: Arc<Delivery>,
    peer: Arc<Peer>,
    ahead: BytesMut,
    /// HTTP waits for bytes, and so notices the end itself.
    is_awaited: bool,
    /// When to ask the socket next, while no more is read ahead.
    asking: Option<Pin<Box<Sleep>>>,
    lingering: Option<Lingering>,
}

struct Lingering {
    until: Pin<Box<Sleep>>,
    left: usize,
}

/// What one look at a stream brought.
enum Piece {
    Bytes(usize),
    End,
}

impl<S> Wire<S> {
    pub(crate) fn new(stream: S, delivery: Arc<Delivery>, peer: Arc<Peer>) -> Self {
        let ahead = BytesMut::new();
        Self { stream, delivery, peer, ahead, is_awaited: false, asking: None, lingering: None }
    }
}

impl<S: Read + Socket + Unpin> Wire<S> {
    /// Reads a piece of at most so many bytes.
    fn poll_piece(&mut self, context: &mut Context<'_>, most: usize) -> Poll<Piece> {
        let mut bytes = [MaybeUninit::uninit(); PIECE];
        let mut buffer = ReadBuf::uninit(&mut bytes[..most.min(PIECE)]);
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer.unfilled()));
        if read.is_err() || buffer.filled().is_empty() {
            return Poll::Ready(Piece::End);
        }
        self.ahead.extend_from_slice(buffer.filled());
        Poll::Ready(Piece::Bytes(buffer.filled().len()))
    }

    /// Notices that the peer left, while HTTP does not look.
    fn watch(&mut self, context: &mut Context<'_>) {
        if self.is_awaited || self.peer.is_gone() {
            return;
        }
        let room = AHEAD_MOST.saturating_sub(self.ahead.len());
        if room == 0 {
            return self.ask_socket(context);
        }
        match self.poll_piece(context, room) {
            Poll::Pending => {}
            Poll::Ready(Piece::End) => self.peer.gone.store(true, Ordering::Relaxed),
            // There may be more, and HTTP may want what there is.
            Poll::Ready(Piece::Bytes(_)) => context.waker().wake_by_ref(),
        }
    }

    /// A socket tells that its peer closed whatever stands in it.
    fn ask_socket(&mut self, context: &mut Context<'_>) {
        let asking = self.asking.get_or_insert_with(|| Box::pin(tokio::time::sleep(ASK_EVERY)));
        if asking.as_mut().poll(context).is_pending() {
            return;
        }
        self.asking = None;
        if is_closed(&self.stream.socket()) {
            self.peer.gone.store(true, Ordering::Relaxed);
        }
        context.waker().wake_by_ref();
    }

    /// Reads what the peer goes on to send, until it has read the answer and closes.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            self.ahead.clear();
            let piece = self.poll_piece(context, PIECE);
            let Some(lingering) = &mut self.lingering else { return Poll::Ready(()) };
            match piece {
                Poll::Ready(Piece::Bytes(read)) if lingering.left > read => lingering.left -= read,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return lingering.until.as_mut().poll(context),
            }
        }
    }
}

/// Something that ends in a socket.
pub(crate) trait Socket {
    fn socket(&self) -> BorrowedFd<'_>;
}

impl Socket for TokioIo<TcpStream> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.inner().as_fd()
    }
}

impl Socket for TokioIo<TlsStream<TcpStream>> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.inner().get_ref().0.as_fd()
    }
}

fn is_closed(socket: &BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::new(socket, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)).is_ok_and(|found| found > 0)
}

impl<S: Read + Unpin> Read for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let ready = if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead[..count]);
            self.ahead.advance(count);
            Poll::Ready(Ok(()))
        } else {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        };
        self.is_awaited = ready.is_pending();
        ready
    }
}

impl<S: Read + Write + Socket + Unpin> Write for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called whenever the connection is polled. While something is left to write, nothing is read: a
    /// peer that is gone does not take it.
    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.delivery.flushed();
        self.watch(context);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            if !self.peer.sends_on.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            let until = Box::pin(tokio::time::sleep(LINGER));
            self.lingering = Some(Lingering { until, left: LINGER_MOST });
        }
        self.poll_linger(context).map(Ok)
    }
}
