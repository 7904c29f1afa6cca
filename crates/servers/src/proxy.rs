//! The start of a proxy that injects faults in front of a server.

use harness::Proxy;

/// Starts a proxy for a server such as `http://127.0.0.1:9000`.
///
/// # Panics
/// Panics if there is no free port.
pub fn proxy(endpoint: &str) -> Proxy {
    Proxy::start(endpoint).unwrap_or_else(|error| panic!("cannot start a proxy: {error}"))
}
