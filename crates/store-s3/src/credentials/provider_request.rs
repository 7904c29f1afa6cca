//! HTTP requests to credential providers: one attempt with a time limit. Calls that need the credentials retry.

use super::CredentialsError;
use crate::failure::{chain, one_line};
use crate::upload::{Progress, Upload};
use crate::xml;
use bytes::Bytes;
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Payload};

/// Maximum length of a response in bytes; a session token has a few kilobytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// The trusted certificates and the clock that all providers use.
#[derive(Debug)]
pub(crate) struct ProviderContext {
    /// A PEM file of additional trusted certificates.
    pub(crate) ca_bundle: Option<PathBuf>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A request to a provider.
#[derive(Debug)]
pub(super) struct ProviderRequest {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Time limits of connecting and of the whole exchange.
    pub(super) within: (Duration, Duration),
}

/// The error of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProviderError {
    pub(super) reason: String,
    /// Whether the error may be transient.
    pub(super) may_pass: bool,
    /// The status of the response; `None` without a response.
    pub(super) status: Option<StatusCode>,
}

impl ProviderError {
    /// Makes a permanent error.
    pub(super) fn permanent(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), may_pass: false, status: None }
    }

    /// Makes a transient error.
    pub(super) fn transient(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), may_pass: true, status: None }
    }

    /// Returns the error as that of a provider.
    pub(super) fn for_provider(self, provider: &impl std::fmt::Display) -> CredentialsError {
        CredentialsError::Failed {
            provider: provider.to_string(),
            reason: self.reason,
            may_pass: self.may_pass,
        }
    }
}

/// Converts the reason why a document is malformed.
impl From<String> for ProviderError {
    fn from(reason: String) -> Self {
        Self::permanent(reason)
    }
}

impl ProviderRequest {
    pub(super) fn get(url: &str, within: (Duration, Duration)) -> Result<Self, ProviderError> {
        let uri = url.parse().map_err(|_| ProviderError::permanent(format!("'{url}' is not a URL")))?;
        Ok(Self { method: Method::GET, uri, headers: HeaderMap::new(), body: Bytes::new(), within })
    }

    /// Adds a header whose value is never shown.
    pub(super) fn secret(mut self, name: &'static str, value: &str) -> Result<Self, ProviderError> {
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            ProviderError::permanent("the token contains characters that HTTP headers cannot contain")
        })?;
        value.set_sensitive(true);
        self.headers.insert(HeaderName::from_static(name), value);
        Ok(self)
    }

    /// Sends the request and returns the body of a successful response.
    pub(super) async fn send(self, context: &ProviderContext) -> Result<Bytes, ProviderError> {
        let (server, within) = (server_of(&self.uri), self.within.1);
        let asking = tokio::time::timeout(within, self.exchange(context));
        let late =
            |_| ProviderError::transient(format!("no response from {server} in {} s", within.as_secs()));
        asking.await.map_err(late)?
    }

    async fn exchange(mut self, context: &ProviderContext) -> Result<Bytes, ProviderError> {
        let server = server_of(&self.uri);
        let is_tls = self.uri.scheme() == Some(&http::uri::Scheme::HTTPS);
        let client = connect::http_client::<Upload>(self.within.0, context.ca_bundle.as_deref(), is_tls)
            .map_err(|error| ProviderError::permanent(error.to_string()))?;
        self.headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        let body = Upload::of(&Payload::from(self.body), Progress::default());
        let mut request = Request::new(body);
        (*request.method_mut(), *request.uri_mut()) = (self.method, self.uri);
        *request.headers_mut() = self.headers;
        let unreachable =
            |error: &dyn std::error::Error| ProviderError::transient(format!("{server}: {}", chain(error)));
        let (head, body) = client.request(request).await.map_err(|error| unreachable(&error))?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| unreachable(error.as_ref()))?.to_bytes();
        if head.status.is_success() { Ok(body) } else { Err(refusal(&server, head.status, &body)) }
    }
}

/// Makes the error of an unsuccessful response, with only code and message of its document.
fn refusal(server: &str, status: StatusCode, body: &[u8]) -> ProviderError {
    let message = xml::parse_error(body).map(|document| (document.code, document.message));
    let message = message.or_else(|| {
        let object = serde_json::from_slice::<serde_json::Value>(body).ok()?;
        let text =
            |names: [&str; 2]| names.iter().find_map(|name| object.get(*name)?.as_str()).map(str::to_owned);
        Some((text(["code", "Code"]), text(["message", "Message"])))
    });
    let (code, message) = message.unwrap_or_default();
    let parts = [code, message].into_iter().flatten().map(|part| one_line(&part));
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    let reason = status.canonical_reason().unwrap_or_default().to_owned();
    let said = if parts.is_empty() { reason } else { parts.join(": ") };
    let may_pass = status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || said.starts_with("Throttling")
        || said.starts_with("IDPCommunicationError");
    ProviderError {
        reason: format!("{server} answers {}: {said}", status.as_u16()),
        may_pass,
        status: Some(status),
    }
}

/// Returns scheme, host and port of a URL, for messages: the other parts may be secret.
pub(super) fn server_of(uri: &Uri) -> String {
    let port = uri.port().map_or(String::new(), |port| format!(":{port}"));
    format!("{}://{}{port}", uri.scheme_str().unwrap_or("http"), uri.host().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_shows_code_and_message() {
        let message = |status: u16, body: &str| {
            let error = refusal("http://x", StatusCode::from_u16(status).unwrap(), body.as_bytes());
            (error.reason, error.may_pass)
        };
        let xml = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not\nyou</Message></Error></ErrorResponse>";
        assert_eq!(message(403, xml), ("http://x answers 403: AccessDenied: not you".to_owned(), false));
        let json = r#"{"message":"Session token not found or invalid"}"#;
        assert_eq!(message(401, json).0, "http://x answers 401: Session token not found or invalid");
        assert_eq!(message(503, ""), ("http://x answers 503: Service Unavailable".to_owned(), true));
        assert_eq!(message(404, "<html>hush</html>").0, "http://x answers 404: Not Found");
    }
}
