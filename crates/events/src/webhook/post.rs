//! One POST, and what its answer means.

use super::{Authorization, WebhookError, parse_url};
use crate::Message;
use crate::source::ATTRIBUTE_PREFIX;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use std::path::Path;
use std::time::Duration;
use store::s3::{HttpClient, http_client, innermost};

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How much of an answer is read, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What became of a POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has it.
    Taken,
    /// The receiver will not have it however often it is asked.
    Refused(StatusCode),
    /// Nobody answered, or the receiver is in trouble.
    Failed(String),
}

/// How messages are posted to a receiver.
#[derive(Debug)]
pub struct Post {
    url: Uri,
    authorization: Option<Authorization>,
    client: HttpClient<Full<Bytes>>,
}

impl Post {
    /// To a URL (`http` or `https`), as somebody; trusts the certificate authorities of a PEM file besides the system's.
    pub fn new(
        url: &str,
        authorization: Option<Authorization>,
        ca_bundle: Option<&Path>,
    ) -> Result<Self, WebhookError> {
        let url = parse_url(url)?;
        let is_tls = url.scheme() == Some(&http::uri::Scheme::HTTPS);
        let client = http_client(CONNECT_WITHIN, ca_bundle, is_tls)?;
        Ok(Self { url, authorization, client })
    }

    /// Posts a message, and waits at most so long for the whole answer. Attributes go as headers, as Pub/Sub writes them.
    pub async fn send(&self, message: &Message, within: Duration) -> Outcome {
        match tokio::time::timeout(within, self.exchange(message)).await {
            Ok(Ok(status)) => judged(status),
            Ok(Err(why)) => Outcome::Failed(why),
            Err(_) => Outcome::Failed("no answer in time".to_owned()),
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
            headers.insert(AUTHORIZATION, authorization.0.clone());
        }
        for (name, value) in &message.attributes {
            let name = HeaderName::try_from(format!("{ATTRIBUTE_PREFIX}{name}"));
            // What no header can hold no webhook can have said.
            if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                headers.append(name, value);
            }
        }
        let answer = self.client.request(request).await.map_err(|error| innermost(&error))?;
        let status = answer.status();
        // What it says does not matter, and a long or broken answer costs the connection only.
        Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.ok();
        Ok(status)
    }
}

/// A receiver that wants something else of us will want it the next time too; one in trouble may recover.
fn judged(status: StatusCode) -> Outcome {
    let passes = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    match status {
        status if status.is_success() => Outcome::Taken,
        status if status.is_server_error() || passes.contains(&status) => Outcome::Failed(status.to_string()),
        status => Outcome::Refused(status),
    }
}
