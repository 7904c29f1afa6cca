//! The handler as a server: how many may ask at once.

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

/// Connections at the same time; more wait to be taken.
const CONNECTIONS_MAX: u32 = 4096;
/// Requests that are answered at the same time; more are told to come again.
const REQUESTS_MAX: usize = 1024;

/// What a server says of itself and its handler, as JSON.
#[derive(Clone)]
pub struct Report(pub Arc<dyn Fn() -> String + Send + Sync>);

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}

/// What is served, and to whom.
#[derive(Debug)]
pub struct Served {
    /// Who is asked.
    pub views: Arc<dyn Views>,
    /// What it says of itself.
    pub report: Report,
    /// Of which part of all objects it is.
    pub part: Part,
    /// What clients must know; everybody who reaches the address may ask if `None`.
    pub token: Option<Token>,
    /// HTTPS instead of HTTP.
    pub tls: Option<Arc<ServerConfig>>,
}

/// A handler that listens. It ends when it is dropped or stopped.
#[derive(Debug)]
pub struct RemoteServer {
    listener: Listener,
}

impl RemoteServer {
    /// Listens at an address and serves from then on; port 0 takes a free one.
    ///
    /// # Errors
    /// If the address cannot be listened at.
    pub async fn start(served: Served, address: SocketAddr) -> Result<Self, ListenError> {
        let Served { views, report, part, token, tls } = served;
        let service = Service::new(views, report, part, token);
        let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
        let answer = move |request, _| {
            let (service, requests) = (service.clone(), requests.clone());
            async move {
                let Ok(_place) = requests.try_acquire() else {
                    return refused(StatusCode::SERVICE_UNAVAILABLE, "too many ask; come again");
                };
                service.answer(request).await
            }
        };
        let limits = listen::Limits { connections: CONNECTIONS_MAX, ..listen::Limits::default() };
        Ok(Self { listener: Listener::start(address, limits, tls, answer).await? })
    }

    /// The URL of its root.
    pub fn url(&self) -> String {
        self.listener.url()
    }

    /// Takes no more connections and requests; those under way have `patience` to end.
    pub async fn stop(&self, patience: Duration) {
        if !self.listener.stop(patience).await {
            tracing::warn!("requests to the handler were cut off");
        }
    }
}
