//! The listener, and its connections.

use crate::stall::Patient;
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

/// How long a TLS client may take to shake hands.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// After an error of the listener (no file descriptor is left), until the next connection is taken.
const PAUSE: Duration = Duration::from_millis(100);

/// What clients may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at the same time; more wait to be taken.
    pub connections: u32,
    /// The buffer of a connection for a request's head, in bytes.
    pub head_bytes: usize,
    /// How long a request's head may take to arrive, and a connection may be idle.
    pub head_within: Duration,
    /// How long a client may take nothing of an answer; callers may hold bodies to it, with a [`crate::Stall`].
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

/// Why nobody listens.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is not to be had.
    #[error("cannot listen at {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
}

/// A listener, and the connections that it has taken. When it is dropped or stopped it takes no more, and those that it has end
/// with the request that is being answered.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    has_tls: bool,
    limit: u32,
    /// A permit for each connection that may be.
    connections: Arc<Semaphore>,
    ending: watch::Sender<bool>,
}

impl Listener {
    /// Listens at an address and answers from then on, over TLS if it is given a certificate; port 0 takes a free one.
    ///
    /// # Errors
    /// If the address cannot be listened at.
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
        let (ending, ends) = watch::channel(false);
        let connections = Arc::new(Semaphore::new(limits.connections as usize));
        let has_tls = tls.is_some();
        let serving = Serving { answer, limits, tls: tls.map(TlsAcceptor::from), ends };
        tokio::spawn(serving.take_connections(listener, connections.clone()));
        Ok(Self { address, has_tls, limit: limits.connections, connections, ending })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its root.
    pub fn url(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Takes no more connections and requests; says whether those under way ended within `patience`.
    pub async fn stop(&self, patience: Duration) -> bool {
        self.ending.send_replace(true);
        let all_ended = self.connections.acquire_many(self.limit);
        tokio::time::timeout(patience, all_ended).await.is_ok()
    }

    /// Tells when it takes no more connections.
    pub fn ending(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }
}

/// What each connection needs.
#[derive(Clone)]
struct Serving<A> {
    answer: A,
    limits: Limits,
    tls: Option<TlsAcceptor>,
    ends: watch::Receiver<bool>,
}

impl<A, F, B> Serving<A>
where
    A: Fn(Request<Incoming>, IpAddr) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
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
                    Some((Ok((stream, peer)), permit)) => {
                        tokio::spawn(self.clone().take(stream, peer.ip(), permit));
                    }
                    Some((Err(error), _)) => {
                        tracing::warn!(%error, "a connection could not be taken");
                        tokio::time::sleep(PAUSE).await;
                    }
                    None => return,
                },
            }
        }
    }

    async fn take(self, stream: TcpStream, peer: IpAddr, _permit: OwnedSemaphorePermit) {
        stream.set_nodelay(true).ok();
        let Some(tls) = self.tls.clone() else { return self.serve(stream, peer).await };
        match tokio::time::timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.serve(stream, peer).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: IpAddr) {
        let Self { answer, limits, mut ends, .. } = self;
        // Boxed, for a connection that is idle has room for it as well.
        let answer = |request| {
            let answered = answer(request, peer);
            Box::pin(async move { Ok::<_, Infallible>(answered.await) })
        };
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_within)
            .max_buf_size(limits.head_bytes)
            .serve_connection(TokioIo::new(Patient::new(stream, limits.stall_within)), service_fn(answer));
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = ended(&mut ends) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        }
    }
}

/// Waits until the listener ends.
async fn ended(ends: &mut watch::Receiver<bool>) {
    // An error says that it was dropped.
    drop(ends.wait_for(|ending| *ending).await);
}
