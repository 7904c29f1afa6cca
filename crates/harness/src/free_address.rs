//! Unused loopback addresses for servers.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;

/// Range of ports below the ephemeral range (`ip_local_port_range`, from 32768). The kernel hands none of them to a listener on port 0 or
/// to a client's connection, neither before the server starts nor while the server is stopped.
const PORTS: Range<u64> = 10_000..32_768;

/// Returns an address on the loopback interface on which nothing listens.
///
/// # Errors
/// If a hundred random ports are all taken.
pub fn free_address() -> io::Result<SocketAddr> {
    let random_port = || PORTS.start + RandomState::new().hash_one(()) % (PORTS.end - PORTS.start);
    (0..100)
        .map(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, random_port() as u16)))
        .find(|address| TcpListener::bind(address).is_ok())
        .ok_or_else(|| io::Error::other(format!("found no free port in {PORTS:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test stopped its server, and another test's server came up on the same port: the port came from the ephemeral range.
    #[test]
    fn free_ports_lie_below_the_ephemeral_range() {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let first: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        let free = free_address().unwrap();
        assert!(free.port() < first, "{free} lies in the ephemeral range {range}");
    }
}
