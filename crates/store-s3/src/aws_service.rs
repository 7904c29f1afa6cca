//! Signed calls to other AWS services.

use super::config::{ConfigError, Endpoint};
use super::credentials::{CredentialsCache, CredentialsError, CredentialsSource, ProviderContext};
use super::sign::{Signable, Signer, sha256_hex};
use bytes::Bytes;
use connect::{HttpClient, http_client, innermost};
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Entropy};

/// Time to establish a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Maximum length of a response, in bytes: ten SQS messages have at most 10 MiB, with escapes about twice that.
const ANSWER_BYTES_MAX: usize = 24 << 20;
/// Maximum length of an error response in a message, in bytes.
const SHOWN_BYTES_MAX: usize = 300;

/// A client of an AWS service.
#[derive(Debug)]
pub struct AwsService {
    root: Uri,
    host: HeaderValue,
    http: HttpClient<Full<Bytes>>,
    credentials_cache: CredentialsCache,
    signer: Signer,
    clock: Arc<dyn Clock>,
}

/// The reason why a call of a service failed.
#[derive(Debug, thiserror::Error)]
pub enum AwsServiceError {
    /// The call may succeed later.
    #[error("{0}")]
    Unavailable(String),
    /// The service refused the call permanently.
    #[error("{0}")]
    Refused(String),
    /// The credentials to sign the call cannot be obtained.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl AwsService {
    /// Makes a client of a service at the host of a URL; `name` is the service's name in signatures. `trusted_ca_file`
    /// has further certificate authorities to trust, for the service and for the source of credentials.
    ///
    /// # Errors
    /// If the URL or the region is invalid, or if there are no trusted certificates for an `https` URL.
    pub fn new(
        name: &'static str,
        url: &str,
        region: &str,
        credentials: CredentialsSource,
        trusted_ca_file: Option<PathBuf>,
        clock: Arc<dyn Clock>,
        entropy: Arc<Entropy>,
    ) -> Result<Self, ConfigError> {
        let endpoint = Endpoint::parse(url)?;
        let value = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| {
                ConfigError::Value(format!(
                    "invalid value {text:?}: HTTP headers cannot contain these characters"
                ))
            })
        };
        value(region)?;
        let root = Uri::builder()
            .scheme(endpoint.scheme.clone())
            .authority(endpoint.authority.clone())
            .path_and_query("/")
            .build()
            .map_err(|error| ConfigError::Value(error.to_string()))?;
        Ok(Self {
            host: value(endpoint.authority.as_str())?,
            root,
            http: http_client(CONNECT_WITHIN, trusted_ca_file.as_deref(), endpoint.is_tls())?,
            credentials_cache: CredentialsCache::new(
                credentials,
                ProviderContext { ca_bundle: trusted_ca_file, clock: clock.clone() },
                entropy,
            ),
            signer: Signer::new(region, name),
            clock,
        })
    }

    /// Posts a document and waits up to `within` for the whole response.
    ///
    /// # Errors
    /// If credentials cannot be obtained, if there is no response in time, if it is longer than 24 MiB, or if its
    /// status is not a success.
    pub async fn post(
        &self,
        headers: &[(&'static str, &'static str)],
        body: Bytes,
        within: Duration,
    ) -> Result<Bytes, AwsServiceError> {
        let request = self.request(headers, body).await?;
        let (status, answer) = tokio::time::timeout(within, self.exchange(request))
            .await
            .unwrap_or_else(|_| Err(AwsServiceError::Unavailable("no response in time".to_owned())))?;
        if status.is_success() {
            return Ok(answer);
        }
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(SHOWN_BYTES_MAX)]);
        let reason = format!("{status}: {shown}");
        let is_lasting = status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS;
        Err(if is_lasting { AwsServiceError::Refused(reason) } else { AwsServiceError::Unavailable(reason) })
    }

    /// Returns a signed request.
    async fn request(
        &self,
        headers: &[(&'static str, &'static str)],
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, AwsServiceError> {
        let mut all = HeaderMap::new();
        all.insert(HOST, self.host.clone());
        for (name, value) in headers {
            all.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if let Some(credentials) = self.credentials_cache.current().await? {
            let hash = sha256_hex([&*body]);
            let signable = Signable { method: "POST", path: b"/", query: b"", payload: &hash };
            self.signer.sign(signable, &mut all, &credentials, self.clock.now());
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.root.clone();
        *request.headers_mut() = all;
        Ok(request)
    }

    /// Sends a request, and returns the status and the body of the response.
    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), AwsServiceError> {
        let unavailable = |error: &dyn std::error::Error| AwsServiceError::Unavailable(innermost(error));
        let answer = self.http.request(request).await.map_err(|error| unavailable(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| unavailable(&*error))?.to_bytes()))
    }
}
