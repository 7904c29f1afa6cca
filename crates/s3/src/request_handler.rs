//! The handling of requests around their operations: stalled and refused bodies, panics, slots, and records.

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::HeaderValue;
use http::header::{CONNECTION, EXPECT};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use listen::Stall;
use s3s::StdError;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;

use crate::Endpoint;
use crate::admission::Permit;
use crate::request_record::RequestRecord;
use crate::scope::Connection;

/// The maximum time for which a refused body is still read. Clients that are sending see the response only after their
/// last byte.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// The handling of requests around their operations.
#[derive(Clone)]
pub(crate) struct RequestHandler {
    endpoint: Endpoint,
    /// The time after which a request body without progress fails.
    stall_within: Duration,
}

impl RequestHandler {
    /// Returns a handler whose request bodies fail after `stall_within` without progress.
    pub(crate) fn new(endpoint: Endpoint, stall_within: Duration) -> Self {
        Self { endpoint, stall_within }
    }

    /// Handles a request that came over a connection, and returns its response.
    pub(crate) async fn handle<B>(
        self,
        mut request: http::Request<B>,
        connection: Connection,
    ) -> http::Response<s3s::Body>
    where
        B: Body<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
    {
        let peer = connection.peer;
        request.extensions_mut().insert(connection);
        let mut record = RequestRecord::begin(&self.endpoint, request.method(), peer);
        let received_bytes = record.as_ref().map(RequestRecord::received_bytes).unwrap_or_default();
        let cause = record.as_ref().and_then(RequestRecord::cause).cloned();
        let is_read = Arc::new(AtomicBool::new(request.body().is_end_stream()));
        // If the rest were read, a client that sent `Expect: 100-continue` would send a body that is not needed.
        let drains_rest = !request.headers().contains_key(EXPECT);
        let body = |body| {
            let stall = Stall::new(self.stall_within);
            let body = Some(body);
            let is_read = is_read.clone();
            s3s::Body::http_body_unsync(TimedBody { body, stall, is_read, drains_rest, received_bytes })
        };
        let answer = AssertUnwindSafe(store::work_for(cause, self.endpoint.handle(request.map(body))));
        // A broken invariant costs one request, not the connection. The log has the panic's message.
        let mut answer = answer.catch_unwind().await.unwrap_or_else(|_| Endpoint::internal_error_response());
        if !is_read.load(Ordering::Relaxed) {
            // The connection ends with a refused body; the client must not send another request on it (RFC 9112, 9.6).
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let slot = answer.extensions_mut().remove::<Arc<Option<Permit>>>();
        if let Some(record) = &mut record {
            record.note_response(&mut answer);
        }
        answer.map(|body| s3s::Body::http_body_unsync(AdmittedBody { body, record, _slot: slot }))
    }
}

/// A request body that fails when no data arrives for too long.
struct TimedBody<B: Body<Data = Bytes> + Send + Unpin + 'static> {
    /// `None` once the body is being dropped.
    body: Option<B>,
    stall: Stall,
    /// Whether the body has been read to its end.
    is_read: Arc<AtomicBool>,
    /// Whether the rest of the body is read and discarded when the body is dropped.
    drains_rest: bool,
    /// The number of bytes that have been read, for the record.
    received_bytes: Arc<AtomicU64>,
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Drop for TimedBody<B> {
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

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
{
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
        let bytes_of = |frame: &Option<Result<Frame<Bytes>, B::Error>>| match frame {
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

/// A response body that keeps the request's slot, and its record, until it is sent.
struct AdmittedBody {
    body: s3s::Body,
    record: Option<RequestRecord>,
    _slot: Option<Arc<Option<Permit>>>,
}

impl Body for AdmittedBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let Self { body, record, .. } = &mut *self;
        let cause = record.as_ref().and_then(RequestRecord::cause);
        let frame = store::step_for(cause, || Pin::new(body).poll_frame(context));
        if let (Poll::Ready(Some(Ok(frame))), Some(record)) = (&frame, record) {
            record.note_sent(frame.data_ref().map_or(0, Bytes::len));
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
