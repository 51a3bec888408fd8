//! Whose request it is when a load balancer passes it on: `X-Forwarded-For` and the PROXY protocol,
//! version 2. Only from balancers that are listed, because anybody can write a header.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use hyper::HeaderMap;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// Addresses: `10.0.0.7`, or `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let shift = 32 - u32::from(self.bits);
                u32::from(ours).checked_shr(shift) == u32::from(theirs).checked_shr(shift)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let shift = 128 - u32::from(self.bits);
                u128::from(ours).checked_shr(shift) == u128::from(theirs).checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no address; write it like 10.0.0.7 or 10.0.0.0/8");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most { Err(wrong()) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// The balancers that are believed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proxies(pub(crate) Vec<Network>);

impl Proxies {
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Who sent a request that came from `peer`: the last address of the header that no listed balancer
    /// has. What stands before it, its sender may have made up.
    pub(crate) fn sender(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut sender = peer;
        let lines = headers.get_all("x-forwarded-for").iter().rev();
        let mut steps = lines.flat_map(|line| line.to_str().unwrap_or("?").rsplit(','));
        while self.trusts(sender) {
            let Some(step) = steps.next().and_then(address) else { break };
            sender = step;
        }
        sender
    }
}

/// An address as balancers write it: some add the port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    bare.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// More than all addresses and extensions need.
const REST_MOST: usize = 4096;

/// Reads the header of the PROXY protocol if there is one, and says who connected to the balancer. Neither
/// HTTP nor TLS begins with a line break.
pub(crate) async fn greeting(stream: &mut TcpStream, peer: SocketAddr) -> io::Result<SocketAddr> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 || first[0] != SIGNATURE[0] {
        return Ok(peer);
    }
    let mut head = [0; 16];
    stream.read_exact(&mut head).await?;
    let length = usize::from(u16::from_be_bytes([head[14], head[15]]));
    let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    if head[..12] != SIGNATURE || head[12] >> 4 != 2 {
        return wrong("it begins like the PROXY protocol, but not like version 2");
    }
    if length > REST_MOST {
        return wrong("a header of the PROXY protocol that is too long");
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    match (head[12] & 15, head[13] >> 4) {
        // The balancer itself asks, for its health check.
        (0, _) | (1, 0) => Ok(peer),
        (1, 1) if length >= 12 => {
            let source: [u8; 4] = rest[..4].try_into().unwrap_or_default();
            let port = u16::from_be_bytes([rest[8], rest[9]]);
            Ok(SocketAddr::new(Ipv4Addr::from(source).into(), port))
        }
        (1, 2) if length >= 36 => {
            let source: [u8; 16] = rest[..16].try_into().unwrap_or_default();
            let port = u16::from_be_bytes([rest[32], rest[33]]);
            Ok(SocketAddr::new(Ipv6Addr::from(source).to_canonical(), port))
        }
        (1, _) => Ok(peer),
        _ => wrong("an unknown command of the PROXY protocol"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(list: &[&str]) -> Proxies {
        Proxies(list.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn a_network_contains_its_addresses_and_no_others() {
        for (network, address, expected) in [
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.8", false),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("fd00::/8", "fdab::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "::1", true),
        ] {
            let trusts = proxies(&[network]).trusts(address.parse().unwrap());
            assert_eq!(trusts, expected, "{network} {address}");
        }
        for wrong in ["", "x", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0/8"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_what_listed_balancers_wrote_is_believed() {
        let listed = proxies(&["10.0.0.0/8"]);
        for (peer, lines, expected) in [
            ("192.0.2.1", &["203.0.113.9"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["127.0.0.1, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["127.0.0.1", "203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
            ("10.0.0.1", &["[2001:db8::1]:80"], "2001:db8::1"),
            ("10.0.0.1", &["203.0.113.9, nonsense"], "10.0.0.1"),
            ("10.0.0.1", &["10.0.0.2"], "10.0.0.2"),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-forwarded-for", line.parse().unwrap());
            }
            let sender = listed.sender(peer.parse().unwrap(), &headers);
            assert_eq!(sender, expected.parse::<IpAddr>().unwrap(), "{peer} {lines:?}");
        }
    }
}
