//! Datagrams between the processes that share a lock file: `somebody left, you are first now`, `the
//! lock you wait for is free`. One socket per process that waits, with a random name that leaves
//! no file behind. Whatever arrives is a hint and may come from anybody.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::time::Duration;

use leasehold_core::LockName;

use crate::node::Ticket;

/// Longer than any message of ours: names have at most 512 bytes.
const MESSAGE_MAX: usize = 1024;

/// What the first in line is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// That it is first.
    First,
    /// That it is first, and that the lock may be free.
    Free,
}

/// What is said to the place with this ticket, which has so many behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) news: News,
    pub(super) lock: LockName,
    pub(super) ticket: Ticket,
    pub(super) others: usize,
}

impl Word {
    fn write(&self) -> String {
        let verb = match self.news {
            News::First => "first",
            News::Free => "free",
        };
        format!("{verb} {} {} {}", self.ticket.0, self.others, self.lock.as_str())
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(bytes).ok()?.splitn(4, ' ');
        let news = match parts.next()? {
            "first" => News::First,
            "free" => News::Free,
            _ => return None,
        };
        let ticket = Ticket(parts.next()?.parse().ok()?);
        let others = parts.next()?.parse().ok()?;
        Some(Self { news, ticket, others, lock: LockName::new(parts.next()?).ok()? })
    }
}

/// What became of a word to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    /// There is no such process any more.
    Nobody,
    /// It has too many words waiting, or the system refused.
    No,
}

/// Where others are told from. Opened with the first word.
#[derive(Debug, Default)]
pub(super) struct Mouth(OnceLock<Option<UnixDatagram>>);

impl Mouth {
    pub(super) fn tell(&self, process: &str, word: &Word) -> Sent {
        let open = || {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok().map(|()| socket)
        };
        let Some(socket) = self.0.get_or_init(open) else { return Sent::No };
        let sent = address(process)
            .and_then(|address| socket.send_to_addr(word.write().as_bytes(), &address));
        match sent {
            Ok(_) => Sent::Yes,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Sent::Nobody,
            Err(_) => Sent::No,
        }
    }
}

/// Where this process is told.
#[derive(Debug)]
pub(super) struct Ear(UnixDatagram);

impl Ear {
    /// Hears what is told to `process`; wakes every `tick` even if nobody says a word.
    pub(super) fn open(process: &str, tick: Duration) -> io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&address(process)?)?;
        socket.set_read_timeout(Some(tick))?;
        Ok(Self(socket))
    }

    /// The next word; nothing if the tick is over, or what came made no sense.
    pub(super) fn hear(&self) -> io::Result<Option<Word>> {
        let mut bytes = [0; MESSAGE_MAX];
        match self.0.recv(&mut bytes) {
            Ok(length) => Ok(Word::read(&bytes[..length])),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }
}

/// In the abstract namespace, which has no files that a killed process could leave behind.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn address(process: &str) -> io::Result<SocketAddr> {
    #[cfg(target_os = "android")]
    use std::os::android::net::SocketAddrExt as _;
    #[cfg(target_os = "linux")]
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(format!("leasehold-{process}"))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn address(_: &str) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The network namespace, within which abstract names are known; nothing where there is none.
pub(super) fn realm() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/net").ok()?;
    link.into_os_string().into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(news: News, lock: &str) -> Word {
        Word { news, lock: LockName::new(lock).unwrap(), ticket: Ticket(u64::MAX), others: 7 }
    }

    #[test]
    fn words_are_read_as_they_were_written_and_others_are_nothing() {
        for word in [word(News::First, "a"), word(News::Free, "free 1 2 x"), word(News::Free, "ä")]
        {
            assert_eq!(Word::read(word.write().as_bytes()), Some(word));
        }
        for noise in
            ["", "free", "free 1 2", "free 1 2 ", "first 1 x y", "first -1 2 x", "go 1 2 x"]
        {
            assert_eq!(Word::read(noise.as_bytes()), None, "{noise:?}");
        }
        assert_eq!(Word::read(b"free 1 2 \xff"), None);
    }

    #[test]
    fn a_word_reaches_the_process_it_is_for_and_a_gone_one_is_noticed() {
        let process = format!("{:032x}", crate::chance::nonce());
        let (mouth, word) = (Mouth::default(), word(News::Free, "l"));
        let ear = Ear::open(&process, Duration::from_millis(1)).unwrap();
        assert_eq!(ear.hear().unwrap(), None, "nobody said a word");
        assert_eq!(mouth.tell(&process, &word), Sent::Yes);
        assert_eq!(ear.hear().unwrap(), Some(word.clone()));
        // Whoever does not listen keeps nobody waiting.
        while mouth.tell(&process, &word) == Sent::Yes {}
        assert_eq!(mouth.tell(&process, &word), Sent::No);
        drop(ear);
        assert_eq!(mouth.tell(&process, &word), Sent::Nobody);
    }
}
