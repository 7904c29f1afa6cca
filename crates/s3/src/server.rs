//! The endpoint as a server: how many requests it answers at once, and how long their bodies may take.

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::HeaderValue;
use http::header::{CONNECTION, EXPECT};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use listen::{ListenError, Listener, Stall};
use rustls::ServerConfig;
use s3s::StdError;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Endpoint;
use crate::policy_condition::Peer;

/// How long somebody reads on of a body that was refused: a client that sends hears the answer only after the last byte.
const LINGER: Duration = Duration::from_secs(5);

/// What clients may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of connections. A head may have 64 KiB: S3 allows 8 KB of headers and as much of a path.
    pub connections: listen::Limits,
    /// Requests that are being answered at the same time; more are told to slow down.
    pub requests: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: listen::Limits { connections: 16_384, ..listen::Limits::default() },
            requests: 256,
        }
    }
}

/// An endpoint that listens. It ends when it is dropped or stopped.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
    listener: Listener,
}

impl Server {
    /// Listens at an address and serves from then on; port 0 takes a free one.
    ///
    /// # Errors
    /// If the address cannot be listened at.
    pub async fn start(
        endpoint: Endpoint,
        address: SocketAddr,
        limits: Limits,
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<Self, ListenError> {
        let served = Served {
            endpoint: endpoint.clone(),
            stall_within: limits.connections.stall_within,
            requests: Arc::new(Semaphore::new(limits.requests)),
        };
        let answer = move |request, peer| served.clone().answer(request, peer);
        let listener = Listener::start(address, limits.connections, tls, answer).await?;
        tokio::spawn(endpoint.clone().keep_expiring(listener.ending()));
        Ok(Self { endpoint, listener })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// The URL of its root.
    pub fn url(&self) -> String {
        self.listener.url()
    }

    /// What it serves.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Takes no more connections and requests; those under way have `patience` to end, and then their events to be told.
    pub async fn stop(&self, patience: Duration) {
        if !self.listener.stop(patience).await {
            tracing::warn!("requests to the endpoint were cut off");
        }
        self.endpoint.finish(patience).await;
    }
}

#[derive(Clone)]
struct Served {
    endpoint: Endpoint,
    stall_within: Duration,
    requests: Arc<Semaphore>,
}

impl Served {
    async fn answer(self, mut request: http::Request<Incoming>, peer: IpAddr) -> http::Response<s3s::Body> {
        let Ok(place) = self.requests.try_acquire_owned() else {
            return Endpoint::slow_down();
        };
        request.extensions_mut().insert(Peer(peer));
        let is_read = Arc::new(AtomicBool::new(request.body().is_end_stream()));
        // Who asks before sending is not to send what nobody wants.
        let lingers = !request.headers().contains_key(EXPECT);
        let body = |body| {
            let stall = Stall::new(self.stall_within);
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
