//! A server on the loopback interface that signs the requests of packages anew and forwards them to an endpoint over TLS.
//!
//! It stands behind the proxy that counts, so that packages speak plain HTTP with keys of their own, and the endpoint's credentials are in
//! no command, file or environment of a package. Requests with another access key are refused; the access key is random.

use super::run_error::RunError;
use crate::platform::S3Endpoint;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use listen::{Limits, Listener};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use store::{Entropy, SystemClock};
use store_s3::Forwarder;
use tokio::runtime::Runtime;

/// Time for which a connection may be idle: longer than the clients of packages keep one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(900);

type ProxyBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub(super) struct SigningProxy(Listener);

impl SigningProxy {
    /// Starts the server for clients that sign with `access_key`.
    pub(super) fn start(
        endpoint: &S3Endpoint,
        access_key: &str,
        runtime: &Runtime,
    ) -> Result<Self, RunError> {
        let _guard = runtime.enter();
        let entropy = Arc::new(Entropy::new(1));
        let forwarder = Arc::new(Forwarder::new(endpoint.config(), Arc::new(SystemClock), entropy)?);
        let credential: Arc<str> = format!("Credential={access_key}/").into();
        let limits = Limits { head_within: IDLE_TIMEOUT, stall_within: IDLE_TIMEOUT, ..Limits::default() };
        let listening =
            Listener::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), limits, None, move |request, _| {
                answer(request, forwarder.clone(), credential.clone())
            });
        Ok(Self(runtime.block_on(listening)?))
    }

    pub(super) fn url(&self) -> String {
        self.0.url()
    }
}

async fn answer<B>(
    request: Request<B>,
    forwarder: Arc<Forwarder>,
    credential: Arc<str>,
) -> Response<ProxyBody>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let signature = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if !signature.is_some_and(|signature| signature.contains(&*credential)) {
        return refusal(StatusCode::FORBIDDEN, "InvalidAccessKeyId", "another access key");
    }
    match forwarder.forward(request).await {
        Ok(response) => response.map(|body| body.map_err(Into::into).boxed_unsync()),
        Err(error) => refusal(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", &error.to_string()),
    }
}

/// Returns an error response as S3 has it.
fn refusal(status: StatusCode, code: &str, message: &str) -> Response<ProxyBody> {
    let message = harness::format::escape(message);
    let body = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    let mut response = Response::new(Full::from(body).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/xml"));
    response
}
