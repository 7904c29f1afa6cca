//! Connections: taken, bounded in number and in time, and ended in good order.

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::HeaderValue;
use http::header::{CONNECTION, EXPECT};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use s3s::StdError;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::Endpoint;
use crate::patience::{Patient, Stall};
use crate::policy_condition::Peer;

/// A connection's buffer for a request's head: S3 allows 8 KB of headers and as much of a path.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long a TLS client may take to shake hands.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// After an error of the listener (no file descriptor is left), until the next connection is taken.
const PAUSE: Duration = Duration::from_millis(100);

/// How long somebody reads on of a body that was refused: a client that sends hears the answer only after the last byte.
const LINGER: Duration = Duration::from_secs(5);

/// What clients may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at the same time; more wait to be taken.
    pub connections: usize,
    /// Requests that are being answered at the same time; more are told to slow down.
    pub requests: usize,
    /// How long a request's head may take to arrive, and a connection may be idle.
    pub head_within: Duration,
    /// How long a client may send nothing of a body, or take nothing of an answer.
    pub stall_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            requests: 256,
            head_within: Duration::from_secs(60),
            stall_within: Duration::from_secs(60),
        }
    }
}

/// Why an endpoint cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened at.
    #[error("cannot listen at {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
}

/// An endpoint that listens. It ends when it is dropped or stopped.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
    address: SocketAddr,
    ending: watch::Sender<bool>,
    connections: Arc<Semaphore>,
    limit: u32,
    has_tls: bool,
}

impl Server {
    /// Listens at an address and serves from then on; port 0 takes a free one.
    pub async fn start(
        endpoint: Endpoint,
        address: SocketAddr,
        limits: Limits,
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<Self, ServeError> {
        let listen = |error| ServeError::Listen(address, error);
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (ending, ends) = watch::channel(false);
        let connections = Arc::new(Semaphore::new(limits.connections));
        let has_tls = tls.is_some();
        let served = Served {
            endpoint: endpoint.clone(),
            limits,
            tls: tls.map(TlsAcceptor::from),
            requests: Arc::new(Semaphore::new(limits.requests)),
            ends,
        };
        tokio::spawn(served.take_connections(listener, connections.clone()));
        tokio::spawn(endpoint.clone().keep_expiring(ending.subscribe()));
        let limit = u32::try_from(limits.connections).unwrap_or(u32::MAX);
        Ok(Self { endpoint, address, ending, connections, limit, has_tls })
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

    /// What it serves.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Takes no more connections and requests; those under way have `patience` to end, and then their events to be told.
    pub async fn stop(&self, patience: Duration) {
        self.ending.send_replace(true);
        let all_ended = self.connections.acquire_many(self.limit);
        if tokio::time::timeout(patience, all_ended).await.is_err() {
            tracing::warn!("requests to the endpoint were cut off");
        }
        self.endpoint.finish(patience).await;
    }
}

#[derive(Clone)]
struct Served {
    endpoint: Endpoint,
    limits: Limits,
    tls: Option<TlsAcceptor>,
    requests: Arc<Semaphore>,
    ends: watch::Receiver<bool>,
}

impl Served {
    async fn take_connections(mut self, listener: TcpListener, connections: Arc<Semaphore>) {
        let mut ends = self.ends.clone();
        loop {
            let taken = async {
                let permit = connections.clone().acquire_owned().await.ok()?;
                Some((listener.accept().await, permit))
            };
            tokio::select! {
                () = ended(&mut ends) => return,
                taken = taken => match taken {
                    Some((Ok((stream, peer)), permit)) => self.take(stream, peer.ip(), permit),
                    Some((Err(error), _)) => {
                        tracing::warn!(%error, "a connection could not be taken");
                        tokio::time::sleep(PAUSE).await;
                    }
                    None => return,
                },
            }
        }
    }

    fn take(&mut self, stream: TcpStream, peer: IpAddr, permit: OwnedSemaphorePermit) {
        let served = self.clone();
        stream.set_nodelay(true).ok();
        tokio::spawn(async move {
            let _permit = permit;
            match &served.tls {
                None => served.serve(stream, peer).await,
                Some(tls) => match tokio::time::timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await {
                    Ok(Ok(stream)) => served.serve(stream, peer).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                },
            }
        });
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: IpAddr) {
        let answer = |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            let served = self.clone();
            // Boxed, for a connection that is idle has room for it as well.
            Box::pin(async move { Ok::<_, Infallible>(served.answer(request).await) })
        };
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_within)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(
                TokioIo::new(Patient::new(stream, self.limits.stall_within)),
                service_fn(answer),
            );
        let mut connection = std::pin::pin!(connection);
        let mut ends = self.ends.clone();
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

    async fn answer(&self, request: http::Request<Incoming>) -> http::Response<s3s::Body> {
        let Ok(place) = self.requests.clone().try_acquire_owned() else {
            return Endpoint::slow_down();
        };
        let is_read = Arc::new(AtomicBool::new(request.body().is_end_stream()));
        // Who asks before sending is not to send what nobody wants.
        let lingers = !request.headers().contains_key(EXPECT);
        let body = |body| {
            let stall = Stall::new(self.limits.stall_within);
            let body = Some(body);
            s3s::Body::http_body_unsync(Timed { body, stall, is_read: is_read.clone(), lingers })
        };
        let answer = AssertUnwindSafe(self.endpoint.answer(request.map(body)));
        // A broken invariant costs one request, not the connection: the panic's own message is in the log.
        let mut answer = answer.catch_unwind().await.unwrap_or_else(|_| Endpoint::broken());
        if !is_read.load(Ordering::Relaxed) {
            // The connection ends with what was refused: who hears so sends no further request into it (RFC 9112, 9.6).
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer.map(|body| s3s::Body::http_body_unsync(Placed { body, _place: place }))
    }
}

/// A request's body, which fails when nothing of it comes for too long.
struct Timed {
    /// `None` once it is dropped.
    body: Option<Incoming>,
    stall: Stall,
    /// Nothing of it is left.
    is_read: Arc<AtomicBool>,
    /// What is left when the answer is known is taken from the client all the same.
    lingers: bool,
}

impl Drop for Timed {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|_| self.lingers && !self.is_read.load(Ordering::Relaxed));
        if let (Some(mut rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(async move {
                let read = async { while let Some(Ok(_)) = rest.frame().await {} };
                tokio::time::timeout(LINGER, read).await.ok();
            });
        }
    }
}

impl Body for Timed {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(&mut *body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || body.is_end_stream() {
            self.is_read.store(true, Ordering::Relaxed);
        }
        self.stall.poll(frame, context).map(|frame| match frame {
            Some(frame) => frame.map(|frame| frame.map_err(Into::into)),
            None => Some(Err(crate::body::timed_out().into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

/// An answer's body, which keeps the request's place until it is sent.
struct Placed {
    body: s3s::Body,
    _place: OwnedSemaphorePermit,
}

impl Body for Placed {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Waits until the server ends.
async fn ended(ends: &mut watch::Receiver<bool>) {
    // An error says that the server was dropped.
    drop(ends.wait_for(|ending| *ending).await);
}
