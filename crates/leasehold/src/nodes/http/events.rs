//! Server-sent events, as far as a waiter needs them: their types.

use leasehold_core::NodeError;
use tokio::time::Instant;

/// A line of an event of one lock has a few hundred bytes; the longest name and reason a few thousand.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Reads a stream of events, in whatever pieces it comes.
pub(super) struct Events {
    bytes: Vec<u8>,
    /// The type of the event that is being read.
    kind: String,
    /// When something came last, be it a comment.
    pub(super) heard: Instant,
}

impl Default for Events {
    fn default() -> Self {
        Self { bytes: Vec::new(), kind: String::new(), heard: Instant::now() }
    }
}

impl Events {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.heard = Instant::now();
        self.bytes.extend_from_slice(bytes);
    }

    /// The type of the next event, if all of it is there.
    pub(super) fn next(&mut self) -> Result<Option<String>, NodeError> {
        while let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            let line = line.trim_ascii_end();
            if line.is_empty() {
                let kind = std::mem::take(&mut self.kind);
                if !kind.is_empty() {
                    return Ok(Some(kind));
                }
            } else if let Some(kind) = line.strip_prefix(b"event:") {
                self.kind = String::from_utf8_lossy(kind.trim_ascii()).into_owned();
            }
        }
        if self.bytes.len() > LINE_BYTES_MAX {
            let reason = format!("a line of more than {LINE_BYTES_MAX} bytes");
            return Err(NodeError::Garbled { reason });
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "retry: 1000\n\nevent: hello\ndata: {\"instance\":\"ab\"}\n\n: still here\n\n\
        id: ab-1\r\nevent: released\r\ndata: {\"type\":\"released\"}\r\n\r\ndata: x\n\nevent:lost\ndata: {}\n\n";

    fn read(pieces: impl IntoIterator<Item = Vec<u8>>) -> Vec<String> {
        let (mut events, mut kinds) = (Events::default(), Vec::new());
        for piece in pieces {
            events.push(&piece);
            while let Some(kind) = events.next().unwrap() {
                kinds.push(kind);
            }
        }
        kinds
    }

    #[test]
    fn events_are_told_whatever_pieces_they_come_in() {
        for size in 1..STREAM.len() {
            let pieces = STREAM.as_bytes().chunks(size).map(<[u8]>::to_vec);
            assert_eq!(read(pieces), ["hello", "released", "lost"], "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut events = Events::default();
        let mut given_up = false;
        for _ in 0..100 {
            events.push(&[b'x'; 1024]);
            given_up |= events.next().is_err();
        }
        assert!(given_up);
    }
}
