//! One open connection: bytes out, values in. Knows TCP, Unix sockets and TLS, and nothing of
//! locks.

use std::io;
use std::sync::Arc;

use bytes::{Buf as _, BytesMut};
use leasehold_core::NodeError;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
#[cfg(unix)]
use tokio::net::UnixStream;

use super::resp::{Decoded, Value, decode};
use super::url::Address;
use crate::nodes::dial::{open_tcp, unreachable};

/// Room that is made for each read.
const READ_BYTES: usize = 16 * 1024;

/// Anything that can be read.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// Anything that can be written.
pub(crate) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The direction to the server, where the socket takes bytes from whoever has some.
#[derive(Clone, Debug)]
pub(super) enum Direct {
    Tcp(Arc<tokio::net::tcp::OwnedWriteHalf>),
    #[cfg(unix)]
    Unix(Arc<tokio::net::unix::OwnedWriteHalf>),
}

impl Direct {
    /// Writes what the socket takes at once, which may be nothing.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(socket) => socket.try_write(bytes),
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.writable().await,
            #[cfg(unix)]
            Self::Unix(socket) => socket.writable().await,
        }
    }
}

/// The direction to the server.
pub(super) enum Outgoing {
    Direct(Direct),
    /// TLS keeps state of its own, so one task writes.
    #[cfg_attr(not(any(feature = "tls", test)), expect(dead_code))]
    Through(Writer),
}

impl Outgoing {
    /// Writes what the socket takes, and says how much. Can be cancelled without losing or doubling
    /// a byte.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Direct(socket) => loop {
                match socket.try_write(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => return written,
                }
                socket.writable().await?;
            },
            Self::Through(writer) => writer.write(bytes).await,
        }
    }

    /// TLS keeps records back until then.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Through(writer) => writer.flush().await,
        }
    }
}

/// How a simulated server is reached, and its name.
#[cfg(test)]
#[derive(Clone)]
pub(crate) struct Dial {
    pub(crate) name: Arc<str>,
    pub(crate) open: Arc<dyn Fn() -> Opening + Send + Sync>,
}

#[cfg(test)]
pub(crate) type Opening =
    std::pin::Pin<Box<dyn Future<Output = io::Result<(Reader, Writer)>> + Send>>;

#[cfg(test)]
impl PartialEq for Dial {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

#[cfg(test)]
impl Eq for Dial {}

#[cfg(test)]
impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// What is being sent.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    written: usize,
    needs_flush: bool,
}

impl Batch {
    pub(super) fn is_done(&self) -> bool {
        self.written == self.bytes.len() && !self.needs_flush
    }

    /// Takes the next bytes, once all of the last ones are sent.
    pub(super) fn refill(&mut self, take: impl FnOnce(&mut Vec<u8>)) {
        if self.is_done() {
            self.bytes.clear();
            self.written = 0;
            take(&mut self.bytes);
            self.needs_flush = !self.bytes.is_empty();
        }
    }

    /// Writes what the socket takes. Can be cancelled without losing or doubling a byte.
    pub(super) async fn push(&mut self, outgoing: &mut Outgoing) -> io::Result<()> {
        if self.written < self.bytes.len() {
            match outgoing.write(&self.bytes[self.written..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.written += written,
            }
        }
        if self.written == self.bytes.len() {
            outgoing.flush().await?;
            self.needs_flush = false;
        }
        Ok(())
    }
}

/// The two directions of a connection.
pub(super) struct Link {
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
    /// How many addresses the server's name has.
    pub(super) addresses: usize,
}

/// The direction from the server.
pub(super) struct Incoming {
    reader: Reader,
    bytes: BytesMut,
    pub(super) resp3: bool,
    /// Where messages go that nobody asked for.
    pub(super) on_push: Option<OnPush>,
}

/// Whoever wants to hear what nobody asked for.
pub(super) type OnPush = Box<dyn Fn(&Value) + Send + Sync>;

/// What a server sends.
pub(super) enum Received {
    /// The answer to the oldest question that has none yet.
    Reply(Value),
    /// A message that nobody asked for.
    Push(Value),
}

impl Link {
    fn new(reader: Reader, outgoing: Outgoing) -> Self {
        let incoming = Incoming { reader, bytes: BytesMut::new(), resp3: true, on_push: None };
        Self { incoming, outgoing, addresses: 1 }
    }

    /// The socket, if others may write to it, too.
    pub(super) fn direct(&self) -> Option<Direct> {
        match &self.outgoing {
            Outgoing::Direct(socket) => Some(socket.clone()),
            Outgoing::Through(_) => None,
        }
    }

    /// Opens a connection.
    pub(super) async fn open(
        address: &Address,
        #[cfg(feature = "tls")] tls: Option<&crate::nodes::tls::Tls>,
    ) -> Result<Self, NodeError> {
        let (host, port) = match address {
            Address::Tcp { host, port } => (host, *port),
            #[cfg(unix)]
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|e| unreachable(&e))?;
                let (reader, writer) = stream.into_split();
                let outgoing = Outgoing::Direct(Direct::Unix(Arc::new(writer)));
                return Ok(Self::new(Box::new(reader), outgoing));
            }
            #[cfg(not(unix))]
            Address::Unix(_) => {
                let reason = "this system has no Unix sockets".to_owned();
                return Err(NodeError::Unreachable { reason });
            }
            #[cfg(test)]
            Address::Simulated(dial) => {
                let (reader, writer) = (dial.open)().await.map_err(|e| unreachable(&e))?;
                return Ok(Self::new(reader, Outgoing::Through(writer)));
            }
        };
        let (stream, addresses) = open_tcp(host, port).await?;
        #[cfg(feature = "tls")]
        if let Some(tls) = tls {
            let stream = tls.connector.connect(tls.name.clone(), stream).await;
            let stream = stream.map_err(|e| unreachable(&e))?;
            let (reader, writer) = tokio::io::split(stream);
            let link = Self::new(Box::new(reader), Outgoing::Through(Box::new(writer)));
            return Ok(Self { addresses, ..link });
        }
        let (reader, writer) = stream.into_split();
        let outgoing = Outgoing::Direct(Direct::Tcp(Arc::new(writer)));
        Ok(Self { addresses, ..Self::new(Box::new(reader), outgoing) })
    }

    /// Sends all of `commands`.
    pub(super) async fn send(&mut self, commands: &[u8]) -> io::Result<()> {
        let mut batch = Batch::default();
        batch.refill(|out| out.extend_from_slice(commands));
        while !batch.is_done() {
            batch.push(&mut self.outgoing).await?;
        }
        Ok(())
    }

    /// Sends commands and waits for their replies: for the time before requests flow.
    pub(super) async fn call(
        &mut self,
        commands: &[u8],
        replies: usize,
    ) -> Result<Vec<Value>, NodeError> {
        self.send(commands).await.map_err(|e| unreachable(&e))?;
        let mut values = Vec::with_capacity(replies);
        loop {
            while values.len() < replies {
                match self.incoming.next()? {
                    Some(value) => values.push(value),
                    None => break,
                }
            }
            if values.len() == replies {
                return Ok(values);
            }
            self.incoming.fill().await?;
        }
    }
}

impl Incoming {
    /// Waits for more bytes. Can be cancelled without losing any.
    pub(super) async fn fill(&mut self) -> Result<(), NodeError> {
        self.bytes.reserve(READ_BYTES);
        match self.reader.read_buf(&mut self.bytes).await {
            Ok(0) => {
                let reason = "the server closed the connection".to_owned();
                Err(NodeError::Unreachable { reason })
            }
            Ok(_) => Ok(()),
            Err(error) => Err(unreachable(&error)),
        }
    }

    /// The next reply, if all of it is there.
    pub(super) fn next(&mut self) -> Result<Option<Value>, NodeError> {
        loop {
            match self.next_of_any_kind()? {
                Some(Received::Reply(value)) => return Ok(Some(value)),
                Some(Received::Push(value)) => self.hear(&value),
                None => return Ok(None),
            }
        }
    }

    /// Hands a message that nobody asked for to its listener.
    pub(super) fn hear(&self, push: &Value) {
        self.on_push.iter().for_each(|told| told(push));
    }

    /// The next reply or message, if all of it is there.
    pub(super) fn next_of_any_kind(&mut self) -> Result<Option<Received>, NodeError> {
        match decode(&self.bytes, self.resp3) {
            Ok(Decoded::Reply(value, used)) => {
                self.bytes.advance(used);
                Ok(Some(Received::Reply(value)))
            }
            Ok(Decoded::Push(value, used)) => {
                self.bytes.advance(used);
                Ok(Some(Received::Push(value)))
            }
            Ok(Decoded::Incomplete) => Ok(None),
            Err(reason) => Err(NodeError::Garbled { reason }),
        }
    }
}
