//! The endpoint as an HTTP server: connections, stalled bodies, panics, the access log, and the start of the
//! lifecycle worker.

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{CONNECTION, EXPECT};
use http::{HeaderValue, Method};
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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use store::Timestamp;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::Endpoint;
use crate::access_log::{AccessLog, AccessRecord, LogContext};
use crate::admission::{BODY_BYTES, Permit, REQUESTS};
use crate::scope::Connection;

/// How long a refused body is still read. Clients that are sending see the response only after their last byte.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

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
        let handler = RequestHandler {
            endpoint: endpoint.clone(),
            stall_within: limits.connections.stall_within,
            is_tls: tls.is_some(),
        };
        let handle = move |request, peer| handler.clone().handle(request, peer);
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
            tracing::warn!("the endpoint stopped before all requests had ended");
        }
        self.endpoint.shut_down(patience).await;
    }
}

#[derive(Clone)]
struct RequestHandler {
    endpoint: Endpoint,
    stall_within: Duration,
    is_tls: bool,
}

impl RequestHandler {
    async fn handle(self, mut request: http::Request<Incoming>, peer: IpAddr) -> http::Response<s3s::Body> {
        request.extensions_mut().insert(Connection { peer, is_tls: self.is_tls });
        let mut log_entry = self.endpoint.access_log().map(|log| LogEntry {
            log: log.clone(),
            time: self.endpoint.now(),
            since: Instant::now(),
            peer,
            method: request.method().clone(),
            status: 0,
            received_bytes: Arc::default(),
            sent_bytes: 0,
            answered: None,
        });
        let received_bytes =
            log_entry.as_ref().map(|log_entry| log_entry.received_bytes.clone()).unwrap_or_default();
        let is_read = Arc::new(AtomicBool::new(request.body().is_end_stream()));
        // Reading on would make a client that sent `Expect: 100-continue` send a body that nobody needs.
        let drains_rest = !request.headers().contains_key(EXPECT);
        let body = |body| {
            let stall = Stall::new(self.stall_within);
            let body = Some(body);
            let is_read = is_read.clone();
            s3s::Body::http_body_unsync(TimedBody { body, stall, is_read, drains_rest, received_bytes })
        };
        let answer = AssertUnwindSafe(self.endpoint.handle(request.map(body)));
        // A broken invariant costs one request, not the connection. The log has the panic's message.
        let mut answer = answer.catch_unwind().await.unwrap_or_else(|_| Endpoint::internal_error_response());
        if !is_read.load(Ordering::Relaxed) {
            // The connection ends with a refused body; the client must not send another request on it (RFC 9112, 9.6).
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let slot = answer.extensions_mut().remove::<Arc<Option<Permit>>>();
        if let Some(log_entry) = &mut log_entry {
            (log_entry.status, log_entry.answered) =
                (answer.status().as_u16(), answer.extensions_mut().remove());
        }
        answer.map(|body| s3s::Body::http_body_unsync(AdmittedBody { body, log_entry, _slot: slot }))
    }
}

/// The access log entry of a request in progress, written when it is dropped.
struct LogEntry {
    log: AccessLog,
    time: Timestamp,
    since: Instant,
    peer: IpAddr,
    method: Method,
    status: u16,
    received_bytes: Arc<AtomicU64>,
    sent_bytes: u64,
    /// `None` if the handler panicked or did not finish.
    answered: Option<LogContext>,
}

impl Drop for LogEntry {
    fn drop(&mut self) {
        let answered = self.answered.take();
        let of = answered.as_ref();
        self.log.write(&AccessRecord {
            time: self.time,
            peer: self.peer,
            user: of.and_then(LogContext::user),
            method: self.method.clone(),
            operation: of.and_then(LogContext::operation),
            bucket: of.and_then(|answered| answered.bucket.clone()),
            key: of.and_then(|answered| answered.key.clone()),
            status: self.status,
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes,
            duration: self.since.elapsed(),
            id: of.map(|answered| answered.id.clone()).unwrap_or_default(),
        });
    }
}

/// A request body that fails when no data arrives for too long.
struct TimedBody {
    /// `None` once the body is being dropped.
    body: Option<Incoming>,
    stall: Stall,
    /// Whether the body has been read to its end.
    is_read: Arc<AtomicBool>,
    /// Whether the rest of the body is read and discarded when the body is dropped.
    drains_rest: bool,
    received_bytes: Arc<AtomicU64>,
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|_| self.drains_rest && !self.is_read.load(Ordering::Relaxed));
        if let (Some(mut rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(async move {
                let read = async { while let Some(Ok(_)) = rest.frame().await {} };
                tokio::time::timeout(DRAIN_WITHIN, read).await.ok();
            });
        }
    }
}

impl Body for TimedBody {
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
        let bytes_of = |frame: &Option<Result<Frame<Bytes>, hyper::Error>>| match frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        if let Poll::Ready(frame) = &frame {
            self.received_bytes.fetch_add(bytes_of(frame) as u64, Ordering::Relaxed);
        }
        self.stall.poll(frame, bytes_of, context).map(|frame| match frame {
            Some(frame) => frame.map(|frame| frame.map_err(Into::into)),
            None => Some(Err(crate::error::timed_out().into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

/// A response body that keeps the request's slot until it is sent.
struct AdmittedBody {
    body: s3s::Body,
    log_entry: Option<LogEntry>,
    _slot: Option<Arc<Option<Permit>>>,
}

impl Body for AdmittedBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let (Poll::Ready(Some(Ok(frame))), Some(log_entry)) = (&frame, &mut self.log_entry) {
            log_entry.sent_bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
