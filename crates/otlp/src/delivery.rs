//! One POST of a message to the collector, and the meaning of the response.

use crate::collector_url::CollectorUrl;
use crate::exporter::CollectorSettings;
use crate::headers::Headers;
use crate::message::ExportTraceServiceResponse;
use bytes::Bytes;
use connect::{CertificateError, HttpClient, http_client, innermost};
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use prost::Message;
use std::time::Duration;

/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time from the request to the end of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a response that is read.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// The longest pause that a collector can ask for.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The outcome of a POST.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The collector accepted the message, apart from this many spans, for this reason.
    Accepted { rejected: u64, reason: String },
    /// The collector will not accept the message, however often it is sent.
    Refused(String),
    /// No answer, or one that asks to send the message again, after a pause if the collector names one.
    Failed { reason: String, pause: Option<Duration> },
}

/// A client of one collector.
#[derive(Debug)]
pub(super) struct Collector {
    url: CollectorUrl,
    headers: Headers,
    client: HttpClient<Full<Bytes>>,
}

impl Collector {
    /// Makes a client.
    pub(super) fn new(settings: CollectorSettings) -> Result<Self, CertificateError> {
        let CollectorSettings { url, headers, ca_bundle } = settings;
        let is_tls = url.0.scheme() == Some(&http::uri::Scheme::HTTPS);
        Ok(Self { client: http_client(CONNECT_TIMEOUT, ca_bundle.as_deref(), is_tls)?, url, headers })
    }

    /// Sends a message.
    pub(super) async fn post(&self, message: Bytes) -> Outcome {
        match tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(message)).await {
            Ok(Ok((status, headers, body))) => classify(status, &headers, &body),
            Ok(Err(reason)) => Outcome::Failed { reason, pause: None },
            Err(_) => Outcome::Failed { reason: "no response in time".to_owned(), pause: None },
        }
    }

    async fn exchange(&self, message: Bytes) -> Result<(StatusCode, HeaderMap, Bytes), String> {
        let mut request = Request::new(Full::new(message));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.0.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.headers.0);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("tenon/", env!("CARGO_PKG_VERSION"))));
        let response = self.client.request(request).await.map_err(|error| innermost(&error))?;
        let (head, body) = response.into_parts();
        // The status decides. A long or broken body only loses the reason.
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map(|body| body.to_bytes());
        Ok((head.status, head.headers, body.unwrap_or_default()))
    }
}

/// Classifies a response by the rules of OTLP over HTTP.
fn classify(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Outcome {
    if status.is_success() {
        let response = ExportTraceServiceResponse::decode(body).unwrap_or_default();
        let partial = response.partial_success.unwrap_or_default();
        let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0);
        return Outcome::Accepted { rejected, reason: partial.error_message };
    }
    match status.as_u16() {
        429 | 502 | 503 | 504 => {
            let pause = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            let pause = pause.map(|secs| Duration::from_secs(secs).min(PAUSE_MAX));
            Outcome::Failed { reason: status.to_string(), pause }
        }
        _ => Outcome::Refused(status.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ExportTracePartialSuccess;

    #[test]
    fn responses_have_the_meaning_of_the_specification() {
        let (none, mut pause) = (HeaderMap::new(), HeaderMap::new());
        pause.insert(RETRY_AFTER, HeaderValue::from_static("7"));
        let accepted = Outcome::Accepted { rejected: 0, reason: String::new() };
        assert_eq!(classify(StatusCode::OK, &none, b""), accepted);
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too old".to_owned() };
        let body = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let rejected = Outcome::Accepted { rejected: 3, reason: "too old".to_owned() };
        assert_eq!(classify(StatusCode::OK, &none, &body), rejected);
        let failed = |status: StatusCode, pause| Outcome::Failed { reason: status.to_string(), pause };
        let busy = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(classify(busy, &pause, b""), failed(busy, Some(Duration::from_secs(7))));
        for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT] {
            assert_eq!(classify(status, &none, b""), failed(status, None));
        }
        for status in [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::INTERNAL_SERVER_ERROR] {
            assert_eq!(classify(status, &none, b""), Outcome::Refused(status.to_string()));
        }
    }
}
