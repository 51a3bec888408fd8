//! Ports on 127.0.0.1 that stay ours while nobody listens on them.
//!
//! A server that is killed and started again must find its port free, and a client that dials the
//! dead server must be refused. Ports from the system's own range for outgoing connections break
//! both: another connection may be given that port, and a client dialling it may even be connected
//! to itself. So ports come from below that range, and a locked file per port keeps other test
//! processes away until the reservation is dropped or its process ends.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below Linux's usual range for outgoing connections (32768 and up), above the well-known servers.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port of 127.0.0.1 on which nobody else listens and no other test process will.
#[derive(Debug)]
pub struct ReservedPort {
    port: u16,
    /// Locked for as long as the reservation lives.
    _claim: File,
}

impl ReservedPort {
    /// Reserves a free port.
    pub fn take() -> ReservedPort {
        static TURN: AtomicU16 = AtomicU16::new(0);
        // Not the environment's temporary folder: every process of this user must look in the same
        // place.
        let user = rustix::process::getuid().as_raw();
        let claims = PathBuf::from(format!("/tmp/leasehold-test-ports-{user}"));
        fs::create_dir_all(&claims).expect("a folder for port claims");
        // Processes start at different places, so that they seldom try the same port.
        let start = std::process::id().wrapping_mul(31);
        for _ in 0..COUNT {
            let turn = u32::from(TURN.fetch_add(1, Ordering::Relaxed));
            let port = FIRST + (start.wrapping_add(turn) % u32::from(COUNT)) as u16;
            let Ok(claim) = File::create(claims.join(port.to_string())) else {
                continue;
            };
            // Dialled, not bound: a child that another thread starts at this moment would inherit
            // the listener and keep it open until its exec.
            if claim.try_lock().is_ok()
                && TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                    .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
            {
                return ReservedPort { port, _claim: claim };
            }
        }
        panic!("no free port between {FIRST} and {}", FIRST + COUNT - 1);
    }

    /// Reserves a free port and listens on it.
    pub(crate) fn listen() -> (ReservedPort, TcpListener) {
        loop {
            let port = ReservedPort::take();
            if let Ok(listener) = TcpListener::bind(port.addr()) {
                return (port, listener);
            }
        }
    }

    /// The port's number.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port as `127.0.0.1:port`. Dialling it is refused until its owner listens.
    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_port_is_handed_out_twice_at_a_time() {
        let ports: Vec<_> = (0..50).map(|_| ReservedPort::take()).collect();
        let distinct: HashSet<_> = ports.iter().map(ReservedPort::port).collect();
        assert_eq!(distinct.len(), ports.len());
    }

    #[test]
    fn dialling_a_reserved_port_is_refused() {
        let port = ReservedPort::take();
        let refused = TcpStream::connect(port.addr()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}
