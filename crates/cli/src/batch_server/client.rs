//! The client of a batch server.

use crate::control::batch_protocol::{BatchAnswer, BatchRequest};
use crate::process;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use connect::HttpClient;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Maximum time in which a connection is made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A batch server that a URL names, and a token for it.
pub(crate) struct RemoteBatches {
    url: String,
    token: HeaderValue,
    http: HttpClient<Full<Bytes>>,
    runtime: Runtime,
}

impl RemoteBatches {
    /// Makes a client of the server at `url`, which trusts the certificates of the machine and those in `ca_bundle`.
    pub(crate) fn new(url: &str, token: &str, ca_bundle: Option<&Path>) -> Result<Self> {
        let mut token =
            HeaderValue::from_str(&format!("Bearer {token}")).context("the token is not a line of text")?;
        token.set_sensitive(true);
        let http = connect::http_client(CONNECT_TIMEOUT, ca_bundle, url.starts_with("https:"))?;
        Ok(Self { url: format!("{url}{}", super::PATH), token, http, runtime: process::runtime()? })
    }

    /// Sends a request, and waits for its answer as long as the server takes.
    pub(crate) fn ask(&self, request: &BatchRequest) -> Result<BatchAnswer> {
        let body = Full::from(serde_json::to_vec(request)?);
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.url)
            .header(AUTHORIZATION, &self.token)
            .header(CONTENT_TYPE, "application/json")
            .body(body)
            .with_context(|| format!("'{}' is not a URL", self.url))?;
        let answered = async {
            let response = self.http.request(request).await.map_err(anyhow::Error::from)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            anyhow::Ok((status, body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes()))
        };
        let (status, body) = self
            .runtime
            .block_on(answered)
            .with_context(|| format!("the batch server at {} does not answer", self.url))?;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).context("the answer of the batch server does not fit");
        }
        let error = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default();
        match error["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => bail!("{} answers with the status {status}; is it a batch server?", self.url),
        }
    }
}
