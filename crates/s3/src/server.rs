//! The endpoint as an HTTP server: connections, and the start of the lifecycle worker.

use listen::{ListenError, Listener};
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::Endpoint;
use crate::admission::{BODY_BYTES, REQUESTS};
use crate::request_handler::RequestHandler;
use crate::scope::Connection;

/// The limits on clients.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The limits on connections. A head may have 64 KiB: S3 allows 8 KB of headers and as much of a path.
    pub connections: listen::Limits,
    /// The maximum number of requests in progress; further ones get `SlowDown`. One user, or all unsigned clients
    /// together, get at most 7/8 of the slots that others leave.
    pub requests: usize,
    /// The maximum number of request-body bytes buffered at a time, shared among clients in the same way.
    pub body_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: listen::Limits { connections: 16_384, ..listen::Limits::default() },
            requests: REQUESTS,
            body_bytes: BODY_BYTES,
        }
    }
}

/// A listening endpoint. It ends when it is dropped or stopped.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
    listener: Listener,
}

impl Server {
    /// Listens at an address and serves from then on. Port 0 picks a free port.
    ///
    /// # Errors
    ///
    /// If the address cannot be listened at.
    pub async fn start(
        endpoint: Endpoint,
        address: SocketAddr,
        limits: Limits,
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<Self, ListenError> {
        endpoint.set_limits(limits.requests, limits.body_bytes);
        let handler = RequestHandler::new(endpoint.clone(), limits.connections.stall_within);
        let is_tls = tls.is_some();
        let handle =
            move |request, peer| handler.clone().handle(request, Connection { peer, is_tls, identity: None });
        let listener = Listener::start(address, limits.connections, tls, handle).await?;
        let (expiring, ending) = (endpoint.clone(), listener.ending());
        let expire = move || expiring.clone().run_lifecycle_worker(ending.clone());
        tokio::spawn(store::supervise("lifecycle rules", expire));
        Ok(Self { endpoint, listener })
    }

    /// Returns the address that the server listens at.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Returns the URL of the server's root.
    pub fn url(&self) -> String {
        self.listener.url()
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Stops accepting connections and requests. Requests in progress get `patience` to end, and then their events get
    /// `patience` to be delivered.
    pub async fn stop(&self, patience: Duration) {
        if !self.listener.stop(patience).await {
            tracing::warn!(
                "the endpoint no longer waits for the requests that are still in progress; their clients may get no response"
            );
        }
        self.endpoint.shut_down(patience).await;
    }
}
