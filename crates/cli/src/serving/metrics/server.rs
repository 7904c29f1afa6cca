//! The HTTP server of metrics: `GET /metrics` for monitoring systems, `GET /healthz` for supervisors.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use listen::{Limits, Listener};
use metrics::{Collection, Format};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// Maximum number of connections.
const CONNECTIONS_MAX: u32 = 64;

/// A process with metrics to serve.
pub(crate) trait MetricsSource: Send + Sync + 'static {
    /// Returns all metrics as they are now.
    fn metrics(&self) -> Collection;

    /// Returns the cell for the URL of the metrics, which is set once they are served.
    fn metrics_url(&self) -> &OnceLock<String>;
}

/// A server of metrics. It stops when it is dropped.
#[derive(Debug)]
pub(crate) struct MetricsServer(Listener);

impl MetricsServer {
    /// Listens at an address; port 0 picks a free port. `collect` is called for each request.
    pub(crate) async fn start(
        address: SocketAddr,
        collect: impl Fn() -> Collection + Send + Sync + 'static,
    ) -> Result<Self> {
        let collect = Arc::new(collect);
        let answer = move |request: http::Request<_>, _| {
            let collect = Arc::clone(&collect);
            async move {
                let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
                let format = Format::for_accept(accept.unwrap_or_default());
                if request.method() != Method::GET && request.method() != Method::HEAD {
                    return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported\n");
                }
                match request.uri().path() {
                    "/metrics" => metrics_response(&collect(), format),
                    "/healthz" => text(StatusCode::OK, "ok\n"),
                    _ => text(StatusCode::NOT_FOUND, "see /metrics and /healthz\n"),
                }
            }
        };
        let limits = Limits { connections: CONNECTIONS_MAX, ..Limits::default() };
        Ok(Self(Listener::start(address, limits, None, answer).await?))
    }

    /// Starts to serve the metrics of a source, and sets their URL in it. Once the source is dropped, there are no metrics.
    pub(crate) async fn serve(source: &Arc<impl MetricsSource>, address: SocketAddr) -> Result<Self> {
        let weak = Arc::downgrade(source);
        let collect = move || weak.upgrade().map(|source| source.metrics()).unwrap_or_default();
        let server = Self::start(address, collect).await.context("cannot serve metrics (--metrics)")?;
        tracing::info!("metrics are served at {}", server.url());
        source.metrics_url().get_or_init(|| server.url());
        Ok(server)
    }

    /// Returns the URL of the metrics.
    pub(crate) fn url(&self) -> String {
        format!("{}/metrics", self.0.url())
    }
}

fn metrics_response(collection: &Collection, format: Format) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(collection.to_text(format)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    response
}

/// Returns a response with a line of plain text.
fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
