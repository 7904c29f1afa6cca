//! The listener and the tasks that serve its connections.

use crate::stall::StallTimeout;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before the next `accept` after one failed, for instance because no file descriptor was left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Limits on what clients may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of open connections. Further connections wait in the kernel's queue.
    pub connections: u32,
    /// Size of a connection's buffer for the head of a request, in bytes.
    pub head_bytes: usize,
    /// Timeout for the head of a request to arrive, which also ends idle connections.
    pub head_within: Duration,
    /// Timeout for a client that reads its answer too slowly or not at all (see [`crate::Stall`]). Callers may apply
    /// it to request bodies with a [`crate::Stall`].
    pub stall_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            head_bytes: 64 << 10,
            head_within: Duration::from_secs(60),
            stall_within: Duration::from_secs(60),
        }
    }
}

/// An error of starting a listener.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be bound.
    #[error("cannot listen at {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
}

/// A listener and its connections. When it is stopped or dropped, it accepts no further connections, and each open connection ends
/// after the request that is being answered.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    has_tls: bool,
    limit: u32,
    /// One permit for each connection that may be open.
    connections: Arc<Semaphore>,
    ending: watch::Sender<bool>,
}

impl Listener {
    /// Listens at an address and serves requests from then on, over TLS if `tls` is given. `answer` is called with each
    /// request and its client's address, and returns the response. Port 0 chooses a free port.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn start<A, F, B>(
        address: SocketAddr,
        limits: Limits,
        tls: Option<Arc<ServerConfig>>,
        answer: A,
    ) -> Result<Self, ListenError>
    where
        A: Fn(Request<Incoming>, IpAddr) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let listen = |error| ListenError::Listen(address, error);
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (ending, shutdown) = watch::channel(false);
        let connections = Arc::new(Semaphore::new(limits.connections as usize));
        let has_tls = tls.is_some();
        let server = Server { answer, limits, tls: tls.map(TlsAcceptor::from), shutdown };
        tokio::spawn(server.accept_connections(listener, connections.clone()));
        Ok(Self { address, has_tls, limit: limits.connections, connections, ending })
    }

    /// Returns the address of the listening socket.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the root.
    pub fn url(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Accepts no further connections and requests. Returns whether the open connections ended within `patience`; those
    /// that did not go on.
    pub async fn stop(&self, patience: Duration) -> bool {
        self.ending.send_replace(true);
        let all_ended = self.connections.acquire_many(self.limit);
        tokio::time::timeout(patience, all_ended).await.is_ok()
    }

    /// Returns a receiver that becomes true when the listener stops accepting connections.
    pub fn ending(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }
}

/// The state that each connection gets a copy of.
#[derive(Clone)]
struct Server<A> {
    answer: A,
    limits: Limits,
    tls: Option<TlsAcceptor>,
    shutdown: watch::Receiver<bool>,
}

impl<A, F, B> Server<A>
where
    A: Fn(Request<Incoming>, IpAddr) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    async fn accept_connections(self, listener: TcpListener, connections: Arc<Semaphore>) {
        let mut shutdown = self.shutdown.clone();
        loop {
            let accepted = async {
                let permit = connections.clone().acquire_owned().await.ok()?;
                Some((listener.accept().await, permit))
            };
            tokio::select! {
                () = wait_for_end(&mut shutdown) => return,
                accepted = accepted => match accepted {
                    Some((Ok((stream, peer)), permit)) => {
                        tokio::spawn(self.clone().serve_transport(stream, peer.ip(), permit));
                    }
                    Some((Err(error), _)) => {
                        tracing::warn!(%error, "accepting a connection failed; the listener goes on");
                        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    }
                    None => return,
                },
            }
        }
    }

    async fn serve_transport(self, stream: TcpStream, peer: IpAddr, _permit: OwnedSemaphorePermit) {
        stream.set_nodelay(true).ok();
        let Some(tls) = self.tls.clone() else { return self.serve(stream, peer).await };
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.serve(stream, peer).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake timed out"),
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: IpAddr) {
        let Self { answer, limits, mut shutdown, .. } = self;
        // The future is boxed, because an idle connection would otherwise reserve room for it.
        let answer = |request| {
            let answered = answer(request, peer);
            Box::pin(async move { Ok::<_, Infallible>(answered.await) })
        };
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_within)
            .max_buf_size(limits.head_bytes)
            .serve_connection(
                TokioIo::new(StallTimeout::new(stream, limits.stall_within)),
                service_fn(answer),
            );
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = wait_for_end(&mut shutdown) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended with an error");
        }
    }
}

/// Waits until the listener is stopped or dropped.
async fn wait_for_end(shutdown: &mut watch::Receiver<bool>) {
    // An error means that the listener was dropped.
    drop(shutdown.wait_for(|ending| *ending).await);
}
