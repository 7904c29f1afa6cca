//! The server of a handler. Bounds the number of connections and concurrent requests.

use super::Token;
use super::service::{Service, refused};
use crate::Views;
use crate::part::Part;
use http::StatusCode;
use listen::{ListenError, Listener};
use rustls::ServerConfig;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum number of connections; further ones wait to be accepted.
const CONNECTIONS_MAX: u32 = 4096;
/// Maximum number of requests that are answered at once; further ones are refused with 503.
const REQUESTS_MAX: usize = 1024;

/// Returns the report of a server about itself and its handler, as JSON.
#[derive(Clone)]
pub struct Report(pub Arc<dyn Fn() -> String + Send + Sync>);

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}

/// Settings of a server.
#[derive(Debug)]
pub struct Served {
    /// The views that clients may open.
    pub views: Arc<dyn Views>,
    /// Returns the report about the server and its handler.
    pub report: Report,
    /// The part of all objects that the handler has.
    pub part: Part,
    /// The token that clients must send; `None` lets every client ask.
    pub token: Option<Token>,
    /// Settings for HTTPS; `None` serves HTTP.
    pub tls: Option<Arc<ServerConfig>>,
}

/// A running server. It stops when it is stopped or dropped.
#[derive(Debug)]
pub struct RemoteServer {
    listener: Listener,
}

impl RemoteServer {
    /// Starts a server on an address; port 0 picks a free port.
    ///
    /// # Errors
    /// If the server cannot listen on the address.
    pub async fn start(served: Served, address: SocketAddr) -> Result<Self, ListenError> {
        let Served { views, report, part, token, tls } = served;
        let service = Service::new(views, report, part, token);
        let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
        let answer = move |request, _| {
            let (service, requests) = (service.clone(), requests.clone());
            async move {
                let Ok(_permit) = requests.try_acquire() else {
                    return refused(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "too many concurrent requests; try again later",
                    );
                };
                service.answer(request).await
            }
        };
        let limits = listen::Limits { connections: CONNECTIONS_MAX, ..listen::Limits::default() };
        Ok(Self { listener: Listener::start(address, limits, tls, answer).await? })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        self.listener.url()
    }

    /// Stops the server: accepts no more connections and requests, and waits for those in progress for at most
    /// `patience`.
    pub async fn stop(&self, patience: Duration) {
        if !self.listener.stop(patience).await {
            tracing::warn!(
                "the handler stopped before it had answered all requests; clients get no answer to the others"
            );
        }
    }
}
