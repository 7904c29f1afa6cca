//! One POST to a receiver, and the meaning of the response.

use super::authorization::Authorization;
use super::error::WebhookError;
use super::source::ATTRIBUTE_PREFIX;
use crate::Message;
use bytes::Bytes;
use connect::{HttpClient, http_client, innermost};
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use std::path::Path;
use std::time::Duration;

/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a response that is read, so that the connection can be reused.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// The outcome of a POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver accepted the message.
    Taken,
    /// The receiver will not accept the message, however often it is retried.
    Refused(StatusCode),
    /// There was no response, or the receiver has a temporary problem.
    Failed(String),
}

/// A client that posts messages to one receiver.
#[derive(Debug)]
pub struct Post {
    url: Uri,
    authorization: Option<Authorization>,
    client: HttpClient<Full<Bytes>>,
}

impl Post {
    /// Returns a client for an `http` or `https` URL. It trusts the certificate authorities of a PEM file besides the system's.
    pub fn new(
        url: &str,
        authorization: Option<Authorization>,
        ca_bundle: Option<&Path>,
    ) -> Result<Self, WebhookError> {
        let url = parse_url(url)?;
        let is_tls = url.scheme() == Some(&http::uri::Scheme::HTTPS);
        let client = http_client(CONNECT_TIMEOUT, ca_bundle, is_tls)?;
        Ok(Self { url, authorization, client })
    }

    /// Posts a message and waits at most `within` for the whole response. Attributes are sent as headers, as Pub/Sub does.
    pub async fn send(&self, message: &Message, within: Duration) -> Outcome {
        match tokio::time::timeout(within, self.exchange(message)).await {
            Ok(Ok(status)) => classify(status),
            Ok(Err(why)) => Outcome::Failed(why),
            Err(_) => Outcome::Failed("no response in time".to_owned()),
        }
    }

    async fn exchange(&self, message: &Message) -> Result<StatusCode, String> {
        let mut request = Request::new(Full::new(message.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("tenon/", env!("CARGO_PKG_VERSION"))));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.header().clone());
        }
        for (name, value) in &message.attributes {
            let name = HeaderName::try_from(format!("{ATTRIBUTE_PREFIX}{name}"));
            // An attribute that no header can carry cannot have come from a webhook, so it is skipped.
            if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                headers.append(name, value);
            }
        }
        let answer = self.client.request(request).await.map_err(|error| innermost(&error))?;
        let status = answer.status();
        // The content does not matter. A long or broken response only prevents reuse of the connection.
        Limited::new(answer.into_body(), RESPONSE_BYTES_MAX).collect().await.ok();
        Ok(status)
    }
}

/// Classifies a status. Server errors and some others are temporary; all other failures would be repeated.
fn classify(status: StatusCode) -> Outcome {
    let temporary = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    match status {
        status if status.is_success() => Outcome::Taken,
        status if status.is_server_error() || temporary.contains(&status) => {
            Outcome::Failed(status.to_string())
        }
        status => Outcome::Refused(status),
    }
}

/// Parses a receiver's URL.
fn parse_url(url: &str) -> Result<Uri, WebhookError> {
    let invalid = || WebhookError::Url(url.to_owned());
    // Checked first, so that no error message shows a secret.
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    if rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        return Err(WebhookError::Credentials);
    }
    let parsed: Uri = url.parse().map_err(|_| invalid())?;
    match (parsed.scheme_str(), parsed.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(parsed),
        _ => Err(invalid()),
    }
}
