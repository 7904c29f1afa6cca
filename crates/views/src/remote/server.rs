//! Connections: taken, bounded in number and in time, and ended in good order.

use super::Token;
use super::service::{Service, refused};
use crate::Views;
use crate::part::Part;
use http::StatusCode;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// Connections at the same time; more wait to be taken.
const CONNECTIONS_MAX: u32 = 4096;
/// Requests that are answered at the same time; more are told to come again.
const REQUESTS_MAX: usize = 1024;
/// How long a request's head may take to arrive, and a connection may be idle.
const HEAD_WITHIN: Duration = Duration::from_secs(60);
/// How long a TLS client may take to shake hands.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// After an error of the listener (no file descriptor is left), until the next connection is taken.
const PAUSE: Duration = Duration::from_millis(100);

/// What a server says of itself and its handler, as JSON.
#[derive(Clone)]
pub struct Report(pub Arc<dyn Fn() -> String + Send + Sync>);

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}

/// Why a handler cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened at.
    #[error("cannot listen at {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
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
    address: SocketAddr,
    has_tls: bool,
    ending: watch::Sender<bool>,
    connections: Arc<Semaphore>,
}

impl RemoteServer {
    /// Listens at an address and serves from then on; port 0 takes a free one.
    ///
    /// # Errors
    /// If the address cannot be listened at.
    pub async fn start(served: Served, address: SocketAddr) -> Result<Self, ServeError> {
        let listen = |error| ServeError::Listen(address, error);
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (ending, ends) = watch::channel(false);
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
        let Served { views, report, part, token, tls } = served;
        let has_tls = tls.is_some();
        let taking = Taking {
            service: Service::new(views, report, part, token),
            tls: tls.map(TlsAcceptor::from),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            ends,
        };
        tokio::spawn(taking.take_connections(listener, connections.clone()));
        Ok(Self { address, has_tls, ending, connections })
    }

    /// The URL of its root.
    pub fn url(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Takes no more connections and requests; those under way have `patience` to end.
    pub async fn stop(&self, patience: Duration) {
        self.ending.send_replace(true);
        let all_ended = self.connections.acquire_many(CONNECTIONS_MAX);
        if tokio::time::timeout(patience, all_ended).await.is_err() {
            tracing::warn!("requests to the handler were cut off");
        }
    }
}

#[derive(Clone)]
struct Taking {
    service: Arc<Service>,
    tls: Option<TlsAcceptor>,
    requests: Arc<Semaphore>,
    ends: watch::Receiver<bool>,
}

impl Taking {
    async fn take_connections(self, listener: TcpListener, connections: Arc<Semaphore>) {
        let mut ends = self.ends.clone();
        loop {
            let taken = async {
                let permit = connections.clone().acquire_owned().await.ok()?;
                Some((listener.accept().await, permit))
            };
            tokio::select! {
                () = ended(&mut ends) => return,
                taken = taken => match taken {
                    Some((Ok((stream, _)), permit)) => drop(tokio::spawn(self.clone().take(stream, permit))),
                    Some((Err(error), _)) => {
                        tracing::warn!(%error, "a connection could not be taken");
                        tokio::time::sleep(PAUSE).await;
                    }
                    None => return,
                },
            }
        }
    }

    async fn take(self, stream: TcpStream, _permit: OwnedSemaphorePermit) {
        stream.set_nodelay(true).ok();
        let Some(tls) = self.tls.clone() else { return self.serve(stream).await };
        match tokio::time::timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.serve(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { service, requests, mut ends, .. } = self;
        let answer = |request| {
            let (service, requests) = (service.clone(), requests.clone());
            async move {
                let Ok(_place) = requests.try_acquire() else {
                    return Ok(refused(StatusCode::SERVICE_UNAVAILABLE, "too many ask; come again"));
                };
                Ok::<_, Infallible>(service.answer(request).await)
            }
        };
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .serve_connection(TokioIo::new(stream), service_fn(answer));
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self::ended(&mut ends) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        }
    }
}

/// Waits until the server ends.
async fn ended(ends: &mut watch::Receiver<bool>) {
    // An error says that the server was dropped.
    drop(ends.wait_for(|ending| *ending).await);
}
