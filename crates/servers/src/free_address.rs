//! Addresses at which nobody listens, to start a server at.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;

/// Ports below those that the kernel gives to whoever asks for any (`ip_local_port_range`, from 32768): a
/// listener on port 0 or a client's connection never takes one of these before its server starts, or while its
/// server is away.
const PORTS: Range<u64> = 10_000..32_768;

/// An address on the loopback interface at which nobody listens.
///
/// # Panics
/// If a hundred ports are taken.
pub fn free_address() -> SocketAddr {
    let any = || PORTS.start + RandomState::new().hash_one(()) % (PORTS.end - PORTS.start);
    (0..100)
        .map(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, any() as u16)))
        .find(|address| TcpListener::bind(address).is_ok())
        .unwrap_or_else(|| panic!("no free port among {PORTS:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test's dead server came to life as another test's: its port had been given away.
    #[test]
    fn a_free_port_is_none_that_the_kernel_gives_away() {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let first: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        let free = free_address();
        assert!(free.port() < first, "{free}, the kernel's: {range}");
    }
}
