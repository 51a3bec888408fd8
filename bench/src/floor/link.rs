//! One connection to one node.
//!
//! A question that is alone goes out at once, by its asker. Under load it waits in the buffer until
//! the flusher's turn, behind every task that is ready to ask something too: one write for all of
//! them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::commands::{Commands, Question};
use super::reply::{self, Yes};
use super::tally::Tally;

const READ_AT_ONCE: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    state: Mutex<State>,
    to_flush: Notify,
}

#[derive(Debug, Default)]
struct State {
    out: Vec<u8>,
    /// Whether the flusher has something to do and will.
    flushing: bool,
    /// In the order of the requests, which is the order of the replies.
    awaited: VecDeque<Awaited>,
    /// The connection is gone: everything is a no.
    broken: bool,
}

#[derive(Debug)]
struct Awaited {
    skip: u8,
    yes: Yes,
    tally: Arc<Tally>,
}

impl Link {
    pub(super) async fn open(addr: &str, preparations: (Vec<u8>, usize)) -> io::Result<Arc<Link>> {
        let mut stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        prepare(&mut stream, preparations).await?;
        let link = Arc::new(Link { stream, state: Mutex::default(), to_flush: Notify::new() });
        tokio::spawn(link.clone().read_all());
        tokio::spawn(link.clone().flush_all());
        Ok(link)
    }

    /// Puts the question on the connection; its answer is counted by `tally`.
    pub(super) fn send(&self, question: &Question, tally: &Arc<Tally>, alone: bool) {
        let mut state = self.state();
        if state.broken {
            drop(state);
            return tally.count(false);
        }
        let Question { bytes, skip, yes } = question;
        state.awaited.push_back(Awaited { skip: *skip, yes: *yes, tally: tally.clone() });
        let written = match alone && state.out.is_empty() && !state.flushing {
            true => self.stream.try_write(bytes).unwrap_or(0),
            false => 0,
        };
        if written < bytes.len() {
            state.out.extend_from_slice(&bytes[written..]);
            if !state.flushing {
                state.flushing = true;
                self.to_flush.notify_one();
            }
        }
    }

    async fn flush_all(self: Arc<Self>) {
        let mut batch = Vec::new();
        loop {
            self.to_flush.notified().await;
            while self.next_batch(&mut batch) {
                if self.write(&batch).await.is_err() {
                    return self.give_up();
                }
            }
        }
    }

    /// Swaps what is to be written into `batch`; false if there is nothing.
    fn next_batch(&self, batch: &mut Vec<u8>) -> bool {
        let mut state = self.state();
        batch.clear();
        std::mem::swap(&mut state.out, batch);
        state.flushing = !batch.is_empty();
        state.flushing
    }

    async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stream.writable().await?
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn read_all(self: Arc<Self>) {
        let mut bytes = vec![0; READ_AT_ONCE];
        let mut filled = 0;
        while self.stream.readable().await.is_ok() {
            match self.stream.try_read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => {
                    filled += read;
                    let used = self.count(&bytes[..filled]);
                    bytes.copy_within(used..filled, 0);
                    filled -= used;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        self.give_up();
    }

    /// Counts every whole reply in `bytes`, and says how much that was.
    fn count(&self, bytes: &[u8]) -> usize {
        let mut used = 0;
        let mut state = self.state();
        while let Some(length) = reply::length(&bytes[used..]) {
            let answer = &bytes[used..used + length];
            used += length;
            match state.awaited.front_mut() {
                Some(first) if first.skip > 0 => first.skip -= 1,
                _ => {
                    if let Some(Awaited { yes, tally, .. }) = state.awaited.pop_front() {
                        tally.count(reply::is(answer, yes, Commands::identity()));
                    }
                }
            }
        }
        used
    }

    fn give_up(&self) {
        let mut state = self.state();
        state.broken = true;
        let unanswered = std::mem::take(&mut state.awaited);
        drop(state);
        unanswered.iter().for_each(|awaited| awaited.tally.count(false));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn prepare(stream: &mut TcpStream, (bytes, mut replies): (Vec<u8>, usize)) -> io::Result<()> {
    stream.write_all(&bytes).await?;
    let mut said = Vec::new();
    while replies > 0 {
        match reply::length(&said) {
            Some(length) => {
                if said[0] == b'-' {
                    let refused = String::from_utf8_lossy(&said[..length]).trim().to_owned();
                    return Err(io::Error::other(refused));
                }
                said.drain(..length);
                replies -= 1;
            }
            None if stream.read_buf(&mut said).await? == 0 => {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            None => {}
        }
    }
    Ok(())
}
